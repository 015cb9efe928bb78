# SPDX-License-Identifier: Apache-2.0
"""Idle times of a device and their causes, as defined in the report idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.analysis.timeline import Activity
from pyprof.api_names import API_KINDS
from pyprof.model import Bools, Ints

# In the order of their priority.
CAUSES = ("queued", "data loader", "synchronization", "host copy", "launch-bound", "not recorded")
QUEUED, DATALOADER, SYNC, COPY, LAUNCH, NOTHING = range(len(CAUSES))
NONE = -1
_AT_ONCE = (
    1 << 18
)  # gaps whose causes are found at a time: small arrays are made in memory that is used again


def gaps(activity: Activity, device: int | None, low: int, high: int) -> dict[str, tuple[Ints, Ints]]:
    """Return the starts and ends of the gaps of a device in [low, high), by their cause; with None, of the times in
    which all devices of the worker were idle."""
    waits = activity.store.cached(("waits", activity.worker), lambda: Waits(activity))
    idle_times = _gaps_around(activity, device, low, high)
    cause = np.empty(len(idle_times.start), np.int8)
    for first in range(0, len(cause), _AT_ONCE):
        part = Gaps(*(column[first : first + _AT_ONCE] for column in idle_times))
        cause[first : first + _AT_ONCE] = causes_of(activity, _recorded(activity, part), waits).cause
    begin, end = idle_times.start, idle_times.end
    del idle_times
    np.maximum(begin, low, out=begin)
    np.minimum(end, high, out=end)
    nonempty = end > begin
    return {
        name: (begin[mask], end[mask])
        for code, name in enumerate(CAUSES)
        if (mask := nonempty & (cause == code)).any()
    }


class Causes(NamedTuple):
    """Of each gap: its cause; the call in which the CPU waited, -1 for none; the event that ended it, -1 for none; and
    the stretch of time of a thread that made the device wait."""

    cause: Ints
    call: Ints
    event: Ints
    thread: Ints
    start: Ints
    end: Ints


def launch_bound(activity: Activity, first: int, last: int, low: int) -> tuple[Causes, Ints]:
    """Return the gaps in which all devices of a worker waited for the launches of events with ids in [first, last), and
    how long from `low` on, in ns."""
    begin, stop = np.searchsorted(activity.id, (first, last)).tolist()
    start, end = activity.start[begin:stop], activity.end[begin:stop]
    if not len(start):
        return Causes(*[start] * len(Causes._fields)), start
    order = np.argsort(start, kind="stable")
    before = activity.end[:begin].max() if begin else low
    reached = np.maximum.accumulate(np.r_[before, end[order]])[:-1]
    idle = np.flatnonzero(start[order] > np.maximum(reached, low))
    event = order[idle]
    gaps = _recorded(activity, Gaps(reached[idle], start[event], begin + event))
    waits = activity.store.cached(("waits", activity.worker), lambda: Waits(activity))
    causes = causes_of(activity, gaps, waits)
    late = causes.cause == LAUNCH
    since, until = np.maximum(reached[idle][late], low), start[event][late]
    causes = Causes(*(column[late] for column in causes))._replace(start=since)
    return causes, until - since - activity.paused.within(since, until)


def recorded(activity: Activity, device: int, low: int, high: int) -> Iterator[tuple[Gaps, Ints]]:
    """Yield the gaps of a device that lie in [low, high) or extend into it, in parts by time, clipped to the recording;
    and the length in ns of each in [low, high), without pauses in which the recording was read."""
    every = _gaps_around(activity, device, low, high)
    for first in range(0, len(every.start), _AT_ONCE):
        part = Gaps(*(column[first : first + _AT_ONCE] for column in every))
        begin, end = np.maximum(part.start, low), np.minimum(part.end, high)
        length = end - begin - activity.paused.within(begin, np.maximum(end, begin))
        nonempty = np.flatnonzero(length > 0)
        own = _recorded(activity, part)
        yield Gaps(*(column[nonempty] for column in own)), length[nonempty]


def _gaps_around(activity: Activity, device: int | None, low: int, high: int) -> Gaps:
    return gaps_of(activity, device, min(activity.span[0], low), max(activity.span[1], high))


def _recorded(activity: Activity, gaps: Gaps) -> Gaps:
    """Return gaps clipped to the recording: a step may begin before it. Causes depend only on this part, whichever
    steps are selected."""
    return gaps._replace(start=np.clip(gaps.start, *activity.span), end=np.clip(gaps.end, *activity.span))


class Gaps(NamedTuple):
    """Times in which a device was idle, and the index of the event that ended each, -1 for none."""

    start: Ints
    end: Ints
    event: Ints


def gaps_of(activity: Activity, device: int | None, low: int, high: int) -> Gaps:
    """Return the gaps of a device, or those common to all devices of the worker, in [low, high)."""
    selected = np.ones(len(activity.id), bool) if device is None else activity.on(device)
    busy = activity.union(selected)
    place = _first_at(activity, selected, busy.start)
    start, end = np.r_[low, busy.end], np.r_[busy.start, high]
    del busy
    nonempty = end > start
    if nonempty.all():
        return Gaps(start, end, place)
    return Gaps(start[nonempty], end[nonempty], place[nonempty])


def _first_at(activity: Activity, selected: Bools, time: Ints) -> Ints:
    """Return the place of the first of the selected events that starts at each time, and -1 at the end."""
    place = np.full(len(time) + 1, NONE, np.int64)
    begin, on = activity.start, None
    if not selected.all():
        on = np.flatnonzero(selected)
        begin = begin[on]
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, on = begin[order], order if on is None else on[order]
    place[:-1] = np.searchsorted(begin, time)
    if on is not None:
        place[:-1] = on[place[:-1]]
    return place


class Waits:
    """Calls in which a thread waited for the device, without nested ones. `threads`: starts, ends and places, by thread
    and start; `calls`: their places, ascending."""

    def __init__(self, activity: Activity):
        call = activity.call
        start = activity.of_calls("start_ns").values
        end = start + activity.of_calls("duration_ns").values
        sync = call["kind"].values == API_KINDS.index("sync")
        waiting = np.flatnonzero(sync | self._blocking(activity, end))
        self.threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        thread = call["thread"].values[waiting]
        for number in np.unique(thread).tolist():
            calls = waiting[thread == number]
            reached = np.maximum.accumulate(end[calls])
            calls = calls[np.r_[True, end[calls][1:] > reached[:-1]]]
            self.threads[number] = start[calls], end[calls], calls
        self.calls: Ints = np.sort(np.concatenate([waiting[:0], *(one[2] for one in self.threads.values())]))

    @staticmethod
    def _blocking(activity: Activity, end: Ints) -> Bools:
        """Return a mask of copy calls that returned only after one of their copies had ended."""
        out = np.zeros(len(end), bool)
        copies = np.append(activity.call["kind"].values == API_KINDS.index("memcpy"), False)
        launched = np.flatnonzero(copies[activity.launch])
        place = activity.launch[launched]
        out[place[activity.end[launched] <= end[place]]] = True
        return out

    def at(self, time: Ints, thread: Ints) -> Ints:
        """Return the call that ran at each time on a thread, -1 for none; thread -1 matches any thread."""
        out = np.full(len(time), NONE, np.int64)
        for number, (start, end, place) in self.threads.items():
            pending = np.flatnonzero(((thread == number) | (thread == NONE)) & (out == NONE))
            last = np.searchsorted(start, time[pending], side="right") - 1
            runs = (last >= 0) & (end[np.maximum(last, 0)] > time[pending])
            out[pending[runs]] = place[last[runs]]
        return out


def _at(values: Ints, place: Ints) -> Ints:
    """Return the values at some places, -1 at place -1."""
    out = np.full(len(place), NONE, np.int64)
    known = np.flatnonzero(place >= 0)
    out[known] = values[place[known]]
    return out


def causes_of(activity: Activity, gaps: Gaps, waits: Waits) -> Causes:
    """Return the cause of each gap."""
    call = activity.call
    launch = _at(activity.launch, gaps.event)
    has_launch = launch >= 0
    returned = _at(call["start_ns"].values, launch) + _at(call["duration_ns"].values, launch)
    thread = _at(call["thread"].values, launch)
    until = np.where(has_launch, np.minimum(returned, gaps.end), gaps.end)
    queued = has_launch & (returned <= gaps.start)
    until = np.maximum(until, gaps.start)
    # Nothing was recorded yet, and the first event had to wait on the device: for what was launched before.
    earlier = has_launch & (gaps.start <= activity.span[0]) & (gaps.end - until > until - gaps.start)
    loading = activity.dataloader.within(gaps.start, until)
    wait = waits.at(gaps.start, thread)
    kind = _at(call["kind"].values, wait)
    cause = np.select(
        [
            queued, earlier, (loading > 0) & (2 * loading >= until - gaps.start), kind == API_KINDS.index("sync"),
            wait >= 0, has_launch,
        ],
        [QUEUED, NOTHING, DATALOADER, SYNC, COPY, LAUNCH],
        NOTHING,
    )  # fmt: skip
    waited = (cause == SYNC) | (cause == COPY)
    thread = np.where(waited, _at(call["thread"].values, wait), thread)
    unknown = thread == NONE
    if unknown.any():
        thread = np.where(unknown, activity.launching_thread, thread)
    return Causes(
        cause,
        np.where(waited, wait, NONE),
        gaps.event,
        thread,
        gaps.start,
        np.where(waited, gaps.start, until),
    )

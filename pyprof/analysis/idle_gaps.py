# SPDX-License-Identifier: Apache-2.0
"""Idle times of a device and their causes, as defined in the report idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.analysis.timeline import Activity
from pyprof.api_names import API_KINDS
from pyprof.model import Bools, Ints

# In the order of their priority.
CAUSES = ("queued", "data loader", "synchronization", "host copy", "launch-bound", "not recorded")
QUEUED, DATALOADER, SYNC, COPY, LAUNCH, NOTHING = range(len(CAUSES))
NONE = -1


def gaps(activity: Activity, device: int | None, low: int, high: int) -> dict[str, tuple[Ints, Ints]]:
    """Return the starts and ends of the gaps of a device in [low, high), by their cause; with None, of the times in
    which all devices of the worker were idle."""
    waits = activity.store.cached(("waits", activity.worker), lambda: Waits(activity))
    begin, end, causes = within(activity, device, low, high, waits)
    cause, nonempty = causes.cause, end > begin
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


def within(
    activity: Activity, device: int | None, low: int, high: int, waits: Waits
) -> tuple[Ints, Ints, Causes]:
    """Return the start and end of each gap, clipped to [low, high), and its cause."""
    idle_times = gaps_of(activity, device, min(activity.span[0], low), max(activity.span[1], high))
    # A step may begin before the recording. Causes depend only on the recorded part, whichever steps are selected.
    recorded = idle_times._replace(
        start=np.clip(idle_times.start, *activity.span), end=np.clip(idle_times.end, *activity.span)
    )
    causes = causes_of(activity, recorded, waits)
    return np.maximum(idle_times.start, low), np.minimum(idle_times.end, high), causes


class Gaps(NamedTuple):
    """Times in which a device was idle, and the index of the event that ended each, -1 for none."""

    start: Ints
    end: Ints
    event: Ints


def gaps_of(activity: Activity, device: int | None, low: int, high: int) -> Gaps:
    """Return the gaps of a device, or those common to all devices of the worker, in [low, high)."""
    selected = np.ones(len(activity.id), bool) if device is None else activity.on(device)
    on = np.flatnonzero(selected)
    on = on[np.argsort(activity.start[on], kind="stable")]
    busy = activity.union(selected)
    start, end = np.r_[low, busy.end], np.r_[busy.start, high]
    event = np.r_[on[np.searchsorted(activity.start[on], busy.start)], NONE]
    nonempty = end > start
    return Gaps(start[nonempty], end[nonempty], event[nonempty])


class Waits:
    """Calls in which a thread waited for the device, without nested ones, by thread and start."""

    def __init__(self, activity: Activity):
        call = activity.call
        start = call["start_ns"].values
        end = start + call["duration_ns"].values
        sync = call["kind"].values == API_KINDS.index("sync")
        waiting = np.flatnonzero(sync | self._blocking(activity, end))
        self._threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        thread = call["thread"].values[waiting]
        for number in np.unique(thread).tolist():
            calls = waiting[thread == number]
            reached = np.maximum.accumulate(end[calls])
            calls = calls[np.r_[True, end[calls][1:] > reached[:-1]]]
            self._threads[number] = start[calls], end[calls], calls

    @staticmethod
    def _blocking(activity: Activity, end: Ints) -> Bools:
        """Return a mask of copy calls that returned only after one of their copies had ended."""
        out = np.zeros(len(end), bool)
        launched = np.flatnonzero(activity.launched)
        place = activity.launch[launched]
        out[place[activity.end[launched] <= end[place]]] = True
        copies: Bools = activity.call["kind"].values == API_KINDS.index("memcpy")
        return out & copies

    def at(self, time: Ints, thread: Ints) -> Ints:
        """Return the call that ran at each time on a thread, -1 for none; thread -1 matches any thread."""
        out = np.full(len(time), NONE, np.int64)
        for number, (start, end, place) in self._threads.items():
            pending = np.flatnonzero(((thread == number) | (thread == NONE)) & (out == NONE))
            last = np.searchsorted(start, time[pending], side="right") - 1
            runs = (last >= 0) & (end[np.maximum(last, 0)] > time[pending])
            out[pending[runs]] = place[last[runs]]
        return out


def causes_of(activity: Activity, gaps: Gaps, waits: Waits) -> Causes:
    """Return the cause of each gap."""
    call = activity.call
    launch = np.r_[activity.launch, NONE][gaps.event]
    has_launch = launch >= 0
    returned = np.r_[call["start_ns"].values + call["duration_ns"].values, 0][launch]
    thread = np.where(has_launch, np.r_[call["thread"].values, 0][launch], NONE)
    until = np.where(has_launch, np.minimum(returned, gaps.end), gaps.end)
    queued = has_launch & (returned <= gaps.start)
    until = np.maximum(until, gaps.start)
    loading = activity.dataloader.within(gaps.start, until)
    wait = waits.at(gaps.start, thread)
    kind = np.r_[call["kind"].values, NONE][wait]
    cause = np.select(
        [
            queued, (loading > 0) & (2 * loading >= until - gaps.start), kind == API_KINDS.index("sync"), wait >= 0,
            has_launch,
        ],
        [QUEUED, DATALOADER, SYNC, COPY, LAUNCH],
        NOTHING,
    )  # fmt: skip
    waited = (cause == SYNC) | (cause == COPY)
    thread = np.where(waited, np.r_[call["thread"].values, NONE][wait], thread)
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

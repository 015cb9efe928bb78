# SPDX-License-Identifier: Apache-2.0
"""Dependencies of the events of a device and of the waiting calls of the host: the edges of a step's critical path.

An event begins when three things have happened: it was launched, the event before it on its stream has ended,
and so have those on other streams that its stream waited for. The one that happened last released it. No recorder
stores which event a cudaStreamWaitEvent waits for. It is taken for the one that ended last before the start, if a
thread called it between the launches of the two events on the stream, and the other was launched before. Of the events
of one graph's replay, any may depend on any that ended before.

A waiting call (cudaStreamSynchronize, a copy to pageable memory) is released by its own copy, or by the event that
ended last before its return, if that was launched before the call and had not ended when it began.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import Bools, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.gaps import Waits
from pyprof.store import reads

STREAM, OTHER_STREAM, LAUNCH, UNKNOWN = range(4)
NEVER = -(1 << 61)  # ns; before any recording
NONE = -1
_AT_ONCE = 1 << 18  # events: small arrays are made in memory that is used again
_TRIES = 8  # events that may have ended between a wait's own event and its return


class Waiting(NamedTuple):
    """Calls of a thread in which the host waited for an event, by their ends. `event`: its place."""

    start: Ints
    end: Ints
    event: Ints


class Dependencies:
    """The releases of a worker's events and waiting calls.

    Of each event: `stream`: a number for its device and stream; `previous`: the event before it there, `other`: the one
    on another stream that it waited for, by their places, -1 without one; `kind`: which of the three released it;
    `before`: the event that did, -1 if it was the launch or is unknown. `by_end`: places in the order of their `ends`;
    `by_stream`: by stream and start. `waits`: by thread.
    """

    def __init__(self, activity: Activity):
        self.activity = activity
        self.by_end: Ints = np.argsort(activity.end, kind="stable").astype(np.int32)
        self.ends: Ints = activity.end[self.by_end]
        self.stream = self._streams()
        self.by_stream: Ints = np.lexsort((activity.start, self.stream)).astype(np.int32)
        self.previous = self._previous()
        self.other = self._other()
        self.kind, self.before = self._releases()
        self.waits = self._waits()
        del self.called  # of ten million events 80 MB, which only a replay needs again

    @cached_property
    def called(self) -> Ints:
        """The time at which the launch of each event began, NEVER without one."""
        return _of(self.activity.of_calls("start_ns").values, self.activity.launch)

    @cached_property
    def released(self) -> Ints:
        """The times at which each of the three had happened, at the latest when the event began, in the order STREAM,
        OTHER_STREAM, LAUNCH; NEVER where that is unknown."""
        return self._released(slice(None), self._returned())

    def _released(self, part: slice, returned: Ints) -> Ints:
        end, start = self.activity.end, self.activity.start[part]
        of_events = [np.where(place >= 0, end[place], NEVER) for place in (self.previous[part], self.other[part])]
        out: Ints = np.minimum(np.stack([*of_events, returned[part]]), start)
        return out

    def _releases(self) -> tuple[Ints, Ints]:
        """Return what released each event, and the event before it that did."""
        returned = self._returned()
        kind, before = np.empty(len(returned), np.int8), np.full(len(returned), NONE, np.int32)
        for part in _slices(len(returned)):
            released = self._released(part, returned)
            latest = released.max(axis=0)
            # Of equal times the first counts: an event that began as soon as the one before it ended waited for that.
            kind[part] = np.where(latest == NEVER, UNKNOWN, np.argmax(released == latest, axis=0))
            for number, events in ((STREAM, self.previous), (OTHER_STREAM, self.other)):
                np.copyto(before[part], events[part], where=kind[part] == number)
        return kind, before

    def _streams(self) -> Ints:
        """Return a number for the device and stream of each event."""
        device, stream = (self.activity.of_events(name).values for name in ("device", "stream"))
        order = np.lexsort((stream, device))
        fresh = (device[order][1:] != device[order][:-1]) | (stream[order][1:] != stream[order][:-1])
        number = np.zeros(len(order), np.int32)
        number[order[1:]] = np.cumsum(fresh, dtype=np.int32)
        return number

    def _previous(self) -> Ints:
        """Return the event before each on its stream, -1 for none and where they overlap."""
        start, end, stream = self.activity.start, self.activity.end, self.stream
        previous = np.full(len(start), NONE, np.int32)
        order = self.by_stream
        same = stream[order[1:]] == stream[order[:-1]]
        same &= end[order[:-1]] <= start[order[1:]]
        previous[order[1:][same]] = order[:-1][same]
        return previous

    def _ended(self, time: Ints) -> Ints:
        """Return the number of events that ended by each time."""
        return np.searchsorted(self.ends, time, side="right")

    def _other(self) -> Ints:
        """Return the event on another stream that each waited for, -1 without evidence."""
        start, launch, stream, called = self.activity.start, self.activity.launch, self.stream, self.called
        out = np.full(len(start), NONE, np.int32)
        if not len(start):
            return out
        stream_waits = self._asked()
        ended = np.r_[NONE, NONE, self.by_end].astype(np.int32)  # none, for the places -1 and -2
        for part in _slices(len(start)):
            place = self._ended(start[part]) - 1
            own = np.arange(len(start), dtype=np.int32)[part]
            other = ended[place + 2]
            other = np.where(other == own, ended[place + 1], other)
            apart = (other >= 0) & (stream[other] != stream[part]) & (called[other] <= called[part])
            together = (launch[part] >= 0) & (launch[other] == launch[part])
            out[part] = np.where(apart & (together | stream_waits[part]), other, NONE)
        return out

    def _asked(self) -> Bools:
        """Return whether a thread made a stream wait between the launches of the event before on the stream and of each
        event."""
        activity = self.activity
        name = activity.of_calls("name").values
        texts = reads.texts_of(activity.store, name)
        waits = [number for number, text in texts.items() if "StreamWaitEvent" in text]
        calls = np.flatnonzero(np.isin(name, waits))
        del name
        pending = np.zeros(len(self.called), bool)
        if not len(calls):
            return pending
        thread, time = activity.call["thread"].values, activity.of_calls("start_ns").values[calls]
        launching = np.r_[thread, NONE][activity.launch]
        for number, events in groups(launching):
            times = np.sort(time[thread[calls] == number])
            count = np.searchsorted(times, self.called[events])
            before = self.previous[events]
            same = (before >= 0) & (launching[before] == number)
            pending[events] = count > np.where(same, np.searchsorted(times, self.called[before]), 0)
        return pending

    def _returned(self) -> Ints:
        """Return when each event was launched: when the call had returned, or, of one that returned after the event had
        begun (a copy that waits for its end), when it began; NEVER without a launch. So of a call that launched
        several events, the return releases at most the first."""
        activity = self.activity
        launch = activity.launch
        end = activity.of_calls("start_ns").values + activity.of_calls("duration_ns").values
        first = np.full(len(end) + 1, -NEVER)
        np.minimum.at(first, launch, activity.start)
        at_once = activity.start == first[launch]
        del first
        returned = _of(end, launch)
        return np.where(at_once & (returned <= activity.start), returned, self.called)

    def _waits(self) -> dict[int, Waiting]:
        """Return the calls that really waited."""
        activity = self.activity
        if not len(self.by_end):
            return {}  # nothing to wait for: the work of the launches is not in the file
        own = np.full(len(activity.call["thread"].values) + 1, NONE, np.int32)
        launched = self.by_end[activity.launch[self.by_end] >= 0]
        own[activity.launch[launched]] = launched  # the last to end of each call
        out = {}
        for number, (start, end, calls) in Waits(activity).threads.items():
            event = own[calls]
            event[(event >= 0) & ~((activity.end[event] <= end) & (activity.end[event] > start))] = NONE
            place = self._ended(end)
            for _ in range(_TRIES):
                place = place - 1
                there = (event < 0) & (place >= 0)
                candidate = self.by_end[np.maximum(place, 0)]
                if not there.any():
                    break
                waited = there & (activity.end[candidate] > start) & (self.called[candidate] <= start)
                event[waited] = candidate[waited]
            real = np.flatnonzero(event >= 0)
            real = real[np.argsort(end[real], kind="stable")]
            out[number] = Waiting(start[real], end[real], event[real])
        return out


def _of(values: Ints, place: Ints) -> Ints:
    """Return the values at places, NEVER at place -1."""
    out: Ints = np.r_[values, NEVER][place]
    return out


def _slices(size: int) -> Iterator[slice]:
    yield from (slice(first, first + _AT_ONCE) for first in range(0, size, _AT_ONCE))

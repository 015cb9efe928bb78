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

from typing import NamedTuple

import numpy as np

from pyprof.analysis.idle_gaps import Waits
from pyprof.analysis.timeline import Activity
from pyprof.intervals import groups
from pyprof.model import Bools, Ints
from pyprof.store import reads

STREAM, OTHER_STREAM, LAUNCH, UNKNOWN = range(4)
NEVER = -(1 << 61)  # ns; before any recording
NONE = -1
_TRIES = 8  # events that may have ended between a wait's own event and its return


class Waiting(NamedTuple):
    """Calls of a thread in which the host waited for an event, by their ends. `event`: its place."""

    start: Ints
    end: Ints
    event: Ints


class Dependencies:
    """The releases of a worker's events and waiting calls.

    Of each event: `stream`: a number for its device and stream; `previous`: the event before it there, `other`: the one
    on another stream that it waited for, by their places, -1 without one; `released`: when each of the three had
    happened, at the latest when it began, in the order STREAM, OTHER_STREAM, LAUNCH, NEVER where that is unknown;
    `latest`: the last of these times, and `kind`: which of them it is. `by_end`: places in the order of their `ends`.
    `waits`: by thread.
    """

    def __init__(self, activity: Activity):
        self.activity = activity
        self.by_end: Ints = np.argsort(activity.end, kind="stable")
        self.ends: Ints = activity.end[self.by_end]
        self.called = _of(activity.call["start_ns"].values, activity.launch)
        self.stream = self._streams()
        self.previous = self._previous()
        self.other = self._other()
        end = np.r_[activity.end, NEVER]
        self.released: Ints = np.stack([end[self.previous], end[self.other], self._returned()])
        np.minimum(self.released, activity.start, out=self.released)
        self.latest: Ints = self.released.max(axis=0)
        # Of equal times the first counts: an event that began as soon as the one before it ended waited for that.
        kind = np.argmax(self.released == self.latest, axis=0)
        self.kind: Ints = np.where(self.latest == NEVER, UNKNOWN, kind)
        self.before: Ints = np.select(
            [self.kind == STREAM, self.kind == OTHER_STREAM], [self.previous, self.other], NONE
        )
        self.waits = self._waits()

    def _streams(self) -> Ints:
        """Return a number for the device and stream of each event."""
        event = self.activity.event
        device, stream = event["device"].values.astype(np.int64), event["stream"].values
        order = np.lexsort((stream, device))
        fresh = (device[order][1:] != device[order][:-1]) | (stream[order][1:] != stream[order][:-1])
        number = np.zeros(len(order), np.int64)
        number[order[1:]] = np.cumsum(fresh)
        return number

    def _previous(self) -> Ints:
        """Return the event before each on its stream, -1 for none and where they overlap."""
        start, end, stream = self.activity.start, self.activity.end, self.stream
        previous = np.full(len(start), NONE, np.int64)
        order = np.lexsort((np.arange(len(start)), start, stream))
        same = stream[order[1:]] == stream[order[:-1]]
        previous[order[1:][same]] = order[:-1][same]
        previous[np.r_[end, NEVER][previous] > start] = NONE
        return previous

    def _ended(self, time: Ints) -> Ints:
        """Return the number of events that ended by each time."""
        return np.searchsorted(self.ends, time, side="right")

    def _other(self) -> Ints:
        """Return the event on another stream that each waited for, -1 without evidence."""
        start, launch, stream = self.activity.start, self.activity.launch, self.stream
        if not len(start):
            return self.previous
        place = self._ended(start) - 1
        ended = np.r_[NONE, NONE, self.by_end]  # none, for the places -1 and -2
        other = ended[place + 2]
        other = np.where(other == np.arange(len(start)), ended[place + 1], other)
        apart = (other >= 0) & (stream[other] != stream) & (self.called[other] <= self.called)
        together = (launch >= 0) & (launch[other] == launch)
        return np.where(apart & (together | self._asked()), other, NONE)

    def _asked(self) -> Bools:
        """Return whether a thread made a stream wait between the launches of the event before on the stream and of each
        event."""
        activity = self.activity
        texts = reads.texts_of(activity.store, np.unique(activity.call["name"].values))
        waits = [number for number, text in texts.items() if "StreamWaitEvent" in text]
        calls = np.flatnonzero(np.isin(activity.call["name"].values, waits))
        pending = np.zeros(len(activity.id), bool)
        if not len(calls):
            return pending
        thread = activity.call["thread"].values
        launching = _of(thread.astype(np.int64), activity.launch)
        for number, events in groups(launching):
            times = np.sort(activity.call["start_ns"].values[calls[thread[calls] == number]])
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
        launch, call = activity.launch, activity.call
        returned = _of(call["start_ns"].values + call["duration_ns"].values, launch)
        first = np.full(len(call["start_ns"].values) + 1, -NEVER)
        np.minimum.at(first, launch, activity.start)
        return np.where(
            (returned <= activity.start) & (activity.start == first[launch]), returned, self.called
        )

    def _waits(self) -> dict[int, Waiting]:
        """Return the calls that really waited."""
        activity = self.activity
        own = np.full(len(activity.call["start_ns"].values) + 1, NONE, np.int64)
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
                candidate = self.by_end[np.maximum(place, 0)] if len(self.by_end) else place
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

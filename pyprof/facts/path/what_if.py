# SPDX-License-Identifier: Apache-2.0
"""Replay of a recording without some of its work: by how much its steps would be shorter.

Each event and each waiting call keeps what it waited for (`dependencies`) and the time that it took. If what released
it comes earlier, it comes earlier by as much, until another of the things that it waits for holds it up. So its shift
is the least, over these, of their shift and the time by which they were earlier than the last one. A collective comes
as much earlier as its last arrival on any rank.

Along a stream this is a recurrence, shift = min(shift before + a, b), whose solution is a running minimum: events in a
row that wait for nothing but the one before and their launches are one operation on columns.

The host of a rank is one line of time, on which its threads take turns. What is taken out of it makes all that follows
come earlier, until a call that waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pyprof.core.model import Ints
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.path.critical_path import Rank
from pyprof.facts.path.dependencies import LAUNCH, NEVER, NONE, OTHER_STREAM, STREAM
from pyprof.facts.ranks.rank_clocks import Clock, between

_LONG = 1 << 36  # ns, over a minute: longer than a shift, and still short when a million are added up


class Removed(NamedTuple):
    """A delay before a collective (`event`: its place on the rank), in ns; of the host, or of the device."""

    event: int
    length: int
    on_host: bool


class Edit(NamedTuple):
    """Work that a rank would not do. `host`: stretches of its host, with what is launched and waited for in them;
    `launching`: stretches of its host, of which what is launched stays; `waits`: stretches in which it would not wait
    for the device; `removed`: ids of events; `in_time`: whether the host would take no time, so that every launch comes
    before the device needs it."""

    host: Union = NOTHING
    launching: Union = NOTHING
    waits: Union = NOTHING
    removed: Ints | None = None
    in_time: bool = False


def together(edits: Iterable[Edit]) -> Edit:
    """Return one edit of several."""
    out = Edit()
    for one in edits:
        removed = [each for each in (out.removed, one.removed) if each is not None]
        out = Edit(
            out.host.with_(one.host),
            out.launching.with_(one.launching),
            out.waits.with_(one.waits),
            np.concatenate(removed) if removed else None,
            out.in_time or one.in_time,
        )
    return out


class _Waits(NamedTuple):
    """Waiting calls of the host of a rank in the order of their ends; `event`: what each waited for."""

    start: Ints
    end: Ints
    event: Ints


class Replay:
    """The rows of all ranks from a time on. `ranks`: by worker; `low`: the time, on the clock of `worker`."""

    def __init__(self, ranks: dict[int, Rank], clocks: dict[int, Clock], worker: int, low: int):
        self._clocks, self._worker = clocks, worker
        self._ranks = {number: _Rows(rank, self._own(number, low)) for number, rank in ranks.items()}
        items = []
        for number, rows in self._ranks.items():
            for kind, time in ((_SEGMENT, rows.segment_time), (_WAIT, rows.waits.end)):
                common = between(clocks, number, worker, time)
                place = np.flatnonzero(time >= rows.low)
                items.append(np.stack([common[place], np.full(len(place), kind), np.full(len(place), number), place]))
        table = np.concatenate(items, axis=1) if items else np.empty((4, 0), np.int64)
        self._items = table[:, np.lexsort(table[1::-1])].T.tolist()
        self._arrivals: dict[int, dict[tuple[int, int], int]] = {}
        for number, rows in self._ranks.items():
            events = np.flatnonzero(rows.rank.instance >= 0)
            start = between(clocks, number, worker, rows.rank.activity.start[events])
            for event, instance, time in zip(events.tolist(), rows.rank.instance[events].tolist(), start.tolist()):
                self._arrivals.setdefault(instance, {})[number, event] = time

    def _own(self, worker: int, time: int) -> int:
        return int(between(self._clocks, self._worker, worker, np.array([time]))[0])

    def saving(self, worker: int, removed: Iterable[Removed], end: int) -> int:
        """Return by how many ns the end of a step of the replay's worker would come earlier, without delays of a
        rank."""
        for rows in self._ranks.values():
            rows.reset()
        self._ranks[worker].remove(removed)
        self._run()
        return self._ranks[self._worker].shift_at(end)

    def earlier(self, edits: Mapping[int, Edit], ends: Mapping[int, Ints]) -> dict[int, Ints]:
        """Return by how many ns the ends of the steps of each rank would come earlier with edits. `ends`: of its steps,
        by rank, on its clock."""
        for number, rows in self._ranks.items():
            rows.reset()
            if number in edits:
                rows.edit(edits[number])
        self._run()
        return {
            number: np.array([self._ranks[number].shift_at(end) for end in own.tolist()], np.int64)
            for number, own in ends.items()
        }

    def waits(self, worker: int) -> Union:
        """Return the time in which the host of a rank waits for its device."""
        waits = self._ranks[worker].waits if worker in self._ranks else None
        return NOTHING if waits is None else Union(waits.start.copy(), waits.end.copy())

    def _run(self) -> None:
        arrived = {instance: dict(times) for instance, times in self._arrivals.items()}
        left = {instance: len(times) for instance, times in arrived.items()}
        for instance, times in arrived.items():
            left[instance] -= sum(self._before(*key) for key in times)
        for _, kind, number, place in self._items:
            rows = self._ranks[number]
            if kind == _WAIT:
                rows.wait(place)
                continue
            event = rows.segment(place)
            if event == NONE:
                continue
            instance = int(rows.rank.instance[event])
            arrived[instance][number, event] -= int(rows.shift[event])
            left[instance] -= 1
            if not left[instance]:
                earlier = max(self._arrivals[instance].values()) - max(arrived[instance].values())
                for rank, one in arrived[instance]:
                    self._ranks[rank].shift[one] = earlier

    def _before(self, worker: int, event: int) -> bool:
        rows = self._ranks[worker]
        return bool(rows.rank.activity.start[event] < rows.low)


_SEGMENT, _WAIT = range(2)


class _Rows:
    """The events and waits of a rank in pieces that can be computed at once."""

    def __init__(self, rank: Rank, low: int):
        self.rank, self.low = rank, low
        self.waits = self._host_waits()
        releases = rank.releases
        order = rank.runs[0]
        # Which wait the launch of each event came after; events without a launch are released by nothing there.
        self._turn = np.searchsorted(self.waits.end, releases.called, side="right")
        previous, instance = releases.previous[order], rank.instance
        alone = np.r_[instance, NONE]
        begins = (previous < 0) | (releases.other[order] >= 0) | (instance[order] >= 0) | (alone[previous] >= 0)
        begins |= np.r_[True, self._turn[order][1:] != self._turn[order][:-1]][: len(order)]
        # A stream goes on where the window begins.
        begins |= (rank.activity.start[order] >= low) & (np.r_[rank.activity.start, NEVER][previous] < low)
        self._first = np.flatnonzero(begins)
        self._last = np.r_[self._first[1:], len(order)][: len(self._first)]
        self.segment_time = rank.activity.start[order[self._first]]
        self._recorded = self._slacks()
        self._since = np.r_[low, np.maximum(self.waits.end, low)]  # the end of the wait before
        self.reset()

    def _slacks(self) -> Ints:
        """Return by how much later each of the three could have happened without holding up the event: after each, an
        event begins after as long as the median of those that it released."""
        releases, start = self.rank.releases, self.rank.activity.start
        out, self._between = np.full((3, len(start)), _LONG, np.int64), 0
        for number, happened in enumerate(releases.released):
            known, own = happened != NEVER, releases.kind == number
            usual = int(np.median((start - happened)[own])) if own.any() else 0
            if number == STREAM:
                self._between = usual  # ns between events of a stream, at least
            out[number, known] = np.clip(start - happened - usual, 0, _LONG)[known]
            out[number, own] = 0
        return out

    def _host_waits(self) -> _Waits:
        """Return the waits of the main thread, and those of others during which it had nothing to do."""
        host = self.rank.host
        columns = []
        for number, waiting in self.rank.releases.waits.items():
            counted = np.ones(len(waiting.end), bool)
            if number != host.main and host.main in host.threads:
                counted = host.threads[host.main].within(waiting.start, waiting.end) == 0
            columns.append(np.stack([column[counted] for column in waiting]))
        table = np.concatenate(columns, axis=1) if columns else np.empty((3, 0), np.int64)
        return _Waits(*table[:, np.argsort(table[1], kind="stable")])

    def reset(self) -> None:
        """Forget the shifts."""
        self.shift = np.zeros(len(self.rank.activity.id), np.int64)
        self._host = np.zeros(len(self.waits.end) + 1, np.int64)  # of the time after each wait
        self._less_host, self._less = np.zeros_like(self._host), np.zeros_like(self.shift)
        # What is taken out of the host between the wait before each launch and the launch; and before, and in, a wait.
        self._until_launch: Ints = np.zeros_like(self.shift)
        self._until_wait: Ints = np.zeros_like(self._host)
        self._in_wait: Ints = np.zeros_like(self._host)
        self._slack, self._taken_out, self._in_time = self._recorded, NOTHING, False

    def remove(self, delays: Iterable[Removed]) -> None:
        """Take away delays: of the host after the last wait before the launch, of a device in what the collective
        waited for."""
        for event, length, on_host in delays:
            if on_host:
                self._less_host[self._turn[event]] += length
            else:
                before = int(self.rank.releases.before[event])
                self._less[before if before >= 0 else event] += length
        self._host = self._less_host.copy()  # as it is where the window begins

    def edit(self, edit: Edit) -> None:
        """Take an edit into account."""
        host, waits = edit.host.with_(edit.launching), self.waits
        called = np.maximum(self.rank.releases.called, self.low)
        since, self._taken_out = self._since, host
        removed = edit.host.covers(called, called + 1)
        if edit.removed is not None:
            removed |= np.isin(self.rank.activity.id, edit.removed)
        self._until_launch = host.within(since[self._turn], np.maximum(called, since[self._turn]))
        self._until_wait = np.r_[host.within(since[:-1], np.maximum(waits.start, since[:-1])), 0]
        free = host.with_(edit.waits)
        self._in_wait = np.r_[np.where(free.covers(waits.start, waits.end), waits.end - waits.start, 0), 0]
        activity = self.rank.activity
        self._less[removed] = (activity.end - activity.start)[removed] + self._between
        self._in_time = edit.in_time
        if edit.in_time:
            releases = self.rank.releases
            self._slack = self._recorded.copy()
            self._slack[LAUNCH, (releases.previous >= 0) | (releases.other >= 0)] = _LONG

    def wait(self, place: int) -> None:
        """Shift the host after a wait."""
        event = int(self.waits.event[place])
        before, released = int(self._host[place] + self._until_wait[place]), int(self.shift[event])
        free = before + int(self._in_wait[place])
        early = max(int(self.rank.activity.end[event] - self.waits.start[place]), 0)
        if self._in_time:  # the host is always there
            shift = max(released, free)
        elif self._in_wait[place]:
            shift = free
        else:
            shift = min(before + early, released)
        self._host[place + 1] = shift + self._less_host[place + 1]

    def segment(self, place: int) -> int:
        """Shift the events of a segment. Return the one of a collective, whose end is that of all ranks, else -1."""
        releases = self.rank.releases
        events = self.rank.runs[0][self._first[place] : self._last[place]]
        first = int(events[0])
        slack = self._slack[:, events]
        turn = int(self._turn[first])
        on_host = self._host[turn] + self._until_launch[events]
        launched = np.where(slack[LAUNCH] < _LONG, on_host + slack[LAUNCH], _LONG)
        known = [int(launched[0])]
        for kind, before in (
            (STREAM, int(releases.previous[first])),
            (OTHER_STREAM, int(releases.other[first])),
        ):
            if before >= 0:
                known.append(int(self.shift[before] + slack[kind, 0]))
        least = min(known)
        launched[0] = 0 if least >= _LONG else least
        if len(events) > 1:
            reach = np.cumsum(slack[STREAM]) - slack[STREAM, 0]
            less = np.cumsum(self._less[events]) - self._less[events]  # of those before each
            launched = reach + less + np.minimum.accumulate(launched - reach - less)
        self.shift[events] = launched + self._less[events]
        return first if self.rank.instance[first] >= 0 else NONE

    def shift_at(self, end: int) -> int:
        """Return by how much earlier the step that ended at a time would end: where the host ended it, when the host
        and what the device did until then have ended."""
        releases = self.rank.releases
        place = int(np.searchsorted(releases.ends, end))
        if place < len(releases.ends) and releases.ends[place] == end:
            return int(self.shift[releases.by_end[place]])
        turn = int(np.searchsorted(self.waits.end, end, side="right"))
        since = np.array([self._since[turn]])
        shift = int(self._host[turn] + self._taken_out.within(since, np.maximum(since, end))[0])
        if self._in_time:
            shift = _LONG
        if place:
            last = int(releases.by_end[place - 1])
            shift = min(shift, int(self.shift[last]) + end - int(releases.ends[place - 1]))
        return shift

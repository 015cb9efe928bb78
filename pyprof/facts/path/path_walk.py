# SPDX-License-Identifier: Apache-2.0
"""The way back through steps: the segments of their critical paths, as `critical_path` describes them.

Steps are walked through one by one. What the host did in its segments is looked up for a group of steps at once: a
group ends where enough segments have come together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.intervals import groups
from pyprof.core.model import Ints
from pyprof.facts.host.host_time import CALLING, LOADING, HostTime
from pyprof.facts.path.critical_path import (
    CALL,
    HOST,
    LAUNCHING,
    LOADER,
    QUEUED,
    RANKS,
    SYNC,
    UNRECORDED,
    LastArrival,
    Paths,
    Rank,
    StepEnd,
    last_arrivals,
    last_ends,
    steps_of,
)
from pyprof.facts.path.dependencies import LAUNCH, NEVER, NONE, OTHER_STREAM, STREAM
from pyprof.facts.ranks.rank_clocks import between, clocks
from pyprof.facts.steps.source import Source
from pyprof.store.ids import first_id

_ROW = ("path", "part", "worker", "event", "thread", "low", "high", "begin", "finish")
_PLACE = ("operator", "text", "function", "call")
_SEGMENT = ("path", "part", "worker", "event", "thread", "begin", "low", "high", "length", *_PLACE)
_TYPES = {"part": np.int8, "begin": np.int64, "low": np.int64, "high": np.int64}  # of others int32
_SEGMENTS = 1 << 17  # of a group


class _Node(NamedTuple):
    """A point from which the path goes back: the end of an event, by its place, or a time of a thread of the host."""

    event: int = NONE
    thread: int = NONE
    time: int = 0


class Walk:
    """The way back through `steps`, which are in order. `ranks`: those that are known, by worker; `last`: the last
    arrival at each collective; `across`, `places`: as of `paths`."""

    def __init__(
        self,
        source: Source,
        ranks: dict[int, Rank],
        last: dict[int, LastArrival],
        steps: list[StepEnd],
        across: bool,
        places: bool = True,
    ):
        self._source, self._ranks, self._steps = source, ranks, steps
        self._across, self._places = across, places
        self._clocks, self._last = clocks(source.store), last
        self._starts: dict[int, Ints] = {}  # of the steps, by the clock of each worker
        self._clear(0)

    def _clear(self, first: int) -> None:
        """Begin a group with a step."""
        self._first = first
        # Columns of _ROW, of single segments and of runs of events.
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[Ints] = []
        self._segments = 0

    def paths(self) -> Iterator[Paths]:
        """Yield the paths, in groups."""
        for place, step in enumerate(self._steps):
            self._walk(place, step)
            if self._segments >= _SEGMENTS or place == len(self._steps) - 1:
                yield self._group(place + 1)
                self._clear(place + 1)

    def _walk(self, place: int, step: StepEnd) -> None:
        """Go back through a step."""
        self._place, self._step, self._start, self._time = place, step, step.start, step.end
        self._enter(step.worker)
        releases = self._rank.releases
        at = int(np.searchsorted(releases.ends, step.end))
        if at < len(releases.ends) and releases.ends[at] == step.end:
            node: _Node | None = _Node(event=int(releases.by_end[at]))
        else:
            node = _Node(thread=self._rank.host.main, time=step.end)
        while node is not None and self._time > self._start:
            node = self._back(node.event) if node.event >= 0 else self._on_host(node.thread, node.time)

    def _enter(self, worker: int) -> None:
        """Go on with a rank."""
        if worker not in self._ranks:
            self._ranks[worker] = Rank(self._source, worker)
        if worker not in self._starts:
            start = np.array([step.start for step in self._steps])
            self._starts[worker] = self._between(self._of_steps(), worker, start)
        self._rank, self._worker, self._limit = self._ranks[worker], worker, self._time
        self._own_start = int(self._starts[worker][self._place])

    def _of_steps(self) -> Ints:
        """Return the worker of each step."""
        return np.array([step.worker for step in self._steps])

    def _between(self, worker: Ints, other: int, time: Ints, back: bool = False) -> Ints:
        """Return times of several workers on the clock of another; `back`: of that on theirs."""
        out = np.empty(len(time), np.int64)
        for number, places in groups(worker):
            pair = (other, number) if back else (number, other)
            out[places] = between(self._clocks, *pair, time[places])
        return out

    def _common(self, time: Ints) -> Ints:
        """Return times of the rank on the step's clock, within what is left of the step."""
        times = between(self._clocks, self._worker, self._step.worker, time)
        return np.clip(times, self._start, self._limit)

    def _add(self, part: int, begin: int, event: int = NONE, thread: int = NONE, finish: int = 0) -> None:
        """Add a segment from where the path is back to a time of the rank. Of a thread, it began at `finish`."""
        if self._worker == self._step.worker:  # one of many of a path: without arrays of one number
            low = min(max(begin, self._start), self._limit)
        else:
            low = int(self._common(np.array([begin]))[0])
        if low < self._time:
            row = (self._place, part, self._worker, event, thread, low, self._time, begin, finish)
            self._rows.append(row)
            self._segments += 1
            self._time = low

    def _add_run(self, part: Ints, begin: Ints, event: Ints) -> None:
        """Add segments of events, each to its own time of the rank, the latest first."""
        low = self._common(begin)
        high = np.r_[self._time, low[:-1]]
        rest = (np.full(len(low), number) for number in (self._place, self._worker, NONE, 0))
        place, worker, thread, finish = rest
        rows = np.stack([place, part, worker, event, thread, low, high, begin, finish])
        self._blocks.append(rows[:, high > low])
        self._segments += len(low)
        self._time = int(low[-1])

    def _back(self, event: int) -> _Node | None:
        """Go from the end of an event to what released the first of its run."""
        event = self._arrived(event)
        rank, activity = self._rank, self._rank.activity
        order, place, head = rank.runs
        last = int(place[event])
        # Those of its run that end in the step: each ends before the next.
        begun = bisect_right(range(int(head[last]), last), self._own_start, key=lambda one: activity.end[order[one]])
        events = order[int(head[last]) + begun : last + 1][::-1]
        if len(events) == 1 and (self._across or rank.instance[event] < 0):
            self._add(int(rank.part[event]), int(activity.start[event]), event)
            return self._released(event)
        start, end = activity.start[events], activity.end[events]
        # Of each event its time, and that from the end of the one before it in the run.
        begin, part = (np.empty(2 * len(events) - 1, np.int64) for _ in range(2))
        begin[::2], begin[1::2] = start, end[1:]
        part[::2], part[1::2] = rank.part[events], QUEUED
        owner = np.repeat(events, 2)[:-1]
        if rank.instance[event] >= 0 and not self._across:
            begin = np.r_[end[0] - self._last[int(rank.instance[event])].length, begin]
            part, owner = np.r_[part[0], RANKS], np.r_[owner, owner]
        self._add_run(part, begin, owner)
        return self._released(int(events[-1]))

    def _released(self, event: int) -> _Node | None:
        """Go from the beginning of an event to what released it."""
        activity, releases = self._rank.activity, self._rank.releases
        if releases.kind[event] in (STREAM, OTHER_STREAM):
            before = int(releases.before[event])
            self._add(QUEUED, int(activity.end[before]), event)
            return _Node(event=before)
        if releases.kind[event] == LAUNCH:
            call = first_id(self._worker) + int(activity.launch[event])
            query = "select start_ns, duration_ns, thread from api where id = ?"
            called, length, thread = self._source.store.rows(query, (call,))[0]
            self._add(QUEUED, min(called + length, int(activity.start[event])), event)
            self._add(LAUNCHING, called, event)
            return _Node(thread=thread, time=called)
        self._add(UNRECORDED, NEVER, event)
        return None

    def _arrived(self, event: int) -> int:
        """Return the event of the rank that arrived last, for that of a collective, and go on with that rank."""
        instance = int(self._rank.instance[event])
        if instance < 0 or not self._across:
            return event
        last = self._last[instance]
        if last.length < self._rank.activity.end[event] - self._rank.activity.start[event]:
            self._enter(last.worker)
            event = int(np.searchsorted(self._rank.activity.id, last.event))
        return event

    def _on_host(self, thread: int, time: int) -> _Node | None:
        """Go from a time of a thread to the event that its last wait waited for, else to the beginning."""
        host, releases = self._rank.host, self._rank.releases
        begin, wait = self._rank.activity.extent[0], None
        for number in sorted(releases.waits, key=lambda one: one != thread):
            waiting = releases.waits[number]
            place = int(np.searchsorted(waiting.end, time, side="right")) - 1
            # Another thread's wait counts if this one had nothing to do meanwhile.
            while place >= 0 and waiting.end[place] > begin:
                one = int(waiting.start[place]), int(waiting.end[place])
                if number == thread or host.idle(thread, *one):
                    begin, wait = one[1], int(waiting.event[place])
                    break
                place -= 1
        self._add(HOST, min(begin, time), thread=thread, finish=time)
        if wait is None:
            self._add(UNRECORDED, NEVER)
            return None
        self._add(SYNC, int(self._rank.activity.end[wait]), wait)
        return _Node(event=wait)

    def _group(self, end: int) -> Paths:
        """Return the paths of the steps of the group up to one."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(_ROW)).T
        table = dict(zip(_ROW, np.concatenate([rows, *self._blocks], axis=1)))
        table["path"] -= self._first
        on_host = (table["part"] == HOST) & self._places
        steps = self._steps[self._first : end]
        ends_on = np.array([step.worker for step in steps], np.int64)
        tables = [{name: column[~on_host] for name, column in table.items()}]
        tables[0] |= dict.fromkeys(_PLACE, np.full(len(tables[0]["path"]), NONE))
        own_rows = {name: column[on_host] for name, column in table.items()}
        for worker, places in groups(own_rows["worker"]):
            own = {name: column[places] for name, column in own_rows.items()}
            tables.append(self._pieces(worker, self._ranks[worker].host, own, ends_on))
        path, low = (np.concatenate([one[name] for one in tables]) for name in ("path", "low"))
        order = np.lexsort((-low, path))
        columns = {
            name: np.concatenate([one.pop(name) for one in tables])[order].astype(_TYPES.get(name, np.int32))
            for name in _SEGMENT
            if name != "length"
        }
        length = columns["high"] - columns["low"]
        for worker, places in groups(ends_on[columns["path"]]):
            paused = self._ranks[worker].activity.paused
            length[places] -= paused.within(columns["low"][places], columns["high"][places])
        return Paths(steps, pd.DataFrame(columns | {"length": length}, columns=_SEGMENT))

    def _pieces(self, worker: int, host: HostTime, rows: dict[str, Ints], ends_on: Ints) -> dict[str, Ints]:
        """Return segments of the host of a rank divided by what it did. `ends_on`: the worker of each step."""
        finish, path = rows["finish"], rows["path"]
        begin = np.minimum(np.maximum(rows["begin"], self._starts[worker][self._first + path] - 1), finish)
        pieces = host.of(rows["thread"], begin, finish)
        stretch = pieces["stretch"].to_numpy()
        first = np.r_[True, stretch[1:] != stretch[:-1]]
        bounds = rows["low"][stretch], rows["high"][stretch]
        own_low = pieces["low"].to_numpy()
        common = self._between(ends_on[path[stretch]], worker, own_low, back=True)
        low = np.where(first, bounds[0], np.clip(common, *bounds))
        high = np.where(np.r_[first[1:], True], bounds[1], np.r_[low[1:], 0])
        kind = pieces["kind"].to_numpy()
        part = np.select([kind == LOADING, kind == CALLING], [LOADER, CALL], HOST)
        keep = np.flatnonzero(high > low)
        return {
            **{name: pieces[name].to_numpy()[keep] for name in ("thread", *_PLACE)},
            "path": path[stretch[keep]], "part": part[keep], "worker": np.full(len(keep), worker),
            "event": np.full(len(keep), NONE), "begin": own_low[keep], "low": low[keep], "high": high[keep],
        }  # fmt: skip


def paths(source: Source, across: bool, ranks: dict[int, Rank], places: bool = True) -> Iterator[Paths]:
    """Yield the paths of all steps, in groups. `across`: one path per step, of the worker that ends last, which goes on
    to other ranks; else one per worker and step, which stays there. `ranks`: gets the workers that the paths come to.
    `places`: whether the time of the host is divided by what it did."""
    last = last_arrivals(source)
    if across:
        yield from Walk(source, ranks, last, last_ends(source), True, places).paths()
        return
    steps = steps_of(source)
    for worker in dict.fromkeys(step.worker for step in steps):
        own = [step for step in steps if step.worker == worker]
        yield from Walk(source, ranks, last, own, False, places).paths()


def path_of(source: Source, step: StepEnd, ranks: dict[int, Rank]) -> Paths:
    """Return the path of one step over ranks."""
    (path,) = Walk(source, ranks, last_arrivals(source), [step], True).paths()
    return path

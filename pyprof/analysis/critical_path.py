# SPDX-License-Identifier: Apache-2.0
"""The critical path of a step: what it waited for at each moment, from its end back to its beginning.

The step of a worker has device bounds (`device_steps`). The path begins at what ended last and always goes to what
released that (`dependencies`): from an event of a device to the event before it, or to the API call that launched it;
from the host's thread to the event that its last waiting call waited for. The time in between belongs to the host's
thread. So each moment of the step is in exactly one segment, and the segments add up to its length.

Across ranks, a collective that all ranks exchange data in (`collective_groups`) leads to the rank that arrived last,
whose kernel is the shortest: the path goes on there. Times of other ranks are put on the clock of the step's worker
(`rank_clocks`); where that would be later than where the path is already, the path does not go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.collective_groups import MUTUAL, collectives
from pyprof.analysis.dependencies import LAUNCH, NEVER, NONE, OTHER_STREAM, STREAM, Dependencies
from pyprof.analysis.device_steps import Steps, activities
from pyprof.analysis.host_pieces import CALLING, LOADING, HostPieces
from pyprof.analysis.rank_clocks import between, clocks
from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.intervals import at_places
from pyprof.model import Ints

PARTS = (
    "kernel", "copy or set", "communication", "wait for ranks", "queued", "launch", "host", "api call", "data loader",
    "synchronization", "not recorded",
)  # fmt: skip
KERNEL, COPY, COMMUNICATION, RANKS, QUEUED, LAUNCHING, HOST, CALL, LOADER, SYNC, UNRECORDED = range(
    len(PARTS)
)
_ROW = ("part", "worker", "event", "thread", "low", "high", "begin", "finish")
_PLACE = ("operator", "text", "function", "call")
_SEGMENT = ("part", "worker", "event", "thread", "begin", "low", "high", "length", *_PLACE)


class Path(NamedTuple):
    """The path of a step of `worker`, on its clock, latest first.

    `segments`: `part`, `worker`, `event` (its place, -1 on the host), `thread` (-1 on a device), `low` and `high`,
    `begin`: the low end on the worker's own clock; `length` without pauses in which the recording was read; on the host
    also `operator`, `text`, `function`, `call` as in `HostPieces.of`, else -1.
    """

    number: int
    worker: int
    start: int
    end: int
    segments: pd.DataFrame


class Rank:
    """A worker's events, what they waited for, and its host."""

    def __init__(self, source: Source, worker: int):
        self.activity: Activity = source.activity(worker)
        self.host = HostPieces(self.activity)
        self.releases = Dependencies(self.activity)
        activity = self.activity
        self.part: Ints = np.where(
            activity.communication, COMMUNICATION, np.where(activity.kernel, KERNEL, COPY)
        )
        self.instance = np.full(len(activity.id), NONE, np.int64)
        rows = _mutual(source)
        rows = rows[rows["worker"] == worker]
        self.instance[np.searchsorted(activity.id, rows["event"].to_numpy())] = rows["instance"]

    @cached_property
    def runs(self) -> tuple[Ints, Ints, Ints]:
        """Events in the order of their streams; the place of each in it; and the first place of its run: events that
        each waited for the one before, none of them a collective of several ranks."""
        releases, alone = self.releases, self.instance < 0
        follows = (releases.kind == STREAM) & alone & alone[releases.before]
        order = np.lexsort((np.arange(len(alone)), self.activity.start, releases.stream))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        head = np.maximum.accumulate(np.where(follows[order], 0, np.arange(len(order))))
        return order, place, head


class StepEnd(NamedTuple):
    """A step on the worker that ends it last, with its bounds on that worker's clock; `length` without pauses in which
    the recording was read; `place`: among the worker's steps."""

    number: int
    worker: int
    start: int
    end: int
    length: int
    place: int


def last_ends(source: Source) -> list[StepEnd]:
    """Return one row per number of a step, in order."""
    steps = activities(source)
    known = clocks(source.store)
    last: dict[int, tuple[int, StepEnd]] = {}
    for activity, own in steps:
        common = between(known, activity.worker, steps[0][0].worker, own.end).tolist()
        columns = (own.start.tolist(), own.end.tolist(), own.length(activity).tolist())
        for place, (number, start, end, length) in enumerate(zip(own.number.tolist(), *columns)):
            if number not in last or common[place] > last[number][0]:
                step = StepEnd(number, activity.worker, start, end, length, place)
                last[number] = common[place], step
    return [last[number][1] for number in sorted(last)]


def paths(source: Source, across: bool, ranks: dict[int, Rank]) -> Iterator[Path]:
    """Yield the path of each step. `across`: one path per step, of the worker that ends last, which goes on to other
    ranks; else one per worker and step, which stays there. `ranks`: gets the workers that the paths come to."""
    steps, last = activities(source), _last(source)
    if across:
        of_worker = {activity.worker: (activity, own) for activity, own in steps}
        for step in last_ends(source):
            activity, own = of_worker[step.worker]
            yield Walk(source, ranks, last, activity, True).path(own, step.place)
        return
    for activity, own in steps:
        for place in range(len(own.number)):
            yield Walk(source, ranks, last, activity, False).path(own, place)


def path_of(source: Source, step: StepEnd, ranks: dict[int, Rank]) -> Path:
    """Return the path of one step over ranks."""
    steps = {activity.worker: (activity, own) for activity, own in activities(source)}
    activity, own = steps[step.worker]
    return Walk(source, ranks, _last(source), activity, True).path(own, step.place)


def _mutual(source: Source) -> pd.DataFrame:
    rows = collectives(source.store)
    return rows[(rows["instance"] >= 0) & rows["name"].isin(MUTUAL)]


class _Last(NamedTuple):
    """The last arrival at a collective: the worker, the event's id and its length."""

    worker: int
    event: int
    length: int


def _last(source: Source) -> dict[int, _Last]:
    """Return the last arrival at each collective, by its number."""
    rows = _mutual(source).sort_values(["instance", "duration_ns", "worker", "device"], kind="stable")
    first = rows.drop_duplicates("instance")
    columns = (first[name].tolist() for name in ("instance", "worker", "event", "duration_ns"))
    return {instance: _Last(worker, event, length) for instance, worker, event, length in zip(*columns)}


def numbered(rank: Rank, segments: pd.DataFrame) -> pd.DataFrame:
    """Return segments of a rank with their places as numbers, -1 for none: `kernel`: of the table `kernel_name`; `call`
    and `host`: of `string`; `operator`; `where`: 0: in the operator, 1: before it, 2: a kernel of it; `stack`: of
    Python functions, for `HostWork.stack`."""
    activity, work = rank.activity, rank.host.work
    event, thread, begin = (segments[name].to_numpy(np.int64) for name in ("event", "thread", "begin"))
    on_host = (thread >= 0) & (event < 0)
    host = np.flatnonzero(on_host)
    following = np.full(len(event), NONE, np.int64)
    following[host] = work.following(thread[host], begin[host])
    stack = np.full(len(event), NONE, np.int64)
    stack[host] = work.stacks(thread[host], begin[host])
    inside = segments["operator"].to_numpy(np.int64)
    own = at_places(activity.event["operator"].values, event)
    operator = np.where(on_host, np.where(inside >= 0, inside, following), own)
    where = np.where(on_host, np.where(inside >= 0, 0, 1), 2)
    launching = segments["part"].to_numpy() == LAUNCHING
    call = at_places(activity.call["name"].values, at_places(activity.launch, event))
    text, function = (segments[name].to_numpy(np.int64) for name in ("text", "function"))
    return segments.assign(
        kernel=at_places(activity.event["name"].values, event),
        call=np.where(launching, call, segments["call"].to_numpy(np.int64)),
        host=np.where(text >= 0, text, function),
        operator=operator,
        where=np.where(operator < 0, NONE, where),
        stack=stack,
    )


class _Node(NamedTuple):
    """A point from which the path goes back: the end of an event, by its place, or a time of a thread of the host."""

    event: int = NONE
    thread: int = NONE
    time: int = 0


class Walk:
    """The way back through a step of a worker. `ranks`: those that are known, by worker; `last`: as of `_last`."""

    def __init__(
        self, source: Source, ranks: dict[int, Rank], last: dict[int, _Last], activity: Activity, across: bool
    ):
        self._source, self._ranks, self._activity, self._across = source, ranks, activity, across
        self._clocks, self._last = clocks(source.store), last
        # Columns of _ROW, of single segments and of runs of events.
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[Ints] = []

    def path(self, steps: Steps, place: int) -> Path:
        """Return the path of a step."""
        self._start, end = int(steps.start[place]), int(steps.end[place])
        self._time = end
        self._enter(self._activity.worker)
        releases = self._rank.releases
        at = int(np.searchsorted(releases.ends, end))
        if at < len(releases.ends) and releases.ends[at] == end:
            node: _Node | None = _Node(event=int(releases.by_end[at]))
        else:
            node = _Node(thread=self._rank.host.main, time=end)
        while node is not None and self._time > self._start:
            node = self._back(node.event) if node.event >= 0 else self._on_host(node.thread, node.time)
        return Path(int(steps.number[place]), self._activity.worker, self._start, end, self._placed())

    def _enter(self, worker: int) -> None:
        """Go on with a rank."""
        if worker not in self._ranks:
            self._ranks[worker] = Rank(self._source, worker)
        self._rank, self._worker, self._limit = self._ranks[worker], worker, self._time
        own = between(self._clocks, self._activity.worker, worker, np.array([self._start]))
        self._own_start = int(own[0])

    def _common(self, time: Ints) -> Ints:
        """Return times of the rank on the step's clock, within what is left of the step."""
        times = between(self._clocks, self._worker, self._activity.worker, time)
        return np.clip(times, self._start, self._limit)

    def _add(self, part: int, begin: int, event: int = NONE, thread: int = NONE, finish: int = 0) -> None:
        """Add a segment from where the path is back to a time of the rank. Of a thread, it began at `finish`."""
        if self._worker == self._activity.worker:  # one of many steps of a path: without arrays of one number
            low = min(max(begin, self._start), self._limit)
        else:
            low = int(self._common(np.array([begin]))[0])
        if low < self._time:
            self._rows.append((part, self._worker, event, thread, low, self._time, begin, finish))
            self._time = low

    def _add_run(self, part: Ints, begin: Ints, event: Ints) -> None:
        """Add segments of events, each to its own time of the rank, the latest first."""
        low = self._common(begin)
        high = np.r_[self._time, low[:-1]]
        rest = (np.full(len(low), number) for number in (self._worker, NONE, 0))
        worker, thread, finish = rest
        rows = np.stack([part, worker, event, thread, low, high, begin, finish])
        self._blocks.append(rows[:, high > low])
        self._time = int(low[-1])

    def _back(self, event: int) -> _Node | None:
        """Go from the end of an event to what released the first of its run."""
        event = self._arrived(event)
        rank, activity = self._rank, self._rank.activity
        order, place, head = rank.runs
        last = int(place[event])
        events = order[head[last] : last + 1]
        events = events[np.searchsorted(activity.end[events], self._own_start, side="right") :][::-1]
        if not len(events):
            events = np.array([event])
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
            call = int(activity.launch[event])
            called = int(activity.call["start_ns"].values[call])
            returned = called + int(activity.call["duration_ns"].values[call])
            self._add(QUEUED, min(returned, int(activity.start[event])), event)
            self._add(LAUNCHING, called, event)
            return _Node(thread=int(activity.call["thread"].values[call]), time=called)
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

    def _placed(self) -> pd.DataFrame:
        """Return the segments, those of the host divided by what it did."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(_ROW)).T
        table = pd.DataFrame(dict(zip(_ROW, np.concatenate([rows, *self._blocks], axis=1))))
        tables = [table[table["part"] != HOST].assign(**dict.fromkeys(_PLACE, NONE))]
        on_host = table[table["part"] == HOST]
        for worker in on_host["worker"].unique().tolist():
            self._enter(worker)
            tables.append(self._pieces(on_host[on_host["worker"] == worker]))
        table = pd.concat(tables).sort_values("low", ascending=False, kind="stable", ignore_index=True)
        low, high = (table[name].to_numpy(np.int64) for name in ("low", "high"))
        return table.assign(length=high - low - self._activity.paused.within(low, high))[list(_SEGMENT)]

    def _pieces(self, rows: pd.DataFrame) -> pd.DataFrame:
        self._limit = int(rows["high"].max())
        finish = rows["finish"].to_numpy(np.int64)
        begin = np.minimum(np.maximum(rows["begin"].to_numpy(np.int64), self._own_start - 1), finish)
        pieces = self._rank.host.of(rows["thread"].to_numpy(np.int64), begin, finish)
        stretch = pieces["stretch"].to_numpy()
        first = np.r_[True, stretch[1:] != stretch[:-1]]
        bounds = [rows[name].to_numpy(np.int64)[stretch] for name in ("low", "high")]
        low = np.clip(self._common(pieces["low"].to_numpy(np.int64)), *bounds)
        low = np.where(first, bounds[0], low)
        high = np.where(np.r_[first[1:], True], bounds[1], np.r_[low[1:], 0])
        part = np.select([pieces["kind"] == LOADING, pieces["kind"] == CALLING], [LOADER, CALL], HOST)
        table = pieces.assign(
            part=part, worker=self._worker, event=NONE, begin=pieces["low"], low=low, high=high
        )
        segments: pd.DataFrame = table[high > low]
        return segments

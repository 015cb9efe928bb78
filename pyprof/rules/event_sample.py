# SPDX-License-Identifier: Apache-2.0
"""A sample of single events from the start of a worker's steady iterations, for what sums do not show: gaps, chains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import GRAPH, KERNEL, MEMCPY, Bools, Column, Ints
from pyprof.facts.steps.source import API_KINDS
from pyprof.store.files import Store
from pyprof.store.ids import first_id

SAMPLE_EVENTS = 300_000  # of all workers


@dataclass(frozen=True)
class Sample:
    """Events and API calls of a stretch of time, in the order of their ids.

    `event`: id, kind, device, stream, name, operator, start_ns, duration_ns, geometry, copied_bytes, copy_from,
    copy_to, graph, flops, bytes, api, op, launch_ns, launch_duration_ns, thread. `api`: id, thread, name, kind,
    start_ns, duration_ns, operator (missing outside of all).
    """

    worker: int
    start: int
    end: int
    event: dict[str, Column]
    api: dict[str, Column]

    def of(self, name: str) -> Ints:
        """Return a column of the events, 0 where it is missing; also `late`, and `sized` (whether bytes are known)."""
        if name == "late":
            return self.late
        return self.event["bytes"].mask().astype(np.int64) if name == "sized" else self.event[name].values

    @cached_property
    def kernel(self) -> Ints:
        return np.flatnonzero(self.of("kind") == KERNEL)

    @cached_property
    def copies(self) -> Ints:
        return np.flatnonzero(self.of("kind") == MEMCPY)

    @cached_property
    def alone(self) -> Bools:
        """Per event, whether its launch launched only this event: a replay of a graph launches many."""
        launched = self.event["api"].mask()
        calls = np.where(launched, self.of("api"), -1)  # what has no launch has none in common with another
        _, place, count = np.unique(calls, return_inverse=True, return_counts=True)
        return np.asarray(launched & (count[place] == 1) & (self.of("kind") != GRAPH))

    @cached_property
    def late(self) -> Ints:
        """Per event, the gap before it on its device if its launch returned only after the previous event ended."""
        start, dur, device = self.of("start_ns"), self.of("duration_ns"), self.of("device")
        launched = self.event["launch_ns"].mask()
        returned = np.where(
            launched, self.of("launch_ns") + self.of("launch_duration_ns"), np.iinfo(np.int64).min
        )
        out = np.zeros(len(start), np.int64)
        for _, places in groups(device):
            order = places[np.argsort(start[places], kind="stable")]
            reached = np.maximum.accumulate(start[order] + dur[order])
            before = np.r_[start[order[:1]], reached[:-1]]
            out[order] = np.where(returned[order] > before, np.maximum(start[order] - before, 0), 0)
        return out


def read(store: Store, row: tuple[int, ...], workers: int, cut: int) -> Sample:
    """Read the sample of a worker.

    `row` is its number, start, end and the bounds of its events, `cut` the iteration set. The sample consists of
    whole iterations, if at least one is small enough.
    """
    worker, start, end, first, last = row[:5]
    stop = min(last, first + max(SAMPLE_EVENTS // workers, 1))
    if stop < last:
        whole = store.rows(
            """select last_event, host_end_ns from iteration
               where iteration_set = ? and worker = ? and host_start_ns >= ? and last_event > ? and last_event <= ?
               order by number desc limit 1""",
            (cut, worker, start, first, stop),
        )
        if whole:
            stop, end = whole[0]
            last = stop
    event = store.columns(
        f"""select e.id, e.kind, e.device, e.stream, e.name, e.operator, e.start_ns, e.duration_ns, e.geometry,
                   e.copied_bytes, e.copy_from, e.copy_to, e.graph, e.flops, e.bytes, e.api, e.op,
                   a.start_ns as launch_ns, a.duration_ns as launch_duration_ns, a.thread
            from event e left join api a on a.id = e.api
            where e.id >= {first} and e.id < {stop} order by e.id"""
    )
    if stop < last:  # to the launch of the first event that is left out
        launch = store.rows(
            """select coalesce(a.start_ns, e.start_ns) from event e left join api a on a.id = e.api
               where e.id = ?""",
            (stop,),
        )
        end = max(min(end, int(launch[0][0])), start + 1)
    low, high = (_bound(store, worker, time) for time in (start, end))
    api = store.columns(
        f"""select a.id, a.thread, a.name, a.kind, a.start_ns, a.duration_ns, o.operator
            from api a left join op o on o.id = a.op where a.id >= {low} and a.id < {high} order by a.id"""
    )
    return Sample(worker, start, end, event, api)


def _bound(store: Store, worker: int, time: int) -> int:
    """Return the first id of a worker's API calls that start at a time or later: they are numbered by start, without
    gaps."""
    base = first_id(worker)
    top = store.rows("select max(id) from api where id >= ? and id < ?", (base, first_id(worker + 1)))[0][0]
    low, high = base, base if top is None else int(top) + 1
    while low < high:
        middle = (low + high) // 2
        (begin,) = store.rows("select start_ns from api where id = ?", (middle,))[0]
        low, high = (middle + 1, high) if begin < time else (low, middle)
    return low


def kind(name: str) -> int:
    """Return the number of a kind of API call."""
    return API_KINDS.index(name)

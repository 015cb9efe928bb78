# SPDX-License-Identifier: Apache-2.0
"""Aggregation: the iterations of a cut, and the sums over a range of them.

Everything is computed first and then written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core import inputs
from pyprof.core.api_names import API_KINDS
from pyprof.core.errors import UsageError
from pyprof.core.intervals import groups
from pyprof.core.model import KERNELS, OPERATOR, Bools, Column, Ints
from pyprof.facts.device import communication, launch_stats
from pyprof.facts.device.concurrency import integral
from pyprof.facts.device.partition import Union, partition, pauses
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps import iteration_cuts
from pyprof.facts.steps.device_bounds import Bounds, Work, bounds
from pyprof.facts.steps.iteration_cuts import Iterations
from pyprof.facts.steps.steady_state import write_steady
from pyprof.facts.steps.sums import EVENTS, OPS, between
from pyprof.store.files import Store
from pyprof.store.ids import NUMBER_MASK, first_id
from pyprof.store.moments import BEFORE

# Columns of the table `iteration_part`: where parts overlap, the first has the time.
PARTS = ("tc_ns", "kernel_ns", "memory_ns", "dataloader_ns", "io_ns", "cpu_ns", "other_ns")
# Columns of the table `iteration_device`.
DEVICE_COLUMNS = (
    "kernels", "tc_kernels", "kernel_ns", "tc_ns", "memory_ns", "late_ns", "busy_ns", "kernel_busy_ns",
    "communication_ns", "exposed_communication_ns", "exposed_memory_ns", "launched", "delay_ns", "queued_ns",
    "waited_ns", "shaped_ns", "filled_sm_ns", "occupied_of_ns", "occupied_bp_ns",
)  # fmt: skip
_MASK = NUMBER_MASK
Progress = Callable[[float], None]


class Aggregation(NamedTuple):
    """A row of the table `aggregation`, with its cut."""

    id: int
    iteration_set: int
    first: int
    last: int
    method: str
    key: str | None
    note: str


def aggregations(store: Store) -> list[Aggregation]:
    """Return all aggregations of a database, the original one first."""
    return [
        Aggregation(*row)
        for row in store.rows(
            """select a.id, a.iteration_set, a.first, a.last, s.method, s.key, s.note
               from aggregation a join iteration_set s on s.id = a.iteration_set order by a.id"""
        )
    ]


def aggregate(
    store: Store,
    first: int | None = None,
    last: int | None = None,
    key: str | None = None,
    progress: Progress = lambda share: None,
    automatic: Callable[[Store], Iterations] = iteration_cuts.automatic,
) -> Aggregation:
    """Add up iterations `first` to `last`, both included, of the cut by `key`, or of the automatic cut without a key.

    An aggregation that exists already is returned as it is. `progress` is called with the share of the work that is
    done; an exception that it raises ends the work, and nothing is written. Raises UsageError for a key or
    iterations that do not exist.
    """
    number, cut, tables = _cut(store, key, progress, automatic)
    count = int(cut.number.max()) + 1 if len(cut.number) else 0
    first, last = _check_range(first, last, count)
    for existing in aggregations(store):
        if (existing.iteration_set, existing.first, existing.last) == (number, first, last):
            return existing
    rows = tables["iteration"] if tables else _iterations(store, number)
    sums = list(_sums(store, rows, first, last, progress))
    progress(0.95)
    with store.writing() as connection:
        if tables:
            connection.execute("insert into iteration_set values (?, ?, ?, ?)", (number, cut.method, cut.key, cut.note))
            for name, columns in tables.items():
                width = len(columns) + 1
                connection.executemany(
                    f"insert into {name} ({', '.join(['iteration_set', *columns])}) values ({','.join('?' * width)})",
                    zip([number] * len(columns["worker"]), *(c.tolist() for c in columns.values())),
                )
            connection.execute("update iteration set cut_off = null where cut_off < 0")
            write_steady(connection, number)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        identity = connection.execute(
            'insert into aggregation (iteration_set, "first", "last", created) values (?, ?, ?, ?)',
            (number, first, last, created),
        ).lastrowid
        for name, worker, columns in sums:
            connection.executemany(
                f"insert into {name} values ({','.join('?' * (columns.num_columns + 2))})",
                zip(repeat(identity), repeat(worker), *(column.to_pylist() for column in columns.columns)),
            )
    progress(1.0)
    return Aggregation(int(identity or 0), number, first, last, cut.method, cut.key, cut.note)


def _check_range(first: int | None, last: int | None, count: int) -> tuple[int, int]:
    low, high = 0 if first is None else first, count - 1 if last is None else last
    for number in (low, high):
        if not 0 <= number < count:
            raise UsageError(f"iteration {number} does not exist, the run has {_describe_count(count)}.")
    if low > high:
        raise UsageError(f"the first iteration, {low}, is after the last, {high}.")
    return low, high


def _describe_count(count: int) -> str:
    return f"iterations 0 to {count - 1}" if count > 1 else "iteration 0 alone" if count else "none"


def _cut(
    store: Store, key: str | None, progress: Progress, automatic: Callable[[Store], Iterations]
) -> tuple[int, Iterations, dict[str, dict[str, Ints]] | None]:
    """Return the number of a cut and its iterations, and its tables if the cut is new."""
    for number, method, set_key, note in store.rows("select id, method, key, note from iteration_set order by id"):
        if (key is None and number == 1) or (key is not None and method == "key" and set_key == key):
            table = _iterations(store, number)
            names = ("worker", "number", "host_start_ns", "host_end_ns", "partial")
            arrays = [table[name] for name in names]
            return number, Iterations(method, set_key, note, *arrays), None
    cut = iteration_cuts.by_key(store, key) if key else automatic(store)
    number = (store.rows("select coalesce(max(id), 0) from iteration_set")[0][0]) + 1
    return number, cut, _tables(store, cut, progress)


def _iterations(store: Store, number: int) -> dict[str, Ints]:
    columns = store.columns(
        f"""select worker, number, host_start_ns, host_end_ns, first_event, last_event, first_op, last_op, partial
            from iteration where iteration_set = {number} order by worker, number"""
    )
    return {name: column.values for name, column in columns.items()}


def _tables(store: Store, cut: Iterations, progress: Progress) -> dict[str, dict[str, Ints]]:
    """Return the rows of the three tables of a cut."""
    workers = np.unique(cut.worker).tolist()
    is_communication = communication.names(store)
    iterations: list[dict[str, Ints]] = []
    parts: list[dict[str, Ints]] = []
    devices: list[dict[str, Ints]] = []
    for done, worker in enumerate(workers):
        index = np.flatnonzero(cut.worker == worker)
        facts = _Worker(store, worker, cut.start[index], cut.end[index], is_communication, cut.method == "none")
        progress((done + 0.3) / len(workers) * 0.7)
        keys = {"worker": cut.worker[index], "number": cut.number[index]}
        ids = {"first_event": facts.event_bounds, "last_event": facts.event_ends,
               "first_op": facts.op_bounds, "last_op": facts.op_ends}  # fmt: skip
        iterations.append(
            {
                **keys,
                "start_ns": facts.start,
                "end_ns": facts.end,
                "host_start_ns": cut.start[index],
                "host_end_ns": cut.end[index],
                **ids,
                "partial": cut.partial[index],
                "paused_ns": facts.paused.within(facts.start, facts.end),
                "cut_off": facts.cut_off,
            }
        )
        parts.append({**keys, **facts.parts()})
        for device, columns in facts.devices():
            devices.append({**keys, "device": np.full(len(index), device), **columns})
        progress((done + 1) / len(workers) * 0.7)
    tables = {"iteration": iterations, "iteration_part": parts, "iteration_device": devices}
    return {name: _concatenate(rows) for name, rows in tables.items() if rows}


def _concatenate(tables: list[dict[str, Ints]]) -> dict[str, Ints]:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


class _Worker:
    """The facts of one worker as columns, and its iterations.

    `start`, `end`: their bounds on the devices. `cut_off` is -1 where it is unknown. `whole`: one iteration for the
    whole recording, which also has what was launched before.
    """

    def __init__(self, store: Store, worker: int, start: Ints, end: Ints, is_communication: Bools, whole: bool):
        self.store = store
        self.low, self.high = first_id(worker), first_id(worker + 1)
        self._worker, self._communication = worker, is_communication
        self.paused = pauses(store, worker)
        last = store.rows("select end_ns from worker where id = ?", (worker,))[0][0]
        self._open, self._whole = end >= last, whole  # an iteration that goes to the end takes what is left
        ids = self.low, self.high
        self._api = store.table("api", ("kind", "start_ns", "duration_ns"), *ids)
        names = ("kind", "device", "name", "api", "start_ns", "duration_ns", "tc", "geometry")
        self._event = store.table("event", names, *ids)
        for name, missing in (("tc", 3), ("geometry", -1)):
            column = self._event[name]
            self._event[name] = Column(np.where(column.mask(), column.values, missing))
        self._op = store.table("op", ("start_ns", "end_ns"), *ids)
        api = self._event["api"]
        place = np.where(api.mask(), api.values & _MASK, 0)
        launched = self._launched = api.mask()
        begin = self._event["start_ns"].values
        self._launch = self._take(self._api["start_ns"], place)
        before = np.maximum.accumulate(np.where(launched, np.arange(len(launched)), -1))
        # Without a launch record an event follows the one before it; without any, it stands at its start.
        self._launch = np.where(before >= 0, self._launch[before], BEFORE) if launched.any() else begin
        self._launch_end = np.where(
            launched, self._launch + self._take(self._api["duration_ns"], place), np.iinfo(np.int64).min
        )
        self.event_bounds, self.event_ends = self._ids(self._launch, start, end)
        self.op_bounds, self.op_ends = self._ids(self._op["start_ns"].values, start, end)
        own = self._device_bounds(start, end)
        self.start, self.end = start if whole else own.start, own.end
        self.cut_off = own.cut_off.astype(np.int64) if own.known else np.full(len(start), -1)
        sync = self._api.pop("kind").values == API_KINDS.index("sync")
        waits = self._api["start_ns"].values[sync]
        self._sync = Union(waits, waits + self._api["duration_ns"].values[sync])
        self._shapes = launch_stats.shapes(store)
        described = "select number, sm_count, compute_capability from device where worker = ?"
        self._chips = {row[0]: row[1:] for row in store.rows(described, (worker,))}

    @staticmethod
    def _take(column: Column, place: Ints) -> Ints:
        return column.values[place] if len(column.values) else np.zeros(len(place), np.int64)

    def _ids(self, time: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        first, last = np.searchsorted(time, start), np.searchsorted(time, end)
        first = np.zeros_like(first) if self._whole else first
        return first + self.low, np.where(self._open, len(time), last) + self.low

    def _device_bounds(self, host_start: Ints, host_end: Ints) -> Bounds:
        on_device = np.flatnonzero(self._event["kind"].values != OPERATOR)
        start, length = (self._event[name].values[on_device] for name in ("start_ns", "duration_ns"))
        low, high = (np.searchsorted(on_device, ids - self.low) for ids in (self.event_bounds, self.event_ends))
        return bounds(host_start, host_end, low, high, Work(start, start + length, self._launched[on_device]))

    def parts(self) -> dict[str, Ints]:
        """Partition each iteration. The parts sum to exactly its length without pauses."""
        event = self._event
        start, end = event["start_ns"].values, event["start_ns"].values + event["duration_ns"].values
        kernel = np.isin(event["kind"].values, KERNELS)
        memory = ~kernel & (event["kind"].values != OPERATOR)
        tc = event["tc"].values == 1
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        classes = [Union(start[mask[order]], end[mask[order]]) for mask in (kernel & tc, kernel & ~tc, memory)]
        threads = f"(select id from thread where worker = {self._worker})"
        for table in ("dataloader", "io"):
            rows = self.store.columns(
                f"select start_ns, duration_ns from {table} where thread in {threads} order by start_ns"
            )
            classes.append(Union(rows["start_ns"].values, rows["start_ns"].values + rows["duration_ns"].values))
        begin, finish = (
            self._api["start_ns"].values,
            self._api["start_ns"].values + self._api["duration_ns"].values,
        )
        # A backward pass of several nodes spans what runs between them.
        ranges = Activity(self.store, self._worker).cpu
        cpu = Union(self._op["start_ns"].values, self._op["end_ns"].values).both(ranges)
        outside = ~cpu.covers(begin, finish)  # hardly any: calls belong to executions
        classes.append(cpu.with_(Union(begin[outside], finish[outside])))
        return dict(zip(PARTS, partition([self.paused, *classes], self.start, self.end)[1:]))

    def devices(self) -> Iterator[tuple[int, dict[str, Ints]]]:
        """Yield each device with its sums and lengths of unions per iteration."""
        device = self._event["device"]
        on_device = np.flatnonzero(device.mask())
        for number, places in groups(device.values[on_device]):
            yield number, self._device(number, on_device[places])

    def _device(self, number: int, index: Ints) -> dict[str, Ints]:
        event = self._event
        first, last = (np.searchsorted(index, ids - self.low) for ids in (self.event_bounds, self.event_ends))
        kind, tc = event["kind"].values[index], event["tc"].values[index] == 1
        start, dur = event["start_ns"].values[index], event["duration_ns"].values[index]
        kernel = np.isin(kind, KERNELS)

        def sum_of(weight: Ints, mask: Bools) -> Ints:
            inputs.check_sum(self.store.label, weight[mask])  # waits are longer than what waited
            total = np.r_[0, np.cumsum(np.where(mask, weight, 0))]
            between: Ints = total[last] - total[first]
            return between

        ones = np.ones(len(index), np.int64)
        out = {
            "kernels": sum_of(ones, kernel), "tc_kernels": sum_of(ones, kernel & tc),
            "kernel_ns": sum_of(dur, kernel), "tc_ns": sum_of(dur, kernel & tc), "memory_ns": sum_of(dur, ~kernel),
        }  # fmt: skip
        order = np.lexsort((~self._launched[index], start))  # of two that begin at once, the launched one first
        begin, end = start[order], (start + dur)[order]
        reached = np.r_[begin[:1], np.maximum.accumulate(end)[:-1]]
        late = (begin > reached) & (self._launch_end[index][order] > reached)
        out["late_ns"] = Union(reached[late], begin[late]).within(self.start, self.end)
        every = np.ones(len(index), bool)
        columns = {
            "kind": kind,
            "start_ns": start,
            "duration_ns": dur,
            "geometry": event["geometry"].values[index],
        }
        filled = launch_stats.filled(self._shapes, *self._chips.get(number, (None, None)))
        weights = launch_stats.weights(
            columns, self._launched[index], self._launch[index], self._launch_end[index], filled
        )
        out |= {name: sum_of(weight, every) for name, weight in weights.items()}
        out["filled_sm_ns"] = self._filled(number, columns, filled[0], weights["shaped_ns"] > 0)
        comm = self._communication[event["name"].values[index]]
        classes = (kernel, comm, kernel & ~comm, ~kernel & ~comm)
        kernels, between, compute, memory = (Union(begin[c[order]], end[c[order]]) for c in classes)
        working = compute.with_(between)
        busy = working.with_(memory)
        out["busy_ns"], out["kernel_busy_ns"], out["communication_ns"], work, computing = (
            union.within(self.start, self.end) for union in (busy, kernels, between, working, compute)
        )
        out["exposed_communication_ns"] = work - computing
        out["exposed_memory_ns"] = out["busy_ns"] - work
        apart = self._sync.within(self.start, self.end) + out["busy_ns"]
        out["waited_ns"] = apart - busy.with_(self._sync).within(self.start, self.end)
        return {name: out[name] for name in DEVICE_COLUMNS}

    def _filled(self, device: int, event: dict[str, Ints], reached: Ints, shaped: Bools) -> Ints:
        """Return, per iteration, the time of the device's multiprocessors that had a block."""
        limit, _ = self._chips.get(device, (None, None))
        start, length, value = (
            event["start_ns"][shaped],
            event["duration_ns"][shaped],
            reached[event["geometry"][shaped]],
        )
        inputs.check_sum(self.store.label, length * value)
        return integral(start, start + length, value, limit or 0, self.start, self.end)


def _sums(
    store: Store, iterations: dict[str, Ints], first: int, last: int, progress: Progress
) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the rows of op_stat and op_kernel_stat by worker."""
    workers = np.unique(iterations["worker"]).tolist()
    inside = (iterations["number"] >= first) & (iterations["number"] <= last)
    for done, worker in enumerate(workers):
        own = inside & (iterations["worker"] == worker)
        if own.any():
            for table, shape in (("op_stat", OPS), ("op_kernel_stat", EVENTS)):
                low, high = (iterations[f"{end}_{shape.table}"][own] for end in ("first", "last"))
                yield table, worker, between(store, shape, int(low.min()), int(high.max()))
        progress(0.7 + (done + 1) / len(workers) * 0.2)


def frame(store: Store, query: str, parameters: tuple[object, ...] = ()) -> pd.DataFrame:
    """Run a query with a small result and return a data frame."""
    names, rows = store.named(query, parameters)
    return pd.DataFrame(rows, columns=names)

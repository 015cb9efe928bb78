# SPDX-License-Identifier: Apache-2.0
"""The pieces every SQLite format needs to build a Trace: names, threads, processes, tables, the zero of time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pyprof.model import Bools, Column, Gpu, Ints, Io, Launches, Ops, Process, Ranges, Strings, Thread, Trace
from pyprof.parse import texts
from pyprof.parse.database import Batch, Database, concat, required

_Table = TypeVar("_Table", Ranges, Launches, Gpu)


class Names:
    """The string table of a recording: ids to codes in `strings`, interned when they are first used."""

    def __init__(self, database: Database, table: str, id_column: str, value_column: str):
        self.strings = Strings()
        ids: list[Ints] = [np.empty(0, np.int64)]
        values = [pa.array([], pa.string())]
        for batch in database.read(table, (id_column,), (value_column,)):
            ids.append(required(batch.column(id_column)))
            values.append(batch.text(value_column))
        joined = np.concatenate(ids)
        order = np.argsort(joined, kind="stable")
        self._ids = joined[order]
        self._values = pa.concat_arrays([pa.array(v, pa.string()) for v in values]).take(pa.array(order))
        self._codes = np.full(len(self._ids) + 1, -1, np.int32)
        self._codes[-1] = self.strings.code("")  # of an id that is not there

    def place(self, ids: Ints) -> Ints:
        """Position of each id in the table; the length of the table for an id that is not there."""
        n = len(self._ids)
        place = np.searchsorted(self._ids, ids)
        found = self._ids[np.minimum(place, n - 1)] == ids if n else np.zeros(len(ids), bool)
        return np.where(found, place, n)

    def codes(self, ids: Column) -> Ints:
        """Code of each name; the empty text's for a missing one."""
        place = np.where(ids.mask(), self.place(ids.values), len(self._ids))
        used = np.unique(place)
        fresh = used[self._codes[used] < 0]
        self._codes[fresh] = [
            self.strings.code(text) for text in self._values.take(pa.array(fresh)).to_pylist()
        ]
        return self._codes[place]

    @cached_property
    def _split(self) -> texts.SplitTexts:
        return texts.split(pa.concat_arrays([self._values, pa.array([""], pa.string())]), self.strings)

    def split_texts(self) -> texts.SplitTexts:
        """Every entry of the table as a range's text, by place; the last is the empty text."""
        return self._split


class Threads:
    """Threads and processes by the key a recording gives them: process number above, thread number below."""

    def __init__(self, tid_bits: int = 24, pid_bits: int = 24):
        self._tid_bits, self._pid_bits = tid_bits, pid_bits
        self._threads: dict[int, int] = {}
        self._processes: dict[int, int] = {}

    def index(self, keys: Ints) -> Ints:
        """Index of each thread."""
        return self._number(keys, self._threads)

    def process(self, keys: Ints) -> Ints:
        """Index of the process of each key."""
        return self._number(keys >> self._tid_bits, self._processes)

    @staticmethod
    def _number(keys: Ints, known: dict[int, int]) -> Ints:
        distinct, inverse = np.unique(keys, return_inverse=True)
        numbers = [known.setdefault(int(key), len(known)) for key in distinct]
        return np.array(numbers, np.int32)[inverse] if len(numbers) else np.empty(0, np.int32)

    def process_of_thread(self) -> Ints:
        """Index of the process of each thread index."""
        return self.process(np.array(list(self._threads), np.int64))

    def process_of_correlation(self, launches: Launches, correlation: Column) -> Ints:
        """The process whose launches, alone, have the correlation; -1 if none or several have it."""
        owner = self.process_of_thread()[launches.thread] if len(launches) else np.empty(0, np.int32)
        processes = np.unique(owner)
        if len(processes) == 1:
            return np.full(len(correlation.values), processes[0], np.int32)
        out = np.full(len(correlation.values), -1, np.int32)
        claims = np.zeros(len(correlation.values), np.int32)
        for process in processes:
            has = np.isin(correlation.values, launches.correlation[owner == process]) & correlation.mask()
            out[has] = process
            claims += has
        return np.where(claims == 1, out, -1)

    def finish(self, names: dict[int, Any]) -> tuple[list[Thread], list[Process]]:
        """All threads and processes; `names` by process number."""
        owner = self.process_of_thread()
        tid_mask, pid_mask = (1 << self._tid_bits) - 1, (1 << self._pid_bits) - 1
        threads = [Thread(int(p), key & tid_mask) for key, p in zip(self._threads, owner)]
        processes: list[Process] = []
        for key in self._processes:
            name = names.get(key)
            processes.append(Process(key & pid_mask, str(name) if name else None))
        return threads, processes


class Clock:
    """Moves a recording's times so that its first event is at 0."""

    def start_at_zero(self, trace: Trace) -> None:
        tables = (trace.ranges, trace.ops, trace.launches, trace.gpu, trace.io)
        first = [int(table.start.min()) for table in tables if len(table)]
        trace.t0 = min(first, default=0)
        for table in (*tables, trace.steps):
            table.start = table.start - trace.t0
            end = table.end
            table.end = (
                Column(end.values - trace.t0, end.present) if isinstance(end, Column) else end - trace.t0
            )


def _cat(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def range_table(
    parts: Sequence[tuple[Ints, Ints, Column, texts.SplitTexts, Ints]], lost: dict[str, int]
) -> Ranges:
    """Ranges from batches of (thread, start, end, text, kind)."""
    table = Ranges(
        thread=_cat([p[0] for p in parts], np.int32),
        start=_cat([p[1] for p in parts], np.int64),
        end=concat([p[2] for p in parts]),
        text=_cat([p[3].code for p in parts], np.int32),
        operator=_cat([p[3].operator for p in parts], bool),
        kind=_cat([p[4] for p in parts], np.int8),
        seq=concat([p[3].seq for p in parts]),
    )
    backwards = table.end.mask() & (table.end.values < table.start)
    if backwards.any():
        count(lost, "ranges that end before they start", int(backwards.sum()))
        keep = np.flatnonzero(~backwards)
        table = take(table, keep)
    return table


def launch_table(parts: Sequence[tuple[Ints, Batch]]) -> Launches:
    """Runtime and driver calls from batches of (thread, rows)."""
    start, end, correlation = (
        concat([b.drop(name) for _, b in parts]) for name in ("start", "end", "correlationId")
    )
    launches = Launches(
        thread=_cat([thread for thread, _ in parts], np.int32),
        start=start.values,
        end=np.where(end.mask(), np.maximum(end.values, start.values), start.values),
        correlation=correlation.values,
    )
    usable = start.mask() & correlation.mask()
    return launches if usable.all() else take(launches, np.flatnonzero(usable))


def gpu_table(parts: Sequence[tuple[Batch, Ints, int, Ints]], lost: dict[str, int]) -> Gpu:
    """GPU events from batches of (rows, name, kind, process). Copies have no grid."""
    batches = [batch for batch, _, _, _ in parts]

    def column(name: str, dtype: Any = np.int64) -> Column:
        return concat([batch.drop(name) for batch in batches], dtype)

    start, end = column("start"), column("end")
    grid, block = ([column(f"{what}{axis}", np.int32) for axis in "XYZ"] for what in ("grid", "block"))
    static, dynamic = column("staticSharedMemory"), column("dynamicSharedMemory")
    shaped: Bools = np.logical_and.reduce([axis.mask() for axis in (*grid, *block)])
    graph = column("graphNodeId")
    gpu = Gpu(
        process=_cat([process for _, _, _, process in parts], np.int32),
        device=column("deviceId", np.int32),
        context=column("contextId", np.int32),
        stream=column("streamId"),
        start=start.values,
        end=np.where(end.mask(), end.values, start.values),
        kind=_cat([np.full(batch.rows, kind, np.int8) for batch, _, kind, _ in parts], np.int8),
        name=_cat([name for _, name, _, _ in parts], np.int32),
        grid=np.stack([required(axis) for axis in grid], axis=1) if batches else np.empty((0, 3), np.int32),
        block=np.stack([required(axis) for axis in block], axis=1) if batches else np.empty((0, 3), np.int32),
        shaped=shaped,
        registers=column("registersPerThread", np.int32),
        shared_memory=Column(static.values + dynamic.values, static.mask() & dynamic.mask()),
        correlation=column("correlationId"),
        bytes=column("bytes"),
        graph_node=Column(graph.values, graph.mask() & (graph.values != 0)),
    )
    count(lost, "GPU events without a start", int((~start.mask()).sum()))
    backwards = gpu.end < gpu.start
    count(lost, "GPU events that end before they start (kept, time 0)", int((backwards & start.mask()).sum()))
    gpu.end = np.where(backwards, gpu.start, gpu.end)
    if not start.mask().all():
        keep = np.flatnonzero(start.mask())
        gpu = take(gpu, keep)
    return gpu


def io_table(parts: Sequence[tuple[Ints, Batch, Ints]], lost: dict[str, int]) -> Io:
    """Calls into the operating system from batches of (thread, rows, name)."""
    start = concat([batch.column("start") for _, batch, _ in parts])
    end = concat([batch.column("end") for _, batch, _ in parts])
    keep = np.flatnonzero(start.mask() & end.mask())
    return Io(
        _cat([thread for thread, _, _ in parts], np.int32)[keep],
        start.values[keep],
        end.values[keep],
        _cat([name for _, _, name in parts], np.int32)[keep],
    )


def take(table: _Table, index: Ints) -> _Table:
    """The rows of a table at some places."""
    columns: dict[str, Any] = {
        k: c.take(index) if isinstance(c, Column) else c[index] for k, c in vars(table).items()
    }
    return type(table)(**columns)


def empty_ops() -> Ops:
    none = np.empty(0, np.int64)
    return Ops(none, none, none, none, none, none, Column(none), Column(none))


def count(lost: dict[str, int], reason: str, number: int) -> None:
    if number:
        lost[reason] = lost.get(reason, 0) + number

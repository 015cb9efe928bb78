# SPDX-License-Identifier: Apache-2.0
"""Building blocks that every SQLite format uses for a Trace: names, threads, processes, tables, the zero of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core import arrow
from pyprof.core.model import (
    Bools,
    Column,
    Functions,
    Gpu,
    Ints,
    Io,
    Launches,
    Ops,
    Process,
    Ranges,
    Strings,
    Thread,
    Trace,
)
from pyprof.core.sqlite_file import Batch, Database, required
from pyprof.parse import range_texts

_Table = TypeVar("_Table", Ranges, Launches, Gpu, Ops, Functions)


class Names:
    """The string table of a recording. Ids map to codes in `strings`, interned on first use."""

    def __init__(self, database: Database, table: str, id_column: str, value_column: str):
        self.strings = Strings()
        ids: list[Ints] = [np.empty(0, np.int64)]
        values = [arrow.texts([])]
        for batch in database.read(table, (id_column,), (value_column,)):
            ids.append(required(batch.column(id_column)))
            values.append(batch.text(value_column))
        joined = np.concatenate(ids)
        order = np.argsort(joined, kind="stable")
        self._ids = joined[order]
        self._values = pa.concat_arrays(values).take(arrow.array(order))
        self._codes = np.full(len(self._ids) + 1, -1, np.int32)
        self._codes[-1] = self.strings.code("")  # for unknown ids

    def replace(self, pattern: str, replaced: Callable[[list[str]], list[str]]) -> None:
        """Replace the texts that match a regular expression, before any of them is used."""
        mask = pc.match_substring_regex(self._values, pattern)
        texts = replaced(self._values.filter(mask).to_pylist())
        self._values = pc.replace_with_mask(self._values, mask, arrow.texts(texts))

    def place(self, ids: Ints) -> Ints:
        """Return the position of each id in the table; the length of the table for an unknown id."""
        n = len(self._ids)
        place = np.searchsorted(self._ids, ids)
        exists = self._ids[np.minimum(place, n - 1)] == ids if n else np.zeros(len(ids), bool)
        return np.where(exists, place, n)

    def codes(self, ids: Column) -> Ints:
        """Return the code of each name; the empty text's for a missing one."""
        place = np.where(ids.mask(), self.place(ids.values), len(self._ids))
        used = np.unique(place)
        fresh = used[self._codes[used] < 0]
        self._codes[fresh] = [self.strings.code(text) for text in self._values.take(arrow.array(fresh)).to_pylist()]
        return self._codes[place]

    @cached_property
    def _split(self) -> range_texts.SplitTexts:
        return range_texts.split(pa.concat_arrays([self._values, arrow.texts([""])]), self.strings)

    def split_texts(self) -> range_texts.SplitTexts:
        """Return every entry of the table split as a range's text, by position; the last is the empty text."""
        return self._split


class Threads:
    """Threads and processes by the keys of a recording: process number in the high bits, thread number in the low
    bits."""

    def __init__(self, tid_bits: int = 24, pid_bits: int = 24):
        self._tid_bits, self._pid_bits = tid_bits, pid_bits
        self._threads: dict[int, int] = {}
        self._processes: dict[int, int] = {}

    def index(self, keys: Ints) -> Ints:
        """Return the index of each thread."""
        return self._number(keys, self._threads)

    def process(self, keys: Ints) -> Ints:
        """Return the index of the process of each key."""
        return self._number(keys >> self._tid_bits, self._processes)

    @staticmethod
    def _number(keys: Ints, numbers: dict[int, int]) -> Ints:
        inverse, distinct = arrow.factorize(keys)
        for key in sorted(distinct.tolist()):
            numbers.setdefault(key, len(numbers))
        return np.array([numbers[key] for key in distinct.tolist()] or [0], np.int32)[inverse]

    def process_of_thread(self) -> Ints:
        """Return the index of the process of each thread index."""
        return self.process(np.array(list(self._threads), np.int64))

    def process_of_correlation(self, launches: Launches, correlation: Column) -> Ints:
        """Return the only process whose launches have the correlation; -1 if none or several have it."""
        owner = self.process_of_thread()[launches.thread] if len(launches) else np.empty(0, np.int32)
        processes = np.unique(owner)
        if len(processes) == 1:
            return np.full(len(correlation.values), processes[0], np.int32)
        return sole_owner(owner, launches.correlation, correlation)

    def finish(self, names: dict[int, Any]) -> tuple[list[Thread], list[Process]]:
        """Return all threads and processes. `names` maps process numbers to names."""
        owner = self.process_of_thread()
        tid_mask, pid_mask = (1 << self._tid_bits) - 1, (1 << self._pid_bits) - 1
        threads = [Thread(int(p), key & tid_mask) for key, p in zip(self._threads, owner)]
        processes: list[Process] = []
        for key in self._processes:
            name = names.get(key)
            processes.append(Process(key & pid_mask, str(name) if name else None))
        return threads, processes


def sole_owner(owner: Ints, numbers: Ints, requested: Column) -> Ints:
    """Return, for each requested number, the only process that has it; -1 if none or several do.

    >>> sole_owner(np.array([0, 1, 1]), np.array([5, 5, 6]), Column(np.array([5, 6, 7]))).tolist()
    [-1, 1, -1]
    """
    order = np.lexsort((owner, numbers))
    number, process = numbers[order], owner[order]
    if not len(order):
        return np.full(len(requested.values), -1, np.int32)
    first = np.searchsorted(number, requested.values, side="left")
    last = np.searchsorted(number, requested.values, side="right") - 1
    exists = (last >= first) & requested.mask()
    first, last = np.where(exists, first, 0), np.where(exists, last, 0)
    return np.where(exists & (process[first] == process[last]), process[first], -1).astype(np.int32)


class Clock:
    """The zero of a recording's times: the first of all that it has, be it an event, the mark of a step, a pause or an
    allocation."""

    def start_at_zero(self, trace: Trace) -> None:
        tables = (
            trace.ranges, trace.ops, trace.launches, trace.gpu, trace.io, trace.functions, trace.steps, trace.pauses,
        )  # fmt: skip
        first = [int(table.start.min()) for table in tables if len(table)]
        first += [int(trace.memory.time.min())] if len(trace.memory) else []
        trace.t0 = min(first, default=0)
        trace.memory.time = trace.memory.time - trace.t0
        for table in (*tables, trace.collectives):
            table.start = table.start - trace.t0
            end = table.end
            table.end = Column(end.values - trace.t0, end.present) if isinstance(end, Column) else end - trace.t0


class Table:
    """Columns of one table, filled batch by batch into arrays of their final size, without a second copy.

    A column that no batch contains costs only its mask.
    """

    def __init__(self, capacity: int, **dtypes: Any):
        self.rows = 0
        self._values = {name: np.zeros(capacity, dtype) for name, dtype in dtypes.items()}
        self._present: dict[str, Bools] = {}

    def add(self, rows: int, keep: Ints | None = None, **columns: Column | Ints | Bools) -> None:
        """Append rows, of which only those at `keep` are stored (None: all)."""
        block = slice(self.rows, self.rows + (rows if keep is None else len(keep)))
        for name, column in columns.items():
            values, present = column if isinstance(column, Column) else (column, None)
            if present is not None:
                if name not in self._present:
                    self._present[name] = np.ones(len(self._values[name]), bool)
                self._present[name][block] = present if keep is None else present[keep]
            if values.strides != (0,):  # Column.missing: already zero
                self._values[name][block] = values if keep is None else values[keep]
        self.rows = block.stop

    def values(self, name: str) -> Any:
        return self._values[name][: self.rows]

    def column(self, name: str) -> Column:
        present = self._present.get(name)
        if self.rows and present is not None and not present[: self.rows].any():
            nothing = np.zeros(1, self._values[name].dtype)  # like Column.missing: takes no memory
            return Column(np.broadcast_to(nothing, self.values(name).shape), np.broadcast_to(np.False_, self.rows))
        return Column(self.values(name), None if present is None else present[: self.rows])


def range_table(
    parts: Iterable[tuple[Ints, Ints, Column, range_texts.SplitTexts, Ints, Ints]],
    capacity: int,
    lost: dict[str, int],
) -> Ranges:
    """Build ranges from batches of (thread, start, end, text, kind, domain), `capacity` rows at most. Kind -1 is not a
    range."""
    table = Table(
        capacity, thread=np.int32, start=np.int64, end=np.int64, text=np.int32, operator=bool, kind=np.int8,
        seq=np.int64, domain=np.int32,
    )  # fmt: skip
    dropped = 0
    for thread, start, end, text, kind, domain in parts:
        backwards = (end.values < start) & (kind >= 0)
        if end.present is not None:
            backwards &= end.present
        dropped += int(np.count_nonzero(backwards))
        wrong = backwards | (kind < 0)
        keep = np.flatnonzero(~wrong) if wrong.any() else None
        table.add(
            len(start), keep, thread=thread, start=start, end=end, text=text.code, operator=text.operator, kind=kind,
            seq=text.seq, domain=domain,
        )  # fmt: skip
    count(lost, "ranges that end before they start", dropped)
    return Ranges(
        thread=table.values("thread"), start=table.values("start"), end=table.column("end"), text=table.values("text"),
        operator=table.values("operator"), kind=table.values("kind"), seq=table.column("seq"),
        domain=table.values("domain"),
    )  # fmt: skip


def launch_table(parts: Iterable[tuple[Ints, Batch, Ints]], capacity: int) -> Launches:
    """Build runtime and driver calls from batches of (thread, rows, name), `capacity` rows at most."""
    table = Table(capacity, thread=np.int32, start=np.int64, end=np.int64, correlation=np.int64, name=np.int32)
    for thread, batch, name in parts:
        start, end, correlation = (batch.column(key) for key in ("start", "end", "correlationId"))
        complete = start.mask() & correlation.mask()
        table.add(
            batch.rows, None if complete.all() else np.flatnonzero(complete), thread=thread, start=start.values,
            end=np.where(end.mask(), np.maximum(end.values, start.values), start.values),
            correlation=correlation.values, name=name,
        )  # fmt: skip
    columns = {name: table.values(name) for name in ("thread", "start", "end", "correlation", "name")}
    missing = Column.missing(table.rows)
    return Launches(**columns, stack=np.broadcast_to(np.int32(-1), table.rows), kernel=missing, node=missing)


# Columns of an export that a GPU event takes over unchanged.
_PLAIN = {"device": "deviceId", "context": "contextId", "stream": "streamId", "registers": "registersPerThread",
          "correlation": "correlationId", "bytes": "bytes", "source_kind": "srcKind",
          "target_kind": "dstKind"}  # fmt: skip


def gpu_table(parts: Iterable[tuple[Batch, Ints, int, Ints]], capacity: int, lost: dict[str, int]) -> Gpu:
    """Build GPU events from batches of (rows, name, kind, process), `capacity` rows at most. Copies have no grid."""
    table = Table(
        capacity, process=np.int32, device=np.int32, context=np.int32, stream=np.int64, start=np.int64, end=np.int64,
        kind=np.int8, name=np.int32, grid=(np.int32, 3), block=(np.int32, 3), registers=np.int32,
        shared_memory=np.int64, correlation=np.int64, bytes=np.int64, graph_node=np.int64,
        source_kind=np.int8, target_kind=np.int8,
    )  # fmt: skip
    for batch, name, kind, process in parts:
        start, end = batch.column("start"), batch.column("end")
        has_start = start.mask()
        ends = np.where(end.mask(), end.values, start.values)
        backwards = ends < start.values
        count(lost, "GPU events without a start", int(np.count_nonzero(~has_start)))
        count(lost, "GPU events without an end (kept, time 0)", int(np.count_nonzero(has_start & ~end.mask())))
        count(
            lost,
            "GPU events that end before they start (kept, time 0)",
            int(np.count_nonzero(backwards & has_start)),
        )
        table.add(
            batch.rows, None if has_start.all() else np.flatnonzero(has_start), process=process, start=start.values,
            end=np.where(backwards, start.values, ends), kind=np.full(batch.rows, kind, np.int8), name=name,
            grid=_triple(batch, "grid"), block=_triple(batch, "block"),
            shared_memory=_sum(batch.column("staticSharedMemory"), batch.column("dynamicSharedMemory")),
            graph_node=_not_zero(batch.column("graphNodeId")),
            **{name: batch.column(column) for name, column in _PLAIN.items()},
        )  # fmt: skip
    return Gpu(
        process=table.values("process"), start=table.values("start"), end=table.values("end"),
        kind=table.values("kind"), name=table.values("name"), grid=table.column("grid"), block=table.column("block"),
        shared_memory=table.column("shared_memory"),
        graph_node=table.column("graph_node"), occupancy=Column.missing(table.rows),
        op=np.broadcast_to(np.int32(-1), table.rows),
        **{name: table.column(name) for name in _PLAIN},
    )  # fmt: skip


def _triple(batch: Batch, prefix: str) -> Column:
    """Combine three columns into one that is present where all three are."""
    axes = [batch.column(f"{prefix}{axis}") for axis in "XYZ"]
    values = np.stack([required(axis) for axis in axes], axis=1)
    if all(axis.present is None for axis in axes):
        return Column(values)
    return Column(values, np.logical_and.reduce([axis.mask() for axis in axes]))


def _not_zero(column: Column) -> Column:
    """Mark zeros of a column of ids as missing: 0 stands for "none"."""
    if column.values.strides == (0,):
        return column
    return Column(column.values, column.mask() & (column.values != 0))


def _sum(first: Column, second: Column) -> Column:
    if first.present is None and second.present is None:
        return Column(first.values + second.values)
    return Column(first.values + second.values, first.mask() & second.mask())


def io_table(parts: Iterable[tuple[Ints, Batch, Ints]], capacity: int, lost: dict[str, int]) -> Io:
    """Build calls into the operating system from batches of (thread, rows, name), `capacity` rows at most."""
    table = Table(capacity, thread=np.int32, start=np.int64, end=np.int64, name=np.int32)
    for thread, batch, name in parts:
        start, end = batch.column("start"), batch.column("end")
        keep = np.flatnonzero(start.mask() & end.mask())
        table.add(batch.rows, keep, thread=thread, start=start.values, end=end.values, name=name)
    return Io(*(table.values(name) for name in ("thread", "start", "end", "name")))


def take(table: _Table, index: Ints) -> _Table:
    """Return the rows of a table at the given positions."""
    columns: dict[str, Any] = {k: c.take(index) if isinstance(c, Column) else c[index] for k, c in vars(table).items()}
    return type(table)(**columns)


def empty_ops() -> Ops:
    none = np.empty(0, np.int64)
    return Ops(none, none, none, none, none, none, Column(none), Column(none), none, Column(none))


def count(lost: dict[str, int], reason: str, number: int) -> None:
    if number:
        lost[reason] = lost.get(reason, 0) + number

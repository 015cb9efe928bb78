# SPDX-License-Identifier: Apache-2.0
"""Parts of several recordings as the tables of one database: workers side by side, on one clock.

Each worker keeps its rows, and gets the next number: ids have it in the upper bits, so the parts follow each other.
What rows refer to (operators, texts, names of kernels, call stacks) is numbered anew, equal ones once; an operator is
the same if its place in the model, its arguments and its direction are. Memory is that of one piece of one part and of
these small tables. Combined parts are a part again, and combine to the same tables in any grouping that keeps their
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.model import Process
from pyprof.store.moments import BEFORE
from pyprof.store.write import columns, dimensions
from pyprof.store.write.columns import WORKER_SHIFT
from pyprof.store.write.operators import OUTSIDE, sibling
from pyprof.store.write.parts import Part

_ROWS = 1 << 16  # of a piece; smaller ones wait for more, since each is written with a connection of its own
_TIMES = (
    "start_ns",
    "end_ns",
    "time_ns",
)  # how names of columns end that are times; others with _ns are lengths
# Columns that hold ids of rows of a worker, by their tables.
_IDS = {
    "op": ("id", "forward"), "api": ("id", "op"), "event": ("id", "op", "api"), "range": ("id",), "memory": ("id",),
    "collective": ("event",), "launch": ("event",), "replayed": ("event", "range"),
    "iteration": ("first_event", "last_event", "first_op", "last_op"),
}  # fmt: skip
# Columns that hold numbers of rows of small tables.
_SUMS = {"operator": "operator", "name": "kernel_name", "verdict": "verdict"}
_NUMBERS: dict[str, dict[str, str]] = {
    "range": {"text": "string", "args": "string", "stack": "stack"}, "api": {"name": "string"},
    "io": {"name": "string"}, "event": {**_SUMS, "site": "site", "geometry": "geometry"},
    "op": {"operator": "operator"}, "op_stat": {"operator": "operator"},
    "op_kernel_stat": _SUMS, "site": {"stack": "stack"}, "operator": {"stack": "stack"},
    "moment_operator": {"operator": "operator"},
}  # fmt: skip
_COUNTED = ("io", "dataloader", "loader_batch")  # tables whose rows have numbers of their own
# Small tables, in an order in which each stands after those that it refers to, and the columns that tell equal rows.
_SMALL = {
    "string": ("text",), "stack": ("frames",), "kernel_name": ("name",), "verdict": ("bound", "tensor_cores"),
    "geometry": ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory_bytes",
                 "occupancy"),
    "site": ("mod", "op", "module", "stack", "direction", "phase"), "operator": ("key",),
}  # fmt: skip
_WHOLE = ("iteration_set", "aggregation")  # the same in all parts that have them
_APART = {*_SMALL, *_WHOLE, "source", "worker"}


def combine(parts: Sequence[Part], shifts: Sequence[int], threads: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of all parts. `shifts`: ns to add to the times of each; `threads`: how many threads each has."""
    small = {table: _Rows(keys) for table, keys in _SMALL.items()}
    workers: list[dict[str, Any]] = []
    sources: dict[str, str] = {}
    counts = dict.fromkeys(_COUNTED, 0)
    pieces = _Pieces()
    thread, present = 0, set[str]()
    for number, part in enumerate(parts):
        move = _Move(small, len(workers), thread, shifts[number], counts)
        move.enter(part)
        for table in dict.fromkeys(piece.table for piece in part.pieces):
            if table in present or (table in _APART and table not in _WHOLE):
                continue
            present |= {table}.intersection(_WHOLE)
            for rows in part.read(table):
                yield from pieces.add(table, move.moved(table, rows))
        for table in _COUNTED:
            counts[table] += sum(piece.rows for piece in part.pieces if piece.table == table)
        for rows in part.read("source"):
            for file, text in zip(rows["file"].to_pylist(), rows["text"].to_pylist()):
                sources.setdefault(file, text)
        for rows in part.read("worker"):
            workers += move.moved("worker", rows).to_pylist()
        thread += threads[number]
    yield from pieces.end()
    for table, distinct in small.items():
        if table == "operator":
            _name_operators(distinct.rows, small["stack"].rows)
        yield table, pa.Table.from_pylist(distinct.rows, distinct.schema)
    texts = [(number, file, sources[file]) for number, file in enumerate(sorted(sources))]
    yield "source", columns.rows({"id": int, "file": str, "text": str}, texts)
    yield "worker", _worker_table(workers)


class _Rows:
    """Distinct rows of a small table. `numbers`: by the number in the part at hand, that in the combined table."""

    def __init__(self, keys: tuple[str, ...]):
        self.rows: list[dict[str, Any]] = []
        self.numbers: pa.Array = pa.array([], pa.int64())
        self.schema = pa.schema([])
        self._keys, self._known = keys, dict[tuple[Any, ...], int]()

    def enter(self, rows: pa.Table | None) -> None:
        """Number the rows of a part. Equal rows of one part stay apart."""
        if rows is None:
            self.numbers = pa.array([], pa.int64())
            return
        if not len(self.schema):
            self.schema = rows.schema
        ids = rows["id"].to_numpy()
        numbers = np.full(int(ids.max()) + 1, -1, np.int64)
        again: dict[tuple[Any, ...], int] = {}
        for row in rows.to_pylist():
            key = tuple(row[name] for name in self._keys)
            again[key] = again.get(key, -1) + 1
            place = self._known.setdefault((*key, again[key]), len(self.rows))
            numbers[row["id"]] = place
            if place == len(self.rows):
                self.rows.append({**row, "id": place})
            elif "key" in row:
                _join_operators(self.rows[place], row)
        self.numbers = pa.array(numbers, pa.int64())


class _Move:
    """The numbering of one part in the combined tables."""

    def __init__(self, small: dict[str, _Rows], worker: int, thread: int, shift: int, counts: dict[str, int]):
        self._small, self._worker, self._thread, self._shift = small, worker, thread, shift
        self._counts = dict(counts)

    def enter(self, part: Part) -> None:
        """Add the small tables of the part."""
        for table, distinct in self._small.items():
            rows = part.whole(table)
            distinct.enter(None if rows is None else self.moved(table, rows))

    def moved(self, table: str, rows: pa.Table) -> pa.Table:
        """Return rows in the combined numbering."""
        for place, name in enumerate(rows.column_names):
            column = self._column(table, name, rows.column(place))
            if column is not None:
                rows = rows.set_column(place, name, column)
        return rows

    def _column(self, table: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Return a column in the combined numbering; None if it stays."""
        target = _NUMBERS.get(table, {}).get(name)
        if target is not None:
            return self._small[target].numbers.take(column.combine_chunks()) if column.length() else None
        offset = 0
        if name in _IDS.get(table, ()):
            offset = self._worker << WORKER_SHIFT
        elif name == "worker" or (table, name) == ("worker", "id"):
            offset = self._worker
        elif name == "thread" or (table, name) == ("thread", "id"):
            offset = self._thread
        elif name.endswith(_TIMES):
            offset = self._shift
        elif name == "id" and table in self._counts:
            offset = self._counts[table]
        if not offset:
            return None
        moved = pc.add(column, pa.scalar(offset, pa.int64()))
        if table == "op" and name.endswith(_TIMES):  # before the first event of all, as it is of its part
            moved = pc.if_else(pc.equal(column, BEFORE), column, moved)
        return moved


class _Pieces:
    """Pieces of tables that wait until they are large enough to be written."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[pa.Table]] = {}

    def add(self, table: str, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        waiting = self._waiting.setdefault(table, [])
        waiting.append(rows)
        if sum(piece.num_rows for piece in waiting) >= _ROWS:
            yield table, pa.concat_tables(waiting, promote_options="permissive")
            waiting.clear()

    def end(self) -> Iterator[tuple[str, pa.Table]]:
        for table, waiting in self._waiting.items():
            if waiting:
                yield table, pa.concat_tables(waiting, promote_options="permissive")


def _join_operators(row: dict[str, Any], other: dict[str, Any]) -> None:
    """Add what another part says of an operator: tensor cores support it if they do in any part, its type if the GPUs
    of all parts take it."""
    row["eligible"] = max(row["eligible"], other["eligible"])
    known = [one["dtype_ok"] for one in (row, other) if one["dtype_ok"] is not None]
    row["dtype_ok"] = min(known, default=None)


def _name_operators(rows: list[dict[str, Any]], stacks: list[dict[str, Any]]) -> None:
    """Set ids and names, which count operators of one type, as `Operators` does."""
    of_type: dict[str, int] = {}
    lines: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        type_, group = row["type"], row["group_path"]
        if row["unassociated"] != OUTSIDE:
            count = of_type[type_] = of_type.get(type_, 0) + 1
            row["op_id"] = f"{type_.upper()}_{count}"
        if group is not None:
            own = lines.setdefault((group, type_), {})
            row["name"] = sibling(group, type_, own.setdefault(stacks[row["stack"]]["frames"], len(own) + 1))


def _worker_table(workers: list[dict[str, Any]]) -> pa.Table:
    """Return the table of workers, with names that tell them apart."""
    items = [
        Process(-1 if row["pid"] is None else row["pid"], row["process"], row["rank"], row["host"], row["label"],
                row["span"])
        for row in workers
    ]  # fmt: skip
    named = [{**row, "name": name} for row, name in zip(workers, dimensions.worker_names(items))]
    whole, text = pa.int64(), pa.string()
    return pa.Table.from_pylist(named, pa.schema([
        ("id", whole), ("name", text), ("pid", whole), ("rank", whole), ("host", text), ("process", text),
        ("label", text), ("span", whole), ("start_ns", whole), ("end_ns", whole),
    ]))  # fmt: skip

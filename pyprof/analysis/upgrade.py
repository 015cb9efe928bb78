# SPDX-License-Identifier: Apache-2.0
"""Databases of older schemas: what they hold, as a database of this one.

The facts are copied, with what a later schema added to them; all that is derived from them (sums over blocks,
iterations, aggregations) is worked out again. The older file stays as it is.

schema   added since
1.1      `source`, empty before
1.2      `pause` and iterations without pauses: none were known before
1.3      `hardware_ps` is NULL for convolutions by Winograd and FFT
1.4      `op.cpu` is NULL for executions that a replay gives back: before it was a time that nobody measured
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyprof.analysis.aggregation import aggregate, aggregations
from pyprof.model import Column
from pyprof.prof.kernels import describe
from pyprof.store import blocks
from pyprof.store.files import MAJOR, MINOR, Store, create, ingest, schema, written
from pyprof.store.write import columns

_DERIVED = frozenset({
    "op_block", "event_block", "iteration_set", "iteration", "iteration_part", "iteration_device", "aggregation",
    "op_stat", "op_kernel_stat",
})  # fmt: skip
_PIECE = 1 << 20  # ids read at a time: whole blocks
_HEAD = (
    "schema_major",
    "schema_minor",
    "created_schema",
    "writer_version",
)  # of the file, not of the recording


def is_current(path: Path) -> bool:
    """Whether a profile database can be read without an upgrade. Raises FormatError for what is none, or damaged."""
    with Store(path, any_schema=True) as database:
        return not (database.schema[0] == MAJOR and 0 <= database.schema[1] < MINOR)


def upgrade(
    path: str | os.PathLike[str],
    target: str,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> None:
    """Write the database of an older schema as one of this schema: whole or not at all. Raises FormatError for a
    damaged or a newer one, PyProfError where the file cannot be written."""
    with Store(path, any_schema=True) as old, written(target) as name:
        old.check_schema(oldest=0)
        with old.sound():
            minor = old.schema[1]
            meta = {key: text for key, text in old.meta.items() if key not in _HEAD}
            create(name, _facts(old, minor, progress), meta)
            chosen = aggregations(old)
        with Store(name, own=True, shown=old.shown) as database, database.sound():
            _fill_blocks(database, name)
            for one in chosen:
                aggregate(
                    database, one.first, one.last, one.key, lambda share: progress("aggregating", share)
                )


def _facts(old: Store, minor: int, progress: Callable[[str, float], None]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of facts, as this schema has them."""
    there = old.tables()
    for number, (table, kinds) in enumerate(schema().items()):
        if table in _DERIVED or table == "meta" or table not in there:
            continue
        progress(f"converting schema {MAJOR}.{minor}", 0.6 * number / len(schema()))
        names = ", ".join(f'"{name}"' for name in kinds)
        if "TEXT" in kinds.values():
            types = {name: str if kind == "TEXT" else int for name, kind in kinds.items()}
            yield table, columns.rows(types, old.rows(f"select {names} from {table}"))
            continue
        for piece in _pieces(old, table, names, next(iter(kinds))):
            yield table, _changed(old, table, piece, minor)


def _pieces(old: Store, table: str, names: str, key: str) -> Iterator[dict[str, Column]]:
    """Yield the rows of a table of numbers in the order of its first column, in pieces of bounded size."""
    first = old.rows(f"select min({key}) from {table}")[0][0]
    while first is not None:
        last = first - first % _PIECE + _PIECE
        yield old.columns(
            f"select {names} from {table} where {key} >= ? and {key} < ? order by {key}", (first, last)
        )
        first = old.rows(f"select min({key}) from {table} where {key} >= ?", (last,))[0][0]


def _changed(old: Store, table: str, piece: dict[str, Column], minor: int) -> pa.Table:
    """Return rows with what a later schema says otherwise."""
    if table == "event" and minor < 3:
        kernels = old.once("kernels by Winograd or FFT", lambda: _by_transform(old))
        calls = np.unique(columns.plain(piece["op"])[np.isin(columns.plain(piece["name"]), kernels)])
        known = piece["hardware_ps"].mask() & ~np.isin(columns.plain(piece["op"]), calls[calls >= 0])
        piece["hardware_ps"] = Column(piece["hardware_ps"].values, known)
    if table == "op" and minor < 4:
        replayed = old.once("executions of replays", lambda: _given_back(old))
        known = piece["cpu"].mask() & ~np.isin(piece["id"].values, replayed)
        piece["cpu"] = Column(piece["cpu"].values, known)
    return columns.table(**piece)


def _by_transform(old: Store) -> list[int]:
    """Return the numbers of the names of kernels that convolve by Winograd or FFT."""
    names = old.rows("select id, name from kernel_name where kind = 'conv'")
    return [number for number, name in names if describe(name).algorithm]


def _given_back(old: Store) -> list[int]:
    """Return the numbers of executions that replays of graphs give back."""
    query = "select distinct op from event where op is not null and id in (select event from replayed)"
    return [number for (number,) in old.rows(query)]


def _fill_blocks(database: Store, name: str) -> None:
    """Add up the blocks of executions and events."""
    for shape in (blocks.OPS, blocks.EVENTS):
        for low in _blocks(database, shape.table):
            rows = blocks.rows(database, shape, low << blocks.SHIFT, (low + 1) << blocks.SHIFT)
            keys, sums = blocks.reduce([rows[key] for key in shape.keys], rows, shape)
            block = np.full(len(keys[0]), low, np.int64)
            ingest(name, shape.block, columns.table(block=block, **dict(zip(shape.keys, keys)), **sums))


def _blocks(database: Store, table: str) -> Iterator[int]:
    first = database.rows(f"select min(id) from {table}")[0][0]
    while first is not None:
        yield first >> blocks.SHIFT
        following = ((first >> blocks.SHIFT) + 1) << blocks.SHIFT
        first = database.rows(f"select min(id) from {table} where id >= ?", (following,))[0][0]

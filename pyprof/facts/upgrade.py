# SPDX-License-Identifier: Apache-2.0
"""Convert a database of an older schema to one of the current schema.

The facts are copied, with what a later schema added to them; everything derived from them (iterations,
aggregations) is computed again. The older file stays as it is.

  schema   change
  1.1      `source` added; empty for older files
  1.2      `pause` and iterations without pauses added; older files have no pauses
  1.3      `hardware_ps` is NULL for convolutions by Winograd and FFT
  1.4      `op.cpu` is NULL for executions that a replay gives back; before it was a time that nothing had measured
  2.0      columns have their units in their names (`_FORMER`)
  2.1      `event.verdict` added; older files do not know what limits their events. `track`, `tile` and `label` added,
           the timeline, which is derived. `packed` was added later: it is derived, too, and files without it are read
           from their rows
  2.2      `iteration` has the bounds on the device
  2.4      `op_block` and `event_block`, sums over blocks of ids, removed; `packed` has all columns of `op`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyprof.core.model import Column
from pyprof.costs.kernels import describe
from pyprof.facts.host import gaps
from pyprof.facts.ranks import rank_work
from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.store.files import OLDER, Store, create, schema, written
from pyprof.store.write import columns

_DERIVED = frozenset({
    "iteration_set", "iteration", "iteration_part", "iteration_device", "aggregation",
    "op_stat", "op_kernel_stat", "track", "tile", "label", "packed", "place",
    "launch", "moment", "moment_operator",
})  # fmt: skip
# Columns of facts before 2.0, by their names since then.
_FORMER = {
    "start_ns": "start", "end_ns": "end", "duration_ns": "dur", "cpu_ns": "cpu", "api_ns": "api", "gpu_ns": "gpu",
    "idle_ns": "idle", "kernel_ns": "kernel", "tc_ns": "tc", "total_ns": "total", "roofline_ns": "roofline",
    "time_ns": "time", "dense_flops": "dense", "copied_bytes": "copied", "allocated_bytes": "allocated",
    "reserved_bytes": "reserved", "sent_bytes": "sent", "received_bytes": "received",
    "shared_memory_bytes": "shared_memory", "bandwidth_bytes_per_s": "bandwidth",
}  # fmt: skip
_PIECE = 1 << 20  # ids read at a time
_HEAD = (
    "schema_major",
    "schema_minor",
    "created_schema",
    "writer_version",
)  # of the file, not of the recording


def is_current(path: Path) -> bool:
    """Return whether a profile database needs no upgrade. Raises FormatError for other or damaged files."""
    with Store(path, any_schema=True) as database:
        return database.schema not in OLDER


def upgrade(
    path: str | os.PathLike[str],
    target: str,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> None:
    """Write the database of an older schema as one of the current schema, atomically.

    Raises FormatError for a damaged or a newer one, PyProfError if the file cannot be written.
    """
    with Store(path, any_schema=True) as old, written(target) as name:
        old.check_schema(older=True)
        with old.translate_errors(_types(old)):
            meta = {key: text for key, text in old.meta.items() if key not in _HEAD}
            create(name, _facts(old, progress), meta)
            existing = aggregations(old)
        with Store(name, own=True, label=old.label) as database, database.translate_errors():
            gaps.add(database, name)
            rank_work.add(database, name)
            for aggregation in existing:
                aggregate(
                    database,
                    aggregation.first,
                    aggregation.last,
                    aggregation.key,
                    lambda share: progress("aggregating", share),
                )


def _types(old: Store) -> dict[str, dict[str, str]]:
    """Return the tables of facts, with the names that their columns have in the file, and their types."""
    present = old.tables() - _DERIVED
    return {
        table: {name: kind for key, kind in kinds.items() if (name := _former(old, table, key)) is not None}
        for table, kinds in schema().items()
        if table in present
    }


def _former(old: Store, table: str, name: str) -> str | None:
    """Return the name that a column of the current schema has in an older file; None if it has none."""
    if (table, name) == ("event", "verdict") and old.schema < (2, 1):
        return None
    return _FORMER.get(name, name) if old.schema < (2, 0) else name


def _facts(old: Store, progress: Callable[[str, float], None]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of facts in the current schema."""
    tables = _types(old)
    for number, (table, types) in enumerate(tables.items()):
        if table == "meta":
            continue
        progress("converting schema {}.{}".format(*old.schema), 0.6 * number / len(tables))
        kinds = {name: kind for name, kind in schema()[table].items() if _former(old, table, name) is not None}
        # With its table: SQLite takes "start" for a text where there is no such column.
        names = ", ".join(f'"{table}"."{former}" as "{name}"' for name, former in zip(kinds, types))
        if "TEXT" in kinds.values():
            cells = {name: str if kind == "TEXT" else int for name, kind in kinds.items()}
            yield table, columns.rows(cells, old.rows(f"select {names} from {table}"))
            continue
        for piece in _pieces(old, table, names, next(iter(kinds))):
            yield table, _convert(old, table, piece)
    if "verdict" not in tables:
        yield "verdict", columns.rows({"id": int, "bound": str, "tensor_cores": str}, [(0, None, None)])


def _pieces(old: Store, table: str, names: str, key: str) -> Iterator[dict[str, Column]]:
    """Yield the rows of a table of numbers in the order of its first column, in pieces of bounded size."""
    first = old.rows(f"select min({key}) from {table}")[0][0]
    while first is not None:
        last = first - first % _PIECE + _PIECE
        yield old.columns(f"select {names} from {table} where {key} >= ? and {key} < ? order by {key}", (first, last))
        first = old.rows(f"select min({key}) from {table} where {key} >= ?", (last,))[0][0]


def _convert(old: Store, table: str, piece: dict[str, Column]) -> pa.Table:
    """Return rows with the changes of later schemas applied."""
    if table == "event" and old.schema < (1, 3):
        kernels = old.cached("kernels by Winograd or FFT", lambda: _transform_kernels(old))
        calls = np.unique(columns.plain(piece["op"])[np.isin(columns.plain(piece["name"]), kernels)])
        present = piece["hardware_ps"].mask() & ~np.isin(columns.plain(piece["op"]), calls[calls >= 0])
        piece["hardware_ps"] = Column(piece["hardware_ps"].values, present)
    if table == "event" and old.schema < (2, 1):
        piece["verdict"] = Column(np.zeros(len(piece["id"].values), np.int64))
    if table == "op" and old.schema < (1, 4):
        replayed = old.cached("executions of replays", lambda: _executions_of_replays(old))
        present = piece["cpu_ns"].mask() & ~np.isin(piece["id"].values, replayed)
        piece["cpu_ns"] = Column(piece["cpu_ns"].values, present)
    return columns.table(**piece)


def _transform_kernels(old: Store) -> list[int]:
    """Return the name numbers of kernels that convolve by Winograd or FFT."""
    names = old.rows("select id, name from kernel_name where kind = 'conv'")
    return [number for number, name in names if describe(name).algorithm]


def _executions_of_replays(old: Store) -> list[int]:
    """Return the numbers of executions that replays of graphs give back."""
    query = "select distinct op from event where op is not null and id in (select event from replayed)"
    return [number for (number,) in old.rows(query)]

# SPDX-License-Identifier: Apache-2.0
"""The summary of recordings: the part of their databases that the figures of all ranks need.

It has the tables of a profile database with fewer rows: workers, devices, operators, steps, iterations with their
parts, sums by operator and kernel, and of the events the kernels of collectives alone; and what each rank did between
them (`facts.rank_work`). So the reports that need no more (`Report.of_summary`) are those of the database of all
recordings, computed by the same code.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from pyprof.facts.steps.steady_state import write_steady
from pyprof.store import files
from pyprof.store.files import Store
from pyprof.store.write import dimensions, parts
from pyprof.store.write.combine import combine
from pyprof.store.write.parts import Part

_OF_COLLECTIVES = "id in (select event from collective)"
# Tables, and the condition on their rows.
_TABLES = {
    "stack": "id in (select stack from operator)", "kernel_name": "", "verdict": "", "worker": "", "device": "",
    "step": "", "pause": "", "collective": "", "event": _OF_COLLECTIVES, "iteration_set": "", "iteration": "",
    "iteration_part": "", "iteration_device": "", "aggregation": "", "op_stat": "", "op_kernel_stat": "",
    "launch": "", "moment": "", "moment_operator": "",
}  # fmt: skip
# Tables that a recording is left out of if nothing in it cuts it as the others are cut.
_ITERATIONS = {
    "iteration_set", "iteration", "iteration_part", "iteration_device", "aggregation", "op_stat", "op_kernel_stat",
}  # fmt: skip
# Columns that refer to tables that a summary lacks.
_UNKNOWN = {"event": {"op", "site", "api", "geometry", "graph"}}
_TYPES = {"INTEGER": pa.int64(), "TEXT": pa.string()}


def reduced(database: str, whole: Part, cut: bool) -> bytes:
    """Return the summary of a recording as a part, from its database and its part; `cut`: whether it is cut as the run
    is."""
    return parts.packed(_reduced(database, whole, cut))


def _reduced(database: str, whole: Part, cut: bool) -> Iterator[tuple[str, pa.Table]]:
    # By number, since only the part has the columns by which operators are numbered.
    yield "operator", whole.whole("operator")
    with Store(database, own=True) as store:
        for table, condition in _TABLES.items():
            if table in _ITERATIONS and not cut:
                continue
            types = files.schema()[table]
            left_out = _UNKNOWN.get(table, set())
            names = ", ".join(f'null as "{name}"' if name in left_out else f'"{name}"' for name in types)
            where = f"where {condition}" if condition else ""
            rows = store.rows(f'select {names} from "{table}" {where}')
            columns = list(zip(*rows)) or [()] * len(types)
            yield (
                table,
                pa.table({name: pa.array(cells, _TYPES[types[name]]) for name, cells in zip(types, columns)}),
            )


def joined(summaries: Sequence[bytes], shifts: Sequence[int]) -> bytes:
    """Return the summary of several, in their order; `shifts`: ns to add to the times of each."""
    return parts.packed(_joined(summaries, shifts))


def _joined(summaries: Sequence[bytes], shifts: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
    opened = [Part(summary, "a summary") for summary in summaries]
    yield from combine(opened, shifts, [0] * len(opened))


def write(name: str, summary: bytes, meta: dict[str, str], lost: pa.Table, databases: Sequence[str]) -> None:
    """Write the database of a summary. `databases`: the names of those of its workers."""

    def tables() -> Iterator[tuple[str, pa.Table]]:
        for table, rows in _joined([summary], [0]):
            yield table, rows.drop_columns(list(dimensions.NUMBERING)) if table == "operator" else rows
        yield "lost", lost
        yield "recording", pa.table({"worker": range(len(databases)), "database": list(databases)})

    with files.written(name) as target:
        files.create(target, tables(), meta | {files.SUMMARY: "yes"})
        with closing(files.unsafe(target)) as connection:
            _whole_run(connection)


def _whole_run(connection: sqlite3.Connection) -> None:
    """Aggregate all iterations: those of the recording with the most. What is steady is so on all ranks."""
    for (number,) in connection.execute("select id from iteration_set").fetchall():
        write_steady(connection, number)
    connection.execute('update aggregation set "last" = (select max(number) from iteration where iteration_set = 1)')

# SPDX-License-Identifier: Apache-2.0
"""Validation: find content that SQLite accepts but no profile database has.

It reads all rows and takes as long as that, so it runs only after other work on the file has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_STORED = {"INTEGER": "'integer'", "REAL": "'real', 'integer'", "TEXT": "'text'", "BLOB": "'blob'"}
# Columns that refer to rows of another table: those with its name, and others.
_REFERENCES = {
    "worker", "thread", "operator", "stack", "geometry", "site", "verdict", "iteration_set", "aggregation", "track",
}  # fmt: skip
_OTHER_REFERENCES = {
    ("api", "name"): "string", ("io", "name"): "string", ("event", "name"): "kernel_name",
    ("op_kernel_stat", "name"): "kernel_name",
    ("event", "api"): "api", ("event", "op"): "op", ("api", "op"): "op", ("op", "forward"): "op",
    ("range", "text"): "string", ("range", "args"): "string",
    ("replayed", "event"): "event", ("replayed", "range"): "range",
}  # fmt: skip
_REQUIRED = {
    "operator": {"name", "type", "op_id"},
    "string": {"text"},
    "kernel_name": {"name"},
    "label": {"text"},
}
_TIMES = {"start_ns", "end_ns", "duration_ns", "host_start_ns", "host_end_ns"}
_MAX_TIME = 1 << 61  # ns: 73 years
# Columns that are never NULL, with the largest value; the meaning of the numbers is in the code.
_CODES = {
    "operator": {"direction": 2, "phase": 4, "eligible": 1, "unassociated": 2},
    "event": {"kind": 3, "verdict": 1 << 61},
    "op_kernel_stat": {"kind": 3},
    "range": {"kind": 4},
    "iteration": {"partial": 1, "steady": 1},
    "device": {"events": 1 << 61},
}


def damage(types: Mapping[str, Mapping[str, str]], rows: Callable[[str], list[tuple[Any, ...]]]) -> str | None:
    """Return a description of the damage, None without any.

    `types`: the schema's tables, columns and their types; `rows`: a function that runs a query.
    """
    return next((what for query, what in _tests(types) if rows(f"{query} limit 1")), None)


def _tests(types: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for table, columns in types.items():
        for name, kind in columns.items():
            wrong = f"typeof(\"{name}\") not in ({_STORED[kind]}, 'null')"
            yield f'select 1 from "{table}" where {wrong}', f"{table} has a value of the wrong type in {name}"
        for name, largest in _CODES.get(table, {}).items():
            wrong = f'"{name}" is null or "{name}" not between 0 and {largest}'
            yield f'select 1 from "{table}" where {wrong}', f"{table} has a undefined value in {name}"
        for name in columns.keys() & _REQUIRED.get(table, set()):
            yield f'select 1 from "{table}" where "{name}" is null', f"{table} lacks values in {name}"
        for name in sorted(name for name in columns if name in _TIMES):
            least = 0 if name == "duration_ns" else -_MAX_TIME
            wrong = f'"{name}" is null or "{name}" not between {least} and {_MAX_TIME}'
            yield f'select 1 from "{table}" where {wrong}', f"{table} has no time in {name}"
        for start, end in (("start_ns", "end_ns"), ("host_start_ns", "host_end_ns")):
            if {start, end} <= columns.keys():
                yield f'select 1 from "{table}" where {end} < {start}', f"{table} has an end before its start"
        if table == "iteration":
            wrong = "paused_ns is null or paused_ns not between 0 and end_ns - start_ns or cut_off not in (0, 1)"
            yield f'select 1 from "{table}" where {wrong}', f"{table} has pauses or a mark that none has"
    for table, columns in types.items():
        for name, kind in columns.items():
            other = _OTHER_REFERENCES.get((table, name), name if name in _REFERENCES else None)
            if other is not None and kind == "INTEGER":
                missing = f'"{name}" is not null and "{name}" not in (select id from "{other}")'
                yield (
                    f'select 1 from "{table}" where {missing}',
                    f"{table} refers to a row that {other} does not have",
                )
    of_aggregation = "select iteration_set, number from iteration"
    yield (
        f"""select 1 from aggregation where (iteration_set, "first") not in ({of_aggregation})
            or (iteration_set, "last") not in ({of_aggregation})""",
        "an aggregation has iterations that do not exist",
    )
    yield (
        "select 1 from iteration_device where (worker, device) not in (select worker, number from device)",
        "iteration_device refers to a row that device does not have",
    )


__all__ = ["damage"]

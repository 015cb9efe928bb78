# SPDX-License-Identifier: Apache-2.0
"""The device's tables of a capture file. Like those of an export they are there only if there are rows for them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np

from pyprof.capture.collectors.device import (
    ENUMS,
    KERNEL,
    MISSING,
    MORE,
    MORE_COLUMNS,
    NAMES,
    TABLES,
    Array,
    Columns,
    Records,
)
from pyprof.capture.collectors.gpus import COLUMNS, chip
from pyprof.occupancy import estimate

Values = Iterable[Any]
_TID = 0xFFFFFF  # bits of a globalTid that name the thread


def write(
    connection: sqlite3.Connection,
    records: Records,
    gpus: list[dict[str, Any]],
    t0: int,
    process: int,
    code: Callable[[str], int],
) -> None:
    """Write the tables. `t0` is the start of the session, `process` the globalPid, `code` numbers a text."""
    if not len(records):
        return
    codes = np.array([code(name) for name in records.names] or [0], np.int64)
    shorts = np.array([code(short_name(name)) for name in records.names] or [0], np.int64)
    for table, columns in TABLES.items():
        parts = records.parts(table)
        if parts:
            _create(connection, table, columns)
            for part in parts:
                _insert(
                    connection, table, [_values(part, name, t0, process, codes, shorts) for name in columns]
                )
    _more(connection, records, gpus)
    for table, rows in ENUMS.items():
        connection.execute(f"create table {table} (id integer primary key, name text, label text)")
        connection.executemany(f"insert into {table} values (?, ?, ?)", rows)
    if gpus:
        _create(connection, "TARGET_INFO_GPU", COLUMNS, texts=("name", "uuid"))
        _insert(connection, "TARGET_INFO_GPU", [[gpu.get(name) for gpu in gpus] for name in COLUMNS])


def _create(
    connection: sqlite3.Connection, table: str, columns: Iterable[str], texts: Iterable[str] = ()
) -> None:
    types = ", ".join(f'"{name}" {"text" if name in texts else "integer"}' for name in columns)
    connection.execute(f"create table {table} ({types})")


def _insert(connection: sqlite3.Connection, table: str, columns: list[Values]) -> None:
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"insert into {table} values ({marks})", zip(*columns))


def short_name(name: str) -> str:
    """A kernel's function name alone, as an export has it beside the whole one.

    >>> short_name("void at::native::(anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)")
    'softmax_warp_forward'
    """
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2].rpartition(" ")[2] or name


def _values(part: Columns, name: str, t0: int, process: int, codes: Array, shorts: Array) -> Values:
    """The values of a column as SQLite takes them."""
    if name == "globalPid":
        return repeat(process, len(part["start"]))
    if name == "shortName":
        return [int(number) for number in shorts[part["demangledName"]]]
    if name not in part:
        return repeat(None, len(part["start"]))
    column = part[name]
    known = column != MISSING
    if name in ("start", "end"):
        column = column - t0
    elif name == "globalTid":
        column = process | (column & _TID)
    elif name in NAMES:
        column = codes[np.where(known, column, 0)]
    return _nulls(column, known)


def _nulls(column: Any, known: Any) -> Values:
    values = column.tolist()
    return (
        values if known.all() else [value if there else None for value, there in zip(values, known.tolist())]
    )


def _more(connection: sqlite3.Connection, records: Records, gpus: list[dict[str, Any]]) -> None:
    """PYPROF_KERNEL: what no table of an export has a column for."""
    count = records.count(KERNEL)
    if not count:
        return
    shared, static, dynamic = (
        records.column(KERNEL, name) for name in ("sharedMemory", "staticSharedMemory", "dynamicSharedMemory")
    )
    apart = (static != MISSING) & (dynamic != MISSING)
    shared = np.where(apart, np.where(apart, static, 0) + np.where(apart, dynamic, 0), shared)
    occupancy = _occupancy(records, gpus)
    _create(connection, MORE, ("kernelId", MORE_COLUMNS[0]))
    connection.execute(f"alter table {MORE} add column {MORE_COLUMNS[1]} real")
    columns = [
        range(1, count + 1),
        _nulls(shared, shared != MISSING),
        _nulls(occupancy / 100, occupancy != MISSING),
    ]
    _insert(connection, MORE, columns)


def _occupancy(records: Records, gpus: list[dict[str, Any]]) -> Array:
    """What the collector was told, and better what the launch and the device give."""

    def of(name: str) -> Array:
        return records.column(KERNEL, name)

    out = of("occupancy")
    shared, static, dynamic = of("sharedMemory"), of("staticSharedMemory"), of("dynamicSharedMemory")
    together = (static == MISSING) & (shared != MISSING)
    static, dynamic = np.where(together, 0, static), np.where(together, shared, dynamic)
    block, grid = (_product(of(f"{what}{axis}") for axis in "XYZ") for what in ("block", "grid"))
    device, registers = of("deviceId"), of("registersPerThread")
    for gpu in gpus:
        found, here = chip(gpu), np.flatnonzero(device == gpu["id"])
        if found is not None and len(here):
            own = estimate(found, block[here], grid[here], registers[here], static[here], dynamic[here])
            out[here] = np.where(own != MISSING, own, out[here])
    return out


def _product(axes: Iterable[Array]) -> Array:
    """Of three columns; 0 where one of them is missing."""
    columns = list(axes)
    known = np.logical_and.reduce([axis != MISSING for axis in columns])
    return np.where(known, np.prod([np.where(known, axis, 1) for axis in columns], axis=0), 0)

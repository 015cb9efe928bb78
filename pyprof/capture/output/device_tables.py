# SPDX-License-Identifier: Apache-2.0
"""Device tables of a capture file. As in an export, a table exists only if it has rows."""

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
from pyprof.core.occupancy import estimate

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
    """Write the tables. `t0` is the start of the session, `process` the globalPid, `code` returns the number of a
    text."""
    if not len(records):
        return
    codes = np.array([code(name) for name in records.names] or [0], np.int64)
    shorts = np.array([code(short_name(name)) for name in records.names] or [0], np.int64)
    for table, columns in TABLES.items():
        parts = records.parts(table)
        if parts:
            _create(connection, table, columns)
            for part in parts:
                _insert(connection, table, [_values(part, name, t0, process, codes, shorts) for name in columns])
    _write_kernel_columns(connection, records, gpus)
    for table, rows in ENUMS.items():
        connection.execute(f"create table {table} (id integer primary key, name text, label text)")
        connection.executemany(f"insert into {table} values (?, ?, ?)", rows)
    if gpus:
        _create(connection, "TARGET_INFO_GPU", COLUMNS, texts=("name", "uuid"))
        _insert(connection, "TARGET_INFO_GPU", [[gpu.get(name) for gpu in gpus] for name in COLUMNS])


def _create(connection: sqlite3.Connection, table: str, columns: Iterable[str], texts: Iterable[str] = ()) -> None:
    types = ", ".join(f'"{name}" {"text" if name in texts else "integer"}' for name in columns)
    connection.execute(f"create table {table} ({types})")


def _insert(connection: sqlite3.Connection, table: str, columns: list[Values]) -> None:
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"insert into {table} values ({marks})", zip(*columns))


def short_name(name: str) -> str:
    """Return only a kernel's function name, as an export has it next to the full one.

    >>> short_name("void at::native::(anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)")
    'softmax_warp_forward'
    """
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2].rpartition(" ")[2] or name


def _values(part: Columns, name: str, t0: int, process: int, codes: Array, shorts: Array) -> Values:
    """Return the values of a column for SQLite."""
    if name == "globalPid":
        return repeat(process, len(part["start"]))
    if name == "shortName":
        return [int(number) for number in shorts[part["demangledName"]]]
    if name not in part:
        return repeat(None, len(part["start"]))
    column = part[name]
    valid = column != MISSING
    if name in ("start", "end"):
        column = column - t0
    elif name == "globalTid":
        column = process | (column & _TID)
    elif name in NAMES:
        column = codes[np.where(valid, column, 0)]
    return _nulls(column, valid)


def _nulls(column: Any, valid: Any) -> Values:
    values = column.tolist()
    return values if valid.all() else [value if ok else None for value, ok in zip(values, valid.tolist())]


def _write_kernel_columns(connection: sqlite3.Connection, records: Records, gpus: list[dict[str, Any]]) -> None:
    """Write PYPROF_KERNEL: the columns that no table of an export has."""
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
    """Return occupancy from the collector, overridden by estimates from launch and device where possible."""

    def of(name: str) -> Array:
        return records.column(KERNEL, name)

    out = of("occupancy")
    shared, static, dynamic = of("sharedMemory"), of("staticSharedMemory"), of("dynamicSharedMemory")
    together = (static == MISSING) & (shared != MISSING)
    static, dynamic = np.where(together, 0, static), np.where(together, shared, dynamic)
    block, grid = (_product(of(f"{prefix}{axis}") for axis in "XYZ") for prefix in ("block", "grid"))
    device, registers = of("deviceId"), of("registersPerThread")
    for gpu in gpus:
        gpu_chip, rows = chip(gpu), np.flatnonzero(device == gpu["id"])
        if gpu_chip is not None and len(rows):
            estimates = estimate(gpu_chip, block[rows], grid[rows], registers[rows], static[rows], dynamic[rows])
            out[rows] = np.where(estimates != MISSING, estimates, out[rows])
    return out


def _product(axes: Iterable[Array]) -> Array:
    """Return the product of three columns; 0 where one of them is missing."""
    columns = list(axes)
    valid = np.logical_and.reduce([axis != MISSING for axis in columns])
    return np.where(valid, np.prod([np.where(valid, axis, 1) for axis in columns], axis=0), 0)

# SPDX-License-Identifier: Apache-2.0
"""Columns for the database: integers with their mask as Arrow, ids, plain rows as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.core.model import Bools, Column, Ints

WORKER_SHIFT = 40
NONE = -1


def table(**columns: Column | Ints | Bools) -> pa.Table:
    """Return integer columns as an Arrow table; missing values are NULL."""
    out = {}
    for name, column in columns.items():
        values, present = column if isinstance(column, Column) else (column, None)
        mask = None if present is None else ~present
        out[name] = pa.array(np.ascontiguousarray(values, dtype=np.int64), pa.int64(), mask=mask)
    return pa.table(out)


def rows(kinds: Mapping[str, Any], cells: Iterable[Sequence[Any]]) -> pa.Table:
    """Return a small Arrow table from its rows; `kinds` gives the columns, int or str."""
    types = {int: pa.int64(), str: pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    columns = list(zip(*cells)) or [()] * len(kinds)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema)], schema=schema)


def ids(worker: Ints) -> Ints:
    """Return ids of rows that are ordered by worker: worker << 40 | number.

    >>> ids(np.array([0, 0, 1])).tolist()
    [0, 1, 1099511627776]
    """
    number = np.arange(len(worker), dtype=np.int64)
    if len(worker):
        number -= np.searchsorted(worker, worker, side="left")
    out: Ints = (worker.astype(np.int64) << WORKER_SHIFT) + number
    return out


_PIECE = 1 << 20  # rows


def pieces(worker: Ints) -> Iterator[slice]:
    """Yield slices of rows that are ordered by worker, each of one worker.

    >>> list(pieces(np.array([0, 0, 1])))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    for number in np.unique(worker).tolist():
        first, last = np.searchsorted(worker, [number, number + 1]).tolist()
        yield from (slice(low, min(low + _PIECE, last)) for low in range(first, last, _PIECE))


def plain(column: Column) -> Ints:
    """Return values with -1 for missing ones."""
    return column.values if column.present is None else np.where(column.present, column.values, NONE)


def take(column: Column | Ints, order: Ints | slice) -> Column | Ints:
    """Return a column in another order."""
    return column.take(order) if isinstance(column, Column) else column[order]


def flag(value: bool | None) -> int | None:
    """Return a truth value as the database stores it."""
    return None if value is None else int(value)


class Stacks:
    """Distinct call stacks, numbered in the order of first use."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self._codes: dict[tuple[str, ...], int] = {}

    def code(self, frames: tuple[str, ...]) -> int:
        if frames not in self._codes:
            self._codes[frames] = len(self.rows)
            self.rows.append(frames)
        return self._codes[frames]

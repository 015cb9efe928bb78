# SPDX-License-Identifier: Apache-2.0
"""Operators of a recording as columns of integers: a million of them as objects would take 350 MB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.core.model import Call, Ints

COLUMNS = 8  # start, end, thread, call, scope, sequence number, forward thread, override; -1: none
_START, _END, THREAD, _CALL, _NAMED = 0, 1, 2, 3, 7
_CHUNK = 8192


class Operator(NamedTuple):
    """One RecordFunction event of function or backward scope. Times in ns of the Unix epoch."""

    start: int
    end: int
    tid: int
    call: Call
    scope: int
    seq: int | None
    forward_tid: int | None
    module: str = ""  # of the parameter whose gradient is added up (parameters.py)


class Operators:
    """Sequence of operators, each created on access. `rows`: `COLUMNS` integers each; `calls` are the calls that the
    column of calls indexes."""

    def __init__(self, rows: Ints | None = None, calls: list[Call] | None = None):
        self.rows: Ints = np.empty((0, COLUMNS), np.int64) if rows is None else rows
        self._calls = calls or []
        self._named: list[tuple[Call, str]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Operator:
        return self._operator(self.rows[place].tolist())

    def __iter__(self) -> Iterator[Operator]:
        for first in range(0, len(self.rows), _CHUNK):
            yield from map(self._operator, self.rows[first : first + _CHUNK].tolist())

    def _operator(self, row: list[int]) -> Operator:
        start, end, tid, number, scope, seq, forward, override = row
        call, module = (self._calls[number], "") if override < 0 else self._named[override]
        return Operator(
            start, end, tid, call, scope, seq if seq >= 0 else None, forward if forward >= 0 else None, module
        )

    @property
    def start(self) -> Ints:
        """Start of each operator."""
        return self.rows[:, _START]

    def places(self, op: str) -> Ints:
        """Return the positions of the operators of one name."""
        numbers = [number for number, call in enumerate(self._calls) if call.op == op]
        return np.flatnonzero(np.isin(self.rows[:, _CALL], numbers))

    def name(self, place: int, call: Call, module: str) -> None:
        """Give one operator another call, and a module."""
        self.rows[place, _NAMED] = len(self._named)
        self._named.append((call, module))

    def take(self, selection: Ints) -> Operators:
        """Return a selection of the operators, by position or by mask."""
        out = Operators(self.rows[selection], self._calls)
        out._named = self._named
        return out

    def distinct(self) -> tuple[list[tuple[Call, str]], Ints]:
        """Return the distinct pairs of call and module, and the index of each operator's pair."""
        named = self.rows[:, _NAMED]
        return [*((call, "") for call in self._calls), *self._named], np.where(
            named >= 0, len(self._calls) + named, self.rows[:, _CALL]
        )

    def counted(self) -> Iterator[tuple[Operator, int]]:
        """Return the first operator of each distinct call, and the number of operators with it."""
        _, first, counts = np.unique(self.distinct()[1], return_index=True, return_counts=True)
        return zip(map(self.__getitem__, first.tolist()), counts.tolist())

    def in_order(self) -> Operators:
        """Return the operators by start, the longer of equals first."""
        return self.take(np.lexsort((-self.rows[:, _END], self.rows[:, _START])))

    def by_thread(self) -> dict[int, Operators]:
        """Return the operators of each thread, by its id."""
        threads = self.rows[:, THREAD]
        return {tid: self.take(np.flatnonzero(threads == tid)) for tid in np.unique(threads).tolist()}

    def extend(self, other: Operators) -> None:
        """Add the operators of another window."""
        rows = other.rows.copy()
        rows[:, _CALL] += len(self._calls)
        rows[rows[:, _NAMED] >= 0, _NAMED] += len(self._named)
        self.rows = np.concatenate([self.rows, rows]) if len(self.rows) else rows
        self._calls, self._named = [*self._calls, *other._calls], [*self._named, *other._named]

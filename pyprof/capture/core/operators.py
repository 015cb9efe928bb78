# SPDX-License-Identifier: Apache-2.0
"""Operators of a recording as columns of integers: a million of them as objects would take 350 MB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.model import Call, Ints

COLUMNS = 8  # start, end, thread, call, scope, sequence number, forward thread, name given later; -1: none
_START, _END, _THREAD, _CALL, _NAMED = 0, 1, 2, 3, 7
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
    """A sequence of operators, each made when it is asked for. `rows`: `COLUMNS` integers each; `calls` is what the
    column of calls numbers."""

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
        start, end, tid, number, scope, seq, forward, named = row
        call, module = (self._calls[number], "") if named < 0 else self._named[named]
        return Operator(
            start, end, tid, call, scope, seq if seq >= 0 else None, forward if forward >= 0 else None, module
        )

    @property
    def start(self) -> Ints:
        """The start of each."""
        return self.rows[:, _START]

    def places(self, op: str) -> Ints:
        """Where those of one name are."""
        mine = [number for number, call in enumerate(self._calls) if call.op == op]
        return np.flatnonzero(np.isin(self.rows[:, _CALL], mine))

    def name(self, place: int, call: Call, module: str) -> None:
        """Give one another call, and a module."""
        self.rows[place, _NAMED] = len(self._named)
        self._named.append((call, module))

    def take(self, chosen: Ints) -> Operators:
        """Some of them, by place or by mask."""
        out = Operators(self.rows[chosen], self._calls)
        out._named = self._named
        return out

    def distinct(self) -> tuple[list[tuple[Call, str]], Ints]:
        """Calls and modules that differ, and which of them each operator has."""
        named = self.rows[:, _NAMED]
        return [
            *((call, "") for call in self._calls), *self._named
        ], np.where(named >= 0, len(self._calls) + named, self.rows[:, _CALL])  # fmt: skip

    def counted(self) -> Iterator[tuple[Operator, int]]:
        """The first operator of each distinct call, and how many there are."""
        _, first, counts = np.unique(self.distinct()[1], return_index=True, return_counts=True)
        return zip(map(self.__getitem__, first.tolist()), counts.tolist())

    def in_order(self) -> Operators:
        """By start, the longer of equals first."""
        return self.take(np.lexsort((-self.rows[:, _END], self.rows[:, _START])))

    def by_thread(self) -> dict[int, Operators]:
        """Those of each thread, by its number."""
        threads = self.rows[:, _THREAD]
        return {tid: self.take(np.flatnonzero(threads == tid)) for tid in np.unique(threads).tolist()}

    def extend(self, more: Operators) -> None:
        """Add those of another window."""
        rows = more.rows.copy()
        rows[:, _CALL] += len(self._calls)
        rows[rows[:, _NAMED] >= 0, _NAMED] += len(self._named)
        self.rows = np.concatenate([self.rows, rows]) if len(self.rows) else rows
        self._calls, self._named = [*self._calls, *more._calls], [*self._named, *more._named]

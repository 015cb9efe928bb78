# SPDX-License-Identifier: Apache-2.0
"""Lengths of unions of intervals within given bounds, and partitions of time by priority.

A union answers with its length before a time. The length within [a, b) is the difference of two answers, so any
number of bounds costs one pass over the intervals.

>>> busy = Union(np.array([0, 2, 8]), np.array([4, 6, 9]))
>>> busy.before(np.array([3, 7, 100])).tolist()
[3, 6, 7]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from pyprof.core.model import Bools, Ints
from pyprof.store.files import Store

_AT_ONCE = 1 << 19  # intervals of a partition at a time: small arrays are made in memory that is used again


class Union:
    """Disjoint intervals in order, made from any intervals."""

    def __init__(self, start: Ints, end: Ints):
        # Of ten million intervals each array is 80 MB: none is kept longer than it is needed.
        if len(start) > 1 and (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
            del order
            reached = np.maximum.accumulate(end, out=end)
        else:
            reached = np.maximum.accumulate(end) if len(end) else end
        del end
        self.start: Ints = start
        self.end: Ints = reached
        if (start[1:] <= reached[:-1]).any():
            fresh = np.ones(len(start) + 1, bool)  # and that the last one ends
            np.greater(start[1:], reached[:-1], out=fresh[1:-1])
            self.start = start[fresh[:-1]]
            self.end = reached[fresh[1:]]

    @cached_property
    def _length(self) -> Ints:
        """Length before each interval, and of all."""
        length: Ints = np.zeros(len(self.start) + 1, np.int64)
        np.subtract(self.end, self.start, out=length[1:])
        np.cumsum(length, out=length)
        return length

    def __len__(self) -> int:
        return int(self._length[-1])

    def with_(self, other: Union) -> Union:
        """Return the union of both."""
        if not len(other.start):
            return self
        if not len(self.start):
            return other
        return Union(np.r_[self.start, other.start], np.r_[self.end, other.end])

    def both(self, other: Union) -> Union:
        """Return the time that both have.

        >>> both = Union(np.array([0, 8]), np.array([6, 9])).both(Union(np.array([2, 5]), np.array([4, 20])))
        >>> both.start.tolist(), both.end.tolist()
        ([2, 5, 8], [4, 6, 9])
        """
        time = np.concatenate([self.start, other.start, self.end, other.end])
        change = np.ones(len(time), np.int8)
        change[len(time) // 2 :] = -1
        order = np.argsort(time, kind="stable")
        time = time[order]
        inside = np.flatnonzero(np.cumsum(change[order])[:-1] == 2)
        return Union(time[inside], time[inside + 1])

    def cut(self, low: int, high: int) -> Union:
        """Return the part in [low, high)."""
        first, last = np.searchsorted(self.end, low, side="right"), np.searchsorted(self.start, high)
        return Union(np.maximum(self.start[first:last], low), np.minimum(self.end[first:last], high))

    def covers(self, start: Ints, end: Ints) -> Bools:
        """Return whether each interval lies within one of the union's.

        >>> Union(np.array([0, 8]), np.array([6, 9])).covers(np.array([1, 5]), np.array([6, 9])).tolist()
        [True, False]
        """
        if not len(self.start):
            return np.zeros(len(start), bool)
        place = np.searchsorted(self.start, start, side="right") - 1
        return np.asarray((place >= 0) & (end <= self.end[place]))

    def before(self, time: Ints) -> Ints:
        """Return the length before each time."""
        place = np.searchsorted(self.start, time, side="right")
        length: Ints = self._length[place]
        inside = np.flatnonzero(place > 0)
        length[inside] -= np.maximum(self.end[place[inside] - 1] - time[inside], 0)
        return length

    def within(self, start: Ints, end: Ints) -> Ints:
        """Return the length within each [start, end)."""
        return self.before(end) - self.before(start)


NOTHING = Union(np.empty(0, np.int64), np.empty(0, np.int64))


def pauses(store: Store, worker: int) -> Union:
    """Return the time in which a worker's program waited for its recording to be read."""
    columns = store.columns(
        f"select start_ns, end_ns from pause where worker = {worker} and waited = 1 order by start_ns"
    )
    return Union(columns["start_ns"].values, columns["end_ns"].values)


def partition(classes: Sequence[Union], start: Ints, end: Ints) -> list[Ints]:
    """Split each [start, end) by priority: a class gets the time that no class before it has; the last part is the
    remainder.

    >>> kernel, host = Union(np.array([2]), np.array([5])), Union(np.array([0]), np.array([4]))
    >>> [part.tolist() for part in partition([kernel, host], np.array([0]), np.array([9]))]
    [[3], [2], [4]]
    """
    size = sum(len(union.start) for union in classes)
    pieces = min(-(-size // _AT_ONCE), len(start))
    if pieces > 1 and (start[1:] >= end[:-1]).all():
        bounds = np.linspace(0, len(start), pieces + 1).astype(int).tolist()
        split = [
            _partition([union.cut(int(start[a]), int(end[b - 1])) for union in classes], start[a:b], end[a:b])
            for a, b in pairwise(bounds)
        ]
        return [np.concatenate(part) for part in zip(*split)]
    return _partition(classes, start, end)


def _partition(classes: Sequence[Union], start: Ints, end: Ints) -> list[Ints]:
    parts: list[Ints] = []
    covered, assigned = Union(start[:0], end[:0]), np.zeros_like(start)
    for union in classes:
        covered = covered.with_(union)
        length = covered.within(start, end)
        parts.append(length - assigned)
        assigned = length
    remainder: Ints = end - start - assigned
    return [*parts, remainder]

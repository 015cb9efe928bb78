# SPDX-License-Identifier: Apache-2.0
"""Sums of the values of events that run at once, at each moment, up to a limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.core.model import Ints

_AT_ONCE = 1 << 19  # events at a time


def levels(start: Ints, end: Ints, value: Ints, limit: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield consecutive pieces of the step function: n + 1 ascending times, and the n levels between them.

    >>> (piece,) = levels(np.array([0, 5]), np.array([10, 20]), np.array([3, 4]), 6)
    >>> [part.tolist() for part in piece]
    [[0, 5, 10, 20], [3, 6, 4]]
    """
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end, value = start[order], end[order], value[order]
    active = np.empty((3, 0), np.int64)  # of what began before and has not ended
    for first in range(0, len(start), _AT_ONCE):
        stop = first + _AT_ONCE
        parts = zip(active, (start[first:stop], end[first:stop], value[first:stop]))
        begin, finish, own = (np.concatenate(part) for part in parts)
        edge = int(start[stop]) if stop < len(start) else int(finish.max())
        time = np.r_[begin, np.minimum(finish, edge)]
        order = np.argsort(time, kind="stable")
        level = np.cumsum(np.r_[own, -own][order])[:-1]
        yield time[order], np.minimum(level, limit)
        rest = finish > edge
        active = np.array([np.full(rest.sum(), edge), finish[rest], own[rest]])


def integral(start: Ints, end: Ints, value: Ints, limit: int, low: Ints, high: Ints) -> Ints:
    """Return the integral of the step function over each window [low, high).

    >>> kernels = np.array([0, 5]), np.array([10, 20]), np.array([3, 4])
    >>> integral(*kernels, 6, np.array([0, 8, 30]), np.array([20, 12, 40])).tolist()
    [85, 20, 0]
    """
    total = np.zeros(len(low), np.int64)
    for time, level in levels(start, end, value, limit):
        sums = np.r_[0, np.cumsum(level * np.diff(time))]

        def before(moment: Ints, time: Ints = time, level: Ints = level, sums: Ints = sums) -> Ints:
            inside = np.clip(moment, time[0], time[-1])
            place = np.searchsorted(time, inside, side="right") - 1
            rest: Ints = np.r_[level, 0][place] * (inside - time[place])
            return sums[place] + rest

        total += np.maximum(before(high) - before(low), 0)
    return total

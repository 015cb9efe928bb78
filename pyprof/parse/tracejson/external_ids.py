# SPDX-License-Identifier: Apache-2.0
"""Links by External ids, for traces in which nothing has a correlation: of an older recorder of ROCm, or made or cut by
tools. A call and its kernel have the same id; where an operator's is on all its calls and kernels, they are paired in
their order."""

from __future__ import annotations

import numpy as np

from pyprof.core import intervals
from pyprof.core.model import Bools, Column, Ints


def pair(calls: Column, works: Bools, events: Column) -> tuple[Column, Column]:
    """Return a number per call and per device event, equal for a call and what it started: of each id, the events in
    order belong to its calls that start work (`works`) in order, and more events than calls to the last.

    >>> [column.values.tolist() for column in pair(
    ...     Column(np.array([5, 5, 8])), np.array([True, True, True]), Column(np.array([5, 8, 5, 5, 9])))]
    [[0, 1, 2], [0, 2, 1, 1, 0]]
    """
    rows = np.flatnonzero(calls.mask() & works)
    order = rows[np.argsort(calls.values[rows], kind="stable")]
    ids = calls.values[order]
    first, end = (np.searchsorted(ids, events.values, side=side) for side in ("left", "right"))
    there = (end > first) & events.mask()
    turn = intervals.turns(np.where(there, first, -1))
    number = np.r_[order, 0][np.where(there, np.minimum(first + turn, end - 1), len(order))]
    return Column(np.arange(len(works)), calls.mask() & works), Column(number, there)


def operators(ids: Column, events: Column, start: Ints, event_start: Ints) -> Ints:
    """Return the operator of each device event with its id, -1 for none: of traces without calls. None at all if one of
    them would begin before its operator: then both are numbered separately."""
    rows = np.flatnonzero(ids.mask())
    order = rows[np.lexsort((-start[rows], ids.values[rows]))]
    distinct, place = np.unique(ids.values[order], return_index=True)
    out = np.full(len(events.values), -1, np.int32)
    if not len(distinct):
        return out
    index = np.minimum(np.searchsorted(distinct, events.values), len(distinct) - 1)
    there = events.mask() & (distinct[index] == events.values)
    out[there] = order[place[index[there]]]
    return np.full(len(out), -1, np.int32) if (event_start[there] < start[out[there]]).any() else out

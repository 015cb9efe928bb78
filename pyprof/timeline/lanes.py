# SPDX-License-Identifier: Apache-2.0
"""Lanes of events: by nesting depth, or the first that is free."""

from __future__ import annotations

import heapq

import numpy as np

from pyprof.core.intervals import Nesting, clip, nesting_order
from pyprof.core.model import Ints


def by_depth(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the order of nested events by lane, then start; and, in that order, the lane and the end of each. An event
    that outlives the one around it is cut there.

    >>> by_depth(np.array([0, 1, 9]), np.array([8, 12, 10]))
    (array([0, 2, 1]), array([0, 0, 1]), array([ 8, 10,  8]))
    """
    order = nesting_order(start, end, lambda tied: -tied)
    begin, stop = start[order], end[order]
    try:
        nesting = Nesting(begin, stop)
    except ValueError:
        stop, _ = clip(begin, stop)
        nesting = Nesting(begin, stop)
    place = np.concatenate(nesting.levels) if nesting.levels else np.empty(0, np.int64)
    return order[place], nesting.depth[place].astype(np.int64), stop[place]


def first_free(start: Ints, end: Ints) -> Ints:
    """Return the lane of each event: the first in which the one before has ended. Events are in the order of their
    starts.

    >>> first_free(np.array([0, 1, 2, 9]), np.array([5, 2, 4, 9])).tolist()
    [0, 1, 1, 0]
    """
    lane = np.zeros(len(start), np.int64)
    reached = np.maximum.accumulate(end) if len(end) else end
    alone = np.concatenate([[True], start[1:] >= reached[:-1]])[: len(start)]
    crowded = ~alone
    crowded[:-1] |= ~alone[1:]
    free: list[int] = []  # lanes in which nothing runs
    busy: list[tuple[int, int]] = []  # ends and lanes of what runs
    lanes = 0
    for place in np.flatnonzero(crowded).tolist():
        begin = int(start[place])
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            number = heapq.heappop(free)
        else:
            number, lanes = lanes, lanes + 1
        lane[place] = number
        heapq.heappush(busy, (int(end[place]), number))
    return lane

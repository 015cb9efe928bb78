# SPDX-License-Identifier: Apache-2.0
"""Thinning out curves without losing a peak."""

from __future__ import annotations

import numpy as np

from pyprof.model import Ints


def thinned(values: Ints, points: int) -> Ints:
    """Places to keep, about `points`: the first and last, and of each stretch its smallest and its largest.

    >>> thinned(np.array([1, 5, 2, 9, 0, 3, 3, 4]), 4).tolist()
    [0, 3, 4, 7]
    """
    size = len(values)
    if size <= points:
        return np.arange(size)
    stretches = max(points // 2, 1)
    edges = np.linspace(0, size, stretches + 1).astype(np.int64)[:-1]
    low, high = _places(values, edges, np.minimum), _places(values, edges, np.maximum)
    kept: Ints = np.unique(np.r_[0, low, high, size - 1])
    return kept


def _places(values: Ints, edges: Ints, extreme: np.ufunc) -> Ints:
    """Where each stretch has its extreme first."""
    best = extreme.reduceat(values, edges)
    stretch = np.searchsorted(edges, np.arange(len(values)), side="right") - 1
    hits = np.flatnonzero(values == best[stretch])
    return hits[np.unique(stretch[hits], return_index=True)[1]]

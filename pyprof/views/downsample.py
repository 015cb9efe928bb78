# SPDX-License-Identifier: Apache-2.0
"""Downsampling of curves that keeps peaks."""

from __future__ import annotations

import numpy as np

from pyprof.core.model import Ints


def downsample(values: Ints, points: int) -> Ints:
    """Return the indices of about `points` values to keep: the first and last, and the smallest and largest of each
    stretch.

    >>> downsample(np.array([1, 5, 2, 9, 0, 3, 3, 4]), 4).tolist()
    [0, 3, 4, 7]
    """
    size = len(values)
    if size <= points:
        return np.arange(size)
    stretches = max(points // 2, 1)
    edges = np.linspace(0, size, stretches + 1).astype(np.int64)[:-1]
    low, high = _extremes(values, edges, np.minimum), _extremes(values, edges, np.maximum)
    indices: Ints = np.unique(np.r_[0, low, high, size - 1])
    return indices


def _extremes(values: Ints, edges: Ints, extreme: np.ufunc) -> Ints:
    """Return the index of the first extreme value of each stretch."""
    best = extreme.reduceat(values, edges)
    stretch = np.searchsorted(edges, np.arange(len(values)), side="right") - 1
    hits = np.flatnonzero(values == best[stretch])
    return hits[np.unique(stretch[hits], return_index=True)[1]]

# SPDX-License-Identifier: Apache-2.0
"""The steady part of a run: the longest stretch of iterations of about equal length.

First iterations allocate, choose algorithms and compile, and some write a checkpoint, so sums over them say little
about a step. "About equal" is a standard deviation of at most a twentieth of the mean.

>>> steady(np.array([900, 100, 101, 99, 100, 300]))
(1, 4)
"""

from __future__ import annotations

import numpy as np

from pyprof.model import Ints

SPREAD = 0.05
_MIN_ITERATIONS = 3  # iterations of a steady stretch


def spread(lengths: Ints) -> float | None:
    """Return the coefficient of variation: standard deviation (of the population) divided by the mean; None for no
    lengths.

    >>> spread(np.array([1, 3])), spread(np.array([], int))
    (0.5, None)
    """
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return float(lengths.std()) / mean if mean > 0 else None


def steady(lengths: Ints, most: float = SPREAD) -> tuple[int, int] | None:
    """Return first and last of the longest stretch whose spread is at most `most`, on a tie the steadiest; None without
    one.

    Stretches of up to 50 iterations are exact, longer ones to 2 % of their number.
    """
    size = len(lengths)
    values = lengths - (
        float(lengths.mean()) if size else 0.0
    )  # small numbers keep their digits when squared
    mean = float(lengths.mean()) if size else 0.0
    sums, squares = np.r_[0.0, np.cumsum(values)], np.r_[0.0, np.cumsum(values * values)]
    width = size
    while width >= _MIN_ITERATIONS:
        average = (sums[width:] - sums[:-width]) / width
        variance = np.maximum((squares[width:] - squares[:-width]) / width - average**2, 0.0)
        level = average + mean
        ratio = np.where(level > 0, np.sqrt(variance) / np.where(level > 0, level, 1.0), np.inf)
        best = int(ratio.argmin())
        if ratio[best] <= most:
            return best, best + width - 1
        width = min(width - 1, int(width * 0.98))
    return None

# SPDX-License-Identifier: Apache-2.0
"""The steady part of a run: the longest stretch of iterations that are about equally long.

First iterations allocate, choose algorithms and compile, some write a checkpoint: sums over them say little about a
step. "About equally long" is a standard deviation of at most a twentieth of the mean.

>>> steady(np.array([900, 100, 101, 99, 100, 300]))
(1, 4)
"""

from __future__ import annotations

import numpy as np

from pyprof.model import Ints

SPREAD = 0.05
_LEAST = 3  # iterations of a steady stretch


def spread(lengths: Ints) -> float | None:
    """Coefficient of variation: standard deviation (of the population) divided by the mean; None of nothing.

    >>> spread(np.array([1, 3])), spread(np.array([], int))
    (0.5, None)
    """
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return float(lengths.std()) / mean if mean > 0 else None


def steady(lengths: Ints, most: float = SPREAD) -> tuple[int, int] | None:
    """First and last of the longest stretch whose spread is at most `most`, of equally long ones the steadiest; None if
    there is none.

    Stretches of up to 50 iterations are found exactly, longer ones to 2 % of their number.
    """
    size = len(lengths)
    values = lengths - (
        float(lengths.mean()) if size else 0.0
    )  # small numbers keep their digits when squared
    mean = float(lengths.mean()) if size else 0.0
    one, two = np.r_[0.0, np.cumsum(values)], np.r_[0.0, np.cumsum(values * values)]
    width = size
    while width >= _LEAST:
        average = (one[width:] - one[:-width]) / width
        variance = np.maximum((two[width:] - two[:-width]) / width - average**2, 0.0)
        level = average + mean
        ratio = np.where(level > 0, np.sqrt(variance) / np.where(level > 0, level, 1.0), np.inf)
        best = int(ratio.argmin())
        if ratio[best] <= most:
            return best, best + width - 1
        width = min(width - 1, int(width * 0.98))
    return None

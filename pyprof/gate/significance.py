# SPDX-License-Identifier: Apache-2.0
"""Significance of differences between two sets of iterations, for many figures at once.

A run is represented by the mean of the middle half of its iterations: a quarter of them, the slowest and the fastest
each, are left out. On a machine with other work, the slowest iterations say nothing about the program.

The test is a permutation test: if both runs were of the same program, it would not matter which iteration belongs to
which run. All divisions of the iterations into two sets of these sizes are tried, or DIVISIONS of them. For each
figure, a division has the statistic

    t = (mean of the other - mean of the base) / sqrt(error² + floor²)

where the error is that of the difference of two trimmed means (Yuen), and the floor, a part of the limit, keeps
figures with hardly any spread from deciding. The largest t over all figures is compared (the single-step method of
Westfall and Young): the chance of one or more false alarms among all figures together is at most ALPHA, however many
they are and however they depend on each other. Iterations are moved whole, so that dependence is kept. The test is
exact for few iterations too, for which a bootstrap is too sure of itself (docs/measurements.md).

Iterations in a row may be alike. If their correlation with the next one is significant, blocks of iterations take the
place of iterations: (1 + r) / (1 - r) of them are one, as in an autoregressive process of first order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import ceil, comb, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.model import Ints

Floats = NDArray[np.float64]

ALPHA = 0.025  # one-sided, as of an interval of 95 %
DIVISIONS = 2000
FLOOR = 0.25  # of the limit
SEED = 20_260
_AT_ONCE = 200
_LONG_ENOUGH = 20  # iterations, to speak of a correlation


class Differences(NamedTuple):
    """Of each figure: mean of the base and the other, the margin that the difference has to exceed to be significant
    among all figures together, and adjusted p."""

    base: Floats
    other: Floats
    margin: Floats
    p: Floats


def enough(base: int, other: int) -> bool:
    """Return whether so many iterations can differ significantly at all.

    >>> enough(4, 4), enough(3, 4)
    (True, False)
    """
    return base > 1 and other > 1 and comb(base + other, base) * ALPHA >= 1


def differences(base: Floats, other: Floats, limit: Floats, share: Floats) -> Differences:
    """Compare figures (columns) of iterations (rows). `limit`: in the units of each figure, plus `share` of its mean.
    """
    rows = np.vstack([base, other])
    middle = np.abs(np.median(rows, axis=0))  # of all iterations: the same in every division
    floor = FLOOR * (limit + share * middle) + 1e-9 * middle + 1e-9
    deltas, errors = [], []
    for member in _divisions(len(base), len(other)):
        means, variances = zip(*(_trimmed(rows[places]) for places in member))
        deltas.append(means[1] - means[0])
        errors.append(np.sqrt(variances[0] + variances[1] + floor**2))
    delta, error = np.vstack(deltas), np.vstack(errors)
    t = delta / error
    largest = t.max(axis=1)
    p = (largest[:, None] >= t[0] - 1e-9).mean(axis=0)
    critical = np.sort(largest)[::-1][int(ALPHA * len(largest))]
    return Differences(center(base), center(other), critical * error[0], p)


def center(values: Floats) -> Floats:
    """Return the means of the middle half of the rows.

    >>> center(np.array([[1.0], [2.0], [3.0], [90.0]])).tolist()
    [2.5]
    """
    return np.asarray(_trimmed(values[None])[0][0])


def _trimmed(values: Floats) -> tuple[Floats, Floats]:
    """Return the mean of the middle half of axis 1, and its variance."""
    ordered = np.sort(values, axis=1)
    n = ordered.shape[1]
    cut = n // 4
    left = n - 2 * cut
    mean = ordered[:, cut : n - cut].mean(axis=1)
    if left < 2:
        return mean, np.zeros_like(mean)
    # Winsorized: what is left out counts as the nearest value that is not.
    winsorized = np.clip(ordered, ordered[:, cut, None], ordered[:, n - cut - 1, None])
    return mean, winsorized.var(axis=1, ddof=1) * (n - 1) / (left * (left - 1))


def _divisions(base: int, other: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the iterations of the base and of the other in divisions, some hundred rows at a time; the recorded division
    comes first."""
    size = base + other
    if comb(size, other) <= DIVISIONS:
        places = np.array(list(combinations(range(size), base)))
        rest = np.array([np.setdiff1d(np.arange(size), row) for row in places])
        yield places, rest
        return
    order = np.random.default_rng(SEED).random((DIVISIONS - 1, size)).argsort(axis=1)
    order = np.vstack([np.arange(size), order])
    for first in range(0, DIVISIONS, _AT_ONCE):
        part = order[first : first + _AT_ONCE]
        yield part[:, :base], part[:, base:]


def block_length(lengths: Floats) -> int:
    """Return how many iterations in a row count as one.

    >>> block_length(np.array([1.0, 2.0] * 20)), block_length(np.repeat([1.0, 2.0, 1.5], 10))
    (1, 13)
    """
    n = len(lengths)
    values = lengths - lengths.mean()
    power = float(values @ values)
    if n < _LONG_ENOUGH or power == 0:
        return 1
    correlation = float(values[1:] @ values[:-1]) / power
    if correlation <= 2 / sqrt(n):
        return 1
    return min(ceil((1 + correlation) / (1 - correlation)), n) if correlation < 1 else n


def blocks(values: Floats, length: int) -> Floats:
    """Return means of `length` rows each; the first rows, which fill no block, are left out.

    >>> blocks(np.arange(5.0)[:, None], 2).ravel().tolist()
    [1.5, 3.5]
    """
    count = len(values) // length
    kept = values[len(values) - count * length :]
    return np.asarray(kept.reshape(count, length, -1).mean(axis=1))

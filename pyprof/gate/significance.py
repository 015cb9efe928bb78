# SPDX-License-Identifier: Apache-2.0
"""Significance of differences between two sets of iterations, for many figures at once.

A run is represented by the mean of its iterations, of which outliers count less: a value farther than OUTLIER standard
deviations from the median of its run, estimated from the median deviation, counts as one at that distance. On a
machine with other work, how slow the slowest iterations are says nothing about the program. The test does the same
with the iterations of both runs together, since it must not know which is whose.

The test is a permutation test: if both runs were of the same program, it would not matter which iteration belongs to
which run. All divisions of the iterations into two sets of these sizes are tried, or DIVISIONS of them. For each
figure, a division has the statistic

    t = (mean of the other - mean of the base) / sqrt(error² + floor²)

where the error is that of the difference of the means (variances may differ), and the floor, a part of the limit, keeps
figures with hardly any spread from deciding. The largest t over all figures is compared (the single-step method of
Westfall and Young): the chance of one or more false alarms among all figures together is at most ALPHA, however many
they are and however they depend on each other. Iterations are moved whole, so that dependence is kept. The test also
holds for few iterations, for which a bootstrap is too sure of itself (docs/measurements.md).

Iterations in a row may be alike. If their correlation with the next one is significant, blocks of iterations take the
place of iterations: (1 + r) / (1 - r) of them are one, as in an autoregressive process of first order.
"""

from __future__ import annotations

from itertools import combinations
from math import ceil, comb, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALPHA = 0.025  # one-sided, as of an interval of 95 %
DIVISIONS = 10_000
FLOOR = 0.1  # of the limit
SEED = 20_260
OUTLIER = 3.0
_OF_NORMAL = 1.4826  # standard deviations in a median deviation
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
    """Compare figures (columns) of iterations (rows). `limit`: in the unit of each figure, plus `share` of its mean."""
    size = len(base), len(other)
    rows = tamed(np.vstack([base, other]))  # together: the same values in every division
    middle = rows.mean(axis=0)  # of all iterations: the same in every division
    floor = FLOOR * (limit + share * np.abs(middle)) + 1e-9 * np.abs(middle) + 1e-9
    rows = rows - middle  # small numbers keep their digits when squared
    member = _divisions(*size)
    sums, squares = member @ rows, member @ rows**2

    def variance(sums: Floats, squares: Floats, n: int) -> Floats:
        """Return the variance of means."""
        return np.maximum(squares - sums**2 / n, 0.0) / (n - 1) / n

    rest, rest_squares = rows.sum(axis=0) - sums, (rows**2).sum(axis=0) - squares
    delta = sums / size[1] - rest / size[0]
    error = np.sqrt(variance(sums, squares, size[1]) + variance(rest, rest_squares, size[0]) + floor**2)
    t = delta / error
    largest = t.max(axis=1)
    p = (largest[:, None] >= t[0] - 1e-9).mean(axis=0)
    critical = np.sort(largest)[::-1][int(ALPHA * len(largest))]
    means = tamed(base).mean(axis=0), tamed(other).mean(axis=0)
    gap, margin = means[1] - means[0], critical * error[0]
    # The test has other outliers than each run, and so another difference than that of the means: where the two would
    # contradict each other, the margin is moved by what lies between them.
    margin = np.where((gap > margin) == (p <= ALPHA), margin, np.maximum(margin + gap - delta[0], 0.0))
    return Differences(*means, margin, p)


def tamed(values: Floats) -> Floats:
    """Return the values with outliers at the largest distance from the median that counts.

    >>> tamed(np.array([[10.0], [11.0], [12.0], [13.0], [99.0]])).ravel().round(1).tolist()
    [10.0, 11.0, 12.0, 13.0, 16.4]
    """
    middle = np.median(values, axis=0)
    reach = OUTLIER * _OF_NORMAL * np.median(np.abs(values - middle), axis=0)
    reach[reach == 0] = np.inf  # more than half of the values are the same: nothing to estimate a spread from
    return np.asarray(np.clip(values, middle - reach, middle + reach))


def _divisions(base: int, other: int) -> Floats:
    """Return which iterations belong to the other run, one division per row, the recorded one first."""
    size = base + other
    if comb(size, other) <= DIVISIONS:
        places = np.array(list(combinations(range(size), other)))
        out = np.zeros((len(places), size))
        np.put_along_axis(out, places, 1.0, axis=1)
        return out[::-1]  # the last places are the other run's own
    order = np.random.default_rng(SEED).random((DIVISIONS - 1, size)).argsort(axis=1)
    return np.vstack([np.arange(size) >= base, order >= base]).astype(float)


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
    full = values[len(values) - count * length :]
    return np.asarray(full.reshape(count, length, -1).mean(axis=1))

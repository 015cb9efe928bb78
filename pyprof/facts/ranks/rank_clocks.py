# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks against each other, from the ends of collectives.

The kernels of a collective in which every rank needs data of every other end together, whichever clock says when. So
the differences between the ends on two ranks are the offset of their clocks, with a scatter: of the last hops of the
data, and of the recorder's resolution. The offset is a line over time, its slope the drift. It is fitted by Theil and
Sen's method, the median of the slopes between all pairs of points, which single late ends do not move.

Ranks are compared with a reference, the worker with the most such collectives. Ranks that share none with it are
compared with those that do, in as many rounds as it takes. What is the same at every end, such as a rank that always
gets its data last, looks like an offset and is part of it.

>>> time = np.arange(10) * 1_000_000
>>> line = fit(time, 500 + time // 100_000)
>>> round(line.offset(0)), round(line.drift * 1e6, 3), line.error
(500, 10.0, 0.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyprof.core.model import Ints
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.store.files import Store

_LEAST = 3  # collectives for an error
_LEAST_FOR_DRIFT = 8
_POINTS = 256  # of a fit: of more, the medians of this many stretches; the pairs are its square
_SIGMAS = 3.0  # standard errors within which the truth is expected
_CERTAIN = 5.0  # standard errors that a drift must exceed: of a few points the error itself is little known
_MAD = 1.4826  # standard deviation of a normal distribution by its median absolute deviation
_MEDIAN = 1.2533  # standard error of the median by that of the mean


class Line(NamedTuple):
    """Offset of a clock in ns: `middle` + `drift` * (time - `at`). `error`: three standard errors of the offset at the
    ends of the fitted time, None from fewer than three points; `scatter`: median distance of the points; `points`:
    their number."""

    middle: float
    drift: float
    at: float
    error: float | None
    scatter: float | None
    points: int

    def offset(self, time: float) -> float:
        """Return what the reference's clock shows more than this one, at a time of this one."""
        return self.middle + self.drift * (time - self.at)


class Clock(NamedTuple):
    """The clock of a worker. `line`: None if it shares no collective with the reference."""

    worker: int
    line: Line | None

    def forward(self, time: float) -> float:
        """Return the reference's time of a time of the worker."""
        return time if self.line is None else time + self.line.offset(time)

    def back(self, time: float) -> float:
        """Return the worker's time of a time of the reference."""
        if self.line is None:
            return time
        middle, drift, at = self.line[:3]
        return (time - middle + drift * at) / (1 + drift)


def clocks(store: Store) -> dict[int, Clock]:
    """Return the clock of each worker."""
    return store.cached("clocks", lambda: _clocks(store), small=True)


def _clocks(store: Store) -> dict[int, Clock]:
    workers = [number for (number,) in store.rows("select id from worker order by id")]
    number, worker, time = _last_of(*_ends(store))
    known: dict[int, Line] = {}
    if len(number):
        reference = int(np.bincount(worker).argmax())
        known[reference] = Line(0.0, 0.0, 0.0, 0.0, 0.0, int((worker == reference).sum()))
        _compare(number, worker, time, known)
    return {one: Clock(one, known.get(one)) for one in workers}


def _ends(store: Store) -> tuple[Ints, Ints, Ints]:
    """Return the number, worker and end of each kernel of the collectives. They count by their ends on the first worker
    that takes part."""
    rows = collectives(store)
    rows = rows[(rows["instance"] >= 0) & rows["name"].isin(MUTUAL)]
    rows = rows.assign(end=rows["start_ns"] + rows["duration_ns"]).sort_values(["worker", "end"], kind="stable")
    first = rows.drop_duplicates("instance").sort_values(["end", "instance"], kind="stable")
    turn = pd.Series(np.arange(len(first)), first["instance"].to_numpy())
    columns = rows["instance"].map(turn), rows["worker"], rows["end"]
    number, worker, end = (column.to_numpy(np.int64) for column in columns)
    return number, worker, end


def _compare(number: Ints, worker: Ints, time: Ints, known: dict[int, Line]) -> None:
    """Add the clocks of all workers that have collectives in common with the known ones, directly or not."""
    shared = np.full(int(number.max()) + 1, np.nan)  # the reference's time of each collective
    fresh = worker == next(iter(known))
    shared[number[fresh]] = time[fresh]
    while True:
        common = ~np.isnan(shared[number])
        left = ~np.isin(worker, list(known))
        candidates, count = np.unique(worker[common & left], return_counts=True)
        if not len(candidates):
            return
        # Those with enough points first: the others may have more in common with them.
        enough = candidates[count >= _LEAST]
        for one in (enough if len(enough) else candidates).tolist():
            points = common & (worker == one)
            known[one] = line = fit(time[points], shared[number[points]] - time[points])
            own = worker == one
            new = own & np.isnan(shared[number])
            shared[number[new]] = time[new] + line.middle + line.drift * (time[new] - line.at)


def _last_of(number: Ints, worker: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    """Return one time per collective and worker: of several devices the last."""
    order = np.lexsort((-time, worker, number))
    number, worker, time = number[order], worker[order], time[order]
    first = np.r_[True, (number[1:] != number[:-1]) | (worker[1:] != worker[:-1])][: len(number)]
    return number[first], worker[first], time[first]


def fit(time: Ints, difference: Ints) -> Line:
    """Return the line of differences of two clocks over time, both in ns. A drift needs eight points, and to be larger
    than five standard errors; else it is 0. The error covers a drift that is too small to be seen."""
    x, y = np.asarray(time, float), np.asarray(difference, float)
    at, points = float(x.mean()), len(x)
    x = x - at
    slope, slope_error = 0.0, 0.0
    if points >= _LEAST and np.ptp(x) > 0:
        slope = _slope(x, y)
        slope_error = _deviation(y - slope * x) / float(np.sqrt(np.sum(x * x)))
        if points < _LEAST_FOR_DRIFT or abs(slope) <= _CERTAIN * slope_error:
            slope = 0.0
    rest = y - slope * x
    middle = float(np.median(rest))
    if points < _LEAST:
        return Line(middle, 0.0, at, None, None, points)
    scatter = float(np.median(np.abs(rest - middle)))
    error = _SIGMAS * (_MEDIAN * _MAD * scatter / np.sqrt(points) + slope_error * np.ptp(x) / 2)
    return Line(middle, slope, at, float(error), scatter, points)


def _deviation(values: np.ndarray) -> float:
    return float(_MAD * np.median(np.abs(values - np.median(values))))


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the median of the slopes between all pairs of points."""
    if len(x) > _POINTS:
        order = np.argsort(x, kind="stable")
        parts = [part for part in np.array_split(order, _POINTS) if len(part)]
        x = np.array([np.median(x[part]) for part in parts])
        y = np.array([np.median(y[part]) for part in parts])
    one, other = np.triu_indices(len(x), 1)
    apart = x[other] != x[one]
    one, other = one[apart], other[apart]
    return float(np.median((y[other] - y[one]) / (x[other] - x[one])))


def common(clocks: Mapping[int, Clock], worker: Ints, time: Ints) -> npt.NDArray[np.float64]:
    """Return times of workers by the clock of the reference, NaN where a worker's clock is not known.

    >>> known = {0: Clock(0, Line(0.0, 0.0, 0.0, 0.0, 0.0, 3)), 1: Clock(1, Line(-5.0, 0.5, 100.0, 1.0, 1.0, 3))}
    >>> common(known, np.array([0, 1]), np.array([110, 110])).tolist()
    [110.0, 110.0]
    """
    lines = np.full((max(clocks, default=0) + 1, 3), np.nan)
    for clock in clocks.values():
        if clock.line is not None:
            lines[clock.worker] = clock.line[:3]
    middle, drift, at = lines[worker].T
    out: npt.NDArray[np.float64] = time + middle + drift * (time - at)
    return out


def between(clocks: Mapping[int, Clock], worker: int, other: int, time: Ints) -> Ints:
    """Return the times of a worker on the clock of another, in whole ns, in the same order."""
    if worker == other:
        return time
    reference = clocks[worker].forward(time.astype(float))  # type: ignore[arg-type]
    return np.asarray(np.rint(clocks[other].back(reference)), np.int64)

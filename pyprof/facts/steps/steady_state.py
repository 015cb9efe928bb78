# SPDX-License-Identifier: Apache-2.0
"""The steady steps of a run, of which means are taken, and why each other step is none.

First steps allocate, choose algorithms and compile, so sums over them say little about a step. Steady are consecutive
steps of about equal length: a standard deviation of at most a twentieth of the mean, or of the threshold of rule R02 if
those are less than half. A single step that takes more than twice as long as the median is not one of them, and does
not end them. The table `iteration` says it of each step.

>>> steady(np.array([900, 100, 101, 99, 100, 300]))
(1, 4)
"""

from __future__ import annotations

import sqlite3

import numpy as np

from pyprof.core.model import Bools, Ints

SPREAD = 0.05
MOST_SPREAD = 0.15
LONG = 2.0  # times the median
LEAST_STEADY = 3  # steps
WARM_UP, INCOMPLETE, PAUSED, LONG_STEP, UNEVEN = "warm-up", "incomplete", "paused", "long", "uneven"


def write_steady(connection: sqlite3.Connection, iteration_set: int) -> None:
    """Set the columns `steady` and `why` of the iterations of a set: those of one number are so on all workers."""
    rows = connection.execute(
        """select number, max(end_ns - start_ns - paused_ns), max(partial = 1 or coalesce(cut_off, 0) = 1),
                  max(partial = 1 and paused_ns > 0)
           from iteration where iteration_set = ? group by number order by number""",
        (iteration_set,),
    ).fetchall()
    number, length, cut, paused = np.array(rows, np.int64).reshape(-1, 4).T
    why = reasons(length, cut == 1)
    why = [PAUSED if text == INCOMPLETE and stopped else text for text, stopped in zip(why, paused.tolist())]
    connection.executemany(
        "update iteration set steady = ?, why = ? where iteration_set = ? and number = ?",
        [(text is None, text, iteration_set, n) for text, n in zip(why, number.tolist())],
    )


def reasons(length: Ints, incomplete: Bools) -> list[str | None]:
    """Return why each step is not steady; None of those that are. If all are incomplete, all are used.

    >>> reasons(np.array([900, 100, 101, 99, 100, 300, 40]), np.arange(7) == 6)
    ['warm-up', None, None, None, None, 'long', 'incomplete']
    >>> reasons(np.array([100, 100, 900, 100, 130, 130]), np.zeros(6, bool))
    [None, None, 'long', None, 'uneven', 'uneven']
    >>> reasons(np.array([900, 100]), np.array([True, True]))
    [None, None]
    """
    whole = np.flatnonzero(~incomplete)
    out: list[str | None] = [INCOMPLETE if flag else None for flag in incomplete.tolist()]
    if not len(whole):
        return [None] * len(out)
    middle = np.sort(length[whole])[(len(whole) - 1) // 2]
    long = length[whole] > LONG * middle
    first = int(np.argmin(long))  # those before it are warm-up
    single = 4 * long[first:].sum() <= max(len(whole) - first, 4)
    long[first:] &= single
    if len(whole) < LEAST_STEADY:
        long[:] = False
    even = whole[~long]
    stretch = steady(length[even])
    if stretch is None or 2 * (stretch[1] - stretch[0] + 1) < len(even):
        stretch = steady(length[even], MOST_SPREAD)
    first, last = (0, len(even) - 1) if stretch is None else stretch
    begun = even[first]
    slower = first > 0 and length[even[:first]].mean() > (1 + SPREAD) * length[even[first : last + 1]].mean()
    for i in even[:first].tolist():
        out[i] = WARM_UP if slower else UNEVEN
    for i in even[last + 1 :].tolist():
        out[i] = UNEVEN
    for i in whole[long].tolist():
        out[i] = WARM_UP if i < begun else LONG_STEP
    return out


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
    values = lengths - (float(lengths.mean()) if size else 0.0)  # small numbers keep their digits when squared
    mean = float(lengths.mean()) if size else 0.0
    sums, squares = np.r_[0.0, np.cumsum(values)], np.r_[0.0, np.cumsum(values * values)]
    width = size
    while width >= LEAST_STEADY:
        average = (sums[width:] - sums[:-width]) / width
        variance = np.maximum((squares[width:] - squares[:-width]) / width - average**2, 0.0)
        level = average + mean
        ratio = np.where(level > 0, np.sqrt(variance) / np.where(level > 0, level, 1.0), np.inf)
        best = int(ratio.argmin())
        if ratio[best] <= most:
            return best, best + width - 1
        width = min(width - 1, int(width * 0.98))
    return None

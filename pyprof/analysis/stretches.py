# SPDX-License-Identifier: Apache-2.0
"""Rows of several tables in consecutive stretches of time, so that few of each are in memory at once.

A stretch ends where the first of the tables has been read to, so that it has at most the rows of two parts of each.
What is open at its end is the business of who uses it.

>>> rows = [{"start": np.array([1, 4])}, {"start": np.array([6])}]
>>> calls = [{"start": np.array([2, 5, 9])}]
>>> for end, (some, others) in stretches([iter(rows), iter(calls)]):
...     print(end if end < EVER else "ever", some["start"].tolist(), others["start"].tolist())
4 [1] [2]
6 [4] [5]
ever [6] [9]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pyprof.analysis.timeline import Activity
from pyprof.model import Column, Ints

Part = dict[str, Any]  # arrays
EVER = 1 << 61  # ns, beyond any recording


def parts(
    activity: Activity,
    table: str,
    names: Sequence[str],
    start: Callable[[dict[str, Column]], Ints] = lambda columns: columns["start_ns"].values,
) -> Iterator[tuple[dict[str, Column], Ints]]:
    """Yield columns of a worker's rows of a table and their times in ns, in the order of the ids, which is that of the
    times. Raises FormatError for rows in another order. `start`: returns the times."""
    last = -EVER
    for columns in activity.store.parts(table, names, *activity.ids(table)):
        time = start(columns)
        if len(time):
            if time[0] < last or (time[1:] < time[:-1]).any():
                raise activity.store.damaged(f"table {table} is not in the order of its times")
            last = int(time[-1])
        yield columns, time


def stretches(sources: Sequence[Iterator[Part]]) -> Iterator[tuple[int, list[Part]]]:
    """Yield the end of each stretch and the rows of each source that start in it. The last one ends at EVER.

    Each source yields columns by name; `start`, in ns, is in ascending order over all of its parts. It yields at least
    one part, which may be empty.
    """
    rows = [_Rows(source) for source in sources]
    while True:
        for one in rows:
            one.read()
        end = min((one.last for one in rows if not one.over), default=EVER)
        yield end, [one.before(end) for one in rows]
        if end == EVER:
            return


class _Rows:
    """Rows of a source that were read and are not used yet."""

    def __init__(self, source: Iterator[Part]):
        self._source, self._waiting, self.over = source, next(source), False

    @property
    def last(self) -> int:
        """The latest start, before which all rows are known."""
        return int(self._waiting["start"][-1])

    def read(self) -> None:
        """Read on until rows of two times are known, or all rows are."""
        while not self.over and (not len(self._waiting["start"]) or self._waiting["start"][0] == self.last):
            part = next(self._source, None)
            if part is None:
                self.over = True
            elif not len(self._waiting["start"]):
                self._waiting = part
            elif len(part["start"]):
                self._waiting = {name: np.r_[column, part[name]] for name, column in self._waiting.items()}

    def before(self, end: int) -> Part:
        """Take the rows that start before a time."""
        place = int(np.searchsorted(self._waiting["start"], end))
        out = {name: column[:place] for name, column in self._waiting.items()}
        self._waiting = {name: column[place:] for name, column in self._waiting.items()}
        return out

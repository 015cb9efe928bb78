# SPDX-License-Identifier: Apache-2.0
"""The host's work in windows of the recording's time, one after the other, so that few of its rows are in memory.

A window has what is open at its start, or begins in it. Windows may overlap; each start is at least that of the window
before. Of what overlaps without nesting, an interval is cut where the one around it ends: as long as the interval
lasts, that one is part of the window, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pyprof.analysis.host_pieces import Host, HostPieces, read_calls
from pyprof.analysis.host_work import HostWork, Part, Spans, by_thread, read_executions, read_ranges
from pyprof.analysis.timeline import Activity
from pyprof.intervals import groups
from pyprof.model import Ints
from pyprof.parse.paths import is_step
from pyprof.store import reads
from pyprof.store.kinds import PYTHON_FUNCTION

_EVER = 1 << 61  # ns, beyond any recording
_AT_ONCE = 1 << 20  # rows of a table that are read before those that are over are dropped


class HostWindows:
    """Windows of a worker's host."""

    def __init__(self, host: Host):
        self._host = host
        activity = host.activity
        self._executions = _Rows(read_executions(activity), _open_spans)
        self._ranges = _Rows(_ranges(activity), _open_ranges)
        self._calls = _Rows(read_calls(activity), _open_calls)
        self._tables = self._executions, self._ranges, self._calls

    def read(self, low: int, high: int) -> int:
        """Read on until all that begins until `high` is known; what is over at `low`, in ns, is no longer needed.
        Return how many rows were read."""
        return sum(table.read(low, high) for table in self._tables)

    def drop(self, low: int) -> None:
        """Drop what is over at a time."""
        for table in self._tables:
            table.drop(low)

    def pieces(self) -> HostPieces:
        """Return the pieces of stretches in the window that was read."""
        executions, ranges, calls = (table.rows() for table in self._tables)
        function = ranges["kind"] == PYTHON_FUNCTION
        columns = Spans(*(ranges[name] for name in Spans._fields))
        spans = Spans(*executions.values()), columns.take(~function), columns.take(function)
        return HostPieces(self._host, _Window(self._host, spans, self._executions.parts), calls)


class _Window(HostWork):
    """The work in a window: `spans` of operators, ranges and functions; `parts`: of `read_executions` that were
    read."""

    def __init__(self, host: Host, spans: tuple[Spans, Spans, Spans], parts: int):
        super().__init__(host.activity)
        self._host, self._spans, self._parts = host, spans, parts

    def executions_of_operators(self) -> Spans:
        return self._spans[0]

    def ranges(self) -> Spans:
        return self._spans[1]

    def functions(self) -> Spans:
        return self._spans[2]

    def following(self, thread: Ints, time: Ints) -> Ints:
        out = super().following(thread, time)
        later = np.flatnonzero(out < 0)
        for number, moments in groups(thread[later]):
            out[later[moments]] = self._host.first_operator(number, self._parts)
        return out


def _ranges(activity: Activity) -> Iterator[Part]:
    """Yield ranges and Python functions, without those of steps, which do not count."""
    steps = [number for number, text in reads.texts(activity.store).items() if is_step(text)]
    for part in read_ranges(activity):
        counted = (part["kind"] == PYTHON_FUNCTION) | ~np.isin(part["value"], steps)
        yield {name: column[counted] for name, column in part.items()}


class _Rows:
    """Rows of a table, by start, as far as they were read and not dropped. `parts`: how many were read."""

    def __init__(self, source: Iterator[Part], still: Callable[[Part, int], Ints]):
        """`still`: returns the places of the rows that are needed from a time on."""
        self._source, self._still = source, still
        self._read, self.parts, self._last, self._kept = [next(source)], 1, -_EVER, 0

    @property
    def count(self) -> int:
        return sum(len(part["start"]) for part in self._read)

    def read(self, low: int, high: int) -> int:
        read = 0
        while self._last <= high:
            part = next(self._source, None)
            if part is None:
                self._last = _EVER
                break
            self.parts += 1
            read += len(part["start"])
            if len(part["start"]):
                self._read.append(part)
                self._last = int(part["start"][-1])
            if self.count > max(_AT_ONCE, 2 * self._kept):
                self.drop(low)
        return read

    def rows(self) -> Part:
        if len(self._read) > 1:
            self._read = [
                {name: np.concatenate([part[name] for part in self._read]) for name in self._read[0]}
            ]
        return self._read[0]

    def drop(self, low: int) -> None:
        rows = self.rows()
        place = self._still(rows, low)
        if len(place) < len(rows["start"]):
            self._read = [{name: column[place] for name, column in rows.items()}]
        self._kept = len(place)


def still_open(spans: Spans, time: int) -> Ints:
    """Return the places of spans, by start, that end after a time, and of those that cut them before it: spans around
    them that end earlier."""
    end = spans.start + spans.length
    needed = end > time
    for _, rows in groups(spans.thread):
        begun = rows[: int(np.searchsorted(spans.start[rows], time, side="right"))]
        still = np.flatnonzero(needed[begun]).tolist()
        if any(_overlaps(spans.start[begun], end[begun], place, time) for place in still):
            (one,) = by_thread(spans.take(begun)).values()
            above: Ints = np.flatnonzero((one.end > time) & (one.cut <= time))
            while len(above):
                above = one.nesting.parent[above]
                above = above[above >= 0]
                needed[begun[one.place[above]]] = True
    return np.flatnonzero(needed)


def _overlaps(start: Ints, end: Ints, place: int, time: int) -> bool:
    """Return whether an interval began in one that ended before a time, which it outlives."""
    before = end[: np.searchsorted(start, start[place], side="right")]
    return bool(((before > start[place]) & (before <= time)).any())


def _open_spans(rows: Part, low: int) -> Ints:
    return still_open(Spans(*(rows[name] for name in Spans._fields)), low)


def _open_ranges(rows: Part, low: int) -> Ints:
    """Return what is needed of ranges and of functions, which nest apart from each other."""
    function = rows["kind"] == PYTHON_FUNCTION
    places = []
    for mask in (function, ~function):
        own = np.flatnonzero(mask)
        places.append(own[_open_spans({name: column[own] for name, column in rows.items()}, low)])
    return np.sort(np.concatenate(places))


def _open_calls(calls: Part, low: int) -> Ints:
    """Return what is open, and of each thread the call that began last before: its name stands for those around it."""
    needed = calls["start"] + calls["length"] > low
    begun = np.flatnonzero(calls["start"] <= low)
    for _, rows in groups(calls["thread"][begun]):
        needed[begun[rows[-1]]] = True
    return np.flatnonzero(needed)

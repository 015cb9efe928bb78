# SPDX-License-Identifier: Apache-2.0
"""The work of a worker's threads in parts of the recording, so that few of its rows are in memory.

`Pieces` reads consecutive pieces of the recording; of a stretch that extends over several, the times in each place are
added up.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.analysis.host_work import SHORTEST, HostWork, Intervals, Spans, by_thread
from pyprof.analysis.stretches import Part, parts
from pyprof.analysis.timeline import Activity
from pyprof.intervals import groups
from pyprof.model import PUSH_POP, Ints
from pyprof.store.blocks import SHIFT
from pyprof.store.ids import first_id
from pyprof.store.kinds import OPERATOR_EVENT, PYTHON_FUNCTION


class Piece(HostWork):
    """The work in a piece of the recording, and what began before it and is still open.

    `opened`: operators, ranges and functions that are open, in the order of their nesting, then those that begin in the
    piece; `end`: of the piece, in ns.
    """

    def __init__(self, activity: Activity, spans: tuple[Spans, Spans, Spans], end: int):
        super().__init__(activity)
        self._spans, self._last = spans, end

    def executions_of_operators(self) -> Spans:
        return self._spans[0]

    def ranges(self) -> Spans:
        return self._spans[1]

    def functions(self) -> Spans:
        return self._spans[2]

    def open(self) -> tuple[Spans, Spans, Spans]:
        """Return what is open at the end of the piece."""
        kinds = (self._operators, self._ranges, self._function_times)
        return tuple(_open(kind, self._last) for kind in kinds)  # type: ignore[return-value]


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


def _open(threads: dict[int, Intervals], time: int) -> Spans:
    out: list[Spans] = []
    for number, one in threads.items():
        place = np.flatnonzero(one.cut > time)
        start, length = one.start[place], (one.end - one.start)[place]
        out.append(Spans(np.full(len(place), number, np.int64), one.value[place], start, length))
    return _joined(out)


def _joined(spans: list[Spans]) -> Spans:
    return (
        Spans(*(np.concatenate([np.empty(0, np.int64), *columns]) for columns in zip(*spans)))
        if spans
        else NO_SPANS
    )


NO_SPANS = Spans(*(np.empty(0, np.int64) for _ in Spans._fields))


class Pieces:
    """The work of a worker's threads in consecutive pieces of the recording."""

    def __init__(self, activity: Activity):
        self._activity = activity
        self._open = NO_SPANS, NO_SPANS, NO_SPANS

    def sources(self) -> list[Iterator[Part]]:
        """Return what `stretches` needs to read."""
        return [read_executions(self._activity), read_ranges(self._activity)]

    def next(self, executions: Part, ranges: Part, end: int) -> Piece:
        """Return the next piece, of the rows of both sources that start before its end, in ns."""
        function = ranges["kind"] == PYTHON_FUNCTION
        columns = Spans(*(ranges[name] for name in Spans._fields))
        begun = (
            Spans(*(executions[name] for name in Spans._fields)),
            columns.take(~function),
            columns.take(function),
        )
        spans = tuple(_joined([*pair]) for pair in zip(self._open, begun))
        piece = Piece(self._activity, spans, end)  # type: ignore[arg-type]
        self._open = piece.open()
        return piece


def read_executions(activity: Activity) -> Iterator[Part]:
    """Yield the executions of operators in parts, by start: the columns of `Spans`."""
    counted = activity.store.rows("select id from operator where unassociated = 0")
    names = ("thread", "operator", "start_ns", "end_ns")
    yield dict.fromkeys(Spans._fields, np.empty(0, np.int64))
    for columns, start in parts(activity, "op", names if _all_timed(activity) else (*names, "cpu_ns")):
        mask = np.isin(columns["operator"].values, [number for (number,) in counted])
        if "cpu_ns" in columns:
            mask &= columns["cpu_ns"].mask()
        thread, operator, _, end = (columns[name].values for name in names)
        yield Spans(thread, operator, start, end - start).take(mask)._asdict()


def _all_timed(activity: Activity) -> bool:
    """Return whether the time on the CPU is known of all executions of operators. Reading it from the table takes ten
    times as long as all else."""
    low, high = (first_id(worker) >> SHIFT for worker in (activity.worker, activity.worker + 1))
    return not activity.store.rows(
        """select 1 from op_block b join operator o on o.id = b.operator
           where b.block >= ? and b.block < ? and b.calls > b.timed and o.unassociated = 0 limit 1""",
        (low, high),
    )


def read_ranges(activity: Activity) -> Iterator[Part]:
    """Yield ranges and Python functions in parts, by start: the columns of `Spans`, and `kind`."""
    yield dict.fromkeys((*Spans._fields, "kind"), np.empty(0, np.int64))
    for columns, start in parts(activity, "range", ("thread", "text", "start_ns", "duration_ns", "kind")):
        kind, length = columns["kind"].values, columns["duration_ns"].values
        function = (kind == PYTHON_FUNCTION) & (length >= SHORTEST)
        mask = (kind == PUSH_POP) | (kind == OPERATOR_EVENT) | function
        spans = Spans(columns["thread"].values, columns["text"].values, start, length)
        yield {**spans.take(mask)._asdict(), "kind": kind[mask]}

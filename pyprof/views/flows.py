# SPDX-License-Identifier: Apache-2.0
"""Arrows of the timeline: from a call to what it launched, from a forward execution to its backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyprof.core.model import MARK, START_END
from pyprof.store.files import Store
from pyprof.store.ids import worker_of
from pyprof.store.kinds import NESTS, PYTHON_FUNCTION
from pyprof.store.moments import first_from
from pyprof.views.models import Flow, FlowEnd, Flows
from pyprof.views.problems import Trouble

MOST = 2000
_SEARCHED = 4000  # rows after a moment that may have its thread


def flows(store: Store, of: str) -> Flows:
    """Return the arrows of `launch:ID`, `call:ID` or `range:ID`. Raises Trouble."""
    kind, _, text = of.partition(":")
    if kind not in _ARROWS or not text.isdecimal() or len(text) > 17:
        raise Trouble("parameter", f"of: {of[:60]!r} is not launch:ID, call:ID or range:ID.", "of")
    out = list(_ARROWS[kind](store, int(text)))
    return Flows(total=len(out), flows=out[:MOST])


def _of_launch(store: Store, number: int) -> Iterator[Flow]:
    rows = store.rows("select api, op from event where id = ?", (number,))
    if not rows:
        raise Trouble("missing", f"There is no launch {number}.")
    call, execution = rows[0]
    if call is not None and (begin := _call(store, call)) and (end := _event(store, number)):
        yield Flow(kind="launch", source=begin, target=end)
    yield from _pair(store, execution)


def _of_call(store: Store, number: int) -> Iterator[Flow]:
    rows = store.rows("select start_ns, duration_ns, op from api where id = ?", (number,))
    if not rows:
        raise Trouble("missing", f"There is no API call {number}.")
    start, length, execution = rows[0]
    begin = _call(store, number)
    for (event,) in _launched(store, number, start, start + length, "api"):
        if begin and (end := _event(store, event)):
            yield Flow(kind="launch", source=begin, target=end)
    yield from _pair(store, execution)


def _of_range(store: Store, number: int) -> Iterator[Flow]:
    rows = store.rows("select thread, start_ns, duration_ns from range where id = ?", (number,))
    if not rows:
        raise Trouble("missing", f"There is no range {number}.")
    thread, start, length = rows[0]
    first = first_from(store, "op", worker_of(number), start)
    executions = store.rows(
        "select id, end_ns from op where id >= ? and id < ? and start_ns = ? and thread = ? order by id limit 1",
        (first, first + _SEARCHED, start, thread),
    )
    if not executions or executions[0][1] < start + length:
        return
    execution, end_time = executions[0]
    begin = _range(store, number)
    for (event,) in _launched(store, execution, start, end_time, "op"):
        if begin and (end := _event(store, event)):
            yield Flow(kind="operator", source=begin, target=end)
    yield from _pair(store, execution)


def _launched(store: Store, number: int, start: int, end: int, column: str) -> list[tuple[int]]:
    """Return the events with a call or an execution, which were launched between two times."""
    worker = worker_of(number)
    first, last = (first_from(store, "event", worker, time) for time in (start, end + 1))
    return store.rows(
        f"select id from event where id >= ? and id < ? and {column} = ? order by id limit {MOST + 1}",
        (first, last, number),
    )


def _pair(store: Store, execution: int | None) -> Iterator[Flow]:
    """Yield the arrow between an execution and its forward or its backward."""
    if execution is None:
        return
    rows = store.rows("select forward from op where id = ?", (execution,))
    forward = rows[0][0] if rows else None
    if forward is not None:
        backward = execution
    else:
        # A backward is in the iteration of its forward: executions have no index by their forwards.
        bounds = store.rows(
            "select last_op from iteration where iteration_set = 1 and first_op <= ? and last_op > ?",
            (execution,) * 2,
        )
        last = bounds[0][0] if bounds else execution
        backwards = store.rows(
            "select id from op where id > ? and id < ? and forward = ? limit 1", (execution, last, execution)
        )
        if not backwards:
            return
        forward, backward = execution, backwards[0][0]
    ends = [_execution(store, number) for number in (forward, backward)]
    if ends[0] and ends[1]:
        yield Flow(kind="backward", source=ends[0], target=ends[1])


def _track(store: Store, where: str, values: tuple[Any, ...]) -> int | None:
    rows = store.rows(f"select id from track where {where}", values)
    return int(rows[0][0]) if rows else None


def _end(track: int | None, kind: Any, number: int, start: int, length: int) -> FlowEnd | None:
    if track is None:
        return None
    return FlowEnd(track=track, kind=kind, id=number, start=start, end=start + length)


def _call(store: Store, number: int) -> FlowEnd | None:
    for thread, start, length in store.rows("select thread, start_ns, duration_ns from api where id = ?", (number,)):
        track = _track(store, "kind = 'api' and worker = ? and thread = ?", (worker_of(number), thread))
        return _end(track, "call", number, start, length)
    return None


def _event(store: Store, number: int) -> FlowEnd | None:
    query = "select device, stream, start_ns, duration_ns from event where id = ?"
    for device, stream, start, length in store.rows(query, (number,)):
        where = "kind = 'stream' and worker = ? and device is ? and stream is ?"
        values = (worker_of(number), -1 if device is None else device, -1 if stream is None else stream)
        return _end(_track(store, where, values), "launch", number, start, length)
    return None


def _range(store: Store, number: int) -> FlowEnd | None:
    query = "select thread, kind, start_ns, duration_ns from range where id = ?"
    for thread, kind, start, length in store.rows(query, (number,)):
        name = "function" if kind == PYTHON_FUNCTION else "overlap" if kind in (START_END, MARK) else "range"
        where = "kind = ? and worker = ? and thread = ?"
        return _end(_track(store, where, (name, worker_of(number), thread)), "range", number, start, length)
    return None


def _execution(store: Store, number: int) -> FlowEnd | None:
    """Return the range that an execution begins with."""
    for thread, start in store.rows("select thread, start_ns from op where id = ?", (number,)):
        first = first_from(store, "range", worker_of(number), start)
        for (range_,) in store.rows(
            f"select id from range where id >= ? and id < ? and thread = ? and start_ns = ? and {NESTS} limit 1",
            (first, first + _SEARCHED, thread, start),
        ):
            return _range(store, range_)
    return None


_ARROWS = {"launch": _of_launch, "call": _of_call, "range": _of_range}

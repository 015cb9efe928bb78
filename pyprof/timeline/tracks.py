# SPDX-License-Identifier: Apache-2.0
"""Tracks of a recording, read from its profile database.

  kind      one per                  events                                         lanes        text of a record
  range     thread                   push/pop ranges, operators                     nesting      `string`
  function  thread                   Python functions                               nesting      `string`
  overlap   thread                   start/end ranges, marks                        first free   `string`
  module    thread, device           runs of work of one module and direction       path depth   `label`
  api       thread                   API calls                                      nesting      `string`
  stream    worker, device, stream   kernels, copies, sets                          first free   `kernel_name`
  idle      device                   gaps                                           one          `label`, the cause
  file      thread                   reads and writes of files                      nesting      `string`
  loader    thread                   waits for the data loader                      nesting      `label`

Without a GPU, operators are in the ranges of their threads, and there are neither streams nor gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.analysis.timeline import Activity
from pyprof.intervals import groups
from pyprof.model import DIRECTIONS, NO_DIRECTION, Column, Ints, Strings
from pyprof.reports.idle import gaps
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.kinds import IS_FUNCTION, NESTS, ON_GPU, OVERLAPS
from pyprof.timeline.lanes import by_depth, first_free
from pyprof.timeline.records import Records, single

DEPTH = 12  # parts of a module's path that have a lane
KINDS = ("range", "function", "overlap", "module", "api", "file", "loader", "stream", "idle")


class Track(NamedTuple):
    """A track of a worker. `thread`: its row; `device` and `stream` as in `event`; None where it has none."""

    kind: str
    worker: int
    records: Records
    thread: int | None = None
    device: int | None = None
    stream: int | None = None


def tracks(store: Store, labels: Strings) -> Iterator[Track]:
    """Yield all tracks with events. The texts of modules and causes are added to `labels`."""
    operators = _Operators(store, labels)
    for worker in reads.worker_names(store):
        yield from (track for track in _of_worker(store, worker, operators) if len(track.records))


def _of_worker(store: Store, worker: int, operators: _Operators) -> Iterator[Track]:
    activity = Activity(store, worker)
    own = activity.own("id")
    executions = _integers(
        store,
        f"select thread, operator, start_ns, end_ns from op where {own} and thread is not null order by id",
    )
    for kind, condition in (("range", NESTS), ("function", IS_FUNCTION)):
        for thread, records in _ranges(store, f"{own} and {condition}", executions):
            yield Track(kind, worker, records, thread)
    for thread, records in _overlaps(store, own):
        yield Track("overlap", worker, records, thread)
    for thread, members in groups(executions["thread"]):
        start, end, operator = (executions[name][members] for name in ("start_ns", "end_ns", "operator"))
        yield Track("module", worker, operators.runs(start, end, operator, members), thread)
    for thread, records in _calls(store, own):
        yield Track("api", worker, records, thread)
    yield from _device_tracks(store, activity, operators)
    for kind, thread, records in _waits(store, own, operators.labels):
        yield Track(kind, worker, records, thread)


def _integers(store: Store, query: str) -> dict[str, Ints]:
    """Return the columns of a query, -1 for NULL."""
    return {name: _plain(column) for name, column in store.columns(query).items()}


def _plain(column: Column) -> Ints:
    return column.values if column.present is None else np.where(column.present, column.values, -1)


def _nested(start: Ints, end: Ints, id: Ints, name: Ints, operator: Ints) -> Records:
    order, lane, stop = by_depth(start, end)
    return single(lane, start[order], stop, id[order], name[order], operator[order])


def _ranges(store: Store, where: str, executions: dict[str, Ints]) -> Iterator[tuple[int, Records]]:
    """Yield the nested ranges of each thread. A range at whose start an operator's execution begins, and that ends
    within it, belongs to that operator."""
    columns = _integers(
        store,
        f"select id, thread, start_ns, duration_ns, text from range where {where} order by id",
    )
    of_thread = dict(groups(executions["thread"]))
    for thread, members in groups(columns["thread"]):
        start, length, text, id_ = (
            columns[name][members] for name in ("start_ns", "duration_ns", "text", "id")
        )
        operator = np.zeros(len(members), np.int64)
        own_executions = of_thread.get(thread)
        if own_executions is not None:
            begin, stop, number = (
                executions[name][own_executions] for name in ("start_ns", "end_ns", "operator")
            )
            place = np.minimum(np.searchsorted(begin, start), len(begin) - 1)
            same = (begin[place] == start) & (start + length <= stop[place])
            operator[same] = number[place[same]] + 1
        yield thread, _nested(start, start + length, id_, text, operator)


def _overlaps(store: Store, own: str) -> Iterator[tuple[int, Records]]:
    columns = _integers(
        store,
        f"select id, thread, start_ns, duration_ns, text from range where {own} and {OVERLAPS} order by start_ns",
    )
    for thread, members in groups(columns["thread"]):
        start, length, text, id_ = (
            columns[name][members] for name in ("start_ns", "duration_ns", "text", "id")
        )
        yield thread, _side_by_side(start, start + length, id_, text, np.zeros(len(members), np.int64))


def _side_by_side(start: Ints, end: Ints, id: Ints, name: Ints, operator: Ints) -> Records:
    """Return records of events in the order of their starts, each in the first free lane."""
    lane = first_free(start, end)
    order = np.argsort(lane, kind="stable") if lane.any() else slice(None)
    return single(*(column[order] for column in (lane, start, end, id, name, operator)))


def _calls(store: Store, own: str) -> Iterator[tuple[int, Records]]:
    columns = _integers(
        store,
        f"""select id, thread, start_ns, duration_ns, name, (select operator from op where op.id = api.op) as operator
            from api where {own} order by id""",
    )
    for thread, members in groups(columns["thread"]):
        start, length, name, id_, operator = (
            columns[key][members] for key in ("start_ns", "duration_ns", "name", "id", "operator")
        )
        yield thread, _nested(start, start + length, id_, name, operator + 1)


def _device_tracks(store: Store, activity: Activity, operators: _Operators) -> Iterator[Track]:
    columns = _integers(
        store,
        f"""select id, device, stream, start_ns, duration_ns, name, operator from event
            where {activity.own("id")} and {ON_GPU} order by device, stream, start_ns""",
    )
    low, high = activity.span
    for device, on in groups(columns["device"]):
        part = {name: values[on] for name, values in columns.items()}
        begin, stop = part["start_ns"], part["start_ns"] + part["duration_ns"]
        order = np.argsort(begin, kind="stable")
        runs = operators.runs(begin[order], stop[order], part["operator"][order], part["id"][order])
        yield Track("module", activity.worker, runs, device=device)
        for stream, members in groups(part["stream"]):
            records = _side_by_side(
                begin[members], stop[members], part["id"][members], part["name"][members],
                part["operator"][members] + 1,
            )  # fmt: skip
            yield Track("stream", activity.worker, records, device=device, stream=stream)
        if device >= 0:
            yield Track(
                "idle", activity.worker, _idle(activity, device, low, high, operators.labels), device=device
            )


def _idle(activity: Activity, device: int, low: int, high: int, labels: Strings) -> Records:
    """Return the gaps of a device; a record's id is its number among them."""
    parts = [
        (start, end, np.full(len(start), labels.code(cause)))
        for cause, (start, end) in gaps(activity, device, low, high).items()
    ]
    start, end, name = (
        (np.concatenate(part) for part in zip(*parts)) if parts else (np.empty(0, np.int64),) * 3
    )
    order = np.argsort(start, kind="stable")
    start, end, name = start[order], end[order], name[order]
    zeros = np.zeros(len(start), np.int64)
    return single(zeros, start, end, np.arange(len(start)), name, zeros)


def _waits(store: Store, own: str, labels: Strings) -> Iterator[tuple[str, int, Records]]:
    """Yield the file operations and the data loader waits of each thread."""
    files = _integers(
        store, f"select id, thread, start_ns, duration_ns, name from io where {own} order by id"
    )
    waits = _integers(
        store, f"select id, thread, start_ns, duration_ns from dataloader where {own} order by id"
    )
    if len(waits["id"]):
        waits["name"] = np.full(len(waits["id"]), labels.code("data loader"))
    for kind, columns in (("file", files), ("loader", waits)):
        for thread, members in groups(columns["thread"]):
            start, length, name, id_ = (
                columns[key][members] for key in ("start_ns", "duration_ns", "name", "id")
            )
            yield kind, thread, _nested(start, start + length, id_, name, np.zeros(len(members), np.int64))


class _Operators:
    """Paths of the modules of operators, with their directions, as numbers of labels."""

    def __init__(self, store: Store, labels: Strings):
        self.labels = labels
        rows = store.rows("select id, module, direction from operator order by id")
        size = rows[-1][0] + 1 if rows else 0
        # Per operator and depth: label of the path's first parts, -1 beyond its end.
        self._path = np.full((size + 1, DEPTH), -1, np.int64)
        for number, module, direction in rows:
            parts = module.split(".") if module else []
            suffix = "" if direction == NO_DIRECTION else f" {DIRECTIONS[direction]}"
            for depth in range(min(len(parts), DEPTH)):
                self._path[number, depth] = labels.code(".".join(parts[: depth + 1]) + suffix)

    def runs(self, start: Ints, end: Ints, operator: Ints, id: Ints) -> Records:
        """Return the runs of events whose operators are of one module in one direction, for each depth of its path.
        Events are in the order of their starts; a run ends where the next begins. A record's id is that of its first
        event."""
        parts = []
        for depth in range(DEPTH):
            path = self._path[operator, depth]
            first = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]])) if len(path) else path
            reached = np.maximum.reduceat(end, first) if len(first) else end
            begin = start[first]
            stop = np.minimum(reached, np.concatenate([begin[1:], reached[-1:]]))
            inside = path[first] >= 0
            if not inside.any():
                break
            first, begin, stop = first[inside], begin[inside], np.maximum(stop, begin)[inside]
            lane = np.full(len(first), depth, np.int64)
            parts.append(single(lane, begin, stop, id[first], path[first], operator[first] + 1))
        if not parts:
            empty = np.empty(0, np.int64)
            return single(*(empty,) * 6)
        return Records(*(np.concatenate(columns) for columns in zip(*parts)))

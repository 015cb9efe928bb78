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

from pyprof.core.intervals import groups
from pyprof.core.model import DIRECTIONS, MARK, NO_DIRECTION, PUSH_POP, START_END, Column, Ints, Strings
from pyprof.facts.device.timeline import Activity, Columns
from pyprof.facts.host.gaps import CAUSES, clipped, gaps
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.kinds import OPERATOR_EVENT, PYTHON_FUNCTION
from pyprof.timeline.lanes import by_depth, first_free
from pyprof.timeline.records import Records, single

DEPTH = 12  # parts of a module's path that have a lane
_STORED = {"range": (PUSH_POP, OPERATOR_EVENT), "function": (PYTHON_FUNCTION,), "overlap": (START_END, MARK)}
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
    executions = _executions(activity)
    for kind, thread, records in _ranges(activity, executions):
        yield Track(kind, worker, records, thread)
    for thread, members in groups(executions["thread"]):
        start, end, operator = (executions[name][members] for name in ("start_ns", "end_ns", "operator"))
        yield Track("module", worker, operators.runs(start, end, operator, members), thread)
    for thread, records in _calls(activity, executions):
        yield Track("api", worker, records, thread)
    yield from _device_tracks(store, activity, operators)
    for kind, thread, records in _waits(store, own, operators.labels):
        yield Track(kind, worker, records, thread)


def _executions(activity: Activity) -> dict[str, Ints]:
    """Return the executions of operators on threads."""
    columns = Columns(activity, "op", ("id", "thread", "operator", "start_ns", "end_ns"))
    thread = columns["thread"]
    on_thread = slice(None) if thread.present is None else np.flatnonzero(thread.present)
    return {name: _read(columns, name)[on_thread] for name in columns}


def _read(columns: Columns, name: str) -> Ints:
    """Return a column without keeping it, -1 for NULL; numbers of operators and texts in half the memory."""
    values = _plain(columns.large(name))
    return values.astype(np.int32) if name in ("operator", "text") else values


def _integers(store: Store, query: str) -> dict[str, Ints]:
    """Return the columns of a query, -1 for NULL."""
    return {name: _plain(column) for name, column in store.columns(query).items()}


def _plain(column: Column) -> Ints:
    return column.values if column.present is None else np.where(column.present, column.values, -1)


def _nested(start: Ints, end: Ints, id: Ints, name: Ints, operator: Ints) -> Records:
    order, lane, stop = by_depth(start, end)
    return single(lane, start[order], stop, id[order], name[order], operator[order])


def _ranges(activity: Activity, executions: dict[str, Ints]) -> Iterator[tuple[str, int, Records]]:
    """Yield the ranges of each thread: those that nest, Python functions, and others."""
    stored_columns = Columns(activity, "range", ("id", "thread", "kind", "start_ns", "duration_ns", "text"))
    columns = {name: _read(stored_columns, name) for name in stored_columns}
    of_thread = dict(groups(executions["thread"]))
    for kind, stored in _STORED.items():
        of_kind = np.flatnonzero(np.isin(columns["kind"], stored))
        for thread, places in groups(columns["thread"][of_kind]):
            id_, start, length, name = (
                columns[key][of_kind[places]] for key in ("id", "start_ns", "duration_ns", "text")
            )
            end = start + length
            if kind == "overlap":
                yield kind, thread, _side_by_side(start, end, id_, name, np.zeros(len(start), np.int64))
                continue
            own_executions = of_thread.get(thread, start[:0])
            operator = _begun(start, end, {key: values[own_executions] for key, values in executions.items()})
            yield kind, thread, _nested(start, end, id_, name, operator)


def _begun(start: Ints, end: Ints, executions: dict[str, Ints]) -> Ints:
    """Return the operator of each range, plus 1: that of the execution that begins with it and does not end before; 0
    without one."""
    out = np.zeros(len(start), np.int64)
    if len(executions["id"]):
        place = np.minimum(np.searchsorted(executions["start_ns"], start), len(executions["id"]) - 1)
        same = (executions["start_ns"][place] == start) & (end <= executions["end_ns"][place])
        out[same] = executions["operator"][place[same]] + 1
    return out


def _side_by_side(start: Ints, end: Ints, id: Ints, name: Ints, operator: Ints) -> Records:
    """Return records of events in the order of their starts, each in the first free lane."""
    lane = first_free(start, end)
    order = np.argsort(lane, kind="stable") if lane.any() else slice(None)
    return single(*(column[order] for column in (lane, start, end, id, name, operator)))


def _calls(activity: Activity, executions: dict[str, Ints]) -> Iterator[tuple[int, Records]]:
    call = activity.call
    op = _plain(call["op"])
    place = np.searchsorted(executions["id"], op)
    place[place == len(executions["id"])] = -1
    known = np.append(executions["id"], -2)[place] == op
    operator = np.where(known, np.append(executions["operator"], 0)[place] + 1, 0)
    start = call["start_ns"].values
    end = start + call["duration_ns"].values
    for thread, members in groups(call["thread"].values):
        id_, name = call["id"].values[members], call["name"].values[members]
        yield thread, _nested(start[members], end[members], id_, name, operator[members])


def _device_tracks(store: Store, activity: Activity, operators: _Operators) -> Iterator[Track]:
    event = {name: _plain(activity.event[name]) for name in ("device", "name", "operator", "stream")}
    stream = event.pop("stream")
    low, high = activity.extent
    order = np.argsort(activity.start, kind="stable")
    for device, places in groups(event["device"][order]):
        on = order[places]
        begin, stop, id_, operator = (
            activity.start[on],
            activity.end[on],
            activity.id[on],
            event["operator"][on],
        )
        yield Track("module", activity.worker, operators.runs(begin, stop, operator, id_), device=device)
        name = event["name"][on]
        for number, own in groups(stream[on]):
            records = _side_by_side(begin[own], stop[own], id_[own], name[own], operator[own] + 1)
            yield Track("stream", activity.worker, records, device=device, stream=number)
        if device >= 0:
            records = _idle(activity, device, low, high, operators.labels)
            yield Track("idle", activity.worker, records, device=device)


def _idle(activity: Activity, device: int, low: int, high: int, labels: Strings) -> Records:
    """Return the gaps of a device; a record's id is its number among them."""
    own = clipped(gaps(activity, device), low, high)
    causes, which = np.unique(own.cause, return_inverse=True)
    names = np.array([labels.code(CAUSES[code]) for code in causes.tolist()], np.int64)[which]
    zeros = np.zeros(len(own.start), np.int64)
    return single(zeros, own.start, own.end, np.arange(len(zeros)), names, zeros)


def _waits(store: Store, own: str, labels: Strings) -> Iterator[tuple[str, int, Records]]:
    """Yield the file operations and the data loader waits of each thread."""
    files = _integers(store, f"select id, thread, start_ns, duration_ns, name from io where {own} order by id")
    waits = _integers(store, f"select id, thread, start_ns, duration_ns from dataloader where {own} order by id")
    if len(waits["id"]):
        waits["name"] = np.full(len(waits["id"]), labels.code("data loader"))
    for kind, columns in (("file", files), ("loader", waits)):
        for thread, members in groups(columns["thread"]):
            start, length, name, id_ = (columns[key][members] for key in ("start_ns", "duration_ns", "name", "id"))
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

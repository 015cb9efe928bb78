# SPDX-License-Identifier: Apache-2.0
"""The tree of operator events in pieces of the recording, so that few of them are in memory at once.

A piece has, of each thread, the outermost operator events that have ended, with all that is in them: their calls, and
the GPU events that those launched. What is in an outermost event that is still open waits for a later piece. In a
recording with one event around everything that is all of it; so it is with replays of graphs, whose GPU events belong
to operator events of any other time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pyprof import intervals
from pyprof.analysis.operator_tree import Selection, Tree, tree, tree_of
from pyprof.analysis.stretches import Part, parts, stretches
from pyprof.analysis.timeline import Activity
from pyprof.model import KERNELS, MEMCPY, MEMSET, Bools, Column, Ints
from pyprof.store.ids import first_id
from pyprof.store.moments import BEFORE

_RANGE = ("id", "thread", "start_ns", "duration_ns", "text", "args", "stack", "kind")
_CALL = ("id", "thread", "start_ns", "duration_ns")
_EVENT = (
    "id", "kind", "name", "operator", "api", "start_ns", "duration_ns", "tc", "verdict", "roofline_ns", "hardware_ps",
    "model_ps",
    "flops",
    "bytes",
)  # fmt: skip
_MISSING = {
    "args",
    "stack",
    "operator",
    "api",
    "tc",
    "verdict",
    "roofline_ns",
    "hardware_ps",
    "model_ps",
    "flops",
    "bytes",
}
_PRESENT = "?"  # behind a name: which values are known


def trees(activity: Activity, texts: dict[int, str]) -> Iterator[tuple[Activity, Tree]]:
    """Yield parts of a worker's activity, with the columns that reports about operators need, and their trees. Every
    operator event, call and GPU event is in one part. `texts`: all strings of the database by id."""
    if activity.store.rows(f"select 1 from replayed where {activity.own('event')} limit 1"):
        yield activity, tree(activity, texts)
        return
    waiting = _Waiting()
    reached: dict[int, int] = {}
    for end, (ranges, calls, events) in stretches([
        _ranges(activity, texts), _read(activity, "api", _CALL), _events(activity),
    ]):  # fmt: skip
        piece = waiting.ended(ranges, calls, events, end)
        part = _Piece(activity, *(_columns(columns) for columns in piece[1:]))
        yield part, tree_of(part, _columns(piece[0]), texts, reached)


class _Piece(Activity):
    """Some calls of a worker and the GPU events that they launched."""

    def __init__(self, activity: Activity, calls: dict[str, Column], events: dict[str, Column]):
        self.store, self.worker, self.name, self.span = (
            activity.store, activity.worker, activity.name, activity.span
        )  # fmt: skip
        self.call, self.event = calls, events
        place = np.searchsorted(calls["id"].values, events["api"].values)
        self.launch = np.where(events["api"].mask(), place, -1)
        self.replayed = np.empty(0, np.int64), np.empty(0, np.int64)


class _Waiting:
    """Rows that wait for the end of the outermost operator event that they are in."""

    def __init__(self) -> None:
        self._rows: list[Part] | None = None

    def ended(self, ranges: Part, calls: Part, events: Part, end: int) -> tuple[Part, Part, Part]:
        """Take the rows that start before `end` and in no operator event that may be open then."""
        if self._rows is not None:
            ranges, calls, events = (_join(*pair) for pair in zip(self._rows, (ranges, calls, events)))
        since = _open_since(ranges, end)
        open_ranges, open_calls = (_waits(rows, since) for rows in (ranges, calls))
        place = np.searchsorted(calls["id"], events["api"])
        open_events = events["api" + _PRESENT] & np.r_[open_calls, False][place]
        masks = open_ranges, open_calls, open_events
        rows = ranges, calls, events
        self._rows = [_take(one, mask) for one, mask in zip(rows, masks)]
        ended = [_take(one, ~mask) for one, mask in zip(rows, masks)]
        return ended[0], ended[1], ended[2]


def _open_since(ranges: Part, end: int) -> dict[int, int]:
    """Return, by thread, the start of the last outermost event, unless it has ended at a time."""
    start = ranges["start"]
    stop = start + ranges["duration_ns"]
    out = {}
    for thread, rows in intervals.groups(ranges["thread"]):
        reached = np.maximum.accumulate(stop[rows])
        if reached[-1] > end:
            begin = start[rows]
            outermost = np.r_[True, (begin[1:] >= reached[:-1]) & (begin[1:] > begin[:-1])]
            out[thread] = int(begin[np.flatnonzero(outermost)[-1]])
    return out


def _waits(rows: Part, since: dict[int, int]) -> Bools:
    """Return which rows start in an outermost event that may be open."""
    out = np.zeros(len(rows["start"]), bool)
    for thread, begin in since.items():
        out |= (rows["thread"] == thread) & (rows["start"] >= begin)
    return out


def _take(rows: Part, mask: Bools) -> Part:
    if mask.all():
        return rows
    place = np.flatnonzero(mask)
    return {name: column[place] for name, column in rows.items()}


def _join(first: Part, second: Part) -> Part:
    """Return rows of both by their ids."""
    if not len(first["id"]):
        return second
    joined = {name: np.r_[column, second[name]] for name, column in first.items()}
    order = np.argsort(joined["id"], kind="stable")
    return {name: column[order] for name, column in joined.items()}


def _ranges(activity: Activity, texts: dict[int, str]) -> Iterator[Part]:
    """Yield the operator events, by the rule of `operator_tree`."""
    which = Selection(texts)
    ids = first_id(activity.worker), first_id(activity.worker + 1)
    are_events = which.calls
    for part in activity.store.parts("range", ("kind", "text"), *ids):
        if which.operators(part["kind"].values, part["text"].values).any():
            are_events = which.operators
            break
    yield from _read(
        activity, "range", _RANGE, lambda one: are_events(one["kind"].values, one["text"].values)
    )


def _events(activity: Activity) -> Iterator[Part]:
    """Yield the GPU events, each at the start of its launch; without one, at that of the event before it, by which they
    are ordered; if no launches are recorded, at its own."""
    store, last = activity.store, np.array([BEFORE])
    ids = first_id(activity.worker), first_id(activity.worker + 1)
    recorded = bool(store.rows("select 1 from api where id >= ? and id < ? limit 1", ids))

    def launch(columns: dict[str, Column]) -> Ints:
        api = columns["api"]
        if not recorded or not len(api.values):
            return columns["start_ns"].values
        out = np.full(len(api.values) + 1, last[0])
        launched = np.flatnonzero(api.mask())
        if len(launched):
            id_ = api.values[launched]
            call = store.table("api", ("id", "start_ns"), int(id_.min()), int(id_.max()) + 1)
            out[launched + 1] = call["start_ns"].values[np.searchsorted(call["id"].values, id_)]
        place = np.zeros(len(out), np.int64)
        place[launched + 1] = launched + 1
        times: Ints = out[np.maximum.accumulate(place)][1:]
        last[0] = times[-1]
        return times

    on_gpu = (*KERNELS, MEMCPY, MEMSET)
    yield from _read(activity, "event", _EVENT, lambda one: np.isin(one["kind"].values, on_gpu), start=launch)


def _read(
    activity: Activity,
    table: str,
    names: tuple[str, ...],
    mask: Callable[[dict[str, Column]], Bools] | None = None,
    start: Callable[[dict[str, Column]], Ints] = lambda columns: columns["start_ns"].values,
) -> Iterator[Part]:
    """Yield columns of a table as arrays, with what is known of them apart."""
    missing = [name for name in names if name in _MISSING]
    yield {
        **dict.fromkeys(("start", *names), np.empty(0, np.int64)),
        **{name + _PRESENT: np.empty(0, bool) for name in missing},
    }
    for columns, begin in parts(activity, table, names, start):
        rows: Part = {"start": begin, **{name: columns[name].values for name in names}}
        rows |= {name + _PRESENT: columns[name].mask() for name in missing}
        yield rows if mask is None else _take(rows, mask(columns))


def _columns(rows: Part) -> dict[str, Column]:
    return {
        name: Column(values, rows.get(name + _PRESENT))
        for name, values in rows.items() if not name.endswith(_PRESENT)
    }  # fmt: skip

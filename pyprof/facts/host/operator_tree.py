# SPDX-License-Identifier: Apache-2.0
"""The tree of operator events, nested ones included, with self time and the GPU events that each launched.

An operator event is a RecordFunction event, or a push/pop range named like one (`aten::mm`, `AddmmBackward0`). If a
worker has neither, the ranges of calls that markers of PyProf or DLProf describe take their place. Events nest by
their times on a thread. An event and its only child of the same name are merged: the dispatcher announces some
operators twice. A GPU event belongs to the innermost operator event around the start of its launch, on the thread of
the launch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyprof.core import intervals
from pyprof.core.marker import CallMarker, OperatorMarker, decode
from pyprof.core.model import PUSH_POP, Bools, Column, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.parse.paths import is_step
from pyprof.store.kinds import OPERATOR_EVENT

# Sums in ns: of all GPU events, of kernels whose use of tensor cores is known, and of those that use them.
DEVICE_TIMES = ("device", "kernel", "tc")
_NEVER = -(1 << 61)  # ns, before any recording


class Tree(NamedTuple):
    """One row per operator event, sorted by thread, then start; times in ns.

    `text`, `args`: ids of strings, `args` -1 if the event has none. `stack`: id of a call stack, -1 if not recorded.
    `own`, `total`: times without and with the operator events inside, under "host" and each name of DEVICE_TIMES.
    `timed`: whether the time on the CPU is known; it is not on threads with graph replays, where "host" is 0.
    `parent`: index of the operator event around it, -1 for none.
    `launcher`: for each of Activity.event the index of the operator event that launched it, -1 for none.
    `outside`: indices in Activity.event of the GPU events that no operator event launched.
    """

    text: Ints
    args: Ints
    stack: Ints
    thread: Ints
    start: Ints
    timed: Bools
    own: dict[str, Ints]
    total: dict[str, Ints]
    parent: Ints
    launcher: Ints
    outside: Ints


def tree(activity: Activity, texts: dict[int, str]) -> Tree:
    """Return the operator events of a worker; `texts`: all strings of the database by id."""
    events = _events(activity, texts)
    thread, start, dur = (events[name].values.astype(np.int64) for name in ("thread", "start_ns", "duration_ns"))
    order = np.argsort(thread, kind="stable")
    thread, start, end = thread[order], start[order], (start + dur)[order]
    parent, inner, outermost = _nest(activity, thread, start, end)
    text, args = (
        events["text"].values[order],
        np.where(events["args"].mask(), events["args"].values, -1)[order],
    )
    keep, onto = _merge_same_names(parent, _names(text, texts))
    above = np.where(parent >= 0, onto[parent], -1)
    place = np.r_[onto, -1][inner]
    own: dict[str, Ints] = {"host": (end - start) - _sum(above[keep], (end - start)[keep], len(start))}
    # Time in API calls is not the operator's own; of nested calls the outermost counts.
    api = np.flatnonzero(outermost & (place >= 0))
    begin = activity.call["start_ns"].values[api]
    stop = np.minimum(begin + activity.call["duration_ns"].values[api], end[place[api]])
    own["host"] = np.maximum(own["host"] - _sum(place[api], stop - begin, len(start)), 0)
    of_event = np.r_[place, -1][activity.launch]
    _assign_replayed(activity, events["id"].values[order], onto, of_event)
    for name, weight in weights(activity).items():
        own[name] = _sum(of_event, weight, len(start))
    levels = _levels(above, keep)
    timed = _timed(activity, events["id"].values[order], thread)
    own["host"][~timed] = 0
    total = {"host": np.where(timed, end - start, 0)} | {
        name: _inclusive(own[name], above, levels) for name in DEVICE_TIMES
    }
    places = np.flatnonzero(keep)
    stack = np.where(events["stack"].mask(), events["stack"].values, -1)[order]
    own, total = ({name: part[places] for name, part in whole.items()} for whole in (own, total))
    outside = np.flatnonzero(of_event < 0)
    row = np.full(len(start) + 1, -1, np.int64)
    row[places] = np.arange(len(places))
    return Tree(
        text[places],
        args[places],
        stack[places],
        thread[places],
        start[places],
        timed[places],
        own,
        total,
        row[above[places]],
        row[of_event],
        outside,
    )


def callers(activity: Activity, events: Tree, texts: dict[int, str]) -> Ints:
    """Return a code for the call stack of each event.

    The code is the id of a stack if >= 0. -1: no stack is recorded. Below: -2 minus the id of a string, a marker that
    contains the stack. An event without a stack of its own takes that of the range or event around it, else that of the
    execution that it is part of: what ran backward has that of its forward.
    """
    ranges = activity.ranges
    text, args = ranges["text"].values, np.where(ranges["args"].mask(), ranges["args"].values, -1)
    described = np.where(args >= 0, args, text)  # the string that may be a marker
    traced = np.zeros(max(texts, default=0) + 1, bool)
    for number in np.unique(described).tolist():
        marker = decode(texts[number])
        traced[number] = isinstance(marker, CallMarker) and bool(marker.trace)
    own = np.where(events.args >= 0, events.args, events.text)
    code = np.where(events.stack >= 0, events.stack, np.where(traced[own], -2 - own, -1))
    around = np.where(ranges["stack"].mask(), ranges["stack"].values, np.where(traced[described], -2 - described, -1))
    begin, length = ranges["start_ns"].values, ranges["duration_ns"].values
    executed = [activity.executed[name].values for name in ("thread", "start_ns", "end_ns", "stack")]
    slack = int(activity.store.meta.get("slack", "0"))
    for whose, start, end, stack in ((ranges["thread"].values, begin, begin + length, around), executed):
        for thread in np.unique(events.thread[code == -1]).tolist():
            sources = np.flatnonzero((whose == thread) & (stack != -1))
            sources = sources[intervals.order_by(start[sources], -end[sources], sources)]
            places = np.flatnonzero((events.thread == thread) & (code == -1))
            nesting, _ = intervals.nested(start[sources], end[sources], slack)
            code[places] = np.r_[stack[sources], -1][nesting.innermost(events.start[places])]
    return code


def weights(activity: Activity) -> dict[str, Ints]:
    """Return the ns that each GPU event adds to each of DEVICE_TIMES."""
    dur, tc = activity.event["duration_ns"].values, activity.event["tc"]
    judged = activity.kernel & tc.mask()
    return {
        "device": dur,
        "kernel": np.where(judged, dur, 0),
        "tc": np.where(judged & (tc.values == 1), dur, 0),
    }


def _events(activity: Activity, texts: dict[int, str]) -> dict[str, Column]:
    """Return operator events as columns of `range`, by start, of equal starts the longer first."""
    ranges, which = activity.ranges, Selection(texts)
    kind, text = ranges["kind"].values, ranges["text"].values
    mask = which.operators(kind, text)
    if not mask.any():
        mask = which.calls(kind, text)
    return {name: column.take(np.flatnonzero(mask)) for name, column in ranges.items()}


class Selection:
    """Choice of the ranges that are operator events, or that describe calls, by their kinds and texts."""

    def __init__(self, texts: dict[int, str]):
        self._texts = texts
        # By id of a string: whether it was looked at, is an operator's name, or describes a call.
        self._known, self._named, self._calls = (np.zeros(max(texts, default=0) + 1, bool) for _ in range(3))

    def operators(self, kind: Ints, text: Ints) -> Bools:
        self._look(kind, text)
        return np.asarray((kind == OPERATOR_EVENT) | self._named[text])

    def calls(self, kind: Ints, text: Ints) -> Bools:
        self._look(kind, text)
        return self._calls[text]

    def _look(self, kind: Ints, text: Ints) -> None:
        fresh = text[(kind == PUSH_POP) & ~self._known[text]]
        for number in np.unique(fresh).tolist():
            marker = decode(self._texts[number])
            self._named[number] = isinstance(marker, OperatorMarker) and not is_step(self._texts[number])
            self._calls[number] = isinstance(marker, CallMarker)
        self._known[fresh] = True


def _names(text: Ints, texts: dict[int, str]) -> Ints:
    """Return a number per event, equal for events of the same operator."""
    used = np.unique(text).tolist()
    names = {name: i for i, name in enumerate(dict.fromkeys(operator_name(texts[number]) for number in used))}
    table = np.zeros(max(used, default=0) + 1, np.int64)
    table[used] = [names[operator_name(texts[number])] for number in used]
    return table[text]


def operator_name(text: str) -> str:
    """Return the name of the operator that the text of an event gives.

    >>> operator_name("aten::mm, sizes = [[2, 3], [3, 4]]"), operator_name("detach_")
    ('aten::mm', 'detach_')
    >>> operator_name("{'pyprof': 1, 'mod': 'torch', 'op': 'mm', 'args': []}")
    'torch.mm'
    """
    marker = decode(text, operator=True)
    if isinstance(marker, CallMarker):
        call = marker.call
        return call.op if "::" in call.op or not call.mod else f"{call.mod}.{call.op}"
    return marker.name if isinstance(marker, OperatorMarker) else text


def _nest(activity: Activity, thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Bools]:
    """Return the parent of each event, the innermost event around the start of each API call (-1 for none), and whether
    each API call is outermost, that is not inside another.

    Events are sorted by thread, then start.
    """
    parent = np.full(len(start), -1, np.int64)
    call, slack = activity.call, int(activity.store.meta.get("slack", "0"))
    inner, outermost = np.full(len(call["id"].values), -1, np.int64), np.ones(len(call["id"].values), bool)
    by_thread = np.argsort(call["thread"].values, kind="stable")
    sorted_thread = call["thread"].values[by_thread]
    for number in np.unique(thread).tolist():
        low, high = np.searchsorted(thread, [number, number + 1]).tolist()
        calls = by_thread[slice(*np.searchsorted(sorted_thread, [number, number + 1]).tolist())]
        nesting, _ = intervals.nested(start[low:high], end[low:high], slack)
        parent[low:high] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + low, -1)
        begin = call["start_ns"].values[calls]
        around = nesting.innermost(begin)
        inner[calls] = np.where(around >= 0, around + low, -1)
        stop = begin + call["duration_ns"].values[calls]
        outermost[calls] = stop > np.maximum.accumulate(np.r_[_NEVER, stop])[:-1]
    return parent, inner, outermost


def _assign_replayed(activity: Activity, id_: Ints, onto: Ints, of_event: Ints) -> None:
    """Set `of_event`, the operator event of each GPU event, for GPU events of graph replays. `id_`: ids of the operator
    events; `onto`: the event that each is merged into."""
    events, ranges = activity.replayed
    if len(events) and len(id_):
        order = np.argsort(id_)
        place = order[np.minimum(np.searchsorted(id_[order], ranges), len(order) - 1)]
        matched = id_[place] == ranges
        of_event[events[matched]] = onto[place[matched]]


def _timed(activity: Activity, id_: Ints, thread: Ints) -> Bools:
    """Return which events are on threads without graph replays; on threads with them, times give only an order."""
    replays = np.unique(thread[np.isin(id_, activity.replayed[1])])
    return np.isin(thread, replays, invert=True)


def _merge_same_names(parent: Ints, name: Ints) -> tuple[Bools, Ints]:
    """Return which events remain, and the event that each one is merged into.

    An event that is the only child of an event of its name is merged into that one, through any number of levels.
    """
    n = len(parent)
    inside = np.bincount(parent[parent >= 0], minlength=n) if n else parent
    up = np.maximum(parent, 0)
    merged = (parent >= 0) & (inside[up] == 1) & (name[up] == name) if n else np.zeros(0, bool)
    onto = np.where(merged, parent, np.arange(n))
    while merged.any() and (onto[onto] != onto).any():
        onto = onto[onto]
    return ~merged, onto


def _sum(place: Ints, values: Ints, size: int) -> Ints:
    """Return the sum of the values of each place from 0 to size - 1; values of place -1 are left out."""
    out = np.zeros(size, np.int64)
    inside = np.flatnonzero(place >= 0)
    np.add.at(out, place[inside], values[inside])
    return out


def _levels(above: Ints, keep: Bools) -> list[Ints]:
    """Return the indices of the events inside others by depth, those directly below the outermost first."""
    depth = np.zeros(len(above), np.int32)
    at = np.flatnonzero(keep & (above >= 0))
    ancestor = above[at]
    while len(at):
        depth[at] += 1
        ancestor = above[ancestor]
        at, ancestor = at[ancestor >= 0], ancestor[ancestor >= 0]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    return [order[a:b] for a, b in pairwise(bounds.tolist())]


def _inclusive(own: Ints, above: Ints, levels: list[Ints], combine: np.ufunc = np.add) -> Ints:
    """Return, for each event, its own value combined (added, by default) with those of all events inside it."""
    out = own.copy()
    for level in reversed(levels):
        combine.at(out, above[level], out[level])
    return out


class Enclosing(NamedTuple):
    """Operator events, and the innermost one around each of some moments.

    `text`: id of a string, per event. `above`: index of the event around each, -1 for none. `levels`: indices of the
    events inside others, by depth. `at`: index of the innermost event around each moment, -1 for none.
    """

    text: Ints
    above: Ints
    levels: list[Ints]
    at: Ints

    def inclusive(self, own: Ints, combine: np.ufunc = np.add) -> Ints:
        """Return, for each event, its own value combined with those of all events inside it."""
        return _inclusive(own, self.above, self.levels, combine)


def enclosing(activity: Activity, texts: dict[int, str], thread: Ints, time: Ints) -> Enclosing:
    """Return the operator events of a worker, as in `tree`, and the innermost one around each moment: a time in ns on a
    thread."""
    events = _events(activity, texts)
    event_thread, start, dur = (events[name].values.astype(np.int64) for name in ("thread", "start_ns", "duration_ns"))
    order = np.argsort(event_thread, kind="stable")
    event_thread, start, end = event_thread[order], start[order], (start + dur)[order]
    parent, at = np.full(len(start), -1, np.int64), np.full(len(time), -1, np.int64)
    slack = int(activity.store.meta.get("slack", "0"))
    for number in np.unique(event_thread).tolist():
        low, high = np.searchsorted(event_thread, [number, number + 1]).tolist()
        nesting, _ = intervals.nested(start[low:high], end[low:high], slack)
        parent[low:high] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + low, -1)
        moments = np.flatnonzero(thread == number)
        around = nesting.innermost(time[moments])
        at[moments] = np.where(around >= 0, around + low, -1)
    text = events["text"].values[order]
    keep, onto = _merge_same_names(parent, _names(text, texts))
    above = np.where(parent >= 0, np.r_[onto, -1][parent], -1)
    return Enclosing(text, above, _levels(above, keep), np.r_[onto, -1][at])

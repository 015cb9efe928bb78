# SPDX-License-Identifier: Apache-2.0
"""Every operator event, nested ones too, with its own time and what it launched.

An operator event is a RecordFunction event, or a push/pop range named like one (`aten::mm`, `AddmmBackward0`). Where a
worker has neither, the ranges of calls that markers of PyProf or DLProf describe stand for them. Events nest by their
times on a thread. An event whose only operator inside has its name is one with it: the dispatcher announces some twice.
A GPU event belongs to the innermost operator event around the start of its launch, on the thread of that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyprof import intervals
from pyprof.analysis.timeline import Activity
from pyprof.marker import CallMarker, OperatorMarker, decode
from pyprof.model import Bools, Column, Ints
from pyprof.parse.paths import is_step

_PUSH_POP, _EVENT = 0, 3
DEVICE = (
    "device",
    "kernel",
    "tc",
)  # ns of GPU events, of kernels of which tensor core use is known, of those using them


class Tree(NamedTuple):
    """One row per operator event, by thread, then start. `text` and `args`: ids of strings, `stack`: of a stack (-1:
    not recorded); `own` and `total`: times without and with the operator events inside, host and those of DEVICE.
    `timed`: whether the time on the CPU is known, which it is not of those that a graph's replay gives back; host is 0
    then. `outside`: places in Activity.event of GPU events that no operator event launched."""

    text: Ints
    args: Ints
    stack: Ints
    thread: Ints
    start: Ints
    timed: Bools
    own: dict[str, Ints]
    total: dict[str, Ints]
    outside: Ints


def tree(activity: Activity, texts: dict[int, str]) -> Tree:
    """The operator events of a worker; `texts` are all strings."""
    found = _events(activity, texts)
    thread, start, dur = (found[name].values.astype(np.int64) for name in ("thread", "start", "dur"))
    order = np.argsort(thread, kind="stable")
    thread, start, end = thread[order], start[order], (start + dur)[order]
    parent, inner, calls = _nested(activity, thread, start, end)
    text, args = found["text"].values[order], np.where(found["args"].mask(), found["args"].values, -1)[order]
    keep, onto = _merged(parent, _names(text, texts))
    above = np.where(parent >= 0, onto[parent], -1)
    place = np.r_[onto, -1][inner]
    own: dict[str, Ints] = {"host": (end - start) - _sum(above[keep], (end - start)[keep], len(start))}
    api = np.flatnonzero(calls & (place >= 0))
    begin = activity.call["start"].values[api]
    stop = np.minimum(begin + activity.call["dur"].values[api], end[place[api]])
    own["host"] = np.maximum(own["host"] - _sum(place[api], stop - begin, len(start)), 0)
    of_event = np.r_[place, -1][activity.launch]
    _replayed(activity, found["id"].values[order], onto, of_event)
    for name, weight in weights(activity).items():
        own[name] = _sum(of_event, weight, len(start))
    levels = _levels(above, keep)
    timed = _timed(activity, found["id"].values[order], thread)
    own["host"][~timed] = 0
    total = {"host": np.where(timed, end - start, 0)} | {
        name: _added(own[name], above, levels) for name in DEVICE
    }
    kept = np.flatnonzero(keep)
    stack = np.where(found["stack"].mask(), found["stack"].values, -1)[order]
    own, total = ({name: part[kept] for name, part in whole.items()} for whole in (own, total))
    outside = np.flatnonzero(of_event < 0)
    return Tree(
        text[kept], args[kept], stack[kept], thread[kept], start[kept], timed[kept], own, total, outside
    )


def callers(activity: Activity, found: Tree, texts: dict[int, str]) -> Ints:
    """Where the call stack of each event is: a stack's id, or -2 - the id of a string, a marker with it; -1 where none
    is recorded. An event without one of its own was called from where the range or event around it was."""
    ranges = activity.ranges
    text, args = ranges["text"].values, np.where(ranges["args"].mask(), ranges["args"].values, -1)
    said = np.where(args >= 0, args, text)
    traced = np.zeros(max(texts, default=0) + 1, bool)
    for number in np.unique(said).tolist():
        marker = decode(texts[number])
        traced[number] = isinstance(marker, CallMarker) and bool(marker.trace)
    own = np.where(found.args >= 0, found.args, found.text)
    code = np.where(found.stack >= 0, found.stack, np.where(traced[own], -2 - own, -1))
    around = np.where(ranges["stack"].mask(), ranges["stack"].values, np.where(traced[said], -2 - said, -1))
    start = ranges["start"].values
    end, slack = start + ranges["dur"].values, int(activity.store.meta.get("slack", "0"))
    for one in np.unique(found.thread[code == -1]).tolist():
        known = np.flatnonzero((ranges["thread"].values == one) & (around != -1))
        known = known[intervals.order_by(start[known], -end[known], known)]
        here = np.flatnonzero((found.thread == one) & (code == -1))
        nesting, _ = intervals.nested(start[known], end[known], slack)
        code[here] = np.r_[around[known], -1][nesting.innermost(found.start[here])]
    return code


def weights(activity: Activity) -> dict[str, Ints]:
    """What GPU events add to the times of DEVICE."""
    dur, tc = activity.event["dur"].values, activity.event["tc"]
    known = activity.kernel & tc.mask()
    return {
        "device": dur,
        "kernel": np.where(known, dur, 0),
        "tc": np.where(known & (tc.values == 1), dur, 0),
    }


def _events(activity: Activity, texts: dict[int, str]) -> dict[str, Column]:
    """Operator events by start, the longer first."""
    found = activity.ranges
    kind, text = found["kind"].values, found["text"].values
    named, calls = np.zeros(max(texts, default=0) + 1, bool), np.zeros(max(texts, default=0) + 1, bool)
    for number in np.unique(text[kind == _PUSH_POP]).tolist():
        marker = decode(texts[number])
        named[number] = isinstance(marker, OperatorMarker) and not is_step(texts[number])
        calls[number] = isinstance(marker, CallMarker)
    chosen = (kind == _EVENT) | named[text]
    if not chosen.any():
        chosen = calls[text]
    return {name: column.take(np.flatnonzero(chosen)) for name, column in found.items()}


def _names(text: Ints, texts: dict[int, str]) -> Ints:
    """A number per operator's name."""
    used = np.unique(text).tolist()
    names = {name: i for i, name in enumerate(dict.fromkeys(operator_name(texts[one]) for one in used))}
    table = np.zeros(max(used, default=0) + 1, np.int64)
    table[used] = [names[operator_name(texts[one])] for one in used]
    return table[text]


def operator_name(text: str) -> str:
    """The operator that the text of an event names.

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


def _nested(activity: Activity, thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Bools]:
    """Parent of each event, -1 for none; the innermost event around the start of each API call; and API calls that are
    not inside another."""
    parent = np.full(len(start), -1, np.int64)
    call, slack = activity.call, int(activity.store.meta.get("slack", "0"))
    inner, outer = np.full(len(call["id"].values), -1, np.int64), np.ones(len(call["id"].values), bool)
    by_thread = np.argsort(call["thread"].values, kind="stable")
    sorted_thread = call["thread"].values[by_thread]
    for one in np.unique(thread).tolist():
        low, high = np.searchsorted(thread, [one, one + 1]).tolist()
        mine = by_thread[slice(*np.searchsorted(sorted_thread, [one, one + 1]).tolist())]
        nesting, _ = intervals.nested(start[low:high], end[low:high], slack)
        parent[low:high] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + low, -1)
        begin = call["start"].values[mine]
        around = nesting.innermost(begin)
        inner[mine] = np.where(around >= 0, around + low, -1)
        stop = begin + call["dur"].values[mine]
        outer[mine[1:]] = stop[1:] > np.maximum.accumulate(stop)[:-1]
    return parent, inner, outer


def _replayed(activity: Activity, id_: Ints, onto: Ints, of_event: Ints) -> None:
    """Put events of graph replays at the operator events that they belong to."""
    events, ranges = activity.replayed
    if len(events) and len(id_):
        order = np.argsort(id_)
        place = order[np.minimum(np.searchsorted(id_[order], ranges), len(order) - 1)]
        known = id_[place] == ranges
        of_event[events[known]] = onto[place[known]]


def _timed(activity: Activity, id_: Ints, thread: Ints) -> Bools:
    """Events on other threads than those of graph replays, where times mean nothing but an order."""
    replays = np.unique(thread[np.isin(id_, activity.replayed[1])])
    return np.isin(thread, replays, invert=True)


def _merged(parent: Ints, name: Ints) -> tuple[Bools, Ints]:
    """Which events are kept, and onto which each one goes: one that is the only one inside another of its name goes
    onto that, through any number of them."""
    n = len(parent)
    inside = np.bincount(parent[parent >= 0], minlength=n) if n else parent
    up = np.maximum(parent, 0)
    gone = (parent >= 0) & (inside[up] == 1) & (name[up] == name) if n else np.zeros(0, bool)
    onto = np.where(gone, parent, np.arange(n))
    while gone.any() and (onto[onto] != onto).any():
        onto = onto[onto]
    return ~gone, onto


def _sum(place: Ints, values: Ints, size: int) -> Ints:
    """Sums by place; what is at -1 is left out."""
    out = np.zeros(size, np.int64)
    chosen = np.flatnonzero(place >= 0)
    np.add.at(out, place[chosen], values[chosen])
    return out


def _levels(above: Ints, keep: Bools) -> list[Ints]:
    """Events that are inside others by their depth, the outermost of them first."""
    depth = np.zeros(len(above), np.int32)
    at = np.flatnonzero(keep & (above >= 0))
    here = above[at]
    while len(at):
        depth[at] += 1
        here = above[here]
        at, here = at[here >= 0], here[here >= 0]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    return [order[a:b] for a, b in pairwise(bounds.tolist())]


def _added(own: Ints, above: Ints, levels: list[Ints]) -> Ints:
    """Of each event, its own and that of all inside it."""
    out = own.copy()
    for level in reversed(levels):
        np.add.at(out, above[level], out[level])
    return out


class Places(NamedTuple):
    """Operator events around some moments. `text` of each event; `above`: place of the event around it, -1 for none;
    `levels`: those inside others, by depth; `at`: place of the innermost event around each moment, -1 for none."""

    text: Ints
    above: Ints
    levels: list[Ints]
    at: Ints

    def added(self, own: Ints, how: np.ufunc = np.add) -> Ints:
        """Of each event, its own value and those of all inside it, combined by `how`."""
        out = own.copy()
        for level in reversed(self.levels):
            how.at(out, self.above[level], out[level])
        return out


def places(activity: Activity, texts: dict[int, str], thread: Ints, time: Ints) -> Places:
    """The operator events of a worker, as in `tree`, and which one is around each moment on a thread."""
    found = _events(activity, texts)
    of, start, dur = (found[name].values.astype(np.int64) for name in ("thread", "start", "dur"))
    order = np.argsort(of, kind="stable")
    of, start, end = of[order], start[order], (start + dur)[order]
    slack = int(activity.store.meta.get("slack", "0"))
    parent, at = np.full(len(start), -1, np.int64), np.full(len(time), -1, np.int64)
    slack = int(activity.store.meta.get("slack", "0"))
    for one in np.unique(of).tolist():
        low, high = np.searchsorted(of, [one, one + 1]).tolist()
        nesting, _ = intervals.nested(start[low:high], end[low:high], slack)
        parent[low:high] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + low, -1)
        here = np.flatnonzero(thread == one)
        around = nesting.innermost(time[here])
        at[here] = np.where(around >= 0, around + low, -1)
    text = found["text"].values[order]
    keep, onto = _merged(parent, _names(text, texts))
    above = np.where(parent >= 0, np.r_[onto, -1][parent], -1)
    return Places(text, above, _levels(above, keep), np.r_[onto, -1][at])

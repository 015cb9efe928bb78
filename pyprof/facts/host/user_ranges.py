# SPDX-License-Identifier: Apache-2.0
"""The user's ranges of a worker, with the GPU events launched in each.

A push/pop range, or record_function, has what its thread launched in it and in the ranges inside it. While a thread
waits for a backward pass, autograd's thread launches for it. A start/end range may overlap any other; it has what the
thread that began it launched meanwhile. Ranges of operators, calls and steps are not the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core import intervals
from pyprof.core.marker import LayerMarker, UserMarker, decode
from pyprof.core.model import PUSH_POP, START_END, Bools, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.host_log import operators
from pyprof.parse.paths import is_step
from pyprof.store.ids import first_id
from pyprof.store.kinds import HAS_LENGTH


class _Ranges(NamedTuple):
    """Ranges of a worker by thread, then start. `text`: numbers of strings."""

    thread: Ints
    start: Ints
    end: Ints
    text: Ints
    kind: Ints

    def take(self, index: Ints) -> _Ranges:
        return _Ranges(*(part[index] for part in self))


class _Calls(NamedTuple):
    """Starts of the API calls of each thread, in order, and their places in Activity.call."""

    start: dict[int, Ints]
    place: dict[int, Ints]


def instances(activity: Activity, texts: dict[int, str]) -> tuple[pd.DataFrame, Ints]:
    """Return one row per range, and the places of the GPU events that were launched in no range.

    Columns: worker, thread, path (texts of the ranges around it and its own), kind, start, host (its length),
    kernels and copies launched in it, busy (the union of these on all devices) and span (from the first to the last
    of them, -1 for none).
    """
    ranges = _ranges_of_user(activity, texts)
    calls = _by_thread(activity)
    push_pop, start_end = (ranges.take(np.flatnonzero(ranges.kind == kind)) for kind in (PUSH_POP, START_END))
    parent, at = _nest(activity, push_pop, calls)
    nested = _push_pop(activity, push_pop, parent, at, _paths(push_pop.text, parent, texts))
    table = pd.concat([nested, _start_end(activity, start_end, calls, at, texts)])
    return table, np.flatnonzero(np.r_[at < 0, True][activity.launch])


def _ranges_of_user(activity: Activity, texts: dict[int, str]) -> _Ranges:
    """Return push/pop and start/end ranges that are neither operators nor steps."""
    low, high = first_id(activity.worker), first_id(activity.worker + 1)
    columns = activity.store.columns(
        f"""select thread, start_ns, start_ns + duration_ns as stop, text, kind from range
            where id >= {low} and id < {high} and {HAS_LENGTH} and seq is null order by id"""
    )
    thread, text = columns["thread"].values, columns["text"].values
    is_user = np.zeros(max(texts, default=0) + 1, bool)
    for number in np.unique(text).tolist():
        is_user[number] = isinstance(decode(texts[number]), UserMarker | LayerMarker) and not is_step(texts[number])
    index = np.flatnonzero(is_user[text])
    index = index[np.argsort(thread[index], kind="stable")]
    return _Ranges(*(column.values[index].astype(np.int64) for column in columns.values()))


def _by_thread(activity: Activity) -> _Calls:
    start = activity.call["start_ns"].values
    place = dict(intervals.groups(activity.call["thread"].values))
    return _Calls({thread: start[members] for thread, members in place.items()}, place)


def _nest(activity: Activity, ranges: _Ranges, calls: _Calls) -> tuple[Ints, Ints]:
    """Return the range directly around each by their times on a thread (-1: none), and the innermost range around the
    start of each API call."""
    parent = np.full(len(ranges.start), -1, np.int64)
    at = np.full(len(activity.call["id"].values), -1, np.int64)
    slack = int(activity.store.meta.get("slack", "0"))
    nestings: dict[int, tuple[intervals.Nesting, int]] = {}
    for thread, members in intervals.groups(ranges.thread):
        first = int(members[0])
        nesting, _ = intervals.nested(ranges.start[members], ranges.end[members], slack)
        parent[members] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + first, -1)
        nestings[thread] = nesting, first
        if thread in calls.place:
            around = nesting.innermost(calls.start[thread])
            at[calls.place[thread]] = np.where(around >= 0, around + first, -1)
    for thread, waiting in _waiting(activity).items():
        if thread in calls.place and waiting in nestings:
            place = calls.place[thread][at[calls.place[thread]] < 0]
            nesting, first = nestings[waiting]
            around = nesting.innermost(activity.call["start_ns"].values[place])
            at[place] = np.where(around >= 0, around + first, -1)
    return parent, at


def _waiting(activity: Activity) -> dict[int, int]:
    """Return the thread that waits for each thread of autograd: the one whose forward passes it differentiates; if none
    is known to be paired, the only one that runs forward passes."""
    low = first_id(activity.worker)
    ops = activity.store.table("op", ("thread", "operator", "forward"), low, first_id(activity.worker + 1))
    thread = np.where(ops["thread"].mask(), ops["thread"].values, -1)
    known = operators(activity.store)
    backward = known.backward[ops["operator"].values]
    forward = np.unique(thread[known.computes[ops["operator"].values] & (thread >= 0)])
    alone = int(forward[0]) if len(forward) == 1 else -1
    paired = np.where(ops["forward"].mask(), thread[np.maximum(ops["forward"].values - low, 0)], alone)
    out = {}
    for number, members in intervals.groups(thread[backward]):
        values, counts = np.unique(paired[backward][members], return_counts=True)
        if number >= 0 and (most := int(values[counts.argmax()])) not in (number, -1):
            out[number] = most
    return out


def _start_end(activity: Activity, ranges: _Ranges, calls: _Calls, at: Ints, texts: dict[int, str]) -> pd.DataFrame:
    """Return start/end ranges, each with what its thread launched meanwhile. Sets `at` of these calls to a value other
    than -1."""
    sums = {name: np.zeros(len(ranges.start), np.int64) for name in ("kernels", "copies", "busy")}
    span = np.full(len(ranges.start), -1, np.int64)
    for thread, members in intervals.groups(ranges.thread):
        if thread not in calls.place:
            continue
        place = calls.place[thread]
        turn = np.full(len(at) + 1, -1, np.int64)  # of each call among those of the thread; the last is of "none"
        turn[place] = np.arange(len(place))
        events = np.flatnonzero(turn[activity.launch] >= 0)
        events = events[np.argsort(turn[activity.launch[events]], kind="stable")]
        low, high = (np.searchsorted(calls.start[thread], time[members]) for time in (ranges.start, ranges.end))
        covered = np.cumsum(np.bincount(low, minlength=len(place) + 1) - np.bincount(high, minlength=len(place) + 1))
        at[place[covered[:-1] > 0]] = 0
        first, last = (np.searchsorted(turn[activity.launch[events]], bound) for bound in (low, high))
        for row, begin, stop in zip(members.tolist(), first.tolist(), last.tolist()):
            own = events[begin:stop]
            if len(own):
                kernels = int(activity.kernel[own].sum())
                sums["kernels"][row], sums["copies"][row] = kernels, len(own) - kernels
                busy, extent = intervals.union_and_extent_by(
                    np.zeros(len(own), np.int64), activity.start[own], activity.end[own], 1
                )
                sums["busy"][row], span[row] = busy[0], extent[0]
    paths = [_own(texts[number]) for number in ranges.text.tolist()]
    return _frame(activity, ranges, paths, sums, span)


def _own(text: str) -> str:
    """Return a range's own part of a path."""
    return text.removeprefix("layer:").replace("/", "|")


def _paths(text: Ints, parent: Ints, texts: dict[int, str]) -> list[str]:
    """Return the path of each range, level by level. Each path is built only once."""
    paths: list[str] = []
    out = np.full(len(text) + 1, -1, np.int64)  # the last is of "none"
    for level in _levels(parent):
        code, pairs = pd.factorize((out[parent[level]] + 1) * (int(text.max()) + 1) + text[level])
        first = len(paths)
        for above, own in zip(*(part.tolist() for part in np.divmod(pairs, int(text.max()) + 1))):
            paths.append(f"{paths[above - 1]}/{_own(texts[own])}" if above else _own(texts[own]))
        out[level] = first + code
    return [paths[number] for number in out[:-1].tolist()]


def _levels(parent: Ints) -> list[Ints]:
    """Return ranges by depth, the outermost first."""
    levels: list[Ints] = []
    level, inside = np.flatnonzero(parent < 0), np.flatnonzero(parent >= 0)
    while len(level):
        levels.append(level)
        marked: Bools = np.zeros(len(parent), bool)
        marked[level] = True
        below = marked[parent[inside]]
        level, inside = inside[below], inside[~below]
    return levels


def _push_pop(activity: Activity, ranges: _Ranges, parent: Ints, at: Ints, paths: list[str]) -> pd.DataFrame:
    """Return push/pop ranges, each with what was launched in it and in those inside it. `at`: the innermost range
    around each API call."""
    n = len(ranges.start)
    sums = {name: np.zeros(n, np.int64) for name in ("kernels", "copies", "busy")}
    span = np.full(n, -1, np.int64)
    inner = np.r_[at, -1][activity.launch]
    levels = _levels(parent)
    depth = np.full(n + 1, -1, np.int64)  # the last is of "none"
    for number, level in enumerate(levels):
        depth[level] = number
    for number in range(len(levels) - 1, -1, -1):
        events = np.flatnonzero(depth[inner] == number)
        of, kernel = inner[events], activity.kernel[events]
        sums["kernels"] += np.bincount(of[kernel], minlength=n)
        sums["copies"] += np.bincount(of[~kernel], minlength=n)
        busy, extent = intervals.union_and_extent_by(of, activity.start[events], activity.end[events], n)
        sums["busy"] += busy
        span[of] = extent[of]
        inner[events] = parent[of]
    return _frame(activity, ranges, paths, sums, span)


def _frame(activity: Activity, ranges: _Ranges, paths: list[str], sums: Mapping[str, Ints], span: Ints) -> pd.DataFrame:
    """Return one row per range; span is -1 for one in which nothing was launched."""
    columns = {
        "worker": activity.worker, "thread": ranges.thread, "path": np.array(paths, object), "kind": ranges.kind,
        "host": ranges.end - ranges.start, **sums, "span": span, "start": ranges.start,
    }  # fmt: skip
    return pd.DataFrame(columns)

# SPDX-License-Identifier: Apache-2.0
"""The user's ranges of a worker, with what was launched in each on the GPU.

A push/pop range, or record_function, has what its thread launched in it and in the ranges inside it. A start/end range
may overlap any other: it has what the thread that began it launched meanwhile. Ranges of operators, of calls and of
steps are none of the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof import intervals
from pyprof.analysis.timeline import Activity
from pyprof.marker import LayerMarker, UserMarker, decode
from pyprof.model import Bools, Ints
from pyprof.parse.paths import is_step

PUSH_POP, START_END = 0, 1  # values of range.kind


class _Ranges(NamedTuple):
    """Ranges of a worker by thread, then start. `text`: numbers of strings."""

    thread: Ints
    start: Ints
    end: Ints
    text: Ints
    kind: Ints

    def take(self, some: Ints) -> _Ranges:
        return _Ranges(*(part[some] for part in self))


class _Calls(NamedTuple):
    """Starts of the API calls of each thread, in order, and where each is in Activity.call."""

    start: dict[int, Ints]
    place: dict[int, Ints]


def instances(activity: Activity, texts: dict[int, str]) -> tuple[pd.DataFrame, Ints]:
    """A row per range: worker, thread, path (texts of the ranges around it and its own), kind, start, host (its
    length), kernels and copies launched in it, busy (the union of these on all devices) and span (from the first to
    the last of them, -1 of none). And the places of the GPU events that were launched in no range."""
    found = _users(activity, texts)
    calls = _by_thread(activity)
    stacked, alone = (found.take(np.flatnonzero(found.kind == kind)) for kind in (PUSH_POP, START_END))
    parent, at = _nested(activity, stacked, calls)
    nested = _stacked(activity, stacked, parent, at, _paths(stacked.text, parent, texts))
    table = pd.concat([nested, _alone(activity, alone, calls, at, texts)])
    return table, np.flatnonzero(np.r_[at < 0, True][activity.launch])


def _users(activity: Activity, texts: dict[int, str]) -> _Ranges:
    """Push/pop and start/end ranges that are neither operators nor steps."""
    low, high = activity.worker << 40, (activity.worker + 1) << 40
    found = activity.store.columns(
        f"""select thread, start, start + dur as stop, text, kind from range
            where id >= {low} and id < {high} and kind in ({PUSH_POP}, {START_END}) and seq is null order by id"""
    )
    thread, text = found["thread"].values, found["text"].values
    users = np.zeros(max(texts, default=0) + 1, bool)
    for number in np.unique(text).tolist():
        users[number] = isinstance(decode(texts[number]), UserMarker | LayerMarker) and not is_step(
            texts[number]
        )
    chosen = np.flatnonzero(users[text])
    chosen = chosen[np.argsort(thread[chosen], kind="stable")]
    return _Ranges(*(column.values[chosen].astype(np.int64) for column in found.values()))


def _by_thread(activity: Activity) -> _Calls:
    start = activity.call["start"].values
    place = dict(intervals.groups(activity.call["thread"].values))
    return _Calls({one: start[members] for one, members in place.items()}, place)


def _nested(activity: Activity, found: _Ranges, calls: _Calls) -> tuple[Ints, Ints]:
    """The range directly around each, by their times on a thread (-1: none), and the innermost one around the start of
    each API call."""
    parent = np.full(len(found.start), -1, np.int64)
    at = np.full(len(activity.call["id"].values), -1, np.int64)
    slack = int(activity.store.meta.get("slack", "0"))
    for one, members in intervals.groups(found.thread):
        first = int(members[0])
        nesting, _ = intervals.nested(found.start[members], found.end[members], slack)
        parent[members] = np.where(nesting.parent >= 0, nesting.parent.astype(np.int64) + first, -1)
        if one in calls.place:
            around = nesting.innermost(calls.start[one])
            at[calls.place[one]] = np.where(around >= 0, around + first, -1)
    return parent, at


def _alone(
    activity: Activity, found: _Ranges, calls: _Calls, at: Ints, texts: dict[int, str]
) -> pd.DataFrame:
    """Start/end ranges, each with what its thread launched meanwhile; in `at` these calls get what is not -1."""
    sums = {name: np.zeros(len(found.start), np.int64) for name in ("kernels", "copies", "busy")}
    span = np.full(len(found.start), -1, np.int64)
    for thread, members in intervals.groups(found.thread):
        if thread not in calls.place:
            continue
        place = calls.place[thread]
        turn = np.full(
            len(at) + 1, -1, np.int64
        )  # of each call among those of the thread; the last is of "none"
        turn[place] = np.arange(len(place))
        events = np.flatnonzero(turn[activity.launch] >= 0)
        events = events[np.argsort(turn[activity.launch[events]], kind="stable")]
        low, high = (np.searchsorted(calls.start[thread], time[members]) for time in (found.start, found.end))
        covered = np.cumsum(
            np.bincount(low, minlength=len(place) + 1) - np.bincount(high, minlength=len(place) + 1)
        )
        at[place[covered[:-1] > 0]] = 0
        first, last = (np.searchsorted(turn[activity.launch[events]], bound) for bound in (low, high))
        for one, begin, stop in zip(members.tolist(), first.tolist(), last.tolist()):
            mine = events[begin:stop]
            if len(mine):
                kernels = int(activity.kernel[mine].sum())
                sums["kernels"][one], sums["copies"][one] = kernels, len(mine) - kernels
                busy, extent = intervals.union_and_extent_by(
                    np.zeros(len(mine), np.int64), activity.start[mine], activity.end[mine], 1
                )
                sums["busy"][one], span[one] = busy[0], extent[0]
    paths = [_own(texts[number]) for number in found.text.tolist()]
    return _frame(activity, found, paths, sums, span)


def _own(text: str) -> str:
    """A range's own part of a path."""
    return text.removeprefix("layer:").replace("/", "|")


def _paths(text: Ints, parent: Ints, texts: dict[int, str]) -> list[str]:
    """The path of each range, one level after the other; a path is made once."""
    paths: list[str] = []
    out = np.full(len(text) + 1, -1, np.int64)  # the last is of "none"
    for level in _levels(parent):
        code, pairs = pd.factorize((out[parent[level]] + 1) * (int(text.max()) + 1) + text[level])
        first = len(paths)
        for above, own in zip(*(part.tolist() for part in np.divmod(pairs, int(text.max()) + 1))):
            paths.append(f"{paths[above - 1]}/{_own(texts[own])}" if above else _own(texts[own]))
        out[level] = first + code
    return [paths[one] for one in out[:-1].tolist()]


def _levels(parent: Ints) -> list[Ints]:
    """Ranges by depth, the outermost first."""
    levels: list[Ints] = []
    here, inside = np.flatnonzero(parent < 0), np.flatnonzero(parent >= 0)
    while len(here):
        levels.append(here)
        marked: Bools = np.zeros(len(parent), bool)
        marked[here] = True
        below = marked[parent[inside]]
        here, inside = inside[below], inside[~below]
    return levels


def _stacked(activity: Activity, found: _Ranges, parent: Ints, at: Ints, paths: list[str]) -> pd.DataFrame:
    """Each push/pop range with what was launched in it and in those inside it; `at`: the innermost range around each
    API call."""
    n = len(found.start)
    sums = {name: np.zeros(n, np.int64) for name in ("kernels", "copies", "busy")}
    span = np.full(n, -1, np.int64)
    inner = np.r_[at, -1][activity.launch]
    levels = _levels(parent)
    depth = np.full(n + 1, -1, np.int64)  # the last is of "none"
    for number, level in enumerate(levels):
        depth[level] = number
    for number in range(len(levels) - 1, -1, -1):
        here = np.flatnonzero(depth[inner] == number)
        of, kernel = inner[here], activity.kernel[here]
        sums["kernels"] += np.bincount(of[kernel], minlength=n)
        sums["copies"] += np.bincount(of[~kernel], minlength=n)
        busy, extent = intervals.union_and_extent_by(of, activity.start[here], activity.end[here], n)
        sums["busy"] += busy
        span[of] = extent[of]
        inner[here] = parent[of]
    return _frame(activity, found, paths, sums, span)


def _frame(
    activity: Activity, found: _Ranges, paths: list[str], sums: Mapping[str, Ints], span: Ints
) -> pd.DataFrame:
    """A row per range; span: -1 of one in which nothing was launched."""
    columns = {
        "worker": activity.worker, "thread": found.thread, "path": np.array(paths, object), "kind": found.kind,
        "host": found.end - found.start, **sums, "span": span, "start": found.start,
    }  # fmt: skip
    return pd.DataFrame(columns)

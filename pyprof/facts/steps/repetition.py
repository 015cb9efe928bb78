# SPDX-License-Identifier: Apache-2.0
"""Ends of the turns of a loop that has neither an optimizer nor a data loader: passes over a network.

The layers of one pass are not steps. So the whole computation of the recording has to repeat: an operator that
computes, and that each turn has equally often, tells where turns begin; turns have the same operators, of the same
modules, with weights of the same shapes; hardly anything is computed outside of them. A backward pass belongs to the
forward passes before it. Where a range of the user repeats, its ends are those of the turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.host.host_log import HostLog, Spans

_LEAST = 3  # turns, where modules do not tell a pass from a layer
_EQUAL = 0.8  # share of the turns that have the same operators as most
_OUTSIDE = 0.02  # of a turn's time: the most that is computed once


class Turns(NamedTuple):
    """Turns of a loop: a name of what repeats, their ends in ns, and where the first begins, None if that is not
    known."""

    name: str | None
    ends: Ints
    first: int | None = None


def range_ends(log: HostLog) -> Turns | None:
    """Return the turns by the text of the outermost range that repeats around the computation; None without one."""
    ranges = log.ranges
    if len(ranges.start) < 2:
        return None
    texts, count = np.unique(ranges.key, return_counts=True)
    length = {text: int((ranges.end - ranges.start)[ranges.key == text].sum()) for text in texts.tolist()}
    for text in sorted(texts[count > 1].tolist(), key=lambda text: -length[text]):
        own = ranges.take(ranges.key == text)
        if _repeats(log, own):
            name = log.store.rows("select text from string where id = ?", (text,))[0][0]
            return Turns(name, _with_siblings(ranges, own, texts[count == len(own.start)]))
    return None


def _with_siblings(ranges: Spans, own: Spans, texts: Ints) -> Ints:
    """Return the ends of turns that have one range of each of several texts: the latest of each turn."""
    ends = own.end
    for text in texts.tolist():
        other = ranges.take(ranges.key == text)
        later = np.maximum(ends, other.end)
        if (later[:-1] <= np.minimum(own.start, other.start)[1:]).all():
            ends = later
    return ends


def _repeats(log: HostLog, turns: Spans) -> bool:
    """Return whether ranges are turns of a loop: each computes the same, and they compute nearly everything."""
    executions, known = log.executions, log.operators
    forward = executions.take(known.computes[executions.key])
    if not len(forward.start):
        return bool((known.inside[executions.key]).sum() == 0)
    place = np.searchsorted(turns.start, forward.start, side="right") - 1
    within = (place >= 0) & (forward.end <= turns.end[np.maximum(place, 0)] + 1)
    key = known.site[forward.key]
    if not within.any() or not _same(place[within], key[within], len(turns.start)):
        return False
    backward = executions.start[known.backward[executions.key]]
    of_turn = np.unique(np.searchsorted(turns.start, backward, side="right"))
    if len(of_turn) and len(of_turn) < _EQUAL * len(turns.start):
        return False
    _, kind, count = np.unique(key, return_inverse=True, return_counts=True)
    length = _usual(forward, key)
    once = ~within & (count[kind] < len(turns.start))
    return bool(length[once].sum() * len(turns.start) <= _OUTSIDE * length.sum())


def pass_ends(log: HostLog) -> Turns | None:
    """Return the passes, by the name of the operator with which they begin; None if there are none, or one."""
    executions, known = log.executions, log.operators
    if not len(executions.start):
        return None
    forward, backward = known.computes[executions.key], known.backward[executions.key]
    if backward.any():
        return _passes_with_backward(log, forward, backward)
    spans = executions.take(forward)
    in_module = known.in_module[spans.key]
    if in_module.any():
        spans = spans.take(in_module)
    part = np.arange(len(spans.start))
    if in_module.any() or known.has_shapes[spans.key].any():
        # Each layer is once in a pass, whatever else passes compute.
        layers = np.flatnonzero(known.has_weights[spans.key])
        part = layers if len(layers) else part
    starts = _starts(log, spans.take(part), 2 if in_module.any() else _LEAST)
    if starts is None:
        return None
    starts = part[starts]
    length = _usual(spans, known.site[spans.key])
    if 2 * length[starts[0] : starts[-1]].sum() < length.sum():
        return None
    starts = starts - _lead(known.site[spans.key], starts)
    name = known.names[known.type[spans.key[starts[0]]]]
    ends = np.maximum.accumulate(spans.end)[np.r_[starts[1:], len(spans.start)] - 1]
    return Turns(name, ends, int(spans.start[starts[0]]))


def _lead(what: Ints, starts: Ints) -> int:
    """Return how many operators before its first layer belong to a pass: those that the first two passes share.

    >>> _lead(np.array([5, 1, 7, 8, 9, 1, 7, 8, 9, 1, 7, 8]), np.array([2, 6, 10]))
    1
    """
    first, second = starts[:2].tolist()
    common = what[:first][::-1][: second - first - 1], what[:second][::-1][: second - first - 1]
    size = min(len(part) for part in common)
    return int(np.r_[common[0][:size] == common[1][:size], False].argmin())


def _passes_with_backward(log: HostLog, forward: Bools, backward: Bools) -> Turns | None:
    """Return the ends of backward passes, if there are several, each after the same forward passes."""
    executions, known = log.executions, log.operators
    used = executions.take(forward | backward)
    is_backward = known.backward[used.key]
    begins = np.flatnonzero(is_backward[:-1] & ~is_backward[1:]) + 1
    stops = np.r_[begins, len(used.start)]
    turn = np.searchsorted(begins, np.arange(len(used.start)), side="right")
    if len(begins) == 0:
        return None
    own = ~is_backward
    if not _same(turn[own], known.site[used.key[own]], len(stops)):
        return None
    name = known.names[known.type[used.key[0]]]
    return Turns(name, np.maximum.accumulate(used.end)[stops - 1], int(used.start[0]))


def _same(turn: Ints, key: Ints, turns: int) -> bool:
    """Return whether most of the turns have the same keys."""
    table = pd.DataFrame({"turn": turn, "key": pd.util.hash_array(key)})
    content = table.groupby("turn")["key"].agg(["sum", "size"])
    return bool(content.value_counts().iloc[0] >= _EQUAL * turns)


def _starts(log: HostLog, spans: Spans, least: int) -> Ints | None:
    """Return the places of the operators with which turns begin.

    All that each turn has once begins with the same operator. The number of turns is the largest of which the counts of
    nearly all operators are multiples.
    """
    key = log.operators.site[spans.key]
    _, kind, count = np.unique(key, return_inverse=True, return_counts=True)
    time = np.bincount(kind, _usual(spans, key))
    for turns in np.unique(count)[::-1].tolist():
        if turns < least:
            return None
        if time[count % turns != 0].sum() * turns > _OUTSIDE * time.sum():
            continue
        once = np.flatnonzero(count == turns)
        first = np.array([int(np.argmax(kind == number)) for number in once[:_MOST_FIRST].tolist()])
        if not len(first):
            continue
        starts = np.flatnonzero(kind == kind[first.min()])
        turn = np.searchsorted(starts, np.arange(len(kind)), side="right") - 1
        counted = (turn >= 0) & (count[kind] % turns == 0)
        if _same(turn[counted], key[counted], turns):
            return starts
    return None


def _usual(spans: Spans, what: Ints) -> Any:
    """Return the median length of what each is: one that was held up once must not outweigh all others."""
    return pd.Series(spans.end - spans.start).groupby(what).transform("median").to_numpy()


_MOST_FIRST = 1000  # operators that each turn has once, of which the first is looked for

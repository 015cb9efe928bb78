# SPDX-License-Identifier: Apache-2.0
"""Ends of the turns of a training loop: the last update of parameters in each.

One turn has one update, and may have several calls of an optimizer's `step`. These are not ends of turns:

- a part of `step(closure)` that a run of its closure follows (own recordings have the call in parts);
- a call after which the next one comes without any forward pass between: several optimizers one after the other, an
  optimizer per parameter that steps in the backward pass;
- the first of two optimizers that alternate, as in a GAN. They are told apart by what they execute and on which shapes;
  one that does more now and then is the same. Where that says nothing, a data loader does: batches have one turn each.

With a GradScaler the update of the scale ends a turn, since it also comes where the update of the parameters is
skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyprof.core.marker import CLOSURE
from pyprof.core.model import Bools, Ints
from pyprof.facts.host.host_log import OPTIMIZER_STEP, HostLog, Spans
from pyprof.store import reads

_LONGEST_CYCLE = 12  # calls of optimizers in a turn
_REGULAR = 0.9  # share of the calls that a cycle has to explain
_ALIKE = 0.9  # share of what the smaller of two calls executes that the other does, too, if they are of one optimizer
_MOST_KINDS = 64  # of calls that are compared with each other
_SCALE = "amp_update_scale"


def optimizer_ends(log: HostLog) -> Ints:
    """Return the ends of the turns of a worker's training loop, ns; none without an optimizer."""
    calls = _calls(log)
    if not len(calls.start):
        return calls.end
    calls = calls.take(_before_a_forward(log, calls))
    ends = calls.end[_last_of_turn(_optimizer_of(log, calls))]
    ends = _one_per_batch(log.waits.start, ends)
    executions = log.executions
    scale = executions.end[log.operators.type[executions.key] == log.operators.code(_SCALE)]
    return np.sort(scale) if len(scale) >= len(ends) else ends


def _calls(log: HostLog) -> Spans:
    """Return the calls of `step` of all optimizers, by start."""
    executions = log.executions
    parts = executions.take(log.operators.step[executions.key])
    if not len(parts.start):
        return log.ranges_like(OPTIMIZER_STEP)
    closures = log.ranges_like(CLOSURE)
    if not len(closures.start):
        return parts
    last = np.ones(len(parts.start), bool)
    texts = reads.texts_of(log.store, np.unique(closures.key))
    names = {number: text.removeprefix(CLOSURE).lower() for number, text in texts.items()}
    kind = log.operators.type[parts.key]
    for code in np.unique(kind).tolist():
        of_kind = np.array([n for n, name in names.items() if name == log.operators.names[code]], np.int64)
        for thread in np.unique(parts.thread[kind == code]).tolist():
            own = np.flatnonzero((kind == code) & (parts.thread == thread))
            mask = (closures.thread == thread) & np.isin(closures.key, of_kind)
            never = np.iinfo(np.int64).max
            begins = np.r_[np.sort(closures.start[mask]), never]
            following = np.r_[parts.start[own][1:], never]
            last[own] = begins[np.searchsorted(begins, parts.end[own])] >= following
    return parts.take(last)


def _before_a_forward(log: HostLog, calls: Spans) -> Bools:
    """Return which calls a forward pass follows before the next call begins; all if no forward pass was recorded."""
    executions = log.executions
    starts = executions.start[log.operators.computes[executions.key]]
    if not len(starts):
        return np.ones(len(calls.start), bool)
    begun = np.searchsorted(starts, np.r_[calls.start[1:], np.iinfo(np.int64).max])
    followed: Bools = np.r_[(begun > np.searchsorted(starts, calls.end))[:-1], True]
    return followed


def _optimizer_of(log: HostLog, calls: Spans) -> Ints:
    """Return a number for the optimizer of each call: calls of one line are of one optimizer unless they execute other
    operators or work on other shapes."""
    label: Ints = np.unique(calls.key, return_inverse=True)[1].astype(np.int64)
    if len(calls.start) < 2:
        return label
    events, arguments = log.events_in(calls)
    low, high = (np.searchsorted(events.start, time) for time in (calls.start, calls.end))
    what: Any = _mixed(events.key * 1_000_003 + arguments)
    content: Any = _sums(what, low, high)
    if not log.operators.has_shapes.any():  # names say little: backward passes tell networks apart
        nodes = log.executions.take(log.operators.backward[log.executions.key])
        edges: Ints = np.r_[np.iinfo(np.int64).min, calls.end]
        bounds = np.searchsorted(nodes.start, edges)
        passes = _sums(_mixed(log.operators.type[nodes.key]), bounds[:-1], bounds[1:])
        both = np.column_stack([label.astype(np.uint64), passes])
        _, passes = np.unique(both, axis=0, return_inverse=True)
        label = passes.reshape(-1).astype(np.int64)
    kinds: dict[tuple[int, int], int] = {}
    known: list[_Call] = []
    out = np.empty(len(label), np.int64)
    for i, kind in enumerate(zip(label.tolist(), content.tolist())):
        if kind not in kinds:
            if len(kinds) == _MOST_KINDS:
                return label
            values, counts = np.unique(what[low[i] : high[i]], return_counts=True)
            one = _Call(kind[0], values, counts)
            kinds[kind] = next((n for n, other in enumerate(known) if _alike(one, other)), len(known))
            if kinds[kind] == len(known):
                known.append(one)
        out[i] = kinds[kind]
    return out


def _sums(values: Any, low: Ints, high: Ints) -> Any:
    """Return the sums of hashes in ranges, which tell whether they have the same in any order."""
    total = np.r_[np.uint64(0), np.cumsum(values, dtype=np.uint64)]
    return total[high] - total[low]


def _mixed(values: Ints) -> Any:
    """Return hashes whose sums tell different contents apart."""
    out = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    out ^= out >> np.uint64(29)
    return out * np.uint64(0xBF58476D1CE4E5B9)


class _Call(NamedTuple):
    """A call of an optimizer: its label, hashes of what it executes, and how often each."""

    label: int
    values: Ints
    counts: Ints


def _alike(one: _Call, other: _Call) -> bool:
    """Return whether two calls may be of one optimizer."""
    if one.label != other.label:
        return False
    _, first, second = np.intersect1d(one.values, other.values, assume_unique=True, return_indices=True)
    common = int(np.minimum(one.counts[first], other.counts[second]).sum())
    sizes = sorted((int(one.counts.sum()), int(other.counts.sum())))
    return common >= _ALIKE * sizes[0] if sizes[0] else sizes[1] == 0


def _last_of_turn(which: Ints) -> Bools:
    """Return which calls end a turn: those before a call of the optimizer that steps most often, of several the first,
    if optimizers follow each other in a cycle; else all.

    >>> _last_of_turn(np.array([0, 1, 0, 1, 0, 1])).tolist()
    [False, True, False, True, False, True]
    >>> _last_of_turn(np.array([0, 0, 0, 1, 0, 0, 0, 1])).tolist()  # a critic and a generator
    [True, True, False, True, True, True, False, True]
    >>> bool(_last_of_turn(np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 1])).all())
    True
    """
    numbers, first, count = np.unique(which, return_index=True, return_counts=True)
    cycle = next(
        (p for p in range(1, _LONGEST_CYCLE + 1)
         if len(which) >= 2 * p and (which[p:] == which[:-p]).mean() >= _REGULAR), 1,
    )  # fmt: skip
    if cycle == 1:
        return np.ones(len(which), bool)
    most = numbers[np.lexsort((first, -count))[0]]
    last: Bools = np.r_[which[1:] == most, True]
    return last


def _one_per_batch(waits: Ints, ends: Ints) -> Ints:
    """Return of ends the last one before each wait for the data loader, if each batch has the same number, two or more.
    A loop that first reads all batches does not have its updates between them.

    >>> _one_per_batch(np.array([0, 10, 20]), np.array([4, 8, 14, 18, 24, 28])).tolist()
    [8, 18, 28]
    >>> _one_per_batch(np.array([0, 30]), np.array([4, 8, 14])).tolist()
    [4, 8, 14]
    >>> len(_one_per_batch(np.array([0, 1, 2, 3, 50, 51, 52, 53]), np.array([10, 20, 60, 70])))
    4
    """
    if len(waits) < 2 or not len(ends):
        return ends
    batch = np.searchsorted(waits, ends)
    _, count = np.unique(batch, return_counts=True)
    usual = int(np.bincount(count).argmax())
    between = np.count_nonzero((waits > ends[0]) & (waits < ends[-1])) + 1
    if usual < 2 or len(count) < 2 or (count == usual).mean() < _REGULAR or len(count) < _REGULAR * between:
        return ends
    return ends[np.r_[batch[1:] != batch[:-1], True]]

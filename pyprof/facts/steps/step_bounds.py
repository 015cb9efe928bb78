# SPDX-License-Identifier: Apache-2.0
"""The first and the last step of a loop, of which only the ends of turns are known.

A turn begins where the one before ended. The first begins where the program began to do what it does in a turn: wait
for the data loader, enter ranges, execute operators; what it did before is in no step. After the last end, a turn that
was begun is one more, incomplete step; a rest without the loop's computation is in no step.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyprof.core.model import Ints
from pyprof.facts.host.host_log import HostLog

_TURNS = 51  # that are looked at to learn what a usual one has
_MISSING = 2  # weight of what a usual turn has and the first lacks; of what only the first has 1
_MOST_ITEMS = 1_000_000  # before the end of the first turn that may be of it


class StepBounds(NamedTuple):
    """Starts and ends of steps, ns; whether the last one is incomplete."""

    start: Ints
    end: Ints
    incomplete: bool


class _Items(NamedTuple):
    """Sequence of what a worker's program did: starts in ns, and a code of what it is."""

    start: Ints
    code: Ints


def from_ends(log: HostLog, ends: Ints, last: int, first: int | None = None) -> StepBounds:
    """Return the steps of a loop whose turns end at `ends`. `first`: where the first begins, if that is known; `last`:
    the last time of the recording, ns."""
    first = _first_start(_items(log), ends) if first is None else first
    if first >= ends[0] and len(ends) > 1:  # nothing before the first end is of a turn
        first, ends = int(ends[0]), ends[1:]
    rest = _begins_a_turn(log, first, ends)
    stops = np.r_[ends, last] if rest else ends
    starts = np.r_[first, ends]
    return StepBounds(starts[: len(stops)], stops, rest)


def _items(log: HostLog) -> _Items:
    """Return waits for the data loader, outermost ranges, calls of zero_grad, and executions."""
    known, executions = log.operators, log.executions
    types = int(known.type.max()) + 1 if len(known.type) else 0
    texts = [log.waits, log.ranges, log.zeroed]
    code = [np.full(len(log.waits.start), -1), *(types + spans.key for spans in texts[1:])]
    start = np.concatenate([*(spans.start for spans in texts), executions.start])
    codes = np.concatenate([*code, known.type[executions.key]])
    order = np.argsort(start, kind="stable")  # a range comes before the operator that it begins with
    return _Items(start[order], codes[order].astype(np.int64))


def _first_start(items: _Items, ends: Ints) -> int:
    """Return where the first turn begins: where what follows, until its end, is most like a usual turn; with the first
    item if there is no other turn."""
    place = np.searchsorted(items.start, ends)
    before = items.code[: place[0]]
    turns = [items.code[low:high] for low, high in pairwise(place.tolist()) if high > low]
    if not len(before) or not turns:
        return int(items.start[0]) if len(items.start) else int(ends[0])
    usual = sorted(turns[:_TURNS], key=len)[min(len(turns), _TURNS) // 2]
    missing = Counter(usual.tolist())
    difference = least = _MISSING * len(usual)
    first = len(before)
    for i in range(len(before) - 1, max(len(before) - _MOST_ITEMS, -1), -1):
        code = int(before[i])
        difference += -_MISSING if missing[code] > 0 else 1
        missing[code] -= 1
        if difference < least:
            least, first = difference, i
    return min(int(items.start[first]), int(ends[0])) if first < len(before) else int(ends[0])


def _begins_a_turn(log: HostLog, start: int, ends: Ints) -> bool:
    """Return whether the first layer of the first turn, or else its first computation, comes once more after the last
    end. If it comes more often than in that turn, another loop follows: a validation."""
    executions, known = log.executions, log.operators
    spans = executions.take(known.computes[executions.key])
    if (layers := known.has_weights[spans.key]).any():
        spans = spans.take(layers)
    low, high, rest = np.searchsorted(spans.start, (start, ends[0], ends[-1])).tolist()
    if low == high or rest == len(spans.start):
        return False
    kind = known.site[spans.key]
    again = int(np.count_nonzero(kind[rest:] == kind[low]))
    return 0 < again <= int(np.count_nonzero(kind[low:high] == kind[low]))

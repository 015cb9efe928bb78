# SPDX-License-Identifier: Apache-2.0
"""Operators that a checkpoint stops before they compute, in recordings of the CPU.

A checkpoint that is not reentrant runs its forward again only as far as tensors are missing: when the last one is saved
for the backward it raises an exception. An operator saves operands before it computes and results afterwards, so that
the one that is stopped has computed nothing if its backward needs operands alone. It has an event nevertheless, which
is a row of a recording of the CPU; on a GPU there is no kernel, and no row.

A mark of PyProf's own capture tells that it stopped, or the exception that leaves a generator in `unpack_hook`, where
Python functions are recorded. Without both nobody knows, for a user may have turned it off: then the last operator of
a recomputation, whose hook detaches what it keeps, is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from pyprof import intervals
from pyprof.marker import STOP, STOPPED, CallMarker, decode, encode, is_builtin_node
from pyprof.model import MARK, Arg, Bools, Call, Ints, Trace
from pyprof.parse.saved_operands import SAVES_OPERANDS

_UNPACK = re.compile(r"torch/utils/checkpoint\.py\(\d+\): unpack_hook")
_THROW = "<built-in method throw of generator object"
_DETACH = frozenset(["aten::detach", "detach"])
_BACKWARD = 1  # scope of the function that a node of autograd runs
_NONE = -1


def note(trace: Trace) -> None:
    """Give the operators that were stopped, or may have been, the argument STOPPED. Changes the trace."""
    if len(trace.gpu) or not (trace.ops.scope == _BACKWARD).any():
        return
    recorded = set(np.unique(trace.functions.thread).tolist())
    for number, rows in intervals.groups(trace.ops.thread):
        if not (trace.ops.scope[rows] == _BACKWARD).any():
            continue
        events = _Events(trace, rows)
        if (moments := _marked(trace, number)) is not None:
            _tell(trace, events, events.stopped(moments), True)
        elif number in recorded:
            _tell(trace, events, events.stopped(_thrown(trace, number)), True)
        else:
            _tell(trace, events, events.doubtful(), None)


class _Events:
    """The operator events of a thread, in the order of their starts, with the row of each in the trace."""

    def __init__(self, trace: Trace, rows: Ints):
        ops, texts = trace.ops, trace.strings.texts
        order = ops.order.values[rows] if ops.order.present is None else np.arange(len(rows))
        self.row = rows[intervals.order_by(ops.start[rows], -ops.end[rows], order)]
        self.start, self.end = ops.start[self.row], ops.end[self.row]
        nesting, _ = intervals.nested(self.start, self.end, trace.slack)
        self.parent = np.asarray(nesting.parent, np.int64)
        codes, at = np.unique(ops.name[self.row], return_inverse=True)
        names = [texts[code] for code in codes.tolist()]
        self.detach = np.array([name in _DETACH for name in names], bool)[at]
        numbered = ops.seq.mask()[self.row]
        self.before = numbered & np.array([_saves_operands(name) for name in names], bool)[at]
        self.node = (ops.scope[self.row] == _BACKWARD) & np.array([*map(is_builtin_node, names)], bool)[at]
        self.numbered = numbered & ~self.node

    def stopped(self, moments: Iterable[tuple[int, int, int]]) -> Iterator[int]:
        """The event that was stopped at each moment, between a start and an end of what recomputes."""
        for first, moment, last in moments:
            low, high, end = np.searchsorted(self.start, (first, moment, last)).tolist()
            mine = low + np.flatnonzero(~self.detach[low:high])
            if len(mine) and self.detach[high:end].all() and self.before[mine[-1]]:
                yield int(mine[-1])

    def doubtful(self) -> Iterator[int]:
        """The last event with a number in a node in which operands are copied, if nothing but such copies is in it."""
        inside = np.bincount(self.parent[self.parent >= 0], minlength=len(self.row))
        copies = np.bincount(self.parent[(self.parent >= 0) & self.detach], minlength=len(self.row))
        node = self.around(self.node)
        hooked = set(node[self.numbered & (copies > 0)].tolist())
        last = dict(zip(node[self.numbered].tolist(), np.flatnonzero(self.numbered).tolist()))
        for place, one in last.items():
            if place >= 0 and place in hooked and self.before[one] and copies[one] == inside[one]:
                yield one

    def around(self, marked: Bools) -> Ints:
        """The innermost marked event around each, -1 for none."""
        out = np.full(len(self.row), _NONE, np.int64)
        for place, above in enumerate(self.parent.tolist()):
            if above >= 0:
                out[place] = above if marked[above] else out[above]
        return out


def _saves_operands(name: str) -> bool:
    space, _, own = name.partition("::")
    return space == "aten" and own.rstrip("_") in SAVES_OPERANDS


def _marked(trace: Trace, thread: int) -> list[tuple[int, int, int]] | None:
    """Start, moment and end of recomputations that stopped; None for a recording by others, which has no marks."""
    if trace.format != "capture":
        return None
    ranges, texts = trace.ranges, trace.strings.texts
    mine = np.flatnonzero((ranges.kind == MARK) & (ranges.thread == thread))
    mine = mine[np.array([texts[code] == STOP for code in ranges.text[mine].tolist()], bool)]
    return [(0, time, time) for time in np.sort(ranges.start[mine]).tolist()]


def _thrown(trace: Trace, thread: int) -> Iterator[tuple[int, int, int]]:
    """Start, moment and end of recomputations that an exception left."""
    of, texts = trace.functions, trace.strings.texts
    mine = np.flatnonzero(of.thread == thread)
    mine = mine[intervals.order_by(of.start[mine], -of.end[mine], mine)]
    names = [texts[code] for code in of.name[mine].tolist()]
    hooks = mine[np.array([_UNPACK.search(name) is not None for name in names], bool)]
    throws = mine[np.array([name.startswith(_THROW) for name in names], bool)]
    nesting, _ = intervals.nested(of.start[hooks], of.end[hooks], trace.slack)
    seen = set()
    for row, hook in zip(throws.tolist(), nesting.innermost(of.start[throws]).tolist()):
        if hook >= 0 and hook not in seen:  # the first: others are of generators farther out
            seen.add(hook)
            yield int(of.start[hooks[hook]]), int(of.start[row]), int(of.end[hooks[hook]])


def _tell(trace: Trace, events: _Events, stopped: Iterable[int], certain: bool | None) -> None:
    """Mark events; those around each in the node are stopped for certain, and what ran inside them has costs."""
    text = trace.ops.text.copy()
    for place in stopped:
        told = certain
        while place >= 0 and not events.node[place]:
            row = int(events.row[place])
            known = _call(trace, int(text[row]))
            if known is not None:
                call = known._replace(args=(*known.args, Arg(STOPPED, told)))
                text[row] = trace.strings.code(encode(call))
                if int(trace.ops.text[row]) in trace.calls:
                    trace.calls[int(text[row])] = call
            place, told = int(events.parent[place]), True
    trace.ops = replace(trace.ops, text=text)


def _call(trace: Trace, text: int) -> Call | None:
    marker = decode(trace.strings[text])
    return trace.calls.get(text) or (marker.call if isinstance(marker, CallMarker) else None)

# SPDX-License-Identifier: Apache-2.0
"""Operators that a checkpoint stops before they compute, in recordings of the CPU.

A non-reentrant checkpoint runs its forward again only as far as tensors are missing: when the last one is saved for
the backward it raises an exception. An operator saves operands before it computes and results afterwards, so the
stopped operator has computed nothing if its backward needs only operands. It has an event nevertheless, which is a
row in a recording of the CPU; on a GPU there is no kernel, and no row.

The stop is known from a mark of PyProf's own capture, or from the exception that leaves a generator in
`unpack_hook`, where Python functions are recorded. Without both it is uncertain, because early stop can be turned
off: then the last operator of a recomputation, whose hook detaches what it keeps, is marked as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from pyprof.core import intervals
from pyprof.core.marker import STOP, STOPPED, CallMarker, decode, encode, is_builtin_node
from pyprof.core.model import MARK, Arg, Bools, Call, Ints, Trace
from pyprof.parse.saved_operands import SAVES_OPERANDS

_UNPACK = re.compile(r"torch/utils/checkpoint\.py\(\d+\): unpack_hook")
_THROW = "<built-in method throw of generator object"
_DETACH = frozenset(["aten::detach", "detach"])
_BACKWARD = 1  # scope of the function that a node of autograd runs
_NONE = -1


def note(trace: Trace) -> None:
    """Add the argument STOPPED to the operators that were stopped, or may have been. Changes the trace."""
    if len(trace.gpu) or not (trace.ops.scope == _BACKWARD).any():
        return
    recorded = set(np.unique(trace.functions.thread).tolist())
    for number, rows in intervals.groups(trace.ops.thread):
        if not (trace.ops.scope[rows] == _BACKWARD).any():
            continue
        events = _Events(trace, rows)
        if (moments := _recorded_stops(trace, number)) is not None:
            _mark(trace, events, events.stopped(moments), True)
        elif number in recorded:
            _mark(trace, events, events.stopped(_thrown_stops(trace, number)), True)
        else:
            _mark(trace, events, events.doubtful(), None)


class _Events:
    """The operator events of a thread in the order of their starts, with the row of each in the trace."""

    def __init__(self, trace: Trace, rows: Ints):
        ops, texts = trace.ops, trace.strings.texts
        order = ops.order.values[rows] if ops.order.present is None else np.arange(len(rows))
        self.row = rows[intervals.order_by(ops.start[rows], -ops.end[rows], order)]
        self.start, self.end = ops.start[self.row], ops.end[self.row]
        nesting, _ = intervals.nested(self.start, self.end, trace.slack)
        self.parent = np.asarray(nesting.parent, np.int64)
        codes, inverse = np.unique(ops.name[self.row], return_inverse=True)
        names = [texts[code] for code in codes.tolist()]
        self.detach = np.array([name in _DETACH for name in names], bool)[inverse]
        numbered = ops.seq.mask()[self.row]
        self.before = numbered & np.array([_saves_operands(name) for name in names], bool)[inverse]
        self.node = (ops.scope[self.row] == _BACKWARD) & np.array([*map(is_builtin_node, names)], bool)[inverse]
        self.numbered = numbered & ~self.node

    def stopped(self, moments: Iterable[tuple[int, int, int]]) -> Iterator[int]:
        """Yield the event that was stopped at each moment. Each moment comes with the start and end of its
        recomputation."""
        for first, moment, last in moments:
            low, high, end = np.searchsorted(self.start, (first, moment, last)).tolist()
            before = low + np.flatnonzero(~self.detach[low:high])
            if len(before) and self.detach[high:end].all() and self.before[before[-1]]:
                yield int(before[-1])

    def doubtful(self) -> Iterator[int]:
        """Yield the last numbered event of each node in which operands are copied, if it contains nothing but such
        copies."""
        inside = np.bincount(self.parent[self.parent >= 0], minlength=len(self.row))
        copies = np.bincount(self.parent[(self.parent >= 0) & self.detach], minlength=len(self.row))
        node = self.around(self.node)
        hooked = set(node[self.numbered & (copies > 0)].tolist())
        last = dict(zip(node[self.numbered].tolist(), np.flatnonzero(self.numbered).tolist()))
        for owner, event in last.items():
            if owner >= 0 and owner in hooked and self.before[event] and copies[event] == inside[event]:
                yield event

    def around(self, marked: Bools) -> Ints:
        """Return the innermost marked event around each event, -1 for none."""
        out = np.full(len(self.row), _NONE, np.int64)
        for position, above in enumerate(self.parent.tolist()):
            if above >= 0:
                out[position] = above if marked[above] else out[above]
        return out


def _saves_operands(name: str) -> bool:
    space, _, own = name.partition("::")
    return space == "aten" and own.rstrip("_") in SAVES_OPERANDS


def _recorded_stops(trace: Trace, thread: int) -> list[tuple[int, int, int]] | None:
    """Return start, moment and end of recomputations that stopped; None for recordings of other tools, which have no
    marks."""
    if trace.format != "capture":
        return None
    ranges, texts = trace.ranges, trace.strings.texts
    rows = np.flatnonzero((ranges.kind == MARK) & (ranges.thread == thread))
    rows = rows[np.array([texts[code] == STOP for code in ranges.text[rows].tolist()], bool)]
    return [(0, time, time) for time in np.sort(ranges.start[rows]).tolist()]


def _thrown_stops(trace: Trace, thread: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, moment and end of recomputations that an exception left."""
    functions, texts = trace.functions, trace.strings.texts
    rows = np.flatnonzero(functions.thread == thread)
    rows = rows[intervals.order_by(functions.start[rows], -functions.end[rows], rows)]
    names = [texts[code] for code in functions.name[rows].tolist()]
    hooks = rows[np.array([_UNPACK.search(name) is not None for name in names], bool)]
    throws = rows[np.array([name.startswith(_THROW) for name in names], bool)]
    nesting, _ = intervals.nested(functions.start[hooks], functions.end[hooks], trace.slack)
    seen = set()
    for throw, hook in zip(throws.tolist(), nesting.innermost(functions.start[throws]).tolist()):
        if hook >= 0 and hook not in seen:  # only the first: later ones are of outer generators
            seen.add(hook)
            yield (
                int(functions.start[hooks[hook]]),
                int(functions.start[throw]),
                int(functions.end[hooks[hook]]),
            )


def _mark(trace: Trace, events: _Events, stopped: Iterable[int], certain: bool | None) -> None:
    """Mark stopped events. The events around each in its node are certain to be stopped; work that ran inside them has
    costs."""
    text = trace.ops.text.copy()
    for position in stopped:
        value = certain
        while position >= 0 and not events.node[position]:
            row = int(events.row[position])
            call = _call(trace, int(text[row]))
            if call is not None:
                marked = call._replace(args=(*call.args, Arg(STOPPED, value)))
                text[row] = trace.strings.code(encode(marked))
                if int(trace.ops.text[row]) in trace.calls:
                    trace.calls[int(text[row])] = marked
            position, value = int(events.parent[position]), True
    trace.ops = replace(trace.ops, text=text)


def _call(trace: Trace, text: int) -> Call | None:
    marker = decode(trace.strings[text])
    return trace.calls.get(text) or (marker.call if isinstance(marker, CallMarker) else None)

# SPDX-License-Identifier: Apache-2.0
"""Limits on a recording: the nesting depth of its events, and the number of its processes and devices.

The description of an event (its stack, the path of its module, the calls around it) is as long as the event is deep,
so the memory that a recording takes grows with the square of its depth. Python's own limit for recursion is 1,000,
and the deepest of the recordings tested has less than 200 levels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyprof.core import intervals
from pyprof.core.errors import FormatError
from pyprof.core.model import PUSH_POP, Functions, Trace
from pyprof.parse.trace_builder import count, take

DEEPEST = 2_000
MANY = 4_096  # processes, or devices: each is summed separately


def apply(trace: Trace) -> Trace:
    """Leave out ranges and operators that are nested more than `DEEPEST` deep, and count them.

    Their launches are attributed to the deepest events that remain. Raises FormatError for more than `MANY`
    processes or devices.
    """
    device = trace.gpu.device.values[trace.gpu.device.mask()]
    for number, kind in ((len(trace.processes), "processes"), (len(np.unique(device)), "devices")):
        if number > MANY:
            raise FormatError(f"{trace.path} has events of {number:,} {kind}; expected at most {MANY:,}.")
    ranges, ops = trace.ranges, trace.ops
    nesting = np.flatnonzero(ranges.kind == PUSH_POP)
    start = np.r_[ranges.start[nesting], ops.start]
    end = np.r_[ranges.end.values[nesting], ops.end]
    open_ = np.flatnonzero(~ranges.end.mask()[nesting])
    if len(open_):
        end[open_] = max(int(start.max()), int(end.max())) + 1
    deep = intervals.too_deep(np.r_[ranges.thread[nesting], ops.thread], start, end, DEEPEST)
    if deep is None:
        return trace
    left_out = np.zeros(len(ranges), bool)
    left_out[nesting] = deep[: len(nesting)]
    keep = np.flatnonzero(~deep[len(nesting) :])
    trace.drop(_reason("ranges"), int(left_out.sum()))
    trace.drop(_reason("operators"), len(ops) - len(keep))
    row = np.full(len(ops) + 1, -1, trace.gpu.op.dtype)  # new row of each operator
    row[keep] = np.arange(len(keep))
    return replace(
        trace,
        ranges=take(ranges, np.flatnonzero(~left_out)),
        ops=take(ops, keep),
        gpu=replace(trace.gpu, op=row[trace.gpu.op]),
    )


def functions(calls: Functions, lost: dict[str, int]) -> Functions:
    """Leave out calls of Python functions that are nested more than `DEEPEST` deep, and count them."""
    deep = intervals.too_deep(calls.thread, calls.start, calls.end, DEEPEST)
    if deep is None:
        return calls
    count(lost, _reason("calls of Python functions"), int(deep.sum()))
    return take(calls, np.flatnonzero(~deep))


def _reason(kind: str) -> str:
    return f"{kind} nested more than {DEEPEST:,} deep"

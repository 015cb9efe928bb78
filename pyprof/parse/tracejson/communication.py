# SPDX-License-Identifier: Apache-2.0
"""The call behind a collective: c10d announces each as `record_param_comms`, around the launch of its kernel.

Since 2023 that event records the exchanged data. Before, the shapes are in the operator around it
(`c10d::alltoall_base_`), or, if that has a list of tensors, in the range `nccl:all_reduce` inside it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import DTYPE_BITS, Arg, Call, Collective, Ints, Tensor, Value

ANNOUNCED = "record_param_comms"


def calls(
    thread: Ints, start: Ints, end: Ints, name: Ints, text: Ints, call_of_text: Mapping[int, Call],
    names: Sequence[str], collectives: Mapping[tuple[int, int, int], Collective],
) -> dict[int, Call]:  # fmt: skip
    """Return the calls of the events that announce a collective, by row. Columns are those of operator events,
    `call_of_text` has the calls of their texts; `collectives` has the recorded collectives by thread, start and end,
    from events or ranges."""
    announced = np.array([text == ANNOUNCED for text in names] or [False], bool)
    rows = np.flatnonzero(announced[name])
    if not len(rows):
        return {}
    around = np.array([text.startswith("c10d::") for text in names] or [False], bool)
    outer = _containing(thread, start, end, rows, np.flatnonzero(around[name]))
    inner = sorted(key for key, collective in collectives.items() if collective.sent is not None)
    out = {}
    for row, outer_row in zip(rows.tolist(), outer.tolist()):
        own = collectives.get((int(thread[row]), int(start[row]), int(end[row])))
        if own is not None and own.received is not None:
            out[row] = call(own)
        elif outer_row >= 0 and _describes(call_of_text[int(text[outer_row])]):
            out[row] = call_of_text[int(text[outer_row])]
        else:
            first = bisect_left(inner, (int(thread[row]), int(start[row])))
            if first < len(inner) and inner[first] < (int(thread[row]), int(end[row])):
                out[row] = call(collectives[inner[first]])
    return out


def _containing(thread: Ints, start: Ints, end: Ints, rows: Ints, outer: Ints) -> Ints:
    """Return the event of `outer` around each row, -1 if there is none."""
    out = np.full(len(rows), -1, np.int64)
    around = {number: outer[places] for number, places in groups(thread[outer])}
    for number, index in groups(thread[rows]):
        if number in around:
            candidates = around[number]
            candidates = candidates[np.argsort(start[candidates], kind="stable")]
            event = candidates[np.maximum(np.searchsorted(start[candidates], start[rows[index]], side="right") - 1, 0)]
            fits = (start[event] <= start[rows[index]]) & (end[event] >= end[rows[index]])
            out[index] = np.where(fits, event, -1)
    return out


def _describes(outer: Call) -> bool:
    """Return whether the first argument, which is exchanged, is a tensor of a known type."""
    first = outer.args[0].value if outer.args else None
    return isinstance(first, Tensor) and first.dtype is not None


def call(collective: Collective) -> Call:
    """Convert a collective to a call: its kind, the data that a rank sends and receives, the number of ranks.

    >>> call(Collective("all_gather", 8, 16, "float32", size=2)).args[1:]
    (Arg(name='input', value=Tensor(shape=(2,), dtype='float32', stride=None)), \
Arg(name='output', value=Tensor(shape=(4,), dtype='float32', stride=None)), Arg(name='ranks', value=2))
    """
    width = DTYPE_BITS.get(collective.dtype or "", 0) // 8

    def tensor(size: int | None) -> Value:
        return Tensor((size // width,), collective.dtype) if width and size is not None else None

    return Call("aten", ANNOUNCED, (
        Arg("collective", collective.name), Arg("input", tensor(collective.sent)),
        Arg("output", tensor(collective.received)), Arg("ranks", collective.size),
    ))  # fmt: skip

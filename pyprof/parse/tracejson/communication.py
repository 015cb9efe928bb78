# SPDX-License-Identifier: Apache-2.0
"""The call behind a collective: c10d announces each as `record_param_comms`, around the launch of its kernel.

Since 2023 that event says what is exchanged. Before, the operator around it (`c10d::alltoall_base_`) has the shapes,
or, where that has a list of tensors, the range `nccl:all_reduce` inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pyprof.intervals import groups
from pyprof.model import DTYPE_BITS, Arg, Call, Collective, Ints, Tensor, Value

ANNOUNCED = "record_param_comms"


def calls(
    thread: Ints, start: Ints, end: Ints, name: Ints, text: Ints, known: Mapping[int, Call], names: Sequence[str],
    told: Mapping[tuple[int, int, int], Collective],
) -> dict[int, Call]:  # fmt: skip
    """Calls of the events that announce a collective, by row. Columns are those of operator events, `known` the calls
    of their texts; `told` is what is said of collectives by thread, start and end, in events or ranges."""
    announced = np.array([text == ANNOUNCED for text in names] or [False], bool)
    rows = np.flatnonzero(announced[name])
    if not len(rows):
        return {}
    around = np.array([text.startswith("c10d::") for text in names] or [False], bool)
    outer = _containing(thread, start, end, rows, np.flatnonzero(around[name]))
    inner = sorted((key, what) for key, what in told.items() if what.sent is not None)
    starts = np.array([key[1] for key, _ in inner], np.int64)
    threads = np.array([key[0] for key, _ in inner], np.int64)
    out = {}
    for row, place in zip(rows.tolist(), outer.tolist()):
        mine = told.get((int(thread[row]), int(start[row]), int(end[row])))
        if mine is not None and mine.received is not None:
            out[row] = call(mine)
        elif place >= 0 and _describes(known[int(text[place])]):
            out[row] = known[int(text[place])]
        else:
            inside = np.flatnonzero((threads == thread[row]) & (starts >= start[row]) & (starts < end[row]))
            if len(inside):
                out[row] = call(inner[int(inside[0])][1])
    return out


def _containing(thread: Ints, start: Ints, end: Ints, rows: Ints, outer: Ints) -> Ints:
    """The event of `outer` around each row, -1 where there is none."""
    out = np.full(len(rows), -1, np.int64)
    around = {number: outer[places] for number, places in groups(thread[outer])}
    for number, here in groups(thread[rows]):
        if number in around:
            mine = around[number]
            mine = mine[np.argsort(start[mine], kind="stable")]
            place = mine[np.maximum(np.searchsorted(start[mine], start[rows[here]], side="right") - 1, 0)]
            fits = (start[place] <= start[rows[here]]) & (end[place] >= end[rows[here]])
            out[here] = np.where(fits, place, -1)
    return out


def _describes(outer: Call) -> bool:
    """Whether the first argument, which is exchanged, is a tensor of a known type."""
    first = outer.args[0].value if outer.args else None
    return isinstance(first, Tensor) and first.dtype is not None


def call(what: Collective) -> Call:
    """A collective as a call: its kind, what a rank gives and gets, the number of ranks.

    >>> call(Collective("all_gather", 8, 16, "float32", size=2)).args[1:]
    (Arg(name='input', value=Tensor(shape=(2,), dtype='float32', stride=None)), \
Arg(name='output', value=Tensor(shape=(4,), dtype='float32', stride=None)), Arg(name='ranks', value=2))
    """
    width = DTYPE_BITS.get(what.dtype or "", 0) // 8

    def tensor(size: int | None) -> Value:
        return Tensor((size // width,), what.dtype) if width and size is not None else None

    return Call("aten", ANNOUNCED, (
        Arg("collective", what.name), Arg("input", tensor(what.sent)), Arg("output", tensor(what.received)),
        Arg("ranks", what.size),
    ))  # fmt: skip

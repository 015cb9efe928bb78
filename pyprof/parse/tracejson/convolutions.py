# SPDX-License-Identifier: Apache-2.0
"""Convolutions of traces that have shapes but no values of scalars: 2021 and 2022.

Stride and padding are not recorded there, so the size of the output is unknown. The autograd node of the same sequence
number tells it: its input is the gradient of the output. Some stride and padding lead from the input to that size (with
dilation 1, which for a size that is known changes no count), and stand for the recorded ones. The operators of the
backward get the sizes that they were called with, which are the shapes of the forward's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pyprof.intervals import groups
from pyprof.marker import is_backward
from pyprof.model import Arg, Call, Column, Ints, Other, Tensor, Value

Shape = tuple[int, ...]
# Where the parameters of the forward stand: stride, padding, dilation, groups.
_FORWARD = {
    "aten::conv1d": (3, 4, 5, 6), "aten::conv2d": (3, 4, 5, 6), "aten::conv3d": (3, 4, 5, 6),
    "aten::convolution": (3, 4, 5, 8), "aten::_convolution": (3, 4, 5, 8), "aten::cudnn_convolution": (3, 2, 4, 5),
    "aten::mkldnn_convolution": (4, 3, 5, 6), "aten::miopen_convolution": (4, 3, 5, 6),
}  # fmt: skip
_TRANSPOSED = {"aten::convolution": 6, "aten::_convolution": 6}
_INPUT, _WEIGHT = "aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight"


class Operators(NamedTuple):
    """Columns of operator events; `text` is the code of each one's call in `calls`."""

    thread: Ints
    start: Ints
    end: Ints
    text: Ints
    seq: Column
    forward_thread: Column


def complete(found: Operators, calls: Mapping[int, Call], code: Callable[[Call], int]) -> Ints:
    """Texts with what could be worked out; `code` gives that of a call."""
    wanted = {number: call for number, call in calls.items() if _is_partial(call)}
    rows = np.flatnonzero(np.isin(found.text, list(wanted)))
    if not len(rows):
        return found.text
    gradients = _gradients(found, calls)
    out = found.text.copy()
    known: dict[tuple[int, Shape], int] = {}
    operands: dict[tuple[int, int], tuple[Shape, Shape]] = {}
    for row in rows.tolist():
        number, call = int(found.text[row]), wanted[int(found.text[row])]
        place = int(found.thread[row]), int(found.seq.values[row])
        output = gradients.get(place) if found.seq.mask()[row] else None
        if output is None or call.op not in _FORWARD:
            continue
        key = number, output
        if key not in known:
            known[key] = code(_forward(call, output) or call)
        out[row] = known[key]
        if known[key] != number:
            operands[place] = _operands(call)
    return _backward(found, calls, operands, out, code)


def _is_partial(call: Call) -> bool:
    places = _FORWARD.get(call.op)
    if places is None or len(call.args) <= max(places) or len(_operands(call)[1]) < 3:
        return False
    return isinstance(call.args[places[0]].value, Other)


def _operands(call: Call) -> tuple[Shape, Shape]:
    """Shapes of input and weight, empty where one is no tensor."""
    shapes = [arg.value.shape if isinstance(arg.value, Tensor) else () for arg in call.args[:2]]
    return shapes[0], shapes[1]


def _gradients(found: Operators, calls: Mapping[int, Call]) -> dict[tuple[int, int], Shape]:
    """Shape of the gradient that each convolution's node gets, by thread and number of the forward."""
    nodes = [
        number
        for number, call in calls.items()
        if is_backward(call.op)
        and "onvolution" in call.op
        and call.args
        and isinstance(call.args[0].value, Tensor)
    ]
    rows = np.flatnonzero(np.isin(found.text, nodes) & found.seq.mask() & found.forward_thread.mask())
    out = {}
    for row in rows.tolist():
        gradient = calls[int(found.text[row])].args[0].value
        assert isinstance(gradient, Tensor)
        out[int(found.forward_thread.values[row]), int(found.seq.values[row])] = gradient.shape
    return out


def _forward(call: Call, output: Shape) -> Call | None:
    """The call with stride, padding, dilation and groups that lead to an output; None if none do."""
    input, weight = _operands(call)
    n = len(weight) - 2
    if len(input) != n + 2 or len(output) != n + 2 or output[:2] != (input[0], weight[0]) or not weight[1]:
        return None
    steps = [_step(*sizes) for sizes in zip(input[2:], weight[2:], output[2:])]
    if None in steps or input[1] % weight[1]:
        return None
    found = [step for step in steps if step is not None]
    values: list[Value] = [
        tuple(stride for stride, _ in found), tuple(padding for _, padding in found), (1,) * n, input[1] // weight[1],
    ]  # fmt: skip
    args = list(call.args)
    for place, value in zip(_FORWARD[call.op], values):
        args[place] = Arg("", value)
    if call.op in _TRANSPOSED:  # a transposed one has its channels the other way round, and did not fit
        args[_TRANSPOSED[call.op]] = Arg("", False)
        args[7] = Arg("", (0,) * n)
    return call._replace(args=tuple(args))


def _step(size: int, window: int, output: int) -> tuple[int, int] | None:
    """A stride and a padding of one dimension, the least of each.

    >>> _step(224, 7, 112), _step(56, 3, 56), _step(56, 1, 28), _step(5, 3, 9)
    ((2, 3), (1, 1), (2, 0), None)
    """
    for stride in range(1, size + 1):
        needed = (output - 1) * stride + window - size
        padding = max(0, -(-needed // 2))
        if padding < max(window, 1) and (size + 2 * padding - window) // stride + 1 == output:
            return stride, padding
    return None


def _backward(
    found: Operators,
    calls: Mapping[int, Call],
    operands: dict[tuple[int, int], tuple[Shape, Shape]],
    out: Ints,
    code: Callable[[Call], int],
) -> Ints:
    """The sizes that the backward's operators were called with: of the node around each."""
    wanted = {number: call for number, call in calls.items() if call.op in (_INPUT, _WEIGHT)}
    rows = np.flatnonzero(np.isin(found.text, list(wanted)))
    nodes = np.flatnonzero(found.seq.mask() & found.forward_thread.mask())
    order = nodes[np.lexsort((found.start[nodes], found.thread[nodes]))]
    of_thread = {thread: order[places] for thread, places in groups(found.thread[order])}
    for thread, places in groups(found.thread[rows]):
        if thread not in of_thread:
            continue
        mine, here = of_thread[thread], rows[places]
        place = mine[np.maximum(np.searchsorted(found.start[mine], found.start[here], side="right") - 1, 0)]
        for row, node in zip(here.tolist(), place.tolist()):
            key = int(found.forward_thread.values[node]), int(found.seq.values[node])
            if (
                key in operands
                and found.start[node] <= found.start[row]
                and found.end[row] <= found.end[node]
            ):
                call = wanted[int(found.text[row])]
                size = operands[key][0 if call.op == _INPUT else 1]
                out[row] = code(call._replace(args=(Arg("", size), *call.args[1:])))
    return out

# SPDX-License-Identifier: Apache-2.0
"""Convolutions of traces that have shapes but no values of scalars: 2021 and 2022.

Stride and padding are not recorded there, so the size of the output is unknown. The autograd node of the same
sequence number reveals it: its input is the gradient of the output. Some stride and padding lead from the input to
that size (with dilation 1, which for a known size changes no count), and stand for the recorded ones. The operators
of the backward get the sizes that they were called with, which are the shapes of the forward's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.marker import is_backward
from pyprof.core.model import Arg, Call, Column, Ints, Other, Tensor, Value

Shape = tuple[int, ...]
# Positions of the forward's parameters: stride, padding, dilation, groups.
_FORWARD = {
    "aten::conv1d": (3, 4, 5, 6), "aten::conv2d": (3, 4, 5, 6), "aten::conv3d": (3, 4, 5, 6),
    "aten::convolution": (3, 4, 5, 8), "aten::_convolution": (3, 4, 5, 8), "aten::cudnn_convolution": (3, 2, 4, 5),
    "aten::mkldnn_convolution": (4, 3, 5, 6), "aten::miopen_convolution": (4, 3, 5, 6),
}  # fmt: skip
_TRANSPOSED = {"aten::convolution": 6, "aten::_convolution": 6}
_INPUT, _WEIGHT = "aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight"


class Operators(NamedTuple):
    """Columns of operator events. `text` is the code of each event's call in `calls`."""

    thread: Ints
    start: Ints
    end: Ints
    text: Ints
    seq: Column
    forward_thread: Column


def complete(operators: Operators, calls: Mapping[int, Call], code: Callable[[Call], int]) -> Ints:
    """Return the texts with derived parameters filled in. `code` returns the code of a call."""
    partial = {number: call for number, call in calls.items() if _is_partial(call)}
    rows = np.flatnonzero(np.isin(operators.text, list(partial)))
    if not len(rows):
        return operators.text
    gradients = _gradients(operators, calls)
    out = operators.text.copy()
    cache: dict[tuple[int, Shape], int] = {}
    operands: dict[tuple[int, int], tuple[Shape, Shape]] = {}
    for row in rows.tolist():
        number, call = int(operators.text[row]), partial[int(operators.text[row])]
        forward = int(operators.thread[row]), int(operators.seq.values[row])
        output = gradients.get(forward) if operators.seq.mask()[row] else None
        if output is None or call.op not in _FORWARD:
            continue
        key = number, output
        if key not in cache:
            cache[key] = code(_forward(call, output) or call)
        out[row] = cache[key]
        if cache[key] != number:
            operands[forward] = _operands(call)
    return _backward(operators, calls, operands, out, code)


def _is_partial(call: Call) -> bool:
    places = _FORWARD.get(call.op)
    if places is None or len(call.args) <= max(places) or len(_operands(call)[1]) < 3:
        return False
    return isinstance(call.args[places[0]].value, Other)


def _operands(call: Call) -> tuple[Shape, Shape]:
    """Return the shapes of input and weight, empty for one that is not a tensor."""
    shapes = [arg.value.shape if isinstance(arg.value, Tensor) else () for arg in call.args[:2]]
    return shapes[0], shapes[1]


def _gradients(operators: Operators, calls: Mapping[int, Call]) -> dict[tuple[int, int], Shape]:
    """Return the shape of the gradient that each convolution's node gets, by thread and number of the forward."""
    nodes = [
        number
        for number, call in calls.items()
        if is_backward(call.op) and "onvolution" in call.op and call.args and isinstance(call.args[0].value, Tensor)
    ]
    rows = np.flatnonzero(np.isin(operators.text, nodes) & operators.seq.mask() & operators.forward_thread.mask())
    out = {}
    for row in rows.tolist():
        gradient = calls[int(operators.text[row])].args[0].value
        assert isinstance(gradient, Tensor)
        out[int(operators.forward_thread.values[row]), int(operators.seq.values[row])] = gradient.shape
    return out


def _forward(call: Call, output: Shape) -> Call | None:
    """Return the call with stride, padding, dilation and groups that lead to an output; None if none do."""
    input, weight = _operands(call)
    n = len(weight) - 2
    if len(input) != n + 2 or len(output) != n + 2 or output[:2] != (input[0], weight[0]) or not weight[1]:
        return None
    candidates = [_step(*sizes) for sizes in zip(input[2:], weight[2:], output[2:])]
    if None in candidates or input[1] % weight[1]:
        return None
    pairs = [step for step in candidates if step is not None]
    values: list[Value] = [
        tuple(stride for stride, _ in pairs), tuple(padding for _, padding in pairs), (1,) * n, input[1] // weight[1],
    ]  # fmt: skip
    args = list(call.args)
    for place, value in zip(_FORWARD[call.op], values):
        args[place] = Arg("", value)
    if call.op in _TRANSPOSED:  # a transposed one has its channels the other way round, and did not fit
        args[_TRANSPOSED[call.op]] = Arg("", False)
        args[7] = Arg("", (0,) * n)
    return call._replace(args=tuple(args))


def _step(size: int, window: int, output: int) -> tuple[int, int] | None:
    """Return the smallest stride and padding of one dimension.

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
    operators: Operators,
    calls: Mapping[int, Call],
    operands: dict[tuple[int, int], tuple[Shape, Shape]],
    out: Ints,
    code: Callable[[Call], int],
) -> Ints:
    """Fill in the sizes that the backward's operators were called with: those of the node around each."""
    gradients = {number: call for number, call in calls.items() if call.op in (_INPUT, _WEIGHT)}
    rows = np.flatnonzero(np.isin(operators.text, list(gradients)))
    nodes = np.flatnonzero(operators.seq.mask() & operators.forward_thread.mask())
    order = nodes[np.lexsort((operators.start[nodes], operators.thread[nodes]))]
    of_thread = {thread: order[places] for thread, places in groups(operators.thread[order])}
    for thread, places in groups(operators.thread[rows]):
        if thread not in of_thread:
            continue
        candidates, targets = of_thread[thread], rows[places]
        around = candidates[
            np.maximum(np.searchsorted(operators.start[candidates], operators.start[targets], side="right") - 1, 0)
        ]
        for row, node in zip(targets.tolist(), around.tolist()):
            key = int(operators.forward_thread.values[node]), int(operators.seq.values[node])
            if (
                key in operands
                and operators.start[node] <= operators.start[row]
                and operators.end[row] <= operators.end[node]
            ):
                call = gradients[int(operators.text[row])]
                size = operands[key][0 if call.op == _INPUT else 1]
                out[row] = code(call._replace(args=(Arg("", size), *call.args[1:])))
    return out

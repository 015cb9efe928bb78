# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts of vLLM, whose operator has neither its weights nor k among its arguments.

With Triton's kernels (gpt-oss) the operators inside show both: weights are reshaped before each product, and the
choice of the experts is an operator. The call gets them as `weights` and `topk`. The formula refuses weights whose
sizes do not lead from the tokens' elements and back, so that an unrelated tensor leaves the cost unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import Arg, Call, Ints, Tensor
from pyprof.parse.tracejson.convolutions import Operators

LAYERS = frozenset({"vllm::moe_forward", "vllm::moe_forward_shared"})
_CHOICES = frozenset({"TopK", "aten::topk"})  # triton_kernels/topk.py; their second argument is k


def complete(operators: Operators, calls: Mapping[int, Call], code: Callable[[Call], int]) -> Ints:
    """Return the texts completed from the operators inside each layer. `code` returns the code of a call."""
    layers = {number: call for number, call in calls.items() if call.op in LAYERS}
    if not layers:
        return operators.text
    out = operators.text.copy()
    cache: dict[tuple[int, tuple[int, ...]], int] = {}
    for _, rows in groups(operators.thread):
        rows = rows[np.argsort(operators.start[rows], kind="stable")]
        start = operators.start[rows]
        for row in rows[np.isin(operators.text[rows], list(layers))].tolist():
            first = int(np.searchsorted(start, operators.start[row], side="left"))
            last = int(np.searchsorted(start, operators.end[row], side="left"))
            inside = tuple(operators.text[rows[first:last]].tolist())
            number = int(operators.text[row])
            if (number, inside) not in cache:
                call = _with_experts(layers[number], [calls[i] for i in inside if i in calls])
                cache[number, inside] = number if call is None else code(call)
            out[row] = cache[number, inside]
    return out


def _with_experts(call: Call, inside: Iterable[Call]) -> Call | None:
    """Return the call with weights and k, None if the operators inside do not show them.

    >>> x, logits = Arg("", Tensor((4, 8), "bfloat16")), Arg("", Tensor((4, 3), "bfloat16"))
    >>> weights = [Call("aten", "aten::view", (Arg("", Tensor(shape, "uint8")),)) for shape in ((3, 4, 12), (3, 3, 8))]
    >>> choice = Call("aten", "TopK", (logits, Arg("", 2)))
    >>> layer = _with_experts(Call("aten", "vllm::moe_forward", (x, logits)), [choice, *weights])
    >>> layer.args[-1], [weight.shape for weight in layer.args[-2].value]
    (Arg(name='topk', value=2), [(3, 4, 12), (3, 3, 8)])
    """
    logits = call.args[1].value if len(call.args) > 1 else None
    if not isinstance(logits, Tensor) or len(logits.shape) != 2:
        return None
    topk: set[int] = set()
    weights: list[Tensor] = []
    for other in inside:
        if other.op in _CHOICES and len(other.args) > 1 and type(other.args[1].value) is int:
            topk.add(other.args[1].value)
        for arg in other.args:
            value = arg.value
            if isinstance(value, Tensor) and len(value.shape) == 3 and value.shape[0] == logits.shape[1]:
                plain = Tensor(value.shape, value.dtype)
                weights += [] if plain in weights else [plain]
    if len(topk) != 1 or len(weights) != 2:
        return None
    return call._replace(args=(*call.args, Arg("weights", tuple(weights)), Arg("topk", topk.pop())))

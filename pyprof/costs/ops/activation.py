# SPDX-License-Identifier: Apache-2.0
"""Activation functions and their backward operators.

Counted by their definitions: +, -, *, /, min, max, abs, selection and one special function (exp, log1p, tanh, erf,
sigmoid) are 1 each. The backward reads the gradient and the input (or the result) and writes one gradient. Add an
activation: one row.

>>> relu = FORWARD["relu"]
>>> relu(Tensor((64, 64, 112, 112), "float16"))  # seed: 51380224 elements, read and written
Cost(flops=51380224, bytes=205520896)
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.pointwise import Derivative, elementwise
from pyprof.costs.ops.shapes import like, require

# name: FLOPs per element forward, backward, what is counted. Source: torch.nn.functional.
ACTIVATIONS: dict[str, tuple[int, int]] = {
    "relu": (1, 1),  # max | selection
    "relu6": (2, 2),  # max, min | two selections
    "hardtanh": (2, 2),
    "threshold": (1, 1),
    "_threshold": (1, 1),
    "leaky_relu": (2, 2),  # mul, max | mul, selection
    "prelu": (2, 4),  # mul, max | mul, selection; the weight's gradient: mul, add
    "_prelu_kernel": (2, 4),
    "rrelu": (2, 2),
    "rrelu_with_noise": (2, 2),
    "rrelu_with_noise_functional": (2, 2),
    "elu": (3, 4),  # expm1, mul, selection | exp, mul, mul, selection
    "celu": (4, 4),
    "selu": (4, 4),
    "gelu": (
        5,
        11,
    ),  # x/√2, erf, +1, ·x, ·0.5 | the distribution 4 and the density 4 of the normal law, (Φ + x·φ)·g
    "silu": (2, 6),  # sigmoid, mul | sigmoid, s·(1 + x·(1 - s))·g
    "mish": (4, 10),  # exp, log1p, tanh, mul | these and a sigmoid, (t + x·s·(1 - t²))·g
    "hardswish": (5, 5),  # add, max, min, mul, div
    "hardsigmoid": (4, 2),
    "hardshrink": (2, 2),  # abs, selection
    "softshrink": (3, 2),
    "tanhshrink": (2, 3),
    "softplus": (2, 2),  # exp, log1p | sigmoid, mul
    "softsign": (3, 4),  # abs, add, div
    "logsigmoid": (6, 3),  # min(x, 0) - log1p(exp(-|x|)) | sigmoid(-x)·g
    "log_sigmoid": (6, 3),
    "log_sigmoid_forward": (6, 3),
}

# Dispatcher's backward operators: the activation whose backward they are.
# They take (grad, saved, ...) and return one gradient. Source: PyTorch, tools/autograd/derivatives.yaml.
BACKWARD = {
    "threshold_backward": "threshold", "hardtanh_backward": "hardtanh", "leaky_relu_backward": "leaky_relu",
    "gelu_backward": "gelu", "silu_backward": "silu", "mish_backward": "mish",
    "hardswish_backward": "hardswish", "hardsigmoid_backward": "hardsigmoid", "hardshrink_backward": "hardshrink",
    "softshrink_backward": "softshrink", "softplus_backward": "softplus", "log_sigmoid_backward": "logsigmoid",
    "rrelu_with_noise_backward": "rrelu",
}  # fmt: skip
# Backward operators of functions that stand elsewhere: FLOPs per element.
OTHER_BACKWARD = {"sigmoid_backward": 3, "tanh_backward": 3, "logit_backward": 3}


def _forward(flops: int, backward: int) -> Callable[..., Cost]:
    def activation(input: Tensor, *parameters: Value, inplace: bool = False) -> Cost:
        return elementwise((input,), flops, None, Derivative((backward,), ((0,),)), inplace)

    return activation


def _backward(flops: int) -> Callable[..., Cost]:
    def activation_backward(grad_output: Tensor, saved: Tensor, *parameters: Value) -> Cost:
        return elementwise((grad_output, saved), flops, grad_output.dtype)

    return activation_backward


FORWARD = {
    name: cost(name)(_forward(*row)) for name, row in ACTIVATIONS.items() if "prelu" not in name and name != "gelu"
}
for _name, _of in BACKWARD.items():
    if _of != "gelu":
        cost(_name)(_backward(ACTIVATIONS[_of][1]))
for _name, _flops in OTHER_BACKWARD.items():
    cost(_name)(_backward(_flops))


# 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))): inside the tanh 5. Its gradient: GeLU's kernel in ActivationGeluKernel.cu.
TANH_GELU = (9, 18)


@cost("gelu")
def gelu(input: Tensor, approximate: Value = "none", out: Value = None, inplace: bool = False) -> Cost:
    """x·Φ(x); 9 per element with approximate="tanh". Source: torch.nn.functional.gelu.

    >>> gelu(Tensor((4,), "float32")), gelu(Tensor((4,), "float32"), "tanh")
    (Cost(flops=20, bytes=32), Cost(flops=36, bytes=32))
    """
    return _forward(*(TANH_GELU if approximate == "tanh" else ACTIVATIONS["gelu"]))(input, inplace=inplace)


@cost("gelu_backward")
def gelu_backward(grad_output: Tensor, input: Tensor, approximate: Value = "none") -> Cost:
    """Source: aten::gelu_backward.

    >>> gelu_backward(Tensor((4,), "float32"), Tensor((4,), "float32"))  # 11 each
    Cost(flops=44, bytes=48)
    """
    return _backward((TANH_GELU if approximate == "tanh" else ACTIVATIONS["gelu"])[1])(grad_output, input)


@cost("prelu", "_prelu_kernel")
def prelu(input: Tensor, weight: Tensor) -> Cost:
    """max(0, x) + w·min(0, x), one weight for all or per channel. Source: torch.nn.functional.prelu.

    >>> prelu(Tensor((2, 3, 4), "float32"), Tensor((3,), "float32"))  # (24 + 3 + 24)·4
    Cost(flops=48, bytes=204)
    """
    flops, backward = ACTIVATIONS["prelu"]
    grad = Cost(backward * input.numel, bytes_of(like(input), input, weight, like(input), like(weight)))
    return Cost(flops * input.numel, bytes_of(input, weight, like(input)), dgrad=grad)


@cost("_prelu_kernel_backward")
def prelu_backward(grad_output: Tensor, input: Tensor, weight: Tensor) -> Cost:
    """Gradients of the input and, before its reduction, of the weight. Source: aten::_prelu_kernel_backward.

    >>> prelu_backward(Tensor((2, 3), "float32"), Tensor((2, 3), "float32"), Tensor((1, 3), "float32"))
    Cost(flops=18, bytes=108)
    """
    return Cost(3 * input.numel, bytes_of(grad_output, input, weight, like(input), like(input)))


@cost("elu_backward")
def elu_backward(
    grad_output: Tensor,
    alpha: Value,
    scale: Value,
    input_scale: Value,
    is_result: Value,
    self_or_result: Tensor,
) -> Cost:
    """Backward of elu, celu and selu. Source: aten::elu_backward.

    >>> elu_backward(Tensor((4,), "float32"), 1, 1, 1, False, Tensor((4,), "float32"))
    Cost(flops=16, bytes=48)
    """
    return elementwise((grad_output, self_or_result), 4, grad_output.dtype)


@cost("glu")
def glu(input: Tensor, dim: Value = -1) -> Cost:
    """a·sigmoid(b) of two halves: 2 per element of the result. Backward: 6. Source: torch.nn.functional.glu.

    >>> glu(Tensor((3, 8), "float32"))  # 12 results; (24 + 12)·4
    Cost(flops=24, bytes=144)
    """
    require(input.numel % 2 == 0, "glu halves a dimension")
    half = Tensor((input.numel // 2,), input.dtype)
    return Cost(2 * half.numel, bytes_of(input, half), dgrad=Cost(6 * half.numel, bytes_of(half, input, like(input))))


@cost("glu_backward")
def glu_backward(grad_output: Tensor, input: Tensor, dim: Value = -1) -> Cost:
    """Source: aten::glu_backward.

    >>> glu_backward(Tensor((3, 4), "float32"), Tensor((3, 8), "float32"))
    Cost(flops=72, bytes=240)
    """
    return Cost(6 * grad_output.numel, bytes_of(grad_output, input, like(input)))


@cost("infinitely_differentiable_gelu_backward")
def gelu_double_backward(grad: Tensor, input: Tensor) -> Cost:
    """Backward of gelu in operations that are differentiable again. Source:
    aten::infinitely_differentiable_gelu_backward.

    >>> gelu_double_backward(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=44, bytes=48)
    """
    return elementwise((grad, input), ACTIVATIONS["gelu"][1], grad.dtype)


@cost("glu_jvp")
def glu_jvp(glu_: Tensor, x: Tensor, dx: Tensor, dim: Value) -> Cost:
    """The tangent of glu: 6 per result. Source: aten::glu_jvp.

    >>> glu_jvp(Tensor((3, 4), "float32"), Tensor((3, 8), "float32"), Tensor((3, 8), "float32"), 1)
    Cost(flops=72, bytes=288)
    """
    return Cost(6 * glu_.numel, bytes_of(glu_, x, dx, like(glu_)))

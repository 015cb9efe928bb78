# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax: 5 FLOPs per element: max, subtract, exp, sum, and divide or subtract the row's logarithm.

The backward is 4 per element, for softmax y·(g - Σ g·y), for log-softmax g - exp(y)·Σ g; it reads the gradient and the
result and writes one gradient.

>>> softmax(Tensor((2, 8), "float16"), -1), softmax(Tensor((2, 8), "float16"), -1).dgrad
(Cost(flops=80, bytes=64), Cost(flops=64, bytes=96))
"""

from __future__ import annotations

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import chosen_dtype, dims, dtype_of, floating, like


def _softmax(input: Tensor, dim: Value, dtype: Value) -> Cost:
    dims(dim, len(input.shape))
    output = Tensor(input.shape, floating(chosen_dtype(dtype, input.dtype)))
    dgrad = Cost(4 * input.numel, bytes_of(output, output, like(input)))
    return Cost(5 * input.numel, bytes_of(input, output), dgrad=dgrad)


@cost("softmax", "log_softmax", "softmin", "_safe_softmax")
def softmax(input: Tensor, dim: Value = None, dtype: Value = None, out: Value = None) -> Cost:
    """Source: torch.softmax.

    >>> softmax(Tensor((2, 8), "float16"), 1, dtype="float32")  # 16·2 read, 16·4 written
    Cost(flops=80, bytes=96)
    """
    return _softmax(input, dim, None if isinstance(dtype, Tensor) else dtype)


@cost("torch.nn.functional.softmax", "torch.nn.functional.log_softmax", "torch.nn.functional.softmin")
def functional_softmax(input: Tensor, dim: Value = None, _stacklevel: Value = 3, dtype: Value = None) -> Cost:
    """Source: torch.nn.functional.softmax, which has a different third parameter.

    >>> functional_softmax(Tensor((2, 8), "float16"), 1, 3)
    Cost(flops=80, bytes=64)
    """
    return _softmax(input, dim, dtype)


@cost("_softmax", "_log_softmax")
def softmax_kernel(input: Tensor, dim: Value, half_to_float: Value = False, out: Value = None) -> Cost:
    """Source: aten::_softmax; half_to_float writes float32 for any input.

    >>> softmax_kernel(Tensor((2, 8), "float16"), 1, True)
    Cost(flops=80, bytes=96)
    """
    return _softmax(input, dim, "float32" if half_to_float is True else None)


@cost("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(
    grad_output: Tensor,
    output: Tensor,
    dim: Value = None,
    input_dtype: Value = None,
    grad_input: Value = None,
) -> Cost:
    """Source: aten::_softmax_backward_data.

    >>> softmax_backward(Tensor((2, 8), "float32"), Tensor((2, 8), "float32"), 1, 5)  # the input was float16
    Cost(flops=64, bytes=160)
    """
    dtype = dtype_of(input_dtype) or (None if isinstance(input_dtype, Other) else output.dtype)
    return Cost(4 * output.numel, bytes_of(grad_output, output, Tensor(output.shape, dtype)))


@cost("_masked_softmax")
def masked_softmax(input: Tensor, mask: Tensor, dim: Value = None, mask_type: Value = None) -> Cost:
    """Softmax over the unmasked elements: one selection more. Source: aten::_masked_softmax.

    >>> masked_softmax(Tensor((2, 8), "float32"), Tensor((2, 8), "bool"))
    Cost(flops=96, bytes=144)
    """
    return Cost(6 * input.numel, bytes_of(input, mask, like(input)))


@cost("_masked_softmax_backward")
def masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: Value = None) -> Cost:
    """Source: aten::_masked_softmax_backward.

    >>> x = Tensor((2, 8), "float32")
    >>> masked_softmax_backward(x, x, Tensor((2, 8), "bool"))
    Cost(flops=80, bytes=208)
    """
    return Cost(5 * output.numel, bytes_of(grad_output, output, mask, like(output)))


@cost("gumbel_softmax")
def gumbel_softmax(logits: Tensor, tau: Value = 1, hard: Value = False, eps: Value = 1e-10, dim: Value = -1) -> Cost:
    """Noise -log(-log u) 4, add and scale 2, softmax 5; hard: a comparison per element and 2 additions.

    Source: torch.nn.functional.gumbel_softmax.

    >>> gumbel_softmax(Tensor((2, 8), "float32"))
    Cost(flops=176, bytes=128)
    """
    plain = _softmax(logits, dim, None)
    per_element = 14 if hard is True else 11
    return plain._replace(flops=per_element * logits.numel)

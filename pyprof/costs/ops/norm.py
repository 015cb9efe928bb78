# SPDX-License-Identifier: Apache-2.0
"""Normalisations: layer, group and RMS norm and their backward; the counting rules of batch norm too (batchnorm.py).

FLOPs per element. With statistics: mean 1, variance 3 (subtract, square, add), subtract and scale 2, and with weight
and bias 1 each: 8 (7 without bias, 6 without both). Batch norm with given statistics: 2 (+2). RMS norm: square, add,
scale 3 (+1). Backward with batch statistics: the normalised value 2, two sums 3, the result 4: 9. If the weight is not
constant over the averaged elements (layer and group norm), the scaled gradient 1, the sum for the weight 2 and for the
bias 1: 13. Work per row, channel or group is not counted.

Bytes: input and output, weight and bias once; running statistics are read, and in training written. Statistics saved
for the backward are not counted. The backward, all in dgrad, reads gradient and input and writes one gradient each.

>>> layer_norm(Tensor((4, 8), "float16"), (8,), Tensor((8,), "float16"), Tensor((8,), "float16"))
Cost(flops=256, bytes=160)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, like, require, sizes

Stat = Tensor | None
EVERY = (True, True, True)


def backward(
    input: Tensor, weight: Stat, bias: Stat, flops: int, mask: Value = None, grad: Tensor | None = None
) -> Cost:
    """Return the cost of a backward: reads gradient, input and weight; writes the gradients selected by output_mask
    (input, weight, bias).

    >>> backward(Tensor((4, 8), "float32"), Tensor((8,), "float32"), Tensor((8,), "float32"), 13)
    Cost(flops=416, bytes=480)
    """
    on = mask if isinstance(mask, tuple) and len(mask) == 3 else EVERY
    written = [t for t, selected in zip((input, weight, bias), on) if selected and t is not None]
    read = like(input) if grad is None else grad
    return Cost(flops * input.numel, bytes_of(read, input, weight, *(like(t) for t in written)))


def _affine_backward(weight: Stat, bias: Stat) -> int:
    """Return the FLOPs per element of a layer or group norm's backward."""
    return 9 + (3 if weight is not None else 0) + (1 if bias is not None else 0)


def normalized(input: Tensor, weight: Stat, bias: Stat, groups: bool = True) -> Cost:
    """Return the cost of layer, group and instance norm: statistics of the input itself."""
    affine = (weight is not None) + (bias is not None)
    dgrad = backward(input, weight, bias, _affine_backward(weight, bias))
    return Cost((6 + affine) * input.numel, bytes_of(input, weight, bias, like(input)), dgrad=dgrad)


@cost("layer_norm", "native_layer_norm")
def layer_norm(
    input: Tensor, normalized_shape: Value, weight: Stat = None, bias: Stat = None, eps: Value = 1e-5,
    cudnn_enable: Value = True,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.layer_norm.

    >>> layer_norm(Tensor((4, 8), "float16"), (8,), Tensor((8,), "float16"), Tensor((8,), "float16"))
    Cost(flops=256, bytes=160)
    >>> layer_norm(Tensor((4, 8), "float16"), (8,), Tensor((8,), "float16"))  # no bias: 7·32; 64 + 16 + 64
    Cost(flops=224, bytes=144)
    """
    shape = sizes((normalized_shape,))
    require(input.shape[len(input.shape) - len(shape) :] == shape, f"{input.shape} does not end in {shape}")
    return normalized(input, weight, bias)


@cost("native_layer_norm_backward")
def native_layer_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Value, mean: Stat, rstd: Stat, weight: Stat = None,
    bias: Stat = None, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::native_layer_norm_backward.

    >>> x, w, s = (Tensor(shape, "float32") for shape in ((4, 8), (8,), (4, 1)))
    >>> native_layer_norm_backward(x, x, (8,), s, s, w, w)
    Cost(flops=416, bytes=480)
    """
    return backward(input, weight, bias, _affine_backward(weight, bias), output_mask, grad_out)


@cost("group_norm")
def group_norm(
    input: Tensor,
    num_groups: Value,
    weight: Stat = None,
    bias: Stat = None,
    eps: Value = 1e-5,
    cudnn: Value = True,
) -> Cost:
    """Source: torch.nn.functional.group_norm.

    >>> group_norm(Tensor((2, 4, 3), "float32"), 2)
    Cost(flops=144, bytes=192)
    """
    require(input.shape[1] % as_int(num_groups) == 0, "groups do not divide the channels")
    return normalized(input, weight, bias)


@cost("native_group_norm")
def native_group_norm(input: Tensor, weight: Stat, bias: Stat, *sizes_and_group: Value) -> Cost:
    """Source: aten::native_group_norm.

    >>> native_group_norm(Tensor((2, 4, 3), "float32"), None, None, 2, 4, 3, 2, 1e-5)
    Cost(flops=144, bytes=192)
    """
    return normalized(input, weight, bias)


@cost("native_group_norm_backward")
def native_group_norm_backward(
    grad_out: Tensor, input: Tensor, mean: Stat, rstd: Stat, weight: Stat = None, N: Value = None, C: Value = None,
    HxW: Value = None, group: Value = None, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::native_group_norm_backward.

    >>> x, c, s = (Tensor(shape, "float32") for shape in ((2, 4, 3), (4,), (2, 2)))
    >>> native_group_norm_backward(x, x, s, s, c, 2, 4, 3, 2)  # 3·24 + 3·4
    Cost(flops=312, bytes=336)
    """
    return backward(input, weight, weight, _affine_backward(weight, weight), output_mask, grad_out)


@cost("rms_norm", "_fused_rms_norm")
def rms_norm(input: Tensor, normalized_shape: Value, weight: Stat = None, eps: Value = None) -> Cost:
    """x / √mean(x²) (·w). Backward 9 with weight, 6 without. Source: torch.nn.functional.rms_norm.

    >>> rms_norm(Tensor((4, 8), "float32"), (8,), Tensor((8,), "float32"))  # 32 + 8 + 32
    Cost(flops=128, bytes=288)
    """
    shape = sizes((normalized_shape,))
    require(prod(input.shape[len(input.shape) - len(shape) :]) == prod(shape), "the shape does not end in it")
    affine = 1 if weight is not None else 0
    dgrad = backward(input, weight, None, 6 + 3 * affine)
    return Cost((3 + affine) * input.numel, bytes_of(input, weight, like(input)), dgrad=dgrad)


@cost("_fused_rms_norm_backward")
def fused_rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Value,
    rstd: Stat,
    weight: Stat = None,
    output_mask: Value = None,
) -> Cost:
    """Source: aten::_fused_rms_norm_backward.

    >>> x, w, s = (Tensor(shape, "float32") for shape in ((4, 8), (8,), (4, 1)))
    >>> fused_rms_norm_backward(x, x, (8,), s, w)  # 3·32 + 2·8
    Cost(flops=288, bytes=448)
    """
    mask = (*output_mask, False) if isinstance(output_mask, tuple) and len(output_mask) == 2 else None
    return backward(input, weight, None, 9 if weight is not None else 6, mask, grad_out)


@cost("normalize")
def normalize(input: Tensor, p: Value = 2.0, dim: Value = 1, eps: Value = 1e-12, out: Value = None) -> Cost:
    """x / max(‖x‖, eps): square, add, divide. Backward 5. Source: torch.nn.functional.normalize.

    >>> normalize(Tensor((4, 8), "float32"))
    Cost(flops=96, bytes=256)
    """
    return Cost(3 * input.numel, bytes_of(input, like(input)), dgrad=backward(input, None, None, 5))

# SPDX-License-Identifier: Apache-2.0
"""Matrix products and convolutions in the forms of backends: their backward in one call, or with an epilogue.

A backward carries the parts that its output_mask selects; the bias gradient adds up rows, one FLOP per element.

>>> x, w, g = (Tensor(s, "float32") for s in [(6, 8), (5, 8), (6, 5)])
>>> linear_backward(x, g, w, (True, True, True))  # 2·480; 2·(48 + 40 + 30)·4 + (30 + 5)·4
Cost(flops=960, bytes=1084)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.conv import conv2d
from pyprof.costs.ops.gemm import linear, matmul
from pyprof.costs.ops.shapes import as_int, backward_sum, broadcast, require, sizes


def _on(mask: Value, n: int) -> tuple[Value, ...]:
    return mask if isinstance(mask, tuple) and len(mask) == n else (True,) * n


@cost("linear_backward", "mkldnn_linear_backward")
def linear_backward(input: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Value = None) -> Cost:
    """Gradients of input, weight and bias; as in convolution_backward the additions for the bias count only by
    themselves. Source: aten::linear_backward.

    >>> x, w, g = (Tensor(s, "float32") for s in [(6, 8), (5, 8), (6, 5)])
    >>> linear_backward(x, g, w, (True, False, False))
    Cost(flops=480, bytes=472)
    """
    whole, mask = linear(input, weight, Tensor(weight.shape[:1], weight.dtype)), _on(output_mask, 3)
    bgrad = whole.bgrad if not (mask[0] or mask[1]) or whole.bgrad is None else whole.bgrad._replace(flops=0)
    return backward_sum(*(part for part, on in zip((whole.dgrad, whole.wgrad, bgrad), mask) if on))


@cost("mkldnn_linear_backward_input")
def mkldnn_linear_backward_input(input_size: Value, grad_output: Tensor, weight: Tensor) -> Cost:
    """Source: aten::mkldnn_linear_backward_input.

    >>> mkldnn_linear_backward_input((6, 8), Tensor((6, 5), "float32"), Tensor((5, 8), "float32"))
    Cost(flops=480, bytes=472)
    """
    return linear_backward(Tensor(sizes((input_size,)), weight.dtype), grad_output, weight, (True, False, False))


@cost("mkldnn_linear_backward_weights")
def mkldnn_linear_backward_weights(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_defined: Value = False
) -> Cost:
    """Source: aten::mkldnn_linear_backward_weights.

    >>> x, w, g = (Tensor(s, "float32") for s in [(6, 8), (5, 8), (6, 5)])
    >>> mkldnn_linear_backward_weights(g, x, w, True)
    Cost(flops=480, bytes=612)
    """
    return linear_backward(input, grad_output, weight, (False, True, bias_defined))


@cost("matmul_backward")
def matmul_backward(grad: Tensor, input: Tensor, other: Tensor, mask: Value = None) -> Cost:
    """Gradients of both factors. Source: aten::matmul_backward.

    >>> matmul_backward(Tensor((6, 5), "float32"), Tensor((6, 8), "float32"), Tensor((8, 5), "float32"), (True, True))
    Cost(flops=960, bytes=944)
    """
    whole = matmul(input, other)
    return backward_sum(*(part for part, on in zip((whole.dgrad, whole.wgrad), _on(mask, 2)) if on))


@cost("mkldnn_linear", "mkldnn::_linear_pointwise", "onednn::linear_dynamic_fp16", "onednn::linear_relu_dynamic_fp16")
def linear_pointwise(input: Tensor, weight: Tensor, bias: Value = None, *epilogue: Value) -> Cost:
    """y = f(x Wᵀ + b): the epilogue f is free. Its binary form reads another operand, which is the second argument.

    Source: aten::mkldnn_linear; mkldnn::_linear_pointwise, aten/src/ATen/native/mkldnn/Linear.cpp.

    >>> x, w = Tensor((6, 8), "float32"), Tensor((5, 8), "float32")
    >>> linear_pointwise(x, w, None, "relu", (), ""), linear_pointwise(x, Tensor((6, 5), "float32"), w, None, "add")
    (Cost(flops=480, bytes=472), Cost(flops=480, bytes=592))
    """
    if isinstance(bias, Tensor) and len(bias.shape) == 2:
        other, weight, added = weight, bias, epilogue[0] if epilogue else None
        plain = linear(input, weight, added if isinstance(added, Tensor) else None)
        moved = bytes_of(other)
        return Cost(plain.flops, None if plain.bytes is None or moved is None else plain.bytes + moved)
    return linear(input, weight, bias if isinstance(bias, Tensor) else None)


@cost("mkl::_mkl_linear")
def mkl_linear(input: Tensor, packed: Tensor, weight: Tensor, bias: Value = None, batch: Value = 0) -> Cost:
    """The weight counts once; its packed form is not counted. Source: mkl::_mkl_linear.

    >>> mkl_linear(Tensor((6, 8), "float32"), Tensor((99,), "float32"), Tensor((5, 8), "float32"))
    Cost(flops=480, bytes=472)
    """
    return linear(input, weight, bias if isinstance(bias, Tensor) else None)


@cost("mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise_")
def convolution_pointwise(input: Tensor, weight: Tensor, bias: Value, *parameters: Value) -> Cost:
    """(X, W, B, padding, stride, dilation, groups, ...) or (X, other, W, B, padding, ...); in place, other is first.

    Source: mkldnn::_convolution_pointwise, aten/src/ATen/native/mkldnn/Conv.cpp.

    >>> x, w, y = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> convolution_pointwise(x, w, None, (0, 0), (1, 1), (1, 1), 1, "relu")
    Cost(flops=1296, bytes=632)
    >>> convolution_pointwise(x, y, w, None, (0, 0), (1, 1), (1, 1), 1, "add")
    Cost(flops=1296, bytes=776)
    """
    other: Tensor | None = None
    if isinstance(bias, Tensor) and len(bias.shape) > 1:
        other, weight = weight, bias
        bias, *remaining = parameters
        if input.shape[1] == weight.shape[0] and other.shape[1] != weight.shape[0]:
            input, other = other, input
    else:
        remaining = list(parameters)
    padding, stride, dilation, groups = remaining[:4]
    plain = conv2d(input, weight, bias if isinstance(bias, Tensor) else None, stride, padding, dilation, groups)
    other_bytes = bytes_of(other)
    return Cost(plain.flops, None if plain.bytes is None or other_bytes is None else plain.bytes + other_bytes)


@cost("cudnn_convolution_add_relu", "miopen_convolution_add_relu")
def convolution_add_relu(
    input: Tensor, weight: Tensor, z: Tensor, alpha: Value = None, bias: Tensor | None = None, stride: Value = 1,
    padding: Value = 0, dilation: Value = 1, groups: Value = 1,
) -> Cost:  # fmt: skip
    """relu(conv(input) + alpha·z + bias): z is read. Source: aten::cudnn_convolution_add_relu.

    >>> x, w, z = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> convolution_add_relu(x, w, z, 1.0, None, (1, 1), (0, 0), (1, 1), 1)
    Cost(flops=1296, bytes=776)
    """
    plain = conv2d(input, weight, bias, stride, padding, dilation, groups)
    read = bytes_of(z)
    return Cost(plain.flops, None if plain.bytes is None or read is None else plain.bytes + read)


@cost("conv_tbc")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor | None = None, pad: Value = 0) -> Cost:
    """Input (T, B, C), weight (R, C, K): 2·T'·B·C·K·R, T' = T + 2·pad - R + 1. Source: torch.conv_tbc.

    >>> conv_tbc(Tensor((6, 2, 3), "float32"), Tensor((2, 3, 4), "float32"), Tensor((4,), "float32"))  # T' = 5
    Cost(flops=480, bytes=416)
    """
    (t, b, c), (r, c2, k) = input.shape, weight.shape
    steps = t + 2 * as_int(pad) - r + 1
    require(c == c2 and steps > 0, "shapes do not fit")
    output = Tensor((steps, b, k), input.dtype)
    flops = 2 * output.numel * c * r
    part = Cost(flops, bytes_of(input, weight, output))
    bgrad = None if bias is None else Cost(output.numel, bytes_of(output, bias))
    return Cost(flops, bytes_of(input, weight, bias, output), dgrad=part, wgrad=part, bgrad=bgrad)


@cost("conv_tbc_backward")
def conv_tbc_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None, pad: Value = 0
) -> Cost:
    """All three gradients. Source: aten::conv_tbc_backward.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> conv_tbc_backward(t(5, 2, 4), t(6, 2, 3), t(2, 3, 4), t(4))  # 2·480 + 40
    Cost(flops=1000, bytes=976)
    """
    whole = conv_tbc(input, weight, bias, pad)
    return backward_sum(whole.dgrad, whole.wgrad, whole.bgrad)


@cost("_trilinear")
def trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Value, expand2: Value, expand3: Value, sumdim: Value,
    unroll_dim: Value = 1,
) -> Cost:  # fmt: skip
    """Σ i1·i2·i3 over `sumdim` after inserting dimensions of size 1 as given by `expand`; each product of three and its
    addition: 3 per term where i1 and i2 share what is summed, but i1·i2 is contracted first over the summed
    dimensions that i3 lacks: 2 per term, then 2 per term of the result with i3. Source: aten::_trilinear,
    Linear.cpp.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> trilinear(t(6, 3), t(5, 3, 4), t(6, 4), (1, 3), (0,), (1, 2), (2, 3))  # bilinear: 2·6·5·4·(3 + 1)
    Cost(flops=960, bytes=528)
    """
    operands = (i1, i2, i3)
    expands = [set(sizes((e,))) for e in (expand1, expand2, expand3)]
    rank = len(i1.shape) + len(expands[0])
    shapes = []
    for operand, missing in zip(operands, expands):
        own = iter(operand.shape)
        shapes.append(tuple(1 if d in missing else next(own) for d in range(rank)))
    whole = broadcast(*shapes)
    summed = set(sizes((sumdim,)))
    first = {d for d in summed if d in expands[2]}  # summed before i3 comes in
    after = prod(n for d, n in enumerate(whole) if d not in first)
    output = Tensor(tuple(n for d, n in enumerate(whole) if d not in summed), i1.dtype)
    return Cost(2 * prod(whole) + 2 * after, bytes_of(i1, i2, i3, output))

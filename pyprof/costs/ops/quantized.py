# SPDX-License-Identifier: Apache-2.0
"""The `quantized::` operators. Weights are packed objects without a recorded shape: products whose output is also
unknown have unknown FLOPs and bytes. The formulas use what the arguments contain.

>>> quantized_add(Tensor((4, 8), "quint8"), Tensor((4, 8), "quint8"), 0.1, 0)
Cost(flops=320, bytes=96)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.conv import convolve
from pyprof.costs.ops.gemm import matmul
from pyprof.costs.ops.lowprecision import packed_linear
from pyprof.costs.ops.norm import normalized
from pyprof.costs.ops.shapes import as_int, broadcast, chosen_dtype, like, require, result_dtype, tensors_in


@cost("quantized::add", "quantized::add_relu", "quantized::mul", "quantized::mul_relu", "quantized::add_out",
      "quantized::mul_out", "quantized::add_relu_out", "quantized::mul_relu_out")  # fmt: skip
def quantized_add(qa: Tensor, qb: Value, *parameters: Value) -> Cost:
    """Dequantise both (4), operate (1), quantise (5): 10 per element. Source: quantized::add.

    >>> quantized_add(Tensor((4, 8), "quint8"), Tensor((8,), "quint8"), 0.1, 0)
    Cost(flops=320, bytes=72)
    """
    operands = [qb] if isinstance(qb, Tensor) else []
    output = Tensor(broadcast(qa.shape, *(t.shape for t in operands)), qa.dtype)
    return Cost(10 * output.numel, bytes_of(qa, *operands, output))


@cost("quantized::add_scalar", "quantized::add_scalar_relu", "quantized::mul_scalar", "quantized::mul_scalar_relu",
      "quantized::relu6", "quantized::threshold")  # fmt: skip
def quantized_scalar(qa: Tensor, *parameters: Value) -> Cost:
    """Changes the parameters or clamps the integers: 2 per element. Source: quantized::add_scalar.

    >>> quantized_scalar(Tensor((4, 8), "quint8"), 3)
    Cost(flops=64, bytes=64)
    """
    return Cost(2 * qa.numel, bytes_of(qa, like(qa)))


@cost("quantized::sigmoid", "quantized::hardswish", "quantized::leaky_relu", "quantized::elu", "quantized::celu",
      "quantized::prelu")  # fmt: skip
def quantized_activation(qx: Tensor, *parameters: Value) -> Cost:
    """Dequantise 2, the function 3 on average of the table of activations, quantise 5: 10. Source: quantized::sigmoid.

    >>> quantized_activation(Tensor((4, 8), "quint8"), 0.1, 0)
    Cost(flops=320, bytes=64)
    """
    return Cost(10 * qx.numel, bytes_of(qx, *tensors_in(parameters), like(qx)))


@cost("quantized::softmax")
def quantized_softmax(qx: Tensor, dim: Value, *parameters: Value) -> Cost:
    """Softmax 5, dequantise 2, quantise 5. Source: quantized::softmax.

    >>> quantized_softmax(Tensor((4, 8), "quint8"), 1, 0.1, 0)
    Cost(flops=384, bytes=64)
    """
    return Cost(12 * qx.numel, bytes_of(qx, like(qx)))


@cost("quantized::matmul")
def quantized_matmul(qa: Tensor, qb: Tensor, scale: Value, zero_point: Value) -> Cost:
    """Both operands are tensors. Source: quantized::matmul.

    >>> quantized_matmul(Tensor((4, 8), "qint8"), Tensor((8, 5), "qint8"), 0.1, 0)
    Cost(flops=320, bytes=92)
    """
    return matmul(qa, qb)._replace(dgrad=None, wgrad=None)


@cost("quantized::batch_norm", "quantized::batch_norm1d", "quantized::batch_norm2d", "quantized::batch_norm3d",
      "quantized::batch_norm_relu", "quantized::batch_norm1d_relu", "quantized::batch_norm2d_relu",
      "quantized::batch_norm3d_relu")  # fmt: skip
def quantized_batch_norm(
    qx: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, *parameters: Value
) -> Cost:
    """2 per element: scale and shift are folded. Source: quantized::batch_norm2d.

    >>> c = Tensor((3,), "float32")
    >>> quantized_batch_norm(Tensor((2, 3, 4), "quint8"), c, c, c, c, 1e-5, 0.1, 0)
    Cost(flops=96, bytes=96)
    """
    affine = 2 if weight is not None else 0
    return Cost((2 + affine) * qx.numel, bytes_of(qx, weight, bias, mean, var, like(qx)))


@cost("quantized::layer_norm")
def quantized_layer_norm(
    input: Tensor, normalized_shape: Value, weight: Tensor | None, bias: Tensor | None, *parameters: Value
) -> Cost:
    """Source: quantized::layer_norm.

    >>> w = Tensor((8,), "float32")
    >>> quantized_layer_norm(Tensor((4, 8), "quint8"), (8,), w, w, 1e-5, 0.1, 0)
    Cost(flops=256, bytes=128)
    """
    return normalized(input, weight, bias)._replace(dgrad=None)


@cost("quantized::group_norm")
def quantized_group_norm(
    input: Tensor, num_groups: Value, weight: Tensor | None, bias: Tensor | None, *parameters: Value
) -> Cost:
    """Source: quantized::group_norm.

    >>> quantized_group_norm(Tensor((2, 4, 3), "quint8"), 2, None, None, 1e-5, 0.1, 0)
    Cost(flops=144, bytes=48)
    """
    return normalized(input, weight, bias)._replace(dgrad=None)


@cost("quantized::instance_norm")
def quantized_instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, *parameters: Value) -> Cost:
    """Source: quantized::instance_norm.

    >>> quantized_instance_norm(Tensor((2, 4, 3), "quint8"), None, None, 1e-5, 0.1, 0)
    Cost(flops=144, bytes=48)
    """
    return normalized(input, weight, bias)._replace(dgrad=None)


@cost("quantized::cat", "quantized::cat_relu")
def quantized_cat(qx: Value, dim: Value, scale: Value = None, zero_point: Value = None) -> Cost:
    """Requantises if the scales differ, which is not recorded: counted as copies. Source: quantized::cat.

    >>> quantized_cat((Tensor((4, 8), "quint8"),) * 2, 0)
    Cost(flops=0, bytes=128)
    """
    parts = tensors_in((qx,))
    output = Tensor((sum(t.numel for t in parts),), result_dtype(*parts) or parts[0].dtype)
    return Cost(0, bytes_of(*parts, output))


@cost("quantized::embedding_bag_byte_rowwise_offsets")
def embedding_bag_byte_rowwise(
    weight: Tensor, indices: Tensor, offsets: Tensor | None = None, *parameters: Value
) -> Cost:
    """Rows end in a scale and a bias of 4 bytes each: D + 8 bytes. Dequantise 2 and add 1 per element.

    Source: quantized::embedding_bag_byte_rowwise_offsets.

    >>> embedding_bag_byte_rowwise(Tensor((10, 12), "uint8"), Tensor((6,), "int64"), Tensor((2,), "int64"))
    Cost(flops=72, bytes=168)
    """
    width = weight.shape[1]
    bags = offsets.shape[0] if isinstance(offsets, Tensor) else indices.shape[0]
    rows, output = Tensor((indices.numel, width), weight.dtype), Tensor((bags, width - 8), "float32")
    return Cost(3 * indices.numel * (width - 8), bytes_of(rows, indices, offsets, output))


@cost("onednn::qlinear_pointwise")
def qlinear_pointwise(
    qx: Tensor,
    x_scale: Value,
    x_zero_point: Value,
    qw: Tensor,
    w_scale: Tensor,
    w_zero_point: Value,
    *parameters: Value,
) -> Cost:
    """(M, K) int8 by a weight (K, N): N is the number of the weight's scales, or its last size. The binary form has
    another operand before the bias. Source: onednn::qlinear_pointwise, quantized/cpu/qlinear.cpp.

    >>> x, w, s = Tensor((4, 8), "uint8"), Tensor((8, 5), "int8"), Tensor((5,), "float32")
    >>> qlinear_pointwise(x, 0.1, 0, w, s, Tensor((5,), "int64"), None, 1.0, 0, 6, "none", (), "")
    Cost(flops=320, bytes=212)
    """
    require(qw.numel % max(qx.shape[-1], 1) == 0, "shapes do not fit")
    dtypes = [v for v in parameters[3:6] if type(v) is int and v in (6, 15, 5)]
    kind = chosen_dtype(dtypes[0], None) if dtypes else qx.dtype
    return packed_linear(qx, qw.numel // qx.shape[-1], (qw, w_scale, w_zero_point, *parameters[:2]), kind)


@cost(
    "onednn::qconv_pointwise",
    "onednn::qconv2d_pointwise",
    "onednn::qconv1d_pointwise",
    "onednn::qconv3d_pointwise",
)
def qconv_pointwise(
    qx: Tensor, x_scale: Value, x_zero_point: Value, qw: Tensor, w_scale: Tensor, w_zero_point: Value,
    bias: Tensor | None, stride: Value, padding: Value, dilation: Value, groups: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: onednn::qconv_pointwise, quantized/cpu/qconv.cpp.

    >>> x, w, s = Tensor((1, 2, 5, 5), "uint8"), Tensor((4, 2, 3, 3), "int8"), Tensor((4,), "float32")
    >>> qconv_pointwise(x, 0.1, 0, w, s, None, None, (1, 1), (0, 0), (1, 1), 1, 1.0, 0, None, "none", (), "")
    Cost(flops=1296, bytes=174)
    """
    plain = convolve(qx, qw, bias, stride, padding, dilation, False, 0, as_int(groups))
    kind = chosen_dtype(parameters[2], qx.dtype) if len(parameters) > 2 else qx.dtype
    assert plain.flops is not None
    count = plain.flops // max(2 * prod(qw.shape[1:]), 1)  # elements of the output
    scales = tensors_in((x_scale, x_zero_point, w_scale, w_zero_point))
    return Cost(plain.flops, bytes_of(qx, qw, bias, *scales, Tensor((count,), kind)))

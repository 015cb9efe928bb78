# SPDX-License-Identifier: Apache-2.0
"""Quantisation and dequantisation, and the fake quantisation of training.

Quantising divides, rounds, adds the zero point and clamps twice: 5 FLOPs per element; dequantising subtracts and
multiplies: 2; fake quantisation does both: 7. Its backward selects: 1. Parameters per tensor that are numbers are free.

>>> quantize_per_tensor(Tensor((4, 8), "float32"), 0.1, 0, 13)  # quint8: 128 + 32
Cost(flops=160, bytes=160)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_tensor, chosen_dtype, like, require, tensors_in

FLOATS = {
    "qint8": "float32",
    "quint8": "float32",
    "qint32": "float32",
    "quint4x2": "float32",
    "quint2x4": "float32",
}


@cost("quantize_per_tensor")
def quantize_per_tensor(input: Value, scale: Value, zero_point: Value, dtype: Value = None) -> Cost:
    """One tensor or a list. Source: torch.quantize_per_tensor.

    >>> quantize_per_tensor(Tensor((4, 8), "float32"), Tensor((), "float32"), Tensor((), "int64"), 12).bytes
    172
    """
    kind = chosen_dtype(dtype, None)
    parts = tensors_in((input,))
    require(bool(parts), "a tensor is expected")
    results = [Tensor(t.shape, kind) for t in parts]
    parameters_read = tensors_in((scale, zero_point))
    return Cost(5 * sum(t.numel for t in parts), bytes_of(*parts, *parameters_read, *results))


@cost("quantize_per_tensor_dynamic")
def quantize_per_tensor_dynamic(input: Tensor, dtype: Value, reduce_range: Value = False) -> Cost:
    """First finds minimum and maximum, 2 per element. Source: torch.quantize_per_tensor_dynamic.

    >>> quantize_per_tensor_dynamic(Tensor((4, 8), "float32"), 13, False)
    Cost(flops=224, bytes=160)
    """
    return Cost(7 * input.numel, bytes_of(input, Tensor(input.shape, chosen_dtype(dtype, None))))


@cost("quantize_per_channel")
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: Value, dtype: Value) -> Cost:
    """Source: torch.quantize_per_channel.

    >>> quantize_per_channel(Tensor((4, 8), "float32"), Tensor((4,), "float64"), Tensor((4,), "int64"), 0, 12)
    Cost(flops=160, bytes=224)
    """
    return Cost(5 * input.numel, bytes_of(input, scales, zero_points, Tensor(input.shape, chosen_dtype(dtype, None))))


@cost("dequantize")
def dequantize(input: Value) -> Cost:
    """To float32, a tensor or a list. Source: torch.dequantize.

    >>> dequantize(Tensor((4, 8), "qint8"))
    Cost(flops=64, bytes=160)
    """
    parts = tensors_in((input,))
    require(bool(parts), "a tensor is expected")
    results = [Tensor(t.shape, FLOATS.get(t.dtype or "", t.dtype)) for t in parts]
    return Cost(2 * sum(t.numel for t in parts), bytes_of(*parts, *results))


@cost("int_repr")
def int_repr(input: Tensor) -> Cost:
    """A copy of the underlying integers. Source: torch.int_repr.

    >>> int_repr(Tensor((4, 8), "qint8"))
    Cost(flops=0, bytes=64)
    """
    kind = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(input.dtype or "")
    return Cost(0, bytes_of(input, Tensor(input.shape, kind)))


def _fake(input: Tensor, *parameters: Value, mask: bool = False, per_element: int = 7) -> Cost:
    written = [like(input), *([Tensor(input.shape, "bool")] if mask else [])]
    dgrad = Cost(input.numel, bytes_of(like(input), input, like(input)))
    return Cost(per_element * input.numel, bytes_of(input, *tensors_in(parameters), *written), dgrad=dgrad)


@cost("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
      "_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine",
      "_saturate_weight_to_fp16")  # fmt: skip
def fake_quantize(input: Tensor, scale: Value = None, zero_point: Value = None, *parameters: Value) -> Cost:
    """Rounds to the values of the quantised type. Source: torch.fake_quantize_per_tensor_affine.

    >>> fake_quantize(Tensor((4, 8), "float32"), 0.1, 0, 0, 255)
    Cost(flops=224, bytes=256)
    """
    return _fake(as_tensor(input), scale, zero_point)


@cost("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
      "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")  # fmt: skip
def fake_quantize_cachemask(input: Tensor, scale: Value, zero_point: Value, *parameters: Value) -> Cost:
    """Also writes a mask of the elements inside the range. Source: aten::fake_quantize_per_tensor_affine_cachemask.

    >>> fake_quantize_cachemask(Tensor((4, 8), "float32"), 0.1, 0, 0, 255)
    Cost(flops=224, bytes=288)
    """
    return _fake(as_tensor(input), scale, zero_point, mask=True)


@cost(
    "fake_quantize_per_tensor_affine_cachemask_backward",
    "fake_quantize_per_channel_affine_cachemask_backward",
)
def fake_quantize_backward(grad: Tensor, mask: Tensor) -> Cost:
    """Source: aten::fake_quantize_per_tensor_affine_cachemask_backward.

    >>> fake_quantize_backward(Tensor((4, 8), "float32"), Tensor((4, 8), "bool"))
    Cost(flops=32, bytes=288)
    """
    return Cost(grad.numel, bytes_of(grad, mask, like(grad)))


@cost(
    "_fake_quantize_learnable_per_tensor_affine_backward",
    "_fake_quantize_learnable_per_channel_affine_backward",
)
def fake_quantize_learnable_backward(
    grad: Tensor, input: Tensor, scale: Tensor, zero_point: Tensor, *parameters: Value
) -> Cost:
    """Gradients of input, scale and zero point: quantised again (5), three selections, two sums.

    Source: aten::_fake_quantize_learnable_per_tensor_affine_backward.

    >>> s = Tensor((1,), "float32")
    >>> fake_quantize_learnable_backward(Tensor((4, 8), "float32"), Tensor((4, 8), "float32"), s, s, 0, 255)
    Cost(flops=320, bytes=400)
    """
    moved = bytes_of(grad, input, scale, zero_point, like(input), like(scale), like(zero_point))
    return Cost(10 * input.numel, moved)


@cost(
    "fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional"
)
def fused_observer(input: Tensor, *parameters: Value) -> Cost:
    """Minimum and maximum (2 per element), then fake quantisation. Running values are a few numbers, read and not
    counted as written. Source: aten::_fused_moving_avg_obs_fq_helper.

    >>> one = Tensor((1,), "float32")
    >>> fused_observer(Tensor((4, 8), "float32"), one, one, one, one, one, one, 0.01, 0, 255, -1)
    Cost(flops=288, bytes=312)
    """
    return _fake(as_tensor(input), *parameters, mask=True, per_element=9)


@cost("_choose_qparams_per_tensor", "choose_qparams_optimized")
def choose_qparams(input: Tensor, *parameters: Value) -> Cost:
    """Minimum and maximum of everything; the results are numbers of the host. The length of the search for the best
    ones depends on data. Source: aten::_choose_qparams_per_tensor.

    >>> choose_qparams(Tensor((4, 8), "float32"))
    Cost(flops=64, bytes=128)
    """
    return Cost(2 * input.numel, bytes_of(input))

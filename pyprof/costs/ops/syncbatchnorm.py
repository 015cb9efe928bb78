# SPDX-License-Identifier: Apache-2.0
"""The parts of batch norm that run separately: SyncBatchNorm's kernels, and the backward in one call.

Per element: statistics 4 (mean 1, variance 3), normalisation 2 and 2 more with weight and bias; the two sums of the
backward 4 (one addition; subtract, multiply, add), its result 5. Work per channel is not counted, as in `norm`.

>>> batch_norm_stats(Tensor((2, 3, 4), "float16"), 1e-5)  # 24·2 + 2·3·4: statistics are float32
Cost(flops=96, bytes=72)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.batchnorm import dispatched_batch_norm
from pyprof.costs.ops.norm import Stat, backward
from pyprof.costs.ops.shapes import as_tensor, like


def _channels(input: Tensor) -> Tensor:
    """Return a statistic: one value per channel, in float32 for 16-bit inputs."""
    dtype = "float32" if input.dtype in ("float16", "bfloat16") else input.dtype
    return Tensor((input.shape[1],), dtype)


@cost("batch_norm_stats")
def batch_norm_stats(input: Tensor, eps: Value) -> Cost:
    """Mean and inverse deviation. Source: aten::batch_norm_stats.

    >>> batch_norm_stats(Tensor((2, 3, 4), "float32"), 1e-5)
    Cost(flops=96, bytes=120)
    """
    return Cost(4 * input.numel, bytes_of(input, _channels(input), _channels(input)))


@cost("batch_norm_update_stats")
def batch_norm_update_stats(input: Tensor, running_mean: Stat, running_var: Stat, momentum: Value) -> Cost:
    """Statistics, and the running ones read and written. Source: aten::batch_norm_update_stats.

    >>> c = Tensor((3,), "float32")
    >>> batch_norm_update_stats(Tensor((2, 3, 4), "float32"), c, c, 0.1)  # 24 + 4·3 + 2·3
    Cost(flops=96, bytes=168)
    """
    running = [t for t in (running_mean, running_var) if t is not None]
    return Cost(4 * input.numel, bytes_of(input, *running, *running, _channels(input), _channels(input)))


@cost("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Stat, running_var: Stat, momentum: Value, eps: Value,
    count: Value,
) -> Cost:  # fmt: skip
    """Statistics (ranks, C) combined; the input gives only its dtype. About 8 FLOPs per combined value.

    Source: aten::batch_norm_gather_stats_with_counts.

    >>> c, s = Tensor((3,), "float32"), Tensor((4, 3), "float32")
    >>> batch_norm_gather_stats(Tensor((2, 3, 4), "float32"), s, s, c, c, 0.1, 1e-5, Tensor((4,), "float32"))
    Cost(flops=96, bytes=184)
    """
    running = [t for t in (running_mean, running_var) if t is not None]
    counts = [count] if isinstance(count, Tensor) else []
    result = Tensor(mean.shape[1:], mean.dtype)
    return Cost(8 * mean.numel, bytes_of(mean, invstd, *counts, *running, *running, result, result))


@cost("batch_norm_elemt")
def batch_norm_elemt(input: Tensor, weight: Stat, bias: Stat, mean: Tensor, invstd: Tensor, eps: Value) -> Cost:
    """Subtract, scale, and weight and bias. Source: aten::batch_norm_elemt.

    >>> c = Tensor((3,), "float32")
    >>> batch_norm_elemt(Tensor((2, 3, 4), "float32"), c, c, c, c, 1e-5)
    Cost(flops=96, bytes=240)
    """
    affine = 2 if weight is not None else 0
    return Cost((2 + affine) * input.numel, bytes_of(input, weight, bias, mean, invstd, like(input)))


@cost("batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Stat, input_g: Value, weight_g: Value,
    bias_g: Value,
) -> Cost:  # fmt: skip
    """Σ g and Σ g·(x - mean): 4 per element; two sums and the gradients of weight and bias are written.

    Source: aten::batch_norm_backward_reduce.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_backward_reduce(x, x, c, c, c, True, True, True)  # 2·24 + 3·3 + 4·3
    Cost(flops=96, bytes=276)
    """
    written = [like(mean)] * (2 * bool(input_g) + bool(weight_g) + bool(bias_g))
    return Cost(4 * input.numel, bytes_of(grad_out, input, mean, invstd, weight, *written))


@cost("batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Stat, sum_dy: Tensor, sum_dy_xmu: Tensor,
    count: Value,
) -> Cost:  # fmt: skip
    """(g - mean g - (x - mean)·factor)·scale: 5 per element. Source: aten::batch_norm_backward_elemt.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_backward_elemt(x, x, c, c, c, c, c, Tensor((1,), "int32"))  # 3·24 + 5·3 + 1
    Cost(flops=120, bytes=352)
    """
    counts = [count] if isinstance(count, Tensor) else []
    read = (grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, *counts)
    return Cost(5 * input.numel, bytes_of(*read, like(input)))


@cost("_batch_norm_impl_index_backward")
def batch_norm_impl_index_backward(
    impl_index: Value, input: Tensor, grad_output: Tensor, weight: Stat, running_mean: Stat, running_var: Stat,
    save_mean: Value, save_var_transform: Value, train: Value = True, eps: Value = 0.0, output_mask: Value = None,
    reservedSpace: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::_batch_norm_impl_index_backward.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_impl_index_backward(1, x, x, c, c, c, c, c)  # 3·24 + 3·3
    Cost(flops=216, bytes=324)
    """
    return backward(input, weight, weight, 9, output_mask)


@cost("_batch_norm_with_update_functional")
def batch_norm_with_update_functional(
    input: Tensor,
    weight: Stat,
    bias: Stat,
    running_mean: Stat,
    running_var: Stat,
    momentum: Value,
    eps: Value,
) -> Cost:
    """New running statistics are results. Source: aten::_batch_norm_with_update_functional.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_with_update_functional(x, c, c, c, c, 0.1, 1e-5)
    Cost(flops=192, bytes=264)
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, True)


@cost("quantized_batch_norm")
def quantized_batch_norm(
    input: Tensor, weight: Stat, bias: Stat, mean: Tensor, var: Tensor, eps: Value, output_scale: Value = 1.0,
    output_zero_point: Value = 0,
) -> Cost:  # fmt: skip
    """With given statistics. Source: aten::quantized_batch_norm.

    >>> c = Tensor((3,), "float32")
    >>> quantized_batch_norm(Tensor((2, 3, 4), "quint8"), c, c, c, c, 1e-5)
    Cost(flops=96, bytes=96)
    """
    affine = 2 if weight is not None else 0
    as_tensor(input)
    return Cost((2 + affine) * input.numel, bytes_of(input, weight, bias, mean, var, like(input)))

# SPDX-License-Identifier: Apache-2.0
"""Batch and instance norm, in all of the dispatcher's spellings, and their backward. The counting rules are in `norm`.

>>> c = Tensor((64,), "float32")
>>> batch_norm(Tensor((64, 64, 112, 112), "float16"), c, c, c, c, training=True).flops  # seed: 8 · 51380224
411041792
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.norm import Stat, backward
from pyprof.costs.ops.shapes import like, require


@cost("torch.nn.functional.batch_norm")
def batch_norm(
    input: Tensor, running_mean: Stat, running_var: Stat, weight: Stat = None, bias: Stat = None,
    training: Value = False, momentum: Value = 0.1, eps: Value = 1e-5,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.batch_norm.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm(x, c, c, c, c, True), batch_norm(x, c, c, c, c)  # 24 in, 24 out, 4·3 read, 2·3 written
    (Cost(flops=192, bytes=264), Cost(flops=96, bytes=240))
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, training)


@cost("batch_norm", "_batch_norm_impl_index", "native_batch_norm", "_native_batch_norm_legit",
      "_native_batch_norm_legit_functional", "cudnn_batch_norm", "miopen_batch_norm")  # fmt: skip
def dispatched_batch_norm(
    input: Tensor, weight: Stat, bias: Stat, running_mean: Value = None, running_var: Value = None,
    training: Value = False, *parameters: Value,
) -> Cost:  # fmt: skip
    """Weight and bias come first. Source: aten::batch_norm; _native_batch_norm_legit.no_stats has `training` as its
    fourth argument.

    >>> dispatched_batch_norm(Tensor((2, 3, 4), "float32"), None, None, None, None, True, 0.1, 1e-5)
    Cost(flops=144, bytes=192)
    """
    if isinstance(running_mean, bool):
        running_mean, running_var, training = None, None, running_mean
    stats = [t for t in (running_mean, running_var) if isinstance(t, Tensor)]
    affine = 2 if weight is not None else 0
    channels = input.shape[1]
    require(
        all(t.shape == (channels,) for t in (*stats, weight, bias) if isinstance(t, Tensor)),
        "not one per channel",
    )
    moved = bytes_of(input, weight, bias, *stats, like(input))
    if training or not stats:
        dgrad = backward(input, weight, bias, 9)
        return Cost(
            (6 + affine) * input.numel,
            bytes_of(input, weight, bias, *stats, *stats, like(input)),
            dgrad=dgrad,
        )
    dgrad = backward(input, weight, bias, 1 + 2 * affine)  # scale; sums for weight and bias
    return Cost((2 + affine) * input.numel, moved, dgrad=dgrad)


@cost("_batch_norm_with_update")
def batch_norm_with_update(
    input: Tensor,
    weight: Stat,
    bias: Stat,
    running_mean: Stat,
    running_var: Stat,
    momentum: Value,
    eps: Value,
) -> Cost:
    """Source: aten::_batch_norm_with_update: always training.

    >>> batch_norm_with_update(Tensor((2, 3, 4), "float32"), None, None, None, None, 0.1, 1e-5)
    Cost(flops=144, bytes=192)
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, True)


@cost("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm_no_training(
    input: Tensor,
    weight: Stat,
    bias: Stat,
    running_mean: Stat,
    running_var: Stat,
    momentum: Value,
    eps: Value,
) -> Cost:
    """Source: aten::_native_batch_norm_legit_no_training.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_no_training(x, c, c, c, c, 0.1, 1e-5)
    Cost(flops=96, bytes=240)
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, False)


@cost("native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Stat, running_mean: Stat, running_var: Stat, save_mean: Stat,
    save_invstd: Stat, train: Value, eps: Value, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::native_batch_norm_backward. A bias exists where a weight does.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> native_batch_norm_backward(x, x, c, c, c, c, c, True, 1e-5)  # 3·24 + 3·3
    Cost(flops=216, bytes=324)
    """
    return backward(input, weight, weight, 9 if train else 5 if weight is not None else 1, output_mask, grad_out)


@cost("cudnn_batch_norm_backward", "miopen_batch_norm_backward")
def cudnn_batch_norm_backward(input: Tensor, grad_output: Tensor, weight: Tensor, *saved: Value) -> Cost:
    """Source: aten::cudnn_batch_norm_backward.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> cudnn_batch_norm_backward(x, x, c, c, c, c, c, 1e-5, c)
    Cost(flops=216, bytes=324)
    """
    return backward(input, weight, weight, 9, None, grad_output)


@cost("batch_norm_backward")
def batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Stat, running_mean: Stat, running_var: Stat, save_mean: Stat,
    save_var: Stat, update: Value, eps: Value, output_mask: Value = None, reserve: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::batch_norm_backward.

    >>> x, c = Tensor((2, 3, 4), "float32"), Tensor((3,), "float32")
    >>> batch_norm_backward(x, x, c, c, c, c, c, True, 1e-5, (True, True, True), c)
    Cost(flops=216, bytes=324)
    """
    return backward(input, weight, weight, 9 if update else 5 if weight is not None else 1, output_mask, grad_out)


@cost("torch.nn.functional.instance_norm")
def instance_norm(
    input: Tensor, running_mean: Stat = None, running_var: Stat = None, weight: Stat = None, bias: Stat = None,
    use_input_stats: Value = True, momentum: Value = 0.1, eps: Value = 1e-5,
) -> Cost:  # fmt: skip
    """Batch norm of each image separately. Source: torch.nn.functional.instance_norm.

    >>> instance_norm(Tensor((2, 3, 4), "float32"))
    Cost(flops=144, bytes=192)
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, use_input_stats)


@cost("instance_norm")
def dispatched_instance_norm(
    input: Tensor, weight: Stat, bias: Stat, running_mean: Stat, running_var: Stat, use_input_stats: Value,
    *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: aten::instance_norm.

    >>> dispatched_instance_norm(Tensor((2, 3, 4), "float32"), None, None, None, None, True)
    Cost(flops=144, bytes=192)
    """
    return dispatched_batch_norm(input, weight, bias, running_mean, running_var, use_input_stats)

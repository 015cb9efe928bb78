# SPDX-License-Identifier: Apache-2.0
"""Dropout: compare with p, mask, scale: 3 FLOPs per element. Generating random numbers and the mask's traffic are not
counted.

The backward masks and scales, 2 per element: it reads the gradient and writes one. Outside training it does nothing.

>>> dropout(Tensor((4, 8), "float16")), dropout(Tensor((4, 8), "float16"), 0.1, False).basis
(Cost(flops=96, bytes=128), 'view')
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.shapes import as_tensor, like


def dropped(input: Tensor) -> Cost:
    """Return the cost of a dropout in training."""
    moved = bytes_of(input, like(input))
    return Cost(3 * input.numel, moved, dgrad=Cost(2 * input.numel, bytes_of(like(input), like(input))))


@cost(
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
)
def dropout(
    input: Tensor, p: Value = 0.5, training: Value = True, inplace_: Value = False, train: Value = None
) -> Cost:
    """Source: torch.nn.functional.dropout; the dispatcher calls the flag train.

    >>> dropout(Tensor((4, 8), "float32"), 0.5, train=True)
    Cost(flops=96, bytes=256)
    """
    as_tensor(input)
    return dropped(input) if (training if train is None else train) else VIEW


@cost("native_dropout")
def native_dropout(input: Tensor, p: Value, train: Value = True) -> Cost:
    """Also returns the mask, a bool per element, which is not counted like other masks. Source: aten::native_dropout.

    >>> native_dropout(Tensor((4, 8), "float16"), 0.1)
    Cost(flops=96, bytes=128)
    """
    return dropped(input) if train is None or train else Cost(0, bytes_of(input, like(input)))


@cost("_fused_dropout")
def fused_dropout(input: Tensor, p: Value, generator: Value = None) -> Cost:
    """Source: aten::_fused_dropout.

    >>> fused_dropout(Tensor((4, 8), "float16"), 0.9)
    Cost(flops=96, bytes=128)
    """
    return dropped(input)


@cost("_masked_scale", "native_dropout_backward")
def masked_scale(grad_output: Tensor, mask: Tensor, scale: Value) -> Cost:
    """Source: aten::native_dropout_backward.

    >>> masked_scale(Tensor((4, 8), "float16"), Tensor((4, 8), "bool"), 1.1)
    Cost(flops=64, bytes=128)
    """
    return Cost(2 * grad_output.numel, bytes_of(grad_output, like(grad_output)))

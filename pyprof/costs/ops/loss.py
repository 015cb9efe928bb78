# SPDX-License-Identifier: Apache-2.0
"""Losses. FLOPs per element as in the rows, one more if the elements are summed; the division of a mean is one.

Cross entropy is a log-softmax (5) and a gather of one value per row, which is not counted; nll loss reads only the
gathered values. Backward, in dgrad: the gradient of the input only; it reads the operands and the loss's gradient and
writes a gradient as large as the input. Add an elementwise loss: one row.

>>> mse_loss(Tensor((4, 8), "float32"), Tensor((4, 8), "float32"))  # 3·32 + 1
Cost(flops=97, bytes=260)
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import broadcast, is_float, like, require, result_dtype

# name: FLOPs per element forward, backward. Source: the definitions in torch.nn's documentation.
ELEMENTWISE = {
    "mse_loss": (2, 2),  # subtract, square | subtract, scale
    "l1_loss": (2, 3),  # subtract, abs | subtract, sign, scale
    "smooth_l1_loss": (6, 5),  # subtract, abs, compare and both branches
    "huber_loss": (6, 5),
    "soft_margin_loss": (4, 4),  # multiply, negate, exp, log1p
    "kl_div": (3, 2),  # t·(log t - x)
    "binary_cross_entropy": (7, 5),  # t·log x + (1 - t)·log(1 - x)
    "binary_cross_entropy_with_logits": (8, 3),  # max(x, 0) - x·t + log1p(exp(-|x|))
}
REDUCTIONS = {
    0: "none",
    1: "mean",
    2: "sum",
    "none": "none",
    "mean": "mean",
    "sum": "sum",
    "batchmean": "mean",
}


def reduction_of(size_average: Value = None, reduce: Value = None, reduction: Value = "mean") -> str:
    """Return the requested reduction, given as text, as the dispatcher's number or by the two old flags.

    >>> reduction_of(reduction=2), reduction_of(reduce=False), reduction_of(False)
    ('sum', 'none', 'sum')
    """
    if reduce is False:
        return "none"
    if isinstance(size_average, bool):
        return "mean" if size_average else "sum"
    require(isinstance(reduction, (int, str)) and reduction in REDUCTIONS, f"no reduction {reduction!r}")
    return REDUCTIONS[reduction]


def _result(output: Tensor, reduction: str) -> tuple[Tensor, int]:
    """Return the result, and the FLOPs of the reduction."""
    if reduction == "none":
        return output, 0
    return Tensor((), output.dtype), output.numel + (reduction == "mean")


def _elementwise(name: str, reduction: str, input: Tensor, target: Tensor, *extra: Tensor | None) -> Cost:
    per_element, per_element_back = ELEMENTWISE[name]
    weights = [t for t in extra if isinstance(t, Tensor)]
    shape = broadcast(input.shape, target.shape, *(t.shape for t in weights))
    whole = Tensor(shape, result_dtype(input, target) if is_float(target.dtype) else input.dtype)
    output, summed = _result(whole, reduction)
    per_element, per_element_back = per_element + len(weights), per_element_back + len(weights)
    dgrad = Cost(per_element_back * whole.numel, bytes_of(output, input, target, *weights, like(input)))
    return Cost(per_element * whole.numel + summed, bytes_of(input, target, *weights, output), dgrad=dgrad)


def _plain(name: str) -> tuple[Callable[..., Cost], Callable[..., Cost]]:
    def user(
        input: Tensor, target: Tensor, size_average: Value = None, reduce: Value = None, reduction: Value = "mean",
        last: Value = None, beta: Value = None, weight: Tensor | None = None,
    ) -> Cost:  # fmt: skip
        # The last one by position is weight, beta or log_target. torch.kl_div has the dispatcher's order.
        if isinstance(size_average, int) and not isinstance(size_average, bool):
            size_average, reduction = None, size_average
        weights = last if isinstance(last, Tensor) else weight
        return _elementwise(name, reduction_of(size_average, reduce, reduction), input, target, weights)

    def dispatched(input: Tensor, target: Tensor, reduction: Value = 1, *parameters: Value) -> Cost:
        return _elementwise(name, reduction_of(reduction=reduction), input, target)

    return user, dispatched


for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "soft_margin_loss", "kl_div"):
    _user, _dispatched = _plain(_name)
    cost(_name)(_user)
    cost(f"aten::{_name}")(_dispatched)
cost("aten::huber_loss")(_plain("huber_loss")[1])
mse_loss = _plain("mse_loss")[0]


@cost("huber_loss")
def huber_loss(
    input: Tensor, target: Tensor, reduction: Value = "mean", delta: Value = 1.0, weight: Tensor | None = None
) -> Cost:
    """Source: torch.nn.functional.huber_loss; the dispatcher has the same order.

    >>> huber_loss(Tensor((4, 8), "float32"), Tensor((4, 8), "float32"), "sum")
    Cost(flops=224, bytes=260)
    """
    return _elementwise("huber_loss", reduction_of(reduction=reduction), input, target, weight)


def _loss_backward(flops: int) -> Callable[..., Cost]:
    def loss_backward(grad_output: Tensor, input: Tensor, target: Tensor, *parameters: Value) -> Cost:
        return Cost(flops * input.numel, bytes_of(grad_output, input, target, like(input)))

    return loss_backward


for _name in (
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "soft_margin_loss",
):  # as many FLOPs as in their rows
    cost(f"{_name}_backward")(_loss_backward(ELEMENTWISE[_name][1]))


@cost("binary_cross_entropy")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Value = None, reduce: Value = None,
    reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.binary_cross_entropy.

    >>> binary_cross_entropy(Tensor((4,), "float32"), Tensor((4,), "float32"))  # 7·4 + 4 + 1
    Cost(flops=33, bytes=36)
    """
    way = reduction_of(size_average, reduce, reduction)
    return _elementwise("binary_cross_entropy", way, input, target, weight)


@cost("aten::binary_cross_entropy")
def dispatched_binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Value = 1
) -> Cost:
    """Source: aten::binary_cross_entropy.

    >>> dispatched_binary_cross_entropy(Tensor((4,), "float32"), Tensor((4,), "float32"), None, 0)
    Cost(flops=28, bytes=48)
    """
    return _elementwise("binary_cross_entropy", reduction_of(reduction=reduction), input, target, weight)


@cost("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad_output: Tensor, input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Value = 1
) -> Cost:
    """(x - t) / (x·(1 - x)) · g: 5 per element. Source: aten::binary_cross_entropy_backward.

    >>> binary_cross_entropy_backward(Tensor((), "float32"), Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=20, bytes=52)
    """
    return Cost(5 * input.numel, bytes_of(grad_output, input, target, weight, like(input)))


@cost("torch.nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Value = None, reduce: Value = None,
    reduction: Value = "mean", pos_weight: Tensor | None = None,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.binary_cross_entropy_with_logits.

    >>> binary_cross_entropy_with_logits(Tensor((4,), "float32"), Tensor((4,), "float32"))  # 8·4 + 4 + 1
    Cost(flops=37, bytes=36)
    """
    way = reduction_of(size_average, reduce, reduction)
    return _elementwise("binary_cross_entropy_with_logits", way, input, target, weight, pos_weight)


@cost("binary_cross_entropy_with_logits")
def dispatched_binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: Value = 1,
) -> Cost:
    """Source: aten::binary_cross_entropy_with_logits.

    >>> dispatched_binary_cross_entropy_with_logits(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=37, bytes=36)
    """
    way = reduction_of(reduction=reduction)
    return _elementwise("binary_cross_entropy_with_logits", way, input, target, weight, pos_weight)


def _per_row(input: Tensor, target: Tensor) -> Tensor:
    """Return one value per row: the shape (N, C, ...) without C, which `target` must have."""
    shape = input.shape[:1] + input.shape[2:] if len(input.shape) > 1 else ()
    require(target.shape == shape, f"target {target.shape} does not fit {input.shape}")
    return Tensor(shape, input.dtype)


@cost("cross_entropy")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Value = None,
    ignore_index: Value = -100, reduce: Value = None, reduction: Value = "mean", label_smoothing: Value = 0.0,
) -> Cost:  # fmt: skip
    """Log-softmax 5 per element; with class probabilities or label smoothing 2 more (multiply, add).

    The backward is the log-softmax's: 4 per element, it reads the logarithms. Source: F.cross_entropy.

    >>> cross_entropy(Tensor((4, 8), "float32"), Tensor((4,), "int64"))  # 32·4 + 4·8 + 4
    Cost(flops=160, bytes=164)
    """
    dense = target.shape == input.shape and is_float(target.dtype)
    per_element = 7 if dense or label_smoothing not in (0, None) else 5
    shape = input.shape[:1] + input.shape[2:] if len(input.shape) > 1 else ()
    rows = Tensor(shape, input.dtype) if dense else _per_row(input, target)
    output, _ = _result(rows, reduction_of(size_average, reduce, reduction))
    dgrad = Cost(4 * input.numel, bytes_of(output, like(input), target, weight, like(input)))
    return Cost(per_element * input.numel, bytes_of(input, target, weight, output), dgrad=dgrad)


@cost("cross_entropy_loss")
def cross_entropy_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Value = 1, ignore_index: Value = -100,
    label_smoothing: Value = 0.0,
) -> Cost:  # fmt: skip
    """Source: aten::cross_entropy_loss.

    >>> cross_entropy_loss(Tensor((4, 8), "float32"), Tensor((4,), "int64"))
    Cost(flops=160, bytes=164)
    """
    return cross_entropy(input, target, weight, reduction=reduction, label_smoothing=label_smoothing)


@cost("torch.nn.functional.nll_loss")
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Value = None,
    ignore_index: Value = -100, reduce: Value = None, reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """Gathers one value per row and adds them up. The backward fills a gradient as large as the input.

    >>> nll_loss(Tensor((4, 8), "float32"), Tensor((4,), "int64"))  # 4·4 gathered, 4·8, 4
    Cost(flops=5, bytes=52)
    """
    return dispatched_nll_loss(input, target, weight, reduction_of(size_average, reduce, reduction))


@cost("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
def dispatched_nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: Value = 1,
    ignore_index: Value = -100,
) -> Cost:
    """Source: aten::nll_loss_forward. The total weight, which it also returns, is not counted.

    >>> dispatched_nll_loss(Tensor((4, 8), "float32"), Tensor((4,), "int64"), None, 0)
    Cost(flops=0, bytes=64)
    """
    rows = _per_row(input, target)
    output, flops = _result(rows, reduction_of(reduction=reduction))
    flops += rows.numel if weight is not None else 0
    dgrad = Cost(0, bytes_of(output, target, weight, like(input)))
    return Cost(flops, bytes_of(rows, target, weight, output), dgrad=dgrad)


@cost("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Tensor, input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Value = 1,
    ignore_index: Value = -100, total_weight: Value = None,
) -> Cost:  # fmt: skip
    """Writes one value per row into a gradient that aten::zero_, an operator of its own inside, has filled with zeros.
    Source: aten::nll_loss_backward; NLLLoss.cu.

    >>> nll_loss_backward(Tensor((), "float32"), Tensor((4, 8), "float32"), Tensor((4,), "int64"))  # 4 + 32 + 4·4
    Cost(flops=0, bytes=52)
    """
    return Cost(0, bytes_of(grad_output, target, weight, _per_row(input, target)))

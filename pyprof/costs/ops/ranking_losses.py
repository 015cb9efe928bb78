# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of ranking, margin, likelihood and sequence losses. Reductions and backward follow the rules in
`loss`.

>>> margin_ranking_loss(Tensor((8,), "float32"), Tensor((8,), "float32"), Tensor((8,), "float32"))  # 4·8 + 8 + 1
Cost(flops=41, bytes=100)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.loss import reduction_of
from pyprof.costs.ops.shapes import (
    as_int,
    broadcast,
    floating,
    is_float,
    like,
    reduced,
    require,
    result_dtype,
)


def _loss(operands: tuple[Value, ...], per_element: int, unreduced: Tensor, per_result: int, mode: str) -> Cost:
    """Return the cost of a loss with `per_element` FLOPs per element of the broadcast operands, and `per_result` per
    element of `unreduced`, the result before the reduction."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    n = Tensor(broadcast(*(t.shape for t in tensors)), None).numel
    output = unreduced if mode == "none" else Tensor((), unreduced.dtype)
    reducing = 0 if mode == "none" else unreduced.numel + (mode == "mean")
    gradients = [like(t) for t in tensors if is_float(t.dtype)]
    dgrad = Cost(per_element * n, bytes_of(output, *tensors, *gradients))
    return Cost(per_element * n + per_result * unreduced.numel + reducing, bytes_of(*tensors, output), dgrad=dgrad)


def _broadcast_result(*tensors: Tensor) -> Tensor:
    return Tensor(broadcast(*(t.shape for t in tensors)), floating(result_dtype(tensors[0])))


def _reduction(size_average: Value, reduce: Value, reduction: Value) -> str:
    """Return the reduction. The dispatcher has its number in the position of the user function's size_average."""
    if isinstance(size_average, int) and not isinstance(size_average, bool):
        return reduction_of(reduction=size_average)
    return reduction_of(size_average, reduce, reduction)


@cost("margin_ranking_loss")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: Value = 0, size_average: Value = None,
    reduce: Value = None, reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """max(0, -t·(x₁ - x₂) + margin): 4 FLOPs per element. Source: torch.nn.functional.margin_ranking_loss.

    >>> x = Tensor((8,), "float32")
    >>> margin_ranking_loss(x, x, x, 0.0, 0)  # the dispatcher's, no reduction
    Cost(flops=32, bytes=128)
    """
    mode = _reduction(size_average, reduce, reduction)
    return _loss((input1, input2, target), 4, _broadcast_result(input1, input2, target), 0, mode)


@cost("hinge_embedding_loss")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: Value = 1.0, size_average: Value = None, reduce: Value = None,
    reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """x or max(0, margin - x), by the target's sign: 5 FLOPs per element.

    Source: torch.nn.functional.hinge_embedding_loss.

    >>> hinge_embedding_loss(Tensor((8,), "float32"), Tensor((8,), "float32"))
    Cost(flops=49, bytes=68)
    """
    mode = _reduction(size_average, reduce, reduction)
    return _loss((input, target), 5, _broadcast_result(input, target), 0, mode)


@cost("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: Value = 0, size_average: Value = None,
    reduce: Value = None, reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """Three sums of products (6 per element); 8 per pair. Source: torch.nn.functional.cosine_embedding_loss.

    >>> x = Tensor((4, 3), "float32")
    >>> cosine_embedding_loss(x, x, Tensor((4,), "int64"))  # 72 + 32 + 4 + 1; 96 + 32 + 4
    Cost(flops=109, bytes=132)
    """
    mode = _reduction(size_average, reduce, reduction)
    whole = _broadcast_result(input1, input2)
    plain = _loss((input1, input2), 6, Tensor(reduced(whole.shape, -1), whole.dtype), 8, mode)
    target_bytes = bytes_of(target)
    return plain._replace(bytes=None if plain.bytes is None or target_bytes is None else plain.bytes + target_bytes)


@cost("triplet_margin_loss", "triplet_margin_with_distance_loss")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: Value = 1.0, p: Value = 2, eps: Value = 1e-6,
    swap: Value = False, size_average: Value = None, reduce: Value = None, reduction: Value = "mean",
    distance_function: Value = None,
) -> Cost:  # fmt: skip
    """Two distances (three with swap): subtract, eps, power, add per coordinate; root each; 3 more per triplet. A
    custom distance function makes calls of its own. Source: torch.nn.functional.triplet_margin_loss.

    >>> x = Tensor((4, 3), "float32")
    >>> triplet_margin_loss(x, x, x)  # 8·12 + 4·5 + 4 + 1
    Cost(flops=121, bytes=148)
    """
    require(distance_function is None, "the distance is the user's")
    mode = _reduction(size_average, reduce, reduction)
    count = 3 if swap is True else 2
    whole = _broadcast_result(anchor, positive, negative)
    result = Tensor(reduced(whole.shape, -1), whole.dtype)
    return _loss((anchor, positive, negative), 4 * count, result, count + 3, mode)


@cost("poisson_nll_loss")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: Value = True, full: Value = False, size_average: Value = None,
    eps: Value = 1e-8, reduce: Value = None, reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """exp(x) - t·x: 3 FLOPs per element; without log_input x - t·log(x + eps): 4; Stirling's terms 7 more. The
    dispatcher has eps as fifth and the reduction as sixth argument. Source: torch.nn.functional.poisson_nll_loss.

    >>> poisson_nll_loss(Tensor((8,), "float32"), Tensor((8,), "float32"))
    Cost(flops=33, bytes=68)
    """
    if isinstance(eps, int):
        size_average, reduction = None, eps
    mode = reduction_of(size_average if isinstance(size_average, bool) else None, reduce, reduction)
    per_element = (4 if log_input is False else 3) + (7 if full is True else 0)
    return _loss((input, target), per_element, _broadcast_result(input, target), 0, mode)


@cost("gaussian_nll_loss")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Value,
    full: Value = False,
    eps: Value = 1e-6,
    reduction: Value = "mean",
) -> Cost:
    """½·(log var + (x - t)²/var): log, subtract, square, divide, add, halve, and the clamp of var: 7.

    Source: torch.nn.functional.gaussian_nll_loss.

    >>> x = Tensor((8,), "float32")
    >>> gaussian_nll_loss(x, x, x)
    Cost(flops=65, bytes=100)
    """
    operands = (input, target, var)
    return _loss(operands, 7 + (full is True), _broadcast_result(input, target), 0, reduction_of(reduction=reduction))


@cost("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Value = None, size_average: Value = None, reduce: Value = None,
    reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """-(t·logσ(x) + (1 - t)·logσ(-x)): two log-sigmoids (6 each), -x (1), combining
    them (5) and the sum over the classes (1): 19 FLOPs per element; one division per row.

    Source: torch.nn.functional.multilabel_soft_margin_loss.

    >>> x = Tensor((4, 3), "float32")
    >>> multilabel_soft_margin_loss(x, x)  # 19·12 + 4 + 4 + 1
    Cost(flops=237, bytes=100)
    """
    mode = _reduction(size_average, reduce, reduction)
    weights = 1 if isinstance(weight, Tensor) else 0
    result = Tensor(reduced(input.shape, -1), input.dtype)
    return _loss((input, target, weight), 19 + weights, result, 1, mode)


@cost("torch.nn.functional.multi_margin_loss")
def multi_margin_loss(
    input: Tensor, target: Tensor, p: Value = 1, margin: Value = 1.0, weight: Value = None,
    size_average: Value = None, reduce: Value = None, reduction: Value = "mean",
) -> Cost:  # fmt: skip
    """Σ max(0, margin - x_y + x_i)^p over the classes: 4 per element, a division per row. Source: F.multi_margin_loss.

    >>> multi_margin_loss(Tensor((4, 3), "float32"), Tensor((4,), "int64"))  # 48 + 4 + 5; 48 + 32 + 4
    Cost(flops=57, bytes=84)
    """
    return dispatched_multi_margin_loss(input, target, p, margin, weight, reduction_of(size_average, reduce, reduction))


@cost("multi_margin_loss")
def dispatched_multi_margin_loss(
    input: Tensor, target: Tensor, p: Value = 1, margin: Value = 1, weight: Value = None, reduction: Value = 1
) -> Cost:
    """Source: aten::multi_margin_loss.

    >>> dispatched_multi_margin_loss(Tensor((4, 3), "float32"), Tensor((4,), "int64"), 1, 1, None, 0)
    Cost(flops=52, bytes=96)
    """
    per_element = 4 + (as_int(p) == 2) + isinstance(weight, Tensor)
    rows = Tensor(input.shape[:-1], input.dtype)
    plain = _loss((input,), per_element, rows, 1, reduction_of(reduction=reduction))
    extra = bytes_of(target, weight if isinstance(weight, Tensor) else None)
    return plain._replace(bytes=None if plain.bytes is None or extra is None else plain.bytes + extra)


@cost("multi_margin_loss_backward")
def multi_margin_loss_backward(
    grad_output: Tensor, input: Tensor, target: Tensor, p: Value, margin: Value, weight: Value = None,
    reduction: Value = 1,
) -> Cost:  # fmt: skip
    """Source: aten::multi_margin_loss_backward.

    >>> multi_margin_loss_backward(Tensor((), "float32"), Tensor((4, 3), "float32"), Tensor((4,), "int64"), 1, 1)
    Cost(flops=48, bytes=132)
    """
    read = weight if isinstance(weight, Tensor) else None
    return Cost(4 * input.numel, bytes_of(grad_output, input, target, read, like(input)))


@cost("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: Tensor, input: Tensor, target: Tensor, reduction: Value, is_target: Tensor
) -> Cost:
    """FLOPs unknown: they depend on the values of the target. Source: aten::multilabel_margin_loss_backward.

    >>> f, t = (lambda *shape: Tensor(shape, "float32")), Tensor((4, 3), "int64")
    >>> multilabel_margin_loss_backward(f(), f(4, 3), t, 1, f(4, 3))
    Cost(flops=None, bytes=244)
    """
    return Cost(None, bytes_of(grad_output, input, target, is_target, like(input)))


@cost("multilabel_margin_loss", "multilabel_margin_loss_forward")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Value = None, reduce: Value = None, reduction: Value = "mean"
) -> Cost:
    """FLOPs unknown: they depend on the values of the target. Source: torch.nn.functional.multilabel_margin_loss.

    >>> multilabel_margin_loss(Tensor((4, 3), "float32"), Tensor((4, 3), "int64"))
    Cost(flops=None, bytes=148)
    """
    mode = _reduction(size_average, reduce, reduction)
    rows = Tensor(input.shape[:-1] if mode == "none" else (), input.dtype)
    return Cost(None, bytes_of(input, target, rows), dgrad=Cost(None, bytes_of(rows, input, target, like(input))))


@cost("ctc_loss", "_ctc_loss", "_cudnn_ctc_loss", "miopen_ctc_loss")
def ctc_loss(log_probs: Tensor, targets: Tensor, *parameters: Value) -> Cost:
    """FLOPs unknown: each time step and state adds up to three paths, and the lengths are values of tensors. At most
    one number per sequence is written, which is not counted. Source: torch.nn.functional.ctc_loss.

    >>> ctc_loss(Tensor((10, 2, 5), "float32"), Tensor((2, 3), "int64"), (10, 10), (3, 3))
    Cost(flops=None, bytes=448)
    """
    back = bytes_of(log_probs, targets, like(log_probs))
    return Cost(None, bytes_of(log_probs, targets), dgrad=Cost(None, back))


@cost("_ctc_loss_backward")
def ctc_loss_backward(grad: Tensor, log_probs: Tensor, targets: Tensor, *parameters: Value) -> Cost:
    """Also reads the forward's table (log_alpha). Source: aten::_ctc_loss_backward.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> ctc_loss_backward(f(2), f(10, 2, 5), Tensor((2, 3), "int64"), (10, 10), (3, 3), f(2), f(2, 10, 7), 0)
    Cost(flops=None, bytes=1424)
    """
    tensors = [t for t in parameters if isinstance(t, Tensor)]
    return Cost(None, bytes_of(grad, log_probs, targets, *tensors, like(log_probs)))

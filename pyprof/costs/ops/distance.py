# SPDX-License-Identifier: Apache-2.0
"""Distances and similarities between vectors. Subtract, power, add: 3 FLOPs per pair of coordinates, a root per
distance. The gradients, in dgrad, go to all operands: 4 per pair of coordinates.

>>> cdist(Tensor((4, 3), "float32"), Tensor((5, 3), "float32"))  # 20·(9 + 1); (12 + 15 + 20)·4
Cost(flops=200, bytes=188)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import REAL_OF, as_int, broadcast, like, reduced, require, result_dtype


@cost("cdist", "_cdist_forward", "_euclidean_dist")
def cdist(x1: Tensor, x2: Tensor, p: Value = 2.0, compute_mode: Value = None) -> Cost:
    """Between every row of (*, P, M) and of (*, R, M). The Euclidean distance may run as a matrix product of M + 2
    columns, which is not reflected in the count. Source: torch.cdist.

    >>> cdist(Tensor((2, 4, 3), "float32"), Tensor((5, 3), "float32")).flops
    400
    """
    (m, d), (r, d2) = x1.shape[-2:], x2.shape[-2:]
    require(d == d2, "vectors of one length are expected")
    output = Tensor((*broadcast(x1.shape[:-2], x2.shape[:-2]), m, r), result_dtype(x1, x2))
    dgrad = Cost(4 * output.numel * d, bytes_of(output, output, x1, x2, like(x1), like(x2)))
    return Cost(output.numel * (3 * d + 1), bytes_of(x1, x2, output), dgrad=dgrad)


@cost("_cdist_backward")
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: Value, cdist: Tensor) -> Cost:
    """Only the gradient of x1: 4 per pair of coordinates. Source: aten::_cdist_backward.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> cdist_backward(t(4, 5), t(4, 3), t(5, 3), 2.0, t(4, 5))  # (20 + 12 + 15 + 20 + 12)·4
    Cost(flops=240, bytes=316)
    """
    return Cost(4 * cdist.numel * x1.shape[-1], bytes_of(grad, x1, x2, cdist, like(x1)))


@cost("pdist", "_pdist_forward")
def pdist(input: Tensor, p: Value = 2) -> Cost:
    """Between all pairs of rows: N·(N - 1)/2 distances. Source: torch.pdist.

    >>> pdist(Tensor((4, 3), "float32"))  # 6·10
    Cost(flops=60, bytes=72)
    """
    n, m = input.shape
    output = Tensor((n * (n - 1) // 2,), input.dtype)
    dgrad = Cost(4 * output.numel * m, bytes_of(output, output, input, like(input)))
    return Cost(output.numel * (3 * m + 1), bytes_of(input, output), dgrad=dgrad)


@cost("_pdist_backward")
def pdist_backward(grad: Tensor, input: Tensor, p: Value, pdist: Tensor) -> Cost:
    """Source: aten::_pdist_backward.

    >>> pdist_backward(Tensor((6,), "float32"), Tensor((4, 3), "float32"), 2.0, Tensor((6,), "float32"))
    Cost(flops=72, bytes=144)
    """
    return Cost(4 * grad.numel * input.shape[1], bytes_of(grad, input, pdist, like(input)))


@cost("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: Value = 2.0, eps: Value = 1e-6, keepdim: Value = False) -> Cost:
    """Between rows of the same number: subtract, add eps, power, add. Source: torch.nn.functional.pairwise_distance.

    >>> pairwise_distance(Tensor((4, 3), "float32"), Tensor((4, 3), "float32"))  # 48 + 4
    Cost(flops=52, bytes=112)
    """
    shape = broadcast(x1.shape, x2.shape)
    whole = Tensor(shape, result_dtype(x1, x2))
    output = Tensor(reduced(shape, -1), whole.dtype)
    dgrad = Cost(4 * whole.numel, bytes_of(output, output, x1, x2, like(x1), like(x2)))
    return Cost(4 * whole.numel + output.numel, bytes_of(x1, x2, output), dgrad=dgrad)


@cost("cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: Value = 1, eps: Value = 1e-8) -> Cost:
    """Three sums of products, 6 per element; two roots, a product, a division per result.

    Source: torch.nn.functional.cosine_similarity.

    >>> cosine_similarity(Tensor((4, 3), "float32"), Tensor((4, 3), "float32"))  # 72 + 16
    Cost(flops=88, bytes=112)
    """
    shape = broadcast(x1.shape, x2.shape)
    whole = Tensor(shape, result_dtype(x1, x2))
    output = Tensor(reduced(shape, as_int(dim)), whole.dtype)
    dgrad = Cost(8 * whole.numel, bytes_of(output, x1, x2, like(x1), like(x2)))
    return Cost(6 * whole.numel + 4 * output.numel, bytes_of(x1, x2, output), dgrad=dgrad)


@cost("dist")
def dist(input: Tensor, other: Tensor, p: Value = 2) -> Cost:
    """One result: subtract, power, add. Source: torch.dist.

    >>> dist(Tensor((4, 3), "float32"), Tensor((4, 3), "float32"))
    Cost(flops=37, bytes=100)
    """
    n = Tensor(broadcast(input.shape, other.shape), result_dtype(input, other))
    dgrad = Cost(4 * n.numel, bytes_of(input, other, like(input), like(other)))
    kind = REAL_OF.get(n.dtype or "", n.dtype)
    return Cost(3 * n.numel + 1, bytes_of(input, other, Tensor((), kind)), dgrad=dgrad)

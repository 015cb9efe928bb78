# SPDX-License-Identifier: Apache-2.0
"""Counting, searching and summing along: histograms, quantiles, searches in sorted data, differences, covariances.

A search in n sorted values takes ceil(log2(n + 1)) comparisons. If a sort is involved, FLOPs are unknown.

>>> bucketize(Tensor((8,), "float32"), Tensor((7,), "float32"))  # 3 comparisons each; 32 + 28 + 64
Cost(flops=24, bytes=124)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, dims, floating, like, reduced, require, tensors_in


def _searched(values: Value, edges: Tensor, many: int, *tensors: Value, out_int32: Value = False) -> Cost:
    shape = values.shape if isinstance(values, Tensor) else ()
    output = Tensor(shape, "int32" if out_int32 is True else "int64")
    return Cost(many.bit_length() * output.numel, bytes_of(*tensors_in((values, edges, *tensors)), output))


@cost("bucketize")
def bucketize(
    input: Value, boundaries: Tensor, out_int32: Value = False, right: Value = False, out: Value = None
) -> Cost:
    """Source: torch.bucketize.

    >>> bucketize(Tensor((8,), "float32"), Tensor((7,), "float32"), out_int32=True).bytes
    92
    """
    return _searched(input, boundaries, boundaries.numel, out_int32=out_int32)


@cost("searchsorted")
def searchsorted(
    sorted_sequence: Tensor, input: Value, out_int32: Value = False, right: Value = False, side: Value = None,
    sorter: Value = None, out: Value = None,
) -> Cost:  # fmt: skip
    """Source: torch.searchsorted.

    >>> searchsorted(Tensor((2, 7), "float32"), Tensor((2, 3), "float32"))  # 6·3; 56 + 24 + 48
    Cost(flops=18, bytes=128)
    """
    return _searched(input, sorted_sequence, sorted_sequence.shape[-1], sorter, out_int32=out_int32)


@cost("isin")
def isin(elements: Value, test_elements: Value, *parameters: Value, **flags: Value) -> Cost:
    """Compared one by one, or sorted when there are many: FLOPs unknown. Source: torch.isin.

    >>> isin(Tensor((8,), "int64"), Tensor((3,), "int64"))
    Cost(flops=None, bytes=96)
    """
    shape = elements.shape if isinstance(elements, Tensor) else ()
    return Cost(None, bytes_of(*tensors_in((elements, test_elements)), Tensor(shape, "bool")))


@cost("histc")
def histc(input: Tensor, bins: Value = 100, min: Value = 0, max: Value = 0, out: Value = None) -> Cost:
    """Subtract, scale, round, add one to a bin: 4 per element; 2 more if the range must be found.

    Source: torch.histc.

    >>> histc(Tensor((8,), "float32"), 10, 0, 1), histc(Tensor((8,), "float32"), 10)
    (Cost(flops=32, bytes=72), Cost(flops=48, bytes=72))
    """
    per_element = 6 if min == max else 4
    return Cost(per_element * input.numel, bytes_of(input, Tensor((as_int(bins),), input.dtype)))


@cost("histogram")
def histogram(input: Tensor, bins: Value = 100, *parameters: Value, weight: Value = None) -> Cost:
    """Counts and edges. With tensor edges a search per element. Source: torch.histogram.

    >>> histogram(Tensor((8,), "float32"), 10)  # 4·8; 32 + 40 + 44
    Cost(flops=32, bytes=116)
    """
    read = tensors_in((weight, bins))
    if isinstance(bins, Tensor):
        n, per_element = bins.numel - 1, bins.numel.bit_length() + 1
    else:
        n, per_element = as_int(bins), 4
    output = [Tensor((n,), input.dtype), Tensor((n + 1,), input.dtype)]
    return Cost(per_element * input.numel, bytes_of(input, *read, *output))


@cost("quantile", "nanquantile")
def quantile(input: Tensor, q: Value, dim: Value = None, keepdim: Value = False, *parameters: Value) -> Cost:
    """Includes a sort: FLOPs unknown. Source: torch.quantile.

    >>> quantile(Tensor((4, 8), "float32"), 0.5, 1)
    Cost(flops=None, bytes=144)
    """
    count = q.numel if isinstance(q, Tensor) else 1
    rows = Tensor(reduced(input.shape, dim, keepdim), None).numel
    return Cost(None, bytes_of(input, *tensors_in((q,)), Tensor((count * rows,), input.dtype)))


@cost("mode")
def mode(input: Tensor, dim: Value = -1, keepdim: Value = False, out: Value = None) -> Cost:
    """Includes a sort: FLOPs unknown. Values and int64 indices. Source: torch.mode.

    >>> mode(Tensor((4, 8), "float32"))
    Cost(flops=None, bytes=176)
    """
    shape = reduced(input.shape, as_int(dim), keepdim)
    return Cost(None, bytes_of(input, Tensor(shape, input.dtype), Tensor(shape, "int64")))


@cost("diff")
def diff(
    input: Tensor,
    n: Value = 1,
    dim: Value = -1,
    prepend: Value = None,
    append: Value = None,
    out: Value = None,
) -> Cost:
    """Differences of neighbours, n times; each result is one shorter. Source: torch.diff.

    >>> diff(Tensor((4, 8), "float32")), diff(Tensor((8,), "float32"), 2)  # 28; 7 + 6
    (Cost(flops=28, bytes=240), Cost(flops=13, bytes=56))
    """
    (along,) = dims(as_int(dim), len(input.shape))
    extra = tensors_in((prepend, append))
    length = input.shape[along] + sum(t.shape[along] for t in extra)
    rows = input.numel // max(input.shape[along], 1)
    times = min(as_int(n), length)
    flops = sum(rows * (length - i - 1) for i in range(min(times, 1000)))
    require(times <= 1000, "too many differences")
    return Cost(flops, bytes_of(input, *extra, Tensor((rows * (length - times),), input.dtype)))


@cost("trapezoid", "trapz")
def trapezoid(y: Tensor, x: Value = None, dim: Value = -1, dx: Value = None) -> Cost:
    """Σ dx·(y₁ + y₂)/2: 2 per interval (4 with positions x), 2 per result. Source: torch.trapezoid.

    >>> trapezoid(Tensor((4, 8), "float32"))  # 2·28 + 2·4
    Cost(flops=64, bytes=144)
    """
    shape = reduced(y.shape, as_int(dim))
    output = Tensor(shape, floating(y.dtype))
    intervals = y.numel - output.numel
    places = tensors_in((x,))
    return Cost((4 if places else 2) * intervals + 2 * output.numel, bytes_of(y, *places, output))


@cost("cumulative_trapezoid")
def cumulative_trapezoid(y: Tensor, x: Value = None, dim: Value = -1, dx: Value = None) -> Cost:
    """Every partial sum: 3 per interval (4 with positions). Source: torch.cumulative_trapezoid.

    >>> cumulative_trapezoid(Tensor((4, 8), "float32"))
    Cost(flops=84, bytes=240)
    """
    (along,) = dims(as_int(dim), len(y.shape))
    intervals = y.numel - y.numel // max(y.shape[along], 1)
    places = tensors_in((x,))
    output = Tensor((intervals,), floating(y.dtype))
    return Cost((4 if places else 3) * intervals, bytes_of(y, *places, output))


@cost("gradient")
def gradient(input: Tensor, *parameters: Value, dim: Value = None, spacing: Value = None) -> Cost:
    """Central differences: subtract and divide, per dimension one result. Source: torch.gradient.

    >>> gradient(Tensor((4, 8), "float32"))  # two results; 128 + 2·128
    Cost(flops=128, bytes=384)
    """
    dims_argument = next((p for p in parameters if type(p) is int or isinstance(p, tuple)), dim)
    along = dims(
        None if isinstance(dims_argument, Tensor) or tensors_in((dims_argument,)) else dims_argument,
        len(input.shape),
    )
    results = [Tensor(input.shape, floating(input.dtype))] * len(along)
    return Cost(2 * input.numel * len(along), bytes_of(input, *tensors_in((*parameters, spacing)), *results))


@cost("cov", "corrcoef")
def cov(input: Tensor, correction: Value = 1, fweights: Value = None, aweights: Value = None) -> Cost:
    """Rows less their means (2 per element), then a product with its own transpose. corrcoef also divides, which is not
    counted. Source: torch.cov.

    >>> cov(Tensor((3, 8), "float32"))  # 48 + 2·3·3·8; 96 + 36
    Cost(flops=192, bytes=132)
    """
    rows, n = input.shape if len(input.shape) == 2 else (1, input.numel)
    output = Tensor((rows, rows), input.dtype)
    weights = tensors_in((fweights, aweights))
    return Cost(2 * rows * n + 2 * rows * rows * n, bytes_of(input, *weights, output))


@cost("sum_to_size", "_grad_sum_to_size")
def sum_to_size(input: Tensor, *size: Value) -> Cost:
    """Sums over broadcast dimensions; nothing if the size already matches. Source: torch.Tensor.sum_to_size.

    >>> sum_to_size(Tensor((4, 8), "float32"), (1, 8))
    Cost(flops=32, bytes=160)
    """
    first = size[0] if size else None
    shape = tuple(as_int(n) for n in (first if isinstance(first, tuple) else size))
    if shape == input.shape:
        return Cost(0, 0, basis="view")
    return Cost(input.numel, bytes_of(input, Tensor(shape, input.dtype)), dgrad=Cost(0, 0, basis="view"))


@cost("segment_reduce")
def segment_reduce(
    data: Tensor, reduce: Value, lengths: Value = None, indices: Value = None, offsets: Value = None,
    *parameters: Value,
) -> Cost:  # fmt: skip
    """One addition or comparison per element, a row per segment; there is one more offset. Source:
    torch.segment_reduce.

    >>> segment_reduce(Tensor((6, 4), "float32"), "sum", Tensor((2,), "int64"))  # 96 + 16 + 32
    Cost(flops=24, bytes=144)
    """
    index = tensors_in((lengths, indices, offsets))[0]
    segments = index.shape[-1] - (index == offsets)
    output = Tensor((segments, *data.shape[1:]), data.dtype)
    return Cost(data.numel, bytes_of(data, index, output))


@cost("renorm", "embedding_renorm")
def renorm(input: Tensor, p: Value, dim: Value, maxnorm: Value, inplace: bool = False) -> Cost:
    """A norm per slice (2 per element) and a product. Source: torch.renorm; for embedding_renorm_ (input, indices,
    max_norm, norm_type) the looked-up rows.

    >>> renorm(Tensor((4, 8), "float32"), 2, 0, 1.0)
    Cost(flops=96, bytes=256)
    """
    if isinstance(p, Tensor):
        rows = Tensor((p.numel, *input.shape[1:]), input.dtype)
        return Cost(3 * rows.numel, bytes_of(p, rows, rows))
    return Cost(3 * input.numel, bytes_of(input, like(input)))


@cost("_weight_norm", "_weight_norm_interface")
def weight_norm(v: Tensor, g: Tensor, dim: Value = 0) -> Cost:
    """g·v/‖v‖: a norm per slice (2 per element), a product; a division per slice. Source: torch._weight_norm.

    >>> weight_norm(Tensor((4, 8), "float32"), Tensor((4, 1), "float32"))  # 96 + 8; 128 + 16 + 128
    Cost(flops=104, bytes=272)
    """
    dgrad = Cost(6 * v.numel, bytes_of(like(v), v, g, like(v), like(g)))
    return Cost(3 * v.numel + 2 * g.numel, bytes_of(v, g, like(v)), dgrad=dgrad)


@cost("_weight_norm_interface_backward", "_weight_norm_differentiable_backward")
def weight_norm_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: Value = 0) -> Cost:
    """Gradients of v and g. Source: aten::_weight_norm_interface_backward.

    >>> v, g = Tensor((4, 8), "float32"), Tensor((4, 1), "float32")
    >>> weight_norm_backward(v, v, g, g, 0)  # 3·128 + 3·16
    Cost(flops=192, bytes=432)
    """
    moved = bytes_of(grad_w, saved_v, saved_g, saved_norms, like(saved_v), like(saved_g))
    return Cost(6 * saved_v.numel, moved)


@cost("norm_except_dim")
def norm_except_dim(v: Tensor, pow: Value = 2, dim: Value = 0) -> Cost:
    """A norm per slice along one dimension. Source: torch.norm_except_dim.

    >>> norm_except_dim(Tensor((4, 8), "float32"))
    Cost(flops=68, bytes=144)
    """
    norms = 1 if dim == -1 else v.shape[as_int(dim)]
    return Cost(2 * v.numel + norms, bytes_of(v, Tensor((norms,), v.dtype)))

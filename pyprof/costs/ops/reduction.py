# SPDX-License-Identifier: Apache-2.0
"""Reductions and scans: sum, mean, norms, extremes, variance, cumsum.

FLOPs per input element as in the table, plus those per result. Bytes: the input once, the result once; an integer sum
is an int64. The backward, in dgrad, reads and writes the tensors of its row. Add a reduction: one row.

>>> reduce(Tensor((4, 8), "float32"), REDUCTIONS["sum"], -1)
Cost(flops=32, bytes=144)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.pointwise import Derivative, elementwise
from pyprof.costs.ops.shapes import (
    CATEGORY,
    INT,
    REAL_OF,
    chosen_dtype,
    dims,
    floating,
    is_float,
    like,
    reduced,
)


class Reduction(NamedTuple):
    """FLOPs per input element and per result, the result's dtype (None: the input's), FLOPs of the backward per
    input element, and whether that reads the input again. None if there is no backward."""

    each: int
    result: int = 0
    dtype: str | None = None  # "wide": integers become int64, "float": a floating type, "real": complex becomes real
    backward: int | None = None
    rereads: bool = False


REDUCTIONS = {
    "sum": Reduction(1, 0, "wide", 0),  # the gradient is expanded: nothing moves
    "nansum": Reduction(2, 0, "wide", 1, True),
    "mean": Reduction(1, 1, None, 1),
    "nanmean": Reduction(3, 1, None, 2, True),
    "prod": Reduction(1, 0, "wide", 2, True),
    "amax": Reduction(1, 0, None, 2, True),
    "amin": Reduction(1, 0, None, 2, True),
    "all": Reduction(1, 0, "bool"),
    "any": Reduction(1, 0, "bool"),
    "argmax": Reduction(1, 0, "int64"),
    "argmin": Reduction(1, 0, "int64"),
    "count_nonzero": Reduction(2, 0, "int64"),  # compare, add
    "logsumexp": Reduction(4, 1, "float", 3, True),  # max, subtract, exp, add; log
    "var": Reduction(4, 1, "real", 2, True),  # mean, subtract, square, add
    "norm": Reduction(2, 1, "real", 2, True),  # power, add; root
}


def reduce(
    input: Tensor,
    row: Reduction,
    dim: Value = None,
    keepdim: Value = False,
    dtype: Value = None,
    results: int = 1,
) -> Cost:
    """Return the cost of a reduction over `dim` (None: all)."""
    if isinstance(dtype, Tensor):  # out=
        dtype = None
    kind = input.dtype if row.dtype in (None, "wide", "float", "real") else row.dtype
    if row.dtype == "wide" and CATEGORY.get(input.dtype or "", INT + 1) <= INT:
        kind = "int64"
    kind = chosen_dtype(dtype, floating(kind) if row.dtype == "float" else kind)
    if row.dtype == "real":
        kind = REAL_OF.get(kind or "", kind)
    output = Tensor(reduced(input.shape, dim, keepdim), kind)
    flops = row.each * input.numel + row.result * output.numel * results
    dgrad = None
    if row.backward is not None and is_float(kind) and is_float(input.dtype):
        reads = (input, output) if row.rereads else ()
        dgrad = Cost(row.backward * input.numel, bytes_of(output, *reads, like(input)))
        if not row.backward:
            dgrad = Cost(0, 0, basis="view")
    return Cost(flops, bytes_of(input, *[output] * results), dgrad=dgrad)


def _over_dims(row: Reduction) -> Callable[..., Cost]:
    def over_dims(
        input: Tensor, dim: Value = None, keepdim: Value = False, dtype: Value = None, out: Value = None
    ) -> Cost:
        return reduce(input, row, dim, keepdim, dtype)

    return over_dims


def _dispatched(row: Reduction) -> Callable[..., Cost]:
    def dispatched(input: Tensor, *args: Value, dim: Value = None, keepdim: Value = False, dtype: Value = None) -> Cost:
        """(input, dtype) or (input, dim, keepdim, dtype, out): the number of arguments decides; dimensions are a
        list."""
        if len(args) == 1 and (isinstance(args[0], Other) or not isinstance(args[0], tuple)):
            return reduce(input, row, dtype=args[0])
        arguments = dict(enumerate(args))
        return reduce(input, row, arguments.get(0, dim), arguments.get(1, keepdim), arguments.get(2, dtype))

    return dispatched


for _name, _row in REDUCTIONS.items():
    if _name not in ("var", "norm"):  # their arguments stand otherwise
        cost(_name)(_over_dims(_row))
for _name in ("sum", "mean", "prod"):
    cost(f"aten::{_name}")(_dispatched(REDUCTIONS[_name]))
cost("aten.aten::prod.dim_int")(_over_dims(REDUCTIONS["prod"]))  # its dimension is a number, as a dtype is


@cost(
    "norm",
    "native_norm",
    "linalg_vector_norm",
    "linalg_norm",
    "torch.linalg.norm",
    "torch.linalg.vector_norm",
)
def norm(
    input: Tensor, p: Value = 2, dim: Value = None, keepdim: Value = False, out: Value = None, dtype: Value = None,
    ord: Value = None,
) -> Cost:  # fmt: skip
    """(Σ |x|^p)^(1/p): power and addition per element, a root per result. Source: torch.norm.

    The aten operators have dtype in the position of the user function's out.

    >>> norm(Tensor((4, 8), "float32")), norm(Tensor((4, 8), "complex64"), 2, 1)  # of complex numbers real: 256 + 4·4
    (Cost(flops=65, bytes=132), Cost(flops=68, bytes=272))
    """
    if out is not None and not isinstance(out, Tensor):
        dtype = out
    return reduce(input, REDUCTIONS["norm"], dim, keepdim, dtype)


@cost("var", "std")
def var(
    input: Tensor, dim: Value = None, unbiased: Value = None, keepdim: Value = False, correction: Value = None,
    out: Value = None,
) -> Cost:  # fmt: skip
    """Mean, subtract, square, add: 4 per element, a division per result (the root of std is not counted).

    `dim` may be the bool `unbiased` of torch's short form. Source: torch.var.

    >>> var(Tensor((4, 8), "float32"), -1), var(Tensor((4, 8), "float32"), True)
    (Cost(flops=132, bytes=144), Cost(flops=129, bytes=132))
    """
    return reduce(input, REDUCTIONS["var"], None if isinstance(dim, bool) else dim, keepdim)


@cost("var_mean", "std_mean")
def var_mean(
    input: Tensor, dim: Value = None, unbiased: Value = None, keepdim: Value = False, correction: Value = None
) -> Cost:
    """The same with a second result; the mean of complex numbers is complex. Source: torch.var_mean.

    >>> var_mean(Tensor((4, 8), "float32"), -1), var_mean(Tensor((4, 8), "complex64"), -1)  # 256 + 4·4 + 4·8
    (Cost(flops=136, bytes=160), Cost(flops=136, bytes=304))
    """
    variance = var(input, dim, unbiased, keepdim, correction)
    results = Tensor(reduced(input.shape, None if isinstance(dim, bool) else dim, keepdim), input.dtype)
    mean = bytes_of(results)
    assert variance.flops is not None
    moved = None if variance.bytes is None or mean is None else variance.bytes + mean
    return variance._replace(flops=variance.flops + results.numel, bytes=moved)


@cost("max", "min")
def extreme(input: Tensor, dim: Value = None, keepdim: Value = False, other: Value = None, out: Value = None) -> Cost:
    """Three operators: over everything; over a dimension, with int64 indices; of two tensors. Source: torch.max.

    >>> t = Tensor((4, 8), "float32")
    >>> extreme(t), extreme(t, -1), extreme(t, t)  # 4·(32 + 1); 4·(32 + 4) + 8·4; 4·(32 + 32 + 32)
    (Cost(flops=32, bytes=132), Cost(flops=32, bytes=176), Cost(flops=32, bytes=384))
    """
    second = other if other is not None else dim
    if isinstance(second, Tensor):
        return elementwise((input, second), 1, None, Derivative((2, 2), ((0, 1), (0, 1))))
    whole = reduce(input, REDUCTIONS["amax"], dim, keepdim)
    if dim is None:
        return whole
    values = Tensor(reduced(input.shape, dim, keepdim), input.dtype)
    indices = Tensor(values.shape, "int64")
    dgrad = Cost(0, bytes_of(values, indices, like(input))) if is_float(input.dtype) else None
    return Cost(whole.flops, bytes_of(input, values, indices), dgrad=dgrad)


@cost("aminmax", "_aminmax")
def aminmax(input: Tensor, dim: Value = None, keepdim: Value = False) -> Cost:
    """Two comparisons per element, two results. Source: torch.aminmax.

    >>> aminmax(Tensor((4, 8), "float32"))
    Cost(flops=64, bytes=136)
    """
    return reduce(input, REDUCTIONS["amax"]._replace(each=2, backward=None), dim, keepdim, results=2)


@cost("cumsum", "cumprod", "logcumsumexp", "_logcumsumexp")
def cumsum(input: Tensor, dim: Value, dtype: Value = None, out: Value = None, inplace: bool = False) -> Cost:
    """One operation per element; the result is as large as the input. Backward of cumsum: one more scan.

    >>> cumsum(Tensor((4, 8), "float32"), 0), cumsum(Tensor((4, 8), "int32"), 0)
    (Cost(flops=32, bytes=256), Cost(flops=32, bytes=384))
    """
    dims(dim, len(input.shape))
    kind = "int64" if CATEGORY.get(input.dtype or "", INT + 1) <= INT and not inplace else input.dtype
    output = Tensor(input.shape, chosen_dtype(None if isinstance(dtype, Tensor) else dtype, kind))
    dgrad = Cost(input.numel, bytes_of(output, like(input))) if is_float(input.dtype) else None
    return Cost(input.numel, bytes_of(input, output), dgrad=dgrad)


@cost("cummax", "cummin")
def cummax(input: Tensor, dim: Value) -> Cost:
    """A comparison per element; values and int64 indices are written. Source: torch.cummax.

    >>> cummax(Tensor((4, 8), "float32"), 0)
    Cost(flops=32, bytes=512)
    """
    dims(dim, len(input.shape))
    return Cost(input.numel, bytes_of(input, like(input), Tensor(input.shape, "int64")))


@cost("_cummax_helper", "_cummin_helper")
def cummax_helper(input: Tensor, values: Tensor, indices: Tensor, dim: Value) -> Cost:
    """The results are arguments. Source: aten::_cummax_helper.

    >>> x = Tensor((4, 8), "float32")
    >>> cummax_helper(x, x, Tensor((4, 8), "int64"), 0)
    Cost(flops=32, bytes=512)
    """
    return cummax(input, dim)


@cost("frobenius_norm")
def frobenius_norm(input: Tensor, dim: Value = None, keepdim: Value = False, out: Value = None) -> Cost:
    """Square and add per element, a root per result. Source: torch.frobenius_norm.

    >>> frobenius_norm(Tensor((4, 8), "float32"), (0, 1))
    Cost(flops=65, bytes=132)
    """
    return reduce(input, REDUCTIONS["norm"], dim, keepdim)


@cost("linalg__powsum")
def powsum(input: Tensor, ord: Value = 2, dim: Value = None, keepdim: Value = False, dtype: Value = None) -> Cost:
    """Σ |x|^p without the root. Source: aten::linalg__powsum.

    >>> powsum(Tensor((4, 8), "float32"))
    Cost(flops=64, bytes=132)
    """
    return reduce(input, REDUCTIONS["norm"]._replace(result=0), dim, keepdim, dtype)


@cost("_is_all_true", "_is_any_true")
def is_all_true(input: Tensor) -> Cost:
    """Source: aten::_is_all_true.

    >>> is_all_true(Tensor((4, 8), "bool"))
    Cost(flops=32, bytes=33)
    """
    return reduce(input, REDUCTIONS["all"])


@cost("hash_tensor")
def hash_tensor(input: Tensor, dim: Value = None, *parameters: Value) -> Cost:
    """An exclusive or per element into one uint64 per slice. Source: torch.hash_tensor.

    >>> hash_tensor(Tensor((4, 8), "float32"))
    Cost(flops=32, bytes=136)
    """
    return reduce(input, Reduction(1, 0, "uint64"), dim)


@cost("equal")
def equal(input: Tensor, other: Tensor) -> Cost:
    """One comparison per element, as if all elements were equal; the answer is a Python bool. Source: torch.equal.

    >>> equal(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=4, bytes=32)
    """
    return Cost(input.numel, bytes_of(input, other))

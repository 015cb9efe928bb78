# SPDX-License-Identifier: Apache-2.0
"""Reductions and scans: sum, mean, norms, extremes, variance, cumsum.

FLOPs per input element as their table says, plus what is done per result. Bytes: the input once, the result once;
an integer sum is an int64. The backward, in dgrad, reads and writes what its row says.
Add a reduction: one row.

>>> total = REDUCTIONS["sum"]
>>> reduce(Tensor((4, 8), "float32"), total, -1)
Cost(flops=32, bytes=144)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyprof.model import Cost, Tensor, Value
from pyprof.prof.cost import bytes_of, cost
from pyprof.prof.ops.shapes import CATEGORY, INT, chosen_dtype, dims, dtype_of, floating, is_float, like, reduced


class Reduction(NamedTuple):
    """FLOPs per input element and per result, the result's dtype (None: the input's), FLOPs of the backward per
    input element, and whether that reads the input again. A backward of None: there is none."""

    each: int
    result: int = 0
    dtype: str | None = None  # "wide": integers become int64, "float": a floating type
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
    "var": Reduction(4, 1, None, 2, True),  # mean, subtract, square, add
    "std": Reduction(4, 2, None, 2, True),
    "norm": Reduction(2, 1, None, 2, True),  # power, add; root
    "linalg_vector_norm": Reduction(2, 1, None, 2, True),
}


def reduce(
    input: Tensor, row: Reduction, dim: Value = None, keepdim: Value = False, dtype: Value = None, results: int = 1
) -> Cost:
    """Cost of a reduction over `dim` (None: all)."""
    if isinstance(dtype, Tensor):  # out=
        dtype = None
    kind = input.dtype if row.dtype in (None, "wide", "float") else row.dtype
    if row.dtype == "wide" and CATEGORY.get(input.dtype or "", INT + 1) <= INT:
        kind = "int64"
    kind = chosen_dtype(dtype, floating(kind) if row.dtype == "float" else kind)
    output = Tensor(reduced(input.shape, dim, keepdim), kind)
    flops = row.each * input.numel + row.result * output.numel * results
    dgrad = None
    if row.backward is not None and is_float(kind) and is_float(input.dtype):
        reads = (input, output) if row.rereads else ()
        dgrad = Cost(row.backward * input.numel, bytes_of(output, *reads, like(input)))
        if not row.backward:
            dgrad = Cost(0, 0, basis="view")
    return Cost(flops, bytes_of(input, *[output] * results), dgrad=dgrad)


def _reduction(row: Reduction) -> Callable[..., Cost]:
    def over_dims(input: Tensor, dim: Value = None, keepdim: Value = False, dtype: Value = None, out: Value = None) -> Cost:
        return reduce(input, row, dim, keepdim, dtype)

    return over_dims


for _name in ("nansum", "nanmean", "amax", "amin", "all", "any", "argmax", "argmin", "count_nonzero", "logsumexp"):
    cost(_name)(_reduction(REDUCTIONS[_name]))


@cost("mean")
def mean(input: Tensor, dim: Value = None, keepdim: Value = False, dtype: Value = None, out: Value = None) -> Cost:
    """One division per result. aten::mean without dim has dtype in its place. Source: torch.mean.

    >>> mean(Tensor((4, 8), "float32"))
    Cost(flops=33, bytes=132)
    """
    return reduce(input, REDUCTIONS["mean"], dim, keepdim, dtype)


@cost("aten::sum", "aten::mean", "aten::prod")
def dispatched_sum(input: Tensor, *args: Value) -> Cost:
    """Two arguments are (input, dtype), more are (input, dim, keepdim, dtype, out). Source: aten::sum, aten::prod.

    All three are counted by their names' rows through `sum`: prod and mean have the same FLOPs but for the division.
    """
    raise NotImplementedError


@cost("sum")
def sum(input: Tensor, dim: Value = None, keepdim: Value = False, dtype: Value = None, out: Value = None) -> Cost:
    """Source: torch.sum.

    >>> sum(Tensor((4, 8), "bool"), (0,), keepdim=True)  # 32 + 8·8
    Cost(flops=32, bytes=96)
    """
    return reduce(input, REDUCTIONS["sum"], dim, keepdim, dtype)

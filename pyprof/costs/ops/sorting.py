# SPDX-License-Identifier: Apache-2.0
"""Sorting: the number of comparisons depends on the algorithm, so FLOPs are unknown; bytes are input and results.

>>> sort(Tensor((4, 8), "float32"))  # 128 + 128 + 32·8
Cost(flops=None, bytes=512)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, dims, like, reduced


def _picked(input: Tensor, shape: tuple[int, ...]) -> Cost:
    return Cost(None, bytes_of(input, Tensor(shape, input.dtype), Tensor(shape, "int64")))


@cost("median", "nanmedian")
def median(input: Tensor, dim: Value = None, keepdim: Value = False) -> Cost:
    """Over a dimension with int64 indices. Source: torch.median.

    >>> median(Tensor((4, 8), "float32"), 1)  # 128 + 4·4 + 4·8
    Cost(flops=None, bytes=176)
    """
    if dim is None:
        return Cost(None, bytes_of(input, Tensor((), input.dtype)))
    return _picked(input, reduced(input.shape, as_int(dim), keepdim))


@cost("kthvalue")
def kthvalue(input: Tensor, k: Value, dim: Value = -1, keepdim: Value = False) -> Cost:
    """Source: torch.kthvalue.

    >>> kthvalue(Tensor((4, 8), "float32"), 2)
    Cost(flops=None, bytes=176)
    """
    return _picked(input, reduced(input.shape, as_int(dim), keepdim))


@cost("argsort")
def argsort(input: Tensor, *parameters: Value, dim: Value = -1) -> Cost:
    """Only the int64 indices are written. Source: torch.argsort.

    >>> argsort(Tensor((4, 8), "float32"))
    Cost(flops=None, bytes=384)
    """
    return Cost(None, bytes_of(input, Tensor(input.shape, "int64")))


@cost("sort")
def sort(input: Tensor, *parameters: Value, dim: Value = -1, descending: Value = False, stable: Value = None) -> Cost:
    """Values and int64 indices are written. Source: torch.sort.

    >>> sort(Tensor((4, 8), "float32"))
    Cost(flops=None, bytes=512)
    """
    return Cost(None, bytes_of(input, like(input), Tensor(input.shape, "int64")))


@cost("topk")
def topk(
    input: Tensor, k: Value, dim: Value = -1, largest: Value = True, sorted: Value = True, out: Value = None
) -> Cost:
    """k values and int64 indices per row; FLOPs unknown. Source: torch.topk.

    >>> topk(Tensor((4, 8), "float32"), 2)  # 128 + 8·4 + 8·8
    Cost(flops=None, bytes=224)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    count = input.numel // input.shape[along] * as_int(k)
    return Cost(None, bytes_of(input, Tensor((count,), input.dtype), Tensor((count,), "int64")))


@cost("msort")
def msort(input: Tensor, out: Value = None) -> Cost:
    """Values only, along the first dimension. Source: torch.msort.

    >>> msort(Tensor((4, 8), "float32"))
    Cost(flops=None, bytes=256)
    """
    return Cost(None, bytes_of(input, like(input)))

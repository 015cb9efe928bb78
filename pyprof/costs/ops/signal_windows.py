# SPDX-License-Identifier: Apache-2.0
"""Sequences computed from numbers: signal windows and index triangles. Bytes: the result.

FLOPs per element: bartlett 3 (scale, subtract, abs), hann and hamming 4 (scale, cosine, multiply, subtract),
blackman 7, kaiser 7 (a root and two Bessel functions among them).

>>> hann(8)
Cost(flops=32, bytes=32)
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import DEFAULT, as_int, chosen_dtype

WINDOWS = {"bartlett": 3, "hann": 4, "hamming": 4, "blackman": 7, "kaiser": 7}


def _window(flops: int) -> Callable[..., Cost]:
    def window_(window_length: Value, *parameters: Value, dtype: Value = None) -> Cost:
        n = as_int(window_length)
        return Cost(flops * n, bytes_of(Tensor((n,), chosen_dtype(dtype, DEFAULT))))

    return window_


for _name, _flops in WINDOWS.items():
    cost(f"{_name}_window")(_window(_flops))
hann = _window(WINDOWS["hann"])


def _below(rows: int, columns: int, offset: int) -> int:
    """Return the number of elements (i, j) with j <= i + offset.

    >>> _below(3, 3, 0), _below(3, 4, -1), _below(2, 5, 1)
    (6, 3, 5)
    """
    first = max(0, min(columns, 1 + offset))
    full_from = max(0, columns - 1 - offset)  # rows from here on are whole
    start = max(0, -offset)
    growing = max(0, min(rows, full_from) - start)
    begin = first if start == 0 else 1
    whole = max(0, rows - max(full_from, start)) * columns
    return growing * begin + growing * (growing - 1) // 2 + whole


@cost("tril_indices")
def tril_indices(row: Value, col: Value, offset: Value = 0, dtype: Value = None, *parameters: Value) -> Cost:
    """Two rows of indices. Source: torch.tril_indices.

    >>> tril_indices(3, 3)
    Cost(flops=0, bytes=96)
    """
    count = _below(as_int(row), as_int(col), as_int(offset))
    return Cost(0, bytes_of(Tensor((2, count), chosen_dtype(dtype, "int64"))))


@cost("triu_indices")
def triu_indices(row: Value, col: Value, offset: Value = 0, dtype: Value = None, *parameters: Value) -> Cost:
    """Source: torch.triu_indices.

    >>> triu_indices(3, 4)  # 12 less those below the diagonal, 3
    Cost(flops=0, bytes=144)
    """
    rows, columns = as_int(row), as_int(col)
    count = rows * columns - _below(rows, columns, as_int(offset) - 1)
    return Cost(0, bytes_of(Tensor((2, count), chosen_dtype(dtype, "int64"))))

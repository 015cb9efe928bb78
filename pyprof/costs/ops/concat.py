# SPDX-License-Identifier: Apache-2.0
"""Concatenation of tensors: cat and stack. No FLOPs; every input read once, the result written once.

The backward is slices of the gradient: views. Classic markers flatten the list, `cat([a, b], 1)` is (a, b, 1).

>>> cat((Tensor((2, 3), "float32"), Tensor((2, 5), "float16")), 1)  # 24 + 20 + 16·4
Cost(flops=0, bytes=108)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.shapes import as_int, dims, require, result_dtype, scalars_in, tensors_in


def _joined(parts: list[Tensor]) -> Cost:
    output = Tensor((sum(t.numel for t in parts),), result_dtype(*parts))
    return Cost(0, bytes_of(*parts, output), dgrad=VIEW)


@cost("cat", "concat", "concatenate", "_cat")
def cat(*args: Value, tensors: Value = None, dim: Value = 0, out: Value = None) -> Cost:
    """All sizes except that of `dim` agree; an empty vector is skipped. Source: torch.cat.

    >>> a = Tensor((2, 3), "float32")
    >>> cat(a, a, 1) == cat((a, a), 1) == cat((a, a), dim=-1)
    True
    """
    parts = tensors_in((*args, tensors))
    scalars = [value for value in scalars_in(args) if value != ()]
    real = [t for t in parts if t.shape != (0,)]
    rank = len((real or parts)[0].shape)
    (along,) = dims(as_int(scalars[0] if scalars else dim), rank) if rank else (0,)
    require(len({t.shape[:along] + t.shape[along + 1 :] for t in real}) < 2, "sizes do not agree")
    return _joined(parts)


@cost("stack", "hstack", "vstack", "dstack", "column_stack", "row_stack", "_stack")
def stack(*args: Value, tensors: Value = None, dim: Value = 0, out: Value = None) -> Cost:
    """The result has the elements of all tensors. Source: torch.stack.

    >>> stack((Tensor((2, 3), "float32"), Tensor((2, 3), "float32")), 0)
    Cost(flops=0, bytes=96)
    """
    parts = tensors_in((*args, tensors))
    require(bool(parts), "no tensors")
    return _joined(parts)

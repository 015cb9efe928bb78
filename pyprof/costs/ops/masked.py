# SPDX-License-Identifier: Apache-2.0
"""Elements selected by a mask, and gradients scattered into zeros. No FLOPs.

>>> masked_fill(Tensor((4, 8), "float32"), Tensor((8,), "bool"), 0.0)  # 128 + 8 + 128
Cost(flops=0, bytes=264)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.pointwise import Derivative, elementwise
from pyprof.costs.ops.shapes import as_int, as_tensor, dims, like, sizes


@cost("masked_fill", moves=True)
def masked_fill(input: Tensor, mask: Tensor, value: Value, inplace: bool = False) -> Cost:
    """The whole destination counts as read and written. Source: torch.Tensor.masked_fill_.

    >>> masked_fill(Tensor((4, 8), "float16"), Tensor((4, 8), "bool"), float("-inf"), inplace=True)
    Cost(flops=0, bytes=160)
    """
    number = value if isinstance(value, Tensor) else None
    return elementwise((input, mask, number), 0, as_tensor(input).dtype, Derivative((0,)), inplace)


@cost(
    "masked_select",
    "nonzero",
    "nonzero_static",
    "argwhere",
    "unique",
    "_unique2",
    "unique_consecutive",
    "bincount",
    "unique_dim",
    "unique_dim_consecutive",
    "_unique",
    "nonzero_numpy",
)
def masked_select(input: Tensor, *parameters: Value, **options: Value) -> Cost:
    """The size of the result depends on data: bytes unknown. Source: torch.masked_select.

    >>> masked_select(Tensor((4, 8), "float32"), Tensor((4, 8), "bool"))
    Cost(flops=0, bytes=None)
    """
    as_tensor(input)
    return Cost(0, None)


@cost("masked_scatter", moves=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Cost:
    """The part of the source that is read depends on data: bytes unknown. Source: torch.Tensor.masked_scatter_.

    >>> masked_scatter(Tensor((4, 8), "float32"), Tensor((4, 8), "bool"), Tensor((32,), "float32"))
    Cost(flops=0, bytes=None)
    """
    as_tensor(input)
    return Cost(0, None)


@cost("select_backward", "slice_backward", "unfold_backward", "diagonal_backward", "as_strided_backward")
def slice_backward(grad_output: Tensor, input_sizes: Value, *parameters: Value) -> Cost:
    """The gradient of a view scattered into zeros: reads it, writes a gradient as large as the source.

    Source: aten::slice_backward.

    >>> slice_backward(Tensor((2, 8), "float32"), (4, 8), 0, 0, 2, 1)
    Cost(flops=0, bytes=192)
    """
    return Cost(0, bytes_of(grad_output, Tensor(sizes((input_sizes,)), grad_output.dtype)))


@cost("value_selecting_reduction_backward")
def value_selecting_reduction_backward(
    grad: Tensor, dim: Value, indices: Tensor, sizes_: Value, keepdim: Value = False
) -> Cost:
    """Backward of max over a dimension. Source: aten::value_selecting_reduction_backward.

    >>> value_selecting_reduction_backward(Tensor((4,), "float32"), 1, Tensor((4,), "int64"), (4, 8))
    Cost(flops=0, bytes=176)
    """
    return Cost(0, bytes_of(grad, indices, Tensor(sizes((sizes_,)), grad.dtype)))


@cost("one_hot")
def one_hot(input: Tensor, num_classes: Value) -> Cost:
    """Reads the classes, writes a row of int64 each; without num_classes the size depends on data. Source: F.one_hot.

    >>> one_hot(Tensor((4,), "int64"), 10)
    Cost(flops=0, bytes=352)
    """
    classes = as_int(num_classes)
    if classes < 0:
        return Cost(0, None)
    return Cost(0, bytes_of(input, Tensor((*input.shape, classes), "int64")))


@cost("diag")
def diag(input: Tensor, *parameters: Value) -> Cost:
    """Sizes depend on the rank and offset: only a vector to a matrix, or a matrix's diagonal. Source: torch.diag.

    >>> diag(Tensor((3, 4), "float32"))  # 3 read, 3 written
    Cost(flops=0, bytes=24)
    """
    if parameters or len(input.shape) > 2:
        raise ValueError("an offset or a batch")
    if len(input.shape) == 1:
        n = input.shape[0]
        return Cost(0, bytes_of(input, Tensor((n, n), input.dtype)))
    part = Tensor((min(input.shape),), input.dtype)
    return Cost(0, bytes_of(part, part))


@cost("repeat_interleave")
def repeat_interleave(input: Tensor, repeats: Value = None, dim: Value = None, output_size: Value = None) -> Cost:
    """Every element several times; with a tensor of repeats the size depends on data. Source: torch.repeat_interleave.

    >>> repeat_interleave(Tensor((4,), "float32"), 3)
    Cost(flops=0, bytes=64)
    """
    if isinstance(repeats, Tensor) or repeats is None:
        return Cost(0, None)
    dims(dim, len(input.shape))
    output = Tensor((input.numel * as_int(repeats),), input.dtype)
    return Cost(0, bytes_of(input, output), dgrad=Cost(output.numel, bytes_of(output, like(input))))

# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor copied out, inserted, or rearranged: the copying forms of views, scatters by slice, diagonals.

No FLOPs. A part that is copied out is read and written; inserting one into a copy of the input costs that copy.

>>> narrow_copy(Tensor((4, 8), "float32"), 1, 0, 3)  # 12 read, 12 written
Cost(flops=0, bytes=96)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, dims, is_float, like, require, result_dtype, sizes, tensors_in


def part_of(input: Tensor, count: int) -> Cost:
    """Return the cost of reading and writing `count` elements; the backward scatters their gradient into zeros."""
    part, read = Tensor((count,), input.dtype), Tensor((min(count, input.numel),), input.dtype)
    dgrad = Cost(0, bytes_of(part, like(input))) if is_float(input.dtype) else None
    return Cost(0, bytes_of(read, part), dgrad=dgrad)


@cost("narrow_copy")
def narrow_copy(input: Tensor, dim: Value, start: Value, length: Value) -> Cost:
    """Source: torch.narrow_copy.

    >>> narrow_copy(Tensor((4, 8), "float32"), 0, 1, 2)
    Cost(flops=0, bytes=128)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    return part_of(input, input.numel // max(input.shape[along], 1) * as_int(length))


@cost("select_copy")
def select_copy(input: Tensor, dim: Value, index: Value) -> Cost:
    """Source: aten::select_copy.

    >>> select_copy(Tensor((4, 8), "float32"), 0, 1)
    Cost(flops=0, bytes=64)
    """
    return narrow_copy(input, dim, index, 1)


@cost("slice_copy")
def slice_copy(input: Tensor, dim: Value = 0, start: Value = None, end: Value = None, step: Value = 1) -> Cost:
    """Source: aten::slice_copy.

    >>> slice_copy(Tensor((4, 8), "float32"), 1, 0, 8, 2)
    Cost(flops=0, bytes=128)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    first = None if start is None else as_int(start)
    last = None if end is None else as_int(end)
    length = len(range(*slice(first, last, as_int(step)).indices(input.shape[along])))
    return narrow_copy(input, dim, 0, length)


@cost("as_strided_copy")
def as_strided_copy(input: Tensor, size: Value, stride: Value = None, storage_offset: Value = None) -> Cost:
    """Source: aten::as_strided_copy.

    >>> as_strided_copy(Tensor((4, 8), "float32"), (3, 2), (1, 1))
    Cost(flops=0, bytes=48)
    """
    return part_of(input, prod(sizes((size,))))


@cost("unfold_copy")
def unfold_copy(input: Tensor, dimension: Value, size: Value, step: Value) -> Cost:
    """Windows along a dimension; they may overlap. Source: aten::unfold_copy.

    >>> unfold_copy(Tensor((2, 8), "float32"), 1, 4, 2)  # 16 read, 3 windows of 4 written
    Cost(flops=0, bytes=160)
    """
    (along,) = dims(as_int(dimension), len(input.shape))
    windows = (input.shape[along] - as_int(size)) // as_int(step) + 1
    return part_of(input, input.numel // input.shape[along] * windows * as_int(size))


def _diagonal(shape: tuple[int, ...], offset: Value, dim1: Value, dim2: Value) -> int:
    """Return the number of elements on a diagonal."""
    first, second = as_int(dim1) % len(shape), as_int(dim2) % len(shape)
    shift = as_int(offset)
    rows, columns = shape[first], shape[second]
    length = max(0, min(rows, columns - shift) if shift >= 0 else min(rows + shift, columns))
    return prod(n for d, n in enumerate(shape) if d not in (first, second)) * length


@cost("diagonal_copy")
def diagonal_copy(input: Tensor, offset: Value = 0, dim1: Value = 0, dim2: Value = 1) -> Cost:
    """Source: aten::diagonal_copy.

    >>> diagonal_copy(Tensor((4, 8), "float32"), 1)
    Cost(flops=0, bytes=32)
    """
    return part_of(input, _diagonal(input.shape, offset, dim1, dim2))


@cost("select_scatter", "slice_scatter", "as_strided_scatter", "diagonal_scatter")
def scattered(input: Tensor, src: Tensor, *parameters: Value, **keywords: Value) -> Cost:
    """A copy of the input with a part replaced: both read, one written; the overwritten part is included in the count.

    Source: torch.slice_scatter.

    >>> scattered(Tensor((4, 8), "float32"), Tensor((2, 8), "float32"), 0, 0, 2)  # 128 + 64 + 128
    Cost(flops=0, bytes=320)
    """
    dgrad = Cost(0, bytes_of(like(input), like(input), like(src))) if is_float(input.dtype) else None
    return Cost(0, bytes_of(input, src, like(input)), dgrad=dgrad)


@cost("slice_inverse")
def slice_inverse(input: Tensor, src: Tensor, *parameters: Value) -> Cost:
    """A view of the source's storage. Source: aten::slice_inverse.

    >>> slice_inverse(Tensor((2, 8), "float32"), Tensor((4, 8), "float32")).basis
    'view'
    """
    return Cost(0, 0, basis="view")


@cost("diag_embed", "diagflat")
def diag_embed(input: Tensor, offset: Value = 0, dim1: Value = -2, dim2: Value = -1) -> Cost:
    """The last dimension becomes a diagonal of a matrix of zeros; diagflat flattens first. Source: torch.diag_embed.

    >>> diag_embed(Tensor((3, 4), "float32"))  # 48 + 3·16·4
    Cost(flops=0, bytes=240)
    """
    n = input.shape[-1] + abs(as_int(offset))
    output = Tensor((*input.shape[:-1], n, n), input.dtype)
    return Cost(0, bytes_of(input, output), dgrad=Cost(0, bytes_of(like(input), like(input))))


@cost("Tensor.diagflat", "torch.diagflat", "aten::diagflat")
def diagflat(input: Tensor, offset: Value = 0) -> Cost:
    """Source: torch.diagflat.

    >>> diagflat(Tensor((2, 2), "float32"))  # 16 + 16·4
    Cost(flops=0, bytes=80)
    """
    return diag_embed(Tensor((input.numel,), input.dtype), offset)


@cost("fill_diagonal")
def fill_diagonal(input: Tensor, fill_value: Value, wrap: Value = False, inplace: bool = True) -> Cost:
    """The diagonal is written. Source: torch.Tensor.fill_diagonal_.

    >>> fill_diagonal(Tensor((4, 8), "float32"), 1.0)
    Cost(flops=0, bytes=16)
    """
    return Cost(0, bytes_of(Tensor((min(input.shape),), input.dtype)))


@cost("block_diag")
def block_diag(*tensors: Value) -> Cost:
    """Blocks along the diagonal of zeros. Source: torch.block_diag.

    >>> block_diag(Tensor((2, 3), "float32"), Tensor((4, 4), "float32"))  # 22·4 + 6·7·4
    Cost(flops=0, bytes=256)
    """
    parts = tensors_in(tensors)
    require(all(len(t.shape) <= 2 for t in parts) and bool(parts), "matrices are expected")
    shapes = [(1,) * (2 - len(t.shape)) + t.shape for t in parts]
    output = Tensor((sum(s[0] for s in shapes), sum(s[1] for s in shapes)), result_dtype(*parts))
    return Cost(0, bytes_of(*parts, output))


@cost("cartesian_prod")
def cartesian_prod(*tensors: Value) -> Cost:
    """Every combination of elements. Source: torch.cartesian_prod.

    >>> cartesian_prod(Tensor((2,), "float32"), Tensor((3,), "float32"))  # 20 + 6·2·4
    Cost(flops=0, bytes=68)
    """
    parts = tensors_in(tensors)
    require(bool(parts), "vectors are expected")
    width = (len(parts),) if len(parts) > 1 else ()
    return Cost(0, bytes_of(*parts, Tensor((prod(t.numel for t in parts), *width), parts[0].dtype)))


@cost("combinations")
def combinations(input: Tensor, r: Value = 2, with_replacement: Value = False) -> Cost:
    """All subsets of r elements. Source: torch.combinations.

    >>> combinations(Tensor((4,), "float32"))  # 16 + 6·2·4
    Cost(flops=0, bytes=64)
    """
    n, k = input.numel, as_int(r)
    require(0 <= k <= 20, "too many elements")
    top = n + k - 1 if with_replacement is True else n
    count = prod(range(top - k + 1, top + 1)) // prod(range(1, k + 1)) if top >= k else 0
    return Cost(0, bytes_of(input, Tensor((count, k), input.dtype)))


@cost("_chunk_cat")
def chunk_cat(tensors: Value, dim: Value, num_chunks: Value, out: Value = None) -> Cost:
    """Padded chunks of each tensor, concatenated with those of the others. Source: aten::_chunk_cat.

    >>> chunk_cat((Tensor((5, 2), "float32"),), 0, 2)  # 40 + 2·3·2·4
    Cost(flops=0, bytes=88)
    """
    parts, chunks, along = tensors_in((tensors,)), as_int(num_chunks), as_int(dim)
    require(bool(parts) and chunks > 0 and along == 0, "chunks along the first dimension")
    count = sum(-(-t.shape[0] // chunks) * chunks * (t.numel // max(t.shape[0], 1)) for t in parts)
    return Cost(0, bytes_of(*parts, Tensor((count,), parts[0].dtype)))


@cost("unravel_index")
def unravel_index(indices: Tensor, shape: Value) -> Cost:
    """A division and a remainder per index and dimension. Source: torch.unravel_index.

    >>> unravel_index(Tensor((4,), "int64"), (3, 5))  # 2·2·4; 32 + 64
    Cost(flops=16, bytes=96)
    """
    rank = len(sizes((shape,)))
    return Cost(2 * rank * indices.numel, bytes_of(indices, *[like(indices)] * rank))


@cost("trace_backward")
def trace_backward(grad: Tensor, sizes_: Value) -> Cost:
    """The gradient on the diagonal of zeros. Source: aten::trace_backward.

    >>> trace_backward(Tensor((), "float32"), (4, 6))
    Cost(flops=0, bytes=100)
    """
    return Cost(0, bytes_of(grad, Tensor(sizes((sizes_,)), grad.dtype)))

# SPDX-License-Identifier: Apache-2.0
"""Elements gathered or scattered by index or mask: gather, scatter, index, index_put, x[i].

No FLOPs, but one per element that is added to its destination. Bytes: the gathered elements, not the whole source; the
indices; the written elements. In place, scattered elements are written (read too, if added); the other form copies the
whole destination. Results whose size depends on data (masks, nonzero) have unknown bytes.

The backward, in dgrad, adds the gradient into zeros: it reads gradient and indices, writes a gradient as large as the
source.

>>> gather(Tensor((100, 8), "float32"), 0, Tensor((10, 8), "int64"))  # 80·8 + 2·80·4
Cost(flops=0, bytes=1280)
"""

from __future__ import annotations

import re
from math import prod

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.shapes import (
    Shape,
    as_int,
    as_tensor,
    broadcast,
    dims,
    is_float,
    like,
    require,
    tensors_in,
)

_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?:(-?\d+)?")  # start:stop:step


def picked(input: Tensor, count: int | None, *indices: Tensor) -> Cost:
    """Return the cost of copying `count` elements of `input`."""
    if count is None:
        return Cost(0, None)
    part = Tensor((count,), input.dtype)
    dgrad = Cost(count, bytes_of(part, *indices, like(input))) if is_float(input.dtype) else None
    return Cost(0, bytes_of(*indices, part, part), dgrad=dgrad)


def placed(
    input: Tensor, index: tuple[Tensor, ...], count: int | None, source: Value, inplace: bool, adds: bool
) -> Cost:
    """Return the cost of writing `count` elements of `source` into `input`, or adding them to it."""
    if count is None:
        return Cost(None if adds else 0, None)
    part = Tensor((count,), input.dtype)
    read = [part] if isinstance(source, Tensor) and source.numel >= count else tensors_in((source,))
    old = [part] if adds and inplace else [] if inplace else [input]
    new = part if inplace else like(input)
    # The source's gradient is gathered; the input's is the output's, with zeros where something was overwritten.
    back = bytes_of(part, *index, part) if isinstance(source, Tensor) else bytes_of(*index, part)
    dgrad = Cost(0, back) if is_float(input.dtype) else None
    return Cost(count if adds else 0, bytes_of(*old, *index, *read, new), dgrad=dgrad)


@cost("gather", "take_along_dim", moves=True)
def gather(
    input: Tensor,
    dim: Value,
    index: Value = None,
    sparse_grad: Value = None,
    out: Value = None,
    indices: Value = None,
) -> Cost:
    """One element per index. take_along_dim has its indices before dim. Source: torch.gather.

    >>> gather(Tensor((4, 8), "float32"), Tensor((4, 2), "int64"), 1)
    Cost(flops=0, bytes=128)
    """
    positions = as_tensor(next(iter(tensors_in((indices, dim, index))), None))
    require(len(positions.shape) == len(input.shape) and not is_float(positions.dtype), "indices do not fit")
    return picked(input, positions.numel, positions)


@cost("take", moves=True)
def take(input: Tensor, index: Tensor, out: Value = None) -> Cost:
    """Source: torch.take.

    >>> take(Tensor((4, 8), "float32"), Tensor((3,), "int64"))
    Cost(flops=0, bytes=48)
    """
    return picked(input, index.numel, index)


@cost("index_select", moves=True)
def index_select(input: Tensor, dim: Value, index: Tensor, out: Value = None) -> Cost:
    """Whole slices. Source: torch.index_select.

    >>> index_select(Tensor((4, 8), "float32"), 1, Tensor((3,), "int64"))  # 3·8 + 2·12·4
    Cost(flops=0, bytes=120)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    return picked(input, input.numel // input.shape[along] * index.numel, index)


@cost("scatter", "scatter_reduce")
def scatter(
    input: Tensor, dim: Value, index: Tensor, src: Value = None, reduce: Value = None, include_self: Value = None,
    value: Value = None, out: Value = None, inplace: bool = False,
) -> Cost:  # fmt: skip
    """One element per index. With `reduce` it is added. Source: torch.Tensor.scatter_.

    >>> t, i = Tensor((4, 8), "float32"), Tensor((2, 8), "int64")
    >>> scatter(t, 0, i, t, inplace=True), scatter(t, 0, i, 1.0)  # 128 + 2·64; 128 + 128 + 128
    (Cost(flops=0, bytes=256), Cost(flops=0, bytes=384))
    """
    require(len(index.shape) == len(input.shape), "indices do not fit")
    return placed(input, (index,), index.numel, value if src is None else src, inplace, isinstance(reduce, str))


@cost("scatter_add")
def scatter_add(
    input: Tensor, dim: Value, index: Tensor, src: Tensor, out: Value = None, inplace: bool = False
) -> Cost:
    """Source: torch.Tensor.scatter_add_.

    >>> t, i = Tensor((4, 8), "float32"), Tensor((2, 8), "int64")
    >>> scatter_add(t, 0, i, t, inplace=True)  # 128 + 64 of the source, 64 read, 64 written
    Cost(flops=16, bytes=320)
    """
    require(len(index.shape) == len(input.shape), "indices do not fit")
    return placed(input, (index,), index.numel, src, inplace, True)


@cost("index_add")
def index_add(
    input: Tensor,
    dim: Value,
    index: Tensor,
    source: Tensor,
    alpha: Value = 1,
    out: Value = None,
    inplace: bool = False,
) -> Cost:
    """Source: torch.Tensor.index_add_.

    >>> index_add(Tensor((4, 8), "float32"), 0, Tensor((2,), "int64"), Tensor((2, 8), "float32"), inplace=True)
    Cost(flops=16, bytes=208)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    return placed(input, (index,), input.numel // input.shape[along] * index.numel, source, inplace, True)


@cost("index_copy", "index_fill", moves=True)
def index_copy(
    input: Tensor, dim: Value, index: Tensor, source: Value = None, value: Value = None,
    inplace: bool = False,
) -> Cost:  # fmt: skip
    """Whole slices. Source: torch.Tensor.index_copy_.

    >>> index_copy(Tensor((4, 8), "float32"), 0, Tensor((2,), "int64"), Tensor((2, 8), "float32"), inplace=True)
    Cost(flops=0, bytes=144)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    count = input.numel // input.shape[along] * index.numel
    return placed(input, (index,), count, value if source is None else source, inplace, False)


def _selected(shape: Shape, items: tuple[Value, ...], none_is_all: bool) -> int | None:
    """Return the number of elements that an index selects; None if it depends on a mask. A tuple in the index is a
    list of numbers."""
    used = sum(len(i.shape) if isinstance(i, Tensor) and i.dtype == "bool" else 1 for i in items if not _is_dots(i))
    used -= 0 if none_is_all else sum(i is None for i in items)
    require(used <= len(shape) and sum(map(_is_dots, items)) < 2, "too many indices")
    count, at = 1, 0
    advanced: list[Shape] = []
    for item in items:
        if item is None and not none_is_all:
            continue
        if _is_dots(item):
            hidden = len(shape) - used
            count *= prod(shape[at : at + hidden])
            at += hidden
            continue
        if isinstance(item, Tensor) and item.dtype == "bool":
            return None
        if isinstance(item, Tensor):
            advanced.append(item.shape)
        elif isinstance(item, tuple) and not isinstance(item, Other):
            advanced.append((len(item),))
        elif item is None:
            count *= shape[at]
        elif isinstance(item, Other):
            match = _SLICE.fullmatch(item.text)
            require(match is not None, f"an index of unknown kind, {item.text}")
            assert match is not None
            start, stop, step = (int(text) if text else None for text in match.groups())
            count *= len(range(*slice(start, stop, step).indices(shape[at])))
        else:
            as_int(item)
        at += 1
    return count * prod(broadcast(*advanced)) * prod(shape[at:])


def _is_dots(item: Value) -> bool:
    return isinstance(item, Other) and item.type == "ellipsis"


def _items(index: Value) -> tuple[Value, ...]:
    return index if isinstance(index, tuple) and not isinstance(index, (Tensor, Other)) else (index,)


@cost("getitem", moves=True)
def getitem(input: Tensor, index: Value) -> Cost:
    """x[index]: a view for numbers and slices, otherwise the elements that the index tensors select. Source:
    torch.Tensor.__getitem__.

    >>> getitem(Tensor((4, 8), "float32"), (0, Other("slice", "0:4:"))).basis
    'view'
    >>> getitem(Tensor((4, 8), "float32"), (Other("slice", "0:2:"), Tensor((3,), "int64")))  # 6 of 32
    Cost(flops=0, bytes=72)
    """
    items = _items(index)
    as_tensor(input)
    if all(item is None or isinstance(item, Other) or type(item) is int for item in items):
        return VIEW
    return picked(input, _selected(input.shape, items, False), *tensors_in(items))


@cost("setitem", moves=True)
def setitem(input: Tensor, index: Value, value: Value) -> Cost:
    """x[index] = value: writes the selected elements. Source: torch.Tensor.__setitem__.

    >>> setitem(Tensor((4, 8), "float32"), 0, 1.0), setitem(Tensor((4, 8), "float32"), 0, Tensor((8,), "float32"))
    (Cost(flops=0, bytes=32), Cost(flops=0, bytes=64))
    """
    items = _items(index)
    return placed(input, tuple(tensors_in(items)), _selected(input.shape, items, False), value, True, False)


@cost("index", "_unsafe_index", moves=True)
def index(input: Tensor, indices: Value) -> Cost:
    """None stands for a whole dimension. Source: aten::index.

    >>> index(Tensor((4, 8), "float32"), (None, Tensor((3,), "int64")))  # 3·8 + 2·12·4
    Cost(flops=0, bytes=120)
    """
    tensors = tensors_in((indices,))
    require(bool(tensors), "index tensors are expected")
    return picked(input, _selected(input.shape, _items(indices), True), *tensors)


@cost("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(
    input: Tensor, indices: Value, values: Tensor, accumulate: Value = False, unsafe: Value = False,
    inplace: bool = False,
) -> Cost:  # fmt: skip
    """Source: torch.Tensor.index_put_.

    >>> t, i = Tensor((100, 8), "float32"), (Tensor((3,), "int64"),)
    >>> index_put(t, i, Tensor((3, 8), "float32"), True, inplace=True)  # 24 + 96 read, 96 added to, 96 written
    Cost(flops=24, bytes=312)
    """
    tensors = tensors_in((indices,))
    require(bool(tensors), "index tensors are expected")
    count = _selected(input.shape, _items(indices), True)
    return placed(input, tuple(tensors), count, values, inplace, accumulate is True)


@cost("index_reduce")
def index_reduce(
    input: Tensor, dim: Value, index: Tensor, source: Tensor, reduce: Value = "prod", include_self: Value = True,
    inplace: bool = False,
) -> Cost:  # fmt: skip
    """Whole slices combined with the destination. Source: torch.Tensor.index_reduce_.

    >>> index_reduce(Tensor((4, 8), "float32"), 0, Tensor((2,), "int64"), Tensor((2, 8), "float32"), inplace=True)
    Cost(flops=16, bytes=208)
    """
    (along,) = dims(as_int(dim), len(input.shape))
    return placed(input, (index,), input.numel // input.shape[along] * index.numel, source, inplace, True)


@cost("put")
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: Value = False, inplace: bool = False) -> Cost:
    """Elements of the flattened tensor. Source: torch.Tensor.put_.

    >>> put(Tensor((4, 8), "float32"), Tensor((3,), "int64"), Tensor((3,), "float32"), inplace=True)
    Cost(flops=0, bytes=48)
    """
    return placed(input, (index,), index.numel, source, inplace, accumulate is True)


@cost("_unsafe_masked_index", moves=True)
def masked_index(input: Tensor, mask: Tensor, indices: Value, fill: Value) -> Cost:
    """The elements that the indices select, or a number where the mask is off. Source: aten::_unsafe_masked_index.

    >>> i = (Tensor((3,), "int64"),)
    >>> masked_index(Tensor((100,), "float32"), Tensor((3,), "bool"), i, 0.0)  # 24 + 3 + 24
    Cost(flops=0, bytes=51)
    """
    tensors = tensors_in((indices,))
    return picked(input, _selected(input.shape, _items(indices), True), *tensors, mask)


@cost("_unsafe_masked_index_put_accumulate")
def masked_index_put(input: Tensor, mask: Tensor, indices: Value, values: Tensor) -> Cost:
    """Source: aten::_unsafe_masked_index_put_accumulate.

    >>> i = (Tensor((3,), "int64"),)
    >>> masked_index_put(Tensor((10,), "float32"), Tensor((3,), "bool"), i, Tensor((3,), "float32"))  # 24+3+40+12+40
    Cost(flops=3, bytes=119)
    """
    tensors = tensors_in((indices,))
    count = _selected(input.shape, _items(indices), True)
    return placed(input, (*tensors, mask), count, values, False, True)

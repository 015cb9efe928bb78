# SPDX-License-Identifier: Apache-2.0
"""Operators that move no data: views, allocation, metadata. Cost 0, basis "view".

reshape, flatten and contiguous copy only if the strides require it. A tensor without recorded strides is assumed to be
contiguous: PyProf's capture omits those. Add a view: one name in the list.

>>> reshape(Tensor((4, 8), "float32", (1, 4)), -1), reshape(Tensor((4, 8), "float32", (8, 1)), -1).basis
(Cost(flops=0, bytes=256), 'view')
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.shapes import Shape, as_tensor, dims, is_contiguous, like, require, sizes, strides_of

VIEWS = (
    "view", "view_as", "_unsafe_view", "_reshape_alias", "transpose", "swapaxes", "swapdims", "permute", "t", "T",
    "mT", "H", "mH", "adjoint", "movedim", "moveaxis", "expand", "expand_as", "broadcast_to", "broadcast_tensors",
    "squeeze", "unsqueeze", "select", "slice", "narrow", "as_strided", "unflatten", "detach", "alias", "diagonal",
    "real", "imag", "view_as_real", "view_as_complex", "_conj", "conj", "_neg_view", "resolve_conj", "resolve_neg",
    "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d", "Tensor.unfold", "aten::unfold", "lift", "lift_fresh",
    "values", "indices", "_indices", "_values",
)  # fmt: skip
# Allocation without writing, and questions that the host answers from metadata. `item` and its like wait for a value:
# their time is a wait, not work. torch.compile runs operators on tensors without data.
NOTHING = (
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize",
    "resize_as", "set", "item", "_local_scalar_dense", "tolist", "numpy", "from_numpy", "size", "stride", "dim",
    "numel", "nelement", "ndimension", "is_nonzero", "is_floating_point", "is_complex", "is_signed",
    "is_contiguous", "is_pinned", "is_inference", "is_same_size", "is_tensor", "is_storage", "result_type",
    "promote_types", "can_cast", "requires_grad", "retain_grad", "has_torch_function", "cudnn_is_acceptable",
    "_has_compatible_shallow_copy_type", "sym_size", "sym_numel", "sym_stride", "_debug_has_internal_overlap",
    "record_stream", "_fused_sdp_choice", "broadcast_shapes", "storage_offset", "data_ptr", "element_size",
    "get_device", "register_hook", "_nnpack_available", "use_deterministic_algorithms", "is_grad_enabled",
    "torch.compile",
)  # fmt: skip


def _view(*args: Value, **keywords: Value) -> Cost:
    """Moves nothing."""
    return VIEW


cost(*VIEWS, *NOTHING)(_view)


@cost("unbind", "split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_split_with_sizes",
      "unsafe_chunk", "hsplit", "vsplit", "dsplit")  # fmt: skip
def split(input: Value, *parameters: Value) -> Cost:
    """Parts are views. The backward joins their gradients: reads them, writes the whole. Source: torch.split.

    >>> parts = split(Tensor((4, 8), "float32"), 2)
    >>> parts.basis, parts, parts.dgrad
    ('view', Cost(flops=0, bytes=0), Cost(flops=0, bytes=256))
    """
    if not isinstance(input, Tensor):
        return VIEW
    return VIEW._replace(dgrad=Cost(0, bytes_of(like(input), like(input))))


def viewable(shape: Shape, stride: Shape, target: Shape) -> bool:
    """Return whether a tensor can take another shape without a copy. Source: computeStride_impl, ATen/TensorUtils.cpp.

    >>> viewable((4, 8), (8, 1), (2, 16)), viewable((4, 8), (1, 4), (32,)), viewable((4, 8), (1, 4), (2, 2, 8))
    (True, False, True)
    """
    if prod(shape) == 0:
        return True
    left = list(target)
    chunk, step = 1, 1  # elements of a run of dimensions that lie evenly, and its innermost stride
    last = len(shape) - 1
    for i in range(last, -1, -1):
        if chunk == 1:
            step = stride[i]
        chunk *= shape[i]
        if i == 0 or (shape[i - 1] != 1 and stride[i - 1] != chunk * step):
            seen = 1
            while left and (seen < chunk or left[-1] == 1):
                seen *= left.pop()
            if seen != chunk:
                return False
            chunk = 1
    return not left or prod(left) == 1


def _copied(input: Tensor) -> Cost:
    """Return the cost of a copy: read and written once, like the gradient, which is rearranged again."""
    moved = bytes_of(input, like(input))
    return Cost(0, moved, dgrad=Cost(0, bytes_of(like(input), like(input))))


@cost("reshape", "reshape_as")
def reshape(input: Tensor, *shape: Value) -> Cost:
    """Source: torch.reshape.

    >>> reshape(Tensor((4, 8), "float32"), 32).basis
    'view'
    """
    first = shape[0] if shape else ()
    target = first.shape if isinstance(first, Tensor) else sizes(shape)
    product = prod(n for n in target if n != -1)
    require(target.count(-1) < 2 and all(n >= -1 for n in target), f"no shape {target}")
    if -1 in target:
        target = tuple(input.numel // product if n == -1 else n for n in target)
    require(prod(target) == input.numel, f"{input.shape} has no shape {target}")
    if viewable(input.shape, strides_of(input), target):
        return VIEW
    return _copied(input)


@cost("torch.reshape")
def reshape_function(input: Tensor, shape: Value) -> Cost:
    """The function's argument has another name. Source: torch.reshape.

    >>> reshape_function(Tensor((4, 8), "float32", (1, 4)), shape=(32,))
    Cost(flops=0, bytes=256)
    """
    return reshape(input, shape)


@cost("flatten", "ravel")
def flatten(input: Tensor, start_dim: Value = 0, end_dim: Value = -1) -> Cost:
    """Source: torch.flatten.

    >>> flatten(Tensor((2, 3, 4), "float32", (1, 2, 6)), 1)
    Cost(flops=0, bytes=192)
    """
    rank = len(input.shape)
    (first,), (last,) = dims(start_dim, rank) or {0}, dims(end_dim, rank) or {0}
    require(first <= last, "no dimension lies between")
    shape = (*input.shape[:first], prod(input.shape[first : last + 1]), *input.shape[last + 1 :])
    return reshape(input, shape)


@cost("contiguous")
def contiguous(input: Tensor, memory_format: Value = None) -> Cost:
    """A copy unless the elements are already in order by their strides. Source: torch.Tensor.contiguous.

    >>> contiguous(Tensor((4, 8), "float32", (8, 1))).basis, contiguous(Tensor((4, 8), "float32", (1, 4)))
    ('view', Cost(flops=0, bytes=256))
    """
    as_tensor(input)
    if _in_format(input.shape, strides_of(input), memory_format):
        return VIEW
    return _copied(input)


def _in_format(shape: Shape, stride: Shape, memory_format: Value) -> bool:
    """Return whether the elements are in order in a memory format. Channels last puts the second dimension after the
    others."""
    name = memory_format.text if isinstance(memory_format, Other) else memory_format
    if name in (2, 3) or (isinstance(name, str) and "channels_last" in name):
        order = (0, *range(2, len(shape)), 1)
        shape, stride = tuple(shape[i] for i in order), tuple(stride[i] for i in order)
    return is_contiguous(shape, stride)

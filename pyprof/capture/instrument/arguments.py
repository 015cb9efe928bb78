# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call: first a hashable key, built while the call waits; later the values that a marker carries.

The key holds shapes, dtype objects, strides and scalars, never a tensor, and reads no value of a tensor (no device
synchronization). Equal keys describe the same arguments, so a text is built once per distinct key.

>>> import torch
>>> arguments(key_of((torch.zeros(2, 3), 4), {"dim": 1}))[0]
Arg(name='', value=Tensor(shape=(2, 3), dtype='float32', stride=None))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pyprof.capture.core.torch_internals import DisableTorchFunction, DisableTorchFunctionSubclass, look_up
from pyprof.core.marker import Listed
from pyprof.core.model import Arg, Other, Value, tensor

Key = tuple[Any, ...]

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_SCALARS = frozenset({int, float, bool, str, complex})
_ATOMS = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format, type(...)})
_STRIDED = torch.strided
_SPARSE = {
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
}  # have no strides
_AGAIN = ...  # in a key, after a tensor: the memory of an earlier one
_storage_of = torch.Tensor.untyped_storage
_FEW = 8  # tensors of a call that are compared with each other: long lists of parameters have no duplicates
_LIMIT = 512  # elements of a sequence that are described
# The number of active modes. If it is unknown, one is assumed: that costs time, but no part of a recording.
_modes = look_up("torch._C._len_torch_function_stack", "", lambda: 1, check=lambda count: count() + 0)
# Tensors that stand for others while a program is traced or compiled: such a call computes nothing.
_TRACED = frozenset({"FakeTensor", "FunctionalTensor", "Proxy", "MetaProxy", "ShapeProxy"})
_real_tensor: dict[type, bool] = {}


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Describe a FakeTensor like any tensor inside this block: an estimate needs its shape."""
    from torch._subclasses.fake_tensor import FakeTensor

    _real_tensor[FakeTensor] = True
    try:
        yield
    finally:
        del _real_tensor[FakeTensor]


class Traced(Exception):
    """An argument is a stand-in of a tracer: the call must not be recorded."""


def key_of(args: Sequence[Any], kwargs: Mapping[str, Any], alone: bool = False) -> Key:
    """Return the key of a call's arguments, flat: a tensor is its torch.Size, dtype and, unless contiguous, strides,
    then _AGAIN if it shares the memory of an earlier one; a keyword is its name and a value; everything else is one
    entry.

    Raises Traced if one of them is a stand-in. Not for calls that torch.jit.trace records: it would write each
    x.shape below into the traced program.
    """
    if _modes() and not alone:
        # A mode of the user (torch.device as a context, for example) would see each x.shape below.
        with DisableTorchFunction():
            return key_of(args, kwargs, True)
    # Fast paths for most calls: 10 to 20 % less time than the loop. Operands of one shape may be the same tensor.
    if not kwargs:
        count = len(args)
        try:
            if count == 2:
                first, second = args
                if type(first) in _PLAIN and first.is_contiguous():
                    kind = type(second)
                    if kind in _PLAIN and second.is_contiguous() and first.shape != second.shape:
                        return (first.shape, first.dtype, second.shape, second.dtype)
                    if kind in _SCALARS:
                        return (first.shape, first.dtype, (kind, second))
            elif count == 1:
                (first,) = args
                if type(first) in _PLAIN and first.is_contiguous():
                    return (first.shape, first.dtype)
            elif count == 3:
                first, second, third = args
                if (
                    type(first) in _PLAIN and type(second) in _PLAIN and type(third) in _PLAIN
                    and first.is_contiguous() and second.is_contiguous() and third.is_contiguous()
                    and first.shape != second.shape != third.shape != first.shape
                ):  # fmt: skip
                    return (first.shape, first.dtype, second.shape, second.dtype, third.shape, third.dtype)
        except RuntimeError:  # raised by sparse or nested tensors
            pass
    return _key(args, kwargs)


def _key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key:
    out: list[Any] = []
    seen: list[torch.Tensor] = []
    for value in args:
        kind = type(value)
        if kind in _PLAIN:
            try:
                out += _shape(value)
                if _again(value, seen):
                    out.append(_AGAIN)
            except RuntimeError:
                out.append(_tensor(value, seen))
        elif kind in _SCALARS:
            out.append((kind, value))
        else:
            out.append(_item(value, kind, 0, seen))
    for name, value in kwargs.items():
        kind = type(value)
        # An output counts even if the same memory was read.
        out += (
            name,
            (kind, value) if kind in _SCALARS else _item(value, kind, 0, [] if name == "out" else seen),
        )
    return tuple(out)


def _again(value: torch.Tensor, seen: list[torch.Tensor]) -> bool:
    """Return whether a tensor shares memory with one of the first few before, and add it to them: the same object, or
    as many elements from the same offset of a storage (x and x.t())."""
    if len(seen) >= _FEW:
        return False
    plain = type(value) in _PLAIN
    shared = False
    for other in seen:
        if value is other:
            return True
        if plain and type(other) in _PLAIN and value.dtype is other.dtype:
            shared = shared or (value.shape.numel() == other.shape.numel() > 1 and _place(value) == _place(other))
    seen.append(value)
    return shared


def _place(value: torch.Tensor) -> tuple[int, Any]:
    """Return where a tensor's elements begin; its storage is not touched, and a lazy copy stays one."""
    try:
        return _storage_of(value)._cdata, value.storage_offset()
    except (RuntimeError, NotImplementedError):  # a sparse or nested tensor has no storage
        return id(value), 0


def _shape(value: torch.Tensor) -> tuple[Any, ...]:
    if value.is_contiguous():
        return value.shape, value.dtype
    if value.layout is not _STRIDED:  # that of MKL-DNN holds all elements
        return (value.shape, value.dtype, ()) if value.layout in _SPARSE else (value.shape, value.dtype)
    return value.shape, value.dtype, value.stride()


def symbolic(key: Any) -> bool:
    """Return whether a key holds a symbolic size, as while a program is compiled: such a key has no hash."""
    if isinstance(key, tuple):
        return any(symbolic(entry) for entry in key)
    return isinstance(key, torch.SymInt)


class _TensorKey(tuple[Any, ...]):
    """(shape, dtype, stride or None, again) of a tensor; a type of its own, so that no tuple of the user is mistaken
    for it."""

    __slots__ = ()


def _item(value: Any, kind: type, depth: int, seen: list[torch.Tensor]) -> Any:
    if value is None:
        return None
    if kind in _SCALARS or kind in _ATOMS:
        return (kind, value)  # with its type: 1, 1.0 and True are equal
    if kind in _PLAIN:
        return _tensor(value, seen)
    if kind is list or kind is tuple or kind is torch.Size:
        if len(value) > _LIMIT or depth > 3:
            return (kind, Other, len(value))
        return (
            list if kind is list else tuple,
            tuple(_item(item, type(item), depth + 1, seen) for item in value),
        )
    if kind is slice:
        return (slice, ":".join(_bound(bound) for bound in (value.start, value.stop, value.step)))
    real = _real_tensor.get(kind)
    if real is None:
        if kind.__name__ in _TRACED:
            raise Traced
        real = _real_tensor[kind] = issubclass(kind, torch.Tensor)
    if real:
        with DisableTorchFunctionSubclass():  # reading the shape must not call into the user's class
            return _tensor(value, seen)
    return (kind,)


def _bound(value: Any) -> str:
    """Return the text of one bound of a slice; a tensor's value is not read."""
    if value is None:
        return ""
    return str(value) if type(value) is int else type(value).__name__


def _tensor(value: torch.Tensor, seen: list[torch.Tensor]) -> Any:
    try:
        shape, dtype = tuple(value.shape), value.dtype
        layout = value.layout
        stride = value.stride() if layout is _STRIDED else () if layout in _SPARSE else None
    except RuntimeError:  # a nested tensor has no shape
        return (type(value),)
    return _TensorKey((shape, dtype, stride, _again(value, seen)))


def arguments(key: Key) -> tuple[Arg, ...]:
    """Return the arguments that a key describes."""
    out = []
    entries = list(key)
    place, name = 0, ""
    while place < len(entries):
        entry = entries[place]
        place += 1
        if type(entry) is str:
            name = entry
            continue
        if type(entry) is torch.Size:
            dtype, stride = entries[place], None
            place += 1
            if place < len(entries) and _is_stride(entries[place]):
                stride = entries[place]
                place += 1
            again = place < len(entries) and entries[place] is _AGAIN
            place += again
            entry = _TensorKey((entry, dtype, stride, again))
        out.append(Arg(name, _value(entry)))
        name = ""
    return tuple(out)


def _is_stride(entry: Any) -> bool:
    """Return whether an entry is a stride, the only plain tuple of integers in a key; others begin with a type."""
    return type(entry) is tuple and (not entry or type(entry[0]) is int)


def _value(item: Any) -> Value:
    if item is None:
        return None
    if type(item) is _TensorKey:
        shape, dtype, stride, again = item
        if not all(type(size) is int for size in shape):  # a jagged tensor: one of its sizes is a symbol
            return Other("Tensor", f"{dtype} {list(shape)}".removeprefix("torch."))
        return tensor(tuple(shape), str(dtype).removeprefix("torch."), stride)._replace(again=again)
    kind = item[0]
    if (kind is tuple or kind is list) and len(item) == 2:
        items = tuple(_value(inner) for inner in item[1])
        return items if kind is tuple else Listed(items)
    if len(item) == 3:
        return Other(kind.__name__, f"{item[2]} items")
    if len(item) == 1:
        return Other(kind.__name__)
    if kind is slice:
        return Other("slice", item[1])
    if kind is complex or kind in _ATOMS:
        return Other(kind.__name__, str(item[1]).removeprefix("torch."))
    value: Value = item[1]
    return value

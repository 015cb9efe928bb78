# SPDX-License-Identifier: Apache-2.0
"""An event's record of an operator's inputs as a `Call`: shapes, types and strides of tensors, scalars as text.

The arguments are in the order of the operator's schema and have no names. Traces before 2022 have no strides, those
before 2023 no values of scalars; a list of tensors has no types. Whatever is missing is unknown, not 0.
"""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from pyprof.core.marker import Listed, is_backward
from pyprof.core.model import Arg, Call, Other, Tensor, Value, tensor
from pyprof.core.symbols import dtype_of
from pyprof.parse.tracejson.events import FAULTS

# Types of inputs that are not tensors.
_LISTS = frozenset({"ScalarList", "GenericList"})
_SCALARS = {"Scalar": "scalar", "Int": "int", "Double": "float", "Bool": "bool", "Device": "device", "String": "str",
            "Generator": "Generator"}  # fmt: skip
_ANY = msgspec.json.Decoder(Any)
Key = tuple[str, bytes, bytes, bytes, bytes]


def call(key: Key) -> Call:
    """Build the call of an operator from its name, and the texts of its shapes, types, strides and concrete inputs.

    >>> call(("aten::mm", b"[[2, 3], [3, 4]]", b'["float", "float"]', b"[[3, 1], [1, 3]]", b'["", ""]')).args[1].value
    Tensor(shape=(3, 4), dtype='float32', stride=(1, 3))
    >>> types = b'["float", "ScalarList", "Scalar"]'
    >>> call(("aten::sum", b"[[2], [], []]", types, b"", b'["", "[0]", "True"]')).args[1:]
    (Arg(name='', value=(0,)), Arg(name='', value=True))
    """
    name, *texts = key
    shapes, types, strides, concrete = map(_decode_list, texts)
    # torch writes the strides of each tensor that has some: where it does, one without is sparse. Others, exports of
    # PyProf too, leave out those of a contiguous tensor.
    if not any(map(_is_contiguous, shapes, strides)):
        strides = list(map(_unknown_if_empty, strides))
    out = []
    for index, kind in enumerate(types):
        shape = shapes[index] if index < len(shapes) else []
        stride = strides[index] if index < len(strides) else None
        scalar = concrete[index] if index < len(concrete) else None
        out.append(Arg("", _value(kind, shape, stride, scalar)))
    return Call("autograd" if is_backward(name) else "aten", name, tuple(out))


def shapes_and_types(shapes: bytes, types: bytes) -> list[tuple[list[int], str]]:
    """Return shape and C++ type of each tensor among the inputs. Lists of tensors are left out, because their types are
    not recorded."""
    pairs = zip(_decode_list(bytes(shapes)), _decode_list(bytes(types)))
    names = {"", "TensorList", *_SCALARS, *_LISTS}
    return [(shape, kind) for shape, kind in pairs if _is_shape(shape) and isinstance(kind, str) and kind not in names]


def _decode_list(text: bytes) -> list[Any]:
    """Decode a list; return an empty one for anything else."""
    try:
        value: Any = _ANY.decode(text) if text else []
    except FAULTS:
        return []
    return value if isinstance(value, list) else []


def _value(kind: Any, shape: Any, stride: Any, scalar: Any) -> Value:
    if not isinstance(kind, str):
        return Other("unknown")
    if kind == "TensorList":
        return _tensors(shape, stride)
    if kind in _SCALARS or kind in _LISTS:
        value = _scalar(scalar)
        if value is not None:
            return value
        if kind in _LISTS:
            return _tensors(shape, stride) if _is_shapes(shape) else Other("list")
        return None if scalar == "" else Other(_SCALARS[kind])
    if not kind:
        return _scalar(scalar)
    if not _is_shape(shape):
        return Other("tensor")
    return _tensor(shape, dtype_of(kind), stride)


def _tensors(shapes: Any, strides: Any) -> Value:
    if not _is_shapes(shapes):
        return Other("list")
    stride_list = strides if isinstance(strides, list) else []
    return Listed(
        _tensor(shape, None, stride_list[i] if i < len(stride_list) else None) for i, shape in enumerate(shapes)
    )


def _is_contiguous(shape: Any, stride: Any) -> bool:
    """Return whether the strides of a tensor, or of one of a list, are those of a contiguous one."""
    if _is_shapes(shape) and isinstance(stride, list):
        return any(map(_is_contiguous, shape, stride))
    return _is_shape(shape) and _is_shape(stride) and bool(stride) and not _tensor(shape, None, stride).stride


def _unknown_if_empty(stride: Any) -> Any:
    if isinstance(stride, list) and any(isinstance(one, list) for one in stride):
        return list(map(_unknown_if_empty, stride))
    return None if stride == [] else stride


def _tensor(shape: list[int], dtype: str | None, stride: Any) -> Tensor:
    return tensor(tuple(shape), dtype, tuple(stride) if _is_shape(stride) else None)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and abs(size) < 1 << 62 for size in value)


def _is_shapes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_shape, value))


def _scalar(text: Any) -> Value:
    """Return the value of a concrete input's text; None for an empty one."""
    if not isinstance(text, str) or not text or len(text) > 4096:
        return None if not isinstance(text, (bool, int, float)) else text
    try:
        return _freeze(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _freeze(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return Listed(map(_freeze, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else Other(type(value).__name__)

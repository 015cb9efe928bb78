# SPDX-License-Identifier: Apache-2.0
"""Shapes and dtypes of results: torch's treatment of operands, before a formula can count them.

This file has no formulas. Everything raises ValueError or TypeError for arguments that torch would not accept
either, which leaves the cost of such a call unknown. torch's default dtype is assumed to be float32.

>>> broadcast((5, 1), (3,)), result_dtype(Tensor((5, 1), "float16"), 2.0)
((5, 3), 'float16')
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from pyprof.core.model import DTYPE_BITS, Cost, Other, Tensor, Value
from pyprof.costs.cost import total

DEFAULT = "float32"
Shape = tuple[int, ...]

# torch's ScalarType numbers, as operators record their dtype argument. Source: c10/core/ScalarType.h.
SCALAR_TYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
    "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4",
    "bits4x2", "bits8", "bits16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz",
    "uint16", "uint32", "uint64", "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7",
    "int1", "int2", "int3", "int4", "int5", "int6", "int7", "float8_e8m0fnu", "float4_e2m1fn_x2",
)  # fmt: skip
SHORT_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "byte": "uint8", "char": "int8", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip

# Categories of type promotion, low to high. Source: torch.result_type, docs "tensor attributes", "torch.dtype".
BOOL, INT, FLOAT, COMPLEX = range(4)
CATEGORY = {
    "bool": BOOL,
    "uint8": INT, "int8": INT, "int16": INT, "int32": INT, "int64": INT, "uint16": INT, "uint32": INT, "uint64": INT,
    "float16": FLOAT, "bfloat16": FLOAT, "float32": FLOAT, "float64": FLOAT,
    "float8_e4m3fn": FLOAT, "float8_e5m2": FLOAT, "float8_e4m3fnuz": FLOAT, "float8_e5m2fnuz": FLOAT,
    "complex32": COMPLEX, "complex64": COMPLEX, "complex128": COMPLEX,
}  # fmt: skip
# Pairs of one category in which the wider one is not the answer.
MIXED = {frozenset({"uint8", "int8"}): "int16", frozenset({"float16", "bfloat16"}): "float32"}
REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {
    "float16": "complex32",
    "bfloat16": "complex64",
    "float32": "complex64",
    "float64": "complex128",
}
# Pairs that torch refuses to promote: unsigned integers above 8 bits and float8, with another of their category.
ALONE = {"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}


def require(condition: bool, message: str) -> None:
    """Raise ValueError for arguments that torch would refuse, rather than return a wrong number."""
    if not condition:
        raise ValueError(message)


def as_tensor(value: Value) -> Tensor:
    """Return the value if it is a tensor; raise TypeError otherwise."""
    if not isinstance(value, Tensor):
        raise TypeError(f"a tensor is expected, not {value!r}")
    return value


def as_int(value: Value) -> int:
    """Return the value if it is an integer; raise TypeError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an integer is expected, not {value!r}")
    return value


def tensors_in(values: Iterable[Value]) -> list[Tensor]:
    """Return the tensors among the arguments, including those in sequences: classic markers flatten sequences."""
    out: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            out.append(value)
        elif isinstance(value, tuple) and not isinstance(value, Other):
            out.extend(tensors_in(value))
    return out


def scalars_in(values: Iterable[Value]) -> list[Value]:
    """Return the arguments that are neither tensors nor sequences containing tensors."""
    return [v for v in values if not isinstance(v, Tensor) and not (isinstance(v, tuple) and tensors_in(v))]


def sizes(values: tuple[Value, ...]) -> Shape:
    """Return a shape given as one sequence or as several integers.

    >>> sizes((2, 3)), sizes(((2, 3),)), sizes((4,))
    ((2, 3), (2, 3), (4,))
    """
    first = values[0] if values else ()
    if isinstance(first, tuple) and not isinstance(first, (Tensor, Other)):
        values = first
    return tuple(as_int(v) for v in values)


def ints(value: Value, n: int, default: int | None = None) -> Shape:
    """Return a parameter for `n` dimensions: one integer for all, or a sequence of one or n. None or () is the default.

    >>> ints(2, 3), ints((1, 2), 2), ints(None, 2, 1)
    ((2, 2, 2), (1, 2), (1, 1))
    """
    if value is None or (isinstance(value, tuple) and not value):
        value = default
    items = tuple(as_int(v) for v in value) if isinstance(value, tuple) else (as_int(value),)
    require(len(items) in (1, n), f"{n} numbers expected, not {items}")
    return items * n if len(items) == 1 else items


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape of operands. Source: PyTorch, "Broadcasting semantics"."""
    out: list[int] = []
    for i in range(max(map(len, shapes), default=0)):
        wide = {shape[-1 - i] for shape in shapes if i < len(shape)} - {1}
        require(len(wide) < 2, f"shapes {shapes} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return tuple(reversed(out))


def dims(dim: Value, rank: int) -> frozenset[int]:
    """Return dimensions as non-negative numbers; None and () mean all."""
    if dim is None or dim == ():
        return frozenset(range(rank))
    items = [as_int(d) for d in (dim if isinstance(dim, tuple) else (dim,))]
    require(all(-max(rank, 1) <= d < max(rank, 1) for d in items), f"no dimension {dim} in {rank}")
    return frozenset(d % max(rank, 1) for d in items) & frozenset(range(rank))


def reduced(shape: Shape, dim: Value = None, keepdim: Value = False) -> Shape:
    """Return the shape after a reduction over `dim`.

    >>> reduced((2, 3, 4), -1), reduced((2, 3, 4), (0, 1), True), reduced((2, 3))
    ((2, 3), (1, 1, 4), ())
    """
    removed = dims(dim, len(shape))
    if keepdim:
        return tuple(1 if i in removed else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in removed)


def dtype_of(value: Value) -> str | None:
    """Return the dtype that an argument names: text, torch's object as text, or a ScalarType number. None if it is not
    a dtype.

    >>> dtype_of("torch.half"), dtype_of(Other("dtype", "torch.bfloat16")), dtype_of(6)
    ('float16', 'bfloat16', 'float32')
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return SCALAR_TYPES[value] if 0 <= value < len(SCALAR_TYPES) else None
    text = value.text if isinstance(value, Other) else value
    if not isinstance(text, str):
        return None
    name = text.removeprefix("torch.")
    name = SHORT_NAMES.get(name, name)
    return name if name in DTYPE_BITS else None


def chosen_dtype(value: Value, default: str | None) -> str | None:
    """Return the dtype requested by an optional argument: the default for None, unknown for an unreadable one."""
    return default if value is None else dtype_of(value)


def scalar_dtype(value: Value) -> str | None:
    """Return the dtype of a Python number, None for anything else. Infinities may be recorded as text; of some
    numbers only the type is recorded."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float) or (isinstance(value, str) and value.lstrip("+-") in ("inf", "nan")):
        return DEFAULT
    return _NUMBERS.get(value.type) if isinstance(value, Other) else None


_NUMBERS = {"complex": "complex64", "float": DEFAULT, "int": "int64", "bool": "bool"}
_REAL = Other("scalar")  # a number of which nothing is recorded: real, as all but a few are


def promote(a: str | None, b: str | None) -> str | None:
    """Return the dtype that holds both; None if torch has none. Source: torch.promote_types.

    >>> promote("uint8", "int8"), promote("int64", "float16"), promote("float16", "bfloat16")
    ('int16', 'float16', 'float32')
    """
    if a == b:
        return a
    if a is None or b is None or a not in CATEGORY or b not in CATEGORY:
        return None
    low, high = sorted((a, b), key=CATEGORY.__getitem__)
    if CATEGORY[low] != CATEGORY[high]:
        if CATEGORY[high] == COMPLEX and CATEGORY[low] == FLOAT:
            return promote(COMPLEX_OF.get(low), high)
        return high
    if low in ALONE or high in ALONE:
        return None
    return MIXED.get(frozenset((low, high))) or max(low, high, key=DTYPE_BITS.__getitem__)


def result_dtype(*operands: Value) -> str | None:
    """Return the dtype of an elementwise result. Zero-dimensional tensors and Python numbers count only if their
    category is higher. Source: torch.result_type (ATen/native/TypeProperties.cpp).

    >>> result_dtype(Tensor((2,), "float16"), Tensor((), "float64")), result_dtype(Tensor((2,), "int32"), 1.5)
    ('float16', 'float32')
    >>> unknown = Other("scalar")  # changes nothing beside floats
    >>> result_dtype(Tensor((2,), "float16"), unknown), result_dtype(Tensor((2,), "int32"), unknown)
    ('float16', None)
    """
    if _REAL in operands and any(isinstance(item, Tensor) and is_float(item.dtype) for item in operands):
        operands = tuple(operand for operand in operands if operand != _REAL)
    ranks: list[list[str | None]] = [[], [], []]  # tensors with dimensions, without, numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            ranks[0 if operand.shape else 1].append(operand.dtype)
        elif operand is not None:
            ranks[2].append(scalar_dtype(operand))
    if any(dtype not in CATEGORY for dtypes in ranks for dtype in dtypes):
        return None
    levels: list[str] = []
    for dtypes in ranks:
        together = dtypes[0] if dtypes else None
        for dtype in dtypes[1:]:
            together = promote(together, dtype)
        if together is not None:
            levels.append(together)
    result: str | None = levels.pop() if levels else None
    while levels and result is not None:
        result = _combine(levels.pop(), result)
    return result


def _combine(higher: str, lower: str) -> str | None:
    """Combine two dtypes: `higher` wins within its category (combine_categories in TypeProperties.cpp)."""
    if CATEGORY[higher] == FLOAT and CATEGORY[lower] == COMPLEX:
        return COMPLEX_OF.get(higher)
    if CATEGORY[higher] < CATEGORY[lower] and (CATEGORY[higher] == BOOL or CATEGORY[lower] >= FLOAT):
        return promote(higher, lower)
    return higher


def is_float(dtype: str | None) -> bool:
    """Return whether a tensor of this dtype can have a gradient; an unknown dtype is assumed to."""
    return dtype is None or CATEGORY.get(dtype, BOOL) >= FLOAT


def floating(dtype: str | None) -> str | None:
    """Return the result's dtype of a function without integer values (exp, mean, division): integers become the
    default dtype."""
    return dtype if is_float(dtype) else DEFAULT


def like(tensor: Tensor) -> Tensor:
    """Return a dense tensor of the same shape and dtype: an output, a gradient."""
    return Tensor(tensor.shape, tensor.dtype)


def strides_of(tensor: Tensor) -> Shape:
    """Return the recorded strides, or those of a contiguous tensor, for which capture omits them.

    >>> strides_of(Tensor((2, 3, 4), None))
    (12, 4, 1)
    """
    if tensor.stride is not None and len(tensor.stride) == len(tensor.shape):
        return tensor.stride
    steps, step = [], 1
    for size in reversed(tensor.shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def is_contiguous(shape: Shape, stride: Shape) -> bool:
    """Return whether the elements are in order without gaps."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if size != 1:
            if step != expected:
                return prod(shape) == 0
            expected *= size
    return True


def backward_sum(*parts: Cost | None) -> Cost:
    """Return several parts of a backward, or several operators in one, as one cost: sums, unknown if a part is unknown.

    >>> backward_sum(Cost(6, 8, dense=10), Cost(1, 2), None), backward_sum(Cost(6, 8, dense=10), Cost(1, 2)).dense
    (Cost(flops=7, bytes=10), 11)
    """
    present = [part for part in parts if part is not None]
    flops, size = total(part.flops for part in present), total(part.bytes for part in present)
    dense = total(part.flops_dense for part in present)
    return Cost(flops, size, dense=None if dense == flops else dense)

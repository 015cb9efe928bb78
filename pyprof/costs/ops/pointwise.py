# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators: arithmetic, comparison, logic, bits, functions of one, two or three operands.

FLOPs per element of the (broadcast) result: +, -, *, /, comparison, min, max, selection, abs and one special function
are 1 each. Bytes: every tensor operand once as it is stored, the result once; numbers are free. In place, the
destination is an operand and the result. The result's dtype is torch's promotion of the operands.

The backward, all of it in dgrad, is for every floating tensor operand: it reads the gradient and what the derivative
needs, and writes one gradient per operand; a broadcast operand adds one FLOP per element for its sum.
Add an operator: one row in a table.

>>> add(Tensor((4, 1), "float16"), Tensor((3,), "float32"))  # 8 + 12 + 12·4
Cost(flops=12, bytes=68)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_tensor, broadcast, floating, is_float, like, result_dtype


class Derivative(NamedTuple):
    """The work of a backward per element of the result, for the gradient of each operand: FLOPs, and the operands that
    it reads again.

    `reads` holds, per operand, positions of operands; -1 is the result. A row without one has no gradient.
    """

    flops: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...] = ()


def elementwise(
    operands: tuple[Value, ...], flops: int, dtype: str | None = None, derivative: Derivative | None = None,
    inplace: bool = False, floats: bool = False,
) -> Cost:  # fmt: skip
    """Return the cost of a result with `flops` per element. `dtype` is the result's if it is not the promotion;
    `floats` turns an integer result into the default dtype.

    >>> elementwise((Tensor((8,), "float16"), 2.0), 1)
    Cost(flops=8, bytes=32)
    >>> elementwise((Tensor((8,), "float16"), Tensor((1,), "float16")), 1, derivative=MUL).dgrad
    Cost(flops=24, bytes=52)
    """
    tensors = [x for x in operands if isinstance(x, Tensor)]
    as_tensor(tensors[0] if tensors else None)
    shape = broadcast(*(t.shape for t in tensors))
    kind = dtype or result_dtype(*operands)
    if floats:
        kind = floating(kind)
    if inplace:
        destination = as_tensor(operands[0])
        if destination.shape != shape:
            raise ValueError("a destination does not broadcast")
        kind = destination.dtype
    output = Tensor(shape, kind)
    dgrad = _backward(operands, output, derivative) if derivative is not None and is_float(kind) else None
    return Cost(flops * output.numel, bytes_of(*tensors, output), dgrad=dgrad)


def _backward(operands: tuple[Value, ...], output: Tensor, derivative: Derivative) -> Cost:
    """Return the cost of the gradients of all floating operands. One that neither computes nor sums passes the gradient
    on for free.

    >>> _backward((Tensor((8,), "float32"), 2.0), Tensor((8,), "float32"), MUL)  # gradient in, gradient out
    Cost(flops=8, bytes=64)
    """
    flops, written = 0, []
    positions: set[int] = set()
    for i, (operand, per_element) in enumerate(zip(operands, derivative.flops)):
        if isinstance(operand, Tensor) and is_float(operand.dtype):
            summed = int(operand.shape != output.shape)
            flops += (per_element + summed) * output.numel
            if per_element or summed:
                written.append(like(operand))
            positions.update(derivative.reads[i] if per_element and i < len(derivative.reads) else ())
    if not written:
        return Cost(0, 0, basis="view")
    reads = [output if i < 0 else operands[i] for i in sorted(positions) if i < len(operands)]
    return Cost(flops, bytes_of(output, *(t for t in reads if isinstance(t, Tensor)), *written))


# Derivative times gradient; it needs the operand, or the result, or neither.
IN, OUT = Derivative((1,), ((0,),)), Derivative((1,), ((-1,),))
FREE = Derivative((1,))


def _times(flops: int, reads: int = 0) -> Derivative:
    return Derivative((flops,), ((reads,),))


# name: FLOPs per element, backward. Derivatives: PyTorch, tools/autograd/derivatives.yaml.
# Those with values between the integers turn integers into floats.
FLOAT_UNARY: dict[str, tuple[int, Derivative | None]] = {
    "exp": (1, OUT), "exp2": (1, _times(2, -1)), "expm1": (1, _times(2, -1)),
    "log": (1, IN), "log2": (1, _times(2)), "log10": (1, _times(2)), "log1p": (1, _times(2)),
    "sqrt": (1, _times(2, -1)), "rsqrt": (1, _times(3, -1)), "reciprocal": (1, _times(3, -1)),
    "sin": (1, _times(2)), "cos": (1, _times(3)), "tan": (1, _times(3, -1)),
    "sinh": (1, _times(2)), "cosh": (1, _times(2)), "tanh": (1, _times(3, -1)),
    "asin": (1, _times(4)), "acos": (1, _times(5)), "atan": (1, _times(3)),
    "arcsin": (1, _times(4)), "arccos": (1, _times(5)), "arctan": (1, _times(3)),
    "asinh": (1, _times(4)), "acosh": (1, _times(4)), "atanh": (1, _times(3)),
    "arcsinh": (1, _times(4)), "arccosh": (1, _times(4)), "arctanh": (1, _times(3)),
    "erf": (1, _times(5)), "erfc": (1, _times(5)), "erfinv": (1, _times(4, -1)),
    "sigmoid": (1, _times(3, -1)), "expit": (1, _times(3, -1)), "logit": (3, _times(3)),
    "digamma": (1, _times(2)), "lgamma": (1, _times(2)), "sinc": (3, _times(5)),
    "i0": (1, _times(2)), "i0e": (1, _times(4)), "i1": (1, _times(4)), "i1e": (1, _times(5)), "ndtr": (4, _times(4)),
    "ndtri": (1, _times(4, -1)), "log_ndtr": (1, _times(5)), "erfcx": (1, _times(4)), "entr": (3, _times(2)),
    "psi": (1, _times(2)), "gammaln": (1, _times(2)), "cbrt": (1, _times(3, -1)),
    **dict.fromkeys(("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0",
                     "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
                     "scaled_modified_bessel_k1", "spherical_bessel_j0"), (1, None)),  # one special function
    "deg2rad": (1, FREE), "rad2deg": (1, FREE),
}  # fmt: skip
# Those that keep the dtype. Where the derivative is 0 there is no backward to speak of.
SAME_UNARY: dict[str, tuple[int, Derivative | None]] = {
    "neg": (1, FREE), "negative": (1, FREE),
    "square": (1, _times(2)), "frac": (2, Derivative((0,))), "positive": (0, Derivative((0,))),
    "sign": (1, None), "sgn": (1, None), "floor": (1, None), "ceil": (1, None), "round": (1, None),
    "trunc": (1, None), "fix": (1, None), "bitwise_not": (1, None), "nan_to_num": (3, _times(1)),
    "conj_physical": (1, FREE),
}  # fmt: skip
# Truth values.
BOOL_UNARY = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "logical_not", "signbit")

ADD, MUL = Derivative((0, 0)), Derivative((1, 1), ((1,), (0,)))
DIV = Derivative((1, 3), ((1,), (0, 1)))
_BOTH = ((0, 1), (0, 1))
# name: FLOPs per element, backward, whether integers become floats.
BINARY: dict[str, tuple[int, Derivative | None, bool]] = {
    "mul": (1, MUL, False), "multiply": (1, MUL, False),
    "true_divide": (1, DIV, True), "rdiv": (1, Derivative((3, 1), ((0, 1), (0,))), True),
    "floor_divide": (2, None, False), "rfloor_divide": (2, None, False),
    "remainder": (3, Derivative((0, 2), ((), (0, 1))), False), "fmod": (3, Derivative((0, 2), ((), (0, 1))), False),
    "pow": (1, Derivative((3, 3), ((0, 1), (0, -1))), False), "rpow": (1, Derivative((2, 2), ((1, -1), (0, 1))), False),
    "atan2": (1, Derivative((5, 5), _BOTH), True), "arctan2": (1, Derivative((5, 5), _BOTH), True),
    "maximum": (1, Derivative((2, 2), _BOTH), False), "minimum": (1, Derivative((2, 2), _BOTH), False),
    "fmax": (1, Derivative((2, 2), _BOTH), False), "fmin": (1, Derivative((2, 2), _BOTH), False),
    "hypot": (4, Derivative((2, 2), ((0, -1), (1, -1))), True), "logaddexp": (5, Derivative((3, 3), _BOTH), True),
    "logaddexp2": (5, Derivative((3, 3), _BOTH), True), "xlogy": (2, Derivative((2, 2), ((1,), (0, 1))), True),
    "copysign": (1, Derivative((2, 0), ((0, -1), ())), True), "nextafter": (1, None, False), "ldexp": (2, FREE, True),
    "xlog1py": (3, Derivative((2, 2), ((1,), (0, 1))), True), "zeta": (1, None, True),
    **dict.fromkeys(("igamma", "igammac", "gammainc", "gammaincc"), (1, Derivative((0, 5), ((), (0, 1))), True)),
    "floordiv": (2, None, False),
    "heaviside": (2, None, False), "gcd": (1, None, False), "lcm": (1, None, False),
    "bitwise_and": (1, None, False), "bitwise_or": (1, None, False), "bitwise_xor": (1, None, False),
    "bitwise_left_shift": (1, None, False), "bitwise_right_shift": (1, None, False),
    "__and__": (1, None, False), "__or__": (1, None, False), "__xor__": (1, None, False),
    "__lshift__": (1, None, False), "__rshift__": (1, None, False),
    "clamp_min": (1, Derivative((2,), ((0, 1),)), False), "clamp_max": (1, Derivative((2,), ((0, 1),)), False),
}  # fmt: skip
COMPARISON = (
    "eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


def _unary(flops: int, derivative: Derivative | None, floats: bool, dtype: str | None = None) -> Callable[..., Cost]:
    def unary(input: Tensor, *parameters: Value, inplace: bool = False) -> Cost:
        return elementwise((input,), flops, dtype, derivative, inplace, floats)

    return unary


def _binary(flops: int, derivative: Derivative | None, floats: bool, dtype: str | None = None) -> Callable[..., Cost]:
    def binary(input: Value, other: Value, *parameters: Value, inplace: bool = False) -> Cost:
        return elementwise((input, other), flops, dtype, derivative, inplace, floats)

    return binary


for _name, _row in FLOAT_UNARY.items():
    cost(_name)(_unary(*_row, floats=True))
for _name, _row in SAME_UNARY.items():
    cost(_name)(_unary(*_row, floats=False))
for _name in BOOL_UNARY:
    cost(_name)(_unary(1, None, False, "bool"))
for _name, (_flops, _derivative, _floats) in BINARY.items():
    cost(_name)(_binary(_flops, _derivative, _floats))
for _name in COMPARISON:
    cost(_name)(_binary(1, None, False, "bool"))


@cost("add", "sub", "subtract", "rsub")
def add(input: Value, other: Value, alpha: Value = 1, out: Value = None, inplace: bool = False) -> Cost:
    """input ± alpha·other; a multiplication more per element if alpha is not 1. Source: torch.add.

    The backward is free unless an operand was broadcast (negation is not counted).

    >>> add(Tensor((3, 4), "float32"), Tensor((4,), "float32")).dgrad  # sum over 3 rows: 12 read, 4 written
    Cost(flops=12, bytes=64)
    """
    if isinstance(alpha, Tensor) and not isinstance(other, Tensor):  # add(input, alpha, other), torch before 1.5
        other, alpha = alpha, other
    scaled = int(not isinstance(alpha, Tensor) and alpha not in (1, None))
    return elementwise((input, other), 1 + scaled, None, Derivative((0, scaled)), inplace)


@cost("div", "divide")
def div(input: Value, other: Value, rounding_mode: Value = None, out: Value = None, inplace: bool = False) -> Cost:
    """input / other; integers become floats unless the quotient is rounded, one more operation. Source: torch.div.

    >>> div(Tensor((4,), "int64"), 2), div(Tensor((4,), "int64"), 2, rounding_mode="floor")
    (Cost(flops=4, bytes=48), Cost(flops=8, bytes=64))
    """
    if isinstance(rounding_mode, str):
        return elementwise((input, other), 2, None, None, inplace)
    return elementwise((input, other), 1, None, DIV, inplace, floats=True)


@cost("isclose")
def isclose(input: Tensor, other: Tensor, rtol: Value = None, atol: Value = None, equal_nan: Value = None) -> Cost:
    """|input - other| <= atol + rtol·|other|: 6 per element. Source: torch.isclose.

    >>> isclose(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=24, bytes=36)
    """
    return elementwise((input, other), 6, "bool")


@cost("addcmul", "addcdiv")
def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    value: Value = 1,
    out: Value = None,
    inplace: bool = False,
) -> Cost:
    """input + value·tensor1·tensor2 (or /): 3 per element. Source: torch.addcmul.

    >>> addcmul(Tensor((4,), "float32"), Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=12, bytes=64)
    """
    if isinstance(value, Tensor) and not isinstance(tensor1, Tensor):  # (input, value, tensor1, tensor2), before 1.5
        tensor1, tensor2, value = tensor2, value, tensor1
    return elementwise(
        (input, as_tensor(tensor1), as_tensor(tensor2)),
        3,
        None,
        Derivative((0, 2, 2), ((), (2,), (1,))),
        inplace,
    )


@cost("lerp")
def lerp(input: Tensor, end: Tensor, weight: Value, out: Value = None, inplace: bool = False) -> Cost:
    """input + weight·(end - input): 3 per element. Source: torch.lerp.

    >>> lerp(Tensor((4,), "float32"), Tensor((4,), "float32"), 0.1)
    Cost(flops=12, bytes=48)
    """
    return elementwise((input, end, weight), 3, None, Derivative((2, 1, 2), ((2,), (2,), (0, 1))), inplace)


@cost("where", "_s_where")
def where(condition: Tensor, input: Value, other: Value, out: Value = None) -> Cost:
    """One selection per element. The form with only a condition is `nonzero`, of unknown cost. Source: torch.where.

    >>> where(Tensor((4,), "bool"), Tensor((4,), "float32"), 0.0)  # 4 + 16 + 16
    Cost(flops=4, bytes=36)
    """
    return elementwise(
        (condition, input, other), 1, result_dtype(input, other), Derivative((0, 1, 1), ((), (0,), (0,)))
    )


@cost("Tensor.where", "Tensor.__where__")
def where_method(input: Tensor, condition: Tensor, other: Value) -> Cost:
    """input.where(condition, other). Source: torch.Tensor.where.

    >>> where_method(Tensor((4,), "float32"), Tensor((4,), "bool"), 0.0)
    Cost(flops=4, bytes=36)
    """
    return where(condition, input, other)


@cost("clamp", "clip")
def clamp(input: Tensor, min: Value = None, max: Value = None, out: Value = None, inplace: bool = False) -> Cost:
    """One min or max per bound. Source: torch.clamp.

    >>> clamp(Tensor((4,), "float32"), 0, 1)
    Cost(flops=8, bytes=32)
    """
    bounds = (min is not None) + (max is not None)
    return elementwise((input, min, max), bounds, None, Derivative((bounds + 1,), ((0,),)), inplace)

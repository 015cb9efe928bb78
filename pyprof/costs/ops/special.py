# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions whose arguments are not (input) or (input, other): orders, parts of numbers, recurrences.

>>> polygamma(2, Tensor((4,), "float32")), polynomial(Tensor((4,), "float32"), 5)
(Cost(flops=4, bytes=32), Cost(flops=48, bytes=32))
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.linalg import COMPLEX_OF
from pyprof.costs.ops.pointwise import Derivative, elementwise
from pyprof.costs.ops.shapes import (
    REAL_OF,
    as_int,
    as_tensor,
    broadcast,
    like,
    require,
    result_dtype,
    scalar_dtype,
)

_KINDS = ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
          "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
          "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
          "legendre_polynomial_p")  # fmt: skip


@cost("polygamma")
def polygamma(n: Value, input: Value, out: Value = None, inplace: bool = False) -> Cost:
    """The order comes first, except in the method. One function per element. Source: torch.polygamma.

    >>> polygamma(Tensor((4,), "float32"), 2)
    Cost(flops=4, bytes=32)
    """
    x = as_tensor(input if isinstance(input, Tensor) else n)
    return elementwise((x,), 1, None, Derivative((2,), ((0,),)), inplace, floats=True)


@cost("mvlgamma", "multigammaln")
def mvlgamma(input: Tensor, p: Value, out: Value = None, inplace: bool = False) -> Cost:
    """A constant and the sum of p log-gamma functions of input - (i - 1)/2: p functions, p - 1 differences, p sums.

    The gradient has as many digamma functions, and a product. Source: torch.mvlgamma.

    >>> mvlgamma(Tensor((4,), "float32"), 3)  # 8 each
    Cost(flops=32, bytes=32)
    """
    n = as_int(p)
    require(n > 0, "a positive dimension is expected")
    return elementwise((input,), 3 * n - 1, None, Derivative((3 * n - 1,), ((0,),)), inplace, floats=True)


@cost(*_KINDS)
def polynomial(input: Value, n: Value, out: Value = None) -> Cost:
    """Orthogonal polynomials by their three-term recurrence, about 3 per element and degree above 1; if the degree is a
    tensor, FLOPs depend on data. Source: DLMF 18.9.

    >>> polynomial(Tensor((4,), "float32"), Tensor((4,), "int64"))  # 16 + 32 + 16
    Cost(flops=None, bytes=64)
    """
    degree = as_int(n) if isinstance(n, int) else None
    plain = elementwise((input, n), 0, None, None, floats=True)
    if degree is None:
        return plain._replace(flops=None)
    return elementwise((input, n), max(3 * (degree - 1), 1), None, None, floats=True)


@cost("frexp")
def frexp(input: Tensor, out: Value = None) -> Cost:
    """Mantissa and an int32 exponent. Source: torch.frexp.

    >>> frexp(Tensor((4,), "float32"))
    Cost(flops=4, bytes=48)
    """
    return Cost(input.numel, bytes_of(input, like(input), Tensor(input.shape, "int32")))


@cost("complex")
def complex_(real: Tensor, imag: Tensor, out: Value = None) -> Cost:
    """Interleaves two real parts. Source: torch.complex.

    >>> complex_(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=0, bytes=64)
    """
    kind = {**COMPLEX_OF, "float16": "complex32"}.get(result_dtype(real, imag) or "")
    output = Tensor(broadcast(real.shape, imag.shape), kind)
    return Cost(0, bytes_of(real, imag, output), dgrad=Cost(0, bytes_of(output, like(real), like(imag))))


@cost("polar")
def polar(abs: Tensor, angle: Tensor, out: Value = None) -> Cost:
    """r·cos, r·sin: 4 per element. Source: torch.polar.

    >>> polar(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=16, bytes=64)
    """
    plain = complex_(abs, angle)
    return Cost(4 * prod_of(abs, angle), plain.bytes)


def prod_of(*tensors: Tensor) -> int:
    """Return the number of elements of the broadcast result.

    >>> prod_of(Tensor((4, 1), "float32"), Tensor((3,), "float32"))
    12
    """
    return Tensor(broadcast(*(t.shape for t in tensors)), None).numel


@cost("abs", "absolute")
def absolute(input: Tensor, *parameters: Value, inplace: bool = False) -> Cost:
    """The absolute value of a complex number is real: 4 FLOPs (two squares, a sum, a root), otherwise 1. Source:
    torch.abs.

    >>> absolute(Tensor((4,), "float32")), absolute(Tensor((4,), "complex64"))
    (Cost(flops=4, bytes=32), Cost(flops=16, bytes=48))
    """
    if input.dtype in REAL_OF:
        return elementwise((input,), 4, REAL_OF[input.dtype], Derivative((2,), ((0,),)), inplace)
    return elementwise((input,), 1, None, Derivative((2,), ((0,),)), inplace)


@cost("float_power")
def float_power(input: Value, exponent: Value, out: Value = None, inplace: bool = False) -> Cost:
    """One power per element, in double precision. Source: torch.float_power.

    >>> float_power(Tensor((4,), "float32"), 2), float_power(2, Tensor((4,), "complex64"))  # 16 + 32; 32 + 64
    (Cost(flops=4, bytes=48), Cost(flops=4, bytes=96))
    """
    operands = (input, exponent)
    whole = any(isinstance(x, Tensor) and x.dtype in REAL_OF for x in operands)
    kind = "complex128" if whole or "complex64" in map(scalar_dtype, operands) else "float64"
    return elementwise(operands, 1, kind, Derivative((3, 3), ((0, 1), (0, -1))), inplace)


@cost("angle")
def angle(input: Tensor, out: Value = None) -> Cost:
    """The angle of a complex number is real; of a real one 0 or π. Source: torch.angle.

    >>> angle(Tensor((4,), "float32")), angle(Tensor((4,), "complex64"))
    (Cost(flops=4, bytes=32), Cost(flops=4, bytes=48))
    """
    return elementwise((input,), 1, REAL_OF.get(input.dtype or ""), None, floats=True)


@cost("linalg_cross", "cross")
def cross(input: Tensor, other: Tensor, dim: Value = None, out: Value = None) -> Cost:
    """Two products and a subtraction per element of the result. Source: torch.linalg.cross.

    >>> cross(Tensor((4, 3), "float32"), Tensor((4, 3), "float32"))
    Cost(flops=36, bytes=144)
    """
    return elementwise((input, other), 3, None, Derivative((3, 3), ((1,), (0,))))


@cost("kron")
def kron(input: Tensor, other: Tensor, out: Value = None) -> Cost:
    """One product per pair of elements. The gradients are sums of such products. Source: torch.kron.

    >>> kron(Tensor((2, 2), "float32"), Tensor((3, 3), "float32"))  # (4 + 9 + 36)·4
    Cost(flops=36, bytes=196)
    """
    output = Tensor((input.numel * other.numel,), result_dtype(input, other))
    dgrad = Cost(4 * output.numel, bytes_of(output, input, other, like(input), like(other)))
    return Cost(output.numel, bytes_of(input, other, output), dgrad=dgrad)


@cost("allclose")
def allclose(input: Tensor, other: Tensor, *parameters: Value) -> Cost:
    """Like isclose, 6 per element, and one for the conjunction; the answer is a Python bool. Source: torch.allclose.

    >>> allclose(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=28, bytes=32)
    """
    return Cost(7 * prod_of(input, other), bytes_of(input, other))


@cost("_add_relu")
def add_relu(input: Tensor, other: Value, alpha: Value = 1, out: Value = None, inplace: bool = False) -> Cost:
    """max(input + alpha·other, 0). Source: aten::_add_relu.

    >>> add_relu(Tensor((4,), "float32"), Tensor((4,), "float32"))
    Cost(flops=8, bytes=48)
    """
    scaled = int(alpha not in (1, None))
    return elementwise((input, other), 2 + scaled, None, Derivative((1, 1), ((0,), (0,))), inplace)


@cost("_conj_physical", "_conj_copy", "_neg_view_copy")
def conj_physical(input: Tensor, out: Value = None) -> Cost:
    """One sign per element. Source: aten::_conj_physical.

    >>> conj_physical(Tensor((4,), "complex64"))
    Cost(flops=4, bytes=64)
    """
    return elementwise((input,), 1)

# SPDX-License-Identifier: Apache-2.0
"""Systems of equations, powers and other functions of matrices. Counting rules and sources are in `linalg`.

>>> solve(Tensor((6, 6), "float32"), Tensor((6, 2), "float32"))  # 2·216/3 + 2·2·36
Cost(flops=288, bytes=240)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.linalg import (
    batch_and_side,
    batch_and_sides,
    inverse,
    lu_flops,
    qr_flops,
    statuses,
)
from pyprof.costs.ops.shapes import as_int, broadcast, like, require


def _solved(A: Tensor, B: Tensor, factor: int, per_side: int, left: bool = True) -> Cost:
    """Return the cost with `factor` FLOPs per matrix and `per_side` per right-hand side. A B with one dimension less
    than A is a batch of vectors."""
    batch, n = batch_and_side(A)
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and B.shape == A.shape[:-1])
    shape = (*B.shape, 1) if vector else B.shape
    side = shape[-2] if left else shape[-1]
    require(side == n, f"{A.shape} and {B.shape} do not fit")
    columns = shape[-1] if left else shape[-2]
    batches = broadcast(A.shape[:-2], shape[:-2])
    result = Tensor((*batches, *shape[-2:]), B.dtype)
    return Cost(batch * factor + prod(batches) * per_side * columns, bytes_of(A, B, result))


@cost("linalg_solve", "linalg_solve_ex")
def solve(A: Tensor, B: Tensor, left: Value = True, *parameters: Value) -> Cost:
    """LU, then two triangular systems: 2n³/3 + 2n² per right-hand side. Source: torch.linalg.solve.

    >>> solve(Tensor((6, 6), "float32"), Tensor((6, 2), "float32"))  # 144 + 144; (36 + 12 + 12)·4
    Cost(flops=288, bytes=240)
    """
    n = A.shape[-1]
    return _solved(A, B, lu_flops(n, n), 2 * n * n, left is not False)


@cost("_linalg_solve_ex")
def solve_ex(A: Tensor, B: Tensor, left: Value = True, *parameters: Value) -> Cost:
    """Factors, pivots and a status are results too. Source: aten::_linalg_solve_ex.

    >>> solve_ex(Tensor((6, 6), "float32"), Tensor((6, 2), "float32"))  # 144, 24 and 4 more
    Cost(flops=288, bytes=412)
    """
    plain = solve(A, B, left)
    extra = bytes_of(like(A), Tensor(A.shape[:-1], "int32"), statuses(A.shape[:-2]))
    return Cost(plain.flops, None if plain.bytes is None or extra is None else plain.bytes + extra)


@cost("linalg_solve_triangular")
def solve_triangular(
    A: Tensor,
    B: Tensor,
    upper: Value = True,
    left: Value = True,
    unitriangular: Value = False,
    out: Value = None,
) -> Cost:
    """n² per right-hand side; the whole matrix counts as read. Source: torch.linalg.solve_triangular.

    >>> solve_triangular(Tensor((6, 6), "float32"), Tensor((6, 2), "float32"), True)
    Cost(flops=72, bytes=240)
    """
    n = A.shape[-1]
    return _solved(A, B, 0, n * n, left is not False)


@cost("triangular_solve")
def triangular_solve(b: Tensor, A: Tensor, *parameters: Value) -> Cost:
    """The right-hand side comes first; a copy of A is returned. Source: torch.triangular_solve.

    >>> triangular_solve(Tensor((6, 2), "float32"), Tensor((6, 6), "float32"))
    Cost(flops=72, bytes=384)
    """
    plain = solve_triangular(A, b)
    copy = bytes_of(like(A))
    return Cost(plain.flops, None if plain.bytes is None or copy is None else plain.bytes + copy)


@cost("cholesky_solve", "_cholesky_solve_helper")
def cholesky_solve(B: Tensor, L: Tensor, upper: Value = False, out: Value = None) -> Cost:
    """Two triangular systems: 2n² per right-hand side. Source: torch.cholesky_solve.

    >>> cholesky_solve(Tensor((6, 2), "float32"), Tensor((6, 6), "float32"))
    Cost(flops=144, bytes=240)
    """
    n = L.shape[-1]
    return _solved(L, B, 0, 2 * n * n)


@cost("linalg_lu_solve", "linalg_ldl_solve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: Value = True, *parameters: Value, adjoint: Value = False,
             hermitian: Value = False) -> Cost:  # fmt: skip
    """2n² per right-hand side. Source: torch.linalg.lu_solve.

    >>> lu_solve(Tensor((6, 6), "float32"), Tensor((6,), "int32"), Tensor((6, 2), "float32"))
    Cost(flops=144, bytes=264)
    """
    n = LU.shape[-1]
    plain = _solved(LU, B, 0, 2 * n * n, left is not False)
    pivot_bytes = bytes_of(pivots)
    return Cost(plain.flops, None if plain.bytes is None or pivot_bytes is None else plain.bytes + pivot_bytes)


@cost("lu_solve")
def lu_solve_of(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, out: Value = None) -> Cost:
    """The right-hand side comes first. Source: torch.lu_solve.

    >>> lu_solve_of(Tensor((6, 2), "float32"), Tensor((6, 6), "float32"), Tensor((6,), "int32"))
    Cost(flops=144, bytes=264)
    """
    return lu_solve(LU_data, LU_pivots, b)


@cost("linalg_lstsq")
def lstsq(A: Tensor, B: Tensor, *parameters: Value, rcond: Value = None, driver: Value = None) -> Cost:
    """By QR ("gels"): factor, Qᴴ·B, a triangular system. Rank-revealing drivers iterate: unknown.

    Source: torch.linalg.lstsq; [G] 5.3.

    >>> lstsq(Tensor((9, 6), "float32"), Tensor((9, 2), "float32"))  # 504 + 288 + 72; (54 + 18 + 12)·4
    Cost(flops=864, bytes=336)
    """
    batch, m, n = batch_and_sides(A)
    columns = B.shape[-1] if len(B.shape) == len(A.shape) else 1
    k = min(m, n)
    flops = qr_flops(m, n) + 4 * m * columns * k - 2 * columns * k * k + k * k * columns
    named = [p for p in (*parameters, driver) if isinstance(p, str)]
    is_qr = all(name == "gels" for name in named)
    return Cost(batch * flops if is_qr else None, bytes_of(A, B, Tensor((batch, n, columns), A.dtype)))


@cost("linalg_tensorinv")
def tensorinv(A: Tensor, ind: Value = 2, out: Value = None) -> Cost:
    """The inverse of a matrix whose sides are products of sizes. Source: torch.linalg.tensorinv.

    >>> tensorinv(Tensor((2, 3, 6), "float32"))
    Cost(flops=432, bytes=288)
    """
    n = prod(A.shape[: as_int(ind)])
    return inverse(Tensor((n, A.numel // n), A.dtype))


@cost("linalg_tensorsolve")
def tensorsolve(A: Tensor, B: Tensor, dims: Value = None, out: Value = None) -> Cost:
    """Source: torch.linalg.tensorsolve.

    >>> tensorsolve(Tensor((2, 3, 6), "float32"), Tensor((2, 3), "float32"))  # 144 + 72
    Cost(flops=216, bytes=192)
    """
    return solve(Tensor((B.numel, A.numel // B.numel), A.dtype), Tensor((B.numel, 1), B.dtype))


@cost("matrix_power", "linalg_matrix_power")
def matrix_power(A: Tensor, n: Value, out: Value = None) -> Cost:
    """Squarings and products along the bits of n, 2·N³ each; an inverse first for a negative n.

    Source: torch.linalg.matrix_power; Knuth, The Art of Computer Programming 2, 4.6.3.

    >>> matrix_power(Tensor((6, 6), "float32"), 5)  # A², A⁴, A⁵
    Cost(flops=1296, bytes=288)
    """
    batch, size = batch_and_side(A)
    power = abs(as_int(n))
    products = power.bit_length() + power.bit_count() - 2 if power else 0
    products += 1 if as_int(n) < 0 else 0  # the inverse costs as much as a product
    return Cost(batch * products * 2 * size**3, bytes_of(A, like(A)))


@cost("matrix_exp", "linalg_matrix_exp")
def matrix_exp(A: Tensor) -> Cost:
    """The degree of the polynomial depends on the norm, which is data: FLOPs unknown. Source: torch.linalg.matrix_exp.

    >>> matrix_exp(Tensor((6, 6), "float32"))
    Cost(flops=None, bytes=288)
    """
    batch_and_side(A)
    return Cost(None, bytes_of(A, like(A)))


@cost("linalg_vander", "vander")
def vander(x: Tensor, N: Value = None, *parameters: Value) -> Cost:
    """Powers 0 to N - 1 of every element: N - 2 products each. Source: torch.linalg.vander.

    >>> vander(Tensor((4,), "float32"), 5)  # 4·3; (4 + 20)·4
    Cost(flops=12, bytes=96)
    """
    n = x.shape[-1] if N is None else as_int(N)
    return Cost(x.numel * max(n - 2, 0), bytes_of(x, Tensor((*x.shape, n), x.dtype)))


@cost("_compute_linear_combination")
def linear_combination(input: Tensor, coefficients: Tensor) -> Cost:
    """(S, *) by (C, S): a product of matrices. Source: aten::_compute_linear_combination.

    >>> linear_combination(Tensor((3, 8), "float32"), Tensor((2, 3), "float32"))  # 2·2·3·8; (24 + 6 + 16)·4
    Cost(flops=96, bytes=184)
    """
    s, *sizes = input.shape
    c, s2 = coefficients.shape
    require(s == s2, "shapes do not fit")
    return Cost(2 * c * s * prod(sizes), bytes_of(input, coefficients, Tensor((c, *sizes), input.dtype)))


@cost("trace")
def trace(input: Tensor) -> Cost:
    """Sum of the diagonal, which is read. Source: torch.trace.

    >>> trace(Tensor((4, 6), "float32"))
    Cost(flops=4, bytes=20)
    """
    _, m, n = batch_and_sides(input)
    part = Tensor((min(m, n),), input.dtype)
    return Cost(part.numel, bytes_of(part, Tensor((), input.dtype)))

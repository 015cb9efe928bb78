# SPDX-License-Identifier: Apache-2.0
"""Factorisations, solvers and functions of matrices, by the textbook counts of the algorithms that LAPACK runs.

[G] Golub & Van Loan, Matrix Computations, 4th edition; [L] LAPACK Working Note 41, appendix C. For an (M, N) matrix,
m = max(M, N) and n = min(M, N); per matrix of a batch; the highest orders only, rounded down:
Cholesky n³/3 [G 4.2], LU m·n² - n³/3 [G 3.2], QR 2n²(m - n/3) [G 5.2],
Q from k reflectors 4MNk - 2(M + N)k² + 4k³/3 [L],
singular values 4mn² - 4n³/3, with thin factors 14mn² + 8n³, with full ones 4m²n + 8mn² + 9n³ [G 8.6],
symmetric eigenvalues 4n³/3, with vectors 9n³ [G 8.3], eigenvalues 10n³, with vectors 25n³ [G 7.5].
What iterates does so as often as the books assume. Bytes: inputs and results once; pivots are int32. Complex elements
count like real ones. No backward: autograd's is made of other operators.

>>> cholesky(Tensor((2, 6, 6), "float32"))  # 2·72; 2·72·4
Cost(flops=144, bytes=576)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.model import Cost, Tensor, Value
from pyprof.prof.cost import bytes_of, cost
from pyprof.prof.ops.shapes import as_int, as_tensor, broadcast, like, require, tensors_in

REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}


def _matrix(A: Value) -> tuple[int, int, int]:
    """Matrices in the batch, rows, columns."""
    a = as_tensor(A)
    require(len(a.shape) >= 2, "a matrix is expected")
    return prod(a.shape[:-2]), a.shape[-2], a.shape[-1]


def _square(A: Value) -> tuple[int, int]:
    batch, rows, columns = _matrix(A)
    require(rows == columns, "a square matrix is expected")
    return batch, rows


def _real(dtype: str | None) -> str | None:
    return REAL_OF.get(dtype or "", dtype)


def lu_flops(m: int, n: int) -> int:
    """[G] 3.2.

    >>> lu_flops(6, 6), lu_flops(9, 6)  # 2·216/3; 324 - 72
    (144, 252)
    """
    m, n = max(m, n), min(m, n)
    return m * n * n - n**3 // 3


def qr_flops(m: int, n: int) -> int:
    """R and the reflectors, [G] 5.2.

    >>> qr_flops(9, 6)  # 72·(9 - 2)
    504
    """
    m, n = max(m, n), min(m, n)
    return 2 * n * n * m - 2 * n**3 // 3


def q_flops(m: int, n: int, k: int) -> int:
    """(m, n) with orthonormal columns from k reflectors, [L].

    >>> q_flops(9, 6, 6)  # 1296 - 1080 + 288
    504
    """
    return 4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 // 3


def svd_flops(m: int, n: int, vectors: bool, full: bool = False) -> int:
    """[G] 8.6, Golub-Reinsch.

    >>> svd_flops(9, 6, False), svd_flops(9, 6, True)  # 1296 - 288; 4536 + 1728
    (1008, 6264)
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return 4 * m * n * n - 4 * n**3 // 3
    return 4 * m * m * n + 8 * m * n * n + 9 * n**3 if full else 14 * m * n * n + 8 * n**3


def _info(batch: tuple[int, ...]) -> Tensor:
    return Tensor(batch, "int32")


@cost("cholesky", "linalg_cholesky", "linalg_cholesky_ex")
def cholesky(A: Tensor, *parameters: Value) -> Cost:
    """n³/3. Source: torch.linalg.cholesky.

    >>> cholesky(Tensor((6, 6), "float64"))
    Cost(flops=72, bytes=576)
    """
    batch, n = _square(A)
    return Cost(batch * (n**3 // 3), bytes_of(A, like(A)))


@cost("cholesky_inverse")
def cholesky_inverse(input: Tensor, upper: Value = False, out: Value = None) -> Cost:
    """Inverse from the factor, 2n³/3 [L]. Source: torch.cholesky_inverse.

    >>> cholesky_inverse(Tensor((6, 6), "float32"))
    Cost(flops=144, bytes=288)
    """
    batch, n = _square(input)
    return Cost(batch * (2 * n**3 // 3), bytes_of(input, like(input)))


def _solved(A: Tensor, B: Tensor, factor: int, each: int, left: bool = True) -> Cost:
    """`factor` FLOPs per matrix, `each` per right-hand side; a B of one dimension less than A is a batch of vectors."""
    batch, n = _square(A)
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and B.shape == A.shape[:-1])
    shape = (*B.shape, 1) if vector else B.shape
    side = shape[-2] if left else shape[-1]
    require(side == n, f"{A.shape} and {B.shape} do not fit")
    columns = shape[-1] if left else shape[-2]
    batches = broadcast(A.shape[:-2], shape[:-2])
    result = Tensor((*batches, *shape[-2:]), B.dtype)
    return Cost(batch * factor + prod(batches) * each * columns, bytes_of(A, B, result))


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
    more = bytes_of(like(A), Tensor(A.shape[:-1], "int32"), _info(A.shape[:-2]))
    return Cost(plain.flops, None if plain.bytes is None or more is None else plain.bytes + more)


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
    """The right-hand side stands first; a copy of A is returned. Source: torch.triangular_solve.

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
    more = bytes_of(pivots)
    return Cost(plain.flops, None if plain.bytes is None or more is None else plain.bytes + more)


@cost("lu_solve")
def lu_solve_of(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, out: Value = None) -> Cost:
    """The right-hand side stands first. Source: torch.lu_solve.

    >>> lu_solve_of(Tensor((6, 2), "float32"), Tensor((6, 6), "float32"), Tensor((6,), "int32"))
    Cost(flops=144, bytes=264)
    """
    return lu_solve(LU_data, LU_pivots, b)


def _factored(A: Tensor, *results: Tensor) -> Cost:
    batch, m, n = _matrix(A)
    return Cost(batch * lu_flops(m, n), bytes_of(A, *results))


@cost("linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info", "lu")
def lu_factor(A: Tensor, *parameters: Value) -> Cost:
    """Both factors in one matrix, and the pivots. Source: torch.linalg.lu_factor.

    >>> lu_factor(Tensor((9, 6), "float32"))  # 54·4·2 + 6·4
    Cost(flops=252, bytes=456)
    """
    return _factored(A, like(A), Tensor((*A.shape[:-2], min(A.shape[-2:])), "int32"))


@cost("linalg_lu")
def lu(A: Tensor, pivot: Value = True, out: Value = None) -> Cost:
    """P (M, M), L (M, n), U (n, N). Source: torch.linalg.lu.

    >>> lu(Tensor((9, 6), "float32"))  # (54 + 81 + 54 + 36)·4
    Cost(flops=252, bytes=900)
    """
    *batch, m, n = A.shape
    k = min(m, n)
    return _factored(A, *(Tensor((*batch, *s), A.dtype) for s in ((m, m), (m, k), (k, n))))


@cost("lu_unpack")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, *parameters: Value) -> Cost:
    """The factors laid out by themselves: nothing is computed. Source: torch.lu_unpack.

    >>> lu_unpack(Tensor((9, 6), "float32"), Tensor((6,), "int32"))  # 216 + 24 + (81 + 54 + 36)·4
    Cost(flops=0, bytes=924)
    """
    *batch, m, n = LU_data.shape
    k = min(m, n)
    parts = (Tensor((*batch, *s), LU_data.dtype) for s in ((m, m), (m, k), (k, n)))
    return Cost(0, bytes_of(LU_data, LU_pivots, *parts))


@cost("linalg_ldl_factor", "linalg_ldl_factor_ex")
def ldl_factor(A: Tensor, *parameters: Value) -> Cost:
    """n³/3 [G 4.4]; the factors and the pivots. Source: torch.linalg.ldl_factor.

    >>> ldl_factor(Tensor((6, 6), "float32"))
    Cost(flops=72, bytes=312)
    """
    batch, n = _square(A)
    return Cost(batch * (n**3 // 3), bytes_of(A, like(A), Tensor(A.shape[:-1], "int32")))


@cost("inverse", "linalg_inv", "linalg_inv_ex")
def inverse(A: Tensor, *parameters: Value) -> Cost:
    """LU and n right-hand sides that start as units: 2n³ [L]. Source: torch.linalg.inv.

    >>> inverse(Tensor((2, 6, 6), "float32"))
    Cost(flops=864, bytes=576)
    """
    batch, n = _square(A)
    return Cost(batch * 2 * n**3, bytes_of(A, like(A)))


@cost("det", "linalg_det", "_linalg_det", "logdet", "slogdet", "linalg_slogdet", "_linalg_slogdet")
def det(A: Tensor, out: Value = None) -> Cost:
    """LU and the product of a diagonal (not counted); one number, the factors are not results of the user's call.

    Source: torch.linalg.det.

    >>> det(Tensor((2, 6, 6), "float32"))
    Cost(flops=288, bytes=296)
    """
    batch, n = _square(A)
    return Cost(batch * lu_flops(n, n), bytes_of(A, Tensor(A.shape[:-2], A.dtype)))


@cost("qr", "linalg_qr")
def qr(A: Tensor, mode: Value = "reduced", out: Value = None) -> Cost:
    """Q (M, n), R (n, N); "complete" Q (M, M), R (M, N); "r" without Q. torch.qr has `some`. Source: torch.linalg.qr.

    >>> qr(Tensor((9, 6), "float32")), qr(Tensor((9, 6), "float32"), "r")  # 504 + 504; (54 + 54 + 36)·4
    (Cost(flops=1008, bytes=576), Cost(flops=504, bytes=360))
    """
    batch, m, n = _matrix(A)
    k = min(m, n)
    width = m if mode == "complete" or mode is False else k
    flops = qr_flops(m, n)
    results = [Tensor((batch, width, n), A.dtype)]
    if mode != "r":
        flops += q_flops(m, width, k)
        results.append(Tensor((batch, m, width), A.dtype))
    return Cost(batch * flops, bytes_of(A, *results))


@cost("geqrf")
def geqrf(A: Tensor, out: Value = None) -> Cost:
    """R and the reflectors in one matrix, and their factors. Source: torch.geqrf.

    >>> geqrf(Tensor((9, 6), "float32"))
    Cost(flops=504, bytes=456)
    """
    batch, m, n = _matrix(A)
    return Cost(batch * qr_flops(m, n), bytes_of(A, like(A), Tensor((batch, min(m, n)), A.dtype)))


@cost("orgqr", "linalg_householder_product")
def householder_product(A: Tensor, tau: Tensor, out: Value = None) -> Cost:
    """The columns that k reflectors make. Source: torch.linalg.householder_product.

    >>> householder_product(Tensor((9, 6), "float32"), Tensor((6,), "float32"))
    Cost(flops=504, bytes=456)
    """
    batch, m, n = _matrix(A)
    return Cost(batch * q_flops(m, n, tau.shape[-1]), bytes_of(A, tau, like(A)))


@cost("ormqr")
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: Value = True, transpose: Value = False, out: Value = None
) -> Cost:
    """k reflectors of length m applied to c columns: 4mck - 2ck² [L]. Source: torch.ormqr.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> ormqr(t(9, 6), t(6), t(9, 2))  # 432 - 144; (54 + 6 + 18 + 18)·4
    Cost(flops=288, bytes=384)
    """
    batch, rows, columns = _matrix(other)
    m, c = (rows, columns) if left is not False else (columns, rows)
    k = tau.shape[-1]
    require(input.shape[-2] == m, "shapes do not fit")
    return Cost(batch * (4 * m * c * k - 2 * c * k * k), bytes_of(input, tau, other, like(other)))


def _svd(A: Tensor, vectors: bool, full: bool) -> Cost:
    batch, m, n = _matrix(A)
    k = min(m, n)
    values = Tensor((batch, k), _real(A.dtype))
    sides = ((m, m), (n, n)) if full else ((m, k), (k, n))
    factors = [Tensor((batch, *s), A.dtype) for s in sides] if vectors else []
    return Cost(batch * svd_flops(m, n, vectors, full), bytes_of(A, values, *factors))


@cost("linalg_svd")
def linalg_svd(A: Tensor, full_matrices: Value = True, driver: Value = None, out: Value = None) -> Cost:
    """U, S, Vᴴ. Source: torch.linalg.svd.

    >>> linalg_svd(Tensor((9, 6), "float32"), False)  # (54 + 6 + 54 + 36)·4
    Cost(flops=6264, bytes=600)
    """
    return _svd(A, True, full_matrices is not False)


@cost("_linalg_svd")
def linalg_svd_kernel(
    A: Tensor, full_matrices: Value = False, compute_uv: Value = True, *parameters: Value
) -> Cost:
    """Source: aten::_linalg_svd.

    >>> linalg_svd_kernel(Tensor((9, 6), "float32"), False, False)
    Cost(flops=1008, bytes=240)
    """
    return _svd(A, compute_uv is not False, full_matrices is True)


@cost("svd")
def svd(input: Tensor, some: Value = True, compute_uv: Value = True, out: Value = None) -> Cost:
    """Source: torch.svd.

    >>> svd(Tensor((9, 6), "float32"))
    Cost(flops=6264, bytes=600)
    """
    return _svd(input, compute_uv is not False, some is False)


@cost("linalg_svdvals", "linalg_matrix_rank", "nuclear_norm")
def svdvals(A: Tensor, *parameters: Value, **more: Value) -> Cost:
    """Singular values; a rank or a nuclear norm is made of them, which writes less. Source: torch.linalg.svdvals.

    >>> svdvals(Tensor((9, 6), "float32"))
    Cost(flops=1008, bytes=240)
    """
    return _svd(A, False, False)


@cost("linalg_cond")
def cond(A: Tensor, p: Value = None, out: Value = None) -> Cost:
    """Ratio of singular values for p None, 2 or -2; other norms take an inverse as well: 2n³ and 2·2n².

    Source: torch.linalg.cond.

    >>> cond(Tensor((6, 6), "float32")), cond(Tensor((6, 6), "float32"), "fro")  # 864 - 288; 432 + 144
    (Cost(flops=576, bytes=148), Cost(flops=576, bytes=148))
    """
    batch, m, n = _matrix(A)
    if p in (None, 2, -2, 2.0, -2.0):
        each = svd_flops(m, n, False)
    else:
        require(m == n, "a square matrix is expected")
        each = 2 * n**3 + 4 * n * n
    return Cost(batch * each, bytes_of(A, Tensor(A.shape[:-2], _real(A.dtype))))


@cost("linalg_pinv", "pinverse")
def pinv(A: Tensor, *parameters: Value) -> Cost:
    """Thin SVD, then V·(S⁻¹·Uᴴ): m·n and 2·m·n·n more. Source: torch.linalg.pinv.

    >>> pinv(Tensor((9, 6), "float32"))  # 6264 + 54 + 648
    Cost(flops=6966, bytes=432)
    """
    batch, m, n = _matrix(A)
    k = min(m, n)
    return Cost(batch * (svd_flops(m, n, True) + m * k + 2 * m * n * k), bytes_of(A, like(A)))


def _eigen(vectors: bool, symmetric: bool) -> Callable[..., Cost]:
    def eigen(A: Tensor, *parameters: Value) -> Cost:
        batch, n = _square(A)
        each = (9 * n**3 if vectors else 4 * n**3 // 3) if symmetric else (25 if vectors else 10) * n**3
        kind = _real(A.dtype) if symmetric else COMPLEX_OF.get(A.dtype or "", A.dtype)
        results = [Tensor(A.shape[:-1], kind)]
        if vectors:
            results.append(Tensor(A.shape, A.dtype if symmetric else kind))
        return Cost(batch * each, bytes_of(A, *results))

    return eigen


cost("linalg_eigh")(_eigen(vectors=True, symmetric=True))
cost("linalg_eigvalsh")(_eigen(vectors=False, symmetric=True))
cost("linalg_eig")(_eigen(vectors=True, symmetric=False))
cost("linalg_eigvals", "_linalg_eigvals")(_eigen(vectors=False, symmetric=False))


@cost("_linalg_eigh")
def eigh_kernel(A: Tensor, UPLO: Value = "L", compute_v: Value = True, *parameters: Value) -> Cost:
    """Source: aten::_linalg_eigh.

    >>> eigh_kernel(Tensor((6, 6), "float32"), "L", True), eigh_kernel(Tensor((6, 6), "float32"), "L", False)
    (Cost(flops=1944, bytes=312), Cost(flops=288, bytes=168))
    """
    return _eigen(vectors=compute_v is not False, symmetric=True)(A)


@cost("linalg_lstsq")
def lstsq(A: Tensor, B: Tensor, *parameters: Value, rcond: Value = None, driver: Value = None) -> Cost:
    """By QR ("gels"): factor, Qᴴ·B, a triangular system. Rank-revealing drivers iterate: unknown.

    Source: torch.linalg.lstsq; [G] 5.3.

    >>> lstsq(Tensor((9, 6), "float32"), Tensor((9, 2), "float32"))  # 504 + 288 + 72; (54 + 18 + 12)·4
    Cost(flops=864, bytes=336)
    """
    batch, m, n = _matrix(A)
    columns = B.shape[-1] if len(B.shape) == len(A.shape) else 1
    k = min(m, n)
    flops = qr_flops(m, n) + 4 * m * columns * k - 2 * columns * k * k + k * k * columns
    named = [p for p in (*parameters, driver) if isinstance(p, str)]
    known = all(name == "gels" for name in named)
    return Cost(batch * flops if known else None, bytes_of(A, B, Tensor((batch, n, columns), A.dtype)))


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
    batch, size = _square(A)
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
    _square(A)
    return Cost(None, bytes_of(A, like(A)))


@cost("linalg_matrix_norm")
def matrix_norm(A: Tensor, ord: Value = "fro", dim: Value = (-2, -1), *parameters: Value) -> Cost:
    """Frobenius, 1 and inf: 2 per element; nuclear and 2: singular values. Source: torch.linalg.matrix_norm.

    >>> matrix_norm(Tensor((9, 6), "float32")), matrix_norm(Tensor((9, 6), "float32"), "nuc")
    (Cost(flops=108, bytes=220), Cost(flops=1008, bytes=220))
    """
    batch, m, n = _matrix(A)
    require(dim in ((-2, -1), None, (len(A.shape) - 2, len(A.shape) - 1)), "other dimensions than the last")
    each = svd_flops(m, n, False) if ord in ("nuc", 2, -2, 2.0, -2.0) else 2 * m * n
    return Cost(batch * each, bytes_of(A, Tensor(A.shape[:-2], _real(A.dtype))))


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
    s, *rest = input.shape
    c, s2 = coefficients.shape
    require(s == s2, "shapes do not fit")
    return Cost(2 * c * s * prod(rest), bytes_of(input, coefficients, Tensor((c, *rest), input.dtype)))


@cost("trace")
def trace(input: Tensor) -> Cost:
    """Sum of the diagonal, which is read. Source: torch.trace.

    >>> trace(Tensor((4, 6), "float32"))
    Cost(flops=4, bytes=20)
    """
    _, m, n = _matrix(input)
    part = Tensor((min(m, n),), input.dtype)
    return Cost(part.numel, bytes_of(part, Tensor((), input.dtype)))


@cost("torch.functional.lu", "Tensor.lu", "torch.lu")
def lu_function(A: Tensor, *parameters: Value) -> Cost:
    """Like lu_factor. Source: torch.lu.

    >>> lu_function(Tensor((9, 6), "float32"))
    Cost(flops=252, bytes=456)
    """
    require(bool(tensors_in((A,))), "a matrix is expected")
    return lu_factor(A)

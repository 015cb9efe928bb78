# SPDX-License-Identifier: Apache-2.0
"""Factorisations, solvers and functions of matrices, by the textbook counts of the algorithms that LAPACK runs.

[G] Golub & Van Loan, Matrix Computations, 4th edition; [L] LAPACK Working Note 41, appendix C. For an (M, N) matrix,
m = max(M, N) and n = min(M, N); per matrix of a batch; only the highest orders, rounded down:
Cholesky n³/3 [G 4.2], LU m·n² - n³/3 [G 3.2], QR 2n²(m - n/3) [G 5.2],
Q from k reflectors 4MNk - 2(M + N)k² + 4k³/3 [L],
singular values 4mn² - 4n³/3, with thin factors 14mn² + 8n³, with full ones 4m²n + 8mn² + 9n³ [G 8.6],
symmetric eigenvalues 4n³/3, with vectors 9n³ [G 8.3], eigenvalues 10n³, with vectors 25n³ [G 7.5].
Iterative algorithms take the number of iterations that the books assume. Bytes: inputs and results once; pivots are
int32. Complex elements count four times (complexes.py). No backward: autograd's consists of other operators.

>>> cholesky(Tensor((2, 6, 6), "float32"))  # 2·72; 2·72·4
Cost(flops=144, bytes=576)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import REAL_OF, as_tensor, like, require, tensors_in

COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}


def batch_and_sides(A: Value) -> tuple[int, int, int]:
    """Return the number of matrices in the batch, rows, columns."""
    a = as_tensor(A)
    require(len(a.shape) >= 2, "a matrix is expected")
    return prod(a.shape[:-2]), a.shape[-2], a.shape[-1]


def batch_and_side(A: Value) -> tuple[int, int]:
    batch, rows, columns = batch_and_sides(A)
    require(rows == columns, "a square matrix is expected")
    return batch, rows


def real_dtype(dtype: str | None) -> str | None:
    return REAL_OF.get(dtype or "", dtype)


def lu_flops(m: int, n: int) -> int:
    """Return the FLOPs of LU, [G] 3.2.

    >>> lu_flops(6, 6), lu_flops(9, 6)  # 2·216/3; 324 - 72
    (144, 252)
    """
    m, n = max(m, n), min(m, n)
    return m * n * n - n**3 // 3


def qr_flops(m: int, n: int) -> int:
    """Return the FLOPs of R and the reflectors, [G] 5.2.

    >>> qr_flops(9, 6)  # 72·(9 - 2)
    504
    """
    m, n = max(m, n), min(m, n)
    return 2 * n * n * m - 2 * n**3 // 3


def q_flops(m: int, n: int, k: int) -> int:
    """Return the FLOPs of an (m, n) matrix with orthonormal columns from k reflectors, [L].

    >>> q_flops(9, 6, 6)  # 1296 - 1080 + 288
    504
    """
    return 4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 // 3


def svd_flops(m: int, n: int, vectors: bool, full: bool = False) -> int:
    """Return the FLOPs of singular values, [G] 8.6, Golub-Reinsch.

    >>> svd_flops(9, 6, False), svd_flops(9, 6, True)  # 1296 - 288; 4536 + 1728
    (1008, 6264)
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return 4 * m * n * n - 4 * n**3 // 3
    return 4 * m * m * n + 8 * m * n * n + 9 * n**3 if full else 14 * m * n * n + 8 * n**3


def statuses(batch: tuple[int, ...]) -> Tensor:
    return Tensor(batch, "int32")


@cost("cholesky", "linalg_cholesky")
def cholesky(A: Tensor, *parameters: Value) -> Cost:
    """n³/3. Source: torch.linalg.cholesky.

    >>> cholesky(Tensor((6, 6), "float64"))
    Cost(flops=72, bytes=576)
    """
    batch, n = batch_and_side(A)
    return Cost(batch * (n**3 // 3), bytes_of(A, like(A)))


@cost("cholesky_inverse")
def cholesky_inverse(input: Tensor, upper: Value = False, out: Value = None) -> Cost:
    """Inverse from the factor, 2n³/3 [L]. Source: torch.cholesky_inverse.

    >>> cholesky_inverse(Tensor((6, 6), "float32"))
    Cost(flops=144, bytes=288)
    """
    batch, n = batch_and_side(input)
    return Cost(batch * (2 * n**3 // 3), bytes_of(input, like(input)))


def _factored(A: Tensor, *results: Tensor) -> Cost:
    batch, m, n = batch_and_sides(A)
    return Cost(batch * lu_flops(m, n), bytes_of(A, *results))


@cost("linalg_lu_factor", "lu")
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
    """The factors as separate matrices: nothing is computed. Source: torch.lu_unpack.

    >>> lu_unpack(Tensor((9, 6), "float32"), Tensor((6,), "int32"))  # 216 + 24 + (81 + 54 + 36)·4
    Cost(flops=0, bytes=924)
    """
    *batch, m, n = LU_data.shape
    k = min(m, n)
    parts = (Tensor((*batch, *s), LU_data.dtype) for s in ((m, m), (m, k), (k, n)))
    return Cost(0, bytes_of(LU_data, LU_pivots, *parts))


@cost("linalg_ldl_factor")
def ldl_factor(A: Tensor, *parameters: Value) -> Cost:
    """n³/3 [G 4.4]; the factors and the pivots. Source: torch.linalg.ldl_factor.

    >>> ldl_factor(Tensor((6, 6), "float32"))
    Cost(flops=72, bytes=312)
    """
    batch, n = batch_and_side(A)
    return Cost(batch * (n**3 // 3), bytes_of(A, like(A), Tensor(A.shape[:-1], "int32")))


@cost("inverse", "linalg_inv")
def inverse(A: Tensor, *parameters: Value) -> Cost:
    """LU and n unit vectors as right-hand sides: 2n³ [L]. Source: torch.linalg.inv.

    >>> inverse(Tensor((2, 6, 6), "float32"))
    Cost(flops=864, bytes=576)
    """
    batch, n = batch_and_side(A)
    return Cost(batch * 2 * n**3, bytes_of(A, like(A)))


@cost("det", "linalg_det", "logdet", "slogdet", "linalg_slogdet")
def det(A: Tensor, out: Value = None) -> Cost:
    """LU and the product of a diagonal (not counted); one number, the factors are not results of the user's call.

    Source: torch.linalg.det.

    >>> det(Tensor((2, 6, 6), "float32"))
    Cost(flops=288, bytes=296)
    """
    batch, n = batch_and_side(A)
    return Cost(batch * lu_flops(n, n), bytes_of(A, Tensor(A.shape[:-2], A.dtype)))


@cost("qr", "linalg_qr")
def qr(A: Tensor, mode: Value = "reduced", out: Value = None) -> Cost:
    """Q (M, n), R (n, N); "complete" Q (M, M), R (M, N); "r" without Q. torch.qr has `some`. Source: torch.linalg.qr.

    >>> qr(Tensor((9, 6), "float32")), qr(Tensor((9, 6), "float32"), "r")  # 504 + 504; (54 + 54 + 36)·4
    (Cost(flops=1008, bytes=576), Cost(flops=504, bytes=360))
    """
    batch, m, n = batch_and_sides(A)
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
    batch, m, n = batch_and_sides(A)
    return Cost(batch * qr_flops(m, n), bytes_of(A, like(A), Tensor((batch, min(m, n)), A.dtype)))


@cost("orgqr", "linalg_householder_product")
def householder_product(A: Tensor, tau: Tensor, out: Value = None) -> Cost:
    """The columns generated by k reflectors. Source: torch.linalg.householder_product.

    >>> householder_product(Tensor((9, 6), "float32"), Tensor((6,), "float32"))
    Cost(flops=504, bytes=456)
    """
    batch, m, n = batch_and_sides(A)
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
    batch, rows, columns = batch_and_sides(other)
    m, c = (rows, columns) if left is not False else (columns, rows)
    k = tau.shape[-1]
    require(input.shape[-2] == m, "shapes do not fit")
    return Cost(batch * (4 * m * c * k - 2 * c * k * k), bytes_of(input, tau, other, like(other)))


def _checked(plain: Callable[..., Cost]) -> Callable[..., Cost]:
    """Return the formula of the form that also returns a status per matrix, an int32."""

    def checked(A: Tensor, *parameters: Value, **options: Value) -> Cost:
        cost_of_plain = plain(A, *parameters)
        status = bytes_of(statuses(A.shape[:-2]))
        return Cost(
            cost_of_plain.flops,
            None if cost_of_plain.bytes is None or status is None else cost_of_plain.bytes + status,
        )

    return checked


for _plain, _names in {
    cholesky: ("linalg_cholesky_ex",),
    inverse: ("linalg_inv_ex",),
    ldl_factor: ("linalg_ldl_factor_ex",),
    lu_factor: ("linalg_lu_factor_ex", "_lu_with_info"),
}.items():
    cost(*_names)(_checked(_plain))


@cost("_linalg_det", "_linalg_slogdet")
def det_kernel(A: Tensor, *results: Tensor) -> Cost:
    """Factors and pivots are results too; only one of slogdet's two numbers counts. Source: aten::_linalg_det.

    >>> det_kernel(Tensor((6, 6), "float32"))  # 144 + 4 + 144 + 24
    Cost(flops=144, bytes=316)
    """
    plain = det(A)
    factors = bytes_of(like(A), Tensor(A.shape[:-1], "int32"))
    return Cost(plain.flops, None if plain.bytes is None or factors is None else plain.bytes + factors)


@cost("torch.functional.lu", "Tensor.lu", "torch.lu")
def lu_function(A: Tensor, *parameters: Value) -> Cost:
    """Like lu_factor. Source: torch.lu.

    >>> lu_function(Tensor((9, 6), "float32"))
    Cost(flops=252, bytes=456)
    """
    require(bool(tensors_in((A,))), "a matrix is expected")
    return lu_factor(A)

# SPDX-License-Identifier: Apache-2.0
"""Singular values, eigenvalues and functions of them. Counting rules and sources are in `linalg`.

>>> svd(Tensor((9, 6), "float32"))  # 14·9·36 + 8·216; (54 + 6 + 54 + 36)·4
Cost(flops=6264, bytes=600)
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.linalg import (
    COMPLEX_OF,
    batch_and_side,
    batch_and_sides,
    real_dtype,
    svd_flops,
)
from pyprof.costs.ops.shapes import like, require


def _svd(A: Tensor, vectors: bool, full: bool) -> Cost:
    batch, m, n = batch_and_sides(A)
    k = min(m, n)
    values = Tensor((batch, k), real_dtype(A.dtype))
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
def linalg_svd_kernel(A: Tensor, full_matrices: Value = False, compute_uv: Value = True, *parameters: Value) -> Cost:
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
def svdvals(A: Tensor, *parameters: Value, **keywords: Value) -> Cost:
    """Singular values; a rank or a nuclear norm is computed from them and writes less. Source: torch.linalg.svdvals.

    >>> svdvals(Tensor((9, 6), "float32"))
    Cost(flops=1008, bytes=240)
    """
    return _svd(A, False, False)


@cost("linalg_cond")
def cond(A: Tensor, p: Value = None, out: Value = None) -> Cost:
    """Ratio of singular values for p None, 2 or -2; other norms also take an inverse: 2n³ and 2·2n².

    Source: torch.linalg.cond.

    >>> cond(Tensor((6, 6), "float32")), cond(Tensor((6, 6), "float32"), "fro")  # 864 - 288; 432 + 144
    (Cost(flops=576, bytes=148), Cost(flops=576, bytes=148))
    """
    batch, m, n = batch_and_sides(A)
    if p in (None, 2, -2, 2.0, -2.0):
        per_matrix = svd_flops(m, n, False)
    else:
        require(m == n, "a square matrix is expected")
        per_matrix = 2 * n**3 + 4 * n * n
    return Cost(batch * per_matrix, bytes_of(A, Tensor(A.shape[:-2], real_dtype(A.dtype))))


@cost("linalg_pinv", "pinverse")
def pinv(A: Tensor, *parameters: Value) -> Cost:
    """Thin SVD, then V·(S⁻¹·Uᴴ): m·n and 2·m·n·n more. Source: torch.linalg.pinv.

    >>> pinv(Tensor((9, 6), "float32"))  # 6264 + 54 + 648
    Cost(flops=6966, bytes=432)
    """
    batch, m, n = batch_and_sides(A)
    k = min(m, n)
    return Cost(batch * (svd_flops(m, n, True) + m * k + 2 * m * n * k), bytes_of(A, like(A)))


def _eigen(vectors: bool, symmetric: bool) -> Callable[..., Cost]:
    def eigen(A: Tensor, *parameters: Value) -> Cost:
        batch, n = batch_and_side(A)
        per_matrix = (9 * n**3 if vectors else 4 * n**3 // 3) if symmetric else (25 if vectors else 10) * n**3
        kind = real_dtype(A.dtype) if symmetric else COMPLEX_OF.get(A.dtype or "", A.dtype)
        results = [Tensor(A.shape[:-1], kind)]
        if vectors:
            results.append(Tensor(A.shape, A.dtype if symmetric else kind))
        return Cost(batch * per_matrix, bytes_of(A, *results))

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


@cost("linalg_matrix_norm")
def matrix_norm(A: Tensor, ord: Value = "fro", dim: Value = (-2, -1), *parameters: Value) -> Cost:
    """Frobenius, 1 and inf: 2 per element; nuclear and 2: singular values. Source: torch.linalg.matrix_norm.

    >>> matrix_norm(Tensor((9, 6), "float32")), matrix_norm(Tensor((9, 6), "float32"), "nuc")
    (Cost(flops=108, bytes=220), Cost(flops=1008, bytes=220))
    """
    batch, m, n = batch_and_sides(A)
    require(dim in ((-2, -1), None, (len(A.shape) - 2, len(A.shape) - 1)), "other dimensions than the last")
    per_matrix = svd_flops(m, n, False) if ord in ("nuc", 2, -2, 2.0, -2.0) else 2 * m * n
    return Cost(batch * per_matrix, bytes_of(A, Tensor(A.shape[:-2], real_dtype(A.dtype))))

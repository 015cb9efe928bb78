# SPDX-License-Identifier: Apache-2.0
"""Matrix products: linear, mm, bmm, matmul, addmm, mv, dot, outer.

FLOPs count a fused multiply-add as 2; bytes count each operand once, as with perfect caches. alpha, beta, bias
additions and epilogues are not counted. The result has the dtype of the first factor. Add an operator: one function
here, decorated with the names torch gives it.

dgrad is the gradient of the first factor, wgrad of the second, one product each over the same three operands; bgrad is
the sum of the output's gradient over the dimensions along which the added term was broadcast. A multiply-add of complex
numbers is 8, a product 6, a sum 2.

>>> linear(Tensor((64, 1024), "float16"), Tensor((4096, 1024), "float16"))
Cost(flops=536870912, bytes=9043968)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.complexes import is_complex
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, broadcast, chosen_dtype, reduced, require


def product(flops: int, a: Tensor, b: Tensor, output: Tensor, added: Tensor | None = None) -> Cost:
    """Return the cost of output = a·b (+ added), with its backward. `flops` are those of real numbers."""
    real = not (is_complex(a) or is_complex(b))
    flops = flops if real else 4 * flops  # a multiply-add of complex numbers is 8
    part = Cost(flops, bytes_of(a, b, output))
    bgrad = None
    if added is not None:
        same = added.shape == output.shape  # the gradient passes through as it is
        grad = Tensor(added.shape, added.dtype)
        bgrad = Cost(0, 0, basis="view") if same else Cost(output.numel * (1 if real else 2), bytes_of(output, grad))
    return Cost(flops, bytes_of(a, b, output, added), dgrad=part, wgrad=part, bgrad=bgrad)


@cost("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Cost:
    """y = x Wᵀ + b, with x (*, K), W (N, K) or (K), b (N); the bias is free. Source: F.linear.

    >>> linear(Tensor((2, 3, 8), "float16"), Tensor((5, 8), "float16"), Tensor((5,), "float16"))
    Cost(flops=480, bytes=246)
    """
    *n, k = weight.shape
    *rows, last = input.shape  # all leading dimensions fold into M
    require(last == k and len(n) < 2, f"input {input.shape} does not fit weight {weight.shape}")
    output = Tensor((*rows, *n), input.dtype)
    return product(2 * output.numel * k, input, weight, output, bias)


@cost("mm", "_int_mm")
def mm(input: Tensor, mat2: Tensor, out_dtype: Value = None, out: Value = None) -> Cost:
    """(M, K)·(K, N). Source: torch.mm. _int_mm multiplies int8 into int32.

    >>> mm(Tensor((7, 33), "float32"), Tensor((33, 9), "float32"))  # 2·7·9·33; (231 + 297 + 63)·4
    Cost(flops=4158, bytes=2364)
    """
    m, k = input.shape
    k2, n = mat2.shape
    require(k == k2, f"{input.shape} and {mat2.shape} do not multiply")
    dtype = "int32" if input.dtype == "int8" else input.dtype
    if not isinstance(out_dtype, Tensor):
        dtype = chosen_dtype(out_dtype, dtype)
    return product(2 * m * n * k, input, mat2, Tensor((m, n), dtype))


@cost("bmm")
def bmm(input: Tensor, mat2: Tensor, out_dtype: Value = None, out: Value = None) -> Cost:
    """(B, M, K)·(B, K, N). Source: torch.bmm.

    >>> bmm(Tensor((4, 2, 3), "float32"), Tensor((4, 3, 5), "float32"))  # 2·4·2·5·3; (24 + 60 + 40)·4
    Cost(flops=240, bytes=496)
    >>> bmm(Tensor((4, 2, 3), "float16"), Tensor((4, 3, 5), "float16"), "float32")  # (24 + 60)·2 + 40·4
    Cost(flops=240, bytes=328)
    """
    b, m, k = input.shape
    b2, k2, n = mat2.shape
    require((b, k) == (b2, k2), f"{input.shape} and {mat2.shape} do not multiply")
    dtype = input.dtype if isinstance(out_dtype, Tensor) else chosen_dtype(out_dtype, input.dtype)
    return product(2 * b * m * n * k, input, mat2, Tensor((b, m, n), dtype))


@cost("matmul")
def matmul(input: Tensor, other: Tensor, out: Value = None) -> Cost:
    """Vectors, matrices and batches of them, the batches broadcast. Source: torch.matmul.

    >>> matmul(Tensor((6, 1, 4, 3), "float32"), Tensor((3, 5), "float32"))  # 2·(6·4·5)·3; (72 + 15 + 120)·4
    Cost(flops=720, bytes=828)
    """
    a, b = input.shape, other.shape
    require(min(len(a), len(b)) > 0, "matmul takes no scalars")
    k = a[-1]
    require(k == (b[-2] if len(b) > 1 else b[0]), f"{a} and {b} do not multiply")
    shape = broadcast(a[:-2], b[:-2]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ())
    output = Tensor(shape, input.dtype)
    return product(2 * output.numel * k, input, other, output)


@cost("__rmatmul__")
def rmatmul(input: Tensor, other: Tensor) -> Cost:
    """other @ input. Source: torch.Tensor.__rmatmul__.

    >>> rmatmul(Tensor((3, 5), "float32"), Tensor((2, 3), "float32"))  # 2·2·5·3; (15 + 6 + 10)·4
    Cost(flops=60, bytes=124)
    """
    return matmul(other, input)


def _with_dtype(dtype: str | None, beta: Value, alpha: Value, extra: Value) -> tuple[str | None, Value]:
    """Return the dtype of the result and beta. The dispatcher's form with out_dtype has it in beta's position, and
    one more argument."""
    if isinstance(extra, (int, float)) and not isinstance(extra, bool):
        return chosen_dtype(beta, dtype), alpha
    return dtype, beta


def _added(added: Tensor, beta: Value) -> Tensor | None:
    """Return the added term, or None if beta is 0: then torch does not read it."""
    return None if beta == 0 else added


@cost("addmm", "_addmm_activation")
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    beta: Value = 1,
    alpha: Value = 1,
    use_gelu: Value = None,
    out: Value = None,
    out_dtype: Value = None,
) -> Cost:
    """beta·input + alpha·(mat1·mat2). dgrad is of mat1, wgrad of mat2, bgrad of input. Source: torch.addmm.

    >>> addmm(Tensor((5,), "float32"), Tensor((2, 3), "float32"), Tensor((3, 5), "float32"))  # (5 + 6 + 15 + 10)·4
    Cost(flops=60, bytes=144)
    """
    dtype, beta = _with_dtype(mat1.dtype, beta, alpha, use_gelu)
    dtype = chosen_dtype(out_dtype, dtype)
    (m, k), (k2, n) = mat1.shape, mat2.shape
    require(k == k2 and broadcast(input.shape, (m, n)) == (m, n), "shapes do not fit")
    return product(2 * m * n * k, mat1, mat2, Tensor((m, n), dtype), _added(input, beta))


@cost("baddbmm")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, beta: Value = 1, alpha: Value = 1, out: Value = None,
    out_dtype: Value = None,
) -> Cost:  # fmt: skip
    """beta·input + alpha·(batch1·batch2) for each of B matrices. Source: torch.baddbmm.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> baddbmm(t(4, 2, 5), t(4, 2, 3), t(4, 3, 5))  # (40 + 24 + 60 + 40)·4
    Cost(flops=240, bytes=656)
    """
    dtype, beta = _with_dtype(batch1.dtype, beta, alpha, out)
    dtype = chosen_dtype(out_dtype, dtype)
    (b, m, k), (b2, k2, n) = batch1.shape, batch2.shape
    require((b, k) == (b2, k2) and broadcast(input.shape, (b, m, n)) == (b, m, n), "shapes do not fit")
    return product(2 * b * m * n * k, batch1, batch2, Tensor((b, m, n), dtype), _added(input, beta))


@cost("addbmm")
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: Value = 1, alpha: Value = 1, out: Value = None) -> Cost:
    """beta·input + alpha·(sum of the B products): one product with K·B terms. Source: torch.addbmm.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> addbmm(t(2, 5), t(4, 2, 3), t(4, 3, 5))  # (10 + 24 + 60 + 10)·4
    Cost(flops=240, bytes=416)
    """
    (b, m, k), (b2, k2, n) = batch1.shape, batch2.shape
    require((b, k) == (b2, k2) and broadcast(input.shape, (m, n)) == (m, n), "shapes do not fit")
    return product(2 * b * m * n * k, batch1, batch2, Tensor((m, n), batch1.dtype), _added(input, beta))


@cost("mv")
def mv(input: Tensor, vec: Tensor, out: Value = None) -> Cost:
    """(M, K)·(K). Source: torch.mv.

    >>> mv(Tensor((4, 3), "float32"), Tensor((3,), "float32"))  # 2·4·3; (12 + 3 + 4)·4
    Cost(flops=24, bytes=76)
    """
    (m, k), (k2,) = input.shape, vec.shape
    require(k == k2, "shapes do not fit")
    return product(2 * m * k, input, vec, Tensor((m,), input.dtype))


@cost("addmv")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, beta: Value = 1, alpha: Value = 1, out: Value = None) -> Cost:
    """beta·input + alpha·(mat·vec). Source: torch.addmv.

    >>> addmv(Tensor((4,), "float32"), Tensor((4, 3), "float32"), Tensor((3,), "float32"))
    Cost(flops=24, bytes=92)
    """
    (m, k), (k2,) = mat.shape, vec.shape
    require(k == k2 and broadcast(input.shape, (m,)) == (m,), "shapes do not fit")
    return product(2 * m * k, mat, vec, Tensor((m,), mat.dtype), _added(input, beta))


@cost("inner", "vdot")
def inner(input: Tensor, other: Tensor, out: Value = None) -> Cost:
    """Sum of products over the last dimension of both. Source: torch.inner.

    >>> inner(Tensor((2, 7), "float32"), Tensor((7,), "float32"))  # 2·2·7; (14 + 7 + 2)·4
    Cost(flops=28, bytes=92)
    """
    (*a, k), (*b, k2) = input.shape, other.shape
    require(k == k2, "shapes do not fit")
    output = Tensor((*a, *b), input.dtype)
    return product(2 * output.numel * k, input, other, output)


@cost("dot")
def dot(input: Tensor, tensor: Tensor, out: Value = None) -> Cost:
    """Sum of products of two vectors. Source: torch.dot.

    >>> dot(Tensor((7,), "float32"), Tensor((7,), "float32"))  # 2·7; (7 + 7 + 1)·4
    Cost(flops=14, bytes=60)
    """
    return inner(input, tensor)


@cost("linalg_vecdot")
def vecdot(input: Tensor, other: Tensor, dim: Value = -1, out: Value = None) -> Cost:
    """Sum of products along one dimension, the others broadcast. Source: torch.linalg.vecdot.

    >>> vecdot(Tensor((4, 3), "float32"), Tensor((3,), "float32"))  # 2·12; (12 + 3 + 4)·4
    Cost(flops=24, bytes=76)
    """
    shape = broadcast(input.shape, other.shape)
    output = Tensor(reduced(shape, as_int(dim)), input.dtype)
    return product(2 * prod(shape), input, other, output)


@cost("addr")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta: Value = 1, alpha: Value = 1, out: Value = None) -> Cost:
    """beta·input + alpha·(vec1·vec2ᵀ): a product and a sum per element. Source: torch.addr.

    >>> addr(Tensor((4, 3), "float32"), Tensor((4,), "float32"), Tensor((3,), "float32"))  # (12 + 4 + 3 + 12)·4
    Cost(flops=24, bytes=124)
    """
    (m,), (n,) = vec1.shape, vec2.shape
    require(broadcast(input.shape, (m, n)) == (m, n), "shapes do not fit")
    return product(2 * m * n, vec1, vec2, Tensor((m, n), vec1.dtype), _added(input, beta))


@cost("outer", "ger")
def outer(input: Tensor, vec2: Tensor, out: Value = None) -> Cost:
    """(M)·(N)ᵀ: one multiplication per element, nothing is added. Its gradients are matrix-vector products.

    >>> outer(Tensor((4,), "float32"), Tensor((3,), "float32"))  # (4 + 3 + 12)·4
    Cost(flops=12, bytes=76)
    """
    (m,), (n,) = input.shape, vec2.shape
    output = Tensor((m, n), input.dtype)
    product, sums = (6, 8) if is_complex(input) or is_complex(vec2) else (1, 2)
    part = Cost(sums * m * n, bytes_of(input, vec2, output))
    return Cost(product * m * n, bytes_of(input, vec2, output), dgrad=part, wgrad=part)

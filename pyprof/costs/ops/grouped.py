# SPDX-License-Identifier: Apache-2.0
"""Several matrix products in one call: groups of rows or columns, lists, chains, and products of three operands.

>>> x, w = Tensor((12, 8), "bfloat16"), Tensor((3, 8, 4), "bfloat16")  # 12 rows for 3 experts
>>> grouped_mm(x, w, Tensor((3,), "int32"))  # 2·12·4·8; 192 + 192 + 12 + 96
Cost(flops=768, bytes=492)
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.gemm import bmm, product
from pyprof.costs.ops.lowprecision import packed
from pyprof.costs.ops.shapes import backward_sum, chosen_dtype, require, tensors_in


def _grouped(a: Tensor, b: Tensor, offs: Value, dtype: str | None) -> tuple[int, Tensor]:
    """Return FLOPs and result. `offs` are the ends of the groups of a dimension: of rows (2-D by 3-D), columns (3-D
    by 2-D) or of K (2-D by 2-D); together they are the whole dimension, if the last offset is."""
    k = a.shape[-1]
    require(k == b.shape[-2], f"{a.shape} and {b.shape} do not multiply")
    m, n = a.shape[-2], b.shape[-1]
    ranks = len(a.shape), len(b.shape)
    if ranks == (3, 3):
        require(a.shape[0] == b.shape[0], "as many matrices on both sides")
        return 2 * a.shape[0] * m * n * k * packed(a), Tensor((a.shape[0], m, n), dtype)
    require(isinstance(offs, Tensor) and ranks in ((2, 2), (2, 3), (3, 2)), "offsets are expected")
    assert isinstance(offs, Tensor)
    shape = (*offs.shape, m, n) if ranks == (2, 2) else (m, n)
    return 2 * m * n * k * packed(a), Tensor(shape, dtype)


@cost("_grouped_mm", "torch.nn.functional.grouped_mm")
def grouped_mm(
    input: Tensor, mat2: Tensor, offs: Value = None, bias: Tensor | None = None, out_dtype: Value = None,
    mat_a: Tensor | None = None, mat_b: Tensor | None = None,
) -> Cost:  # fmt: skip
    """A mixture of experts: every row is multiplied by the matrix of its group. Source: aten::_grouped_mm.

    >>> a, b = Tensor((4, 12), "bfloat16"), Tensor((12, 8), "bfloat16")
    >>> grouped_mm(a, b, Tensor((3,), "int32"))  # groups of K: three results of 4·8; 96 + 192 + 12 + 192
    Cost(flops=768, bytes=492)
    """
    flops, output = _grouped(input, mat2, offs, chosen_dtype(out_dtype, input.dtype))
    whole = product(flops, input, mat2, output, bias)
    indices = tensors_in((offs,))
    return whole._replace(bytes=bytes_of(input, mat2, output, bias, *indices))


@cost("_scaled_grouped_mm")
def scaled_grouped_mm(
    input: Tensor, mat2: Tensor, scale_a: Value, scale_b: Value, offs: Value = None, bias: Tensor | None = None,
    scale_result: Value = None, out_dtype: Value = None, use_fast_accum: Value = None,
) -> Cost:  # fmt: skip
    """With scales per row or block; the result is bfloat16 by default. Source: aten::_scaled_grouped_mm.

    >>> x, w = Tensor((12, 8), "float8_e4m3fn"), Tensor((3, 8, 4), "float8_e4m3fn")
    >>> scaled_grouped_mm(x, w, Tensor((12,), "float32"), Tensor((3, 4), "float32"), Tensor((3,), "int32"))
    Cost(flops=768, bytes=396)
    """
    flops, output = _grouped(input, mat2, offs, chosen_dtype(out_dtype, "bfloat16"))
    extra = tensors_in((scale_a, scale_b, offs, bias, scale_result))
    return Cost(flops, bytes_of(input, mat2, *extra, output))


@cost("_scaled_grouped_mm_v2")
def scaled_grouped_mm_v2(
    input: Tensor, mat2: Tensor, scale_a: Value, recipe_a: Value, swizzle_a: Value, scale_b: Value, recipe_b: Value,
    swizzle_b: Value, offs: Value = None, bias: Tensor | None = None, out_dtype: Value = None, *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: aten::_scaled_grouped_mm_v2.

    >>> x, w = Tensor((12, 8), "float8_e4m3fn"), Tensor((3, 8, 4), "float8_e4m3fn")
    >>> s, t = (Tensor((12,), "float32"),), (Tensor((3, 4), "float32"),)
    >>> scaled_grouped_mm_v2(x, w, s, (), (), t, (), (), Tensor((3,), "int32"))
    Cost(flops=768, bytes=396)
    """
    return scaled_grouped_mm(input, mat2, scale_a, scale_b, offs, bias, None, out_dtype)


@cost("torch.nn.functional.scaled_grouped_mm")
def functional_scaled_grouped_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Value, scale_recipe_a: Value, scale_b: Value, scale_recipe_b: Value,
    swizzle_a: Value = None, swizzle_b: Value = None, bias: Tensor | None = None, offs: Value = None,
    output_dtype: Value = "bfloat16", *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.scaled_grouped_mm.

    >>> x, w = Tensor((12, 8), "float8_e4m3fn"), Tensor((3, 8, 4), "float8_e4m3fn")
    >>> functional_scaled_grouped_mm(x, w, Tensor((12,), "float32"), None, Tensor((3, 4), "float32"), None,
    ...                              offs=Tensor((3,), "int32"))
    Cost(flops=768, bytes=396)
    """
    return scaled_grouped_mm(mat_a, mat_b, scale_a, scale_b, offs, bias, None, output_dtype)


@cost("_foreach_mm")
def foreach_mm(input: Value, mat2: Value) -> Cost:
    """A product per pair of the lists. Source: aten::_foreach_mm.

    >>> foreach_mm((Tensor((2, 3), "float32"),) * 2, (Tensor((3, 5), "float32"),) * 2)  # 2·(60; 124)
    Cost(flops=120, bytes=248)
    """
    pairs = list(zip(tensors_in((input,)), tensors_in((mat2,)), strict=True))
    require(bool(pairs), "lists are expected")
    products = [bmm(Tensor((1, *a.shape), a.dtype, None), Tensor((1, *b.shape), b.dtype)) for a, b in pairs]
    return backward_sum(*products)


@cost("inductor::_mm_plus_mm")
def mm_plus_mm(a: Tensor, b: Tensor, c: Tensor, d: Tensor, out: Value = None) -> Cost:
    """a·b + c·d as one product with both K. Source: torch/_inductor/kernel/mm_plus_mm.py.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> mm_plus_mm(t(2, 3), t(3, 5), t(2, 4), t(4, 5))  # 2·10·7; (6 + 15 + 8 + 20 + 10)·4
    Cost(flops=140, bytes=236)
    """
    (m, k), (k2, n) = a.shape, b.shape
    (m3, k3), (k4, n4) = c.shape, d.shape
    require((k, k3, m, n) == (k2, k4, m3, n4), "shapes do not fit")
    return Cost(2 * m * n * (k + k3), bytes_of(a, b, c, d, Tensor((m, n), a.dtype)))


@cost("chain_matmul", "linalg_multi_dot")
def multi_dot(*matrices: Value, tensors: Value = None, out: Value = None) -> Cost:
    """The cheapest order of the products, as torch chooses it; the first and last operand may be vectors. Intermediate
    results are not counted as moved. Source: torch.linalg.multi_dot; Cormen et al., Introduction to Algorithms,
    15.2.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> multi_dot((t(10, 100), t(100, 5), t(5, 50)))  # (10·100·5 + 10·5·50)·2; (1000 + 500 + 250 + 500)·4
    Cost(flops=15000, bytes=9000)
    """
    parts = tensors_in((*matrices, tensors))
    require(2 <= len(parts) <= 100, "two matrices or more are expected")
    first, last = parts[0].shape, parts[-1].shape
    shapes = [t.shape for t in parts]
    shapes[0] = first if len(first) == 2 else (1, *first)
    shapes[-1] = last if len(last) == 2 else (*last, 1)
    require(all(len(s) == 2 for s in shapes), "matrices are expected")
    require(all(a[1] == b[0] for a, b in pairwise(shapes)), "shapes do not multiply")
    sides = [s[0] for s in shapes] + [shapes[-1][1]]
    n = len(shapes)
    best = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best[i][j] = min(best[i][k] + best[k + 1][j] + sides[i] * sides[k + 1] * sides[j + 1] for k in range(i, j))
    output = Tensor((*first[: len(first) - 1], *last[1:]), parts[0].dtype)
    return Cost(2 * best[0][-1], bytes_of(*parts, output))


@cost("bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Cost:
    """yₒ = x₁ᵀ Wₒ x₂ for x₁ (*, I), x₂ (*, J), W (O, I, J): first x₁ᵀW, then the product with x₂,
    2·rows·O·J·(I + 1). The gradients of x₁, x₂ (dgrad) and of W (wgrad) are each such products.

    Source: torch.nn.functional.bilinear; at::_trilinear contracts in this order.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> bilinear(t(6, 3), t(6, 4), t(5, 3, 4))  # 2·6·5·4·4; (18 + 24 + 60 + 30)·4
    Cost(flops=960, bytes=528)
    """
    *rows, i = input1.shape
    *rows2, j = input2.shape
    o, i2, j2 = weight.shape
    require(rows == rows2 and (i, j) == (i2, j2), "shapes do not fit")
    output = Tensor((*rows, o), input1.dtype)
    moved = bytes_of(input1, input2, weight, output)
    n = prod(rows)
    dgrad = Cost(2 * 2 * n * o * i * j + 2 * n * o * (i + j), moved)
    wgrad = Cost(n * o * j + 2 * n * o * i * j, moved)  # g·x₂, then its outer products with x₁, summed over rows
    bgrad = None if bias is None else Cost(output.numel, bytes_of(output, bias))
    whole = bytes_of(input1, input2, weight, bias, output)
    return Cost(2 * n * o * j * (i + 1), whole, dgrad=dgrad, wgrad=wgrad, bgrad=bgrad)

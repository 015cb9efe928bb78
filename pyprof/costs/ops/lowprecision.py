# SPDX-License-Identifier: Apache-2.0
"""Matrix products of 8 and 4 bit operands, of packed weights, and of 2:4 sparse ones.

2·M·N·K FLOPs as for any product: scaling, unpacking and dequantising are not counted. A float4 element of torch holds
two values, so its K is twice the size in the shape. Bytes: operands as they are stored, scales, bias, the result. 2:4
sparsity executes half of the products; `dense` counts all. None of these has a backward.

>>> x, w = Tensor((16, 64), "float8_e4m3fn"), Tensor((64, 32), "float8_e4m3fn")
>>> scaled_mm(x, w, Tensor((), "float32"), Tensor((), "float32"), out_dtype="bfloat16")  # 1024 + 2048 + 8 + 1024
Cost(flops=65536, bytes=4104)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, as_tensor, chosen_dtype, require, tensors_in

PACKED = {"float4_e2m1fn_x2": 2}  # values per element. Source: c10/core/ScalarType.h


def packed(tensor: Tensor) -> int:
    """Return the number of values in one element."""
    return PACKED.get(tensor.dtype or "", 1)


@cost("_scaled_mm")
def scaled_mm(
    input: Tensor, mat2: Tensor, scale_a: Value, scale_b: Value, bias: Tensor | None = None,
    scale_result: Value = None, out_dtype: Value = None, use_fast_accum: Value = None,
) -> Cost:  # fmt: skip
    """(M, K)·(K, N) with scales of a tensor, a row or a block. Source: aten::_scaled_mm.

    >>> fours, scale = Tensor((16, 32), "float4_e2m1fn_x2"), Tensor((16, 4), "float8_e8m0fnu")  # K is 64
    >>> w = Tensor((32, 16), "float4_e2m1fn_x2")
    >>> scaled_mm(fours, w, scale, scale, out_dtype="bfloat16")  # 2·16·16·64; 512 + 512 + 128 + 512
    Cost(flops=32768, bytes=1664)
    """
    (m, k), (k2, n) = input.shape, mat2.shape
    require(k == k2, f"{input.shape} and {mat2.shape} do not multiply")
    output = Tensor((m, n), chosen_dtype(out_dtype, input.dtype))
    moved = bytes_of(input, mat2, *tensors_in((scale_a, scale_b, bias, scale_result)), output)
    return Cost(2 * m * n * k * packed(input), moved)


@cost("_scaled_mm_v2")
def scaled_mm_v2(
    input: Tensor, mat2: Tensor, scale_a: Value, recipe_a: Value, swizzle_a: Value, scale_b: Value, recipe_b: Value,
    swizzle_b: Value, bias: Tensor | None = None, out_dtype: Value = None, *parameters: Value,
) -> Cost:  # fmt: skip
    """Several scales per operand. Source: aten::_scaled_mm_v2.

    >>> x, s = Tensor((16, 16), "float8_e4m3fn"), (Tensor((), "float32"),)
    >>> scaled_mm_v2(x, x, s, (0,), (0,), s, (0,), (0,), None, 15)  # bfloat16
    Cost(flops=8192, bytes=1032)
    """
    return scaled_mm(input, mat2, scale_a, scale_b, bias, None, out_dtype)


@cost("torch.nn.functional.scaled_mm")
def functional_scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Value, scale_recipe_a: Value, scale_b: Value, scale_recipe_b: Value,
    swizzle_a: Value = None, swizzle_b: Value = None, bias: Tensor | None = None, output_dtype: Value = "bfloat16",
    *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.scaled_mm.

    >>> x, s = Tensor((16, 16), "float8_e4m3fn"), Tensor((), "float32")
    >>> functional_scaled_mm(x, x, s, None, s, None)
    Cost(flops=8192, bytes=1032)
    """
    return scaled_mm(mat_a, mat_b, scale_a, scale_b, bias, None, output_dtype)


def packed_linear(input: Tensor, n: int, weight: tuple[Value, ...], dtype: str | None = None) -> Cost:
    """Return the cost of (*, K)·(N, K)ᵀ with a weight of any packing. `weight` holds the tensors that are read for it.

    >>> packed_linear(Tensor((2, 3, 8), "bfloat16"), 5, (Tensor((5, 8), "int8"),))  # 2·6·5·8; 96 + 40 + 60
    Cost(flops=480, bytes=196)
    """
    *rows, k = input.shape
    output = Tensor((*rows, n), dtype or input.dtype)
    return Cost(2 * prod(rows) * n * k, bytes_of(input, *tensors_in(weight), output))


@cost("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros")
def weight_int4pack_mm(
    input: Tensor, mat2: Tensor, qGroupSize: Value, qScaleAndZeros: Tensor, qZeros: Tensor | None = None
) -> Cost:
    """4-bit weights in tiles; their scales are (K/group, N, 2) or (K/group, N). Source: aten::_weight_int4pack_mm.

    >>> x, w, s = Tensor((4, 64), "bfloat16"), Tensor((1, 4, 32, 1), "int32"), Tensor((2, 8, 2), "bfloat16")
    >>> weight_int4pack_mm(x, w, 32, s)  # 2·4·8·64; 512 + 512 + 64 + 64
    Cost(flops=4096, bytes=1152)
    """
    require(qScaleAndZeros.shape[0] * as_int(qGroupSize) == input.shape[1], "the scales do not fit K")
    return packed_linear(input, qScaleAndZeros.shape[1], (mat2, qScaleAndZeros, qZeros))


@cost("_weight_int8pack_mm")
def weight_int8pack_mm(input: Tensor, mat2: Tensor, scales: Tensor) -> Cost:
    """(M, K)·(N, K)ᵀ with int8 weights. Source: aten::_weight_int8pack_mm.

    >>> weight_int8pack_mm(Tensor((4, 64), "bfloat16"), Tensor((8, 64), "int8"), Tensor((8,), "bfloat16"))
    Cost(flops=4096, bytes=1104)
    """
    require(mat2.shape[1] == input.shape[-1], "shapes do not fit")
    return packed_linear(input, mat2.shape[0], (mat2, scales))


@cost("_mixed_dtypes_linear")
def mixed_dtypes_linear(
    input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None, activation: Value = None
) -> Cost:
    """int8 or int4 weights, one scale per output feature: their number is N. Source: aten::_mixed_dtypes_linear.

    >>> mixed_dtypes_linear(Tensor((4, 64), "float16"), Tensor((64, 8), "int8"), Tensor((8,), "float16"))
    Cost(flops=4096, bytes=1104)
    """
    return packed_linear(input, scale.numel, (weight, scale, bias))


@cost("_dyn_quant_matmul_4bit")
def dyn_quant_matmul_4bit(
    inp: Tensor, packed_weights: Tensor, block_size: Value, in_features: Value, out_features: Value
) -> Cost:
    """Source: aten::_dyn_quant_matmul_4bit; the packed weights hold their scales and bias.

    >>> dyn_quant_matmul_4bit(Tensor((4, 64), "float32"), Tensor((300,), "uint8"), 32, 64, 8)  # 1024 + 300 + 128
    Cost(flops=4096, bytes=1452)
    """
    require(inp.shape[-1] == in_features, "shapes do not fit")
    return packed_linear(inp, as_int(out_features), (packed_weights,))


def _sparse(rows: int, n: int, stored: int, *moved: Tensor | None) -> Cost:
    """Return the cost of a product with `stored` of every 2·stored values in K."""
    return Cost(2 * rows * n * stored, bytes_of(*moved), dense=4 * rows * n * stored)


@cost("_sparse_semi_structured_linear")
def sparse_semi_structured_linear(
    input: Tensor, weight: Tensor, meta: Tensor, bias: Tensor | None = None, activation: Value = None,
    out_dtype: Value = None,
) -> Cost:  # fmt: skip
    """(*, K) by a 2:4 sparse (N, K), stored as (N, K/2). Source: aten::_sparse_semi_structured_linear.

    >>> x, w, meta = Tensor((4, 64), "float16"), Tensor((8, 32), "float16"), Tensor((8, 4), "int16")
    >>> c = sparse_semi_structured_linear(x, w, meta)
    >>> c, c.dense  # 512 + 512 + 64 + 64
    (Cost(flops=2048, bytes=1152), 4096)
    """
    n, stored = weight.shape
    *rows, k = input.shape
    require(k == 2 * stored, "shapes do not fit")
    output = Tensor((*rows, n), chosen_dtype(out_dtype, input.dtype))
    return _sparse(prod(rows), n, stored, input, weight, meta, bias, output)


@cost("_sparse_semi_structured_mm")
def sparse_semi_structured_mm(mat1: Tensor, mat1_meta: Tensor, mat2: Tensor, out_dtype: Value = None) -> Cost:
    """2:4 sparse (M, K), stored as (M, K/2), by (K, N). Source: aten::_sparse_semi_structured_mm.

    >>> a, b, meta = Tensor((8, 32), "float16"), Tensor((64, 4), "float16"), Tensor((8, 4), "int16")
    >>> sparse_semi_structured_mm(a, meta, b)
    Cost(flops=2048, bytes=1152)
    """
    (m, stored), (k, n) = mat1.shape, mat2.shape
    require(k == 2 * stored, "shapes do not fit")
    return _sparse(m, n, stored, mat1, mat1_meta, mat2, Tensor((m, n), chosen_dtype(out_dtype, mat2.dtype)))


@cost("_sparse_semi_structured_addmm")
def sparse_semi_structured_addmm(
    input: Tensor, mat1: Tensor, mat1_meta: Tensor, mat2: Tensor, alpha: Value = 1, beta: Value = 1,
    out_dtype: Value = None,
) -> Cost:  # fmt: skip
    """With a row or matrix added. Source: aten::_sparse_semi_structured_addmm.

    >>> a, b, meta = Tensor((8, 32), "float16"), Tensor((64, 4), "float16"), Tensor((8, 4), "int16")
    >>> sparse_semi_structured_addmm(Tensor((8,), "float16"), a, meta, b)
    Cost(flops=2048, bytes=1168)
    """
    (m, stored), (k, n) = mat1.shape, mat2.shape
    require(k == 2 * stored, "shapes do not fit")
    output = Tensor((m, n), chosen_dtype(out_dtype, mat2.dtype))
    return _sparse(m, n, stored, None if beta == 0 else as_tensor(input), mat1, mat1_meta, mat2, output)


@cost("_cslt_sparse_mm")
def cslt_sparse_mm(
    compressed_A: Tensor, dense_B: Tensor, bias: Tensor | None = None, alpha: Tensor | None = None,
    out_dtype: Value = None, transpose_result: Value = False, *parameters: Value,
) -> Cost:  # fmt: skip
    """cuSPARSELt: values and indices of (M, K) lie in one buffer of 9/16 (16 bit) or 10/16 (8 bit) of its elements.

    Source: aten/src/ATen/native/sparse/cuda/cuSPARSELtOps.cpp.

    >>> cslt_sparse_mm(Tensor((8 * 64 * 9 // 16,), "float16"), Tensor((64, 4), "float16"))
    Cost(flops=2048, bytes=1152)
    """
    k, n = dense_B.shape
    sixteenths = 10 if compressed_A.dtype in ("int8", "float8_e4m3fn") else 9
    require(compressed_A.numel * 16 % (sixteenths * k) == 0, "the compressed matrix does not fit")
    m = compressed_A.numel * 16 // (sixteenths * k)
    output = Tensor((m, n), chosen_dtype(out_dtype, dense_B.dtype))
    return _sparse(m, n, k // 2, compressed_A, dense_B, bias, alpha, output)


def _into(out: Tensor, a: Tensor, b: Tensor, *extra: Value) -> Cost:
    """Return the cost of a product that is written into an argument; `b` holds N·K elements in either order."""
    k = a.shape[-1]
    require(k > 0 and a.numel * out.shape[-1] == out.numel * k, f"{a.shape} does not give {out.shape}")
    require(b.numel == k * out.shape[-1], f"{a.shape} and {b.shape} do not multiply")
    return Cost(2 * out.numel * k, bytes_of(out, a, b, *tensors_in(extra)))


@cost("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp", "sgl_kernel::dsv3_fused_a_gemm",
      "sgl_kernel::dsv3_router_gemm", "sglang::flashinfer_dsv3_router_gemm")  # fmt: skip
def scaled_mm_into(out: Tensor, a: Tensor, b: Tensor, *parameters: Value) -> Cost:
    """Scales and bias follow. Source: vLLM, csrc/torch_bindings.cpp; SGLang, sgl-kernel/csrc/common_extension.cc.

    >>> x, w, y = Tensor((16, 64), "int8"), Tensor((64, 32), "int8"), Tensor((16, 32), "bfloat16")
    >>> scaled_mm_into(y, x, w, Tensor((1,), "float32"), Tensor((32,), "float32"))  # 1024 + 1024 + 2048 + 4 + 128
    Cost(flops=65536, bytes=4228)
    """
    return _into(out, a, b, parameters)


@cost("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm")
def scaled_fp4_mm_into(out: Tensor, a: Tensor, b: Tensor, *parameters: Value) -> Cost:
    """A byte holds two values. Source: vLLM, csrc/torch_bindings.cpp.

    >>> x, w, y = Tensor((16, 32), "uint8"), Tensor((32, 32), "uint8"), Tensor((16, 32), "bfloat16")
    >>> scaled_fp4_mm_into(y, x, w)  # 2·16·32·64; 1024 + 512 + 1024
    Cost(flops=65536, bytes=2560)
    """
    product = _into(out, a, b, parameters)
    return product._replace(flops=2 * (product.flops or 0))


@cost("sglang::deep_gemm_fp8_fp8_bf16_nt")
def deep_gemm_nt(A: Tensor, As: Tensor, B: Tensor, Bs: Tensor, C: Tensor) -> Cost:
    """Each operand with its scales. Source: SGLang, srt/layers/quantization/fp8_kernel.py.

    >>> x, w = Tensor((16, 64), "float8_e4m3fn"), Tensor((32, 64), "float8_e4m3fn")
    >>> deep_gemm_nt(x, Tensor((16, 1), "float32"), w, Tensor((1, 1), "float32"), Tensor((16, 32), "bfloat16"))
    Cost(flops=65536, bytes=4164)
    """
    return _into(C, A, B, As, Bs)


@cost("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm")
def scaled_mm_of_sglang(
    mat_a: Tensor,
    mat_b: Tensor,
    scales_a: Tensor,
    scales_b: Tensor,
    out_dtype: Value,
    bias: Tensor | None = None,
) -> Cost:
    """(M, K)·(K, N). Source: SGLang, sgl-kernel/csrc/common_extension.cc.

    >>> x, w = Tensor((16, 64), "float8_e4m3fn"), Tensor((64, 32), "float8_e4m3fn")
    >>> scaled_mm_of_sglang(x, w, Tensor((16, 1), "float32"), Tensor((32, 1), "float32"), 15)  # bfloat16
    Cost(flops=65536, bytes=4288)
    """
    return scaled_mm(mat_a, mat_b, scales_a, scales_b, bias, None, out_dtype)


@cost("_C::gptq_marlin_gemm", "_C::marlin_gemm", "_C::fp8_marlin_gemm", "sgl_kernel::gptq_marlin_gemm")
def marlin_gemm(a: Tensor, *parameters: Value) -> Cost:
    """Versions differ in their tensors; after the tensors all have the type of the weights and M, N, K. The last tensor
    holds locks. Source: vLLM, csrc/torch_bindings.cpp.

    >>> x, w, s = Tensor((16, 64), "bfloat16"), Tensor((4, 64), "int32"), Tensor((1, 32), "bfloat16")
    >>> marlin_gemm(x, None, w, None, s, None, None, None, None, Tensor((8,), "int32"), 2814749767107868, 16, 32, 64,
    ...             True, False, True, False)  # 2048 + 1024 + 64 + 1024
    Cost(flops=65536, bytes=4160)
    """
    numbers = [value for value in parameters if isinstance(value, int) and not isinstance(value, bool)]
    require(len(numbers) > 3, "M, N and K are expected")
    m, n, k = numbers[1:4]
    require(m * k == a.numel, f"{a.shape} is not {m} by {k}")
    return Cost(2 * m * n * k, bytes_of(a, *tensors_in(parameters)[:-1], Tensor((m, n), a.dtype)))


@cost("_C::awq_gemm", "_C::gptq_gemm")
def four_bit_gemm(a: Tensor, weight: Tensor, first: Tensor, second: Tensor, *parameters: Value) -> Cost:
    """Scales or zeros have a column for each of the N of the result, the zeros packed. Source: vLLM,
    csrc/torch_bindings.cpp.

    >>> x, s, z = Tensor((16, 64), "float16"), Tensor((1, 32), "float16"), Tensor((1, 4), "int32")
    >>> four_bit_gemm(x, Tensor((64, 4), "int32"), s, z, 8)  # AWQ: 2048 + 1024 + 64 + 16 + 1024
    Cost(flops=65536, bytes=4176)
    >>> four_bit_gemm(x, Tensor((8, 32), "int32"), z, s, Tensor((64,), "int32"), True, 4)  # GPTQ: 256 of its order
    Cost(flops=65536, bytes=4432)
    """
    n = max(first.shape[-1], second.shape[-1])
    out = Tensor((*a.shape[:-1], n), a.dtype)
    moved = bytes_of(a, weight, first, second, *tensors_in(parameters), out)
    return Cost(2 * out.numel * a.shape[-1], moved)

# SPDX-License-Identifier: Apache-2.0
"""Operators of language-model servers other than products: vLLM's `_C`, `_moe_C` and `_C_cache_ops`, SGLang's
`sgl_kernel`, FlashInfer's, and AITER's of ROCm. Attention over pages is in paged.py, mixtures of experts in moe.py.

>>> rotary(Tensor((2,), "int64"), Tensor((2, 8), "float16"), None, 4, Tensor((9, 4), "float16")).flops  # 16 · 3
48
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.norm import rms_norm
from pyprof.costs.ops.shapes import as_int, like, require


@cost("aiter::rms_norm", "vllm::rocm_aiter_rms_norm")
def aiter_rms_norm(input: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """Source: github.com/ROCm/aiter, aiter/ops/rmsnorm.py.

    >>> aiter_rms_norm(Tensor((4, 8), "float32"), Tensor((8,), "float32"), 1e-5)
    Cost(flops=128, bytes=288)
    """
    return rms_norm(input, weight.shape, weight)._replace(dgrad=None)


@cost("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm", "flashinfer::rmsnorm")
def vllm_rms_norm(result: Tensor, input: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """The result is an argument. Source: vLLM, csrc/layernorm_kernels.cu; AITER, SGLang and FlashInfer alike.

    >>> x = Tensor((4, 8), "float32")
    >>> vllm_rms_norm(x, x, Tensor((8,), "float32"), 1e-5)
    Cost(flops=128, bytes=288)
    """
    return aiter_rms_norm(input, weight)


def _added_norm(input: Tensor, residual: Tensor, weight: Tensor) -> Cost:
    """Return the cost of (input + residual), which is kept, and its norm: one addition per element more than the
    norm."""
    norm = aiter_rms_norm(input, weight)
    require(norm.flops is not None, "a norm counts")
    assert norm.flops is not None
    return Cost(norm.flops + input.numel, bytes_of(input, residual, weight, like(input), like(residual)))


@cost("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "flashinfer::fused_add_rmsnorm")
def fused_add_rms_norm(input: Tensor, residual: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """Both tensors are read and overwritten: the norm, and the sum. Source: vLLM, csrc/layernorm_kernels.cu.

    >>> x = Tensor((4, 8), "float32")
    >>> fused_add_rms_norm(x, x, Tensor((8,), "float32"), 1e-5)  # 128 + 32; 4 · 128 + 32
    Cost(flops=160, bytes=544)
    """
    return _added_norm(input, residual, weight)


@cost("vllm::flashinfer_trtllm_fused_allreduce_norm")
def allreduce_norm(
    allreduce_in: Tensor,
    residual: Tensor,
    rms_gamma: Tensor,
    rms_eps: Value,
    world_rank: Value,
    world_size: Value,
    *parameters: Value,
) -> Cost:
    """An all-reduce of n ranks, whose sum stays in registers, the residual added, and the norm: n - 1 additions for
    each nth of the elements, as each rank does in a ring. Traffic on the links is not part of the bytes. Source:
    vLLM, compilation/passes/fusion/allreduce_rms_fusion.py.

    >>> x = Tensor((4, 8), "float32")
    >>> allreduce_norm(x, x, Tensor((8,), "float32"), 1e-5, 0, 4)  # 160 of the norm + 32 · 3 / 4
    Cost(flops=184, bytes=544)
    """
    n = as_int(world_size)
    require(n > 0, "the number of ranks is expected")
    norm = _added_norm(allreduce_in, residual, rms_gamma)
    assert norm.flops is not None
    return norm._replace(flops=norm.flops + allreduce_in.numel * (n - 1) // n)


@cost("sglang::flashinfer_allreduce_residual_rmsnorm", "vllm::rocm_aiter_fused_allreduce_rmsnorm")
def allreduce_norm_of_some(input: Tensor, residual: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """The same with an unknown number of ranks: one addition per element, which is the limit for many ranks. Source:
    SGLang, srt/layers/flashinfer_comm_fusion.py; vLLM, _aiter_ops.py.

    >>> x = Tensor((4, 8), "float32")
    >>> allreduce_norm_of_some(x, x, Tensor((8,), "float32"), 1e-6)  # 160 + 32
    Cost(flops=192, bytes=544)
    """
    norm = _added_norm(input, residual, weight)
    assert norm.flops is not None
    return norm._replace(flops=norm.flops + input.numel, basis="approximate")


@cost("aiter::rmsnorm2d_fwd_with_add_ck", "aiter::rmsnorm2d_fwd_with_add")
def rmsnorm_with_add(
    out: Tensor, input: Tensor, residual: Tensor, sum: Tensor, weight: Tensor, *parameters: Value
) -> Cost:
    """Source: github.com/ROCm/aiter, aiter/ops/rmsnorm.py.

    >>> x = Tensor((4, 8), "float32")
    >>> rmsnorm_with_add(x, x, x, x, Tensor((8,), "float32"), 1e-5)
    Cost(flops=160, bytes=544)
    """
    return _added_norm(input, residual, weight)


@cost("aiter::add_rmsnorm")
def aiter_add_rmsnorm(
    out: Tensor, input: Tensor, residual: Tensor, sum: Tensor, weight: Tensor, *parameters: Value
) -> Cost:
    """Source: github.com/ROCm/aiter, aiter/ops/rmsnorm.py; arguments as in an MI300X trace of SGLang.

    >>> x = Tensor((4, 8), "float32")
    >>> aiter_add_rmsnorm(x, x, x, x, Tensor((8,), "float32"), 1e-6)
    Cost(flops=160, bytes=544)
    """
    return _added_norm(input, residual, weight)


def _gemma(input: Tensor, weight: Tensor) -> Cost:
    norm = aiter_rms_norm(input, weight)
    assert norm.flops is not None
    return norm._replace(flops=norm.flops + weight.numel)


@cost("sgl_kernel::gemma_rmsnorm", "flashinfer::gemma_rmsnorm")
def gemma_rms_norm(result: Tensor, input: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """The norm times 1 + weight. Source: FlashInfer, include/flashinfer/norm.cuh.

    >>> x = Tensor((4, 8), "float32")
    >>> gemma_rms_norm(x, x, Tensor((8,), "float32"))  # 128 + 8
    Cost(flops=136, bytes=288)
    """
    return _gemma(input, weight)


@cost("_C::rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary(
    positions: Tensor, query: Tensor, key: Tensor | None, head_size: Value, cache: Tensor, *parameters: Value
) -> Cost:
    """Pairs of elements are rotated in place: four products and two sums each; one row of the cache per position. The
    first `cache.shape[1]` elements of each head are rotated. Source: vLLM, csrc/pos_encoding_kernels.cu.

    >>> half = Tensor((2, 8), "float16")
    >>> rotary(Tensor((2,), "int64"), half, half, 4, Tensor((9, 4), "float16"))  # 32 · 3; 16 + 4 · 32 + 2 · 8
    Cost(flops=96, bytes=160)
    """
    width, size = cache.shape[1], as_int(head_size)
    require(0 < width <= size, "a head is at least as wide as what is rotated")
    moved = [tensor for tensor in (query, key) if tensor is not None]
    rotated = [tensor.numel // size * width for tensor in moved]
    parts = [Tensor((count,), tensor.dtype) for count, tensor in zip(rotated, moved)]
    rows = Tensor((positions.numel, width), cache.dtype)
    return Cost(3 * sum(rotated), bytes_of(positions, rows, *parts, *parts))


@cost("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache")
def reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, *parameters: Value
) -> Cost:
    """Keys and values of the new tokens are copied to their slots of the cache. Source: vLLM, csrc/cache_kernels.cu.

    >>> new, cache = Tensor((3, 2, 4), "float16"), Tensor((9, 16, 2, 4), "float16")
    >>> reshape_and_cache(new, new, cache, cache, Tensor((3,), "int64"))  # 2 · 48 read, 2 · 48 written, 24
    Cost(flops=0, bytes=216)
    """
    written = [Tensor(new.shape, cache.dtype) for new, cache in ((key, key_cache), (value, value_cache))]
    return Cost(0, bytes_of(key, value, *written, slots))


@cost("sglang::store_cache")
def store_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, *parameters: Value
) -> Cost:
    """The same for pages of one token. Source: SGLang, srt/mem_cache/memory_pool.py; an MI300X trace.

    >>> new, cache = Tensor((3, 8), "float16"), Tensor((144, 8), "float16")
    >>> store_cache(new, new, cache, cache, Tensor((3,), "int64"))
    Cost(flops=0, bytes=216)
    """
    return reshape_and_cache(key, value, key_cache, value_cache, slots)


@cost("sglang_profiler::memory_pool__set_kv_buffer_impl")
def set_kv_buffer(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, *parameters: Value
) -> Cost:
    """Its name in SGLang's profiler. Source: an MI300X trace.

    >>> new, cache = Tensor((3, 2, 4), "float16"), Tensor((144, 2, 4), "float16")
    >>> set_kv_buffer(new, new, cache, cache, Tensor((3,), "int64"))
    Cost(flops=0, bytes=216)
    """
    return reshape_and_cache(key, value, key_cache, value_cache, slots)


def _gated(result: Tensor, input: Tensor, per_element: int) -> Cost:
    require(input.numel == 2 * result.numel, "the input is twice as large")
    return Cost((per_element + 1) * result.numel, bytes_of(result, input))


@cost("_C::silu_and_mul", "sgl_kernel::silu_and_mul", "flashinfer::silu_and_mul", "aiter::silu_and_mul")
def silu_and_mul(result: Tensor, input: Tensor, *parameters: Value) -> Cost:
    """silu of one half, 2 per element as by itself, times the other. Source: vLLM, csrc/activation_kernels.cu.

    >>> silu_and_mul(Tensor((4, 8), "float16"), Tensor((4, 16), "float16"))  # 32 · 3; 64 + 128
    Cost(flops=96, bytes=192)
    """
    return _gated(result, input, 2)


@cost("_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul",
      "flashinfer::gelu_and_mul", "flashinfer::gelu_tanh_and_mul", "aiter::gelu_and_mul",
      "aiter::gelu_tanh_and_mul")  # fmt: skip
def gelu_and_mul(result: Tensor, input: Tensor, *parameters: Value) -> Cost:
    """gelu of one half, 5 per element as by itself, times the other. Source: vLLM, csrc/activation_kernels.cu.

    >>> gelu_and_mul(Tensor((4, 8), "float16"), Tensor((4, 16), "float16"))  # 32 · 6; 64 + 128
    Cost(flops=192, bytes=192)
    """
    return _gated(result, input, 5)


@cost("_moe_C::moe_sum", "sgl_kernel::moe_sum")
def moe_sum(input: Tensor, output: Tensor, *parameters: Value) -> Cost:
    """(T, k, H) summed over k. Source: vLLM, csrc/moe/moe_align_sum_kernels.cu.

    >>> moe_sum(Tensor((4, 2, 8), "float16"), Tensor((4, 8), "float16"))  # 4·8; 128 + 64
    Cost(flops=32, bytes=192)
    """
    require(input.numel % max(output.numel, 1) == 0, "the input is a multiple of the output")
    return Cost(input.numel - output.numel, bytes_of(input, output))


@cost("_moe_C::topk_softmax", "sgl_kernel::topk_softmax")
def topk_softmax(topk_weights: Tensor, topk_ids: Tensor, *parameters: Value) -> Cost:
    """Softmax over the experts of a token, 5 per element as by itself, and the largest k, which are comparisons. The
    logits are the only tensor of (T, E); another of (T, k) is written. Source: vLLM,
    csrc/moe/topk_softmax_kernels.cu.

    >>> t = lambda *shape, dtype="float32": Tensor(shape, dtype)
    >>> topk_softmax(t(4, 2), t(4, 2, dtype="int32"), t(4, 2, dtype="int32"), t(4, 8))  # 5·32; 32 + 32 + 32 + 128
    Cost(flops=160, bytes=224)
    """
    tensors = [value for value in parameters if isinstance(value, Tensor) and len(value.shape) == 2]
    logits = [tensor for tensor in tensors if tensor.shape != topk_ids.shape]
    require(len(logits) == 1 and logits[0].shape[0] == topk_ids.shape[0], "one tensor of logits is expected")
    return Cost(5 * logits[0].numel, bytes_of(topk_weights, topk_ids, *tensors))

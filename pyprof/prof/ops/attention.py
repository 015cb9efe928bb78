# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, in the user's spelling and as the dispatcher's fused kernels.

Letters: query (*, Hq, Sq, D), key (*, Hkv, Skv, D), value (*, Hkv, Skv, Dv). Two products over every pair of a query
and a key that is not masked by `is_causal`: 2·B·Hq·pairs·(D + Dv) FLOPs. pairs = Sq·Skv, or Σ min(i + 1, Skv) for a
causal one (its diagonal starts top left); an explicit mask stays dense. Softmax, scale and dropout are not counted.
Bytes: query, key, value and mask as they are stored, the output; keys and values have Hkv heads.

The backward, all in dgrad, is five products (the scores again, and the gradients of V, P, Q, K):
2·B·Hq·pairs·(3·D + 2·Dv). It reads the gradient, the output and the three operands and writes three gradients.
The saved log-sum-exp and random states are not counted. Source: FlashAttention-2 (arXiv 2307.08691), sections 2.2, 3.1.

>>> q = Tensor((2, 8, 128, 64), "float16")
>>> sdpa(q, q, q)  # 2 · 16 · 128² · 128; 4 · 262144
Cost(flops=67108864, bytes=1048576)
>>> sdpa(q, q, q, is_causal=True).flops  # pairs = 128·129/2
33816576
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.model import Cost, Tensor, Value
from pyprof.prof.cost import bytes_of, cost
from pyprof.prof.ops.shapes import as_tensor, broadcast, like, require


def pairs(queries: int, keys: int, causal: bool) -> int:
    """Pairs of a query and a key that it may see.

    >>> pairs(3, 5, False), pairs(3, 5, True), pairs(5, 3, True)
    (15, 6, 12)
    """
    if not causal:
        return queries * keys
    full = min(queries, keys)
    return full * (full + 1) // 2 + (queries - full) * keys


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Value = None, causal: Value = False) -> Cost:
    """Cost for operands (*, H, S, D); a key without heads to match has been grouped (GQA)."""
    *batch, sq, d = query.shape
    skv, dk = key.shape[-2:]
    sv, dv = value.shape[-2:]
    require(d == dk and skv == sv, f"{query.shape}, {key.shape} and {value.shape} do not fit")
    heads, kv_heads = query.shape[-3:-2], key.shape[-3:-2]
    require(
        prod(heads) % max(prod(kv_heads), 1) == 0 and key.shape[:-1] == value.shape[:-1], "heads do not fit"
    )
    rows = prod(broadcast(tuple(batch[:-1]), key.shape[:-3])) * prod(heads)
    output = Tensor((rows, sq, dv), query.dtype)
    seen = rows * pairs(sq, skv, bool(causal))
    more = mask if isinstance(mask, Tensor) else None
    operands = (query, key, value, more)
    back = bytes_of(*operands, output, output, like(query), like(key), like(value))
    return Cost(
        2 * seen * (d + dv), bytes_of(*operands, output), dgrad=Cost(2 * seen * (3 * d + 2 * dv), back)
    )


@cost("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
def sdpa(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Value = None, dropout_p: Value = 0.0,
    is_causal: Value = False, *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.scaled_dot_product_attention.

    >>> q, kv = Tensor((1, 8, 1, 64), "float16"), Tensor((1, 2, 100, 64), "float16")
    >>> sdpa(q, kv, kv)  # 2·8·100·128; (512 + 2·12800 + 512)·2
    Cost(flops=204800, bytes=53248)
    """
    return attend(query, key, value, attn_mask, is_causal)


# The dispatcher's kernels: their arguments, in order, as far as they matter here. One whose operands are
# (B, S, H, D) says so; with cumulative sequence lengths the lengths are data and the cost is unknown.
# Source: aten/src/ATen/native/native_functions.yaml.
FORWARD = {
    "_scaled_dot_product_flash_attention": "query key value dropout_p is_causal",
    "_scaled_dot_product_flash_attention_for_cpu": "query key value dropout_p is_causal attn_mask",
    "_scaled_dot_product_efficient_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_cudnn_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_fused_attention_overrideable": "query key value attn_bias dropout_p is_causal",
    "_flash_attention_forward": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal",
    "_efficient_attention_forward": "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k "
    "dropout_p custom_mask_type",
    "_cudnn_attention_forward": "query key value attn_bias cum_seq_q cum_seq_k max_q max_k compute_log_sumexp "
    "dropout_p is_causal",
}
BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": "grad_out query key value out logsumexp . . max_q max_k "
    "dropout_p is_causal",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "grad_out query key value out logsumexp dropout_p "
    "is_causal attn_mask",
    "_scaled_dot_product_efficient_attention_backward": "grad_out_ query key value attn_bias out logsumexp "
    "philox_seed philox_offset dropout_p grad_input_mask is_causal",
    "_scaled_dot_product_cudnn_attention_backward": "grad_out query key value out logsumexp philox_seed "
    "philox_offset attn_bias . . max_q max_k dropout_p is_causal",
    "_scaled_dot_product_fused_attention_overrideable_backward": "grad_out query key value attn_bias "
    "grad_input_mask out logsumexp . . max_q max_k dropout_p is_causal",
    "_flash_attention_backward": "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k "
    "dropout_p is_causal",
    "_efficient_attention_backward": "grad_out_ query key value bias out cu_seqlens_q cu_seqlens_k max_seqlen_q "
    "max_seqlen_k logsumexp dropout_p philox_seed philox_offset custom_mask_type",
    "_cudnn_attention_backward": "grad_out query key value out logsumexp philox_seed philox_offset attn_bias . . "
    "max_q max_k dropout_p is_causal",
}
HEADS_BEHIND = frozenset(name for name in (*FORWARD, *BACKWARD) if name.startswith(("_flash", "_efficient")))
TOP_LEFT, BOTTOM_RIGHT = 1, 2  # custom_mask_type


def _kernel(name: str, parameters: str) -> Callable[..., Cost]:
    names = parameters.split()

    def kernel(*args: Value, is_causal: Value = False, attn_mask: Value = None) -> Cost:
        given: dict[str, Value] = {"is_causal": is_causal, "attn_mask": attn_mask, **dict(zip(names, args))}
        require(
            not any(isinstance(given.get(n), Tensor) for n in ("cum_seq_q", "cu_seqlens_q")),
            "varying lengths",
        )
        operands = [as_tensor(given.get(n)) for n in ("query", "key", "value")]
        if name in HEADS_BEHIND:
            operands = [_heads_first(t) for t in operands]
        causal = given.get("custom_mask_type") or given["is_causal"]
        if causal and (causal == BOTTOM_RIGHT or name.startswith("_flash")):
            # Aligned bottom right, where the count differs unless the lengths are equal.
            require(operands[0].shape[-2] == operands[1].shape[-2], "a causal mask from the bottom right")
        mask = given["attn_mask"] or given.get("attn_bias") or given.get("bias")
        return attend(operands[0], operands[1], operands[2], mask, causal)

    return kernel


def _backward(name: str, parameters: str) -> Callable[..., Cost]:
    whole = _kernel(name, parameters)

    def backward(*args: Value, **keywords: Value) -> Cost:
        dgrad = whole(*args, **keywords).dgrad
        assert dgrad is not None
        return dgrad

    return backward


def _heads_first(tensor: Tensor) -> Tensor:
    """(B, S, H, D) as (B, H, S, D)."""
    b, s, h, d = tensor.shape
    stride = tensor.stride and (tensor.stride[0], tensor.stride[2], tensor.stride[1], tensor.stride[3])
    return Tensor((b, h, s, d), tensor.dtype, stride)


for _name, _parameters in FORWARD.items():
    cost(_name)(_kernel(_name, _parameters))
for _name, _parameters in BACKWARD.items():
    cost(_name)(_backward(_name, _parameters))

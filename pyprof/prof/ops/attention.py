# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, in the user's spelling and as the dispatcher's fused kernels.

Letters: query (*, Hq, Sq, D), key (*, Hkv, Skv, D), value (*, Hkv, Skv, Dv). Two products over every pair of a query
and a key that it may see: 2·B·Hq·pairs·(D + Dv) FLOPs. pairs = Sq·Skv, less what `is_causal` or a window leaves out;
`dense` has the whole rectangle. An explicit mask stays dense. Softmax, scale and dropout are not counted.
Bytes: query, key, value and mask as they are stored, the output; keys and values have Hkv heads.

The backward, all in dgrad, is five products (the scores again, and the gradients of V, P, Q, K):
2·B·Hq·pairs·(3·D + 2·Dv). `dense` has the four that a model needs, twice the forward. It reads the gradient, the
output and the three operands and writes three gradients.
The saved log-sum-exp and random states are not counted. Source: FlashAttention-2 (arXiv 2307.08691), sections 2.2, 3.1.

>>> q = Tensor((2, 8, 128, 64), "float16")
>>> sdpa(q, q, q)  # 2 · 16 · 128² · 128; 4 · 262144
Cost(flops=67108864, bytes=1048576)
>>> causal = sdpa(q, q, q, is_causal=True)
>>> causal.flops, causal.dense  # pairs = 128·129/2
(33816576, 67108864)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.model import Cost, Tensor, Value
from pyprof.prof.cost import bytes_of, cost
from pyprof.prof.ops.shapes import as_int, as_tensor, broadcast, like, require


def _seen(queries: int, keys: int, limit: int) -> int:
    """Sum over the queries i of the keys below i + limit.

    >>> _seen(3, 2, 1)  # 1 + 2 + 2
    5
    """

    def upto(n: int) -> int:  # min(1, keys) + ... + min(n, keys)
        full = min(max(n, 0), keys)
        return full * (full + 1) // 2 + max(n - full, 0) * keys

    return upto(limit + queries - 1) - upto(limit - 1)


def pairs(
    queries: int, keys: int, causal: bool, bottom_right: bool = False, window: tuple[int, int] = (-1, -1)
) -> int:
    """Pairs of a query and a key that it may see. The diagonal starts top left, or ends bottom right; a window of
    (left, right) keys around the diagonal, -1 for all, narrows it.

    >>> pairs(3, 5, False), pairs(3, 5, True), pairs(5, 3, True)
    (15, 6, 12)
    >>> pairs(3, 5, True, bottom_right=True), pairs(5, 3, True, True), pairs(4, 4, True, window=(1, -1))
    (12, 6, 7)
    """
    shift = keys - queries if bottom_right else 0
    left, right = window[0], 0 if causal else window[1]
    above = _seen(queries, keys, shift + right + 1) if right >= 0 else queries * keys
    return above - (_seen(queries, keys, shift - left) if left >= 0 else 0)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Value = None, causal: Value = False,
    bottom_right: bool = False, window: tuple[int, int] = (-1, -1), written: tuple[Tensor, ...] = (),
) -> Cost:  # fmt: skip
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
    seen = rows * pairs(sq, skv, bool(causal), bottom_right, window)
    every = rows * sq * skv
    more = mask if isinstance(mask, Tensor) else None
    operands = (query, key, value, more)
    back = bytes_of(*operands, output, output, like(query), like(key), like(value))
    forward, backward = 2 * (d + dv), 2 * (3 * d + 2 * dv)
    less = seen != every
    dgrad = Cost(backward * seen, back, dense=2 * forward * every)
    return Cost(
        forward * seen,
        bytes_of(*operands, output, *written),
        dgrad=dgrad,
        dense=forward * every if less else None,
    )


@cost("scaled_dot_product_attention", "_scaled_dot_product_attention_math",
      "_scaled_dot_product_attention_math_for_mps")  # fmt: skip
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


@cost("flex_attention")
def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Value = None, block_mask: Value = None,
    *parameters: Value,
) -> Cost:  # fmt: skip
    """Which blocks a block mask leaves is data: then only the dense figure is known. A score function is not counted.

    Source: torch.nn.attention.flex_attention.

    >>> q = Tensor((1, 2, 8, 4), "float16")
    >>> flex_attention(q, q, q), flex_attention(q, q, q, None, "a mask").flops_dense
    (Cost(flops=2048, bytes=512), 2048)
    """
    whole = attend(query, key, value)
    if block_mask is None:
        return whole
    assert whole.dgrad is not None
    dgrad = Cost(None, whole.dgrad.bytes, dense=whole.dgrad.dense)
    return Cost(None, whole.bytes, dgrad=dgrad, dense=whole.flops)


# The kernels behind: their arguments, in order, as far as they matter here; "." is one that does not.
# Sources: aten/src/ATen/native/native_functions.yaml; torch/nn/attention/varlen.py; flash_attn_interface.py.
FORWARD = {
    "_triton_scaled_dot_attention": "query key value dropout_p",
    "_scaled_dot_product_flash_attention": "query key value dropout_p is_causal",
    "_scaled_dot_product_flash_attention_for_cpu": "query key value dropout_p is_causal attn_mask",
    "_scaled_dot_product_efficient_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_cudnn_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_fused_attention_overrideable": "query key value attn_bias dropout_p is_causal",
    "_flash_attention_forward": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal",
    "_flash_attention_forward_no_dropout_inplace": ". query key value cum_seq_q cum_seq_k max_q max_k dropout_p "
    "is_causal",
    "_efficient_attention_forward": "query key value attn_bias cum_seq_q cum_seq_k max_q max_k dropout_p "
    "custom_mask_type",
    "_cudnn_attention_forward": "query key value attn_bias cum_seq_q cum_seq_k max_q max_k compute_log_sumexp "
    "dropout_p is_causal",
    "torch_attn::_varlen_attn": "query key value cum_seq_q cum_seq_k max_q max_k is_causal",
    "flash_attn::_flash_attn_forward": "query key value dropout_p . is_causal window_size_left window_size_right",
    "flash_attn::_flash_attn_varlen_forward": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p . "
    "is_causal window_size_left window_size_right",
}  # fmt: skip
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
    "_efficient_attention_backward": "grad_out_ query key value attn_bias out cum_seq_q cum_seq_k max_q "
    "max_k logsumexp dropout_p philox_seed philox_offset custom_mask_type",
    "_cudnn_attention_backward": "grad_out query key value out logsumexp philox_seed philox_offset attn_bias . . "
    "max_q max_k dropout_p is_causal",
    "torch_attn::_varlen_attn_backward": "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k "
    "is_causal",
    "flash_attn::_flash_attn_backward": "grad_out query key value out logsumexp . . . dropout_p . is_causal "
    "window_size_left window_size_right",
    "flash_attn::_flash_attn_varlen_backward": "grad_out query key value out logsumexp . . . cum_seq_q cum_seq_k "
    "max_q max_k dropout_p . is_causal window_size_left window_size_right",
}  # fmt: skip
TOP_LEFT, BOTTOM_RIGHT = 1, 2  # custom_mask_type


def _kernel(name: str, parameters: str) -> Callable[..., Cost]:
    """Flash kernels align a causal mask bottom right, the others top left. Operands of those without "scaled_dot" in
    the name are (B, S, H, D); with cumulative sequence lengths of several sequences (T, H, D) or (1, T, H, D), and the
    lengths are data: FLOPs are unknown, bytes are not."""
    names = parameters.split()
    heads_behind = "scaled_dot" not in name and not name.startswith("_cudnn")
    flash = ("flash" in name and "cpu" not in name) or name.startswith("torch_attn")

    def kernel(
        *args: Value, is_causal: Value = False, attn_mask: Value = None, attn_bias: Value = None,
        window_size_left: Value = None, window_size_right: Value = None, block_table: Value = None,
        query: Value = None, key: Value = None, value: Value = None, cum_seq_q: Value = None,
    ) -> Cost:  # fmt: skip
        given: dict[str, Value] = {
            "is_causal": is_causal, "attn_mask": attn_mask, "attn_bias": attn_bias, "query": query, "key": key,
            "value": value, "cum_seq_q": cum_seq_q, "window_size_left": window_size_left,
            "window_size_right": window_size_right, **dict(zip(names, args)),
        }  # fmt: skip
        require(block_table is None, "keys and values lie in pages")
        operands = [as_tensor(given.get(n)) for n in ("query", "key", "value")]
        lengths = given.get("cum_seq_q")
        if isinstance(lengths, Tensor) and lengths.numel != 2:
            output = Tensor((*operands[0].shape[:-1], operands[2].shape[-1]), operands[0].dtype)
            back = bytes_of(*operands, output, output, *map(like, operands))
            return Cost(None, bytes_of(*operands, output), dgrad=Cost(None, back))
        if heads_behind or isinstance(lengths, Tensor):
            operands = [_heads_first(t) for t in operands]
        mask = given["attn_mask"] or given.get("attn_bias")
        kind = given.get("custom_mask_type")
        window = tuple(
            -1 if given[n] is None else as_int(given[n]) for n in ("window_size_left", "window_size_right")
        )
        return attend(
            operands[0], operands[1], operands[2], mask, bool(kind or given["is_causal"]),
            bottom_right=flash or kind == BOTTOM_RIGHT, window=(window[0], window[1]),
        )  # fmt: skip

    return kernel


def _backward(name: str, parameters: str) -> Callable[..., Cost]:
    whole = _kernel(name, parameters)

    def backward(*args: Value, **keywords: Value) -> Cost:
        dgrad = whole(*args, **keywords).dgrad
        assert dgrad is not None
        return dgrad

    return backward


def _heads_first(tensor: Tensor) -> Tensor:
    """(B, S, H, D) or (S, H, D) as (B, H, S, D) or (H, S, D)."""
    *batch, s, h, d = range(len(tensor.shape))
    order = (*batch, h, s, d)
    stride = tensor.stride and tuple(tensor.stride[i] for i in order)
    return Tensor(tuple(tensor.shape[i] for i in order), tensor.dtype, stride)


for _name, _parameters in FORWARD.items():
    cost(_name)(_kernel(_name, _parameters))
for _name, _parameters in BACKWARD.items():
    cost(_name)(_backward(_name, _parameters))

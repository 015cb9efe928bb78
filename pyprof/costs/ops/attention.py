# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, as the user calls it and as the dispatcher's fused kernels.

Letters: query (*, Hq, Sq, D), key (*, Hkv, Skv, D), value (*, Hkv, Skv, Dv). Two products over every pair of a query
and a key that it may see: 2·B·Hq·pairs·(D + Dv) FLOPs. pairs = Sq·Skv, less those that `is_causal` or a window
excludes; `dense` counts the whole rectangle. An explicit mask stays dense. Softmax, scale and dropout are not counted.
Bytes: query, key, value and mask as they are stored, the output; keys and values have Hkv heads.

The backward, all in dgrad, is five products (the scores again, and the gradients of V, P, Q, K): 2·B·Hq·pairs·(3·D +
2·Dv). `dense` counts the four that a model needs, twice the forward. It reads the gradient, the output and the three
operands and writes three gradients. The saved log-sum-exp and random states are not counted. Source: FlashAttention-2
(arXiv 2307.08691), sections 2.2, 3.1.

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

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, as_tensor, broadcast, like, require


def _seen(queries: int, keys: int, limit: int) -> int:
    """Return the sum over the queries i of the keys below i + limit.

    >>> _seen(3, 2, 1)  # 1 + 2 + 2
    5
    """

    def upto(n: int) -> int:  # min(1, keys) + ... + min(n, keys)
        full = min(max(n, 0), keys)
        return full * (full + 1) // 2 + max(n - full, 0) * keys

    return upto(limit + queries - 1) - upto(limit - 1)


def pairs(queries: int, keys: int, causal: bool, bottom_right: bool = False, window: tuple[int, int] = (-1, -1)) -> int:
    """Return the number of pairs of a query and a key that it may see. The diagonal starts top left, or ends bottom
    right; a window of (left, right) keys around the diagonal, -1 for all, narrows it.

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
    """Return the cost for operands (*, H, S, D). Keys with fewer heads are grouped (GQA)."""
    *batch, sq, d = query.shape
    skv, dk = key.shape[-2:]
    sv, dv = value.shape[-2:]
    require(d == dk and skv == sv, f"{query.shape}, {key.shape} and {value.shape} do not fit")
    heads, kv_heads = query.shape[-3:-2], key.shape[-3:-2]
    require(prod(heads) % max(prod(kv_heads), 1) == 0 and key.shape[:-1] == value.shape[:-1], "heads do not fit")
    rows = prod(broadcast(tuple(batch[:-1]), key.shape[:-3])) * prod(heads)
    output = Tensor((rows, sq, dv), query.dtype)
    seen = rows * pairs(sq, skv, bool(causal), bottom_right, window)
    every = rows * sq * skv
    mask_tensor = mask if isinstance(mask, Tensor) else None
    operands = (query, key, value, mask_tensor)
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


@cost(
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps"
)
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


_ONE_BLOCK = 1 << 30  # the size of a block, in the operator's form of a mask that leaves everything


@cost("flex_attention")
def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Value = None, block_mask: Value = None,
    *parameters: Value,
) -> Cost:  # fmt: skip
    """The blocks that a block mask keeps are data: then only the dense figure is known. A score function is not
    counted.

    Source: torch.nn.attention.flex_attention.

    >>> q = Tensor((1, 2, 8, 4), "float16")
    >>> flex_attention(q, q, q), flex_attention(q, q, q, None, "a mask").flops_dense
    (Cost(flops=2048, bytes=512), 2048)
    """
    whole = attend(query, key, value)
    if block_mask is None or (isinstance(block_mask, tuple) and _ONE_BLOCK in block_mask):
        return whole
    assert whole.dgrad is not None
    dgrad = Cost(None, whole.dgrad.bytes, dense=whole.dgrad.dense)
    return Cost(None, whole.bytes, dgrad=dgrad, dense=whole.flops)


@cost("torch.autograd.FlexAttentionAutogradOp.apply")
def flex_attention_apply(
    query: Tensor, key: Tensor, value: Tensor, fw_graph: Value = None, joint_graph: Value = None,
    block_mask: Value = None, *parameters: Value,
) -> Cost:  # fmt: skip
    """flex_attention as torch runs it for a user. Source: torch/_higher_order_ops/flex_attention.py.

    >>> q = Tensor((1, 2, 8, 4), "float16")
    >>> flex_attention_apply(q, q, q), flex_attention_apply(q, q, q, None, None, (8, 8, 128)).flops
    (Cost(flops=2048, bytes=512), None)
    """
    return flex_attention(query, key, value, None, block_mask)


# The kernels behind, with the arguments of their schemas in order, as far as they matter here.
# Sources: aten/src/ATen/native/native_functions.yaml; torch/nn/attention/varlen.py; flash_attn_interface.py.
_OPERANDS, _FLASH = "query key value", "q k v"
_LENGTHS = "cum_seq_q cum_seq_k max_q max_k"
_SAVED = "grad_out query key value out logsumexp"
_DEBUG = "dropout_p is_causal return_debug_mask scale"
_WINDOW = "window_size_left window_size_right"
_VARLEN = "cu_seq_q cu_seq_k max_q max_k is_causal scale window_size enable_gqa seqused_k block_table"
_CAUSAL = f"dropout_p softmax_scale causal {_WINDOW}"
_FLASH_LENGTHS = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
_FLASH_SAVED = "dout q k v out softmax_lse dq dk dv"
_BLOCKS = "seqused_k alibi_slopes block_table num_splits"
FORWARD = {
    "_triton_scaled_dot_attention": "q k v dropout_p",
    "_scaled_dot_product_flash_attention": f"{_OPERANDS} {_DEBUG}",
    "_scaled_dot_product_flash_attention_for_cpu": f"{_OPERANDS} dropout_p is_causal attn_mask scale",
    "_scaled_dot_product_efficient_attention": f"{_OPERANDS} attn_bias compute_log_sumexp dropout_p is_causal scale",
    "_scaled_dot_product_cudnn_attention": f"{_OPERANDS} attn_bias compute_log_sumexp {_DEBUG}",
    "_scaled_dot_product_fused_attention_overrideable": f"{_OPERANDS} attn_bias {_DEBUG}",
    "_flash_attention_forward": f"{_OPERANDS} {_LENGTHS} {_DEBUG} {_WINDOW} {_BLOCKS}",
    "_flash_attention_forward_no_dropout_inplace": f"out {_OPERANDS} {_LENGTHS} {_DEBUG} {_WINDOW} {_BLOCKS}",
    "_efficient_attention_forward": f"{_OPERANDS} bias {_FLASH_LENGTHS} dropout_p custom_mask_type "
    "compute_log_sumexp scale seqlen_k window_size",
    "_cudnn_attention_forward": f"{_OPERANDS} attn_bias {_LENGTHS} compute_log_sumexp {_DEBUG}",
    "torch_attn::_varlen_attn": f"{_OPERANDS} {_VARLEN}",
    "torch_attn::_varlen_attn_out": f"out {_OPERANDS} {_VARLEN}",
    "flash_attn::_flash_attn_forward": f"{_FLASH} {_CAUSAL} softcap alibi_slopes return_softmax",
    "flash_attn::_flash_attn_varlen_forward": f"{_FLASH} {_FLASH_LENGTHS} {_CAUSAL} softcap alibi_slopes "
    "return_softmax block_table",
}
BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": f"{_SAVED} {_LENGTHS} dropout_p is_causal",
    "_scaled_dot_product_flash_attention_for_cpu_backward": f"{_SAVED} dropout_p is_causal attn_mask scale",
    "_scaled_dot_product_efficient_attention_backward": "grad_out_ query key value attn_bias out logsumexp "
    "philox_seed philox_offset dropout_p grad_input_mask is_causal scale",
    "_scaled_dot_product_cudnn_attention_backward": f"{_SAVED} philox_seed philox_offset attn_bias {_LENGTHS} "
    "dropout_p is_causal scale",
    "_scaled_dot_product_fused_attention_overrideable_backward": "grad_out query key value attn_bias "
    f"grad_input_mask out logsumexp {_LENGTHS} dropout_p is_causal",
    "_flash_attention_backward": f"{_SAVED} {_LENGTHS} dropout_p is_causal rng_state unused scale {_WINDOW}",
    "_efficient_attention_backward": f"grad_out_ {_OPERANDS} bias out {_FLASH_LENGTHS} logsumexp dropout_p "
    "philox_seed philox_offset custom_mask_type bias_requires_grad scale num_splits_key window_size",
    "_cudnn_attention_backward": f"{_SAVED} philox_seed philox_offset attn_bias {_LENGTHS} dropout_p is_causal",
    "torch_attn::_varlen_attn_backward": f"grad_out {_OPERANDS} out lse cu_seq_q cu_seq_k max_q max_k is_causal "
    "rng_state scale window_size",
    "flash_attn::_flash_attn_backward": f"{_FLASH_SAVED} {_CAUSAL}",
    "flash_attn::_flash_attn_varlen_backward": f"{_FLASH_SAVED} {_FLASH_LENGTHS} {_CAUSAL}",
}
# Their overload for fp8 has three scales more, before one argument of the other: a number there, a tensor here.
_DESCALES = ("q_descale", "k_descale", "v_descale")
QUANTIZED = {"_scaled_dot_product_flash_attention": "dropout_p", "_flash_attention_forward": "scale"}
TOP_LEFT, BOTTOM_RIGHT = 1, 2  # custom_mask_type


def _arguments(name: str, parameters: str, args: tuple[Value, ...], keywords: dict[str, Value]) -> dict[str, Value]:
    """Return the arguments by name. Surplus ones are dropped."""
    names = parameters.split()
    if name in QUANTIZED:
        at = names.index(QUANTIZED[name])
        if any(isinstance(value, Tensor) for value in args[at : at + 3]):
            names[at:at] = _DESCALES
    return {**keywords, **dict(zip(names, args))}


def _kernel(name: str, parameters: str) -> Callable[..., Cost]:
    """Return the formula of a fused kernel. Flash kernels align a causal mask bottom right, the others top left.
    Operands of those without "scaled_dot" in the name are (B, S, H, D); with cumulative sequence lengths of several
    sequences they are (T, H, D) or (1, T, H, D), and the lengths are data: FLOPs are unknown, bytes are not."""
    scaled_dot = "scaled_dot" in name
    heads_behind = not scaled_dot and not name.startswith("_cudnn")
    flash = ("flash" in name and "cpu" not in name) or name.startswith("torch_attn")

    def kernel(*args: Value, **keywords: Value) -> Cost:
        arguments = _arguments(name, parameters, args, keywords)

        def one(*names: str) -> Value:
            return next((arguments[n] for n in names if arguments.get(n) is not None), None)

        used = (one("block_table"), one("seqused_k"), one("seqlen_k"))
        require(used == (None,) * 3, "keys and values lie in pages, or the lengths in use are data")
        operands = [as_tensor(one(n, n[0])) for n in ("query", "key", "value")]
        lengths = None if scaled_dot else one("cum_seq_q", "cu_seq_q", "cu_seqlens_q")
        packed = isinstance(lengths, Tensor) and lengths.numel > 1
        if isinstance(lengths, Tensor) and lengths.numel > 2:
            output = Tensor((*operands[0].shape[:-1], operands[2].shape[-1]), operands[0].dtype)
            back = bytes_of(*operands, output, output, *map(like, operands))
            return Cost(None, bytes_of(*operands, output), dgrad=Cost(None, back))
        if heads_behind or packed:
            operands = [_heads_first(t) for t in operands]
        kind = one("custom_mask_type")
        return attend(
            operands[0], operands[1], operands[2], one("attn_mask", "attn_bias", "bias"),
            bool(kind or one("is_causal", "causal")), bottom_right=flash or kind == BOTTOM_RIGHT,
            window=_window(one("window_size_left"), one("window_size_right"), one("window_size")),
        )  # fmt: skip

    return kernel


def _window(left: Value, right: Value, both: Value) -> tuple[int, int]:
    """Return a window given as two numbers or as a pair. CUTLASS's single number counts the query among its keys.

    >>> _window(None, 3, None), _window(None, None, (2, 0)), _window(None, None, 4)
    ((-1, 3), (2, 0), (3, -1))
    """
    if isinstance(both, int):
        return (as_int(both) - 1 if both > 0 else -1), -1
    if isinstance(both, tuple):
        left, right = both
    return (-1 if left is None else as_int(left)), (-1 if right is None else as_int(right))


def _backward(name: str, parameters: str) -> Callable[..., Cost]:
    whole = _kernel(name, parameters)

    def backward(*args: Value, **keywords: Value) -> Cost:
        dgrad = whole(*args, **keywords).dgrad
        assert dgrad is not None
        return dgrad

    return backward


def _heads_first(tensor: Tensor) -> Tensor:
    """Transpose (B, S, H, D) or (S, H, D) to (B, H, S, D) or (H, S, D)."""
    *batch, s, h, d = range(len(tensor.shape))
    order = (*batch, h, s, d)
    stride = tensor.stride and tuple(tensor.stride[i] for i in order)
    return Tensor(tuple(tensor.shape[i] for i in order), tensor.dtype, stride)


for _name, _parameters in FORWARD.items():
    cost(_name)(_kernel(_name, _parameters))
for _name, _parameters in BACKWARD.items():
    cost(_name)(_backward(_name, _parameters))

# SPDX-License-Identifier: Apache-2.0
"""Whole blocks in one operator, used in inference: multi-head attention, an encoder layer.

Letters: B sequences of S tokens of E features, H heads, F features between the two linear layers. Attention block:
projections 2·B·S·3E·E and 2·B·S·E·E, products 4·B·S²·E; softmax and scale are not counted. Encoder layer: that, two
linear layers 2·2·B·S·E·F, two layer norms 8 each, two residual additions, one activation. Bytes: inputs and parameters
once, the result; intermediate results are not counted. No backward.

>>> f = lambda *shape: Tensor(shape, "float16")
>>> x = f(2, 10, 8)
>>> multi_head(x, x, x, 8, 2, f(24, 8), f(24), f(8, 8), f(8), None, False)  # 2·20·64·4 + 4·2·100·8; 160·2·2 + 576
Cost(flops=16640, bytes=1216)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, like, require


@cost("_native_multi_head_attention", "_triton_multi_head_attention")
def multi_head(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: Value, num_head: Value, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: Value = False, average_attn_weights: Value = True, mask_type: Value = None,
) -> Cost:  # fmt: skip
    """Operands of equal shape count as one tensor, because the operator is used for self-attention. With need_weights
    the weights are a result, (B, S, S) averaged or (B, H, S, S). Source:
    aten/src/ATen/native/transformers/attention.cpp.

    >>> f = lambda *shape: Tensor(shape, "float16")
    >>> x = f(2, 10, 8)
    >>> multi_head(x, x, x, 8, 2, f(24, 8), f(24), f(8, 8), f(8), None, True).bytes  # 400 more
    1616
    """
    b, s, e = query.shape
    skv = key.shape[1]
    require(e == as_int(embed_dim) and qkv_weight.shape == (3 * e, e), "the weight is (3E, E)")
    operands = [query] if query.shape == key.shape == value.shape else [query, key, value]
    flops = 2 * b * e * e * (2 * s + 2 * skv) + 4 * b * s * skv * e
    written = [like(query)]
    if need_weights is True:
        heads = () if average_attn_weights else (as_int(num_head),)
        written.append(Tensor((b, *heads, s, skv), query.dtype))
    read = (*operands, qkv_weight, qkv_bias, proj_weight, proj_bias, mask)
    return Cost(flops, bytes_of(*read, *written))


@cost("_transformer_encoder_layer_fwd")
def encoder_layer(
    src: Tensor, embed_dim: Value, num_heads: Value, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: Value, norm_first: Value, eps: Value, norm_weight_1: Tensor, norm_bias_1: Tensor,
    norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor,
    ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: Value = None,
) -> Cost:  # fmt: skip
    """Activation: gelu 5, relu 1 per element. Source: aten/src/ATen/native/transformers/transformer.cpp.

    >>> f = lambda *shape: Tensor(shape, "float16")
    >>> rest = (f(8), f(8), f(8), f(8), f(16, 8), f(16), f(8, 16), f(8))
    >>> encoder_layer(f(2, 10, 8), 8, 2, f(24, 8), f(24), f(8, 8), f(8), False, False, 1e-5, *rest)  # 16640 + 13440
    Cost(flops=30080, bytes=1840)
    """
    attention = multi_head(
        src, src, src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False
    )
    assert attention.flops is not None
    rows = src.numel // src.shape[-1]
    hidden = rows * ffn_weight_1.shape[0]
    flops = attention.flops + 2 * rows * (ffn_weight_1.numel + ffn_weight_2.numel)
    flops += (2 * 8 + 2) * src.numel + (5 if use_gelu is True else 1) * hidden
    extra = bytes_of(
        norm_weight_1,
        norm_bias_1,
        norm_weight_2,
        norm_bias_2,
        ffn_weight_1,
        ffn_bias_1,
        ffn_weight_2,
        ffn_bias_2,
    )
    return Cost(flops, None if attention.bytes is None or extra is None else attention.bytes + extra)


@cost("_transform_bias_rescale_qkv")
def transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: Value) -> Cost:
    """Adds the bias, scales the queries, rearranges by head: an addition per element, a product per third.

    Source: aten::_transform_bias_rescale_qkv.

    >>> transform_bias_rescale_qkv(Tensor((2, 10, 24), "float16"), Tensor((24,), "float16"), 2)  # 480 + 160
    Cost(flops=640, bytes=1968)
    """
    require(qkv.numel % 3 == 0, "queries, keys and values are expected")
    return Cost(qkv.numel + qkv.numel // 3, bytes_of(qkv, qkv_bias, like(qkv)))

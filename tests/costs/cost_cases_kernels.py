# SPDX-License-Identifier: Apache-2.0
"""Costs derived by hand of products, convolutions and attention. What `cost_cases` says holds here."""

from __future__ import annotations

from collections.abc import Iterator

from tests.costs.cost_cases import F_, Row, T, call, e, f, h, i, n64, u


def products() -> Iterator[Row]:
    """M, N, K = 2, 5, 3; B = 4: 2·M·N·K = 60 and B times that, 240; operands 6, 15 and 10 elements."""
    a, b, ab, bb = f(2, 3), f(3, 5), f(4, 2, 3), f(4, 3, 5)
    one, many = 4 * (6 + 15 + 10), 16 * (6 + 15 + 10)
    yield call("linear", h(7, 2, 3), h(5, 3), h(5), mod=F_), 7 * 60, 2 * (42 + 15 + 5 + 70)
    yield call("aten::mm", a, b), 60, one
    yield call("aten::mm", h(2, 3), h(3, 5), 6), 60, 2 * 21 + 4 * 10  # out_dtype float32
    yield call("aten::bmm", ab, bb), 240, many
    yield call("aten::bmm.dtype", h(4, 2, 3), h(4, 3, 5), 6), 240, 2 * 84 + 4 * 40
    yield call("matmul", ab, b, mod="torch"), 240, 4 * (24 + 15 + 40)
    yield call("__rmatmul__", b, a, mod=T), 60, one
    yield call("aten::addmm", f(5), a, b), 60, one + 20
    yield call("aten::addmm.dtype", h(5), h(2, 3), h(3, 5), 6, 1, 1), 60, 2 * (5 + 21) + 4 * 10
    yield call("aten::addmm", f(5), a, b, 0, 1), 60, one
    yield call("aten::baddbmm", f(4, 2, 5), ab, bb), 240, many + 160
    yield call("aten::addbmm", f(2, 5), ab, bb), 240, 4 * (10 + 24 + 60 + 10)
    yield call("aten::mv", a, f(3)), 12, 4 * (6 + 3 + 2)
    yield call("aten::addmv", f(2), a, f(3)), 12, 4 * (2 + 6 + 3 + 2)
    yield call("aten::dot", f(3), f(3)), 6, 28
    yield call("aten::outer", f(2), f(3)), 6, 4 * (2 + 3 + 6)
    yield call("aten::addr", a, f(2), f(3)), 12, 4 * (6 + 2 + 3 + 6)
    yield call("aten::linalg_vecdot", a, a), 12, 4 * (6 + 6 + 2)
    yield call("einsum", "bmk,bkn->bmn", ab, bb, mod="torch"), 240, many
    yield (
        call("einsum", "ij,jk,kl->il", a, b, f(5, 4), mod="torch"),
        60 + 2 * 2 * 5 * 4,
        4 * (6 + 15 + 20 + 8),
    )
    yield call("tensordot", f(2, 3, 4), f(3, 4, 5), 2, mod="torch"), 2 * 2 * 5 * 12, 4 * (24 + 60 + 10)
    yield (
        call("aten::_scaled_mm", e(16, 32), e(32, 16), f(), f(), None, None, 15),
        2 * 16 * 16 * 32,
        1024 + 8 + 512,
    )
    yield call("aten::_grouped_mm", h(12, 8), h(3, 8, 4), i(3)), 2 * 12 * 4 * 8, 192 + 192 + 12 + 96
    yield call("aten::_weight_int8pack_mm", h(4, 64), u(8, 64), h(8)), 2 * 4 * 8 * 64, 512 + 512 + 16 + 64
    yield (
        call("aten::linear_backward", f(6, 8), f(6, 5), f(5, 8), (True,) * 3),
        2 * 480,
        2 * 472 + 4 * 35,
    )
    yield call("aten::matmul_backward", f(6, 5), f(6, 8), f(8, 5), (True, True)), 960, 944
    yield call("aten::linalg_multi_dot", (f(10, 100), f(100, 5), f(5, 50))), 2 * (5000 + 2500), 4 * 2250
    yield call("bilinear", f(6, 3), f(6, 4), f(5, 3, 4), mod=F_), 2 * 6 * 5 * 4 * 4, 4 * (18 + 24 + 60 + 30)


def convolutions() -> Iterator[Row]:
    """x (1, 2, 5, 5), w (4, 2, 3, 3): 4·9 results of 2·9 products, 2·36·18; 50, 72 and 36 elements. Transposed with
    w (2, 4, 3, 3): every one of 50 inputs meets 4·9 weights, and 4·7·7 results."""
    x, w, y = f(1, 2, 5, 5), f(4, 2, 3, 3), f(1, 4, 3, 3)
    flops, moved = 2 * 36 * 18, 4 * (50 + 72 + 36)
    one, zero = (1, 1), (0, 0)
    yield call("conv2d", x, w, mod=F_), flops, moved
    yield call("conv2d", x, w, f(4), mod=F_), flops, moved + 16
    yield call("conv2d", x, w, None, 2, 1, mod=F_), flops, moved  # (5 + 2 - 3)//2 + 1 = 3
    yield (
        call("conv2d", f(2, 5, 5), f(4, 1, 3, 3), None, 1, "same", 1, 2, mod=F_),
        2 * 100 * 9,
        4 * (50 + 36 + 100),
    )
    yield call("conv1d", f(3, 2, 9), f(4, 2, 3), None, 1, 0, 2, mod=F_), 2 * 3 * 4 * 5 * 6, 4 * (54 + 24 + 60)
    yield call("conv3d", f(1, 2, 4, 4, 4), f(3, 2, 2, 2, 2), mod=F_), 2 * 81 * 16, 4 * (128 + 48 + 81)
    yield call("conv_transpose2d", x, f(2, 4, 3, 3), mod=F_), 2 * 50 * 36, 4 * (50 + 72 + 196)
    transposed = (None, one, zero, one, True, zero, 1)
    yield call("aten::convolution", x, f(2, 4, 3, 3), *transposed), 2 * 50 * 36, 4 * (50 + 72 + 196)
    yield call("aten::convolution", x, w, None, one, zero, one, False, zero, 1), flops, moved
    back = (y, x, w, (4,), one, zero, one, False, zero, 1)
    yield call("aten::convolution_backward", *back, (True, True, False)), 2 * flops, 2 * moved
    yield call("aten::convolution_backward", *back, (False, False, True)), 36, 4 * 40
    for name in ("cudnn_convolution", "mkldnn_convolution", "miopen_convolution"):
        more = (None,) if name != "cudnn_convolution" else ()
        yield call(f"aten::{name}", x, w, *more, zero, one, one, 1), flops, moved
    yield call("aten::_slow_conv2d_forward", x, w, (3, 3), None, one, zero), flops, moved
    yield (
        call("aten::_conv_depthwise2d", x, f(2, 1, 3, 3), (3, 3), None, one, zero, one),
        2 * 18 * 9,
        4 * (50 + 18 + 18),
    )
    yield call("aten::cudnn_convolution_relu", x, w, f(4), one, zero, one, 1), flops, moved + 16
    yield call("aten::cudnn_convolution_add_relu", x, w, y, 1.0, None, one, zero, one, 1), flops, moved + 144


def attention() -> Iterator[Row]:
    """B, Hq, Hkv = 2, 4, 2; Sq, Skv = 3, 5; D, Dv = 8, 6: 2·2·4·15·14 FLOPs; q 192, k 160, v 120, out 144 elements.
    Causal, top left: 1 + 2 + 3 pairs; bottom right: 3 + 4 + 5. The backward has five products, 3·D + 2·Dv = 36."""
    q, k, v, out = h(2, 4, 3, 8), h(2, 2, 5, 8), h(2, 2, 5, 6), h(2, 4, 3, 6)
    moved, each = 2 * (192 + 160 + 120 + 144), 2 * 2 * 4 * 14
    back = 2 * (2 * (192 + 160 + 120) + 2 * 144)
    name = "scaled_dot_product_attention"
    yield call(name, q, k, v, mod=F_), each * 15, moved
    yield call(name, q, k, v, is_causal=True, mod=F_), each * 6, moved
    yield call(name, q, k, v, h(3, 5), mod=F_), each * 15, moved + 30
    yield call("flex_attention", q, k, v, mod="torch.nn.attention.flex_attention"), each * 15, moved
    yield call("FlexAttentionAutogradOp.apply", q, k, v, mod="torch.autograd"), each * 15, moved
    yield call("aten::_scaled_dot_product_flash_attention", q, k, v, 0.0, True), each * 12, moved
    yield call("aten::_scaled_dot_product_flash_attention_for_cpu", q, k, v, 0.0, True), each * 6, moved
    yield (
        call("aten::_scaled_dot_product_efficient_attention", q, k, v, None, True, 0.0, True),
        each * 6,
        moved,
    )
    yield call("aten::_scaled_dot_product_cudnn_attention", q, k, v, None, True, 0.0, False), each * 15, moved
    yield (
        call("aten::_scaled_dot_product_fused_attention_overrideable", q, k, v, None, 0.0, False),
        each * 15,
        moved,
    )
    five = 2 * 2 * 4 * 15 * 36
    fused = (out, q, k, v)
    lse = f(2, 4, 3)
    yield (
        call("aten::_scaled_dot_product_flash_attention_backward", *fused, out, lse, None, None, 3, 5, 0.0),
        five,
        back,
    )
    yield (
        call("aten::_scaled_dot_product_flash_attention_for_cpu_backward", *fused, out, lse, 0.0, False),
        five,
        back,
    )
    yield (
        call("aten::_scaled_dot_product_efficient_attention_backward", *fused, None, out, lse, lse, lse, 0.0),
        five,
        back,
    )
    yield call("aten::_scaled_dot_product_cudnn_attention_backward", *fused, out, lse, lse, lse), five, back
    yield (
        call("aten::_scaled_dot_product_fused_attention_overrideable_backward", *fused, None, (True,), out, lse),
        five,
        back,
    )
    x, s = h(2, 3, 4, 8), f(2, 4, 3)  # (B, S, H, D): 2·2·4·9·16; 192 elements each
    plain, five = 2 * 2 * 4 * 9 * 16, 5 * 2 * 4 * 9 * 16
    yield call("aten::_flash_attention_forward", x, x, x, None, None, 3, 3, 0.0, False), plain, 8 * 192
    yield call("aten::_efficient_attention_forward", x, x, x, None, None, None, 3, 3, 0.0, 0), plain, 8 * 192
    yield (
        call("aten::_flash_attention_backward", x, x, x, x, x, s, None, None, 3, 3, 0.0, False),
        five,
        16 * 192,
    )
    yield (
        call("aten::_efficient_attention_backward", x, x, x, x, None, x, None, None, 3, 3, s, 0.0),
        five,
        16 * 192,
    )
    yield (
        call("flash_attn::_flash_attn_forward", x, x, x, 0.0, 1.0, False, -1, -1, mod="flash_attn"),
        plain,
        8 * 192,
    )
    t = h(2, 4, 3, 8)
    yield (
        call("aten::_cudnn_attention_forward", t, t, t, None, None, None, 3, 3, False, 0.0, False),
        plain,
        8 * 192,
    )
    yield (
        call("aten::_cudnn_attention_backward", t, t, t, t, t, s, s, s, None, None, None, 3, 3, 0.0),
        five,
        16 * 192,
    )
    one = n64(2)  # offsets of one sequence
    varlen = (h(3, 4, 8),) * 3
    yield call("torch_attn::_varlen_attn", *varlen, one, one, 3, 3, mod="torch_attn"), plain // 2, 8 * 96
    yield (
        call("torch_attn::_varlen_attn_out", varlen[0], *varlen, one, one, 3, 3, mod="torch_attn"),
        plain // 2,
        8 * 96,
    )
    yield call("aten::_triton_scaled_dot_attention", t, t, t, 0.0), plain, 8 * 192
    yield (
        call("aten::_flash_attention_forward_no_dropout_inplace", x, x, x, x, None, None, 3, 3),
        plain,
        8 * 192,
    )
    flash = ("flash_attn::_flash_attn_backward", x, x, x, x, x, s, None, None, None, 0.0, 1.0, False, -1, -1)
    yield call(*flash, mod="flash_attn"), five, 16 * 192
    lengths = (one, one, 3, 3, 0.0, 1.0, False, -1, -1)
    yield (
        call("flash_attn::_flash_attn_varlen_forward", *varlen, *lengths, mod="flash_attn"),
        plain // 2,
        8 * 96,
    )
    back = (*varlen, *varlen[:2], f(4, 3))
    name = "flash_attn::_flash_attn_varlen_backward"
    yield call(name, *back, None, None, None, *lengths, mod="flash_attn"), five // 2, 16 * 96
    yield (
        call("torch_attn::_varlen_attn_backward", *back, one, one, 3, 3, False, mod="torch_attn"),
        five // 2,
        16 * 96,
    )
    block = (h(2, 10, 8),) * 3  # B, S, E = 2, 10, 8: projections 2·20·64·4, products 4·2·100·8; 160 + 160 + 192 + 96
    weights = (h(24, 8), h(24), h(8, 8), h(8))
    yield call("aten::_native_multi_head_attention", *block, 8, 2, *weights), 20 * 512 + 6400, 2 * (320 + 288)

# SPDX-License-Identifier: Apache-2.0
"""Costs derived by hand of pooling, losses, transforms, solvers, recurrent layers, steps and collectives.

What `cost_cases` says holds here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.core.model import Arg, Call, Tensor
from tests.costs.cost_cases import D_, F_, Row, T, call, d, f, i8, n64, z


def windows() -> Iterator[Row]:
    """Pooling: the window per result. x (1, 2, 6, 6), 72 elements; 3x3 windows with stride 3: 2·4 results."""
    images = {1: f(1, 2, 6), 2: f(1, 2, 6, 6), 3: f(1, 2, 6, 6, 6)}
    for n, x in images.items():
        size, out, window = 2 * 6**n, 2 * 2**n, 3**n
        for name in ("max_pool", "avg_pool"):
            yield call(f"{name}{n}d", x, 3, mod=F_), out * window, 4 * (size + out)
        yield (
            call(f"aten::max_pool{n}d_with_indices", x, (3,) * n, (3,) * n),
            out * window,
            4 * (size + out) + 8 * out,
        )
        yield (
            call(f"max_pool{n}d", x, 2, 3, 1, 1, True, mod=F_),
            2 * 3**n * 2**n,
            4 * (size + 2 * 3**n),
        )  # 6/3 + 1
        yield (
            call(f"avg_pool{n}d", x, 3, 2, 0, True, mod=F_),
            2 * (3 + 3 + 2) ** n,
            4 * (size + 2 * 3**n),
        )  # ceil(3/2) + 1; the last ends where the input ends
        yield (
            call(f"adaptive_avg_pool{n}d", x, 4, mod=F_),
            2 * 8**n,
            4 * (size + 2 * 4**n),
        )  # windows of 2, 2, 2, 2
        yield call(f"aten::_adaptive_avg_pool{n}d", x, (1,) * n), size, 4 * (size + 2)
        yield call(f"adaptive_max_pool{n}d", x, 2, mod=F_), size, 4 * (size + out)
        yield call(f"aten::adaptive_max_pool{n}d", x, (2,) * n), size, 4 * (size + out) + 8 * out
        for name in ("max_pool", "avg_pool"):  # a window larger than the input
            yield call(f"{name}{n}d", x, 99, 99, 0, ceil_mode=True, mod=F_), 2 * 6**n, 4 * (size + 2)
        whole = f(1, 2, *(1,) * n)
        yield (
            call(f"aten::avg_pool{n}d_backward", whole, x, (99,) * n, (99,) * n, 0, True),
            size,
            4 * (size + 2),
        )
        yield call(f"lp_pool{n}d", x, 2.0, 99, 99, True, mod=F_), 2 * 2 * 6**n + 2, 4 * (size + 2)
        grad = f(1, 2, *(2,) * n)
        yield call(f"aten::avg_pool{n}d_backward", grad, x, (3,) * n), out * window, 4 * (size + out)
        yield call(f"aten::_adaptive_avg_pool{n}d_backward", grad, x), size, 4 * (size + out)
        yield call(f"lp_pool{n}d", x, 2.0, 3, mod=F_), 2 * out * window + out, 4 * (size + out)
        yield call(f"aten::max_pool{n}d_with_indices_backward", grad, x, 3, 3, 0, 1, False, n64(*grad.shape)), out, (
            4 * (size + out) + 8 * out)  # fmt: skip
        up, results = (12,) * n, 2 * 12**n
        nearest = Call(F_, "interpolate", (Arg("", x), Arg("", 12), Arg("mode", "nearest")))
        yield nearest, 0, 4 * (size + results)
        for mode, each in {1: {"linear": 3}, 2: {"bilinear": 9, "bicubic": 35}, 3: {"trilinear": 21}}[n].items():
            yield call(f"aten::upsample_{mode}{n}d", x, up, False), each * results, 4 * (size + results)
            big = f(1, 2, *up)
            yield (
                call(f"aten::upsample_{mode}{n}d_backward", big, up, x.shape, False),
                each * results,
                4 * (size + results),
            )
        yield (
            call(f"aten::max_pool{n}d_backward", grad, x, 3),
            out,
            4 * (2 * size + out),
        )  # the input is searched again
        yield call(f"aten::mkldnn_max_pool{n}d_backward", grad, grad, x, 3), out, 4 * (2 * size + 2 * out)
        moved = 4 * (size + out) + 8 * out
        yield call(f"max_unpool{n}d", grad, n64(*grad.shape), 3, mod=F_), 0, moved
        if n > 1:
            name, whole = f"fractional_max_pool{n}d", out * 2**n
            yield call(name, x, 2, 2, mod=F_), whole, 4 * (size + out)
            yield call(f"{name}_with_indices", x, 2, 2, mod=F_), whole, moved
            yield call(f"aten::{name}", x, (2,) * n, (2,) * n, f(1, 2, n)), whole, moved + 8 * n
            yield call(f"aten::{name}_backward", grad, x, 2, 2, n64(*grad.shape)), out, moved
            yield call(f"aten::max_unpool{n}d", grad, n64(*grad.shape), (6,) * n), 0, moved
        for mode in ("upsample_nearest", "_upsample_nearest_exact"):
            yield call(f"aten::{mode}{n}d", x, up), 0, 4 * (size + results)
            yield call(f"aten::{mode}{n}d_backward", f(1, 2, *up), up, x.shape), 0, 4 * (size + results)


def antialiased() -> Iterator[Row]:
    """Two passes from 8x8 to 4x4, widths first: 8·4 and 4·4 results for each of 3 channels; a support of 2, 4 or 6
    pixels times the reduction of 2, at most 8, takes 2·support - 1."""
    x, y = f(1, 3, 8, 8), f(1, 3, 4, 4)
    for mode, support in {"bilinear": 4, "bicubic": 8, "lanczos": 8}.items():
        flops = 3 * (32 + 16) * (2 * support - 1)
        yield call(f"aten::_upsample_{mode}2d_aa", x, (4, 4), False), flops, 4 * (192 + 48)
        yield (
            call(f"aten::_upsample_{mode}2d_aa_backward", y, (4, 4), (1, 3, 8, 8), False),
            flops,
            4 * (192 + 48),
        )
    smooth = Call(F_, "interpolate", (Arg("", x), Arg("", 4), Arg("mode", "bilinear"), Arg("antialias", True)))
    yield smooth, 3 * 48 * 7, 4 * 240
    area = Call(F_, "interpolate", (Arg("", x), Arg("", 4), Arg("mode", "area")))
    yield area, 192, 4 * 240  # every pixel once


def losses() -> Iterator[Row]:
    """x, y (4, 8): the definition per element, 32 additions, a division."""
    x, y = f(4, 8), f(4, 8)
    for name, each in {"mse_loss": 2, "l1_loss": 2, "soft_margin_loss": 4, "smooth_l1_loss": 6, "kl_div": 3,
                       "huber_loss": 6, "binary_cross_entropy": 7}.items():  # fmt: skip
        yield call(name, x, y, mod=F_), 32 * each + 33, 260
        yield call(name, x, y, reduction="sum", mod=F_), 32 * each + 32, 260
        yield call(name, x, y, reduction="none", mod=F_), 32 * each, 384
    for name in ("mse_loss", "l1_loss", "kl_div", "smooth_l1_loss", "soft_margin_loss", "huber_loss"):
        each = {"mse_loss": 2, "l1_loss": 2, "kl_div": 3, "soft_margin_loss": 4}.get(name, 6)
        yield call(f"aten::{name}", x, y, 0), 32 * each, 384
    yield call("aten::binary_cross_entropy", x, y, None, 0), 32 * 7, 384
    yield call("binary_cross_entropy_with_logits", x, y, mod=F_), 32 * 8 + 33, 260
    yield call("cross_entropy", x, n64(4), mod=F_), 160, 128 + 32 + 4
    yield (
        call("cross_entropy", x, f(4, 8), mod=F_),
        7 * 32,
        260,
    )  # probabilities: a product and an addition more
    yield call("nll_loss", x, n64(4), mod=F_), 5, 16 + 32 + 4
    for name, each in {"mse_loss": 2, "smooth_l1_loss": 5, "huber_loss": 5, "soft_margin_loss": 4}.items():
        yield call(f"aten::{name}_backward", f(), x, y, 1), 32 * each, 4 + 384
    yield call("aten::nll_loss_backward", f(), x, n64(4), None, 1, -100, f()), 0, 4 + 32 + 16


def transforms_and_solvers() -> Iterator[Row]:
    """FFT: 5·N·log2 N, half for a real side. Solvers: the leading terms of the textbooks for n = 6, n³ = 216."""
    x, c = f(3, 8), z(3, 8)
    for name in ("fft", "ifft"):
        yield call(f"{name}", c, mod="torch.fft"), 3 * 5 * 8 * 3, 384
        yield call(f"{name}2", c, mod="torch.fft"), round(5 * 24 * 4.584962500721156), 384  # log2 24
        yield call(f"{name}n", z(4, 8), mod="torch.fft"), 5 * 32 * 5, 512
    for name in ("rfft", "ihfft"):
        yield call(name, x, mod="torch.fft"), 180, 96 + 3 * 5 * 8
        for several in ("2", "n"):
            yield call(name + several, f(4, 8), mod="torch.fft"), 400, 128 + 4 * 5 * 8
    for name in ("irfft", "hfft"):
        yield call(name, z(3, 5), mod="torch.fft"), 180, 120 + 96
        for several in ("2", "n"):
            yield call(name + several, z(4, 5), mod="torch.fft"), 400, 160 + 128
    a, square = f(6, 6), 144
    yield call("cholesky", a, mod="torch.linalg"), 72, 2 * square
    yield call("inv", a, mod="torch.linalg"), 432, 2 * square
    yield call("aten::linalg_lu_factor", a), 144, 2 * square + 24
    yield call("aten::linalg_cholesky_ex", a), 72, 2 * square + 4  # and a status
    yield call("aten::linalg_inv_ex", a), 432, 2 * square + 4
    yield call("aten::linalg_ldl_factor_ex", a), 72, 2 * square + 24 + 4
    yield call("aten::linalg_lu_factor_ex", a), 144, 2 * square + 24 + 4
    yield call("det", a, mod="torch.linalg"), 144, square + 4
    yield call("solve", a, f(6, 2), mod="torch.linalg"), 144 + 2 * 2 * 36, square + 96
    yield call("solve_triangular", a, f(6, 2), upper=True, mod="torch.linalg"), 2 * 36, square + 96
    yield call("aten::cholesky_solve", f(6, 2), a), 2 * 2 * 36, square + 96
    yield call("qr", f(9, 6), mod="torch.linalg"), 2 * 504, 4 * (54 + 54 + 36)  # 2n²(m - n/3), twice
    yield call("svdvals", f(9, 6), mod="torch.linalg"), 4 * 9 * 36 - 4 * 216 // 3, 4 * 60
    yield (
        call("svd", f(9, 6), mod="torch.linalg"),
        4 * 81 * 6 + 8 * 9 * 36 + 9 * 216,
        4 * (54 + 6 + 81 + 36),
    )  # full
    yield call("svd", f(9, 6), mod="torch"), 14 * 9 * 36 + 8 * 216, 4 * (54 + 6 + 54 + 36)
    yield call("svd", f(9, 6), False, mod="torch.linalg"), 14 * 9 * 36 + 8 * 216, 4 * (54 + 6 + 54 + 36)
    yield call("eigh", a, mod="torch.linalg"), 9 * 216, 2 * square + 24
    yield call("eigvalsh", a, mod="torch.linalg"), 4 * 216 // 3, square + 24
    yield call("eig", a, mod="torch.linalg"), 25 * 216, square + 48 + 288  # complex values and vectors
    yield call("eigvals", a, mod="torch.linalg"), 10 * 216, square + 48
    yield call("matrix_power", a, 5, mod="torch.linalg"), 3 * 432, 2 * square
    yield call("cdist", f(4, 3), f(5, 3), mod="torch"), 20 * (3 * 3 + 1), 4 * (12 + 15 + 20)


def recurrent_and_steps() -> Iterator[Row]:
    """Gates times hidden rows of weights: 2·T·B·(all elements of the matrices). Steps per parameter, 20 of them."""
    x, state = f(5, 2, 8), f(1, 2, 4)
    for name, gates in (("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        weights = (f(4 * gates, 8), f(4 * gates, 4))
        settings = (False, 1, 0.0, True, False, False)
        yield (
            call(f"aten::{name}", x, state, weights, *settings),
            2 * 10 * 48 * gates,
            4 * (80 + 16 + 48 * gates + 40),
        )
    weights = (f(16, 8), f(16, 4), f(16), f(16))
    settings = (True, 1, 0.0, True, False, False)
    moved = 4 * (80 + 16 + 128 + 64 + 32 + 40 + 16)
    yield call("aten::lstm", x, (state, state), weights, *settings), 2 * 10 * 192, moved
    yield (
        call("aten::_cudnn_rnn", x, weights, 4, None, state, state, 2, 4, 0, 1, False, 0.0, True, False),
        3840,
        moved,
    )
    yield (
        call("aten::lstm_cell", f(2, 8), (f(2, 4), f(2, 4)), *weights),
        2 * 2 * 192,
        4 * (16 + 16 + 224 + 16),
    )
    pair = (f(2, 4), f(2, 4))
    yield call("aten::_lstm_mps", x, (state, state), weights, *settings), 2 * 10 * 192, moved
    layer = (x, *weights, *pair, f(5, 2, 4))  # both gradients: twice the forward's products and operands
    whole = 4 * (80 + 192 + 32 + 16 + 40 + 16)
    yield call("aten::mkldnn_rnn_layer_backward", *layer), 4 * 10 * 192, 2 * whole
    eight = (i8(16, 8), i8(16, 4), f(16), f(16))
    yield call("aten::quantized_lstm_cell", f(2, 8), pair, *eight), 2 * 2 * 192, 4 * (16 + 16 + 32 + 16) + 192
    eight = (i8(12, 8), i8(12, 4), f(12), f(12))
    yield call("aten::quantized_gru_cell", f(2, 8), f(2, 4), *eight), 2 * 2 * 144, 4 * (16 + 8 + 24 + 8) + 144
    for cell, gates in (("LSTMCell", 4), ("GRUCell", 3), ("RNNCell", 1)):
        states = (f(2, 4), f(2, 4)) if gates == 4 else (f(2, 4),)
        g = 4 * gates  # rows of the weights (g, 8) and (g, 4), two biases
        size = 4 * (16 + 8 * len(states) + 14 * g + 8 * len(states))
        yield call("forward", f(2, 8), *states, mod=cell), 2 * 2 * 12 * g, size
    p, step = (f(10), f(2, 5)), (f(), f())
    yield call("aten::_fused_adamw_", p, p, p, p, (), step), 14 * 20, 7 * 80 + 8
    yield call("aten::_fused_adamw_", p, p, p, p, p, step), 15 * 20, 9 * 80 + 8  # amsgrad
    yield call("aten::_fused_adam_", p, p, p, p, (), step), 13 * 20, 7 * 80 + 8
    yield call("aten::_fused_sgd_", p, p, ()), 2 * 20, 3 * 80
    yield call("aten::_fused_sgd_", p, p, p, 0.0, 0.9, 0.1, 0.0, False), 4 * 20, 5 * 80
    yield call("aten::_fused_sgd_", p, p, p, 0.1, 0.9, 0.1, 0.0, True), 8 * 20, 5 * 80
    yield call("aten::_fused_adagrad_", p, p, p, step), 7 * 20, 5 * 80 + 8
    yield call("aten::_foreach_norm", p), 2 * 20 + 2, 80 + 8
    yield call("aten::_foreach_max", p), 20, 88


def laid_out() -> Iterator[Row]:
    """Views move nothing; a copy where the strides demand one; sequences that numbers make."""
    turned = Tensor((4, 8), "float32", (1, 4))
    yield call("aten::view", f(4, 8), (32,)), 0, 0
    yield call("aten::reshape", f(4, 8), (32,)), 0, 0
    yield call("aten::reshape", turned, (32,)), 0, 256
    yield call("contiguous", turned, mod=T), 0, 256
    yield call("aten::slice_inverse", f(2, 8), f(4, 8), 0, 0, 2, 1), 0, 0
    yield (
        call("aten::quantize_per_tensor", f(4, 8), 0.1, 0, 13),
        160,
        128 + 32,
    )  # divide, round, add, clamp twice
    for name, each in {"bartlett": 3, "hann": 4, "hamming": 4, "blackman": 7, "kaiser": 7}.items():
        yield call(f"aten::{name}_window", 8), 8 * each, 32


def communication() -> Iterator[Row]:
    """Four ranks, ten numbers of 8 bytes each: a part is 80 bytes, the whole 320."""
    part, whole = d(10), d(40)
    yield call("all_reduce", part, mod=D_), None, 160
    yield call("broadcast", part, 0, mod=D_), 0, 80
    yield call("all_gather_into_tensor", whole, part, mod=D_), 0, 400
    yield call("reduce_scatter_tensor", part, whole, mod=D_), 30, 400
    yield call("all_to_all_single", whole, whole, mod=D_), 0, 640
    yield call("_c10d_functional::all_gather_into_tensor", part, 4, "0", mod="_c10d_functional"), 0, 400
    yield (
        call("_c10d_functional::reduce_scatter_tensor", whole, "sum", 4, "0", mod="_c10d_functional"),
        30,
        400,
    )

# SPDX-License-Identifier: Apache-2.0
"""Costs of backward parts, derived by hand. What `cost_cases` says holds here."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.model import Call
from tests.prof.cost_cases import F_, UNARY_BACKWARD, call, f, h, n64

Part = tuple[int, int | None] | None
Parts = tuple[Call, Part, Part, Part]


def backward_parts() -> Iterator[Parts]:
    """(call, dgrad, wgrad, bgrad), each FLOPs and bytes: a product's gradients are one such product each over the same
    three operands, a bias gradient one addition per element of the output; the rest is undivided, in dgrad."""
    x = f(2, 3)
    for each, names in UNARY_BACKWARD.items():
        for name in names:
            yield (
                call(f"aten::{name}", x),
                (6 * each, 72),
                None,
                None,
            )  # the gradient, x or y, the gradient of x
    yield call("aten::neg", x), (6, 48), None, None
    one = (60, 4 * 31)
    yield call("linear", f(2, 3), f(5, 3), f(5), mod=F_), one, one, (10, 4 * (10 + 5))
    yield call("aten::mm", f(2, 3), f(3, 5)), one, one, None
    yield call("aten::addmm", f(5), f(2, 3), f(3, 5)), one, one, (10, 60)
    many = (240, 16 * 31)
    yield call("aten::bmm", f(4, 2, 3), f(4, 3, 5)), many, many, None
    yield call("matmul", f(4, 2, 3), f(4, 3, 5), mod="torch"), many, many, None
    yield call("aten::baddbmm", f(5), f(4, 2, 3), f(4, 3, 5)), many, many, (40, 4 * 45)
    yield call("einsum", "bmk,bkn->bmn", f(4, 2, 3), f(4, 3, 5), mod="torch"), many, many, None
    yield call("einsum", "i,j->ij", f(4), f(3), mod="torch"), (24, 76), (24, 76), None
    yield call("aten::outer", f(4), f(3)), (24, 76), (24, 76), None
    conv = (2 * 36 * 18, 4 * (50 + 72 + 36))
    yield call("conv2d", f(1, 2, 5, 5), f(4, 2, 3, 3), f(4), mod=F_), conv, conv, (36, 4 * 40)
    depthwise = (2 * 2 * 9 * 9, 4 * (50 + 18 + 18))  # groups 2: as the forward
    yield call("conv2d", f(1, 2, 5, 5), f(2, 1, 3, 3), None, 1, 0, 1, 2, mod=F_), depthwise, depthwise, None
    q = h(2, 4, 3, 8)
    yield call("scaled_dot_product_attention", q, q, q, mod=F_), (5 * 2 * 8 * 9 * 8, 8 * 2 * 192), None, None
    yield call("softmax", f(4, 8), 1, mod="torch"), (128, 384), None, None  # y·(g - Σ g·y)
    yield call("layer_norm", f(4, 8), (8,), f(8), f(8), mod=F_), (13 * 32, 3 * 128 + 3 * 32), None, None
    yield (
        call("batch_norm", f(2, 3, 4), None, None, f(3), f(3), True, mod=F_),
        (9 * 24, 3 * 96 + 3 * 12),
        None,
        None,
    )
    yield call("embedding", n64(6), f(100, 5), mod=F_), (30, 120 + 48 + 2000), None, None
    yield (
        call("aten::mul", x, f(3)),
        (6 + 6 + 6, 24 + 24 + 12 + 24 + 12),
        None,
        None,
    )  # g·y, g·x and its sum over rows
    yield call("aten::add", x, f(3)), (6, 24 + 12), None, None
    yield call("aten::mean", f(4, 8), (1,)), (32, 16 + 128), None, None
    yield call("dropout", f(4, 8), mod=F_), (64, 256), None, None
    yield call("mse_loss", f(4, 8), f(4, 8), mod=F_), (64, 4 + 384), None, None
    yield call("cross_entropy", f(4, 8), n64(4), mod=F_), (128, 4 + 128 + 32 + 128), None, None
    yield call("max_pool2d", f(1, 2, 6, 6), 3, mod=F_), (8, 32 + 64 + 288), None, None
    yield call("avg_pool2d", f(1, 2, 6, 6), 3, mod=F_), (72, 32 + 288), None, None
    recurrent = (2 * 10 * 192, None)
    weights = (f(16, 8), f(16, 4), f(16), f(16))
    states = (f(1, 2, 4), f(1, 2, 4))
    yield (
        call("aten::lstm", f(5, 2, 8), states, weights, True, 1, 0.0, True, False, False),
        recurrent,
        recurrent,
        None,
    )

# SPDX-License-Identifier: Apache-2.0
"""Costs of backward parts, derived by hand: (call, part, FLOPs, bytes or None). What `cost_cases` says holds here.

A product's gradients are one such product each, over the same three operands (dgrad, wgrad); a bias gradient is one
addition per element of the output (bgrad). Of all others the whole backward is in dgrad: it reads the gradient and what
the derivative needs, and writes one gradient per floating operand.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.core.model import Call
from tests.costs.cost_cases import F_, UNARY_BACKWARD, call, f, h, n64, table
from tests.costs.cost_cases_kernels import attention, convolutions, products
from tests.costs.cost_cases_layers import antialiased, recurrent_and_steps, transforms_and_solvers, windows

Part = tuple[Call, str, int, int | None]


def as_the_forward() -> Iterator[Part]:
    """Products: both gradients are products of the forward's size. Transforms, averages and interpolations: their
    transpose, with as many FLOPs."""
    for made in (products, convolutions):
        for each, flops, _ in made():
            two = each.op.endswith(
                ("_backward", "outer", "bilinear", "multi_dot", "_scaled_mm", "8pack_mm", "add_relu")
            )
            if flops is None or two or (each.op == "einsum" and len(each.args) > 3):
                continue
            for part in ("dgrad", "wgrad"):
                yield each, part, flops, None
    for made in (transforms_and_solvers, recurrent_and_steps, windows, antialiased):
        for each, flops, _ in made():
            name = each.op.removeprefix("aten::")
            recurrent = name.startswith(("lstm", "gru", "rnn", "_cudnn_rnn", "_lstm", "forward"))
            same = recurrent or "avg_pool" in name or name.startswith(("upsample", "_upsample", "interpolate"))
            if flops is None or (name.endswith("_backward") and "_aa" not in name):
                continue
            if same or each.mod == "torch.fft":
                yield each, "dgrad", flops, None
            if recurrent:
                yield each, "wgrad", flops, None


def attention_kernels() -> Iterator[Part]:
    """Five products for two: of (D, Dv, D, D, Dv) for (D, Dv) columns, 36 for 14 and 40 for 16."""
    for each, flops, _ in attention():
        if flops is not None and not each.op.endswith(("_backward", "multi_head_attention")):
            columns = (36, 14) if flops % 7 == 0 else (40, 16)
            yield each, "dgrad", flops * columns[0] // columns[1], None


# Elementwise operators of two operands (2, 3) and (3): FLOPs per element for both gradients, and 1 for the sum of the
# smaller one over rows.
BINARY_BACKWARD = table(
    _3="mul multiply",  # g·y, g·x
    _5="maximum minimum fmax fmin div true_divide",  # compare and select, twice; g/y, and -g·q/y in 3
)
# Of losses (input and target (4, 8), no reduction), the definition's derivative times the gradient.
LOSS_BACKWARD = table(
    _2="mse_loss kl_div",  # subtract, scale; t·g
    _3="l1_loss",  # subtract, sign, scale
    _4="soft_margin_loss",  # -t·sigmoid(-t·x)·g
    _5="smooth_l1_loss huber_loss binary_cross_entropy",  # both branches; (x - t)/(x·(1 - x))
)
# Of reductions over the second dimension of (4, 8): per element.
REDUCED_BACKWARD = table(
    _1="mean cumsum",
    _2="amax amin prod var norm linalg_vector_norm",  # compare, select; g·y/x; (x - m)·g/n; g·x/y
    _3="logsumexp",  # g·exp(x - y)
)


def elementwise_and_reduced() -> Iterator[Part]:
    x, y = f(2, 3), f(3)
    for each, names in UNARY_BACKWARD.items():
        for name in names:
            yield call(f"aten::{name}", x), "dgrad", 6 * each, 72  # the gradient, x or y, the gradient of x
    yield call("aten::neg", x), "dgrad", 6, 48
    for each, names in BINARY_BACKWARD.items():
        for name in names:
            yield call(f"aten::{name}", x, y), "dgrad", 6 * each, 24 + 36 + 36
    yield call("aten::add", x, y), "dgrad", 6, 24 + 12
    yield (
        call("aten::addcmul", x, x, x),
        "dgrad",
        24,
        72 + 48,
    )  # two products each; the first gradient passes through
    yield call("aten::where", x, x, x), "dgrad", 12, 48 + 48
    yield call("aten::clamp", x, 0, 1), "dgrad", 18, 72
    yield call("aten::glu", f(3, 8)), "dgrad", 72, 48 + 96 + 96
    for each, names in LOSS_BACKWARD.items():
        for name in names:
            yield call(name, f(4, 8), f(4, 8), reduction="none", mod=F_), "dgrad", 32 * each, 4 * 128
    yield call("cross_entropy", f(4, 8), n64(4), mod=F_), "dgrad", 128, 4 + 128 + 32 + 128
    yield call("nll_loss", f(4, 8), n64(4), mod=F_), "dgrad", 0, 4 + 32 + 128
    for each, names in REDUCED_BACKWARD.items():
        for name in names:
            where = (2, (1,)) if "norm" in name else (1,)
            size = {"mean": 144, "cumsum": 256}.get(name, 16 + 16 + 256)
            yield call(name, f(4, 8), *where, mod="torch"), "dgrad", 32 * each, size
    yield call("aten::max", f(4, 8), 1), "dgrad", 0, 16 + 32 + 128
    for name in ("softmax", "log_softmax"):
        yield call(name, f(4, 8), 1, mod="torch"), "dgrad", 128, 384  # y·(g - Σ g·y); g - exp(y)·Σ g
        yield call(name, f(4, 8), 1, mod=F_), "dgrad", 128, 384


def layers() -> Iterator[Part]:
    yield call("linear", f(2, 3), f(5, 3), f(5), mod=F_), "bgrad", 10, 4 * (10 + 5)
    yield call("aten::addmm", f(5), f(2, 3), f(3, 5)), "bgrad", 10, 60
    yield call("aten::baddbmm", f(5), f(4, 2, 3), f(4, 3, 5)), "bgrad", 40, 4 * 45
    yield call("aten::mm", f(2, 3), f(3, 5)), "wgrad", 60, 4 * 31
    yield (
        call("einsum", "i,j->ij", f(4), f(3), mod="torch"),
        "dgrad",
        24,
        76,
    )  # sums what the forward does not
    yield call("aten::outer", f(4), f(3)), "wgrad", 24, 76
    conv = (f(1, 2, 5, 5), f(4, 2, 3, 3), f(4))
    yield call("conv2d", *conv, mod=F_), "dgrad", 2 * 36 * 18, 4 * (50 + 72 + 36)
    yield call("conv2d", *conv, mod=F_), "bgrad", 36, 4 * 40
    depthwise = call("conv2d", conv[0], f(2, 1, 3, 3), None, 1, 0, 1, 2, mod=F_)
    yield depthwise, "wgrad", 2 * 2 * 9 * 9, 4 * (50 + 18 + 18)  # groups 2: as the forward
    q = h(2, 4, 3, 8)
    yield call("scaled_dot_product_attention", q, q, q, mod=F_), "dgrad", 5 * 2 * 8 * 9 * 8, 8 * 2 * 192
    x, c, w = f(2, 3, 4), f(3), f(4)
    for name, args in (("layer_norm", ((4,), w, w)), ("group_norm", (3, c, c))):
        weight = 16 if name == "layer_norm" else 12
        yield call(name, x, *args, mod=F_), "dgrad", 13 * 24, 3 * 96 + 3 * weight
    yield call("rms_norm", x, (4,), w, mod=F_), "dgrad", 9 * 24, 3 * 96 + 2 * 16
    yield call("batch_norm", x, None, None, c, c, True, mod=F_), "dgrad", 9 * 24, 3 * 96 + 3 * 12
    yield call("instance_norm", x, mod=F_), "dgrad", 9 * 24, 3 * 96
    yield call("dropout", f(4, 8), mod=F_), "dgrad", 64, 256
    yield call("embedding", n64(6), f(100, 5), mod=F_), "dgrad", 30, 120 + 48 + 2000
    yield call("embedding_bag", n64(2, 3), f(100, 5), mod=F_), "dgrad", 30, 40 + 48 + 2000
    yield call("aten::gather", f(100, 5), 0, n64(6, 5)), "dgrad", 30, 120 + 240 + 2000
    yield call("aten::index_select", f(100, 5), 0, n64(6)), "dgrad", 30, 120 + 48 + 2000
    yield call("aten::index", f(100, 5), (n64(6),)), "dgrad", 30, 120 + 48 + 2000
    for n in (1, 2, 3):  # a result's gradient goes to one element
        image = f(1, 2, *(6,) * n)
        size, out = 2 * 6**n, 2 * 2**n
        yield call(f"max_pool{n}d", image, 3, mod=F_), "dgrad", out, 4 * (size + out) + 8 * out
        yield call(f"adaptive_max_pool{n}d", image, 2, mod=F_), "dgrad", out, 4 * (size + out) + 8 * out
    yield call("half", f(4), mod="Tensor"), "dgrad", 0, 8 + 16
    yield call("aten::repeat", f(4), (3, 2)), "dgrad", 24, 96 + 16

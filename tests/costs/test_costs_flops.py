# SPDX-License-Identifier: Apache-2.0
"""FLOPs beside torch's counter: every operator of its registry, forward and backward, in the user's spellings and as
`aten::` operators, on fresh random shapes (`pytest -s` prints the seed).

Where the two differ, docs/flop_counter.md says who is right and why. Here each difference is an arithmetic statement
about torch's number, so that a torch that mends its fault fails here, and the row can go (a mend of the weight gradient
of groups is under way: pytorch pull request 183405; both are accepted).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import pyprof
from pyprof.capture.instrument.arguments import arguments, key_of
from pyprof.core.model import Call, Cost
from pyprof.costs.cost import lookup

SEED = random.randrange(10**6)
F_ = "torch.nn.functional"
ATEN = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore")
Case = tuple[str, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def ours(mod: str, op: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Cost:
    return lookup(Call(mod, op, arguments(key_of(args, keywords))))


def dispatched(op: str, *args: Any, **keywords: Any) -> Cost:
    return ours("aten", f"aten::{op}", args, keywords)


def counted(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def theirs(op: str, *args: Any, out: Any = None) -> int:
    """torch's formula for an operator, without running it."""
    return int(flop_registry[getattr(ATEN, op)](*args, out_val=out))


def backward_of(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """What torch counts of the backward, where all inputs have gradients."""

    def leaf(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(leaf, value))
        real = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().requires_grad_() if real else value

    output = function(*map(leaf, args), **keywords)
    return counted(lambda: output.backward(torch.ones_like(output)))


def part(cost: Cost | None) -> int:
    assert cost is not None
    assert cost.flops_dense is not None
    return cost.flops_dense


def case(rng: random.Random) -> tuple[Callable[[], int], Callable[..., torch.Tensor]]:
    return (lambda: rng.randint(1, 7)), torch.randn


def products(rng: random.Random) -> Iterator[Case]:
    """All that becomes mm, addmm, bmm and baddbmm; no operand is a vector."""
    n, r = case(rng)
    b, c, m, k, o, p = n(), n(), n(), n(), n(), n()
    for shape in ((m, k), (b, m, k), (b, c, m, k)):
        yield F_, "linear", F.linear, (r(shape), r(o, k), rng.choice((None, r(o)))), {}
    ranks = [(m, k), (b, m, k), (1, m, k), (c, 1, m, k), (c, b, m, k)]
    for left in ranks:
        for right in ((k, o), (b, k, o), (1, k, o), (c, b, k, o)):
            mod, op = rng.choice((("torch", "matmul"), ("Tensor", "__matmul__")))
            yield mod, op, torch.matmul, (r(left), r(right)), {}
    yield "torch", "mm", torch.mm, (r(m, k), r(k, o)), {}
    yield (
        "torch",
        "addmm",
        torch.addmm,
        (r(rng.choice([(o,), (m, o), (1, 1)])), r(m, k), r(k, o)),
        {"alpha": 2},
    )
    yield "torch", "bmm", torch.bmm, (r(b, m, k), r(b, k, o)), {}
    yield (
        "torch",
        "baddbmm",
        torch.baddbmm,
        (r(rng.choice([(o,), (m, o), (b, m, o)])), r(b, m, k), r(b, k, o)),
        {},
    )
    b, c, m, k, o, p = (rng.randint(2, 7) for _ in range(6))  # torch squeezes sizes of 1 here, and adds nothing up
    yield "torch", "tensordot", torch.tensordot, (r(b, m, k), r(m, k, o)), {"dims": 2}
    yield "torch", "tensordot", torch.tensordot, (r(b, m, k), r(o, k, b)), {"dims": ([2, 0], [1, 2])}
    yield "torch", "einsum", torch.einsum, ("bij,bjk->bik", r(b, m, k), r(b, k, o)), {}
    yield "torch", "einsum", torch.einsum, ("...ij,kj->...ik", r(b, c, m, k), r(o, k)), {}
    yield "torch", "einsum", torch.einsum, ("bhqd,bhkd->bhqk", r(b, c, m, k), r(b, c, o, k)), {}
    yield "torch", "einsum", torch.einsum, ("bqhd,bkhd->bhqk", r(b, m, c, k), r(b, o, c, k)), {}
    yield "torch", "einsum", torch.einsum, ("ij,jk,kl", r(m, k), r(k, o), r(o, p)), {}
    yield "torch", "einsum", torch.einsum, ("ab,bc,cd,de->ae", r(m, k), r(k, o), r(o, p), r(p, b)), {}
    yield "torch", "einsum", torch.einsum, ("bij,bjk,bkl->bil", r(b, m, k), r(b, k, o), r(b, o, p)), {}
    yield "torch", "inner", torch.inner, (r(m, k), r(o, k)), {}


def convolutions(rng: random.Random) -> Iterator[Case]:
    """1 to 3 dimensions, strides, padding in numbers and words, dilation, groups, no batch; transposed."""
    n, r = case(rng)
    for d in (1, 2, 3):
        forward, transposed = getattr(F, f"conv{d}d"), getattr(F, f"conv_transpose{d}d")
        for groups in (1, rng.choice((2, 3))):
            c, o, image = n(), n(), [rng.randint(5, 8) for _ in range(d)]
            window = [rng.randint(1, 3) for _ in range(d)]
            batch = rng.choice([(), (n(),)])
            x, w = r(*batch, c * groups, *image), r(o * groups, c, *window)
            step = [rng.choice((1, 2)) for _ in range(d)]
            numbers = {"stride": step, "padding": rng.randint(0, 1), "dilation": rng.choice((1, 2))}
            words = {"padding": rng.choice(("same", "valid")), "dilation": rng.choice((1, 2))}
            for options in (numbers, words):
                bias = rng.choice((None, r(o * groups)))
                yield F_, f"conv{d}d", forward, (x, w, bias), {**options, "groups": groups}
            back = {"stride": step, "padding": rng.randint(0, 1), "groups": groups}
            if max(step) > 1:
                back["output_padding"] = [s - 1 for s in step]
            yield F_, f"conv_transpose{d}d", transposed, (x, r(c * groups, o, *window), None), back


@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("family", [products, convolutions])
def test_the_users_calls_agree_forward_and_backward(family: Any, repeat: int) -> None:
    seed = SEED + repeat
    print("seed", seed)
    torch.manual_seed(seed)
    for mod, op, function, args, keywords in family(random.Random(seed)):
        where = (op, [getattr(a, "shape", a) for a in args], keywords, seed)
        found = ours(mod, op, args, keywords)
        assert found.flops == counted(lambda: function(*args, **keywords)), where  # noqa: B023
        if op in ("mm", "addmm", "bmm", "baddbmm"):
            assert dispatched(op, *args, **keywords) == found, where
        if found.dgrad is None:
            assert op == "einsum", where  # of three operands and more
            continue
        groups = keywords.get("groups", 1)  # torch 2.13 counts the gradient of a grouped weight `groups` times
        dgrad, wgrad = part(found.dgrad), part(found.wgrad)
        assert backward_of(function, args, keywords) in (dgrad + wgrad, dgrad + groups * wgrad), where


@pytest.mark.parametrize("repeat", range(10))
def test_vectors_are_counted_where_torch_counts_none(repeat: int) -> None:
    seed = SEED + repeat
    print("seed", seed)
    n, r = case(random.Random(seed))
    b, m, k, o = n(), n(), n(), n()
    for left, right in [((k,), (k,)), ((k,), (k, o)), ((m, k), (k,)), ((b, m, k), (k,)), ((k,), (b, k, o))]:
        x, y = r(left), r(right)
        flops = ours("torch", "matmul", (x, y), {}).flops
        assert flops == 2 * torch.matmul(x, y).numel() * k, (left, right, seed)
        assert counted(lambda: torch.matmul(x, y)) in (0, flops)  # noqa: B023
    none: list[tuple[str, tuple[Any, ...], int]] = [
        ("mv", (r(m, k), r(k)), 2 * m * k),
        ("addmv", (r(m), r(m, k), r(k)), 2 * m * k),
        ("dot", (r(k), r(k)), 2 * k),
        ("vdot", (r(k), r(k)), 2 * k),
        ("outer", (r(m), r(k)), m * k),
        ("addr", (r(m, k), r(m), r(k)), 2 * m * k),
        ("addbmm", (r(m, o), r(b, m, k), r(b, k, o)), 2 * b * m * k * o),
        (
            "_int_mm",
            (torch.ones(24, 8, dtype=torch.int8), torch.ones(8, 16, dtype=torch.int8)),
            2 * 24 * 8 * 16,
        ),
        ("einsum", ("i,j->ij", r(m), r(k)), m * k),
        ("einsum", ("bij->bj", r(b, m, k)), b * m * k),
        ("bilinear", (r(b, m), r(b, k), r(o, m, k)), 2 * b * o * k * (m + 1)),
    ]
    for op, args, flops in none:
        function = getattr(torch, op, None) or getattr(F, op)
        assert counted(lambda: function(*args)) == 0, op  # noqa: B023
        assert ours("torch", op, args, {}).flops == flops, (op, seed)


def attention_shapes(rng: random.Random) -> tuple[tuple[int, ...], ...]:
    b, h, g = rng.randint(1, 3), rng.randint(1, 3), rng.choice((1, 2, 4))
    sq, skv, d, dv = (rng.randint(1, 12) for _ in range(4))
    return (b, h * g, sq, d), (b, h, skv, d), (b, h, skv, dv)


@pytest.mark.parametrize("repeat", range(10))
def test_attention_agrees_forward_and_backward(repeat: int) -> None:
    """torch's mathematical form is products, which its counter sees; it computes and counts what a mask hides. Its
    backward keeps the scores: four products, as the dense figure has, where the fused kernels execute five."""
    seed = SEED + repeat
    print("seed", seed)
    rng = random.Random(seed)
    q, k, v = attention_shapes(rng)
    args = tuple(torch.randn(shape) for shape in (q, k, v))
    mask = rng.choice((None, torch.zeros(q[2], k[2]), torch.ones(1, 1, q[2], k[2], dtype=torch.bool)))
    keywords: dict[str, Any] = {
        "is_causal": mask is None and rng.random() < 0.5,
        "attn_mask": mask,
        "enable_gqa": True,
    }
    function = F.scaled_dot_product_attention
    found = ours(F_, "scaled_dot_product_attention", args, keywords)
    with sdpa_kernel(SDPBackend.MATH):
        assert found.flops_dense == counted(lambda: function(*args, **keywords)), seed
        assert found.dgrad is not None
        assert part(found.dgrad) == backward_of(function, args, keywords), seed
        if found.flops == found.flops_dense:  # the fused kernels compute the scores again
            scores = 2 * q[0] * q[1] * q[2] * k[2] * q[3]
            assert found.dgrad.flops == part(found.dgrad) + scores, seed


def kernels(rng: random.Random) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """(operator, arguments, output) of what runs on a GPU only: torch's formulas are asked, no kernel runs."""
    meta = lambda shape, dtype=torch.bfloat16: torch.empty(shape, dtype=dtype, device="meta")  # noqa: E731
    m, k, o = (16 * rng.randint(1, 4) for _ in range(3))
    eight = torch.float8_e4m3fn
    scale = meta((), torch.float32)
    yield "_scaled_mm", (meta((m, k), eight), meta((k, o), eight), scale, scale), None
    q, kk, v = map(meta, attention_shapes(rng))
    out = meta((*q.shape[:-1], v.shape[-1]))
    lse = meta(q.shape[:-1], torch.float32)
    for causal in (False, True):
        yield "_scaled_dot_product_flash_attention", (q, kk, v, 0.0, causal), None
        yield "_scaled_dot_product_efficient_attention", (q, kk, v, None, True, 0.0, causal), None
        yield "_scaled_dot_product_cudnn_attention", (q, kk, v, None, True, 0.0, causal), None
    back = (out, q, kk, v)
    yield (
        "_scaled_dot_product_flash_attention_backward",
        (*back, out, lse, None, None, 9, 9, 0.0, False, lse, lse),
        None,
    )
    yield (
        "_scaled_dot_product_efficient_attention_backward",
        (*back, None, out, lse, lse, lse, 0.0, (True,) * 4),
        None,
    )
    yield "_scaled_dot_product_cudnn_attention_backward", (
        *back, out, lse, lse, lse, None, None, None, 9, 9, 0.0, False), None  # fmt: skip
    for d in (1, 2, 3):
        for transposed in (False, True):
            yield from convolution_kernels(rng, d, transposed)


def convolution_kernels(rng: random.Random, d: int, transposed: bool) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    n, c, o = (rng.randint(1, 5) for _ in range(3))
    image, window = [rng.randint(5, 8) for _ in range(d)], [rng.randint(1, 3) for _ in range(d)]
    x, w = torch.empty(n, c, *image), torch.empty(*((c, o) if transposed else (o, c)), *window)
    settings = ([rng.choice((1, 2))] * d, [rng.randint(0, 1)] * d, [1] * d, transposed, [0] * d, 1)
    out = torch.convolution(x, w, None, *settings)
    yield "convolution", (x, w, None, *settings), out
    yield "convolution_overrideable", (x, w, None, *settings), out
    yield "_convolution", (x, w, None, *settings, False, False, True, True), out
    for mask in ((True, True, False), (True, False, False), (False, True, False)):
        yield "convolution_backward", (out, x, w, None, *settings, mask), (x, w, None)
    if not transposed:
        stride, padding, dilation = settings[:3]
        yield "cudnn_convolution", (x, w, padding, stride, dilation, 1, False, False, True), out


@pytest.mark.parametrize("repeat", range(5))
def test_the_dispatchers_operators_agree(repeat: int) -> None:
    seed = SEED + repeat
    print("seed", seed)
    seen = set()
    for op, args, out in kernels(random.Random(seed)):
        found = dispatched(op, *args)
        again = "attention" in op and "backward" in op  # torch counts the scores' recomputation
        assert (found.flops if again else found.flops_dense) == theirs(op, *args, out=out) > 0, (
            op,
            [getattr(a, "shape", a) for a in args],
            seed,
        )
        seen.add(op)
    users = {"mm", "addmm", "bmm", "baddbmm", *DIFFER}
    known = {str(op).removeprefix("aten.") for op in flop_registry if not str(op).startswith("torch_attn.")}
    assert known - users - seen == set(), "torch counts an operator that is not compared"


# Operators that are compared in the test of their own difference below.
DIFFER = {
    "_slow_conv2d_forward", "_flash_attention_forward", "_flash_attention_backward", "_efficient_attention_forward",
    "_efficient_attention_backward", "flex_attention", "flex_attention_backward",
}  # fmt: skip


def test_attention_of_heads_behind_is_counted_with_sequence_and_heads_exchanged() -> None:
    """(B, S, H, D) is taken for (B, H, S, D): 2·B·S·H²·(D + Dv) instead of 2·B·H·S²·(D + Dv)."""
    b, s, h, d = 2, 12, 3, 4
    x, lse = torch.empty(b, s, h, d), torch.empty(b, h, s)
    right, wrong = 2 * b * h * s * s * 2 * d, 2 * b * s * h * h * 2 * d
    forward: dict[str, tuple[Any, ...]] = {
        "_flash_attention_forward": (x, x, x, None, None, s, s, 0.0, False, False),
        "_efficient_attention_forward": (x, x, x, None, None, None, s, s, 0.0, 0),
    }
    backward: dict[str, tuple[Any, ...]] = {
        "_flash_attention_backward": (x, x, x, x, x, lse, None, None, s, s, 0.0, False, lse, lse),
        "_efficient_attention_backward": (x, x, x, x, None, x, None, None, s, s, lse, 0.0, lse, lse, 0),
    }
    for op, args in forward.items():
        assert (dispatched(op, *args).flops, theirs(op, *args)) == (right, wrong), op
    for op, args in backward.items():
        assert (dispatched(op, *args).flops, theirs(op, *args)) == (5 * right // 2, 5 * wrong // 2), op


def test_sequences_of_several_lengths_are_unknown_without_their_offsets() -> None:
    x, offsets = torch.empty(10, 2, 4), torch.tensor([0, 3, 10])
    args = (x, x, x, offsets, offsets, 7, 7, 0.0, False, False)
    found = dispatched("_flash_attention_forward", *args)
    assert found.flops is None
    assert found.bytes == 2 * 80 * 4  # x is read once, the output written
    assert theirs("_flash_attention_forward", *args) == 2 * 2 * (3 * 3 + 7 * 7) * 8  # it reads the offsets


def test_flex_attention_agrees_where_nothing_is_masked() -> None:
    from torch._higher_order_ops.flex_attention import flex_attention as operator

    q, kv = torch.empty(2, 6, 5, 4), torch.empty(2, 3, 7, 4)
    found = ours("torch.nn.attention.flex_attention", "flex_attention", (q, kv, kv), {})
    assert found.flops == flop_registry[operator](q, kv, kv, out_val=None)


def test_a_benchmarked_cudnn_convolution_is_taken_for_a_transposed_one() -> None:
    """The flag `benchmark` stands where aten::convolution has `transposed`: 25 pixels of the input count, not 9."""
    x, w, out = torch.empty(1, 2, 5, 5), torch.empty(4, 2, 3, 3), torch.empty(1, 4, 3, 3)
    args = (x, w, [0, 0], [1, 1], [1, 1], 1, True, False, True)
    assert theirs("cudnn_convolution", *args, out=out) * 9 == 25 * (dispatched("cudnn_convolution", *args).flops or 0)


def test_the_slow_convolution_cannot_be_counted_by_torch() -> None:
    x, w = torch.empty(1, 2, 5, 5), torch.empty(4, 2, 3, 3)
    args = (x, w, [3, 3], None, [1, 1], [0, 0])
    with pytest.raises(TypeError, match="transposed"):
        theirs("_slow_conv2d_forward", *args, out=torch.empty(1, 4, 3, 3))
    assert dispatched("_slow_conv2d_forward", *args).flops == 2 * 36 * 2 * 9


def test_the_bias_gradient_is_additions_that_torch_leaves_out() -> None:
    x, w, out = torch.empty(3, 2, 5, 5), torch.empty(4, 2, 3, 3), torch.empty(3, 4, 3, 3)
    settings = ([4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    args = (out, x, w, *settings, (False, False, True))
    assert theirs("convolution_backward", *args, out=(None, None, w)) == 0
    assert dispatched("convolution_backward", *args).flops == out.numel()


def test_float4_holds_two_values_in_an_element() -> None:
    x, scale = (
        torch.empty(16, 32, dtype=torch.float4_e2m1fn_x2),
        torch.empty(16, 4, dtype=torch.float8_e8m0fnu),
    )
    args = (x, x.t(), scale, scale, None, None, torch.bfloat16)
    assert dispatched("_scaled_mm", *args).flops == 2 * theirs("_scaled_mm", *args) == 2 * 16 * 16 * 64


def test_a_causal_mask_halves_and_torch_counts_the_whole() -> None:
    x = torch.empty(2, 3, 8, 4)
    found = dispatched("_scaled_dot_product_flash_attention", x, x, x, 0.0, True)
    assert theirs("_scaled_dot_product_flash_attention", x, x, x, 0.0, True) == found.flops_dense == 2 * 6 * 64 * 8
    assert found.flops == 2 * 6 * 36 * 8  # 1 + 2 + ... + 8 pairs


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_agree_forward_and_backward(kind: str) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    features, hidden, layers, directions = (
        rng.randint(2, 6),
        rng.randint(3, 6),
        rng.randint(1, 2),
        rng.randint(1, 2),
    )
    more = {"proj_size": rng.randint(0, 2)} if kind == "LSTM" else {}
    module = getattr(torch.nn, kind)(features, hidden, layers, bidirectional=directions == 2, **more)
    x = torch.randn(4, 2, features, requires_grad=True)
    width = more.get("proj_size") or hidden
    states = [torch.randn(layers * directions, 2, n, requires_grad=True) for n in (width, hidden)]
    given = tuple(states) if kind == "LSTM" else torch.randn(layers * directions, 2, hidden, requires_grad=True)
    with torch.backends.mkldnn.flags(enabled=False):  # whole layers of oneDNN are 0 to torch
        forward = counted(lambda: module(x, given))
        output = module(x, given)[0]
        back = counted(lambda: output.backward(torch.ones_like(output)))
    found = pyprof.estimate(module, x, given)
    row = found[found["op"].isin(["lstm", "gru", "rnn_tanh"])].iloc[0]
    assert row["flops"] == forward > 0
    assert row["flops_dgrad"] + row["flops_wgrad"] == back


@pytest.mark.parametrize("weights", [True, False])
def test_multi_head_attention_agrees_as_the_sum_of_its_calls(weights: bool) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    heads, sequence, batch = rng.randint(1, 3), rng.randint(2, 6), rng.randint(1, 3)
    module = torch.nn.MultiheadAttention(4 * heads, heads, batch_first=True)
    x = torch.randn(batch, sequence, 4 * heads)
    rows = pyprof.estimate(module, x, x, x, need_weights=weights)
    products = rows[rows["op"].isin(["linear", "bmm", "baddbmm", "scaled_dot_product_attention"])]
    with sdpa_kernel(SDPBackend.MATH):
        assert products["flops"].sum() == counted(lambda: module(x, x, x, need_weights=weights))
    e = 4 * heads
    assert products["flops"].sum() == 2 * batch * sequence * 4 * e * e + 4 * batch * sequence * sequence * e


def test_every_difference_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "flop_counter.md").read_text()
    rows = {
        *DIFFER, "groups", "mv", "dot", "addbmm", "addmv", "addr", "_int_mm", "outer", "einsum", "bilinear",
        "cudnn_convolution", "convolution_backward", "float4", "is_causal", "for_cpu", "mkldnn_rnn_layer",
    }  # fmt: skip
    assert {name for name in rows if name not in page} == set()

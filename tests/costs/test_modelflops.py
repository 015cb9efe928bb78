# SPDX-License-Identifier: Apache-2.0
"""Model FLOPs beside executed ones: causal attention, its backward, recomputation, what is not known.

Attention of Q, K, V (1, 2, 8, 4): a product of scores takes 2·2·8·8·4 = 1024 FLOPs on the square, 2·2·36·4 = 576 on the
causal triangle (36 pairs). Forward: two products. Backward: five are executed, a model needs four.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import pyprof
from pyprof.core.model import Tensor
from pyprof.costs import custom
from pyprof.costs.columns import View
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import build
from tests.build import call, examples, recording

SQUARE, TRIANGLE = 1024, 576
Q = Tensor((1, 2, 8, 4), "float16")
SDPA = "torch.nn.functional.scaled_dot_product_attention"
FULL, CAUSAL = call(SDPA, Q, Q, Q), call(SDPA, Q, Q, Q, is_causal=True)
FLEX = call("torch.nn.attention.flex_attention", Q, Q, Q, None, "mask")
Found = dict[str, tuple[int | None, int | None]]


def figures(path: Path) -> Found:
    """Executed and model FLOPs of each kernel or event, by its name."""
    view = View(rows(loader.load(path)))
    columns = view.costs.flops, view.model_flops
    return {
        view.rows.names[name]: tuple(int(c.values[i]) if c.mask()[i] else None for c in columns)
        for i, name in enumerate(view.rows.name.tolist())
    }  # type: ignore[return-value]


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., Found]:
    def run(text: str, cpu: bool = False) -> Found:
        write = build.write_capture if cpu else build.write_nsys
        return figures(write(tmp_path / "net.sqlite", recording(text)))

    return run


def training(what: str, forward: str, backward: str) -> str:
    kernels = ["\n".join(f"            > {line}" for line in text.splitlines()) for text in (forward, backward)]
    return f"""
    {what}
        aten::attend, seq = 3
{kernels[0]}
    thread 2
    autograd::engine::evaluate_function: AttendBackward0
        AttendBackward0, seq = 3
{kernels[1]}
    """


def test_causal_attention_has_the_triangle_executed_and_the_square_in_the_model(found):
    assert found(training(CAUSAL, "50 flash_fwd_kernel", "90 flash_bwd_kernel\n5 flash_bwd_convert_dq")) == {
        "flash_fwd_kernel": (2 * TRIANGLE, 2 * SQUARE),
        "flash_bwd_kernel": (5 * TRIANGLE, 4 * SQUARE),
        "flash_bwd_convert_dq": (0, 0),
    }


def test_attention_without_a_mask_differs_in_the_backward_alone(found):
    assert found(training(FULL, "50 flash_fwd_kernel", "90 flash_bwd_kernel")) == {
        "flash_fwd_kernel": (2 * SQUARE, 2 * SQUARE),
        "flash_bwd_kernel": (5 * SQUARE, 4 * SQUARE),
    }


def test_kernels_that_share_the_work_share_both_figures(found):
    both = found(training(CAUSAL, "10 flash_fwd_a\n30 flash_fwd_b", "1 flash_bwd_kernel"))
    assert (both["flash_fwd_a"], both["flash_fwd_b"]) == ((288, 512), (864, 1536))


def test_calls_of_one_signature_do_not_share(found):
    text = f"{CAUSAL}\n  aten::x\n    > 10 flash_fwd_a\n{CAUSAL}\n  aten::x\n    > 990 flash_fwd_b"
    assert set(found(text).values()) == {(2 * TRIANGLE, 2 * SQUARE)}


@pytest.mark.parametrize(("what", "executed"), [(CAUSAL, 2 * TRIANGLE), (FLEX, None)])
def test_calls_inside_one_call_do_not_share(found, what, executed):
    inner = "".join(f"  {what}\n    aten::x\n      > {ns} flash_fwd_{ns}\n" for ns in (10, 990))
    assert set(found(f"{call('mine.block', (1,))}\n{inner}").values()) == {(executed, 2 * SQUARE)}


def test_where_only_the_dense_figure_is_known_the_model_has_it(found):
    both = found(f"{FLEX}\n  aten::x\n    > 10 flash_attention_a\n    > 30 flash_attention_b")
    assert list(both.values()) == [(None, 512), (None, 1536)]


def test_unknown_stays_unknown_and_all_else_is_the_same(found):
    both = found(f"""
        {call("torch.mm", (8, 8), (8, 8))}
            aten::mm
                > 9 sgemm_tn
                > 1 splitKreduce_kernel
        > 7 nobody_knows
    """)
    assert both == {
        "sgemm_tn": (1024, 1024), "splitKreduce_kernel": (0, 0), "nobody_knows": (None, None),
    }  # fmt: skip


def test_recomputation_is_executed_and_no_part_of_the_model(found):
    linear = ("torch.nn.functional.linear", (2, 3), (3, 3))
    again = ["/x/torch/utils/checkpoint.py:9", "net.py:8"]
    both = found(f"""
        {call(*linear, trace=["net.py:8"])}
            aten::addmm, seq = 4
                > 3 sgemm_first
        {call("torch.relu", (2, 3), trace=["net.py:9"])}
            aten::relu, seq = 5
                > 3 relu
        thread 2
        autograd::engine::evaluate_function: ReluBackward0
            ReluBackward0, seq = 5
                {call(*linear, trace=again)}
                    aten::addmm, seq = 1
                        > 3 sgemm_again
    """)
    assert (both["sgemm_first"], both["sgemm_again"]) == ((36, 36), (36, 0))


def test_operator_events_carry_both(found):
    """Forward: the call's cost. Backward: the event's own; its mask is that of its arguments."""
    lse = (1, 2, 8)
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    both = found(
        f"""
        {CAUSAL}
            op seq=3 {call("aten::scaled_dot_product_attention", Q, Q, Q, None, 0.0, True)}
                op seq=3 {call(kernel, Q, Q, Q, 0.0, True)}
                    wait 9
        thread 2
        op {call("autograd::engine::evaluate_function: AttendBackward0")}
            op seq=3 forward=1 {call("AttendBackward0", Q)}
                op {call(f"{kernel}_backward", Q, Q, Q, Q, Q, lse, 0.0, True)}
                    wait 20
        """,
        cpu=True,
    )
    assert both[kernel] == (2 * TRIANGLE, 2 * SQUARE)
    assert both[f"{kernel}_backward"] == (5 * TRIANGLE, 4 * SQUARE)
    assert both["aten::scaled_dot_product_attention"] == (0, 0)


def test_operator_events_of_one_backward_do_not_share(tmp_path: Path):
    """Each carries its own cost; of a formula of the user only the dense FLOPs are known."""

    @pyprof.cost("modelflops::hidden")
    def hidden(x: Tensor) -> pyprof.Cost:
        return pyprof.Cost(None, 0, dense=7)

    event = call("modelflops::hidden", (1,))
    what = recording(f"""
        {CAUSAL}
            op seq=3 {call("aten::scaled_dot_product_attention", Q, Q, Q, None, 0.0, True)}
        thread 2
        op {call("autograd::engine::evaluate_function: AttendBackward0")}
            op seq=3 forward=1 {call("AttendBackward0", Q)}
                op {event}
                    wait 20
                op {event}
                    wait 60
    """)
    try:
        view = View(rows(loader.load(build.write_capture(tmp_path / "net.sqlite", what))))
        mine = np.flatnonzero(view.rows.name == view.rows.names.index("modelflops::hidden"))
        assert view.costs.flops.mask()[mine].tolist() == [False, False]
        assert view.model_flops.values[mine].tolist() == [7, 7]
    finally:
        custom.forget("modelflops::hidden")


def test_a_part_of_a_backward_has_its_share(found):
    """A formula of the user whose gradients differ: dgrad 30 for 60 dense, wgrad 10 for 20. One product is there."""

    @pyprof.cost("modelflops.half")
    def half(x: Tensor, w: Tensor) -> pyprof.Cost:
        parts = {"dgrad": pyprof.Cost(30, 0, dense=60), "wgrad": pyprof.Cost(10, 0, dense=20)}
        return pyprof.Cost(5, 0, **parts)

    try:
        text = training(call("modelflops.half", (1,), (1,)), "1 forward", "9 sgemm_dgrad")
        assert found(text)["sgemm_dgrad"] == (30, 60)
    finally:
        custom.forget("modelflops.half")


KERNELS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), min_size=1, max_size=4)


@examples(25)
@given(st.lists(st.tuples(st.sampled_from([FULL, CAUSAL, FLEX]), KERNELS, KERNELS), min_size=1, max_size=4))
def test_the_sum_over_the_kernels_of_a_call_and_direction_is_its_dense_cost(calls):
    text, expected = "", 0
    for what, forward, backward in calls:
        lines = ["\n".join(f"{ns} flash_{part}_{name}" for ns, name in kernels)
                 for part, kernels in (("fwd", forward), ("bwd", backward))]  # fmt: skip
        text += training(what, *lines).replace("seq = 3", f"seq = {len(text)}") + "    thread 1\n"
        expected += 6 * SQUARE
    view = View(rows(loader.load(build.write_nsys(Path(build.scratch()) / "f", recording(text)))))
    assert view.model_flops.mask().all()
    assert view.model_flops.values.sum() == expected


LAYERS, HEADS, SIZE, LENGTH, BATCH = 2, 2, 8, 16, 3
WIDTH = HEADS * SIZE


class Layer(nn.Module):
    """A transformer's layer without biases and norms: products and residual sums."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        for name, (a, b) in sizes.items():
            setattr(self, name, nn.Linear(a * WIDTH, b * WIDTH, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(BATCH, LENGTH, HEADS, SIZE).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(F.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 11, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def test_a_recorded_training_step_is_what_palm_counts(tmp_path: Path):
    """6·N + 12·L·H·Q·T FLOPs per token (PaLM, appendix B), whatever is recomputed and masked. Executed: the forward of
    the layers twice, but for their last products, which torch stops, and nine products of attention (2 + 2 + 5) on the
    136 of 256 pairs of the triangle."""
    model, path = Model(), tmp_path / "net.sqlite"
    try:
        with pyprof.profile(str(path)):
            model(torch.randint(11, (BATCH, LENGTH))).sum().backward()
    finally:
        pyprof.shutdown()
    found = pyprof.load(path).table
    products = found[found.kernel.astype(str).str.contains("aten::mm|attention")]  # not the sums of gradients
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    again = weights - model.head.weight.numel() - LAYERS * 4 * WIDTH**2
    tokens = BATCH * LENGTH
    pair = 2 * LAYERS * WIDTH * BATCH  # one product of all heads, per pair of a query and a key
    assert products.flops_dense.sum() == tokens * (6 * weights + 12 * LAYERS * WIDTH * LENGTH)
    assert products.flops.sum() == tokens * (6 * weights + 2 * again) + 9 * pair * 136

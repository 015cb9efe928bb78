# SPDX-License-Identifier: Apache-2.0
"""Which kernel carries the cost of a call: the sum over its kernels is the call's, exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import BPROP, FPROP, MEMCPY, Cost
from pyprof.costs.attribution.attribute import attribute, share
from pyprof.costs.cost import lookup
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import build
from tests.build import call, examples, recording

Known = dict[str, tuple[int | None, int | None]]
Carried = Callable[[str], Known]


@pytest.fixture
def carried(tmp_path: Path) -> Carried:
    """FLOPs and bytes by name of the kernel (or operator event, in a recording of the CPU)."""

    def run(text: str) -> Known:
        what = recording(text)
        write = build.write_capture if what.ops else build.write_nsys
        found = rows(loader.load(write(tmp_path / f"file{len(list(tmp_path.iterdir()))}", what)))
        costs = attribute(found)
        out: Known = {}
        for i, name in enumerate(found.name.tolist()):
            assert found.short_names[name] not in out, "a name per kernel"
            out[found.short_names[name]] = tuple(
                int(column.values[i]) if column.mask()[i] else None for column in (costs.flops, costs.bytes)
            )
        return out

    return run


def step(forward: str, seq: str, kernels: str, node: str, backward: str) -> str:
    """A call with its kernels, and the backward of its node."""

    def lines(text: str) -> str:
        return "\n".join(f"            > {line}" for line in text.splitlines())

    return f"""
    {forward}
        {seq}, seq = 3
{lines(kernels)}
    thread 2
    autograd::engine::evaluate_function: {node}
        {node}, seq = 3
{lines(backward)}
    """


LINEAR = call("torch.nn.functional.linear", (8, 4), (5, 4), (5,))
PRODUCT = (2 * 8 * 5 * 4, 4 * (8 * 4 + 5 * 4 + 8 * 5))  # FLOPs and bytes of either gradient
FORWARD = (PRODUCT[0], PRODUCT[1] + 4 * 5)  # and the bias is read


def linear(backward: str, forward: str = "50 sgemm_tn") -> str:
    return step(LINEAR, "aten::addmm", forward, "AddmmBackward0", backward)


def test_split_k_the_product_carries_all_and_its_reduction_nothing(carried):
    found = carried(linear("1 sgemm_nn", "20 sgemm_tn\n90 splitKreduce_kernel\n5 elementwise_kernel"))
    assert [found[k] for k in ("sgemm_tn", "splitKreduce_kernel", "elementwise_kernel")] == [
        FORWARD,
        (0, 0),
        (0, 0),
    ]


def test_linear_backward_has_one_product_per_kernel(carried):
    found = carried(linear("30 sgemm_nn\n70 sgemm_nt"))
    assert (found["sgemm_nn"], found["sgemm_nt"]) == (PRODUCT, PRODUCT)


def test_the_first_layers_backward_is_one_product(carried):
    assert carried(linear("30 sgemm_nt"))["sgemm_nt"] == PRODUCT


def test_more_kernels_than_products_share_by_time_and_add_up(carried):
    found = carried(linear("10 sgemm_a\n20 sgemm_b\n40 sgemm_c"))
    shares = [found[f"sgemm_{k}"] for k in "abc"]
    assert [sum(column) for column in zip(*shares)] == [2 * PRODUCT[0], 2 * PRODUCT[1]]
    assert [flops for flops, _ in shares] == [91, 183, 366]  # 640 in the ratio 1 : 2 : 4


def test_linear_backward_reduction_carries_the_bias_gradient(carried):
    found = carried(linear("30 sgemm_nn\n70 sgemm_nt\n9 reduce_kernel\n4 elementwise_kernel"))
    assert found["reduce_kernel"] == (8 * 5, 4 * (8 * 5 + 5))
    assert found["elementwise_kernel"] == (0, 0)
    assert found["sgemm_nn"] == PRODUCT


@pytest.mark.parametrize("name", ["reduce_kernel", "calc_bias_diff"])
def test_without_a_bias_no_reduction_is_its_gradient(carried, name):
    found = carried(step(call("torch.matmul", (8, 4), (4, 5)), "aten::mm", "5 sgemm", "MmBackward0", f"9 {name}"))
    assert found[name] == (2 * PRODUCT[0], 2 * PRODUCT[1])


CONV = call("torch.nn.functional.conv2d", (2, 3, 8, 8), (4, 3, 3, 3), (4,))
CONV_FLOPS = 2 * 2 * 4 * 6 * 6 * 3 * 3 * 3


def conv(backward: str) -> str:
    return step(CONV, "aten::convolution", "50 implicit_convolve_sgemm", "ConvolutionBackward0", backward)


def test_conv_backward_reads_dgrad_wgrad_and_bias_from_the_names(carried):
    found = carried(
        conv("9 xmma_wgrad_implicit_gemm\n90 xmma_dgrad_implicit_gemm\n3 calc_bias_diff\n2 nchwToNhwcKernel")
    )
    assert {name: flops for name, (flops, _) in found.items()} == {
        "implicit_convolve_sgemm": CONV_FLOPS, "xmma_wgrad_implicit_gemm": CONV_FLOPS,
        "xmma_dgrad_implicit_gemm": CONV_FLOPS, "calc_bias_diff": 2 * 4 * 6 * 6, "nchwToNhwcKernel": 0,
    }  # fmt: skip


def test_conv_first_layer_has_the_weight_gradient_only(carried):
    assert carried(conv("9 xmma_wgrad_implicit_gemm"))["xmma_wgrad_implicit_gemm"][0] == CONV_FLOPS


def test_two_kernels_of_one_gradient_share_it(carried):
    found = carried(conv("10 wgrad_alg0_engine\n30 wgrad_alg1_engine\n20 dgrad_engine"))
    assert found["dgrad_engine"][0] == CONV_FLOPS
    assert found["wgrad_alg0_engine"][0] == CONV_FLOPS // 4
    assert found["wgrad_alg0_engine"][0] + found["wgrad_alg1_engine"][0] == CONV_FLOPS


def test_a_name_that_tells_leaves_the_other_product_to_the_kernel_that_does_not(carried):
    found = carried(conv("10 xmma_dgrad_implicit_gemm\n30 volta_sgemm\n20 volta_sgemm_2"))
    assert found["xmma_dgrad_implicit_gemm"][0] == CONV_FLOPS
    assert found["volta_sgemm"][0] + found["volta_sgemm_2"][0] == CONV_FLOPS


def shown(forward: str, node: str, operators: str) -> str:
    """A call and the operators of its backward as our capture has them on a GPU: events with shapes around launches."""
    return f"""
    {forward}
        op seq=3 {call("aten::forward")}
            > 50 forward_sgemm
    thread 2
    op seq=3 forward=1 {call(node)}
{operators}
    """


def backward_of_conv(mask: list[bool], kernels: str) -> str:
    event = call(
        "aten::convolution_backward", (2, 4, 6, 6), (2, 3, 8, 8), (4, 3, 3, 3), [4], [1, 1], [0, 0], [1, 1], False,
        [0, 0], 1, mask,
    )  # fmt: skip
    launches = "\n".join(f"            > {line}" for line in kernels.splitlines())
    return shown(CONV, "ConvolutionBackward0", f"        op {event}\n{launches}")


def test_a_fused_backward_kernel_gets_the_sum_of_what_its_operator_computes(carried):
    both = carried(backward_of_conv([True, True, False], "30 sgemm"))
    assert both["sgemm"][0] == 2 * CONV_FLOPS
    names = "10 sgemm_a\n20 sgemm_b\n40 sgemm_c"
    one = carried(backward_of_conv([False, True, False], names))
    assert sum(one[f"sgemm_{k}"][0] for k in "abc") == CONV_FLOPS
    two = carried(backward_of_conv([True, True, False], names))
    assert [two[f"sgemm_{k}"][0] for k in "abc"] == [
        2 * CONV_FLOPS * upto // 70 - 2 * CONV_FLOPS * before // 70 for before, upto in ((0, 10), (10, 30), (30, 70))
    ]


def test_a_backward_kernel_gets_the_gradient_that_its_operators_shapes_show(carried):
    """Three kernels: the input's gradient took two of them, the weight's one, whatever their order and time."""
    events = [
        f"        op {call('aten::mm', (8, 5), (5, 4))}\n            > 10 sgemm_a\n            > 30 sgemm_b",
        f"        op {call('aten::mm', (5, 8), (8, 4))}\n            > 90 sgemm_c",
    ]
    for order in (events, events[::-1]):
        found = carried(shown(LINEAR, "AddmmBackward0", "\n".join(order)))
        assert found["sgemm_c"] == PRODUCT
        assert (found["sgemm_a"][0], found["sgemm_b"][0]) == (PRODUCT[0] // 4, PRODUCT[0] * 3 // 4)
        assert found["sgemm_a"][1] + found["sgemm_b"][1] == PRODUCT[1]


def test_the_engines_addition_of_two_gradients_has_its_own_cost(carried):
    """It runs after the node, for a tensor that is used twice; the call's formula does not have it."""
    found = carried(f"""
    {LINEAR}
        op seq=3 {call("aten::forward")}
            > 50 forward_sgemm
    thread 2
    op seq=3 forward=1 {call("autograd::engine::evaluate_function: AddmmBackward0")}
        op seq=3 forward=1 {call("AddmmBackward0")}
            op {call("aten::mm", (8, 5), (5, 4))}
                > 9 sgemm
        op {call("aten::add_", (8, 4), (8, 4))}
            > 5 add_kernel
    """)
    assert found["add_kernel"] == (8 * 4, 4 * 3 * 8 * 4)
    assert found["sgemm"] == PRODUCT


def test_layer_norm_two_norm_kernels_share_in_proportion(carried):
    text = step(
        call("torch.nn.functional.layer_norm", (16, 10), [10], (10,), (10,)), "aten::native_layer_norm",
        "10 RowwiseMomentsCUDAKernel\n30 LayerNormForwardCUDAKernel", "NativeLayerNormBackward0", "5 x",
    )  # fmt: skip
    found = carried(text)
    flops = [found[k][0] for k in ("RowwiseMomentsCUDAKernel", "LayerNormForwardCUDAKernel")]
    assert flops == [8 * 160 // 4, 8 * 160 * 3 // 4]


def test_the_fill_of_a_large_gradient_is_not_on_the_short_kernel_that_adds(carried):
    """Writing 4 GB of zeros in 4 ms is 1 TB/s; on the kernel of 1 us that adds 8 numbers it would be 4,000."""
    text = step(
        call("torch.take", (10**9,), (8,)), "aten::take", "5 gather", "TakeBackward0",
        "4000 fill_kernel\n1 scatter_add_kernel",
    )  # fmt: skip
    found = carried(text)
    fill, adds = (found[kernel][1] for kernel in ("fill_kernel", "scatter_add_kernel"))
    assert fill + adds == 4 * (8 + 8 + 10**9)
    assert adds == pytest.approx((fill + adds) / 4001, abs=1)


def test_without_a_kernel_of_its_kind_the_longest_carries_the_first_of_equals(carried):
    text = step(call("torch.relu", (6,)), "aten::relu", "4 mystery_a\n9 mystery_b\n9 mystery_c", "R", "1 x")
    found = carried(text)
    assert [found[f"mystery_{k}"][0] for k in "abc"] == [0, 6, 0]


def test_a_composite_without_a_formula_leaves_the_cost_to_the_calls_inside(carried):
    found = carried(f"""
    {call("mine.block", (8, 4))}
        {LINEAR}
            aten::addmm, seq = 3
                > 30 sgemm_1
                > 3 elementwise_1
        {LINEAR}
            aten::addmm, seq = 4
                > 30 sgemm_2
        {call("torch.relu", (8, 5))}
            aten::relu, seq = 5
                > 3 relu_kernel
        > 3 stray
    thread 2
    AddmmBackward0, seq = 4
        > 8 sgemm_3
    """)
    assert (found["sgemm_1"], found["sgemm_2"], found["elementwise_1"]) == (FORWARD, FORWARD, (0, 0))
    assert found["relu_kernel"][0] == 40
    assert found["sgemm_3"] == PRODUCT
    assert found["stray"] == (None, None)


def test_an_unknown_operator_has_an_unknown_cost_not_zero(carried):
    found = carried(step(call("mine.fused_op", (8, 4)), "mine::fused", "9 k1\n3 k2", "FusedBackward0", "4 k3"))
    assert set(found.values()) == {(None, None)}


def test_copies_compute_nothing(tmp_path):
    what = recording(f"{LINEAR}\n  > 5 sgemm\n  > 4 copy")
    what.kernels[1].size, what.kernels[1].copy_kind = 64, 1
    found = rows(loader.load(build.write_nsys(tmp_path / "f", what)), memory=True)
    costs = attribute(found)
    (copy,) = (found.kind == MEMCPY).nonzero()[0]
    assert (costs.flops.values[copy], costs.flops.mask()[copy]) == (0, True)
    assert costs.flops.values.tolist() == [PRODUCT[0], 0]


@examples(60)
@given(st.lists(st.tuples(st.integers(-1, 2**62), st.lists(st.integers(0, 2**33), min_size=1, max_size=6)), max_size=4))
def test_shares_add_up_and_follow_the_weights(teams):
    """Teams beside one another, in exact integers: also where cost times weight needs more than 64 bits."""
    members = [(number, cost, w) for number, (cost, weights) in enumerate(teams) for w in weights]
    team, cost, weight = np.array(members, np.int64).reshape(-1, 3).T
    shares = share(cost, team, weight).tolist()
    for number, (whole, weights) in enumerate(teams):
        mine = [part for part, (of, _, _) in zip(shares, members) if of == number]
        if whole < 0:
            assert set(mine) == {-1}
            continue
        assert sum(mine) == whole
        weights = weights if any(weights) else [1] * len(weights)
        for part, w in zip(mine, weights):
            assert part >= 0
            assert abs(part * sum(weights) - whole * w) <= sum(weights)


CALLS = [
    LINEAR, CONV, call("torch.relu", (7, 3)), call("torch.matmul", (3, 5, 4), (3, 4, 2)),
    call("torch.nn.functional.layer_norm", (6, 10), [10]), call("torch.sum", (9, 9)),
    call("torch.nn.functional.softmax", (4, 8), dim=1), call("torch.cat", [(2, 3), (4, 3)]),
]  # fmt: skip
NAMES = [
    "sgemm", "splitKreduce", "elementwise_kernel", "reduce_kernel", "xmma_wgrad", "xmma_dgrad", "calc_bias_diff",
    "softmax_warp_forward", "RowwiseMoments", "CatArrayBatchedCopy", "mystery", "nchwToNhwc",
]  # fmt: skip


@st.composite
def trainings(draw: st.DrawFn) -> build.Recording:
    """Calls with any kernels, in any order, each perhaps with a backward, some inside another call."""
    lines = []
    for seq, text in enumerate(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=5))):
        inside = draw(st.booleans())
        indent = "    " if inside else ""
        if inside:
            lines.append(call("mine.block", (1,)))
        lines += [f"{indent}{text}", f"{indent}  aten::x, seq = {seq}"]
        kernels = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(NAMES)), min_size=1, max_size=5)
        lines += [f"{indent}    > {ns} {name}" for ns, name in draw(kernels)]
        if draw(st.booleans()):
            lines += ["thread 2", f"XBackward0, seq = {seq}"]
            lines += [f"    > {ns} {name}" for ns, name in draw(kernels)]
            lines.append("thread 1")
    return recording("\n".join(lines))


def computed(cost: Cost, names: list[str]) -> list[Cost]:
    """The parts of a backward that its kernels' names show, from the rule as it is written."""
    parts = [part for part in (cost.dgrad, cost.wgrad, cost.bgrad) if part is not None]
    if cost.dgrad is None or cost.wgrad is None:
        return parts
    told = {"xmma_wgrad": cost.wgrad, "xmma_dgrad": cost.dgrad}
    out = [part for name, part in told.items() if name in names]
    nameless = names.count("sgemm")  # the other kernel of NAMES that multiplies
    if nameless and not out:
        out = [cost.dgrad] if nameless == 1 else [cost.dgrad, cost.wgrad]
    elif nameless and len(out) == 1:
        out = [cost.dgrad, cost.wgrad]
    if cost.bgrad is not None and {"splitKreduce", "reduce_kernel", "calc_bias_diff"} & set(names):
        out.append(cost.bgrad)
    return out or parts


@examples(20)
@given(trainings())
def test_the_sum_over_the_kernels_of_a_call_and_direction_is_its_cost(what):
    found = rows(loader.load(build.write_nsys(Path(build.scratch()) / "f", what)))
    costs = attribute(found)
    sums: dict[tuple[int, int, str], Counter[str]] = defaultdict(Counter)
    seen: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for i in range(len(found)):
        site = found.sites[found.site[i]]
        text = site.markers[-1]
        inner = found.inner_calls[0].values[i] if found.inner_calls and found.inner_calls[0].mask()[i] else -1
        key = (int(found.call.values[i]) * 100 + int(inner), site.direction, text)
        seen[key].append(found.names[found.name[i]])
        for column, name in ((costs.flops, "flops"), (costs.bytes, "bytes")):
            assert column.mask()[i]
            sums[key][name] += int(column.values[i])
    for (number, direction, text), total in sums.items():
        marker = decode(text)
        assert isinstance(marker, CallMarker)
        cost = lookup(marker.call)
        if direction == FPROP:
            assert (total["flops"], total["bytes"]) == (cost.flops, cost.bytes)
        else:
            assert direction == BPROP
            wanted = computed(cost, seen[number, direction, text])
            assert total["flops"] == sum(part.flops for part in wanted)
            assert total["bytes"] == sum(part.bytes for part in wanted)


CPU = f"""
    {LINEAR}
        op seq=3 {call("aten::linear", (8, 4), (5, 4), (5,))}
            op seq=3 {call("aten::t", (5, 4))}
                wait 7
            op seq=3 {call("aten::addmm", (5,), (8, 4), (4, 5))}
                wait 500
                op {call("aten::copy_", (8, 5), (5,))}
                    wait 3
    thread 2
    op {call("autograd::engine::evaluate_function: AddmmBackward0")}
        op seq=3 forward=1 {call("AddmmBackward0", (8, 5))}
            op {call("aten::mm", (8, 5), (5, 4))}
                wait 300
        op {call("aten::sum", (8, 5), [0])}
            wait 20
"""


def test_on_the_cpu_the_event_that_computes_carries_the_call(carried):
    found = carried(CPU)
    assert found["aten::addmm"] == FORWARD
    assert found["aten::linear"] == found["aten::copy_"] == (0, 0)
    assert found["aten::mm"] == PRODUCT
    assert found["aten::sum"][0] == 40
    assert found["AddmmBackward0"] == (0, 0)
    assert "autograd::engine::evaluate_function: AddmmBackward0" not in found


@st.composite
def forests(draw: st.DrawFn) -> str:
    """Operator events inside one another, on two threads, engine ranges among them."""
    lines: list[str] = []

    def grow(depth: int) -> None:
        for _ in range(draw(st.integers(0 if depth else 1, 2))):
            name = draw(
                st.sampled_from(["aten::a", "aten::b", "AddBackward0", "autograd::engine::evaluate_function: X"])
            )
            lines.append("  " * depth + f"op {name}")
            lines.append("  " * depth + f"  wait {draw(st.integers(0, 40))}")
            if depth < 3:
                grow(depth + 1)

    for thread in (1, 2):
        lines.append(f"thread {thread}")
        grow(0)
    return "\n".join(lines)


@examples(20)
@given(forests())
def test_own_times_of_operator_events_add_up_to_the_time_of_their_thread(text):
    what = recording(text + "\nthread 3\nop aten::end\n")
    counted = [op for op in what.ops if not op.name.startswith("autograd::engine")]
    found = build.read(build.write_capture(Path(build.scratch()) / "f", what))
    assert len(found) == len(counted)
    for thread in (1, 2, 3):
        moments = {t for op in counted if op.thread == thread for t in range(op.start, op.end)}
        assert sum(row["kDuration"] for row in found if row["tid"] == thread) == len(moments)
    assert all(row["kDuration"] >= 0 for row in found)
    assert {row["device"] for row in found} == {"cpu"}

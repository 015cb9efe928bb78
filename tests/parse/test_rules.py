# SPDX-License-Identifier: Apache-2.0
"""The rules P1 to P15: what the original got wrong, on recordings of a few lines, in every format we read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.profiles import load
from tests import build
from tests.build import call, classic, recording, stack

Row = dict[str, Any]
Parse = Callable[[str], dict[str, Row]]


@pytest.fixture(params=list(build.WRITERS))
def parse(request: pytest.FixtureRequest, tmp_path: Path) -> Parse:
    """Rows of a recording by the name of their kernel, through each format."""
    write = build.WRITERS[request.param]
    return lambda text: {row["kShortName"]: row for row in build.read(write(tmp_path / "file", recording(text)))}


@pytest.fixture
def capture(tmp_path: Path) -> Parse:
    """Rows of a recording of our own, by the name of the kernel or operator."""
    return lambda text: {
        row["kShortName"]: row for row in build.read(build.write_capture(tmp_path / "file", recording(text)))
    }


def lost(path: Path) -> dict[str, int]:
    return rows(loader.load(path)).lost


SUFFIXES = ("seq = 12", "op_id = 40", "sizes = [[64, 10], [], [10]]", "input_op_ids = [[37,0],[],[-1,2]]")


@pytest.mark.parametrize("order", [*permutations(SUFFIXES, 2), SUFFIXES, SUFFIXES[::-1]], ids=", ".join)
def test_p1_p2_suffixes_of_new_torch_come_in_any_order_and_hold_commas(order, tmp_path):
    text = ", ".join(("aten::addmm", *order))
    (row,) = build.read(build.write_nsys(tmp_path / "f", recording(f"{text}\n  > 5 sgemm")))
    assert (row["op"], row["dir"]) == (["aten::addmm"], "fprop")
    assert row["seqId"] == ([12] if "seq = 12" in order else [])


def test_p1_backward_with_all_suffixes_finds_its_forward(parse):
    tail = "op_id = 7, sizes = [[2, 3], []], input_op_ids = [[1,0],[]]"
    row = parse(f"""
        {call("torch.nn.functional.linear", (2, 3), (5, 3), trace=["train.py:9"])}
            aten::addmm, seq = 3, {tail}
                > 5 forward
        thread 2
        autograd::engine::evaluate_function: AddmmBackward0, {tail}
            AddmmBackward0, {tail}, seq = 3
                aten::mm, {tail}
                    > 6 backward
    """)["backward"]
    assert (row["dir"], row["phase"], row["op"][0], row["trace"]) == (
        "bprop",
        "backward",
        "linear",
        ["train.py:9"],
    )
    assert (row["seqId"], row["tid"], row["fwdThread"]) == ([3], 2, 1)


@pytest.mark.parametrize("own", [None, ""], ids=["null", "empty"])
def test_p3_text_stands_in_the_range_or_in_the_string_table(own, tmp_path):
    """An old export declares everything NOT NULL: an unused text is empty, an unused textId 0."""
    text = "aten::relu, seq = 5\n  > 3 relu"
    plain = build.write_nsys(tmp_path / "plain", recording(text))
    ids = build.write_nsys(tmp_path / "ids", recording(text), registered=True)
    old = build.rewrite(ids, tmp_path / "old", {"NVTX_EVENTS": {"text": "''" if own == "" else "null"}})
    zero = build.rewrite(plain, tmp_path / "zero", {"NVTX_EVENTS": {"textId": "0"}})
    assert build.read(plain) == build.read(ids) == build.read(old) == build.read(zero)
    assert build.read(old)[0]["op"] == ["aten::relu"]


def test_p4_no_kernel_loses_its_ranges_to_the_order_of_the_table(tmp_path):
    text = "".join(f"aten::op{i}, seq = {i}\n  > 1 kernel{i}\n" for i in range(200))
    path = build.write_nsys(tmp_path / "f", recording(text))
    for seed in range(3):
        found = build.read(build.rewrite(path, tmp_path / f"{seed}", seed=seed))
        assert [(row["kShortName"], row["op"]) for row in found] == [
            (f"kernel{i}", [f"aten::op{i}"]) for i in range(200)
        ]


@pytest.mark.parametrize("node", ["SumBackward1", "MeanBackward1", "PowBackward12", "ClampBackward", "mul_backward"])
def test_p5_every_number_at_the_end_of_a_node_is_a_backward(node, parse):
    if node == "mul_backward":
        node = "torch::autograd::MulBackward0"
    row = parse(f"{node}, seq = 8\n  aten::expand\n    > 4 kernel")["kernel"]
    assert (row["dir"], row["phase"], row["seqId"]) == ("bprop", "backward", [8])


def test_p5_whatever_runs_in_the_engines_range_is_backward(parse):
    """The sum that reduces a bias gradient runs beside the node, inside the range that evaluates it."""
    found = parse(f"""
        {call("torch.add", (4, 3), (3,))}
            aten::add, seq = 6
                > 2 forward
        thread 2
        autograd::engine::evaluate_function: AddBackward0
            AddBackward0, seq = 6
                > 3 inside
            aten::sum
                > 4 beside
    """)
    for name in ("inside", "beside"):
        row = found[name]
        assert (row["dir"], row["op"][0], row["seqId"], row["fwdThread"]) == ("bprop", "add", [6], 1)
    assert found["beside"]["call"] == found["forward"]["call"]


def test_an_operator_of_a_backward_is_no_backward_itself(parse):
    row = parse("aten::native_layer_norm_backward, seq = 4\n  > 3 kernel")["kernel"]
    assert row["dir"] == "fprop"


@pytest.mark.parametrize("suffix", ["", ", op_id = 9", ", seq = -1, op_id = 9"])
@pytest.mark.parametrize("evaluated", [True, False])
def test_p6_accumulation_of_gradients_is_backward(suffix, evaluated, parse):
    outer = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad" if evaluated else "anything"
    row = parse(f"""
        thread 2
        {outer}
            torch::autograd::AccumulateGrad{suffix}
                aten::add_, op_id = 10
                    > 4 kernel
    """)["kernel"]
    assert (row["dir"], row["phase"], row["op"][0]) == ("bprop", "backward", "accumulate_grad")
    assert (row["seqId"], row["altSeqId"]) in (([], []), ([], [-1]))


def test_p6_accumulation_does_not_take_the_number_of_the_node_around_it(parse):
    row = parse("""
        aten::mul, seq = 5
            > 1 forward
        thread 2
        MulBackward0, seq = 5
            torch::autograd::AccumulateGrad
                > 4 kernel
    """)["kernel"]
    assert (row["op"][0], row["seqId"]) == ("accumulate_grad", [])


def test_p7_kernels_of_no_length_and_before_their_launch_are_kept_and_counted(tmp_path):
    path = build.write_nsys(
        tmp_path / "f",
        recording("aten::relu, seq = 1\n  > 0 empty\naten::add, seq = 2\n  > 5 skew=-3 skewed\n"),
    )
    found = {row["kShortName"]: row for row in build.read(path)}
    assert (found["empty"]["kDuration"], found["empty"]["op"]) == (0, ["aten::relu"])
    assert (found["skewed"]["kDuration"], found["skewed"]["op"]) == (5, ["aten::add"])
    assert found["skewed"]["start"] < found["skewed"]["launchStart"]
    assert lost(path) == {"GPU events that start before their launch (clock skew, kept)": 1}


def test_p7_a_kernel_that_ends_before_it_starts_is_kept_with_time_0(tmp_path):
    path = build.write_nsys(tmp_path / "f", recording("aten::relu\n  > -7 backwards"))
    assert [row["kDuration"] for row in build.read(path)] == [0]
    assert list(lost(path)) == ["GPU events that end before they start (kept, time 0)"]


def test_p8_a_path_may_hold_every_key_of_a_marker(parse):
    frames = ["models/'mod'/'op'/'args'/type/strRepr/layer:x, seq = 3.py:12", "a'b\"c\\d.py:3"]
    row = parse(f"""
        {stack(*frames)}
            {classic("torch.relu", (2,))}
                > 3 kernel
    """)["kernel"]
    assert (row["trace"], row["op"], row["layer"], row["seqId"]) == (frames, ["relu"], [], [])


def test_p9_p10_all_numbers_are_kept_and_sorted_as_numbers(parse):
    row = parse("""
        aten::a, seq = 9
            aten::b, seq = 101
                aten::c, seq = 11
                    aten::d, seq = 10
                        > 1 kernel
    """)["kernel"]
    assert (row["seqId"], row["altSeqId"]) == ([10], [9, 11, 101])


def test_p12_the_forward_thread_tells_equal_numbers_apart(capture):
    def forward(thread: int, op: str) -> str:
        text = call(f"torch.{op}", (2, 2), trace=[f"{op}.py:1"])
        return f"thread {thread}\n{text}\n  op seq=7 aten::mul\n    wait 5\n"

    def backward(thread: int) -> str:
        return f"thread 9\nop seq=7 forward={thread} MulBackward0\n  op aten::of{thread}\n    wait 5\n"

    found = capture(forward(1, "one") + forward(2, "two") + backward(2) + backward(1))
    for thread, op in ((1, "one"), (2, "two")):
        row = found[f"aten::of{thread}"]
        assert (row["op"][0], row["trace"], row["fwdThread"]) == (op, [f"{op}.py:1"], thread)


TWO_THREADS = """
    aten::mm, seq = 5
        > 1 one
    thread 2
    aten::{}, seq = 5
        > 1 two
    thread 3
    MmBackward0, seq = 5
        > 1 backward
"""


def test_p12_without_a_forward_thread_the_name_decides(parse):
    assert parse(TWO_THREADS.format("relu"))["backward"]["fwdThread"] == 1


def test_p12_what_could_be_either_stays_unpaired_and_is_counted(parse, tmp_path):
    row = parse(TWO_THREADS.format("mm"))["backward"]
    assert (row["dir"], row["fwdThread"], row["op"]) == ("bprop", None, ["MmBackward0"])
    path = build.write_nsys(tmp_path / "g", recording(TWO_THREADS.format("mm")))
    assert lost(path) == {"backward ranges whose forward could be in several threads (not paired, kept)": 1}


def test_p12_two_processes_share_neither_numbers_nor_correlations(tmp_path):
    def process(number: int) -> str:
        return f"""
            thread 1 process {number}
            aten::op{number}, seq = 5
                > 4 device={number % 2} forward{number}
            thread 2 process {number}
            Op{number}Backward0, seq = 5
                > 4 device={number % 2} backward{number}
        """

    what = recording(process(100) + process(201))
    for item in (*what.launches, *what.kernels):
        item.correlation = (item.correlation - 1) % 2 + 1
    found = {row["kShortName"]: row for row in build.read(build.write_nsys(tmp_path / "f", what))}
    for number in (100, 201):
        for kernel in (f"forward{number}", f"backward{number}"):
            row = found[kernel]
            assert (row["pid"], row["device"], row["op"][0]) == (number, number % 2, f"aten::op{number}")


def test_p13_kernels_of_a_graph_replay_take_the_launching_range_and_are_flagged(tmp_path):
    text = """
        aten::alone
            > 5 single
        replay
            layer:graph
                > 5 graph=11 first
                + 5 graph=12 second
                + 5 graph=13 stream=9 third
    """
    found = {row["kShortName"]: row for row in build.read(build.write_nsys(tmp_path / "f", recording(text)))}
    assert {name: (row["graph"], row["layer"]) for name, row in found.items()} == {
        "single": (None, []), "first": (11, ["graph"]), "second": (12, ["graph"]), "third": (13, ["graph"]),
    }  # fmt: skip
    assert len({row["correlation"] for row in found.values()}) == 2


REENTRANT = f"""
    {call("torch.utils.checkpoint", (2, 3), trace=["train.py:5"])}
        CheckpointFunction, seq = 4
            {call("torch.nn.functional.linear", (2, 3), (3, 3), trace=["net.py:8"])}
                aten::addmm
                    > 3 forward
    thread 2
    autograd::engine::evaluate_function: CheckpointFunctionBackward
        CheckpointFunctionBackward, seq = 4
            {call("torch.nn.functional.linear", (2, 3), (3, 3), trace=["torch/utils/checkpoint.py:9", "net.py:8"])}
                aten::addmm, seq = 6
                    > 3 again
            autograd::engine::evaluate_function: AddmmBackward0
                AddmmBackward0, seq = 6
                    aten::mm
                        > 3 gradient
            aten::detach
                > 3 beside
"""


@pytest.mark.parametrize("stacks", [True, False])
def test_p15_reentrant_checkpoint_recomputes_and_runs_a_backward_inside(parse, stacks):
    text = REENTRANT
    if not stacks:
        for frames in (
            '"train.py:5"',
            '"net.py:8"',
            "'train.py:5'",
            "'net.py:8'",
            "'torch/utils/checkpoint.py:9', ",
        ):
            text = text.replace(frames, "")
    found = parse(text)
    assert {name: (row["dir"], row["phase"], row["op"][-1]) for name, row in found.items()} == {
        "forward": ("fprop", "forward", "linear"),
        "again": ("fprop", "recompute", "linear"),
        "gradient": ("bprop", "backward", "linear"),
        "beside": ("bprop", "backward", "checkpoint"),
    }
    assert found["gradient"]["call"] == found["again"]["call"] != found["forward"]["call"]
    assert found["beside"]["call"] == found["forward"]["call"]


AGAIN = call("torch.nn.functional.linear", (2, 3), (3, 3), trace=["/x/torch/utils/checkpoint.py:9", "net.py:8"])


def test_p15_checkpoint_without_reentry_recomputes_inside_a_node(parse):
    found = parse(f"""
        {call("torch.nn.functional.linear", (2, 3), (3, 3), trace=["net.py:8"])}
            aten::addmm, seq = 4
                > 3 forward
        {call("torch.relu", (2, 3), trace=["net.py:9"])}
            aten::relu, seq = 5
                > 3 relu
        thread 2
        autograd::engine::evaluate_function: ReluBackward0
            ReluBackward0, seq = 5
                {AGAIN}
                    aten::addmm, seq = 1
                        > 3 again
                aten::threshold_backward
                    > 3 gradient
    """)
    again = found["again"]
    assert (again["dir"], again["phase"], again["op"][0], again["trace"]) == (
        "fprop", "recompute", "linear", ["net.py:8"],
    )  # fmt: skip
    assert (found["gradient"]["dir"], found["gradient"]["op"][0]) == ("bprop", "relu")


@pytest.mark.parametrize("trace", [["custom.py:30"], []], ids=["stacks", "no stacks"])
def test_backward_of_a_users_function_stays_backward_and_names_its_forward(parse, trace):
    found = parse(f"""
        {call("Square.apply", (4,), trace=["train.py:3"])}
            Square, seq = 2
                > 3 forward
        thread 2
        autograd::engine::evaluate_function: SquareBackward
            SquareBackward, seq = 2
                {call("Tensor.__mul__", (4,), 2.0, trace=trace)}
                    aten::mul
                        > 3 backward
    """)
    row = found["backward"]
    assert (row["dir"], row["phase"], row["op"][0], row["trace"]) == (
        "bprop",
        "backward",
        "apply",
        ["train.py:3"],
    )
    assert row["call"] == found["forward"]["call"]


def test_a_gradient_of_a_gradient_belongs_to_the_call_of_the_first_forward(parse):
    found = parse(f"""
        {call("torch.mul", (4,), (4,), trace=["train.py:3"])}
            aten::mul, seq = 2
                > 3 forward
        thread 2
        MulBackward0, seq = 2
            aten::mul, seq = 8
                > 3 first
        thread 3
        MulBackward0, seq = 8
            aten::mul
                > 3 second
    """)
    for name in ("first", "second"):
        row = found[name]
        assert (row["dir"], row["op"][0], row["trace"]) == ("bprop", "mul", ["train.py:3"])
        assert row["call"] == found["forward"]["call"]


def test_a_number_used_again_in_the_next_step_means_the_last_forward_before(parse):
    step = """
        {}
            aten::mul, seq = 2
                > 3 forward{}
        MulBackward0, seq = 2
            > 3 backward{}
    """
    found = parse("".join(step.format(call("torch.mul", (4,), trace=[f"a.py:{i}"]), i, i) for i in range(3)))
    for i in range(3):
        assert found[f"backward{i}"]["trace"] == [f"a.py:{i}"]
        assert found[f"backward{i}"]["call"] == found[f"forward{i}"]["call"]


LSTM = str({"mod": "LSTM", "strRepr": "10, 20"})


def test_classic_markers_give_stack_module_layer_and_call(parse):
    row = parse(f"""
        layer:encoder
            layer:self: attention
                {stack("train.py:9", "/env/lib/python3.8/site-packages/torch/nn/modules/linear.py:93")}
                    {LSTM}
                        {classic("torch.nn.functional.linear", (2, 3), (5, 3))}
                            {classic("torch.matmul", (2, 3), (3, 5))}
                                mm, seq = 4
                                    > 3 kernel
    """)["kernel"]
    assert row["layer"] == ["encoder", "self: attention"]
    assert (row["mod"], row["op"]) == (["torch.nn.functional", "torch"], ["linear", "matmul"])
    assert row["trace"] == ["train.py:9"]
    assert row["reprMarkers"] == [LSTM]
    assert len(row["marker"]) == 2


def test_marks_name_nothing_and_ranges_without_an_operator_are_the_layer(parse):
    row = parse("""
        mark iteration 3
        mark layer:now
        mark aten::mm, seq = 3
        forward pass
            > 3 kernel
    """)["kernel"]
    assert (row["op"], row["dir"], row["layer"], row["phase"]) == ([], None, ["forward pass"], "none")


def test_a_range_never_closed_lasts_to_the_end(tmp_path):
    text = "open layer:all\naten::relu\n  > 3 kernel\naten::add\n  > 3 last"
    path = build.write_nsys(tmp_path / "f", recording(text))
    assert [row["layer"] for row in build.read(path)] == [["all"], ["all"]]
    assert lost(path) == {"ranges that were never closed (taken to last to the end, kept)": 1}


def test_start_end_ranges_need_not_nest(tmp_path):
    what = recording("aten::a\n  > 3 one\naten::b\n  > 3 two\naten::c\n  > 3 three")
    one, two, three = (launch.start for launch in what.launches)
    what.ranges.append(build.Range("layer:first", one - 5, two + 1, kind=build.START_END))
    what.ranges.append(build.Range("layer:second", two - 1, three + 1, kind=build.START_END))
    found = build.read(build.write_nsys(tmp_path / "f", what))
    assert [row["layer"] for row in found] == [["first"], ["first", "second"], ["second"]]


def test_the_outermost_call_numbers_the_rows_of_all_calls_inside_it(parse):
    linear = call("torch.nn.functional.linear", (8, 4), (5, 4))
    found = parse(f"""
        {call("mine.block", (8, 4))}
            > 1 before
            {linear}
                > 1 inside
            {linear}
                > 1 twice
        {call("mine.block", (8, 4))}
            > 1 other
    """)
    assert [found[k]["subSeqId"] for k in ("before", "inside", "twice", "other")] == [0, 1, 2, 0]
    assert found["before"]["call"] == found["inside"]["call"] == found["twice"]["call"] != found["other"]["call"]


def test_launches_that_coincide_in_all_but_their_thread_are_taken_by_thread(tmp_path):
    what = recording("thread 2\naten::b\n  > 3 kernel")
    (launch,) = what.launches
    what.ranges.append(build.Range("aten::a", what.ranges[0].start, what.ranges[0].end, thread=1))
    what.launches.insert(0, build.Launch(launch.start, launch.end, launch.correlation, thread=1))
    path = build.write_nsys(tmp_path / "f", what)
    for seed in range(4):
        (row,) = build.read(build.rewrite(path, tmp_path / f"{seed}", seed=seed))
        assert (row["tid"], row["op"]) == (1, ["aten::a"])


def test_launches_of_runtime_and_driver_with_one_correlation_are_one_launch(tmp_path):
    what = recording("aten::mm\n  > 3 kernel")
    first = what.launches[0]
    what.launches.append(build.Launch(first.start + 1, first.end - 1, first.correlation, driver=True))
    for write in (build.write_nsys, build.write_nvprof):
        (row,) = build.read(write(tmp_path / write.__name__, what))
        assert (row["op"], row["launchEnd"] - row["launchStart"]) == (["aten::mm"], first.end - first.start)


def test_a_file_without_ranges_is_a_table(parse):
    row = parse("> 5 kernel")["kernel"]
    assert (row["kDuration"], row["op"], row["dir"], row["phase"]) == (5, [], None, "none")


def test_copies_and_sets_come_only_when_asked_for(tmp_path):
    what = recording("aten::copy_\n  > 5 kernel\n  > 7 copy\n  > 2 set")
    what.kernels[1].size, what.kernels[1].copy_kind = 4096, 1
    what.kernels[2].size = 64
    for write in build.WRITERS.values():
        path = write(tmp_path / "file", what)
        assert [row["kind"] for row in build.read(path)] == ["kernel"]
        assert [(row["kind"], row["kShortName"], row["grid"]) for row in build.read(path, memory=True)] == [
            ("kernel", "kernel", (1, 1, 1)), ("memcpy", "memcpy HtoD", None), ("memset", "memset", None),
        ]  # fmt: skip
        path.unlink()


def test_shapes_of_emit_nvtx_give_flops_but_no_bytes(tmp_path):
    """record_shapes names no types: 2*64*10*32 FLOPs are known, bytes are not; a stride that is not told is unknown."""
    text = """
        aten::mm, seq = 3, op_id = 9, sizes = [[64, 32], [32, 10]]
          > 5 sgemm
        aten::conv2d, op_id = 10, sizes = [[1, 2, 8, 8], [4, 2, 3, 3], [], [], [], [], []]
          > 5 convolve
    """
    frame = load(build.write_nsys(tmp_path / "f", recording(text))).table.set_index("kernel")
    assert frame.loc["sgemm", "flops"] == 40960
    assert frame.loc["sgemm", "params"] == "M=64,N=10,K=32,na"
    assert frame["bytes"].isna().all()
    assert pd.isna(frame.loc["convolve", "flops"])

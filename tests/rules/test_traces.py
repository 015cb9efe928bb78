# SPDX-License-Identifier: Apache-2.0
"""Rules on what traces of torch.profiler tell, and other recordings do not: names of iterators, allocators' totals,
sizes of collectives, Python functions."""

from __future__ import annotations

import pytest

from pyprof.rules import RULES
from tests.rules.ranks import Late
from tests.rules.small import Small
from tests.rules.test_rules import (
    ADD,
    GEMM,
    HALF,
    NCCL,
    WIDE,
    busy,
    collecting,
    collective,
    compiling,
    idle_gpu,
    loading,
    outcome,
    product,
    ranks,
)


@pytest.mark.parametrize(
    ("iterator", "rule"), [("_SingleProcessDataLoaderIter", "R09"), ("_MultiProcessingDataLoaderIter", "R08")]
)
def test_the_iterator_of_a_loader_tells_whether_it_has_workers(iterator, rule):
    def made():
        small = loading(150_000)
        small.ran(f"enumerate(DataLoader)#{iterator}.__next__", 0, 150_000)
        return small

    for one in ("R08", "R09"):
        found = outcome(one, made())
        assert (found.finding is not None) == (one == rule)
        assert found.needs is None


def test_sizes_of_collectives_are_those_that_the_recording_tells():
    made = busy(Small(), 400_000)
    for t in made.each():
        for i in range(20):
            made.kernel(
                NCCL, t + 100_000 + i * 10_000, 1_000, made.op("all_reduce", t + 2_000, t + 3_000), stream=20,
                collective={"name": "all_gather", "sent_bytes": 1_000, "received_bytes": 2_000},
            )  # fmt: skip
    found = outcome("R29", made).finding
    assert found is not None
    assert found.evidence[0]["mean_bytes"] == 2_000


def test_an_unknown_size_of_a_collective_is_not_zero():
    found = outcome("R28", collective(150_000, size=None)).finding
    assert found is not None
    assert found.evidence[0]["bytes"] is None


def test_a_collective_on_the_stream_of_the_kernels_cannot_overlap():
    one, other = (outcome("R28", collective(150_000, stream=stream)).finding for stream in (7, 20))
    assert one is not None
    assert one.problem.endswith(
        "They run on the stream of the other kernels (stream 7), so nothing can overlap with them."
    )
    assert one.advice.startswith("Start them early with async_op=True")
    assert other is not None
    assert "stream" not in other.problem + other.advice


def test_a_collective_is_not_far_from_the_roofline():
    made = Small()
    for t in made.each():
        op = made.op("all_reduce", t, t + 1_000, mod="torch.distributed", dtype="float32")
        made.kernel(NCCL, t + 100_000, 500_000, op, flops=0, size=4_000)
    assert outcome("R36", made)[:3] == (RULES["R36"], None, None)


def test_a_saving_of_a_small_part_is_not_that_of_all():
    """Of most products FLOPs are unknown: the saving is, and the finding is shown."""
    made = product(400_000, flops=None)
    for t in made.each():
        op = made.op("linear", t + 5_000, t + 6_000, mod="torch.nn.functional", dtype="float32", eligible=True)
        made.kernel(GEMM, t + 700_000, 1_000, op, tc=0, flops=1_000_000, size=1_000)
    found = outcome("R12", made).finding
    assert found is not None
    assert found.saving is None


def test_another_makers_capability_is_not_nvidias():
    amd = ("AMD Instinct MI300X", 304, "9.4", 192 << 30)
    found = outcome("R12", product(400_000, gpu=amd))
    assert str(found.needs).startswith("needs an NVIDIA GPU")


def test_gpus_without_names_are_gpus():
    unnamed = (None, 304, "9.4", 192 << 30)
    found = outcome("R04", idle_gpu(unnamed, gpu=unnamed)).finding
    assert found is not None
    assert "GPU 1." in found.problem


def test_an_allocator_of_one_gpu_counts_from_zero():
    made = Small()
    for t in made.each():
        made.kernel(GEMM, t + 100_000, 500_000, made.op("linear", t, t + 1_000), device=2)
        made.allocated(t, 15 << 30, 0)
    found = outcome("R43", made).finding
    assert found is not None
    counted = "the allocator's count in the recording"
    assert found.evidence == ({"gpu": 2, "peak_bytes": 15 << 30, "memory_bytes": 16 << 30, "counted": counted},)
    assert found.problem.endswith(f", by {counted}.")


def test_an_operator_that_uses_no_gpu_counts_without_what_runs_inside_it():
    """120 us, of which a kernel covers 10 us and an operator that launches 30 us: 80 us of 1 ms are too little, of a
    step of 700 us enough."""
    for length, speaks in ((1_000_000, False), (700_000, True)):
        made = Small(length=length)
        for t in made.each():
            made.op("tolist", t + 100_000, t + 220_000)
            made.kernel(GEMM, t + 150_000, 10_000, made.op("linear", t + 170_000, t + 200_000), launch=t + 171_000)
            made.ran("train.py(3): step", t, 500_000, 4)
        found = outcome("R33", made)
        assert found.needs is None
        assert (found.finding is not None) == speaks
        if found.finding is not None:
            assert found.finding.saving == 10 * 80_000
            assert found.finding.evidence[0]["operator"] == "tolist"


def test_an_operator_inside_a_wait_for_data_is_no_finding_of_its_own():
    made = Small()
    for t in made.each():
        made.op("decode", t + 100_000, t + 400_000)
        made.wait(t + 90_000, 320_000)
        made.kernel(GEMM, t + 500_000, 100_000, made.op("linear", t + 450_000, t + 460_000))
        made.ran("train.py(3): step", t, 500_000, 4)
    assert outcome("R33", made).finding is None


def test_functions_that_resume_are_graph_breaks():
    made = compiling(())
    for t in made.each():
        made.ran("train.py(6): torch_dynamo_resume_in_f_at_6", t + 5_000, 900, 4)
    found = outcome("R35", made).finding
    assert found is not None
    assert "1.0 functions a step" in found.problem
    made = compiling(())
    for t in made.each():
        made.ran("train.py(6): torchXdynamo_resume_in_f_at_6", t + 5_000, 900, 4)
    assert outcome("R35", made).finding is None


def test_gloo_ranges_tell_the_backend():
    made = ranks()
    for t in made.each():
        made.ran("gloo:all_reduce", t + 200_000, 90_000)
    found = outcome("R42", made).finding
    assert found is not None
    assert "over gloo" in found.problem
    for t in made.each():
        made.kernel(NCCL, t + 10_000, 1_000)
    assert outcome("R42", made).finding is None


def test_two_steps_do_not_make_a_straggler():
    found = outcome("R30", Late(120, steps=2))
    assert str(found.needs).startswith("needs at least 3 steps")


@pytest.mark.parametrize(
    ("type_", "sizes", "speaks"),
    [
        ("linear", "M=141,N=50264,K=1024", False), ("linear", "M=128,N=50257,K=1024", True),
        ("linear", "M=128,N=1024,K=141", True), ("bmm", "M=141,N=64,K=64", False), ("bmm", "M=64,N=64,K=141", False),
        ("bmm", "M=64,N=141,K=64", True), ("conv2d", "N=3,C=12,H=9,W=9,K=64,P=7,Q=7,R=3,S=3", True),
    ],
)  # fmt: skip
def test_only_sizes_that_are_contiguous_in_any_layout_are_to_be_padded(type_, sizes, speaks):
    wide = {**WIDE, "params": f"{sizes},bfloat16", "type_": type_}
    found = outcome("R15", product(100_000, HALF, flops=312 * 40 * 10**6, **wide))
    assert (found.finding is not None) == speaks


def test_a_collection_that_was_called_for_counts_once():
    found = outcome("R33", collecting(20_000)).finding
    assert found is not None
    assert found.evidence[0] == {"what": "garbage collection", "calls": 10, "time_ns": 200_000}


def test_a_run_that_is_not_cut_has_no_steps_to_speak_of():
    made = Small(steps=0)
    op = made.op("mlp", 0, 900_000)
    for start in range(5_000, 905_000, 10_000):
        made.kernel(ADD, start, 4_000, op, launch=start - 2_000, launch_dur=1_500)
    found = outcome("R05", made).finding
    assert found is not None
    assert "There are 90 kernels; launching them takes 135 us, and the median runs for 4.00 us." in found.problem


def test_kernels_without_a_launch_are_not_said_to_be_launched():
    made = Small(steps=0)
    op = made.op("mlp", 0, 900_000)
    for number, start in enumerate(range(5_000, 905_000, 10_000)):
        made.kernel(ADD, start, 4_000, op, launch=start - 2_000, launch_dur=1_500, linked=number >= 10)
    found = outcome("R05", made).finding
    assert found is not None
    assert (
        "There are 90 kernels, 80 of them with a recorded launch of their own; launching these takes "
        "120 us, and the median runs for 4.00 us."
    ) in found.problem


def test_waits_for_launches_say_what_the_cpu_did() -> None:
    """Of each 100 us the GPU works for 40. The CPU is in an operator for 20 us of the wait, in the launch for 10."""
    made = Small()
    for t in made.each():
        for start in range(t + 60_000, t + 1_000_000, 100_000):
            op = made.op("mlp", start - 30_000, start)
            made.kernel(ADD, start, 40_000, op, launch=start - 10_000, launch_dur=10_000)
            made.ran("aten::mlp", start - 30_000, 30_000)
    found = outcome("R05", made).finding
    assert found is not None
    assert "for 600 us of 1.00 ms a step, 60.0 %." in found.problem
    assert (
        "in CUDA calls for 100 us, elsewhere in operators and named ranges for 200 us, and in neither" in found.problem
    )
    assert "(Python between operators, for example) for 300 us." in found.problem
    assert "The kernels are long enough" in found.advice  # 40 us each: fusing them saves little


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        # One wait of 5 us, eight of 6 and one of 46: 46 of 99.
        (40_000, "Of the waits, 46.5 % are before kernels of zero_ (train.py:9)."),
        # One of 5 us and nine of 6: 6 of 59.
        (0, "The waits are spread over the step: no operator has more than 10.2 % of them."),
    ],
)
def test_the_operator_with_most_of_the_waits_is_named(slow: int, words: str) -> None:
    made = Small(steps=0)
    start = 5_000
    for number in range(10):
        name, line = ("zero_", 9) if number == 5 else (f"mlp{number}", 0)
        op = made.op(name, start - 2_000, start, line=line)
        made.kernel(ADD, start, 4_000, op, launch=start - 2_000, launch_dur=1_500)
        start += 10_000 + (slow if number == 4 else 0)
    found = outcome("R05", made).finding
    assert found is not None
    assert words in found.problem

# SPDX-License-Identifier: Apache-2.0
"""What rules read: the steady iterations, samples of them, several workers and devices; and what no finding may say."""

from __future__ import annotations

import numpy as np
import pytest

import pyprof
from pyprof.core.model import Device
from pyprof.core.occupancy import LIMITS
from pyprof.facts.build import build, of_trace
from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.facts.steps.source import Source
from pyprof.facts.steps.steady_state import spread, steady
from pyprof.parse import loader
from pyprof.rules import RULES
from pyprof.rules.context import Run
from pyprof.rules.evaluation import evaluate, judge
from pyprof.store.files import Store
from tests import kineto
from tests.build import call, recording, write_nsys
from tests.rules.small import DEVICE, PAGEABLE, PINNED, Small, opened
from tests.rules.test_rules import (
    CASES,
    NHWC,
    allocating,
    attention,
    busy,
    copies,
    helper,
    lengths,
    loading,
    optimizer,
    outcome,
    overhead,
    product,
    shaped,
    synchronised,
)


def brute(values: list[int], most: float) -> int:
    """Length of the longest stretch of at least three whose spread is at most `most`."""
    best = 0
    for first in range(len(values)):
        for last in range(first + 2, len(values)):
            part = np.array(values[first : last + 1], float)
            if part.std() <= most * part.mean():
                best = max(best, last - first + 1)
    return best


@pytest.mark.parametrize("seed", range(20))
def test_the_steady_stretch_is_the_longest(seed):
    random = np.random.default_rng(seed)
    values = (100_000_000 + random.integers(-9_000_000, 9_000_000, 30)).tolist()
    values[3] *= 5
    found = steady(np.array(values))
    expected = brute(values, 0.05)
    assert (0 if found is None else found[1] - found[0] + 1) == expected
    if found is not None:
        assert (spread(np.array(values[found[0] : found[1] + 1])) or 0) <= 0.05


@pytest.mark.parametrize("values", [[], [5], [5, 5], [0, 0, 0], [1, 10, 100, 1000]])
def test_there_may_be_no_steady_stretch(values):
    assert steady(np.array(values, np.int64)) is None


def test_rules_look_at_steady_iterations_alone():
    made = lengths(900_000, *[100_000] * 9)
    made.api("cudaMalloc_v3020", 100, 400_000)  # in the first iteration
    for start in range(900_000, 1_800_000, 100_000):
        made.kernel("volta_sgemm", start + 50_000, 10_000)
    with opened(made) as database:
        run = Run(Source(database, aggregations(database)[0]))
        assert run.steady == (1, 9)
        assert (run.wall, run.steps) == (900_000, 9)
        assert judge(RULES["R32"], run)[1:3] == (None, None)


def test_a_short_steady_stretch_gives_way_to_a_longer_less_steady_one():
    made = lengths(900_000, *[100_000] * 3, *[120_000, 100_000] * 3)
    with opened(made) as database:
        assert Run(Source(database, aggregations(database)[0])).steady == (1, 9)


def test_every_steady_step_counts_on_either_side_of_a_long_one():
    """4 MB in each of three of nine steady steps are 1.33 MB, 1.27 MiB, a step; those of the long one do not count."""
    made = lengths(*[1_000_000] * 3, 5_000_000, *[1_000_000] * 6)
    for start, _ in made.marks:
        made.kernel("volta_sgemm", start + 500_000, 300_000)
    for start, _ in made.marks[:4]:
        made.copy(PAGEABLE, DEVICE, 4_000_000, start + 100_000, 100_000)
    found = outcome("R10", made).finding
    assert found is not None
    assert found.problem.startswith("1.27 MiB a step are copied")
    assert [row["copies"] for row in found.evidence] == [3]


def test_what_a_long_step_takes_is_no_part_of_a_saving():
    """Each of nine steady steps waits 200 us for cudaMalloc, the long one 2 ms."""
    made = lengths(*[1_000_000] * 3, 5_000_000, *[1_000_000] * 6)
    for start, end in made.marks:
        made.api("cudaMalloc_v3020", start + 100_000, 200_000 if end - start == 1_000_000 else 2_000_000)
        made.kernel("volta_sgemm", end - 300_000, 300_000, launch=end - 310_000)
    found = outcome("R32", made).finding
    assert found is not None
    assert found.saving == 9 * 200_000


def test_a_range_of_iterations_saves_no_more_than_it_lasts():
    with opened(CASES["R11"].fires()) as database:
        one = aggregate(database, 2, 3)
        (found,) = [each.finding for each in evaluate(Source(database, one)) if each.rule.id == "R11"]
    assert found is not None
    assert found.saving == 2 * 100_000
    assert "At most 100 us" in found.problem


@pytest.mark.parametrize("rule", ["R10", "R11", "R12", "R26", "R36"])
def test_two_gpus_that_do_the_same_at_once_save_no_more_than_one(rule):
    made, twice = CASES[rule].fires(), CASES[rule].fires()
    for event in list(twice._events):
        twice._events.append({**event, "device": 1, "api": None})
    one, two = outcome(rule, made).finding, outcome(rule, twice).finding
    assert one is not None
    assert two is not None
    assert two.saving == pytest.approx(one.saving, abs=2)


def test_a_loader_without_workers_is_told_once():
    assert outcome("R08", loading(150_000, loader__0__num_workers="0")).finding is None
    assert outcome("R09", loading(150_000, loader__0__num_workers="0")).finding is not None


def test_where_one_loader_has_workers_nobody_knows_which_one_waits():
    both = {"loader__0__num_workers": "0", "loader__1__num_workers": "4"}
    assert outcome("R08", loading(150_000, **both)).finding is not None
    assert outcome("R09", loading(150_000, **both)).finding is None


@pytest.mark.parametrize("seen", [None, "yes", "no"])
def test_float32_beside_half_precision_is_said_to_be_a_part(seen):
    made = product(400_000, **({} if seen is None else {"autocast__cuda__seen": seen}))
    for t in made.each():
        op = made.op("linear", t + 5, t + 9, dtype="float32", eligible=True)
        made.kernel("ampere_fp16_s16816gemm_fp16_128x64", t + 600_000, 10_000, op, tc=1)
    found = outcome("R12", made).finding
    assert "take 400 us a step, 40.0 % of the time, beside others in 16 bits." in found.problem
    assert "outside autocast" in found.advice


def test_float32_although_autocast_was_on():
    found = outcome("R12", product(400_000, autocast__cuda__seen="yes")).finding
    assert found.problem.endswith(" of the time, although autocast was on.")


def test_kernels_under_autocast_are_not_judged_by_the_operands_of_the_call():
    assert outcome("R12", product(400_000, "a_gemm_that_names_no_type")).finding is None


@pytest.mark.parametrize("type_", [None, "int64", "float64", "complex64"])
def test_there_is_no_advice_on_other_or_unknown_types(type_):
    kernel = {} if type_ else {"kernel": "a_gemm_that_names_no_type"}
    for rule in ("R12", "R13", "R14", "R15"):
        assert outcome(rule, product(400_000, dtype=type_, **kernel)).finding is None, rule


def test_a_kernel_that_names_its_type_needs_no_type_of_the_call():
    assert outcome("R12", product(400_000, dtype=None)).finding is not None


def test_no_tensor_cores_are_promised_to_a_product_with_a_vector():
    params = "M=1,N=1024,K=1024,float16"
    assert outcome("R14", product(50_000, "gemv_fp16_kernel", "float16", params=params)).finding is None


def test_fused_and_foreach_are_advised_as_far_as_they_are_not_on():
    found = outcome("R21", optimizer(10, {"optimizer.0.foreach": "yes"})).finding
    assert found is not None
    assert "foreach" not in found.advice
    found = outcome("R21", optimizer(10, {"optimizer.0.foreach": "default"})).finding
    assert found is not None
    assert "foreach=True" in found.advice


@pytest.mark.parametrize(("regions", "words"), [("0", "torch.compile(model),"), ("3", "The model is compiled")])
def test_compiling_is_advised_to_what_is_not_compiled(regions, words):
    made = CASES["R05"].fires()
    made.meta["compile.regions"] = regions
    found = outcome("R05", made).finding
    assert found is not None
    assert words in found.advice


def test_a_pinned_loader_is_not_told_to_pin():
    made = copies(PAGEABLE, 2_000_000, 100_000)
    made.meta["loader.0.pin_memory"] = "yes"
    found = outcome("R10", made).finding
    assert found is not None
    assert "pin_memory=True) and" not in found.advice


def test_pageable_copies_without_pinned_peers_have_no_saving():
    found = outcome("R10", copies(PAGEABLE, 2_000_000, 100_000, peers=False)).finding
    assert found is not None
    assert found.saving is None


def test_copies_on_the_host_side_of_a_sync_are_no_bounce_of_single_numbers():
    made = busy(Small(), 500_000)
    for t in made.each():
        op = made.op("item", t, t + 9)
        for i in range(3):
            made.copy(DEVICE, PINNED, 4, t + 100_000 + i * 9_000, 2_000, op)
            made.copy(PINNED, DEVICE, 4, t + 103_000 + i * 9_000, 2_000, op)
    assert outcome("R40", made)[1:3] == (None, None)


def test_lost_events_are_told_and_repaired_ones_are_not():
    found = outcome("R38", overhead("1000", {"operators after the first 10 events": 500})).finding
    assert found is not None
    assert "500 events" in found.problem
    assert outcome("R38", overhead("1000", {"GPU events without a launch record (kept)": 500})).finding is None


@pytest.mark.parametrize(
    ("kernel", "saving"), [("volta_sgemm", 10 * 60_000), ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", None)]
)
def test_one_call_of_attention_is_in_pieces_if_its_kernels_are(kernel, saving):
    found = outcome("R24", attention(60_000, whole=kernel)).finding
    assert (found.saving if found else None) == saving


def test_a_softmax_without_products_on_both_sides_is_no_attention():
    assert outcome("R24", attention(60_000, ("matmul", "div", "softmax"))).finding is None


def test_collectives_do_not_count_as_kernels_that_fill_too_little():
    assert outcome("R26", CASES["R28"].fires()).finding is None


def test_kernels_with_a_block_for_each_multiprocessor_are_not_counted_as_few():
    made = shaped(100_000, 20)
    for t in made.each():
        made.kernel(
            "reduce_kernel",
            t + 300_000,
            100_000,
            made.op("max", t + 3_000, t + 4_000),
            blocks=100,
            threads=32,
        )
    found = outcome("R26", made).finding
    assert found is not None
    assert found.saving == pytest.approx(CASES["R26"].saving, abs=2)


@pytest.mark.parametrize("call", ["cudaHostAlloc_v3020", "cudaFreeHost_v3020"])
def test_memory_of_the_host_is_no_memory_of_the_gpu(call):
    assert outcome("R32", allocating(2, 10_000, call)).finding is None


def test_transposes_outside_of_convolutions_are_no_advice_on_layout():
    assert outcome("R17", helper(NHWC, 60_000, in_="transpose")).finding is None


def test_a_wait_at_the_end_of_the_program_costs_nothing():
    made = synchronised(45_000, call="")
    made.api("cudaDeviceSynchronize_v3020", 9_900_000, 90_000)
    assert outcome("R07", made)[1:3] == (None, None)


def test_other_ranks_may_use_the_other_gpus():
    made = CASES["R04"].fires()
    made.meta["distributed.world_size"] = "2"
    assert "2 ranks" in str(outcome("R04", made).needs)


@pytest.mark.parametrize(("switch", "ok"), [("yes", 1), ("no", 0), (None, None)])
def test_tensor_cores_take_float32_if_tf32_is_on(switch, ok, tmp_path):
    text = f"{call('torch.nn.functional.linear', (8, 8), (8, 8))}\n    > 40 volta_sgemm\n"
    trace = loader.load(write_nsys(tmp_path / "x.sqlite", recording(text)))
    trace.devices = [Device(0, "NVIDIA A100-SXM4-40GB", 108, "8.0")]
    trace.meta |= {"matmul.tf32": switch} if switch else {}
    build(of_trace(trace), str(tmp_path / "y.sqlite"))
    with Store(tmp_path / "y.sqlite") as database:
        assert database.rows("select dtype_ok from operator where type = 'linear'") == [(ok,)]


@pytest.mark.parametrize("capability", ["6.1", "7.5", "9.0"])
def test_kernels_that_do_not_fill_a_gpu_are_found_on_gpus_of_nvidia(capability):
    """20 blocks on 80 multiprocessors; 88 of which one fits at a time, as a block takes nearly all shared memory."""
    gpu = ("a GPU", 80, capability, 16 << 30)
    major, minor = map(int, capability.split("."))
    whole = LIMITS[major, minor].shared_kib * 1024 - 2048
    assert outcome("R26", shaped(100_000, 20, gpu)).finding is not None
    assert outcome("R27", shaped(100_000, 88, gpu, shared=whole)).finding is not None
    assert outcome("R27", shaped(100_000, 88, gpu, shared=whole // 2)).finding is None


@pytest.mark.parametrize("rule", ["R26", "R27"])
def test_a_gpu_whose_limits_are_unknown_is_a_fact_that_is_missing(rule):
    judged = outcome(rule, shaped(100_000, 20, ("a GPU", 80, "9.9", 16 << 30)))
    assert judged.finding is None
    assert "compute capability 9.9" in judged.needs


@pytest.mark.parametrize(("name", "around"), [("SGD", ""), ("Muon", "train_step")])
def test_the_optimizer_of_a_trace_of_torchs_profiler_is_its_range(name, around, tmp_path):
    """Three steps of 10 ms; in each, 60 kernels of 1 us in 4 ms of the optimizer's step, 20 in 1 ms of zero_grad."""
    events, number = [], 0
    for step in range(3):
        start = step * 10_000_000
        events.append(kineto.annotation(f"ProfilerStep#{step}", start, start + 10_000_000))
        if around:
            events.append(kineto.annotation(around, start + 1_000, start + 9_900_000))
        for kind, op, begin, count, each in (
            ("step", "aten::mul_", 5_000_000, 60, 66_000), ("zero_grad", "aten::zero_", 3_000_000, 20, 50_000)
        ):  # fmt: skip
            begin += start
            length = 4_000_000 if kind == "step" else 1_000_000
            events.append(kineto.annotation(f"Optimizer.{kind}#{name}.{kind}", begin, begin + length))
            for at in range(begin + 1_000, begin + 1_000 + count * each, each):
                number += 1
                events += [
                    kineto.op(op, at, at + 30_000),
                    kineto.launch(at + 5_000, at + 15_000, number),
                    kineto.kernel("vectorized_elementwise_kernel", at + 20_000, at + 21_000, number),
                ]
    profile = pyprof.load(kineto.write(tmp_path / "net.pt.trace.json", events))
    run = Run(profile.source())
    found = {rule: judge(RULES[rule], run).finding for rule in ("R21", "R22")}
    assert found["R21"].problem.startswith(f"Optimizer.step of {name} launches 60 kernels; it takes 4.00 ms a step")
    assert found["R21"].advice.startswith(f"{name}(..., fused=True)")
    assert found["R21"].evidence[0]["operator"] == f"{name}.step"
    assert found["R22"].problem.startswith("Setting gradients to zero takes 1.00 ms a step on the CPU")
    assert found["R22"].evidence[0]["kernels"] == 60

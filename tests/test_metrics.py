# SPDX-License-Identifier: Apache-2.0
"""Figures of a window whose numbers are few enough to work out by hand."""

from __future__ import annotations

import pytest

from pyprof.core.occupancy import of_capability
from pyprof.metrics import METRICS, PARTS, Device, Window, Worker, share, value

PART = dict(zip(PARTS, (100, 50, 30, 20, 10, 150, 40)))  # 400 ns
SUMS = {
    "kernels": 4, "tc_kernels": 1, "kernel_ns": 160, "tc_ns": 100, "memory_ns": 30, "late_ns": 40, "busy_ns": 180,
    "kernel_busy_ns": 150, "communication_ns": 50, "exposed_communication_ns": 20, "exposed_memory_ns": 30,
    "launched": 5, "delay_ns": 60, "queued_ns": 800, "waited_ns": 100, "shaped_ns": 160, "filled_sm_ns": 160 * 40,
    "occupied_of_ns": 160, "occupied_bp_ns": 160 * 2500,
}  # fmt: skip
TOTALS = {
    "eligible_tc_ns": 100, "eligible_kernel_ns": 125, "kernel_events_gpu_ns": 160, "kernel_events_flops": 8_000,
    "kernel_events_hardware_ps": 60_000, "kernel_events_model_ps": 30_000,
    "kernel_events_hardware_unknown_ns": 120,
    "kernel_events_flops_unknown_ns": 60, "unknown_events_gpu_ns": 20,
    "kernel_events_roofline_ns": 20, "kernel_events_roofline_unknown_ns": 80,
}  # fmt: skip
ONE = Worker(0, "rank0", 400, (100, 300), PART)
OTHER = Worker(1, "rank1", 200, (200,), dict.fromkeys(PARTS, 0) | {"cpu": 200})
GPU = Device(0, 0, 400, SUMS, "a", 5, 80)
IDLE = Device(0, 1, 400, {}, "a", 0, 80)
HALF = Device(1, 0, 200, dict.fromkeys(SUMS, 0) | {"busy_ns": 20, "kernel_busy_ns": 20, "kernel_ns": 20}, "b", 2, None)
FACTS = {
    "worker.a.overhead.sites_ns": "30", "worker.b.overhead.sites_ns": "20", "worker.b.pauses_ns": "10",
    "overhead.window_ns": "300",  # the same in both
}  # fmt: skip
WINDOW = Window((ONE, OTHER), (GPU, IDLE, HALF), TOTALS, FACTS)

EXPECTED = {
    "wall_time": 400,  # of the slower worker
    "iterations": 2,
    "average_iteration": 200.0,  # (400 + 200) / 3
    "median_iteration": 200,
    "iteration_std": pytest.approx((20_000 / 3) ** 0.5),  # of 100, 300, 200
    "iteration_variation": pytest.approx(100 * (20_000 / 3) ** 0.5 / 200),
    "gpu_utilization": pytest.approx(100 / 3),  # 180 + 20 of 400 + 200; the idle device is none of them
    "gpu_idle": pytest.approx(200 / 3),
    "kernel_utilization": pytest.approx(17_000 / 600),  # 150 + 20
    "gpu_utilization_visible": 20.0,  # of 400 + 400 + 200
    "tc_utilization": 80.0,  # 100 of 125
    "tc_unknown": 12.5,  # 20 of 160
    "tc_share": pytest.approx(100 * 100 / 600), "kernel_share": pytest.approx(100 * 50 / 600),
    "memory_share": 5.0, "dataloader_share": pytest.approx(100 * 20 / 600), "io_share": pytest.approx(10 / 6),
    "cpu_share": pytest.approx(100 * 350 / 600), "other_share": pytest.approx(100 * 40 / 600),
    "launch_late_share": pytest.approx(4_000 / 600),  # 40 of 400 + 200
    "exposed_communication_share": pytest.approx(2_000 / 600), "exposed_memory_share": 5.0,
    "communication_overlap": 60.0,  # 30 of 50
    "launch_delay": 12.0,  # 60 / 5
    "queue_depth": pytest.approx(8 / 6),  # 800 of 600
    "sync_wait_share": pytest.approx(100 / 6),
    "occupancy": 25.0,  # 2500 of 10,000
    "sm_efficiency": 20.0,  # 160 ns on 40 of 80, of 400 ns; nothing is known of the second device's
    "roofline_efficiency": 25.0,  # 20 of 160 - 80
    "roofline_coverage": 50.0,
    "achieved_flops": pytest.approx(8_000 / 600 * 1e9),
    "hfu": 10.0, "mfu": 5.0,  # 60 and 30 of 400 + 200
    "hfu_coverage": 25.0,  # 40 of 160
    "flops_coverage": 62.5,  # 100 of 160
    "profiler_overhead": 60, "profiler_overhead_share": 10.0,  # of 2 * 300
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_a_figure_is_what_a_hand_works_out(name):
    assert value(name, WINDOW) == EXPECTED[name]


WITHOUT_GPU = Window((ONE,), (), {"kernel_events_gpu_ns": 160, "eligible_kernel_ns": 9}, {"gpu": "none", "io": "none"})
KNOWN_WITHOUT = {
    "wall_time", "iterations", "average_iteration", "median_iteration", "iteration_std", "iteration_variation",
    "dataloader_share", "cpu_share", "other_share",
}  # fmt: skip


def test_without_a_gpu_what_needs_one_is_unknown_and_not_zero():
    totals = WITHOUT_GPU.totals | {f"kernel_events_{n}_unknown_ns": 160 for n in ("flops", "roofline")}
    window = Window(WITHOUT_GPU.workers, (), totals, WITHOUT_GPU.facts)
    assert {name for name in METRICS if value(name, window) is not None} == KNOWN_WITHOUT | {"flops_coverage"}
    assert value("flops_coverage", window) == 0  # of the operator events' time


@pytest.mark.parametrize(
    ("facts", "overhead", "share_of_it"),
    [
        ({"overhead.sites_ns": "30", "overhead.window_ns": "300"}, 60, 10.0),  # as much in both
        ({"overhead.sites_ns": "0", "overhead.window_ns": "300", "pauses_ns": "15"}, 30, 5.0),
        ({"overhead.sites_ns": "30"}, 60, None),
        (
            {"worker.a.overhead.sites_ns": "30", "overhead.window_ns": "300"},
            None,
            None,
        ),  # the other does not say
        ({"pauses_ns": "15", "overhead.window_ns": "300"}, None, None),
        ({"overhead.sites_ns": "many", "overhead.window_ns": "300"}, None, None),
        ({"overhead.sites_ns": "30", "overhead.window_ns": "0"}, 60, None),
    ],
)
def test_what_recording_took_is_unknown_where_one_recording_does_not_say(facts, overhead, share_of_it):
    window = Window((ONE, OTHER), (), {}, facts)
    assert (value("profiler_overhead", window), value("profiler_overhead_share", window)) == (
        overhead,
        share_of_it,
    )


def test_of_nothing_nothing_is_known():
    empty = Window((), (), {})
    assert {name for name in METRICS if value(name, empty) is not None} == set()
    still = Window(
        (Worker(0, "rank0", 0, (0,), dict.fromkeys(PARTS, 0)),),
        (GPU.__class__(0, 0, 0, SUMS, "a", 1, 80),),
        {},
    )
    assert value("gpu_utilization", still) is None
    assert value("tc_share", still) is None
    assert value("average_iteration", still) == 0


def test_every_figure_has_a_definition_and_every_share_a_denominator():
    for one in METRICS.values():
        assert one.text.endswith(".")
        if one.unit == "%":
            assert one.denominator or one.name in ("gpu_idle",)
    assert share(1, 3) == 100 / 3
    assert len({one.heading for one in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize(
    ("capability", "threads", "shared"),
    [((7, 5), 1024, 65536), ((8, 0), 2048, 167936), ((9, 0), 2048, 233472)],
)
def test_multiprocessors_are_those_of_the_programming_guide(capability, threads, shared):
    chip = of_capability(*capability, 40)
    assert chip is not None
    assert (chip.threads, chip.shared_memory, chip.registers) == (threads, shared, 65536)
    assert of_capability(5, 2, 24) is None

# SPDX-License-Identifier: Apache-2.0
"""A recording without a GPU: the operators' own times, and no word about GPUs.

The numbers are worked out from the lines of the recording: a product of 80 ns, 60 of them in what it calls; two relus
of 50 and 70 ns; 10 ns between them.
"""

from __future__ import annotations

from pyprof.metrics import METRICS
from tests.reports.test_oracle import rows


def test_figures_that_need_a_gpu_are_unknown(on_cpu):
    window = on_cpu.source().window
    known = {name: one.function(window) for name, one in METRICS.items() if one.function(window) is not None}
    assert set(known) == {
        "wall_time", "iterations", "average_iteration", "median_iteration", "iteration_std", "iteration_variation",
        "dataloader_share", "cpu_share", "other_share", "achieved_flops", "flops_coverage",
    }  # fmt: skip
    assert known["wall_time"] == 220
    assert known["cpu_share"] == 100 * 200 / 220
    assert known["other_share"] == 100 * 20 / 220


def test_gpu_time_is_own_time_and_adds_up(on_cpu):
    detail = {row["op_id"]: row for row in rows(on_cpu.report("detail"))}
    assert {k: (r["calls"], r["cpu"], r["gpu"], r["kernels"]) for k, r in detail.items()} == {
        "MM_1": (1, 80, 80, 2), "RELU_1": (2, 120, 120, 4),
    }  # fmt: skip
    assert (detail["RELU_1"]["gpu_min"], detail["RELU_1"]["gpu_avg"], detail["RELU_1"]["gpu_max"]) == (
        50,
        60.0,
        70,
    )
    for row in detail.values():
        for key in ("idle", "overhead", "idle_avg", "overhead_max", "tc", "tc_kernels", "using_tc"):
            assert row[key] is None
    own = [(r["kernel"], r["dur"]) for r in rows(on_cpu.report("iteration"))]
    assert own == [
        ("mm", 20),
        ("aten::mm", 60),
        ("relu", 20),
        ("aten::relu", 30),
        ("relu", 20),
        ("aten::relu", 50),
    ]
    root = rows(on_cpu.report("group_node"))[0]
    assert (root["cpu"], root["gpu"], root["idle"], root["using_tc"]) == (200, 200, None, None)


def test_the_summary_has_no_zero_for_what_is_unknown(on_cpu):
    table = rows(on_cpu.report("summary"))
    value = {(r["name"], r["figure"]): r["value"] for r in table}
    assert value["All ops", "GPU Time"] == value["All kernels", "GPU Time, Summed"] == 200
    assert value["All kernels", "Calls"] == value["All other kernels", "Calls"] == 6
    for name in ("Ops using TC", "Ops eligible for TC but not using", "Kernels using TC", "Memory"):
        assert {v for (n, _), v in value.items() if n == name} == {None}
    assert value["All kernels", "API Time"] is None

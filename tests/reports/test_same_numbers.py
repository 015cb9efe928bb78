# SPDX-License-Identifier: Apache-2.0
"""Reports, database and API give the same number for the same thing: a walk over all of them, on recordings with and
without a GPU, for all iterations and for some."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from pyprof import metrics, profiles
from tests.reports.test_oracle import plain, rows

SUMS = {"calls": "calls", "cpu": "cpu_ns", "gpu": "gpu_ns", "overhead": "overhead_ns", "idle": "idle_ns",
        "kernels": "kernels", "tc_kernels": "tc_kernels", "kernel": "kernel_ns", "tc": "tc_ns"}  # fmt: skip


PUBLISHED = "kineto/mi300_vllm_prefilldecode_piecewise"


@pytest.fixture(params=["cpu", "peers", "second step", "one worker", PUBLISHED])
def some(request, prof, on_cpu, with_peers) -> tuple[profiles.Profile, int | None]:
    if request.param == PUBLISHED:
        return request.getfixturevalue("recorded")(PUBLISHED), None
    one: profiles.Profile = {"cpu": on_cpu, "peers": with_peers}.get(request.param, prof)
    one.aggregate(1, 1) if request.param == "second step" else one.aggregate(0, 0 if one is on_cpu else 1)
    return one, 0 if request.param == "one worker" else None


def chosen(frame: pd.DataFrame, prof: profiles.Profile) -> pd.DataFrame:
    one = prof.aggregation
    return frame[frame["step"].between(one.first, one.last)]


def total(values: pd.Series) -> int | None:
    """None if nothing is known."""
    return None if values.isna().all() else int(values.sum())


def test_operators_add_up_to_their_types_groups_and_the_summary(some):
    prof, worker = some
    detail, types = prof.report("detail", worker), prof.report("op_type", worker)
    root = rows(prof.report("group_node", worker))[0]
    assert root["name"] == "/"
    ops = chosen(prof.ops, prof)
    ops = ops.assign(calls=1)
    totals = prof.source(worker).window.totals
    summary = prof.report("summary", worker)
    shown = {(r["name"], r["figure"]): r["value"] for r in rows(summary)}
    for name, column in SUMS.items():
        expected = total(ops[column])
        assert total(detail[name]) == expected, name
        if name in types:
            assert total(types[name]) == expected
            assert root[name] == expected
        if expected is not None:
            assert totals[column] == expected
    assert total(types["tc_unknown"]) == total(detail["tc_unknown"]) == root["tc_unknown"]
    assert shown["All ops", "GPU Time"] == total(ops["gpu_ns"])
    assert shown["All ops", "CPU Time"] == total(ops["cpu_ns"])
    assert shown["All ops", "Calls"] == len(ops) == root["calls"]
    assert shown["All ops", "Ops"] == len(detail) == root["ops"] == types["ops"].sum()


def test_every_operator_is_the_sum_of_its_executions(some):
    prof, worker = some
    ops = chosen(prof.ops, prof)
    for row in rows(prof.report("detail", worker)):
        mine = ops[ops["op_id"] == row["op_id"]]
        assert row["calls"] == len(mine)
        for name in ("cpu", "gpu", "overhead", "idle"):
            known = mine[f"{name}_ns"].notna().all()
            for end, how in (("", "sum"), ("_min", "min"), ("_max", "max")):
                assert row[name + end] == (int(getattr(mine[f"{name}_ns"], how)()) if known else None)
            assert row[f"{name}_avg"] == (row[name] / row["calls"] if known else None)


def test_events_are_those_of_the_data_frame_and_add_up_to_kernels_and_the_summary(some):
    prof, worker = some
    report, frame = prof.report("iteration", worker), chosen(prof.kernels, prof).sort_index()
    for key, other in (("dur", "duration_ns"), ("start", "start_ns"), ("launch", "launch_ns"), ("stream", "stream"),
                       ("op_id", "op_id"), ("iteration", "step"), ("kernel", "name"), ("long_name", "full_name"),
                       ("launch_dur", "launch_duration_ns"), ("worker", "worker")):  # fmt: skip
        assert [plain(v) for v in report[key]] == [plain(v) for v in frame[other]], key
    kernels = prof.report("kernel", worker)
    shown = {(r["name"], r["figure"]): r["value"] for r in rows(prof.report("summary", worker))}
    assert total(report["dur"]) == total(kernels["gpu"]) == shown["All kernels", "GPU Time, Summed"]
    assert len(report) == kernels["calls"].sum() == shown["All kernels", "Calls"]
    assert total(report["launch_dur"]) == total(kernels["api"]) == shown["All kernels", "API Time"]
    parts = [shown[name, "Calls"] for name in ("Kernels using TC", "Memory", "All other kernels")]
    assert sum(part or 0 for part in parts) == len(report)


def test_figures_of_the_summary_are_those_of_the_metrics_and_of_the_steps(some):
    prof, worker = some
    window = prof.source(worker).window
    shown = {r["name"]: r for r in rows(prof.report("summary", worker)) if r["figure"] is None}
    for one in metrics.METRICS.values():
        row = shown[one.heading]
        assert (row["value"], row["unit"], row["definition"]) == (one.function(window), one.unit, one.text)
    steps = prof.steps[prof.steps["aggregated"]]
    assert shown["Wall Clock Time"]["value"] == steps["duration_ns"].sum() == window.wall
    for part in metrics.PARTS:
        assert sum(w.parts[part] for w in window.workers) == steps[f"{part}_ns"].sum()
    assert sum(steps[f"{part}_ns"].sum() for part in metrics.PARTS) == window.wall


def test_devices_are_those_of_the_window(some):
    prof, _ = some
    window = prof.source().window
    used = [d for d in window.devices if d.events]
    shares = prof.devices[prof.devices["events"] > 0]["utilization"].tolist()
    assert shares == [metrics.share(d.sums["busy_ns"], d.wall) for d in used]
    if used:
        assert metrics.value("gpu_utilization", window) == math.fsum(shares) / len(shares)


def test_communication_is_that_of_the_steps(some):
    """Of steps that the host bounds, without work that reaches beyond them."""
    prof, worker = some
    if prof.source(worker).aggregation.first:
        return
    sums = [device.sums for device in prof.source(worker).window.used]
    overlap = prof.report("overlap", worker)
    for key, column in (("communication_ns", "communication_ns"), ("exposed_communication_ns", "exposed_ns"),
                        ("exposed_memory_ns", "memory_ns")):  # fmt: skip
        assert sum(one[key] for one in sums) == overlap[column].sum()
    assert all(one["exposed_communication_ns"] <= one["communication_ns"] for one in sums)


def test_the_tensor_report_has_the_detail_reports_numbers(some):
    prof, worker = some
    detail = {row["op_id"]: row for row in rows(prof.report("detail", worker))}
    tensor = rows(prof.report("tensor", worker))
    assert {row["op_id"] for row in tensor} == {k for k, row in detail.items() if row["eligible"]}
    for row in tensor:
        same: dict[str, Any] = {key: detail[row["op_id"]][key] for key in row if key in detail[row["op_id"]]}
        assert {key: row[key] for key in same} == same
    if prof.source().gpu:
        assert sum(r["tc"] for r in tensor) == prof.source(worker).window.totals["eligible_tc_ns"]
    else:
        assert {r[k] for r in tensor for k in ("tc", "other", "utilization", "tc_kernels", "using_tc")} == {None}


def test_occupancy_of_the_small_recording_by_hand(prof):
    """80 multiprocessors of 2048 threads. 40 blocks of 128 threads: half a block each, 3.12 %; one block of 32: 0.02 %;
    200 blocks of 256: 31.25 %. The second device's kernel is left out: nothing is known of its multiprocessors."""
    prof.aggregate(0, 1)
    tc, one, pointwise, mystery = 2 * 70, 2 * 30, 12, 8 + 8 + 6 + 5
    weighted = tc * 3.12 + one * 0.02 + pointwise * 31.25 + mystery * 0.02
    window = prof.source().window
    assert metrics.value("occupancy", window) == pytest.approx(weighted / (tc + one + pointwise + mystery))
    filled = tc * 40 + one * 1 + pointwise * 80 + mystery * 1
    assert metrics.value("sm_efficiency", window) == pytest.approx(100 * filled / (80 * window.wall))


@pytest.mark.parametrize("by", ["step", "operator", "kernel"])
def test_a_published_recording_differs_from_itself_in_nothing(by, recorded):
    one = recorded(PUBLISHED)
    difference = rows(one.diff(one, by))
    assert difference
    assert {row[key] for row in difference for key in row if key.startswith("delta")} <= {0, None}

# SPDX-License-Identifier: Apache-2.0
"""Time by category of work, worked out from the lines of the recordings in conftest.py."""

from __future__ import annotations

import pytest

from tests.reports.test_oracle import rows

# calls, time, busy, with tensor cores, without, unknown. In each step the product on stream 8 (30 ns) runs while the
# other (70 ns) does; the kernel of cross_entropy has a name that tells nothing; the last two have no operator.
GPU = {
    "gemm": (4, 200, 140, 140, 60, 0),
    "copy": (4, 68, 68, 0, 68, 0),
    "elementwise": (2, 24, 24, 0, 24, 0),
    "reduction": (2, 16, 16, 0, 16, 0),
    "other": (2, 11, 11, 0, 0, 11),
}


def test_every_event_is_in_one_category(prof):
    found = rows(prof.report("categories"))
    keys = ("calls", "time_ns", "busy_ns", "tc_ns", "no_tc_ns", "tc_unknown_ns")
    assert {row["category"]: tuple(row[key] for key in keys) for row in found} == GPU
    assert sum(row["share"] for row in found) == pytest.approx(100)
    assert [row["share"] for row in found] == [pytest.approx(100 * GPU[r["category"]][1] / 319) for r in found]


def test_flops_and_bytes_and_what_is_unknown_of_them(prof):
    found = {row["category"]: row for row in rows(prof.report("categories"))}
    assert found["gemm"]["flops"] == 2 * (2 * 64 * 32 * 16)
    assert found["copy"]["bytes"] == 2 * (4096 + 64)
    assert (found["other"]["flops"], found["other"]["flops_unknown_ns"]) == (None, 11)
    assert (found["other"]["bytes"], found["other"]["bytes_unknown_ns"]) == (None, 11)
    assert found["gemm"]["flops_unknown_ns"] == 0


@pytest.mark.parametrize("which", ["prof", "on_cpu"])
@pytest.mark.parametrize("by", ["category", "kind", "operator"])
def test_times_add_up_to_those_of_all_events(which, by, request):
    profile = request.getfixturevalue(which)
    table = profile.report("categories", by=by)
    events = profile.report("iteration")
    assert table["time_ns"].sum() == events["dur"].sum()
    assert table["calls"].sum() == len(events)
    assert table["share"].sum() == pytest.approx(100)
    coarse = profile.report("categories").set_index("category")["time_ns"].to_dict()
    assert table.groupby("category")["time_ns"].sum().to_dict() == coarse


def test_what_is_in_a_category(prof):
    found = [(r["category"], r["kind"], r["operator"]) for r in rows(prof.report("categories", by="operator"))]
    assert ("reduction", "other", "cross_entropy") in found
    assert ("other", "other", None) in found


def test_without_a_gpu_operators_go_by_their_family(on_cpu):
    found = {row["category"]: row for row in rows(on_cpu.report("categories"))}
    # mm: 20 of torch.mm, 60 of aten::mm; relu: 20 + 30 and 20 + 50
    assert {name: (row["calls"], row["time_ns"]) for name, row in found.items()} == {
        "gemm": (2, 80), "elementwise": (4, 120),
    }  # fmt: skip
    assert {row[key] for row in found.values() for key in ("busy_ns", "tc_ns", "no_tc_ns", "tc_unknown_ns")} == {None}


def test_nothing_launched_is_no_row(prof):
    prof.aggregate(1, 1)
    one = {row["category"]: row["calls"] for row in rows(prof.report("categories"))}
    prof.aggregate(0, 1)
    assert one == {"gemm": 2, "copy": 2, "elementwise": 1, "reduction": 1, "other": 2}

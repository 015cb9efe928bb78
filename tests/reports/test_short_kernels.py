# SPDX-License-Identifier: Apache-2.0
"""The histogram of kernel times: bounds, empty ranges, and who launches the short ones."""

from __future__ import annotations

import pytest

from tests.build import call, recording
from tests.reports.test_oracle import load, rows

RELU = call("torch.relu", (4, 4))
# 999, 1000, 1999, 2000, 4999 ns and 30 us; a copy, which is no kernel, and a kernel of no operator (7 us)
TEXT = f"""
{RELU}
    > 999 a
    > 1000 b
    > 30000 b
{call("torch.mm", (4, 4), (4, 4))}
    > 1999 c
    > 2000 c
    > 4999 c
    > 500 size=64 copy_kind=1 copy
> 7000 d
"""
TIME = 999 + 1000 + 30000 + 1999 + 2000 + 4999 + 7000


def test_a_bound_belongs_to_the_range_that_begins_with_it():
    found = rows(load(recording(TEXT)).report("short_kernels"))
    assert [(r["from_ns"], r["to_ns"], r["kernels"], r["time_ns"]) for r in found] == [
        (0, 1000, 1, 999), (1000, 2000, 2, 2999), (2000, 5000, 2, 6999), (5000, 10_000, 1, 7000),
        (10_000, 20_000, 0, 0), (20_000, 50_000, 1, 30_000),
    ]  # fmt: skip
    assert [r["kernels_share"] for r in found] == [pytest.approx(100 * n / 7) for n in (1, 2, 2, 1, 0, 1)]
    assert [r["kernels_cumulative"] for r in found] == [pytest.approx(100 * n / 7) for n in (1, 3, 5, 6, 6, 7)]
    assert found[2]["time_cumulative"] == pytest.approx(100 * (999 + 2999 + 6999) / TIME)
    assert found[-1]["time_cumulative"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("2us", [("relu", 2, 1999, 3), ("mm", 1, 1999, 3)]),
        ("5us", [("mm", 3, 8998, 3), ("relu", 2, 1999, 3)]),
        ("10us", [("mm", 3, 8998, 3), ("relu", 2, 1999, 3), (None, 1, 7000, 1)]),
        ("1us", [("relu", 1, 999, 3)]),
    ],
)
def test_operators_with_kernels_below_a_limit(below, expected):
    found = rows(load(recording(TEXT)).report("short_kernels", by="operator", below=below))
    assert [(r["operator"], r["kernels"], r["time_ns"], r["of_kernels"]) for r in found] == expected
    assert [r["mean_ns"] for r in found] == [r["time_ns"] / r["kernels"] for r in found]
    assert [r["time_share"] for r in found] == [pytest.approx(100 * r["time_ns"] / TIME) for r in found]


def test_it_has_all_kernels(prof):
    table, events = prof.report("short_kernels"), prof.report("kernel_summary")
    assert (table["kernels"].sum(), table["time_ns"].sum()) == (
        events["calls"].sum(),
        events["total_ns"].sum(),
    )


def test_without_kernels_it_is_empty(on_cpu):
    for by in ("time", "operator"):
        assert rows(on_cpu.report("short_kernels", by=by)) == []

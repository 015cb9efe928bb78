# SPDX-License-Identifier: Apache-2.0
"""Report ranks: every rank in every step, and of many only those that say something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from tests.reports.ranks import K, run
from tests.reports.simulated import Plan, files, plan, write
from tests.reports.test_communication import reduce, table

US = 1000  # ns
STEPS = 8


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def on_time(rank: int) -> list[K]:
    """Two steps of 1000 us: 100 us of computation, and 200 us in a collective that ends at 500 us."""
    return [one for start in (0, 1000) for one in (K("gemm", start + 100, 100), reduce(start + 300, 200, start))]


def late_by(time: int) -> list[K]:
    """The same, later to the collective of the second step."""
    kernels = on_time(0)
    return [*kernels[:3], reduce(1300 + time, 200 - time, 1000)]


def marked(folder: Path, ranks: list[list[K]], **more: Any) -> profiles.Profile:
    return run(folder, ranks, [(0, 1000), (1000, 2000)], **more)


def test_a_rank_that_differs_has_a_row_and_the_others_are_counted(tmp_path):
    """Of four ranks one comes 100 us later to a collective, in which it therefore is for 100 us less."""
    prof = marked(tmp_path, [on_time(0), on_time(1), late_by(100), on_time(3)])
    row, note = table(prof, "ranks")
    assert (row["worker"], row["step"], row["start"], row["total_ns"]) == ("rank2", 6, 1000 * US, 1000 * US)
    assert (row["late_ns"], row["times_last"], row["collectives"]) == (100 * US, 1, 1)
    assert (row["dataloader_ns"], row["communication_ns"], row["busy_ns"]) == (0, 100 * US, 200 * US)
    assert note["worker"] is None
    assert note["note"].startswith("7 of 8 rows are not shown: within 3 % of the step from the median of the ranks")
    assert "of 3 of 4 ranks in all of their steps" in note["note"]
    every = table(prof, "ranks", rows="all")
    assert [(one["worker"], one["step"], one["late_ns"]) for one in every] == [
        ("rank2", 6, 100 * US), *((f"rank{rank}", 5, 0) for rank in range(4)),
        *((f"rank{rank}", 6, 0) for rank in (0, 1, 3)),
    ]  # fmt: skip
    assert {one["communication_ns"] for one in every[1:]} == {200 * US}
    assert {one["busy_ns"] for one in every[1:]} == {300 * US}


def test_late_is_after_the_median_rank(tmp_path):
    """Rank 0 comes 200 us before the two in the middle: they are not late for that."""
    prof = marked(tmp_path, [late_by(-200), on_time(1), on_time(2), late_by(100)])
    late = {row["worker"]: row["late_ns"] for row in table(prof, "ranks", rows="all") if row["step"] == 6}
    assert late == {"rank0": 0, "rank1": 0, "rank2": 0, "rank3": 100 * US}


@pytest.mark.parametrize(("time", "shown"), [(31, 1), (30, 0)])
def test_within_three_percent_of_the_step_is_like_the_others(tmp_path, time, shown):
    prof = marked(tmp_path, [on_time(0), on_time(1), late_by(time), on_time(3)])
    assert len(table(prof, "ranks")) == shown + 1


def test_two_ranks_are_both_shown(tmp_path):
    """The median of two is neither."""
    rows = table(marked(tmp_path, [on_time(0), late_by(1)]), "ranks")
    assert len(rows) == 4
    assert {row["note"] for row in rows} == {None}


def test_one_worker_is_compared_with_all(tmp_path):
    prof = marked(tmp_path, [on_time(0), on_time(1), late_by(100), on_time(3)])
    assert [row["late_ns"] for row in table(prof, "ranks", worker=2)] == [100 * US, None]
    (note,) = table(prof, "ranks", worker=1)
    assert note["note"].startswith("2 of 2 rows are not shown")
    assert "of 1 of 1 ranks" in note["note"]


def test_lateness_is_that_of_stragglers(tmp_path):
    """Where a rank was last: late less what the median rank was late."""
    prof = profiles.load(write(tmp_path, files(plan(3, "operator"), STEPS, 3)))
    rows = table(prof, "ranks", rows="all")
    last = {row["worker"]: row for row in table(prof, "stragglers", by="rank")}
    for worker, row in last.items():
        mine = [one for one in rows if one["worker"] == worker]
        assert sum(one["times_last"] for one in mine) == row["times_last"]
        assert sum(one["late_ns"] for one in mine) >= row["late_ns"] - row["median_ns"]
    lengths = {(row["worker"], row["step"]): row["total_ns"] for row in table(prof, "step_time")}
    assert {(row["worker"], row["step"]): row["total_ns"] for row in rows} == lengths


def planted(folder: Path, fault: str) -> tuple[Plan, list[dict[str, Any]]]:
    what = plan(6, fault)._replace(ranks=5, guilty=3, offset=[0] * 5, drift=[0.0] * 5, late_start=[0] * 5)
    return what, table(profiles.load(write(folder, files(what, STEPS, 6))), "ranks")


def test_the_planted_rank_is_the_one_that_is_shown(tmp_path):
    what, rows = planted(tmp_path, "loader")
    late = [row for row in rows if row["worker"] == "rank3"]
    assert sorted(row["step"] for row in late) == list(range(STEPS))
    for row in late:
        assert row["late_ns"] == pytest.approx(what.extra, rel=0.1)
        assert row["dataloader_ns"] == pytest.approx(what.extra + 300 * US, rel=0.02)
    # The others are like each other. Their communication is the wait for rank 3, which has 2 x 400 us of transfer.
    assert {row["worker"] for row in rows if row["worker"]} == {"rank3"}
    assert f"{4 * STEPS} of {5 * STEPS} rows are not shown" in rows[-1]["note"]


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ([[reduce(100, 50, 1)]], "one rank recorded"),
        ([[K("gemm", 100, 50)]] * 2, "no collective on a GPU was recorded"),
        ([[reduce(100, 50, None, None)], [reduce(100, 50, None, None), reduce(200, 50, None, None)]],
         "ranks have unequal counts and no sequence numbers"),
    ],
    ids=["one", "none", "apart"],
)  # fmt: skip
def test_why_lateness_is_not_known(tmp_path, ranks, reason):
    rows = table(marked(tmp_path, ranks, world=2), "ranks", rows="all")
    assert {row["late_ns"] for row in rows} == {None}
    assert rows[-1]["note"] == f"How late ranks were is not known: {reason}."

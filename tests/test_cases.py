# SPDX-License-Identifier: Apache-2.0
"""Small inputs after public bug reports (cases/README.md of the recordings of others): the right answers, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyprof import profiles

Load = Callable[[str], profiles.Profile]


@pytest.fixture
def case(data: Path) -> Load:
    """The one recording in the folder of a case, given by its first letters."""

    def load(name: str) -> profiles.Profile:
        (folder,) = (data / "cases").glob(f"{name}-*")
        files = [path for path in folder.iterdir() if path.suffix in (".json", ".sqlite")]
        return profiles.load(files[0] if len(files) == 1 else folder)

    if not (data / "cases").is_dir():
        pytest.skip("no cases among the recordings of others")
    return load


def times(prof: profiles.Profile) -> dict[str, int]:
    """ns on the device (without one: on the CPU) by type of operator."""
    table = prof.report("op_type")
    return dict(zip(table["type"], map(int, table["gpu"])))


def missing(prof: profiles.Profile) -> dict[str, int]:
    return dict(prof.database.rows("select reason, count from lost"))


@pytest.mark.parametrize(("name", "count", "every"), [("a01", 6, 6), ("a32", 20, 50)])
def test_launches_without_a_kernel(case: Load, name: str, count: int, every: int):
    prof = case(name)
    assert sum(missing(prof).values()) == count
    assert f"The work of {count} of {every} launches is not in the recording" in str(prof.overview)


def test_a_value_that_is_missing(case: Load):
    prof = case("a07")
    assert missing(prof) == {}
    assert prof.database.rows("select sum(duration_ns), count(*) from event where kind = 0") == [(420_000, 2)]
    assert prof.database.rows("select count(*) from collective") == [(1,)]


def test_a_path_of_windows(case: Load):
    (line,) = case("a10").report("source_line")["line"].tolist()
    assert line.endswith("new_model.py:219")


def test_events_that_had_not_ended(case: Load):
    prof = case("a35")
    (count,) = (number for reason, number in missing(prof).items() if "had not ended" in reason)
    assert count == 3
    end = prof.database.rows("select max(end_ns) from worker")[0][0]
    assert prof.database.rows("select count(*) from step where end_ns = ?", (end,)) == [(1,)]


def test_a_kernel_that_lasts_over_the_next_ones(case: Load):
    prof = case("a13")
    assert prof.database.rows("select max(duration_ns), count(*) from event where kind = 0") == [(100_000, 10)]
    assert "impossible times" in str(prof.findings["problem"].tolist())
    assert "Step 20.0 ms" in str(prof.overview)


def test_kernels_at_time_0(case: Load):
    """The first operator starts at 264.504 s, the last kernel ends 5.3 ms later."""
    prof = case("a14")
    assert prof.database.rows("select end_ns - start_ns from worker") == [(5_300_000,)]
    assert "impossible times" in str(prof.findings["problem"].tolist())
    assert all((one.finding.saving or 0) <= 5_300_000 for one in prof.outcomes if one.finding)


def test_external_ids_without_correlations(case: Load):
    prof = case("b02")
    assert times(prof) == {"mm": 8_720_000}
    coverage = prof.coverage
    assert set(coverage.loc[coverage["line"] == "operator", "part"]) == {"known"}


def test_two_kernels_that_share_a_correlation(case: Load):
    assert times(case("a34")) == {"mm": 400_000, "softmax": 1_200_000}


def test_ranks_merged_into_one_file(case: Load):
    assert any("give the folder" in reason for reason in missing(case("a12")))


def test_replays_of_graphs_as_a_whole(case: Load):
    prof = case("a23")
    step = prof.overview.figures.step
    assert round(step.busy or 0) == 81
    assert prof.database.rows("select count(*), sum(duration_ns) from event where kind = 4") == [(20, 16_000_000)]
    assert not {"R03", "R05", "R06"} & {one.rule.id for one in prof.outcomes if one.finding}


@pytest.mark.parametrize(("name", "expected"), [("a11", {"mm": 320_000}), ("a18", {"mm": 750_000})])
def test_events_without_a_category(case: Load, name: str, expected: dict[str, int]):
    prof = case(name)
    assert times(prof) == expected
    count = {"a11": 4, "a18": 5}[name]
    assert prof.database.rows("select count(*) from event where kind = 0") == [(count,)]


def test_products_of_an_xpu(case: Load):
    prof = case("a17")
    assert times(prof)["mm"] == 400_000
    assert prof.database.rows("select count(*) from event where kind = 1") == [(1,)]
    assert not prof.report("kernel_summary")["tc"].fillna(False).any()


def test_a_folder_with_a_front_end(case: Load):
    prof = case("a48")
    assert prof.database.rows("select rank from worker order by rank") == [(0,), (1,)]
    (reason,) = missing(prof)
    assert reason.endswith("host1_90.async_llm.1700000000000000009.pt.trace.json")

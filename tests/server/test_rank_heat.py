# SPDX-License-Identifier: Apache-2.0
"""Cells of ranks and steps: the figures of the report ranks, and of several in one cell the worst."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyprof import profiles
from pyprof.views import models, rank_heat
from pyprof.views.rank_heat import of_table, worst
from pyprof.views.rank_heat import table as table_of
from tests.reports.test_communication import table
from tests.reports.test_ranks import late_by, marked, on_time
from tests.server import planted_ranks as planted
from tests.server.conftest import Asking, serving
from tests.server.planted_ranks import ARRIVAL, FIRST

US = 1000  # ns


@pytest.fixture(scope="module")
def prof(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    ranks = [on_time(0), on_time(1), late_by(100), on_time(3), on_time(4)]
    return marked(tmp_path_factory.mktemp("ranks"), ranks)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("planted")
    profiles.load(planted.write(folder / "run")).save(folder / "run_dldb.sqlite")
    with serving(folder / "run_dldb.sqlite") as asking:
        yield asking


def cells(prof: profiles.Profile, figure: str) -> models.Heat:
    return of_table(table_of(prof.source())).of(figure)


@pytest.mark.parametrize("figure", ["total_ns", "late_ns", "dataloader_ns", "communication_ns", "busy_ns"])
def test_cells_are_the_rows_of_the_report(prof, figure):
    found = cells(prof, figure)
    rows = {(row["worker"], row["step"]): row[figure] for row in table(prof, "ranks", rows="all")}
    assert (found.workers, found.steps, found.lengths) == ([0, 1, 2, 3, 4], [5, 6], [1000 * US] * 2)
    assert (found.workers_per_row, found.steps_per_column, found.which) == (1, 1, None)
    assert found.values == [[rows[f"rank{rank}", step] for step in found.steps] for rank in found.workers]


@pytest.mark.parametrize(
    ("figure", "kept", "which"),
    [("late_ns", [0, 100, 0], [0, 1, 0]), ("busy_ns", [300, 200, 300], [0, 1, 0])],
)
def test_of_several_in_a_cell_the_worst_is_shown(prof, monkeypatch, figure, kept, which):
    """Two ranks and two steps a cell: that of ranks 2 and 3 has rank 2 in the second step, which is place 1."""
    monkeypatch.setattr(rank_heat, "RANKS", 3)
    monkeypatch.setattr(rank_heat, "STEPS", 1)
    found = cells(prof, figure)
    assert (found.workers_per_row, found.steps_per_column) == (2, 2)
    assert found.values == [[one * US] for one in kept]
    assert found.which == [[one] for one in which]


def test_a_cell_is_never_better_than_any_of_its_own():
    rng = np.random.default_rng(1)
    grid = rng.random((7, 11))
    grid[rng.random(grid.shape) < 0.2] = np.nan
    for least in (False, True):
        values, which = worst(grid, 3, 4, least)
        for row in range(3):
            for column in range(3):
                block = grid[3 * row : 3 * row + 3, 4 * column : 4 * column + 4]
                expected = np.nanmin(block) if least else np.nanmax(block)
                assert values[row, column] == expected
                at = divmod(int(which[row, column]), 4)
                assert grid[3 * row + at[0], 4 * column + at[1]] == expected


def test_what_is_not_known_is_no_number(tmp_path):
    prof = marked(tmp_path, [on_time(0), on_time(1), on_time(2)[:3]])  # rank 2 is not in the second collective
    rows: Any = cells(prof, "late_ns").values
    assert rows == [[0, None], [0, None], [0, None]]


def test_the_page_is_told(server: Asking):
    """Rank 3 has no second step."""
    found = server.json("/api/ranks/heat", figure="late_ns")
    middle = sorted(ARRIVAL)[1], sorted(ARRIVAL[:3])[1]
    assert found["steps"] == [FIRST, FIRST + 1]
    expected: Any = [[max(arrival - one, 0) for one in middle] for arrival in ARRIVAL]
    expected[3][1] = None
    assert found["values"] == expected
    assert (found["heading"], found["worst"], found["which"]) == ("Late", "most", None)
    one = server.json("/api/ranks/heat", figure="busy_ns", worker=2)
    assert (one["workers"], one["worst"]) == ([2], "least")
    server.json("/api/ranks/heat", status=422, figure="nothing")

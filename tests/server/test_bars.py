# SPDX-License-Identifier: Apache-2.0
"""Iterations as bars."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof.views.column_table import from_rows
from pyprof.views.iteration_bars import bars
from pyprof.views.iteration_tables import ITERATION
from tests.server.conftest import STEPS, Asking

NAMES = [column.key for column in ITERATION]


def row(worker: int, number: int, duration: int, tc: int | None) -> list[Any]:
    given = {"worker": "w", "worker_id": worker, "iteration": number, "duration": duration, "tc": tc}
    parts = dict.fromkeys(("kernel", "memory", "dataloader", "io", "cpu", "other"), 1)
    return [(given | parts).get(name) for name in NAMES]


def test_means_of_workers_and_of_neighbours():
    # Worker 1 has no iteration 4; the second worker's tensor cores are unknown in iteration 1.
    rows = [row(0, n, 100 * n, 10 * n) for n in range(5)] + [
        row(1, n, 100 * n + 50, None if n == 1 else 10 * n + 6) for n in range(4)
    ]
    frame = from_rows(rows, ITERATION)
    one = bars(frame, 1, 3, None)
    assert (one.number, one.until, one.count) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [1] * 5)
    assert one.duration == [25, 125, 225, 325, 400]
    assert one.parts["tc"] == [3, 10, 23, 33, 40]
    assert one.outside == [True, False, False, False, True]
    # Two a bar: 0 is outside and is left out of the first mean, 4 is alone in its bar.
    two = bars(frame, 1, 3, 3)
    assert (two.number, two.until, two.count) == ([0, 2, 4], [1, 3, 4], [1, 2, 1])
    assert two.duration == [125, 275, 400]
    assert two.parts["tc"] == [10, 28, 40]
    assert two.outside == [False, False, True]
    assert two.total == 5


def test_what_is_unknown_stays_so():
    frame = from_rows([row(0, n, 10, None) for n in range(4)], ITERATION)
    assert bars(frame, 0, 3, 2).parts["tc"] == [None, None]


def test_no_iteration():
    found = bars(from_rows([], ITERATION), 0, 0, 300)
    assert (found.number, found.duration, found.total) == ([], [], 0)


@pytest.mark.parametrize("most", [None, 1000])
def test_bars_are_the_iterations(client: Asking, most: int | None):
    found = client.json("/api/iterations/bars", **({"most": most} if most else {}))
    rows = client.table("/api/iterations")
    assert found["number"] == [row["iteration"] for row in rows] == list(range(STEPS))
    assert found["duration"] == [row["duration"] for row in rows]
    for part, values in found["parts"].items():
        assert values == [row[part] for row in rows]

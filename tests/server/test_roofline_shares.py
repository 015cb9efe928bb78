# SPDX-License-Identifier: Apache-2.0
"""The share of the roofline of each event: what the database has of it, and what is unknown."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.views.roofline import UNKNOWN
from tests.server import planted_ranks as planted
from tests.server.conftest import Asking, serving


def shares(client: Asking, worker: int = 0) -> list[int]:
    answer = client.http.get("/api/timeline/roofline", params={"worker": worker})
    assert answer.status_code == 200, answer.text
    return list(answer.content)


def test_shares_are_those_of_the_events(copied: Callable[[], Path]) -> None:
    """Every case of length and roofline time, by turns, on kernels; copies have no roofline."""
    cases = [
        (200, 0, 0), (200, 1, 0), (200, 19, 9), (200, 20, 10), (200, 199, 99), (200, 200, 100), (100, 253, 253),
        (100, 254, 254), (100, 9999, 254), (200, None, UNKNOWN), (0, 10, UNKNOWN), (200, -1, UNKNOWN),
    ]  # fmt: skip
    path = copied()
    expected = {}
    with closing(sqlite3.connect(path)) as database:
        events = database.execute("select id, kind from event order by id").fetchall()
        kernels = [number for number, kind in events if kind == 0]
        assert len(kernels) >= len(cases)
        assert len(events) > len(kernels)
        for place, number in enumerate(kernels):
            length, roofline, share = cases[place % len(cases)]
            database.execute(
                "update event set duration_ns = ?, roofline_ns = ?, hardware_ps = ? where id = ?",
                (length, roofline, roofline, number),
            )
            expected[number] = share
        database.execute("update event set roofline_ns = duration_ns where kind != 0")
        database.commit()
    with serving(path) as client:
        assert shares(client) == [expected.get(number, UNKNOWN) for number, _ in events]


def test_a_kernel_whose_work_another_carries_has_no_share(copied: Callable[[], Path]) -> None:
    path = copied()
    with closing(sqlite3.connect(path)) as database:
        kernels = [row[0] for row in database.execute("select id from event where kind = 0 order by id")]
        places = [row[0] for row in database.execute("select id from event order by id")]
        database.execute("update event set roofline_ns = 0, hardware_ps = 0")
        database.execute("insert into verdict values (1000, '-', '-')")
        database.execute("update event set verdict = 1000 where id = ?", (kernels[0],))
        database.commit()
    with serving(path) as client:
        found = dict(zip(places, shares(client)))
    assert (found[kernels[0]], found[kernels[1]]) == (UNKNOWN, 0)


def test_an_algorithm_that_executes_an_unknown_number_of_flops_has_no_share(
    copied: Callable[[], Path],
) -> None:
    path = copied()
    with closing(sqlite3.connect(path)) as database:
        events = database.execute("select id, kind from event order by id").fetchall()
        first, *others = [number for number, kind in events if kind == 0]
        database.execute("update event set roofline_ns = duration_ns, hardware_ps = 1 where kind = 0")
        database.execute("update event set hardware_ps = null where id = ?", (first,))
        database.commit()
    with serving(path) as client:
        found = dict(zip([number for number, _ in events], shares(client)))
    assert found[first] == UNKNOWN
    assert {found[number] for number in others} == {100}


def test_each_worker_has_its_own(tmp_path: Path) -> None:
    profiles.load(planted.write(tmp_path / "run")).save(tmp_path / "run_dldb.sqlite")
    with closing(sqlite3.connect(tmp_path / "run_dldb.sqlite")) as database:
        database.execute("update event set roofline_ns = duration_ns * (id >> 40) / 2, hardware_ps = 0")
        database.commit()
        counts = dict(database.execute("select id >> 40, count(*) from event group by 1"))
    with serving(tmp_path / "run_dldb.sqlite") as client:
        for worker, count in counts.items():
            # Half of an odd length is rounded down to whole ns.
            assert [round(share / 50) for share in shares(client, worker)] == [worker] * count
        assert client.json("/api/timeline/roofline", status=422, worker=99)["parameter"] == "worker"


@pytest.mark.parametrize("number", [1 << 39, (1 << 40) - 1])
def test_numbers_that_are_far_apart(copied: Callable[[], Path], number: int) -> None:
    path = copied()
    with closing(sqlite3.connect(path)) as database:
        database.execute("update event set id = ? where id = (select max(id) from event)", (number,))
        database.commit()
    with serving(path) as client:
        assert client.json("/api/timeline/roofline", status=409, worker=0)["type"] == "damaged"

# SPDX-License-Identifier: Apache-2.0
"""Causes of lateness in a fleet are those of all recordings on one machine: what each rank did between moments that it
may share with others is enough for them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyprof
from pyprof import fleet
from pyprof.core.errors import FormatError
from pyprof.facts.device.timeline import Activity
from pyprof.facts.ranks import rank_work
from pyprof.profiles import Profile
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from tests.reports import simulated
from tests.reports.ranks import K, trace
from tests.reports.test_delays import op, random_files

PART = {
    "loader": "dataloader", "operator": "host", "kernel": "kernels", "call": "launch", "python": "other"
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def written(folder: Path, traces: list[list[dict[str, Any]]]) -> Path:
    """Traces of ranks, given their events."""
    folder.mkdir(parents=True)
    for rank, events in enumerate(traces):
        facts = {
            "schemaVersion": 1, "traceEvents": events, "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(traces)},
        }  # fmt: skip
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_text(json.dumps(facts))
    return folder


def without_rows(whole: Profile, path: Path) -> Profile:
    """The database as it was before arrivals had rows."""
    whole.database.copy(str(path))
    with closing(sqlite3.connect(path)) as connection:
        for table in ("launch", "moment", "moment_operator"):
            connection.execute(f"drop table {table}")
    return Profile(Store(path))


def assert_equal(summary: Profile, whole: Profile) -> None:
    for by in ("collective", "rank"):
        one, other = (profile.report("stragglers", by=by) for profile in (summary, whole))
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_database_without_arrivals_has_the_same_causes(seed: int, tmp_path: Path) -> None:
    whole = pyprof.load(written(tmp_path / "run", random_files(seed)))
    assert len(whole.report("stragglers"))
    assert_equal(without_rows(whole, tmp_path / "older.sqlite"), whole)


def cells(rows: list[tuple[int, int]]) -> set[int]:
    """The microseconds in intervals, which begin and end with one."""
    return {us for start, end in rows for us in range(start // 1000, end // 1000)}


@pytest.mark.parametrize("seed", range(4))
def test_time_of_operators_is_what_is_left_of_each(seed: int, tmp_path: Path) -> None:
    """Between moments, microsecond by microsecond."""
    whole = pyprof.load(written(tmp_path / "run", random_files(seed)))
    store = whole.database
    rng = random.Random(seed)
    moments = sorted({rng.randrange(0, 6_000_000, 1000) for _ in range(9)})
    own = f"id >= {first_id(1)} and id < {first_id(2)}"
    device = store.rows(f"select device from event where {own}")[0][0]
    busy = cells(store.rows(f"select start_ns, start_ns + duration_ns from event where {own} and device = {device}"))
    busy |= cells(store.rows(f"select start_ns, start_ns + duration_ns from api where {own}"))
    of_worker = "thread in (select id from thread where worker = 1)"
    loader = f"select start_ns, start_ns + duration_ns from dataloader where {of_worker}"
    busy |= cells(store.rows(loader))
    expected: Counter[tuple[int, int]] = Counter()
    for operator, start, stop in store.rows(f"select operator, start_ns, end_ns from op where {own}"):
        left = cells([(start, stop)]) - busy
        for low, high in pairwise(moments):
            expected[low, operator] += 1000 * len(left & set(range(low // 1000, high // 1000)))
    activity = Activity(store, 1)
    other = activity.union(activity.on(device)).with_(activity.dataloader).with_(activity.runtime)
    table = rank_work._operators(activity, device, np.array(moments), other).to_pandas()
    sums = table.set_index(["time_ns", "operator"])["host_ns"]
    assert sums.to_dict() == {key: time for key, time in expected.items() if time}
    assert len(sums)


def test_a_collective_that_is_not_matched_ends_no_comparison(tmp_path: Path) -> None:
    """Rank 0 alone records one in between, so ranks are compared from the one before that: two stretches of it count,
    and the operator that is in both of them. Launches divide stretches and no operator."""
    files_of_ranks = []
    for rank in range(3):
        at = 3400 if rank == 2 else 3000
        kernels = [
            K("all_reduce", 900, 100, "0", 1, (4, 4), 3),
            K("all_reduce", at, 3500 - at, "0", 3, (4, 4), 3),
        ]
        if rank == 2:
            kernels.insert(1, K("all_reduce", 2000, 100, "0", 2, (4, 4), 3))
        events = json.loads(trace(rank, kernels, [(0, 3600)], world=3))["traceEvents"]
        length = 700 if rank == 2 else 300
        other = [op("aten::sort", 20, 5, rank)] if rank == 2 else []  # operators have other numbers there
        files_of_ranks.append([*events, *other, op("aten::nonzero", 1700, length, rank)])
    whole = pyprof.load(written(tmp_path / "run", files_of_ranks))
    (row,) = [row for row in whole.report("stragglers").to_dict("records") if row["times_last"] and row["late_ns"]]
    assert (row["worker"], row["late_ns"], row["operator"]) == ("rank2", 400_000, "nonzero")
    # Of 400 us more in the operator, 100 are under the collective, and 1 is in the call that launched it.
    assert (row["host_ns"], row["communication_ns"], row["launch_ns"]) == (299_000, 100_000, 1_000)
    opened = fleet.open(tmp_path / "run", store=tmp_path / "store")
    assert_equal(opened.summary, whole)


@pytest.mark.parametrize(
    "fault",
    [fault if fault in ("loader", "kernel") else pytest.param(fault, marks=pytest.mark.long) for fault in PART],
)
def test_a_fleet_names_the_guilty_rank_and_its_part(fault: str, tmp_path: Path) -> None:
    what = simulated.plan(0, fault)._replace(ranks=3, guilty=1)
    run = simulated.write(tmp_path / "run", simulated.files(what, 3, 0))
    opened = fleet.open(run, store=tmp_path / "store")
    assert_equal(opened.summary, pyprof.load(run))
    first = opened.stragglers().iloc[0]
    assert first["worker"] == f"rank{what.guilty}"
    assert first[f"{PART[fault]}_ns"] == max(first[f"{part}_ns"] for part in rank_work.PARTS)
    assert first["own_ns"] > what.extra


def test_a_summary_without_a_moment_is_damaged(tmp_path: Path) -> None:
    run = written(tmp_path / "run", random_files(1))
    fleet.open(run, store=tmp_path / "store")
    path = tmp_path / "store/fleet.sqlite"
    for table in ("moment", "launch"):
        copy = tmp_path / f"{table}.sqlite"
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute(f"delete from {table}")
            connection.commit()
        with pytest.raises(FormatError, match=f"is damaged \\(table {table} lacks"):
            Profile(Store(copy, summary=True)).report("stragglers")

# SPDX-License-Identifier: Apache-2.0
"""Replays of CUDA graphs that Nsight Systems recorded as a whole, its default: one event of kind graph each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.core.model import GRAPH, KERNEL
from pyprof.parse import loader
from tests import answers
from tests.build import recording, write_nsys

_COLUMNS = "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphId, graphExecId"
US = 1_000
WHOLE = (
    "replays of CUDA graphs recorded as a whole: their kernels and operators are unknown; record with "
    "--cuda-graph-trace=node (kept)"
)


def replays(path: Path, times: Sequence[tuple[int, int]], graph: int | None = 6, kernels: bool = True) -> Path:
    """An export with a graph launch of 30 us 50 us before each replay, and a kernel of 10 us after each."""
    step = "api 30000 cudaGraphLaunch_v10000\nwait 20000\n"
    made = recording(
        "".join(f"{step}wait {end - start}\n> {10 * US} after\nwait {end - start}\n" for start, end in times)
    )
    if not kernels:
        made.kernels.clear()
        made.launches = [one for one in made.launches if "Graph" in (one.name or "")]
    write_nsys(path, made)
    calls = [one for one in made.launches if "Graph" in (one.name or "")]
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({_COLUMNS})")
        rows = [
            (
                call.start + 50 * US,
                call.start + 50 * US + end - start,
                0,
                1,
                7,
                call.correlation,
                None,
                graph,
                9,
            )
            for call, (start, end) in zip(calls, times)
        ]
        database.executemany("insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


LENGTHS = [(0, 800 * US), (0, 500 * US), (0, 200 * US)]


@pytest.mark.parametrize(("graph", "name"), [(6, "graph 6"), (None, "graph 9")])
def test_a_replay_is_an_event(tmp_path: Path, graph: int | None, name: str):
    trace = loader.load(replays(tmp_path / "t.sqlite", LENGTHS, graph))
    kind, lengths = trace.gpu.kind, trace.gpu.end - trace.gpu.start
    assert sorted(lengths[kind == GRAPH].tolist()) == [200 * US, 500 * US, 800 * US]
    assert {trace.strings[code] for code in trace.gpu.name[kind == GRAPH].tolist()} == {name}
    assert (kind == KERNEL).sum() == 3
    assert trace.lost == {WHOLE: 3}


@pytest.mark.counts
def test_everything_answers_and_the_device_is_busy(tmp_path: Path):
    prof = profiles.load(replays(tmp_path / "t.sqlite", LENGTHS))
    answers.all_of(prof, tmp_path)
    busy, calls = prof.database.rows("select sum(duration_ns), count(*) from event")[0]
    assert (busy, calls) == (1_530 * US, 6)
    kernels = prof.report("kernel")
    assert dict(zip(kernels["kernel"], kernels["kind"])) == {"graph 6": "graph", "after": "kernel"}
    assert prof.table["kernel"].tolist().count("graph 6") == 3


def test_a_file_with_replays_only(tmp_path: Path):
    """The second replay begins 850 us after the first has ended: 800 + 500 + 200 us of work."""
    prof = profiles.load(replays(tmp_path / "t.sqlite", LENGTHS, kernels=False))
    assert prof.database.rows("select sum(duration_ns) from event") == [(1_500 * US,)]
    assert "GPU busy" in str(prof.overview)
    coverage = prof.coverage
    assert set(coverage.loc[coverage["line"] == "operator", "part"]) == {"unknown"}
    assert WHOLE in set(coverage["part"])


def test_replays_that_fill_the_device_are_no_idle_time(tmp_path: Path):
    times = [(0, 900 * US)] * 12
    prof = profiles.load(replays(tmp_path / "t.sqlite", times))
    found = {one.rule.id for one in prof.outcomes if one.finding}
    assert not found & {"R03", "R05", "R06"}


def test_work_in_a_table_that_is_not_read_is_told(tmp_path: Path):
    path = write_nsys(tmp_path / "t.sqlite", recording("> 40 gemm\n"))
    with closing(sqlite3.connect(path)) as database:
        for table in ("CUPTI_ACTIVITY_KIND_CDP_KERNEL", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"):
            database.execute(f"create table {table} (start, end, deviceId, streamId)")
            database.executemany(f"insert into {table} values (?, ?, 0, 7)", [(1, 2), (3, 4)])
        database.commit()
    lost = loader.load(path).lost
    assert lost == {"work of a device in the table CUPTI_ACTIVITY_KIND_CDP_KERNEL (not read: its time looks idle)": 2}

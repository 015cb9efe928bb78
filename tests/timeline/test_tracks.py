# SPDX-License-Identifier: Apache-2.0
"""Tracks have every event of the database once, with its text and its operator; the timeline is there after `save`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import pyprof
from pyprof.core.model import Strings
from pyprof.store import files
from pyprof.store.files import Store
from pyprof.timeline import build as timeline
from pyprof.timeline import tiles
from pyprof.timeline.tracks import KINDS, Track, tracks
from tests import build
from tests.reports.ranks import K, run

BODY = """
layer:encoder
    aten::linear, seq = 3
        aten::addmm, seq = 3
            > 40 volta_sgemm
        > 40 stream=8 relu_kernel
between warm-up
    file 30 read
    > 20 stream=8 skew=70 reduce_kernel
thread 2
    mark here
    api 300 cudaDeviceSynchronize_v3020
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "net_dldb.sqlite"
    pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(BODY))).save(path)
    return path


def read(path: Path) -> tuple[list[Track], Strings]:
    labels = Strings()
    with Store(path) as store:
        return list(tracks(store, labels)), labels


def test_every_event_is_in_one_track(database: Path) -> None:
    every, _ = read(database)
    assert {track.kind for track in every} <= set(KINDS)
    ids = Counter((track.kind, id_) for track in every for id_ in track.records.id.tolist() if track.kind != "module")
    assert set(ids.values()) == {1}
    with Store(database) as store:
        for kinds, table in (
            (("stream",), "event"),
            (("api",), "api"),
            (("range", "function", "overlap"), "range"),
        ):
            expected = {
                id_: (start, start + length)
                for id_, start, length in store.rows(f'select id, start_ns, duration_ns from "{table}"')
            }
            records = {
                id_: (start, end)
                for track in every
                if track.kind in kinds
                for id_, start, end in zip(
                    *(part.tolist() for part in (track.records.id, track.records.start, track.records.end))
                )
            }
            assert records == expected


def texts(database: Path, track: Track, labels: Strings) -> list[str]:
    if track.kind in ("module", "idle", "loader"):
        return [labels[number] for number in track.records.name.tolist()]
    table, column = ("kernel_name", "name") if track.kind == "stream" else ("string", "text")
    with Store(database) as store:
        names = dict(store.rows(f"select id, {column} from {table}"))
    return [names[number] for number in track.records.name.tolist()]


def test_lanes_texts_and_operators(database: Path) -> None:
    every, labels = read(database)
    first = next(track for track in every if track.kind == "range")
    assert texts(database, first, labels) == ["layer:encoder", "aten::linear", "aten::addmm"]
    assert first.records.lane.tolist() == [0, 1, 2]
    streams = [track for track in every if track.kind == "stream"]
    assert [track.stream for track in streams] == [7, 8]
    with Store(database) as store:
        names = dict(store.rows("select id, name from operator"))
    operators = [names.get(number - 1) for track in streams for number in track.records.operator.tolist()]
    assert operators[:2] == [names[first.records.operator[1] - 1]] * 2  # one color on the host and the device
    assert first.records.operator[0] == 0
    assert {texts(database, track, labels)[0] for track in every if track.kind == "overlap"} == {
        "warm-up",
        "here",
    }


def test_gaps_and_events_of_a_device_fill_its_time(database: Path) -> None:
    """Streams of a device at once count once."""
    every, labels = read(database)
    (idle,) = (track for track in every if track.kind == "idle")
    covered = sorted(
        (start, end)
        for track in every
        if track.kind in ("stream", "idle")
        for start, end in zip(track.records.start.tolist(), track.records.end.tolist())
    )
    reached = covered[0][0]
    for start, end in covered:
        assert start <= reached  # no hole
        reached = max(reached, end)
    with Store(database) as store:
        assert [(covered[0][0], reached)] == store.rows("select start_ns, end_ns from worker")
    assert set(texts(database, idle, labels)) <= {"queued", "synchronization", "launch-bound", "not recorded"}


def test_runs_of_modules(tmp_path: Path) -> None:
    """A run has the work of one module in one direction; each part of its path has a lane."""
    path = tmp_path / "gpt_dldb.sqlite"
    body = "\n".join(f"aten::mm, seq = {number}\n    > 10 kernel_{number}" for number in range(5))
    pyprof.load(build.write_nsys(tmp_path / "gpt.sqlite", build.recording(body))).save(path)
    modules = [("net.a", 0), ("net.a", 0), ("net.b", 0), (None, 2), ("net.b", 1)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("delete from operator")
        for number, (module, direction) in enumerate(modules):
            connection.execute(
                "insert into operator (id, module, direction) values (?, ?, ?)", (number, module, direction)
            )
        connection.execute("update event set operator = id")
        starts, ends = zip(*connection.execute("select start_ns, start_ns + duration_ns from event order by id"))
    every, labels = read(path)
    (runs,) = (track.records for track in every if track.kind == "module" and track.device is not None)
    found = [
        (lane, start, end, labels[name])
        for lane, start, end, name in zip(*(part.tolist() for part in (runs.lane, runs.start, runs.end, runs.name)))
    ]
    assert found == [
        (0, starts[0], ends[2], "net fprop"), (0, starts[4], ends[4], "net bprop"),
        (1, starts[0], ends[1], "net.a fprop"), (1, starts[2], ends[2], "net.b fprop"),
        (1, starts[4], ends[4], "net.b bprop"),
    ]  # fmt: skip


def test_the_tiles_of_a_saved_database_are_its_tracks(database: Path) -> None:
    every, labels = read(database)
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            """select id, worker, kind, thread, device, stream, lanes, events, start_ns, end_ns, levels from track
               order by id"""
        ).fetchall()
        assert len(rows) == len(every)
        assert dict(connection.execute("select id, text from label")) == dict(enumerate(labels.texts))
        for track, row in zip(every, rows):
            assert row[1:6] == (track.worker, track.kind, track.thread, track.device, track.stream)
            assert row[6] == max(track.records.lane.tolist()) + 1
            assert row[7] == len(track.records)
            assert (row[8], row[9]) == (min(track.records.start.tolist()), max(track.records.end.tolist()))
            assert row[10].startswith("0:")
            stored = connection.execute(
                "select records, size_bytes, data from tile where track = ? and level = 0 order by number",
                (row[0],),
            ).fetchall()
            ids: set[int] = set()
            for records, size, data in stored:
                tile = tiles.unpack(tiles.inflate(data, size))
                assert (tile.track, tile.level, len(tile.records)) == (row[0], 0, records)
                ids |= set(tile.records.id.tolist())
            assert ids == set(track.records.id.tolist())


def test_ranks_with_more_events_than_fit_into_the_cache_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written for a rank does not lock out what reads the next one."""
    plain = files.unsafe

    def without_room(name: str) -> sqlite3.Connection:
        connection = plain(name)
        connection.execute("pragma cache_size = 1")  # page: each that is changed is written at once
        return connection

    monkeypatch.setattr(files, "unsafe", without_room)
    kernels = [[K("volta_sgemm", 100 * place, 50) for place in range(200)] for _ in range(2)]
    run(tmp_path / "run", kernels).save(tmp_path / "run_dldb.sqlite")
    every, _ = read(tmp_path / "run_dldb.sqlite")
    streams = [track for track in every if track.kind == "stream"]
    assert [(track.worker, len(track.records)) for track in streams] == [(0, 200), (1, 200)]


def test_a_database_that_serves_a_report_has_no_timeline(tmp_path: Path) -> None:
    """It would cost a report a fifth of its time."""
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(BODY)))
    prof.report("op_type")
    assert not timeline.has_timeline(prof.database)
    prof.save(tmp_path / "net_dldb.sqlite")
    saved = pyprof.load(tmp_path / "net_dldb.sqlite")
    assert timeline.has_timeline(saved.database)
    saved.save(tmp_path / "again_dldb.sqlite")  # it is copied, not made again
    assert timeline.has_timeline(pyprof.load(tmp_path / "again_dldb.sqlite").database)

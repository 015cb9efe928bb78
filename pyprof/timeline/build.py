# SPDX-License-Identifier: Apache-2.0
"""Add the timeline to a profile database: its tracks, cut into tiles."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np

from pyprof.core.model import Strings
from pyprof.store import files
from pyprof.store.files import Store
from pyprof.timeline import levels, tiles
from pyprof.timeline.records import extent
from pyprof.timeline.tracks import Track, tracks


def add(name: str, label: str, progress: Callable[[float], None] = lambda share: None) -> None:
    """Add the timeline to a database that this process has written and no other one knows yet, unless it has one.
    `label`: the name of the recording in messages."""
    labels = Strings()
    with Store(name, own=True, label=label) as store, store.translate_errors():
        if has_timeline(store):
            return
        total, done = (
            store.rows("select (select count(*) from range) + (select count(*) from event)")[0][0],
            0,
        )
        with closing(files.unsafe(name)) as connection:
            for number, track in enumerate(tracks(store, labels)):
                # One transaction for all tracks would lock out the reader once SQLite's cache is full.
                connection.execute("begin")
                _write(connection, number, track)
                connection.execute("commit")
                done += len(track.records)
                progress(min(done / max(total, 1), 1))
            connection.execute("begin")
            connection.executemany("insert into label values (?, ?)", enumerate(labels.texts))
            connection.execute("commit")


def has_timeline(store: Store) -> bool:
    """Return whether a database has a timeline."""
    return bool(store.rows("select 1 from track limit 1"))


def _write(connection: sqlite3.Connection, number: int, track: Track) -> None:
    shifts: list[str] = []
    connection.executemany("insert into tile values (?, ?, ?, ?, ?, ?)", _tiles(number, track, shifts))
    start, end = extent(track.records)
    sizes = np.bincount(track.records.lane)
    outer = int(np.argmax(np.append(sizes, 0) != 1))
    connection.execute(
        "insert into track values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number, track.worker, track.kind, track.thread, track.device, track.stream, len(sizes), outer,
            len(track.records), start, end, " ".join(shifts),
        ),
    )  # fmt: skip


def _tiles(track_number: int, track: Track, shifts: list[str]) -> Iterator[tuple[int, int, int, int, int, bytes]]:
    """Yield the rows of the table `tile`; `shifts` gets the levels and the shifts of their tiles."""
    for level, records in levels.levels(track.records):
        pieces = tiles.cut(records, level)
        if pieces is None:
            continue
        shift, numbered = pieces
        shifts.append(f"{level}:{shift}")
        for number, piece in numbered:
            data = tiles.pack(track_number, level, number, piece)
            yield track_number, level, number, len(piece), len(data), tiles.compress(data)

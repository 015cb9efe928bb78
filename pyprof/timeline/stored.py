# SPDX-License-Identifier: Apache-2.0
"""Events of tracks as a database stores them: all of them, in a stretch of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.store.files import Store
from pyprof.timeline import tiles
from pyprof.timeline.records import Records


class Place(NamedTuple):
    """A row of the table `track`. `shift`: its tiles of level 0 have 2^shift ns."""

    id: int
    kind: str
    worker: int
    thread: int | None
    device: int | None
    stream: int | None
    shift: int


def places(store: Store, worker: int | None, kinds: Sequence[str] = ()) -> list[Place]:
    """Return the tracks of a worker, or of all; of some kinds, or of all. Raises FormatError."""
    out = []
    for number, kind, owner, thread, device, stream, levels in store.rows(
        """select id, kind, worker, thread, device, stream, levels from track
           where :worker is null or worker = :worker order by id""",
        {"worker": worker},
    ):
        level, _, shift = str(levels).partition(" ")[0].partition(":")
        if level != "0" or not shift.isdecimal() or int(shift) > 62:
            raise store.damaged("a track has no level of all events")
        if not kinds or kind in kinds:
            out.append(Place(number, kind, owner, thread, device, stream, int(shift)))
    return out


def count(store: Store, tracks: Sequence[Place], start: int, end: int) -> int:
    """Return how many events are in the tiles that touch [start, end): at least those in it."""
    return sum(
        store.rows(
            "select coalesce(sum(records), 0) from tile where level = 0 and track = ? and number between ? and ?",
            (track.id, start >> track.shift, (end - 1) >> track.shift),
        )[0][0]
        for track in tracks
    )


def events(store: Store, track: Place, start: int, end: int) -> Iterator[Records]:
    """Yield the events of a track that touch [start, end), tile by tile, each event once. Raises FormatError."""
    first = start >> track.shift
    for number, size, data in store.each(
        """select number, size_bytes, data from tile where level = 0 and track = ? and number between ? and ?
           order by number""",
        (track.id, first, (end - 1) >> track.shift),
    ):
        records = _unpacked(store, data, size)
        inside = (records.start < end) & (records.end > start)
        if number > first:  # what crosses into a later tile is in the one before it too
            inside &= records.start >= number << track.shift
        yield records.take(np.flatnonzero(inside))


def _unpacked(store: Store, data: bytes, size: int) -> Records:
    try:
        return tiles.unpack(tiles.inflate(data, size)).records
    except (ValueError, TypeError) as error:
        raise store.damaged(error) from error


def with_id(store: Store, track: Place, id: int) -> tuple[int, int] | None:
    """Return the start and end of the event of a track that has an id, None without one. Ids have to ascend with the
    starts, as those of gaps do: about ten tiles are read. Raises FormatError."""
    numbers = store.rows("select number from tile where level = 0 and track = ? order by number", (track.id,))
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        ((data, size),) = store.rows(
            "select data, size_bytes from tile where level = 0 and track = ? and number = ?",
            (track.id, *numbers[middle]),
        )
        records = _unpacked(store, data, size)
        place = int(np.searchsorted(records.id, id))
        if place < len(records) and records.id[place] == id:
            return int(records.start[place]), int(records.end[place])
        if place == 0 and len(records):
            high = middle
        else:
            low = middle + 1
    return None

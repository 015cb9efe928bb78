# SPDX-License-Identifier: Apache-2.0
"""Levels and tiles: what is exact stays exact, and nothing is lost where a tile begins or ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.timeline import stored, tiles
from pyprof.timeline.lanes import by_depth, first_free
from pyprof.timeline.levels import levels
from pyprof.timeline.records import Records, single
from pyprof.timeline.stored import Place
from tests.build import examples

# Lengths of events and of the gaps between them, by the kind of lane: of one scale, of many, back to back, bursts.
_LENGTHS = {
    "one scale": (st.integers(0, 20_000), st.integers(0, 20_000)),
    "many scales": (
        st.integers(0, 45).map(lambda bits: 1 << bits),
        st.integers(0, 45).map(lambda bits: 1 << bits),
    ),
    "back to back": (st.sampled_from([0, 1, 7, 5000]), st.just(0)),
    "bursts": (st.sampled_from([3, 900, 20_000_000_000]), st.sampled_from([0, 40, 5_000_000_000])),
}


@st.composite
def lane(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Disjoint events in order, as (start, end); starts are negative, small or large."""
    length, gap = _LENGTHS[draw(st.sampled_from(sorted(_LENGTHS)))]
    time = draw(st.sampled_from([-(1 << 40), -5000, 0, 1 << 41]))
    out = []
    for events, between in draw(st.lists(st.tuples(length, gap), max_size=60)):
        out.append((time, time + events))
        time += events + between
    return out


@st.composite
def track(draw: st.DrawFn) -> Records:
    lanes = draw(st.lists(lane(), min_size=1, max_size=3))
    rows = [(number, *event) for number, events in enumerate(lanes) for event in events]
    depth, start, end = np.array(rows or np.empty((0, 3)), np.int64).reshape(-1, 3).T
    count = len(rows)
    numbers = draw(st.permutations(range(count)))
    return single(depth, start, end, np.array(numbers, np.int64), np.arange(count) % 7, np.arange(count) % 5)


def rows(records: Records) -> list[tuple[int, ...]]:
    return [tuple(row) for row in zip(*(column.tolist() for column in records))]


def ordered(records: Records) -> None:
    """Assert that events of a lane are in order and do not overlap."""
    lane, start, end = records.lane, records.start, records.end
    assert (end >= start).all()
    same = lane[1:] == lane[:-1]
    assert (lane[1:] >= lane[:-1]).all()
    assert (start[1:][same] >= end[:-1][same]).all()


@examples(200)
@given(track())
def test_levels_keep_what_is_exact(events: Records) -> None:
    for level, records in levels(events):
        ordered(records)
        assert records.busy.sum() == events.busy.sum()
        assert records.events.sum() == len(events)
        length = records.end - records.start
        assert (length[records.events > 1] < 2 << level).all()
        assert (records.busy <= length).all()
        # What is at least as long as a bucket stays alone.
        long = events.end - events.start >= 1 << level
        alone = set(zip(records.lane[records.events == 1].tolist(), records.start[records.events == 1].tolist()))
        if level:
            assert alone >= set(zip(events.lane[long].tolist(), events.start[long].tolist()))


@examples(200)
@given(track())
def test_a_record_shows_its_longest_event(events: Records) -> None:
    """Found by looking at every event of it, which the levels do not."""
    everything = rows(events)
    for _, records in levels(events):
        taken = 0
        for lane, start, end, busy, count, id_, name, operator in rows(records):
            inside = everything[taken : taken + count]
            taken += count
            assert (inside[0][0], inside[0][1], inside[-1][2]) == (lane, start, end)
            assert sum(row[2] - row[1] for row in inside) == busy
            longest = max(inside, key=lambda row: row[2] - row[1])
            assert (id_, name, operator) == longest[5:]
        assert taken == len(everything)


def cut(records: Records, level: int) -> Iterator[tuple[int, int, Records]]:
    pieces = tiles.cut(records, level)
    assert pieces is not None
    shift, numbered = pieces
    for number, piece in numbered:
        yield shift, number, piece


@examples(200)
@given(track())
def test_every_event_is_in_the_tiles_that_it_touches(events: Records) -> None:
    for level, records in levels(events):
        if not len(records):
            continue
        whole = rows(records)
        for shift, number, piece in cut(records, level):
            low, high = number << shift, (number + 1) << shift
            expected = [
                row for row in whole if low <= row[1] < high or (row[1] < low and row[2] > low)
            ]  # begins in it, or crosses into it
            assert rows(piece) == expected
            assert rows(piece)


class Tiles:
    """The table of tiles of one track."""

    def __init__(self, records: Records):
        self.rows = []
        for shift, number, piece in cut(records, 0):
            data = tiles.pack(0, 0, number, piece)
            self.rows.append((number, len(data), tiles.compress(data)))
            self.place = Place(0, "stream", 0, None, 0, 7, shift)

    def each(self, query: str, parameters: tuple[int, ...]) -> Iterator[tuple[int, int, bytes]]:
        _, low, high = parameters
        yield from (row for row in self.rows if low <= row[0] <= high)


@examples(200)
@given(track(), st.data())
def test_a_stretch_has_the_events_that_touch_it(events: Records, data: st.DataObject) -> None:
    """Each once, also those that cross from tile to tile."""
    if not len(events):
        return
    table = Tiles(events)
    times = st.sampled_from([*events.start.tolist(), *events.end.tolist()]).flatmap(
        lambda time: st.integers(time - 2, time + 2)
    )
    start, end = sorted((data.draw(times), data.draw(times)))
    for low, high in ((start, end + 1), (-(1 << 62), 1 << 62)):
        read = [row for part in stored.events(cast(Any, table), table.place, low, high) for row in rows(part)]
        assert sorted(read) == sorted(row for row in rows(events) if row[1] < high and row[2] > low)


@examples(200)
@given(track(), st.integers(0, 2**32 - 1))
def test_tiles_are_read_as_they_were_written(events: Records, number: int) -> None:
    for level, records in levels(events):
        if not len(records):
            continue
        for _, place, piece in cut(records, level):
            data = tiles.pack(number, level, place, piece)
            assert len(data) == tiles.size(len(piece), int(piece.lane.max()) + 1, level)
            assert len(data) % 8 == 0
            frame = tiles.compress(data)
            tile = tiles.unpack(tiles.inflate(frame, len(data)))
            assert tile[:3] == (number, level, place)
            assert rows(tile.records) == rows(piece)


@given(st.data())
def test_a_damaged_tile_is_said(data: st.DataObject) -> None:
    events = single(*(np.arange(6) * factor for factor in (0, 10, 10, 1, 1, 1)))
    packed = tiles.pack(1, 14, 0, events)
    frame = bytearray(tiles.compress(packed))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    try:
        content = tiles.inflate(bytes(frame), len(packed))
        tiles.unpack(content)
    except ValueError:
        return
    assert len(content) == len(packed)


@pytest.mark.parametrize("size", [-1, 0, 5, tiles.MOST_BYTES + 1, 1 << 62])
def test_a_frame_says_its_size(size: int) -> None:
    with pytest.raises(ValueError, match="tile"):
        tiles.check_frame(tiles.compress(b"12345678"), size)


def test_two_frames_are_no_tile() -> None:
    """A browser would inflate both, and nobody knows to how much."""
    frame = tiles.compress(b"12345678")
    tiles.check_frame(frame, 8)
    for wrong in (frame + frame, frame[:-1], frame + b"\0", b"\0" + frame, b""):
        with pytest.raises(ValueError, match="tile"):
            tiles.check_frame(wrong, 8)


def test_what_ends_at_the_border_is_not_in_the_next_tile() -> None:
    border = 1 << 26
    events = single(
        *(np.array(column) for column in ([0, 0], [border - 5, border], [border, border + 5], [1, 2], [0, 0], [0, 0]))
    )
    records = [rows(piece) for _, piece in tiles._pieces(events, 26)]
    assert [[row[5] for row in piece] for piece in records] == [[1], [2]]


def test_events_of_one_moment_are_no_tile_of_their_own_size() -> None:
    """A million events in one ns cannot be cut: the finest level has them as one record."""
    count = (1 << 20) + 1
    events = single(
        np.zeros(count, np.int64),
        *(np.full(count, 7),) * 2,
        np.arange(count),
        *(np.zeros(count, np.int64),) * 2,
    )
    assert tiles.cut(events, 0) is None


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_the_first_free_lane(events: list[tuple[int, int]]) -> None:
    events.sort(key=lambda event: event[0])
    start = np.array([start for start, _ in events], np.int64)
    end = start + np.array([length for _, length in events], np.int64)
    ends: list[int] = []  # of the lanes
    for begin, stop, lane in zip(start.tolist(), end.tolist(), first_free(start, end).tolist()):
        free = [number for number, last in enumerate(ends) if last <= begin]
        expected = free[0] if free else len(ends)
        assert lane == expected
        ends[expected : expected + 1] = [stop]


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_nested_events_lie_inside_those_above_them(events: list[tuple[int, int]]) -> None:
    start = np.array([start for start, _ in events], np.int64)
    end = start + np.array([length for _, length in events], np.int64)
    order, lane, stop = by_depth(start, end)
    assert sorted(order.tolist()) == list(range(len(events)))
    records = single(lane, start[order], stop, order, order, order)
    ordered(records)
    for depth, begin, finish in zip(lane.tolist(), start[order].tolist(), stop.tolist()):
        above = lane == depth - 1
        assert depth == 0 or ((start[order][above] <= begin) & (stop[above] >= finish)).any()

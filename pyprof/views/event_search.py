# SPDX-License-Identifier: Apache-2.0
"""Search in the events of the timeline, by name and by filters: `gemm dur:>5ms stream:7`.

Names are looked for in their tables first, which are small; then the events of the tracks that can have one are read
once, and the hits are kept while there is room. A question about them (how many, where, which are around) reads no
event again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.core.marker import readable
from pyprof.core.model import DIRECTIONS, NO_DIRECTION, Bools, Ints
from pyprof.reports import Column
from pyprof.store.files import Store
from pyprof.timeline import stored
from pyprof.timeline.records import Records
from pyprof.timeline.stored import Place
from pyprof.views.filters import Condition, numbers_pass, parse, split, text_test
from pyprof.views.models import EventHit, EventHits, SearchHits, TrackHits
from pyprof.views.problems import Trouble
from pyprof.views.text_masks import known_test, text_mask, texts_pass
from pyprof.views.timeline import texts_by_number

_MAX_HITS = 2_000_000  # hits that are kept: 80 MB
_TICKS = 20_000  # of an answer
_END_OF_TIME = 1 << 62
# Keys are those of the table of launches, where it has such a column.
COLUMNS = (
    Column("dur", "Duration", "ns", "Length of the event."),
    Column("start", "Start", "ns", "From the first event of the recording."),
    Column("kernel", "Kernel Name", "", "Full name of a kernel, copy or set.", str),
    Column("name", "Op Name", "", "Operator of the event.", str),
    Column("type", "Op Type", "", "Type of its operator.", str),
    Column("op_id", "Op ID", "", "Type and number of its operator.", str),
    Column("module", "Module", "", "Module of its operator.", str),
    Column("direction", "Direction", "", "fprop or bprop.", str),
    Column("line", "Source Line", "", "A line of its operator's call stack, as FILE:LINE.", str),
    Column("device", "Device ID", "", "Number of the device."),
    Column("stream", "Stream", "", "Stream of the device."),
)
_KEYS = {column.key for column in COLUMNS}
_OF_OPERATOR = ("name", "type", "op_id", "module", "direction", "line")
# Tables of the texts of records; others are in `string`.
_TEXTS = {"stream": "kernel_name", "module": "label", "loader": "label", "idle": "label"}


class Hits(NamedTuple):
    """Events that fit, in the order of their starts; 40 bytes each."""

    track: Ints
    lane: Ints
    start: Ints
    end: Ints
    id: Ints
    name: Ints
    operator: Ints

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self)


def find(store: Store, text: str, worker: int | None) -> Hits:
    """Return the events with a text in their names that pass the filters. Raises Trouble for a wrong filter, for no
    text at all, and for more events than can be kept."""
    needle, filters = split(text, _KEYS)
    conditions = parse(filters, COLUMNS)
    if not needle and not conditions:
        raise Trouble("parameter", "find: type a part of a name, or a filter such as dur:>5ms.", "find")
    tests = _Tests(store, needle, conditions)
    parts: list[Hits] = []
    total = 0
    for track in stored.places(store, worker):
        if not tests.possible(track):
            continue
        for records in stored.events(store, track, -_END_OF_TIME, _END_OF_TIME):
            hits = records.take(np.flatnonzero(tests.passed(track, records)))
            total += len(hits)
            if total > _MAX_HITS:
                raise Trouble(
                    "parameter",
                    f"find: more than {_MAX_HITS:,} events have {text!r}; add to it, or a filter such as dur:>5ms.",
                    "find",
                )
            parts.append(_columns(track, hits))
    joined = Hits(*(np.concatenate(columns) for columns in zip(*parts))) if parts else _NONE
    order = np.argsort(joined.start, kind="stable")
    return Hits(*(column[order] for column in joined))


def _columns(track: Place, records: Records) -> Hits:
    number = np.full(len(records), track.id, np.uint32)
    lane, name, operator = (column.astype(np.uint32) for column in (records.lane, records.name, records.operator))
    return Hits(number, lane, records.start, records.end, records.id, name, operator)


_NONE = Hits(*(np.empty(0, np.int64),) * len(Hits._fields))


class _Tests:
    """Tests that an event has to pass: of its name, its operator, its track, its numbers."""

    def __init__(self, store: Store, needle: str, conditions: Sequence[Condition]):
        self._names: dict[str, Bools] | None = _names(store, needle) if needle else None
        self._kernels = [texts_pass(store, "kernel_name", "name", one) for one in conditions if one.key == "kernel"]
        # No kernel is no name.
        self._no_kernel = all(one.known is False for one in conditions if one.key == "kernel")
        self._operators = [_operators_pass(store, one) for one in conditions if one.key in _OF_OPERATOR]
        self._tracks = [one for one in conditions if one.key in ("device", "stream")]
        self._numbers = [one for one in conditions if one.key in ("dur", "start")]

    def possible(self, track: Place) -> bool:
        """Return whether an event of a track can pass."""
        if self._names is not None and not self._names[_TEXTS.get(track.kind, "string")].any():
            return False
        if track.kind != "stream" and not self._no_kernel:
            return False
        # A device of -1 has no number.
        values = {key: None if value == -1 else value for key, value in track._asdict().items()}
        return all(_number_passes(one, values[one.key]) for one in self._tracks)

    def passed(self, track: Place, records: Records) -> Bools:
        """Return which events of a track pass. Raises IndexError for numbers that no text or operator has."""
        out = np.ones(len(records), bool)
        if self._names is not None:
            out &= self._names[_TEXTS.get(track.kind, "string")][records.name]
        if track.kind == "stream":
            for mask in self._kernels:
                out &= mask[records.name]
        # The operator of a run of a module is that of its first event.
        operator = records.operator if track.kind != "module" else np.zeros(len(records), np.int64)
        for mask in self._operators:
            out &= mask[operator]
        for one in self._numbers:
            place = np.flatnonzero(out)
            values = (records.end - records.start if one.key == "dur" else records.start)[place]
            out[place[~numbers_pass(one, values)]] = False
        return out


def _names(store: Store, needle: str) -> dict[str, Bools]:
    """Return for each table of texts which of them have the needle, as they are shown."""
    test = text_test(needle)
    # What is shown of a marker is made of parts that it has. Few are decoded.
    pieces = [piece.casefold() for piece in re.split(r"[.\s]+", needle.removeprefix("=")) if piece]

    def matches(text: str) -> bool:
        folded = text.casefold()
        return all(piece in folded for piece in pieces) and test(readable(text))

    return {
        "string": text_mask(store, "select id, text from string", matches),
        "label": text_mask(store, "select id, text from label", test),
        "kernel_name": text_mask(store, "select id, name from kernel_name", test)
        | text_mask(store, "select id, short_name from kernel_name", test),
    }


def _operators_pass(store: Store, condition: Condition) -> Bools:
    """Return by number plus 1 which operators pass; 0 is no operator."""
    test, unknown = known_test(condition)
    if condition.key == "direction":
        known = {code for code, name in enumerate(DIRECTIONS) if code != NO_DIRECTION and test(name)}
        rows = store.rows("select id, direction from operator")
        out = np.zeros(max((number for number, _ in rows), default=-1) + 1, bool)
        for number, direction in rows:
            out[number] = unknown if direction in (NO_DIRECTION, None) else direction in known
    elif condition.key == "line":
        query = "select o.id, nullif(k.frames, '') from operator o left join stack k on k.id = o.stack"
        out = text_mask(store, query, lambda frames: any(map(test, frames.split("\n"))), unknown)
    else:
        out = text_mask(store, f"select id, {condition.key} from operator", test, unknown)
    return np.concatenate([[unknown], out])


def _number_passes(condition: Condition, value: int | None) -> bool:
    if condition.known is not None:
        return condition.known == (value is not None)
    return value is not None and bool(numbers_pass(condition, np.array([value]))[0])


def summary(hits: Hits, text: str, start: int, end: int, buckets: int, most: int) -> SearchHits:
    """Return how many events were found, in which tracks, and where those are that touch [start, end); these
    themselves if there are at most `most`. Buckets are joined until few enough have any. Raises Trouble for an empty
    stretch."""
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    number, place, count = np.unique(hits.track, return_inverse=True, return_counts=True)
    time = np.zeros(len(number), np.int64)
    np.add.at(time, place, hits.end - hits.start)
    inside = np.flatnonzero((hits.start < end) & ((hits.end > start) | (hits.start >= start)))
    track = hits.track[inside].astype(np.int64)
    begin = np.maximum(hits.start[inside], start) - start
    while True:
        width = -(-(end - start) // buckets)
        key, events = np.unique(track * buckets + begin // width, return_counts=True)
        if len(key) <= _TICKS or buckets == 1:
            break
        buckets //= 2
    return SearchHits(
        find=text,
        total=len(hits.track),
        tracks=[
            TrackHits(track=one, events=many, time=sum_)
            for one, many, sum_ in zip(number.tolist(), count.tolist(), time.tolist())
        ],
        start=start,
        width=width,
        ticks=list(zip((key // buckets).tolist(), (key % buckets).tolist(), events.tolist()))[:_TICKS],
        events=_events(hits, inside) if len(inside) <= most else None,
    )


def order(store: Store, hits: Hits, sort: str) -> Ints:
    """Return the places of the hits in an order: by `start`, `dur` or `name`, with `-` the largest first. Equal ones
    are in the order of their starts."""
    key = sort.removeprefix("-")
    values = hits.start if key == "start" else hits.end - hits.start if key == "dur" else _name_ranks(store, hits)
    return np.argsort(values if key == sort else -values, kind="stable")


def _name_ranks(store: Store, hits: Hits) -> Ints:
    """Return for each hit the rank of its name among those of all, as they are shown."""
    tables = {track.id: _TEXTS.get(track.kind, "string") for track in stored.places(store, None)}
    pairs, place = np.unique(hits.track.astype(np.int64) << 32 | hits.name, return_inverse=True)
    by_table: dict[str, set[int]] = {}
    keys = [(tables[pair >> 32], pair & 0xFFFFFFFF) for pair in pairs.tolist()]
    for table, number in keys:
        by_table.setdefault(table, set()).add(number)
    texts = {table: texts_by_number(store, table, sorted(numbers)) for table, numbers in by_table.items()}
    names = [texts[table].get(number, "").casefold() for table, number in keys]
    rank = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([rank[name] for name in names], np.int64)[place]


def page(
    hits: Hits,
    offset: int,
    limit: int,
    at: int | None,
    places: Ints | None = None,
    stretch: tuple[int, int] | None = None,
) -> EventHits:
    """Return hits from a place on, or from the first that starts at a time or later. `places`: their order, if it is
    not that of their starts; `stretch`: only those that touch [start, end)."""
    if at is not None:
        offset = int(np.searchsorted(hits.start, at))
    if places is None:
        places = np.arange(len(hits.track))
    if stretch is not None:
        start, end = stretch
        inside = (hits.start < end) & ((hits.end > start) | (hits.start >= start))
        places = places[inside[places]]
    on_page = places[offset : offset + limit]
    return EventHits(total=len(places), offset=offset, hits=_events(hits, on_page), places=on_page.tolist())


def _events(hits: Hits, which: slice | Ints) -> list[EventHit]:
    columns = [column[which].tolist() for column in hits]
    return [EventHit(**dict(zip(Hits._fields, event))) for event in zip(*columns)]

# SPDX-License-Identifier: Apache-2.0
"""Queries of the timeline: tracks, tiles, texts, colors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pyprof.core.marker import readable
from pyprof.core.model import DIRECTIONS, NO_MODULE
from pyprof.reports.idle import ADVICE
from pyprof.store.files import Store
from pyprof.timeline import tiles
from pyprof.views.counter_values import available
from pyprof.views.models import (
    ColorGroup,
    Colors,
    Timeline,
    TimelinePause,
    TimelineStep,
    TimelineWorker,
    Track,
)
from pyprof.views.problems import Trouble

_MARKS = 20_000  # steps, and pauses
_TILES = 1024  # of an answer
_BYTES = 32 << 20  # of an answer, inflated
_TEXTS = 2000
_LONGEST = 400  # characters of a text in a lane or a tip; Details have all of it
_GROUPS = 4096
_PART = re.compile(r"(\d{1,2}):(-?\d{1,19})-(-?\d{1,19}):(\d{1,9}(?:,\d{1,9}){0,999})")
_TABLES = {"string": "text", "kernel_name": "coalesce(short_name, name)", "label": "text"}
# What colors mean: the column that tells groups apart, of the operator or of the kernel's name.
COLORS = {
    "type": ("operator", "o.type"),
    "operator": ("operator", "o.name"),
    "direction": ("operator", "o.direction"),
    "module": ("operator", "o.module"),
    "kind": ("name", "n.kind"),
    "kernel": ("name", "n.short_name"),
    "tc": ("name", "n.tc"),
}

# Marked steps, by what the devices did in them where that is known.
_STEPS = """
    select s.worker, s.number, coalesce(i.start_ns, s.start_ns) as start, coalesce(i.end_ns, s.end_ns)
    from (select *, row_number() over (partition by worker order by start_ns) - 1 as place from step) s
    left join iteration i on i.worker = s.worker and i.number = s.place
        and i.iteration_set = (select min(id) from iteration_set where method = 'marks')
    order by start limit ?"""


def timeline(store: Store, version: str) -> Timeline:
    """Return the tracks. Raises Trouble for a database without a timeline."""
    rows = store.rows(
        """select t.id, t.worker, t.kind, t.thread, t.device, t.stream, t.lanes, t.outer_lanes, t.events,
                  t.start_ns, t.end_ns, t.levels, h.tid, h.name
           from track t left join thread h on h.id = t.thread order by t.id"""
    )
    if not rows:
        raise Trouble("missing", "This database has no timeline; write it again with pyprof save.")
    try:
        tracks = [_track(row) for row in rows]
    except (ValueError, AttributeError) as error:  # pydantic's among them
        raise store.damaged("a track is not one that a timeline has") from error
    steps = [
        TimelineStep(worker=worker, number=number, start=start, end=end)
        for worker, number, start, end in store.rows(_STEPS, (_MARKS,))
    ]
    return Timeline(
        version=version,
        start=min([*(track.start for track in tracks), *(step.start for step in steps)]),
        end=max([*(track.end for track in tracks), *(step.end for step in steps)]),
        workers=[
            TimelineWorker(id=number, name=name)
            for number, name in store.rows("select id, name from worker order by id")
        ],
        tracks=tracks,
        counters=available(store),
        steps=steps,
        pauses=[
            TimelinePause(worker=worker, start=start, end=end)
            for worker, start, end in store.rows(
                "select worker, start_ns, end_ns from pause where waited = 1 order by start_ns limit ?",
                (_MARKS,),
            )
        ],
        causes=_causes(store),
    )


def _causes(store: Store) -> dict[str, str]:
    """Return the causes of idle time among the texts of the tracks, with the advice of the report idle."""
    marks = ", ".join("?" * len(ADVICE))
    texts = {text for (text,) in store.rows(f"select text from label where text in ({marks})", tuple(ADVICE))}
    return {cause: advice for cause, advice in ADVICE.items() if cause in texts}


def _track(row: tuple[Any, ...]) -> Track:
    """Return a track. Raises ValueError for values that none has."""
    levels = [(int(level), int(shift)) for level, shift in (part.split(":") for part in row[11].split())]
    if not levels or not all(0 <= level <= 62 and 0 <= shift <= 62 for level, shift in levels):
        raise ValueError("levels of no track")
    return Track(
        id=row[0], worker=row[1], kind=row[2], thread=row[3], device=row[4], stream=row[5],
        name=_name(row[2], row[3], row[12], row[13], row[4], row[5]), lanes=row[6], outer=row[7],
        events=row[8], start=row[9], end=row[10], levels=levels,
    )  # fmt: skip


def _name(
    kind: str,
    thread: int | None,
    tid: int | None,
    thread_name: str | None,
    device: int | None,
    stream: int | None,
) -> str:
    if thread is not None:
        return thread_name or (f"thread {tid}" if tid is not None else "thread")
    place = "device" if device is None or device < 0 else f"GPU {device}"
    if kind == "stream":
        return f"{place} stream {stream}" if stream is not None and stream >= 0 else place
    return place


class _Part(NamedTuple):
    level: int
    first: int
    last: int
    tracks: list[int]


def parse_query(text: str) -> list[_Part]:
    """Return the parts of `LEVEL:FIRST-LAST:TRACK,TRACK;...`. Raises Trouble."""
    parts = []
    for part in text.split(";"):
        match = _PART.fullmatch(part)
        if match is None:
            raise Trouble("parameter", f"q: {part[:80]!r} is not LEVEL:FIRST-LAST:TRACK,TRACK.", "q")
        level, first, last = (int(number) for number in match.groups()[:3])
        if first > last or max(abs(first), abs(last)) >= 1 << 62:
            raise Trouble("parameter", f"q: {part[:80]!r} asks for no tiles.", "q")
        parts.append(_Part(level, first, last, [int(track) for track in match[4].split(",")]))
    return parts


def frames(store: Store, text: str) -> list[tuple[bytes, int]]:
    """Return the tiles of a query as zstd frames, with the size of each once inflated. Raises Trouble if there are too
    many."""
    out: list[tuple[bytes, int]] = []
    total = 0
    for part in parse_query(text):
        for track, number, size, data in store.each(
            f"""select track, number, size_bytes, data from tile
                where level = ? and number between ? and ? and track in ({", ".join("?" * len(part.tracks))})
                order by number, track""",
            (part.level, part.first, part.last, *part.tracks),
        ):
            if not (isinstance(data, bytes) and isinstance(size, int)):
                raise store.damaged(f"tile {number} of track {track} has no data")
            try:
                tiles.check_frame(data, size)
            except ValueError as error:
                raise store.damaged(error) from error
            total += size
            out.append((data, size))
            if len(out) > _TILES or total > _BYTES:
                raise Trouble("parameter", f"q: more than {_TILES} tiles or {_BYTES >> 20} MiB; ask for less.", "q")
    return out


def inflated(store: Store, parts: Iterable[tuple[bytes, int]]) -> bytes:
    """Return tiles one after the other. Raises FormatError for damaged ones."""
    try:
        return b"".join(tiles.inflate(data, size) for data, size in parts)
    except ValueError as error:
        raise store.damaged(error) from error


def texts(store: Store, queries: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the texts that `TABLE,ID,ID...` name, as they are shown. Raises Trouble."""
    out: dict[str, dict[str, str]] = {}
    count = 0
    for query in queries:
        table, *numbers = query.split(",")
        count += len(numbers)
        if table not in _TABLES or not all(number.isdecimal() and len(number) < 16 for number in numbers):
            raise Trouble("parameter", f"of: {query[:80]!r} is not TABLE,ID,ID of {', '.join(_TABLES)}.", "of")
        if count > _TEXTS:
            raise Trouble("parameter", f"of: more than {_TEXTS} texts; ask for less.", "of")
        named = texts_by_number(store, table, [int(number) for number in numbers])
        out.setdefault(table, {}).update({str(number): text for number, text in named.items()})
    return out


def texts_by_number(store: Store, table: str, numbers: Sequence[int]) -> dict[int, str]:
    """Return texts by number as they are shown; `table`: string, kernel_name or label."""
    show: Callable[[str], str] = readable if table == "string" else str
    out: dict[int, str] = {}
    for first in range(0, len(numbers), _TEXTS):
        part = numbers[first : first + _TEXTS]
        marks = ", ".join("?" * len(part))
        rows = store.rows(f"select id, {_TABLES[table]} from {table} where id in ({marks})", part)
        out.update({number: show(text)[:_LONGEST] for number, text in rows})
    return out


def colors(store: Store, by: str) -> Colors:
    """Return the groups that share a color, by time on the device."""
    of, column = COLORS[by]
    column_of_stat = "s.operator" if of == "operator" else "s.name"
    table = "operator o" if of == "operator" else "kernel_name n"
    alias = table[-1]
    times = dict(
        store.rows(
            f"""select {column_of_stat}, sum(s.gpu_ns) from op_kernel_stat s
                where s.aggregation = (select min(id) from aggregation) group by 1"""
        )
    )
    labels: dict[int, str] = {}
    sums: dict[str, int] = {}
    for number, value in store.rows(f"select {alias}.id, {column} from {table} order by {alias}.id"):
        label = _label(by, value)
        labels[number] = label
        sums[label] = sums.get(label, 0) + times.get(number, 0)
    order = sorted(sums, key=lambda label: (-sums[label], label))[:_GROUPS]
    code = {label: number for number, label in enumerate(order)}
    size = max(labels, default=-1) + 1
    return Colors(
        groups=[ColorGroup(label=label, time=sums[label]) for label in order],
        of="operator" if of == "operator" else "name",
        group=[code.get(labels.get(number, ""), -1) for number in range(size)],
    )


def _label(by: str, value: Any) -> str:
    if by == "direction":
        return DIRECTIONS[value] if isinstance(value, int) and 0 <= value < 2 else "neither"
    if by == "tc":
        return {1: "tensor cores", 0: "no tensor cores"}.get(value, "unknown")
    return str(value) if value else NO_MODULE if by == "module" else "none"

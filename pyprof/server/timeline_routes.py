# SPDX-License-Identifier: Apache-2.0
"""API routes of the timeline."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from pyprof.server import files
from pyprof.server.parameters import Offset, Run, WorkerId
from pyprof.server.request_context import (
    context_of,
    known_parameters,
    run_read,
    server,
)
from pyprof.timeline.counters import joined
from pyprof.views import counter_values, event_search, models, timeline
from pyprof.views.durations import durations as durations_of
from pyprof.views.flows import flows as flows_of
from pyprof.views.problems import Trouble
from pyprof.views.selection import flame as flame_of
from pyprof.views.selection import selection as selection_of

router = APIRouter(prefix="/api/timeline", dependencies=[Depends(known_parameters)])
_LASTING = "private, max-age=31536000, immutable"  # of an address with the version of the database
By = Literal["type", "operator", "direction", "module", "kind", "kernel", "tc"]


@router.get("")
async def tracks(request: Request, run: Run = None) -> models.Timeline:
    """The tracks of the timeline, and the steps that the program marked."""
    opened = await server(request).library.open(run)
    cached: models.Timeline | None = opened.memo.get("timeline")
    if cached is None:
        cached = opened.memo["timeline"] = await run_read(
            request, opened, lambda store: timeline.timeline(store, opened.version)
        )
    return cached


@router.get(
    "/tiles",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "Tiles, one after the other."}},
)
async def tiles(
    request: Request,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=12_000,
            description="LEVEL:FIRST-LAST:TRACK,TRACK;... with the numbers of the first and last tile.",
        ),
    ],
    run: Run = None,
    v: Annotated[
        str | None, Query(max_length=40, description="`version` of the timeline: the answer may be kept.")
    ] = None,
) -> Response:
    """Records of tracks in tiles (docs/timeline.md), those that exist."""
    opened = await server(request).library.open(run)
    compressed = "zstd" in request.headers.get("accept-encoding", "")

    parts = await run_read(request, opened, lambda store: timeline.frames(store, q))
    if compressed:
        content = b"".join(data for data, _ in parts)
    else:
        content = await run_read(request, opened, lambda store: timeline.inflated(store, parts))
    headers = {
        "content-encoding": "zstd" if compressed and content else "identity",
        "vary": "accept-encoding",
    }
    if v == opened.version:
        headers["cache-control"] = _LASTING
    return Response(content, headers=headers, media_type="application/octet-stream")


@router.get("/texts")
async def texts(
    request: Request,
    of: Annotated[
        list[Annotated[str, Query(max_length=12_000)]],
        Query(min_length=1, max_length=3, description="TABLE,ID,ID... of string, kernel_name or label."),
    ],
    run: Run = None,
) -> dict[str, dict[str, str]]:
    """Texts of records, by table and number."""
    opened = await server(request).library.open(run)
    return await run_read(request, opened, lambda store: timeline.texts(store, of))


@router.get("/colors")
async def colors(request: Request, by: By = "type", run: Run = None) -> models.Colors:
    """Groups of operators or kernels, for colors."""
    opened = await server(request).library.open(run)
    key = ("colors", by)
    cached: models.Colors | None = opened.memo.get(key)
    if cached is None:
        cached = opened.memo[key] = await run_read(request, opened, lambda store: timeline.colors(store, by))
    return cached


@router.get(
    "/roofline",
    response_class=Response,
    responses={
        200: {
            "content": {"application/octet-stream": {}},
            "description": "A byte for each event, by its number: percent, 254 for more, 255 where it is unknown.",
        }
    },
)
async def roofline(request: Request, worker: Annotated[int, Query(ge=0, le=2**20)], run: Run = None) -> Response:
    """The share of the roofline that each event of a worker reaches: roofline time / time on the device."""
    context = await context_of(request, run, worker=worker)
    shares = await context.ask("roofline_shares", lambda answer: answer[1].column("share").to_numpy(), worker=worker)
    return Response(shares.tobytes(), media_type="application/octet-stream")


@router.get("/flows")
async def flows(
    request: Request,
    of: Annotated[str, Query(min_length=1, max_length=40, description="launch:ID, call:ID or range:ID.")],
    run: Run = None,
) -> models.Flows:
    """Arrows of an event."""
    opened = await server(request).library.open(run)
    return await run_read(request, opened, lambda store: flows_of(store, of))


_Time = Annotated[int, Query(ge=-(1 << 62), le=1 << 62)]


@router.get("/selection")
async def selection(
    request: Request,
    start: _Time,
    end: _Time,
    run: Run = None,
    worker: WorkerId = None,
    work: Annotated[bool, Query(description="With the FLOPs, bytes, HFU and MFU of kernels.")] = False,
    sort: Annotated[
        str,
        Query(
            pattern="^-?(name|time|count|flops|bytes|hfu|mfu)$",
            description="Of the rows; with - the largest first. What is unknown comes last.",
        ),
    ] = "-time",
) -> models.Selection:
    """Sums over a stretch of time: what was busy and idle, and why, by operator and by kernel."""
    opened = await server(request).library.open(run)
    return await run_read(request, opened, lambda store: selection_of(store, start, end, worker, work, sort))


@router.get("/flame")
async def flame(
    request: Request,
    start: _Time,
    end: _Time,
    run: Run = None,
    worker: WorkerId = None,
    work: Annotated[
        bool, Query(description="With kernels, below their operators; and FLOPs, bytes, HFU and MFU.")
    ] = False,
) -> models.Flame:
    """Device time of a stretch by operator, as a tree."""
    opened = await server(request).library.open(run)
    return await run_read(request, opened, lambda store: flame_of(store, start, end, worker, work))


@router.get("/durations")
async def durations(
    request: Request,
    track: Annotated[int, Query(ge=0, le=2**31, description="Of all tracks of its kind.")],
    name: Annotated[int, Query(ge=0, le=2**32, description="Number of the name, as in a tile.")],
    start: _Time,
    end: _Time,
    run: Run = None,
    worker: WorkerId = None,
) -> models.Durations:
    """Durations of the events of a name in a stretch of time: how often which occur."""
    opened = await server(request).library.open(run)
    return await run_read(request, opened, lambda store: durations_of(store, track, name, start, end, worker))


@router.get("/counters")
async def counters(
    request: Request,
    start: _Time,
    end: _Time,
    worker: Annotated[int, Query(ge=0, le=2**20)],
    device: Annotated[int, Query(ge=0, le=2**20)],
    run: Run = None,
    points: Annotated[int, Query(ge=1, le=2000, description="Buckets, at most.")] = 1000,
) -> models.Counters:
    """Counters of a device in a stretch of time."""
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    described = await tracks(request, run)
    keys = [one.key for one in described.counters if (one.worker, one.device) == (worker, device)]
    if not keys:
        raise Trouble("missing", f"The timeline has no counters of device {device} of worker {worker}.")
    context = await context_of(request, run)
    opened = context.opened
    sums = await run_read(request, opened, lambda store: counter_values.near(store, worker, device, start, end, points))
    if sums is None:
        whole = await context.ask("counters", counter_values.of_table, worker=worker, device=device)
        sums = joined(whole, start, end, points)
    in_use: dict[str, list[float | None]] = {}
    if {"allocated", "reserved"} & set(keys):
        in_use = await context.ask(
            "memory_steps", lambda answer: answer[0], aggregation=context.aggregation.id, worker=worker,
            device=device, start=sums.low, width=sums.width, count=sums.number,
        )  # fmt: skip
    return await run_read(
        request,
        opened,
        lambda store: counter_values.answer(store, worker, device, sums, in_use, keys),
    )


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/gzip": {}}, "description": "The file."}},
)
async def export(request: Request, start: _Time, end: _Time, run: Run = None) -> StreamingResponse:
    """A Chrome trace of the events in progress in a stretch of time, compressed, as `pyprof export` writes it."""
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    return await files.of_trace(await context_of(request, run), start, end)


Find = Annotated[
    str,
    Query(
        min_length=1,
        max_length=1000,
        description="A part of a name as it is shown, or =NAME, and filters KEY:CONDITION without spaces as of tables: "
        f"{', '.join(column.key for column in event_search.COLUMNS)}.",
    ),
]


async def _found(request: Request, find: str, run: str | None, worker: int | None) -> event_search.Hits:
    """Return the hits of a search, found once and kept while there is room."""
    opened = await server(request).library.open(run)
    key = "found", " ".join(find.split()), worker
    hits: event_search.Hits = await opened.frames.get(
        key, lambda: run_read(request, opened, lambda store: event_search.find(store, find, worker))
    )
    return hits


@router.get("/search")
async def search_events(
    request: Request,
    find: Find,
    start: _Time,
    end: _Time,
    run: Run = None,
    worker: WorkerId = None,
    buckets: Annotated[int, Query(ge=1, le=4096)] = 1024,
    most: Annotated[int, Query(ge=0, le=1000, description="Events themselves, if there are so many.")] = 0,
) -> models.SearchHits:
    """The number of events that fit, by track, and the parts of a stretch of time in which they are."""
    hits = await _found(request, find, run, worker)
    return event_search.summary(hits, find, start, end, buckets, most)


@router.get("/hits")
async def found_events(
    request: Request,
    find: Find,
    run: Run = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    at: Annotated[
        int | None,
        Query(ge=-(1 << 62), le=1 << 62, description="From the first that starts at this time or later."),
    ] = None,
    sort: Annotated[
        Literal["start", "-start", "dur", "-dur", "name", "-name"],
        Query(description="With - the largest first; equal ones in the order of their starts."),
    ] = "start",
    start: Annotated[
        int | None, Query(ge=-(1 << 62), le=1 << 62, description="With `end`: those that touch the stretch.")
    ] = None,
    end: Annotated[int | None, Query(ge=-(1 << 62), le=1 << 62)] = None,
) -> models.EventHits:
    """Events that fit, by default in the order of their starts."""
    if at is not None and (sort != "start" or start is not None):
        raise Trouble("parameter", "at: leave out sort and start: it is a place in the order of starts.", "at")
    if (start is None) != (end is None):
        raise Trouble("parameter", "start and end: give both, or neither.", "end")
    hits = await _found(request, find, run, worker)
    places = None
    if sort != "start":
        opened = await server(request).library.open(run)
        places = await opened.frames.get(
            ("order", " ".join(find.split()), worker, sort),
            lambda: run_read(request, opened, lambda store: event_search.order(store, hits, sort)),
        )
    stretch = None if start is None or end is None else (start, end)
    return event_search.page(hits, offset, limit, at, places, stretch)

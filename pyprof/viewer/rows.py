# SPDX-License-Identifier: Apache-2.0
"""The routes of the API that answer with tables: reports, events, iterations, exports."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.db.source import Source
from pyprof.reports import REPORTS, Report, every, find
from pyprof.reports.output import FORMATS
from pyprof.viewer import events, models, tables
from pyprof.viewer.asking import Asked, asked, known_parameters
from pyprof.viewer.exports import MEDIA
from pyprof.viewer.frames import Frame
from pyprof.viewer.keys import key_operators as keys_of
from pyprof.viewer.parameters import (
    MOST,
    AggregationId,
    Filter,
    Format,
    Limit,
    Name,
    Offset,
    Run,
    Search,
    Sort,
    WorkerId,
)
from pyprof.viewer.problems import Trouble
from pyprof.viewer.tables import Sheet, page

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])
_PIECE = 1 << 18


def _options() -> list[dict[str, Any]]:
    """Options of reports as OpenAPI has parameters."""
    found: dict[str, dict[str, None]] = {}
    for one in every():
        for option in one.options:
            found.setdefault(option.name, {}).update(dict.fromkeys(option.choices))
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "string", "enum": list(choices)},
            "description": "An option of some reports.",
        }
        for name, choices in found.items()
    ]


OPTIONS = _options()


def _chosen(request: Request, name: str) -> Report:
    """The report with the options in the URL. Raises Trouble."""
    every()
    if name not in REPORTS:
        raise Trouble("missing", f"There is no report {name!r}; choose from {', '.join(sorted(REPORTS))}.")
    names = {option["name"] for option in OPTIONS}
    return find(name, **{key: value for key, value in request.query_params.items() if key in names})


@router.get("/reports")
async def reports() -> list[models.Report]:
    """Every report."""
    return tables.reports()


@router.get("/reports/{name}", openapi_extra={"parameters": OPTIONS})
async def rows(
    request: Request,
    name: Name,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Table:
    """A page of a report. Its options are parameters by their names."""
    made = _chosen(request, name)
    sheet = await _sheet(await asked(request, run, aggregation, worker), made)
    return await asyncio.to_thread(page, sheet.frame, offset, limit, sort, search, filter, sheet.complete)


async def _sheet(which: Asked, made: Report) -> Sheet:
    found: Sheet = await which.ask(
        "report", lambda answer: Sheet(answer, made), name=made.name, options=dict(made.chosen), **which.which
    )
    return found


@router.get(
    "/reports/{name}/export",
    response_class=StreamingResponse,
    openapi_extra={"parameters": OPTIONS},
    responses={
        200: {
            "content": {media.partition(";")[0]: {} for media in MEDIA.values()},
            "description": "The file.",
        }
    },
)
async def export(
    request: Request,
    name: Name,
    format: Format,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> StreamingResponse:
    """A report as a file: all pages of what the filters leave."""
    made = _chosen(request, name)
    which = await asked(request, run, aggregation, worker)
    sheet = await _sheet(which, made)
    title = which.opened.name
    folder = tempfile.TemporaryDirectory(prefix="pyprof-")
    target = os.path.join(folder.name, "export")
    try:
        if sheet.complete:
            await asyncio.to_thread(_write, sheet.frame, made, target, format, title, sort, search, filter)
        else:
            sheet.frame.select(search, filter, sort)  # what is wrong with them is told now
            await which.opened.engine.once(
                "file",
                name=made.name,
                options=dict(made.chosen),
                target=target,
                format=format,
                title=title,
                search=search,
                filters=filter,
                **which.which,
            )
        size = os.path.getsize(target)
    except BaseException:
        folder.cleanup()
        raise
    extension = FORMATS[format].extension if format in FORMATS else format
    file = f"{title}_{made.suffix}.{extension}"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in file)
    return StreamingResponse(
        _pieces(target, folder),
        media_type=MEDIA[format],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file, safe='')}",
            "content-length": str(size),
        },
    )


def _write(
    frame: Frame,
    made: Report,
    target: str,
    format: str,
    title: str,
    sort: str | None,
    search: str,
    filters: list[str],
) -> None:
    from pyprof.viewer.exports import sink

    kept = frame.select(search, filters, sort)
    with open(target, "wb") as file:
        writer = sink(format, made, file, title)
        try:
            writer.part(frame.pandas(kept))
        finally:
            writer.close()


async def _pieces(target: str, folder: tempfile.TemporaryDirectory[str]) -> AsyncIterator[bytes]:
    try:
        with open(target, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
    finally:
        folder.cleanup()


# --- events

Iteration = Annotated[
    int | None, Query(ge=0, le=MOST, description="Those launched in this iteration of the cut.")
]
Operator = Annotated[int | None, Query(ge=0, le=MOST, description="Those of an operator, by its number.")]


@router.get("/launches")
async def launches(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    iteration: Iteration = None,
    operator: Operator = None,
    sort: Sort = None,
    limit: Limit = 25,
    offset: Offset = 0,
    cursor: Annotated[
        str | None,
        Query(
            max_length=40, pattern=r"^-?[0-9]{1,19}\.[0-9]{1,16}$", description="`next` of the page before."
        ),
    ] = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Launches:
    """GPU events, by launch; without a GPU operator events. Of all, sort is id, start or dur, and pages follow a
    cursor; of at most 100,000 (see `paged`) everything that reports do."""
    which = await asked(request, run, aggregation, worker)
    if not await which.read(lambda source: events.small(source, iteration, operator)):
        return await which.read(
            lambda source: events.following(source, iteration, operator, sort, limit, cursor, search, filter)
        )

    def make(source: Source) -> Frame:
        return events.table(source, iteration, operator)

    frame = await _kept(which, ("events", iteration, operator), make)
    found = await asyncio.to_thread(page, frame, offset, limit, sort, search, filter)
    at = [column.key for column in frame.columns].index("id")
    return models.Launches(
        columns=found.columns,
        rows=found.rows,
        ids=[int(row[at] or 0) for row in found.rows],
        offset=offset,
        next=None,
        paged=True,
        total=found.total,
        filtered=found.filtered,
    )


@router.get("/launches/count")
async def launches_count(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    iteration: Iteration = None,
    operator: Operator = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Count:
    """How many events /api/launches has; null where counting takes too long."""
    which = await asked(request, run, aggregation, worker)
    try:
        return await which.read(lambda source: events.counted(source, iteration, operator, search, filter))
    except Trouble as trouble:
        if trouble.type != "slow":
            raise
        return models.Count(total=None, filtered=None)


async def _kept(which: Asked, key: tuple[Any, ...], make: Any) -> Frame:
    """A table in memory, made once and kept while there is room."""
    whole = (*key, which.aggregation.id, which.worker)
    found: Frame = await which.opened.frames.get(whole, lambda: which.read(make))
    return found


# --- iterations


@router.get("/iterations")
async def iterations(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=20000)] = 1000,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Iterations:
    """Iterations of the aggregation's cut, by worker and number, with the seven parts of each."""
    which = await asked(request, run, aggregation, worker)
    frame = await _kept(which, ("iterations",), tables.iterations)
    found = await asyncio.to_thread(page, frame, offset, limit, sort, search, filter)
    one = which.aggregation
    return models.Iterations(
        columns=found.columns,
        rows=found.rows,
        offset=offset,
        total=found.total,
        filtered=found.filtered,
        first=one.first,
        last=one.last,
        longest=frame.largest("duration"),
    )


@router.get("/iterations/{number}/operators")
async def iteration_operators(
    request: Request,
    number: Annotated[int, Path(ge=0, le=MOST)],
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Table:
    """Operators of an iteration: one row each, with what it launched there."""
    which = await asked(request, run, aggregation, worker)

    def make(source: Source) -> Frame:
        return tables.iteration_operators(source, number)

    frame = await _kept(which, ("operators", number), make)
    return await asyncio.to_thread(page, frame, offset, limit, sort, search, filter)


@router.get("/key_operators")
async def key_operators(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    search: Search = "",
    offset: Offset = 0,
    limit: Limit = 25,
) -> models.KeyOperators:
    """Operators that could cut the run into iterations, those that run once in each first."""
    which = await asked(request, run, aggregation, None)
    frame = await _kept(which, ("keys",), keys_of)
    return await asyncio.to_thread(_keys, frame, search, offset, limit)


def _keys(frame: Frame, search: str, offset: int, limit: int) -> models.KeyOperators:
    kept = frame.select(search)
    keys = [column.key for column in frame.columns]
    found = frame.cells(kept[offset : offset + limit])
    return models.KeyOperators(
        rows=[models.KeyOperator.model_validate(dict(zip(keys, row))) for row in found],
        total=frame.rows,
        filtered=len(kept),
    )

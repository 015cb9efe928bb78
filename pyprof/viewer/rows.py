# SPDX-License-Identifier: Apache-2.0
"""The routes of the API of reports: which there are, their pages, their files."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from pyprof.reports import REPORTS, Report, every, find
from pyprof.reports.output import FORMATS
from pyprof.viewer import models, tables
from pyprof.viewer.asking import Asked, asked, known_parameters
from pyprof.viewer.exports import MEDIA
from pyprof.viewer.frames import Frame
from pyprof.viewer.parameters import (
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

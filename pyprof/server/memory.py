# SPDX-License-Identifier: Apache-2.0
"""Memory over time: curves, and tables of a time range and of a moment."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from pyprof.reports import Report, find
from pyprof.server import files
from pyprof.server.parameters import MOST, Format, Page, Rows
from pyprof.server.request_context import Context, Selected, known_parameters
from pyprof.views import models
from pyprof.views.report_pages import Sheet, page

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])

Show = Literal["operators", "allocations"]
Groups = Literal["operator", "module", "line", "shape", "phase", "allocation"]
Time = Annotated[
    int | None,
    Query(ge=-MOST, le=MOST, description="Time range in ns of the recording; the end is exclusive."),
]


@router.get("/memory")
async def memory(
    context: Selected,
    points: Annotated[int, Query(ge=10, le=20000)] = 2000,
    start: Time = None,
    end: Time = None,
) -> models.Memory:
    """Memory in use over time, downsampled to about `points` points per curve."""
    curves: models.Memory = await context.ask(
        "memory", lambda answer: models.Memory(curves=[models.Curve(**curve) for curve in answer[0]]), points=points,
        start=start, end=end, **context.arguments,
    )  # fmt: skip
    return curves


async def _sheet(context: Context, show: Show, start: int | None, end: int | None) -> tuple[Report, Sheet]:
    report = find("memory", show=show)
    sheet: Sheet = await context.ask(
        "memory_table",
        lambda answer: Sheet(answer, report),
        show=show,
        start=start,
        end=end,
        **context.arguments,
    )
    return report, sheet


@router.get("/memory/table")
async def table(
    context: Selected, query: Page, show: Show = "operators", start: Time = None, end: Time = None
) -> models.Table:
    """A page of the report memory, limited to allocations and releases in a time range."""
    _, sheet = await _sheet(context, show, start, end)
    return await asyncio.to_thread(page, sheet.frame, query, sheet.complete)


At = Annotated[
    int | None,
    Query(ge=-MOST, le=MOST, description="Moment in ns of the recording; default: the peak of each device."),
]


async def _alive(context: Context, by: Groups, at: int | None) -> tuple[Report, Sheet]:
    report = find("alive", by=by)
    sheet: Sheet = await context.ask("alive", lambda answer: Sheet(answer, report), by=by, at=at, **context.arguments)
    return report, sheet


@router.get("/memory/alive")
async def alive(context: Selected, query: Page, by: Groups = "operator", at: At = None) -> models.Table:
    """A page of the report alive: what is in use at a moment."""
    _, sheet = await _alive(context, by, at)
    return await asyncio.to_thread(page, sheet.frame, query, sheet.complete, sheet.sums)


@router.get("/memory/alive/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_alive(
    format: Format, context: Selected, query: Rows, by: Groups = "operator", at: At = None
) -> StreamingResponse:
    """The table of /api/memory/alive as a file."""
    report, sheet = await _alive(context, by, at)
    return await files.of_frame(context, report, format, sheet.frame, query)


@router.get("/memory/table/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export(
    format: Format,
    context: Selected,
    query: Rows,
    show: Show = "operators",
    start: Time = None,
    end: Time = None,
) -> StreamingResponse:
    """The table of /api/memory/table as a file."""
    report, sheet = await _sheet(context, show, start, end)
    return await files.of_frame(context, report, format, sheet.frame, query)

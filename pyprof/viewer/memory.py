# SPDX-License-Identifier: Apache-2.0
"""Memory over time: curves, and the tables of a stretch of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.reports import Report, find
from pyprof.viewer import files, models
from pyprof.viewer.parameters import (
    MOST,
    AggregationId,
    Filter,
    Format,
    Limit,
    Offset,
    Run,
    Search,
    Sort,
    WorkerId,
)  # fmt: skip
from pyprof.viewer.report_pages import Sheet, page
from pyprof.viewer.request_context import Asked, asked, known_parameters

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])

Show = Literal["operators", "allocations"]
Time = Annotated[
    int | None, Query(ge=-MOST, le=MOST, description="ns of the recording; from the start to before the end.")
]


@router.get("/memory")
async def memory(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    points: Annotated[int, Query(ge=10, le=20000)] = 2000,
    start: Time = None,
    end: Time = None,
) -> models.Memory:
    """Memory in use over time, thinned out to about so many points a curve."""
    which = await asked(request, run, aggregation, worker)
    found: models.Memory = await which.ask(
        "memory", lambda answer: models.Memory(curves=[models.Curve(**curve) for curve in answer[0]]), points=points,
        start=start, end=end, **which.which,
    )  # fmt: skip
    return found


async def _sheet(which: Asked, show: Show, start: int | None, end: int | None) -> tuple[Report, Sheet]:
    made = find("memory", show=show)
    sheet: Sheet = await which.ask(
        "memory_table", lambda answer: Sheet(answer, made), show=show, start=start, end=end, **which.which
    )
    return made, sheet


@router.get("/memory/table")
async def table(
    request: Request,
    show: Show = "operators",
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    start: Time = None,
    end: Time = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Table:
    """A page of the report memory, of what was allocated or freed in a stretch of time alone."""
    _, sheet = await _sheet(await asked(request, run, aggregation, worker), show, start, end)
    return await asyncio.to_thread(page, sheet.frame, offset, limit, sort, search, filter, sheet.complete)


@router.get("/memory/table/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export(
    request: Request,
    format: Format,
    show: Show = "operators",
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    start: Time = None,
    end: Time = None,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> StreamingResponse:
    """The same as a file."""
    which = await asked(request, run, aggregation, worker)
    made, sheet = await _sheet(which, show, start, end)
    return await files.of_frame(request, which.opened, made, format, sheet.frame, sort, search, filter)

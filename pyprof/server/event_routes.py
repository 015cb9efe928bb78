# SPDX-License-Identifier: Apache-2.0
"""API routes below the reports: GPU events, iterations, operators of an iteration, key operators."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.server import files
from pyprof.server.parameters import (
    MOST,
    AggregationId,
    Format,
    Limit,
    Offset,
    Page,
    Rows,
    Run,
    Search,
)
from pyprof.server.request_context import Context, Selected, context_of, known_parameters
from pyprof.views import events, iteration_tables, models
from pyprof.views.column_table import Frame
from pyprof.views.exports import as_report, outline
from pyprof.views.iteration_bars import bars
from pyprof.views.key_operators import key_operators as keys_of
from pyprof.views.queries import PageQuery
from pyprof.views.report_pages import page

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])
EVENTS = as_report("launches", "Launches", [entry.column for entry in events.COLUMNS])
ITERATIONS = as_report("iterations", "Iterations", iteration_tables.ITERATION)
OPERATORS = as_report("iteration_operators", "Operators of an Iteration", iteration_tables.ITERATION_OPERATORS)

# --- events

Number = Annotated[int, Path(ge=0, le=MOST)]
Iteration = Annotated[
    int | None, Query(ge=0, le=MOST, description="Only events launched in this iteration of the cut.")
]
Operator = Annotated[int | None, Query(ge=0, le=MOST, description="Only events of an operator, by its number.")]


@router.get("/launches")
async def launches(
    context: Selected,
    query: Page,
    iteration: Iteration = None,
    operator: Operator = None,
    cursor: Annotated[
        str | None,
        Query(max_length=40, pattern=r"^-?[0-9]{1,19}\.[0-9]{1,16}$", description="`next` of the previous page."),
    ] = None,
) -> models.Launches:
    """GPU events, by launch; without a GPU, operator events. For all events, sort is id, start or dur, and pages follow
    a cursor; for at most 100,000 (see `paged`), everything that reports support works."""
    if not await context.read(lambda source: events.small(source, iteration, operator)):
        return await context.read(lambda source: events.page(source, iteration, operator, query, cursor))
    frame = await _events(context, iteration, operator)
    table = await asyncio.to_thread(page, frame, query)
    at = [column.key for column in frame.columns].index("id")
    return models.Launches(
        columns=table.columns,
        rows=table.rows,
        ids=[int(row[at] or 0) for row in table.rows],
        offset=query.offset,
        next=None,
        paged=True,
        total=table.total,
        filtered=table.filtered,
    )


async def _cached_frame(context: Context, key: tuple[Any, ...], make: Any) -> Frame:
    """Return a table in memory, built once and cached while there is room."""
    full_key = (*key, context.aggregation.id, context.worker)
    frame: Frame = await context.opened.frames.get(full_key, lambda: context.read(make))
    return frame


async def _events(context: Context, iteration: int | None, operator: int | None) -> Frame:
    return await _cached_frame(
        context, ("events", iteration, operator), lambda source: events.table(source, iteration, operator)
    )


async def _operators(context: Context, number: int) -> Frame:
    return await _cached_frame(
        context, ("operators", number), lambda source: iteration_tables.iteration_operators(source, number)
    )


@router.get("/launches/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_launches(
    format: Format, context: Selected, query: Rows, iteration: Iteration = None, operator: Operator = None
) -> StreamingResponse:
    """The events of /api/launches as a file; more than 100,000 are in the order of launches."""
    if await context.read(lambda source: events.small(source, iteration, operator)):
        frame = await _events(context, iteration, operator)
        return await files.of_frame(context, EVENTS, format, frame, query)
    return await files.of_task(
        context, EVENTS, format, "events", report=outline(EVENTS), iteration=iteration, operator=operator,
        search=query.search, filters=query.filters, **context.arguments,
    )  # fmt: skip


# --- iterations


@router.get("/iterations")
async def iterations(
    context: Selected,
    query: Rows,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=20000)] = 1000,
) -> models.Iterations:
    """Iterations of the aggregation's cut, by worker and number, with the seven parts of each."""
    frame = await _cached_frame(context, ("iterations",), iteration_tables.iterations)
    page_query = PageQuery(query.sort, query.search, query.filters, offset, limit)
    table = await asyncio.to_thread(page, frame, page_query)
    window = context.aggregation
    return models.Iterations(
        columns=table.columns,
        rows=table.rows,
        offset=offset,
        total=table.total,
        filtered=table.filtered,
        first=window.first,
        last=window.last,
        longest=frame.largest("duration"),
    )


@router.get("/iterations/bars")
async def iteration_bars(
    context: Selected,
    most: Annotated[
        int | None,
        Query(ge=1, le=20000, description="Maximum number of bars; with more iterations, neighbors share one."),
    ] = None,
) -> models.Bars:
    """Iterations of the aggregation's cut as bars: for each number, the mean over the workers that have it."""
    frame = await _cached_frame(context, ("iterations",), iteration_tables.iterations)
    return await asyncio.to_thread(bars, frame, context.aggregation.first, context.aggregation.last, most)


@router.get("/iterations/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_iterations(format: Format, context: Selected, query: Rows) -> StreamingResponse:
    """The iterations of /api/iterations as a file."""
    frame = await _cached_frame(context, ("iterations",), iteration_tables.iterations)
    return await files.of_frame(context, ITERATIONS, format, frame, query)


@router.get("/iterations/{number}/operators/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_iteration_operators(
    number: Number, format: Format, context: Selected, query: Rows
) -> StreamingResponse:
    """The operators of an iteration as a file."""
    return await files.of_frame(context, OPERATORS, format, await _operators(context, number), query)


@router.get("/iterations/{number}/operators")
async def iteration_operators(number: Number, context: Selected, query: Page) -> models.Table:
    """Operators of an iteration: one row each, with what they launched in it."""
    return await asyncio.to_thread(page, await _operators(context, number), query)


@router.get("/key_operators")
async def key_operators(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    search: Search = "",
    offset: Offset = 0,
    limit: Limit = 25,
) -> models.KeyOperators:
    """Operators that could cut the run into iterations; those that run once in each iteration come first."""
    context = await context_of(request, run, aggregation)
    frame = await _cached_frame(context, ("keys",), keys_of)
    return await asyncio.to_thread(_keys, frame, search, offset, limit)


def _keys(frame: Frame, search: str, offset: int, limit: int) -> models.KeyOperators:
    selected = frame.select(search)
    keys = [column.key for column in frame.columns]
    rows = frame.cells(selected[offset : offset + limit])
    return models.KeyOperators(
        rows=[models.KeyOperator.model_validate(dict(zip(keys, row))) for row in rows],
        total=frame.rows,
        filtered=len(selected),
    )

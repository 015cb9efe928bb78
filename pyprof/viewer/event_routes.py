# SPDX-License-Identifier: Apache-2.0
"""The routes of the API below the reports: GPU events, iterations, operators of an iteration, key operators."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.viewer import event_index, events, files, iteration_tables, models
from pyprof.viewer.column_table import Frame
from pyprof.viewer.exports import as_report, outline
from pyprof.viewer.iteration_bars import bars
from pyprof.viewer.key_operators import key_operators as keys_of
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
)
from pyprof.viewer.problems import Trouble
from pyprof.viewer.report_pages import page
from pyprof.viewer.request_context import Asked, asked, known_parameters

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])
EVENTS = as_report("launches", "Launches", [shown.column for shown in events.COLUMNS])
ITERATIONS = as_report("iterations", "Iterations", iteration_tables.ITERATION)
OPERATORS = as_report(
    "iteration_operators", "Operators of an Iteration", iteration_tables.ITERATION_OPERATORS
)

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
            lambda source: event_index.following(
                source, iteration, operator, sort, limit, cursor, search, filter
            )
        )
    frame = await _events(which, iteration, operator)
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
    request: Request, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None,
    iteration: Iteration = None, operator: Operator = None, search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Count:  # fmt: skip
    """How many events /api/launches has; null where counting takes too long."""
    which = await asked(request, run, aggregation, worker)
    try:
        return await which.read(
            lambda source: event_index.counted(source, iteration, operator, search, filter)
        )
    except Trouble as trouble:
        if trouble.type != "slow":
            raise
        return models.Count(total=None, filtered=None)


async def _kept(which: Asked, key: tuple[Any, ...], make: Any) -> Frame:
    """A table in memory, made once and kept while there is room."""
    whole = (*key, which.aggregation.id, which.worker)
    found: Frame = await which.opened.frames.get(whole, lambda: which.read(make))
    return found


async def _events(which: Asked, iteration: int | None, operator: int | None) -> Frame:
    return await _kept(
        which, ("events", iteration, operator), lambda source: events.table(source, iteration, operator)
    )


async def _operators(which: Asked, number: int) -> Frame:
    return await _kept(
        which, ("operators", number), lambda source: iteration_tables.iteration_operators(source, number)
    )


@router.get("/launches/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_launches(
    request: Request, format: Format, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None,
    iteration: Iteration = None, operator: Operator = None, sort: Sort = None, search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> StreamingResponse:  # fmt: skip
    """The events of /api/launches as a file; of more than 100,000 in the order of launches."""
    which = await asked(request, run, aggregation, worker)
    opened = which.opened
    if await which.read(lambda source: events.small(source, iteration, operator)):
        frame = await _events(which, iteration, operator)
        return await files.of_frame(request, opened, EVENTS, format, frame, sort, search, filter)
    return await files.of_task(
        request, opened, EVENTS, format, "events", report=outline(EVENTS), iteration=iteration,
        operator=operator, search=search, filters=filter, **which.which,
    )  # fmt: skip


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
    frame = await _kept(which, ("iterations",), iteration_tables.iterations)
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


@router.get("/iterations/bars")
async def iteration_bars(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    most: Annotated[
        int | None, Query(ge=1, le=20000, description="Bars; of more iterations neighbours share one.")
    ] = None,
) -> models.Bars:
    """Iterations of the aggregation's cut as bars: the mean of the workers that have one of that number."""
    which = await asked(request, run, aggregation, worker)
    frame = await _kept(which, ("iterations",), iteration_tables.iterations)
    return await asyncio.to_thread(bars, frame, which.aggregation.first, which.aggregation.last, most)


@router.get("/iterations/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_iterations(
    request: Request, format: Format, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None,
    sort: Sort = None, search: Search = "", filter: Filter = [],  # noqa: B006
) -> StreamingResponse:  # fmt: skip
    """The iterations of /api/iterations as a file."""
    which = await asked(request, run, aggregation, worker)
    frame = await _kept(which, ("iterations",), iteration_tables.iterations)
    return await files.of_frame(request, which.opened, ITERATIONS, format, frame, sort, search, filter)


@router.get("/iterations/{number}/operators/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_iteration_operators(
    request: Request, number: Annotated[int, Path(ge=0, le=MOST)], format: Format, run: Run = None,
    aggregation: AggregationId = None, worker: WorkerId = None, sort: Sort = None, search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> StreamingResponse:  # fmt: skip
    """The operators of an iteration as a file."""
    which = await asked(request, run, aggregation, worker)
    frame = await _operators(which, number)
    return await files.of_frame(request, which.opened, OPERATORS, format, frame, sort, search, filter)


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
    frame = await _operators(which, number)
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

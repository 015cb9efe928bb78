# SPDX-License-Identifier: Apache-2.0
"""The routes of the API."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from pyprof.viewer import models
from pyprof.viewer.parameters import (
    AggregationId,
    Filter,
    Format,
    Limit,
    MOST,
    Name,
    Offset,
    Run,
    Search,
    Sort,
    WorkerId,
)

router = APIRouter(
    prefix="/api", responses={"4XX": {"model": models.Problem}, "5XX": {"model": models.Problem}}
)


@router.get("/profile")
async def profile(run: Run = None) -> models.Profile:
    """The profile, its aggregations and runs."""
    raise NotImplementedError


@router.get("/reports")
async def reports() -> list[models.Report]:
    """Every report."""
    raise NotImplementedError


@router.get("/reports/{name}")
async def rows(
    name: Name,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: A002, B006
) -> models.Table:
    """A page of a report. Its options are parameters by their names."""
    raise NotImplementedError


@router.get("/reports/{name}/export", response_class=StreamingResponse)
async def export(
    name: Name,
    format: Format,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],
) -> StreamingResponse:
    """A report as a file: all pages of what the filters leave."""
    raise NotImplementedError


@router.get("/launches")
async def launches(
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    iteration: Annotated[int | None, Query(ge=0, le=MOST, description="Launched in it.")] = None,
    operator: Annotated[int | None, Query(ge=0, le=MOST, description="Id of an operator.")] = None,
    sort: Sort = None,
    limit: Limit = 25,
    offset: Offset = 0,
    cursor: Annotated[str | None, Query(max_length=100, pattern=r"^-?[0-9]+\.[0-9]+$")] = None,
    search: Search = "",
    filter: Filter = [],
) -> models.Launches:
    """GPU events, by launch; without a GPU operator events. Of all, sort is id, start or dur, and pages follow a cursor;
    of at most 100,000 (see `paged`) everything that reports do."""
    raise NotImplementedError


@router.get("/launches/count")
async def launches_count(
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    iteration: Annotated[int | None, Query(ge=0, le=MOST)] = None,
    operator: Annotated[int | None, Query(ge=0, le=MOST)] = None,
    search: Search = "",
    filter: Filter = [],
) -> models.Count:
    """How many events /api/launches has."""
    raise NotImplementedError


@router.get("/overview")
async def overview(
    run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Overview:
    """The dashboard."""
    raise NotImplementedError


@router.get("/insights")
async def insights(
    run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Insights:
    """Findings of the expert rules."""
    raise NotImplementedError


@router.get("/ledger")
async def ledger(run: Run = None) -> models.Ledger:
    """How much of the time on the device is explained."""
    raise NotImplementedError


@router.get("/step_time")
async def step_time(
    run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Breakdown:
    """The eight categories of the step-time breakdown, added up over the report's steps."""
    raise NotImplementedError


@router.get("/iterations")
async def iterations(
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=20000)] = 1000,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],
) -> models.Iterations:
    """Iterations of the aggregation's cut, by worker and number, with the seven parts of each."""
    raise NotImplementedError


@router.get("/iterations/{number}/operators")
async def iteration_operators(
    number: Annotated[int, Path(ge=0, le=MOST)],
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],
) -> models.Table:
    """Operators of an iteration: one row each, with its kernels launched there. `ids` are ids of operators."""
    raise NotImplementedError


@router.get("/key_operators")
async def key_operators(
    run: Run = None,
    aggregation: AggregationId = None,
    search: Search = "",
    offset: Offset = 0,
    limit: Limit = 25,
) -> models.KeyOperators:
    """Operators that could cut the run into iterations."""
    raise NotImplementedError


@router.post("/aggregations", status_code=202)
async def aggregate(body: models.Reaggregate, run: Run = None) -> models.Job:
    """Add up other iterations, in a process of its own. Jobs of one run wait for each other."""
    raise NotImplementedError


@router.get("/jobs")
async def jobs() -> list[models.Job]:
    """Jobs since the server was started, the latest first."""
    raise NotImplementedError


Id = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


@router.get("/jobs/{id}")
async def job(id: Id) -> models.Job:
    """A job."""
    raise NotImplementedError


@router.get("/jobs/{id}/events", response_class=StreamingResponse)
async def job_events(id: Id) -> StreamingResponse:
    """Progress as server-sent events: `data:` is a job; the last one is done, failed or cancelled."""
    raise NotImplementedError


@router.delete("/jobs/{id}")
async def cancel(id: Id) -> models.Job:
    """End a job; nothing of it is kept. One that is over stays as it is."""
    raise NotImplementedError


@router.get("/details/{kind}/{id}")
async def details(
    kind: Literal["op", "kernel", "launch", "iteration", "finding"],
    id: Annotated[str, Path(min_length=1, max_length=4096)],
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
) -> models.Details:
    """What is known of an operator (its op_id, or its number), a kernel (its id of /api/roofline, or its name), a launch,
    an iteration (its number), a finding (its rule)."""
    raise NotImplementedError


@router.get("/source")
async def source(
    file: Annotated[str, Query(min_length=1, max_length=4096)],
    line: Annotated[int, Query(ge=1, le=10**7)],
    run: Run = None,
) -> models.SourceText:
    """Text of a file that a call stack of the profile names."""
    raise NotImplementedError


@router.get("/roofline")
async def roofline(
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 300,
) -> models.Roofline:
    """Kernels by time, with work and speed, and the peaks of the devices."""
    raise NotImplementedError


@router.get("/memory")
async def memory(
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    points: Annotated[int, Query(ge=10, le=20000)] = 2000,
    start: Annotated[int | None, Query(ge=-MOST, le=MOST)] = None,
    end: Annotated[int | None, Query(ge=-MOST, le=MOST)] = None,
) -> models.Memory:
    """Memory in use over time, thinned out to about so many points a curve."""
    raise NotImplementedError


@router.get("/compare")
async def compare(
    base: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    by: Literal["operator", "kernel"] = "operator",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],
) -> models.Compare:
    """Two runs of the folder that is served, or two aggregations of one: figures, and operators or kernels side by side.
    Names are those of /api/profile's runs, empty for a single file."""
    raise NotImplementedError

# SPDX-License-Identifier: Apache-2.0
"""API routes of the comparison of two profiles."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.reports.diff import REPORT
from pyprof.server import files
from pyprof.server.library import Opened
from pyprof.server.parameters import AggregationId, Format, Page, Rows
from pyprof.server.request_context import Context, context_of, find_aggregation, known_parameters, server
from pyprof.views import models
from pyprof.views.comparison import Comparison
from pyprof.views.report_pages import page

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])


class Pair:
    """Two profiles, and their comparison."""

    def __init__(self, base: Context, other: Opened, by: str, per: str, comparison: Comparison):
        self.base, self.other, self.by, self.per, self.comparison = base, other, by, per, comparison


Side = Annotated[str, Query(max_length=4096, description="A run of /api/profile, empty for a single file.")]
By = Annotated[Literal["operator", "kernel"], Query(description="Subject of a row.")]
Per = Annotated[Literal["iteration", "run"], Query(description="Means per iteration, or sums over the run.")]


async def pair_of(
    request: Request,
    base: Side,
    other: Side,
    by: By = "operator",
    per: Per = "iteration",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
) -> Pair:
    """Return the comparison of a request. Raises Trouble; `opening` while either profile is imported."""
    library = server(request).library
    results = await asyncio.gather(library.open(base), library.open(other), return_exceptions=True)
    for result in results:  # both are imported now, whichever is reported first
        if isinstance(result, BaseException):
            raise result
    first, second = await context_of(request, base, base_aggregation), await library.open(other)
    selection = await find_aggregation(request, second, other_aggregation)
    comparison: Comparison = await first.ask(
        "compare", Comparison, aggregation=first.aggregation.id, other=str(second.path),
        other_aggregation=selection.id, by=by, per=per, version=second.version,
    )  # fmt: skip
    return Pair(first, second, by, per, comparison)


Compared = Annotated[Pair, Depends(pair_of)]


@router.get("/compare")
async def compare(pair: Compared, query: Page) -> models.Compare:
    """Two runs of the served folder, or two aggregations of one run: the step and its parts, figures, and operators or
    kernels side by side. Names are those of /api/profile's runs, empty for a single file."""
    comparison = pair.comparison
    sheet = comparison.sheet
    return models.Compare(
        base=pair.base.opened.name,
        other=pair.other.name,
        by=pair.by,
        per=pair.per,
        headline=comparison.headline,
        notes=comparison.notes,
        steps=comparison.steps,
        figures=comparison.figures,
        table=await asyncio.to_thread(page, sheet.frame, query, sheet.complete),
    )


@router.get("/compare/groups")
async def groups(
    pair: Compared,
    figure: Literal["device_ns", "host_ns", "calls"] = "device_ns",
    at: Annotated[
        list[Annotated[str, Query(max_length=4096)]],
        Query(max_length=100, description="Keys of the groups that contain those that are asked for."),
    ] = [],  # noqa: B006
) -> models.Groups:
    """Sums of the rows of /api/compare by module, then operator and kernel, shapes and direction: the groups directly
    inside the one that `at` names, the largest first."""
    return await asyncio.to_thread(pair.comparison.groups, at, figure)


@router.get("/compare/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export(pair: Compared, format: Format, query: Rows) -> StreamingResponse:
    """The table of /api/compare as a file."""
    title = f"{pair.base.opened.name}_{pair.other.name}"
    return await files.of_frame(pair.base, REPORT, format, pair.comparison.sheet.frame, query, title)

# SPDX-License-Identifier: Apache-2.0
"""The routes of the API of reports: which there are, their pages, their files."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from pyprof.reports import REPORTS, Report, every, find
from pyprof.viewer import files, models, report_pages
from pyprof.viewer.parameters import (
    AggregationId,
    Filter,
    Format,
    Limit,
    Name,
    Offset,
    Open,
    Run,
    Search,
    Sort,
    WorkerId,
)
from pyprof.viewer.problems import Trouble
from pyprof.viewer.report_pages import Sheet, page
from pyprof.viewer.request_context import Asked, asked, known_parameters
from pyprof.viewer.tree import Tree

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])


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
    return report_pages.reports()


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


@router.get("/trees/{name}")
async def nodes(
    request: Request,
    name: Literal["groups", "modules"],
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    open: Open = None,
) -> models.Tree:
    """Rows of a tree: groups of operators with the operators in them, or modules. Siblings are sorted; a search opens
    what is above a name that holds the text, or a path that ends with it."""
    which = await asked(request, run, aggregation, worker)
    found: Tree = await which.ask("tree", lambda answer: Tree(answer, name), name=name, **which.which)
    return await asyncio.to_thread(found.page, offset, limit, sort, search, open)


async def _sheet(which: Asked, made: Report) -> Sheet:
    found: Sheet = await which.ask(
        "report", lambda answer: Sheet(answer, made), name=made.name, options=dict(made.chosen), **which.which
    )
    return found


@router.get(
    "/reports/{name}/export", response_class=StreamingResponse, openapi_extra={"parameters": OPTIONS},
    responses=files.ANSWER,
)  # fmt: skip
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
    opened = which.opened
    if sheet.complete:
        return await files.of_frame(request, opened, made, format, sheet.frame, sort, search, filter)
    sheet.frame.select(search, filter, sort)  # what is wrong with them is told now
    return await files.of_task(
        request, opened, made, format, "file", name=made.name, options=dict(made.chosen), search=search,
        filters=filter, **which.which,
    )  # fmt: skip

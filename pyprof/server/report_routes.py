# SPDX-License-Identifier: Apache-2.0
"""API routes of reports: list, pages, files."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from pyprof.reports import REPORTS, Report, every, find
from pyprof.server import files
from pyprof.server.parameters import Format, Limit, Name, Offset, Open, Page, Rows, Search, Sort
from pyprof.server.request_context import Context, Selected, known_parameters
from pyprof.views import models, report_pages
from pyprof.views.problems import Trouble
from pyprof.views.report_pages import Sheet, page
from pyprof.views.tree import Tree

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])


def _options() -> list[dict[str, Any]]:
    """Return options of reports as OpenAPI parameters."""
    choices_of: dict[str, dict[str, None]] = {}
    for report in every():
        for option in report.options:
            choices_of.setdefault(option.name, {}).update(dict.fromkeys(option.choices))
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "string", "enum": list(choices)},
            "description": "An option of some reports.",
        }
        for name, choices in choices_of.items()
    ]


OPTIONS = _options()


def _find_report(request: Request, name: str) -> Report:
    """Return the report with the options in the URL. Raises Trouble."""
    every()
    if name not in REPORTS:
        raise Trouble("missing", f"unknown report {name!r}; choose from {', '.join(sorted(REPORTS))}.")
    names = {option["name"] for option in OPTIONS}
    return find(name, **{key: value for key, value in request.query_params.items() if key in names})


@router.get("/reports")
async def reports() -> list[models.Report]:
    """Every report."""
    return report_pages.reports()


@router.get("/reports/{name}", openapi_extra={"parameters": OPTIONS})
async def rows(request: Request, name: Name, context: Selected, query: Page) -> models.Table:
    """A page of a report. Its options are parameters with their names."""
    sheet = await _sheet(context, _find_report(request, name))
    return await asyncio.to_thread(page, sheet.frame, query, sheet.complete, sheet.sums, sheet.wholes, sheet.same)


@router.get("/trees/{name}")
async def nodes(
    name: Literal["groups", "modules"],
    context: Selected,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    open: Open = None,
) -> models.Tree:
    """Rows of a tree: groups of operators with their operators, or modules. Siblings are sorted; a search opens the
    ancestors of names that contain the text, and of paths that end with it."""
    tree: Tree = await context.ask("tree", lambda answer: Tree(answer, name), name=name, **context.arguments)
    return await asyncio.to_thread(tree.page, offset, limit, sort, search, open)


async def _sheet(context: Context, report: Report) -> Sheet:
    sheet: Sheet = await context.ask(
        "report",
        lambda answer: Sheet(answer, report),
        name=report.name,
        options=dict(report.selection),
        **context.arguments,
    )
    return sheet


@router.get(
    "/reports/{name}/export",
    response_class=StreamingResponse,
    openapi_extra={"parameters": OPTIONS},
    responses=files.ANSWER,
)
async def export(request: Request, name: Name, format: Format, context: Selected, query: Rows) -> StreamingResponse:
    """A report as a file: all pages of the filtered rows."""
    report = _find_report(request, name)
    sheet = await _sheet(context, report)
    if sheet.complete:
        return await files.of_frame(context, report, format, sheet.frame, query)
    sheet.frame.select(query.search, query.filters, query.sort)  # report errors in them now
    return await files.of_task(
        context, report, format, "file", name=report.name, options=dict(report.selection), search=query.search,
        filters=query.filters, **context.arguments,
    )  # fmt: skip

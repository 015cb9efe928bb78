# SPDX-License-Identifier: Apache-2.0
"""API routes: the profile, its dashboard, and the selected item."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from pyprof.reports import find
from pyprof.server import profile_summary, sources
from pyprof.server.guarded_store import Guarded
from pyprof.server.parameters import Run, Search
from pyprof.server.request_context import (
    Context,
    Selected,
    context_of,
    known_parameters,
    run_read,
    server,
)
from pyprof.views import details, gap_details, host_details, models, overview, roofline
from pyprof.views.problems import Trouble
from pyprof.views.report_pages import Sheet
from pyprof.views.search import find_names

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])


@router.get("/profile")
async def profile(request: Request, run: Run = None) -> models.Profile:
    """The profile, its aggregations and runs."""
    app = server(request)
    opened = await app.library.open(run)
    summary: models.Profile | None = opened.memo.get("profile")
    if summary is None:
        summary = opened.memo["profile"] = await run_read(
            request,
            opened,
            lambda store: profile_summary.profile(store, opened, [], app.source_root is not None),
        )
    return summary.model_copy(update={"runs": app.library.states(), "runs_reason": app.library.reason})


@router.get("/overview")
async def dashboard(context: Selected) -> models.Overview:
    """The dashboard."""
    key = ("overview", context.aggregation.id, context.worker)
    cached: models.Overview | None = context.opened.memo.get(key)
    if cached is None:
        cached = context.opened.memo[key] = await context.read(overview.overview)
    return cached


@router.get("/search")
async def hits(context: Selected, search: Search = "") -> list[models.Hit]:
    """Names that contain a text, whatever their case and punctuation: of each kind the six that fit best, those of the
    longest time first."""
    return await context.read(lambda source: find_names(source, search))


@router.get("/insights")
async def insights(context: Selected) -> models.Insights:
    """Findings of the expert rules."""
    from pyprof.views.findings import findings

    return await _insights(context, findings)


async def _insights(context: Context, findings: Any) -> models.Insights:
    result: models.Insights = await context.ask("insights", findings, background=True, **context.arguments)
    return result


@router.get("/fleet")
async def fleet(context: Selected) -> models.Fleet:
    """The sentences about the summary of a fleet."""
    if not server(context.request).library.is_summary(context.opened.run):
        raise Trouble("missing", f"{context.opened.name} is not the summary of a fleet.")
    result: models.Fleet = await context.ask("fleet", lambda answer: models.Fleet(**answer[0]), **context.arguments)
    return result


@router.get("/ledger")
async def ledger(request: Request, run: Run = None) -> models.Ledger:
    """Explained share of the time on the device, for the whole recording."""
    context = await context_of(request, run)
    result: models.Ledger = await context.ask(
        "ledger",
        lambda answer: models.Ledger(lines=[models.LedgerLine(**line) for line in answer[0]]),
        background=True,
    )
    return result


@router.get("/step_time")
async def step_time(context: Selected) -> models.Breakdown:
    """The eight categories of the step-time breakdown, summed over the report's steps."""
    report = find("step_time")

    def shape(answer: Any) -> models.Breakdown:
        frame = Sheet(answer, report).frame
        return overview.step_time(frame.pandas(frame.select()))

    breakdown: models.Breakdown = await context.ask(
        "report",
        shape,
        background=True,
        variant="sums",
        name="step_time",
        options=dict(report.selection),
        **context.arguments,
    )
    return breakdown


@router.get("/details/{kind}/{id:path}")
async def selected(
    kind: Literal["op", "kernel", "launch", "iteration", "finding", "range", "call", "gap"],
    id: Annotated[str, Path(min_length=1, max_length=4096)],
    context: Selected,
) -> models.Details:
    """Details of an operator (by op_id or number), a kernel (by number or name), a launch, a range, an API call, an
    iteration (by number), a finding (by rule), or a gap of a device (WORKER.DEVICE.NUMBER, from 0 by time)."""
    from pyprof.views.findings import details_of, findings

    if kind == "finding":
        return details_of(await _insights(context, findings), id)
    make = {
        "op": details.operator, "kernel": details.kernel, "launch": details.launch, "iteration": details.iteration,
        "range": host_details.range_, "call": host_details.call, "gap": gap_details.gap,
    }[kind]  # fmt: skip
    result = await context.read(lambda source: make(source, id))
    return await _readable(context, result)


async def _readable(context: Context, result: models.Details) -> models.Details:
    """Mark each line of the stack whose text is available."""
    if not result.stack:
        return result
    root, names = server(context.request).source_root, {frame.file for frame in result.stack}

    def check(store: Guarded) -> list[models.Frame]:
        available = sources.available(store, names, root)
        return [
            frame.model_copy(update={"readable": frame.line > 0 and available[frame.file]}) for frame in result.stack
        ]

    return result.model_copy(update={"stack": await run_read(context.request, context.opened, check)})


@router.get("/source")
async def source(
    request: Request,
    file: Annotated[str, Query(min_length=1, max_length=4096)],
    line: Annotated[int, Query(ge=1, le=10**7)],
    run: Run = None,
) -> models.SourceText:
    """Text of a file named in a call stack of the profile."""
    app = server(request)
    opened = await app.library.open(run)
    names = opened.memo.get("files")
    if names is None:
        names = opened.memo["files"] = await run_read(request, opened, sources.files)
    root = app.source_root
    return await run_read(request, opened, lambda store: sources.read(store, names, file, line, root))


@router.get("/roofline")
async def kernels_on_roofline(
    context: Selected,
    limit: Annotated[int, Query(ge=1, le=2000)] = 300,
) -> models.Roofline:
    """Kernels sorted by time, with work and speed, and the peaks of the devices."""
    return await context.read(lambda source: roofline.roofline(source, limit))

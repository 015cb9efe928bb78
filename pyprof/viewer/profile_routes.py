# SPDX-License-Identifier: Apache-2.0
"""API routes: the profile, its dashboard, and the selected item."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from pyprof.metrics import METRICS, Value
from pyprof.reports import find
from pyprof.reports.diff import REPORT as DIFFERENCE
from pyprof.viewer import details, files, models, overview, profile_summary, roofline, sources
from pyprof.viewer.guarded_store import Guarded
from pyprof.viewer.library import Opened
from pyprof.viewer.parameters import AggregationId, Format, Page, Rows, Run
from pyprof.viewer.report_pages import Sheet, page
from pyprof.viewer.request_context import (
    Context,
    Selected,
    context_of,
    find_aggregation,
    known_parameters,
    run_read,
    server,
)

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
    return summary.model_copy(update={"runs": app.library.states()})


@router.get("/overview")
async def dashboard(context: Selected) -> models.Overview:
    """The dashboard."""
    key = ("overview", context.aggregation.id, context.worker)
    cached: models.Overview | None = context.opened.memo.get(key)
    if cached is None:
        cached = context.opened.memo[key] = await context.read(overview.overview)
    return cached


@router.get("/insights")
async def insights(context: Selected) -> models.Insights:
    """Findings of the expert rules."""
    from pyprof.viewer.findings import findings

    return await _insights(context, findings)


async def _insights(context: Context, findings: Any) -> models.Insights:
    result: models.Insights = await context.ask("insights", findings, background=True, **context.arguments)
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
    kind: Literal["op", "kernel", "launch", "iteration", "finding"],
    id: Annotated[str, Path(min_length=1, max_length=4096)],
    context: Selected,
) -> models.Details:
    """Details of an operator (by op_id or number), a kernel (by number or name), a launch, an iteration (by number), or
    a finding (by rule)."""
    from pyprof.viewer.findings import details_of, findings

    if kind == "finding":
        return details_of(await _insights(context, findings), id)
    make = {
        "op": details.operator, "kernel": details.kernel, "launch": details.launch, "iteration": details.iteration
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
            frame.model_copy(update={"readable": frame.line > 0 and available[frame.file]})
            for frame in result.stack
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


class _Comparison:
    """Two profiles: their figures, and the table of differences."""

    def __init__(self, answer: Any):
        self.found, self.sheet = answer[0], Sheet(answer, DIFFERENCE)
        self.nbytes = self.sheet.nbytes


def _delta(name: str, base: Value, other: Value) -> models.Delta:
    metric = METRICS[name]
    delta = None if base is None or other is None else float(other - base)
    return models.Delta(
        key=name,
        heading=metric.heading,
        unit=metric.unit,
        text=metric.text,
        base=base,
        other=other,
        delta=delta,
    )


async def _compare(
    request: Request,
    base: str,
    other: str,
    by: str,
    base_aggregation: int | None,
    other_aggregation: int | None,
) -> tuple[Context, Opened, _Comparison]:
    first = await context_of(request, base, base_aggregation)
    second = await server(request).library.open(other)
    selection = await find_aggregation(request, second, other_aggregation)
    comparison: _Comparison = await first.ask(
        "compare", _Comparison, aggregation=first.aggregation.id, other=str(second.path),
        other_aggregation=selection.id, by=by, version=second.version,
    )  # fmt: skip
    return first, second, comparison


@router.get("/compare/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_comparison(
    request: Request,
    base: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    format: Format,
    query: Rows,
    by: Literal["operator", "kernel"] = "operator",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
) -> StreamingResponse:
    """The table of /api/compare as a file."""
    first, second, comparison = await _compare(request, base, other, by, base_aggregation, other_aggregation)
    title = f"{first.opened.name}_{second.name}"
    return await files.of_frame(first, DIFFERENCE, format, comparison.sheet.frame, query, title)


@router.get("/compare")
async def compare(
    request: Request,
    base: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    query: Page,
    by: Literal["operator", "kernel"] = "operator",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
) -> models.Compare:
    """Two runs of the served folder, or two aggregations of one run: figures, and operators or kernels side by side.
    Names are those of /api/profile's runs, empty for a single file."""
    first, second, comparison = await _compare(request, base, other, by, base_aggregation, other_aggregation)
    figures, sheet = comparison.found, comparison.sheet
    notes = []
    if figures["counts"][0] != figures["counts"][1]:
        notes.append(
            f"The base has {figures['counts'][0]} iterations, the other {figures['counts'][1]}; sums cover all of them."
        )
    return models.Compare(
        base=first.opened.name, other=second.name, by=by, notes=notes,
        figures=[_delta(name, figures["base"][name], figures["other"][name]) for name in METRICS],
        table=page(sheet.frame, query, sheet.complete),
    )  # fmt: skip

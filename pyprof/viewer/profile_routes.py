# SPDX-License-Identifier: Apache-2.0
"""The routes of the API: the profile, its dashboard, and whatever is selected."""

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
from pyprof.viewer.parameters import (
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
from pyprof.viewer.request_context import Asked, asked, chosen_aggregation, known_parameters, reading, server

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])


@router.get("/profile")
async def profile(request: Request, run: Run = None) -> models.Profile:
    """The profile, its aggregations and runs."""
    here = server(request)
    opened = await here.library.open(run)
    made: models.Profile | None = opened.known.get("profile")
    if made is None:
        made = opened.known["profile"] = await reading(
            request,
            opened,
            lambda store: profile_summary.profile(store, opened, [], here.source_root is not None),
        )
    return made.model_copy(update={"runs": here.library.states()})


@router.get("/overview")
async def dashboard(
    request: Request, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Overview:
    """The dashboard."""
    which = await asked(request, run, aggregation, worker)
    key = ("overview", which.aggregation.id, which.worker)
    made: models.Overview | None = which.opened.known.get(key)
    if made is None:
        made = which.opened.known[key] = await which.read(overview.overview)
    return made


@router.get("/insights")
async def insights(
    request: Request, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Insights:
    """Findings of the expert rules."""
    from pyprof.viewer.findings import findings

    which = await asked(request, run, aggregation, worker)
    return await _insights(which, findings)


async def _insights(which: Asked, findings: Any) -> models.Insights:
    found: models.Insights = await which.ask("insights", findings, background=True, **which.which)
    return found


@router.get("/ledger")
async def ledger(request: Request, run: Run = None) -> models.Ledger:
    """How much of the time on the device is explained, in the whole recording."""
    which = await asked(request, run, None, None)
    found: models.Ledger = await which.ask(
        "ledger",
        lambda answer: models.Ledger(lines=[models.LedgerLine(**line) for line in answer[0]]),
        background=True,
    )
    return found


@router.get("/step_time")
async def step_time(
    request: Request, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> models.Breakdown:
    """The eight categories of the step-time breakdown, added up over the report's steps."""
    which = await asked(request, run, aggregation, worker)
    made = find("step_time")

    def shape(answer: Any) -> models.Breakdown:
        frame = Sheet(answer, made).frame
        return overview.step_time(frame.pandas(frame.select()))

    found: models.Breakdown = await which.ask(
        "report",
        shape,
        background=True,
        shown="sums",
        name="step_time",
        options=dict(made.chosen),
        **which.which,
    )
    return found


@router.get("/details/{kind}/{id:path}")
async def selected(
    request: Request,
    kind: Literal["op", "kernel", "launch", "iteration", "finding"],
    id: Annotated[str, Path(min_length=1, max_length=4096)],
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
) -> models.Details:
    """What is known of an operator (its op_id, or its number), a kernel (its number, or its name), a launch, an
    iteration (their numbers), a finding (its rule)."""
    from pyprof.viewer.findings import details_of, findings

    which = await asked(request, run, aggregation, worker)
    if kind == "finding":
        return details_of(await _insights(which, findings), id)
    make = {
        "op": details.operator, "kernel": details.kernel, "launch": details.launch, "iteration": details.iteration
    }[kind]  # fmt: skip
    found = await which.read(lambda source: make(source, id))
    return await _readable(request, which, found)


async def _readable(request: Request, which: Asked, found: models.Details) -> models.Details:
    """With a word at each line of the stack whether its text can be had."""
    if not found.stack:
        return found
    root, names = server(request).source_root, {frame.file for frame in found.stack}

    def check(store: Guarded) -> list[models.Frame]:
        there = sources.available(store, names, root)
        return [
            frame.model_copy(update={"readable": frame.line > 0 and there[frame.file]})
            for frame in found.stack
        ]

    return found.model_copy(update={"stack": await reading(request, which.opened, check)})


@router.get("/source")
async def source(
    request: Request,
    file: Annotated[str, Query(min_length=1, max_length=4096)],
    line: Annotated[int, Query(ge=1, le=10**7)],
    run: Run = None,
) -> models.SourceText:
    """Text of a file that a call stack of the profile names."""
    here = server(request)
    opened = await here.library.open(run)
    known = opened.known.get("files")
    if known is None:
        known = opened.known["files"] = await reading(request, opened, sources.files)
    root = here.source_root
    return await reading(request, opened, lambda store: sources.read(store, known, file, line, root))


@router.get("/roofline")
async def kernels_on_roofline(
    request: Request,
    run: Run = None,
    aggregation: AggregationId = None,
    worker: WorkerId = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 300,
) -> models.Roofline:
    """Kernels by time, with work and speed, and the peaks of the devices."""
    which = await asked(request, run, aggregation, worker)
    return await which.read(lambda one: roofline.roofline(one, limit))


class _Compared:
    """Two profiles: their figures, and the table of differences."""

    def __init__(self, answer: Any):
        self.found, self.sheet = answer[0], Sheet(answer, DIFFERENCE)
        self.nbytes = self.sheet.nbytes


def _delta(name: str, base: Value, other: Value) -> models.Delta:
    one = METRICS[name]
    delta = None if base is None or other is None else float(other - base)
    return models.Delta(
        key=name, heading=one.heading, unit=one.unit, text=one.text, base=base, other=other, delta=delta
    )


async def _compared(
    request: Request,
    base: str,
    other: str,
    by: str,
    base_aggregation: int | None,
    other_aggregation: int | None,
) -> tuple[Asked, Opened, _Compared]:
    first = await asked(request, base, base_aggregation, None)
    second = await server(request).library.open(other)
    chosen = await chosen_aggregation(request, second, other_aggregation)
    both: _Compared = await first.ask(
        "compare", _Compared, aggregation=first.aggregation.id, other=str(second.path), other_aggregation=chosen.id,
        by=by, version=second.version,
    )  # fmt: skip
    return first, second, both


@router.get("/compare/export", response_class=StreamingResponse, responses=files.ANSWER)
async def export_comparison(
    request: Request,
    base: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    format: Format,
    by: Literal["operator", "kernel"] = "operator",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> StreamingResponse:
    """The table of /api/compare as a file."""
    first, second, both = await _compared(request, base, other, by, base_aggregation, other_aggregation)
    title = f"{first.opened.name}_{second.name}"
    return await files.of_frame(
        request, first.opened, DIFFERENCE, format, both.sheet.frame, sort, search, filter, title
    )


@router.get("/compare")
async def compare(
    request: Request,
    base: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    by: Literal["operator", "kernel"] = "operator",
    base_aggregation: AggregationId = None,
    other_aggregation: AggregationId = None,
    offset: Offset = 0,
    limit: Limit = 25,
    sort: Sort = None,
    search: Search = "",
    filter: Filter = [],  # noqa: B006
) -> models.Compare:
    """Two runs of the folder that is served, or two aggregations of one: figures, and operators or kernels side by
    side. Names are those of /api/profile's runs, empty for a single file."""
    first, second, both = await _compared(request, base, other, by, base_aggregation, other_aggregation)
    found, sheet = both.found, both.sheet
    notes = []
    if found["counts"][0] != found["counts"][1]:
        notes.append(
            f"The base has {found['counts'][0]} iterations, the other {found['counts'][1]}: sums are of as many."
        )
    return models.Compare(
        base=first.opened.name, other=second.name, by=by, notes=notes,
        figures=[_delta(name, found["base"][name], found["other"][name]) for name in METRICS],
        table=page(sheet.frame, offset, limit, sort, search, filter, sheet.complete),
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""API routes of annotations."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response

from pyprof.server.notes import Notes
from pyprof.server.parameters import Run
from pyprof.server.request_context import known_parameters, run_read, server
from pyprof.views import models
from pyprof.views.problems import Trouble

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])
_CHANGED = 412
_EXTENT = """
    select (select coalesce(sum(events), 0) from track), (select coalesce(max(end_ns), 0) from worker)
"""


async def _notes(request: Request, run: str | None) -> tuple[Notes, models.AnnotatedProfile]:
    opened = await server(request).library.open(run)
    profile: models.AnnotatedProfile | None = opened.memo.get("annotated")
    if profile is None:
        ((events, end),) = await run_read(request, opened, lambda store: store.rows(_EXTENT))
        profile = models.AnnotatedProfile(name=opened.name, events=events, end=end)
        opened.memo["annotated"] = profile
    return Notes(opened.input, opened.name), profile


@router.get("/annotations")
async def read_annotations(request: Request, response: Response, run: Run = None) -> models.Annotations:
    """The annotations of the timeline, in the order of their starts."""
    notes, profile = await _notes(request, run)
    answer = await asyncio.to_thread(notes.read, profile)
    response.headers["etag"] = f'"{answer.version}"'
    return answer


@router.put(
    "/annotations",
    response_model=models.Annotations,
    responses={_CHANGED: {"model": models.Annotations, "description": "Others were written meanwhile: these."}},
)
async def replace_annotations(
    request: Request,
    body: models.AnnotationList,
    run: Run = None,
    if_match: Annotated[
        str | None, Header(max_length=80, description="ETag of the annotations that are replaced.")
    ] = None,
) -> Response:
    """Replace all annotations, unless others were written since they were read."""
    if if_match is None:
        raise Trouble("parameter", "If-Match: expected the ETag of the annotations that are replaced.")
    notes, profile = await _notes(request, run)
    version = if_match.removeprefix("W/").strip('"')  # a proxy that compresses makes it a weak one
    written, answer = await asyncio.to_thread(notes.write, version, body.annotations, profile)
    return JSONResponse(
        answer.model_dump(mode="json"),
        200 if written else _CHANGED,
        {"etag": f'"{answer.version}"'},
    )

# SPDX-License-Identifier: Apache-2.0
"""API routes that change something: re-aggregations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import StreamingResponse

from pyprof.server.parameters import Run
from pyprof.server.request_context import known_parameters, server
from pyprof.views import models

router = APIRouter(prefix="/api", dependencies=[Depends(known_parameters)])
Id = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


@router.post("/aggregations", status_code=202)
async def aggregate(request: Request, body: models.Reaggregate, run: Run = None) -> models.Job:
    """Aggregate other iterations, in a separate process. Jobs of one run wait for each other."""
    return (await server(request).jobs.start(run, body)).model


@router.get("/jobs")
async def jobs(request: Request) -> list[models.Job]:
    """Jobs since the start of the server, latest first."""
    return [job.model for job in server(request).jobs.every()]


@router.get("/jobs/{id}")
async def job(request: Request, id: Id) -> models.Job:
    """A job."""
    return server(request).jobs.find(id).model


@router.get(
    "/jobs/{id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "A job per event."}},
)
async def job_events(request: Request, id: Id) -> StreamingResponse:
    """Progress as server-sent events: `data:` is a job; the last one is done, failed or cancelled."""
    registry = server(request).jobs
    registry.find(id)

    async def stream() -> AsyncIterator[str]:
        async for item in registry.watch(id):
            yield f"data: {item.model.model_dump_json()}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})


@router.delete("/jobs/{id}")
async def cancel(request: Request, id: Id) -> models.Job:
    """End a job and discard its results. A job that has ended stays as it is."""
    return server(request).jobs.cancel(id).model

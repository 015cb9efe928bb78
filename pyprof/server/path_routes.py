# SPDX-License-Identifier: Apache-2.0
"""API route of the critical path on the timeline."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from pyprof.server.parameters import Run
from pyprof.server.request_context import context_of, known_parameters
from pyprof.views import models

router = APIRouter(prefix="/api/timeline", dependencies=[Depends(known_parameters)])


@router.get("/critical_path")
async def critical_path(
    request: Request,
    at: Annotated[
        int,
        Query(
            ge=-(1 << 62),
            le=1 << 62,
            description="A time: of the first step that ends after it, by the clock of the worker that ends it last.",
        ),
    ],
    run: Run = None,
) -> models.CriticalPath:
    """The critical path of a step, over ranks, as stretches of threads and streams (report critical_path)."""
    context = await context_of(request, run)
    path: models.CriticalPath = await context.ask(
        "critical_path",
        lambda answer: models.CriticalPath(**answer[0]),
        aggregation=context.aggregation.id,
        at=at,
    )
    return path

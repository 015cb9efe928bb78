# SPDX-License-Identifier: Apache-2.0
"""API route of ranks and steps as a heat map."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from pyprof.server.request_context import Selected, known_parameters
from pyprof.views import models
from pyprof.views.rank_heat import Cells, of_table

router = APIRouter(prefix="/api/ranks", dependencies=[Depends(known_parameters)])


@router.get("/heat")
async def heat(
    context: Selected,
    figure: Annotated[
        Literal["total_ns", "late_ns", "dataloader_ns", "communication_ns", "busy_ns"],
        Query(description="A figure of the report ranks."),
    ] = "total_ns",
) -> models.Heat:
    """A figure of every rank in every step. Of many ranks and steps, neighbors share a cell, which has the worst."""
    cells: Cells = await context.ask("rank_heat", of_table, **context.arguments)
    return await asyncio.to_thread(cells.of, figure)

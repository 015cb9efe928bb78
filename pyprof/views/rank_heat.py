# SPDX-License-Identifier: Apache-2.0
"""Ranks and steps as cells of a heat map: the figures of the report ranks. Of more ranks or steps than a screen has
pixels, neighbors share a cell, and the worst of them is shown.

A child process makes the cells of all figures at once; a request picks those of one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyprof.core.model import Ints
from pyprof.facts.ranks.rank_steps import FIGURES, rank_steps
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import find
from pyprof.views.models import Heat

RANKS, STEPS = 512, 400  # cells of a column, and of a row
Floats = npt.NDArray[np.float64]
_LEAST = ("busy_ns",)  # figures of which the least is the worst


class Cells(NamedTuple):
    """The cells of all figures, row by row, NaN where nothing is known; `head`: the fields of `models.Heat` that they
    share."""

    head: dict[str, Any]
    values: dict[str, Floats]
    which: dict[str, Ints]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for columns in (self.values, self.which) for one in columns.values())

    def of(self, figure: str) -> Heat:
        """Return the cells of a figure."""
        column = next(one for one in find("ranks").all_columns if one.key == figure)
        several = self.head["workers_per_row"] * self.head["steps_per_column"] > 1
        shape = -(-len(self.head["workers"]) // self.head["workers_per_row"]), -1
        values = self.values[figure].reshape(shape).tolist() if self.head["workers"] else []
        return Heat(
            figure=figure, heading=column.heading.removesuffix(" (ns)"), text=column.text,
            worst="least" if figure in _LEAST else "most", **self.head,
            values=[[None if one != one else round(one) for one in line] for line in values],
            which=self.which[figure].reshape(shape).tolist() if several else None,
        )  # fmt: skip


def table(source: Source) -> tuple[dict[str, Any], pa.Table]:
    """Return the cells of all figures, as a task of a child."""
    rows = rank_steps(source, spans(Source(source.store, source.aggregation)))
    if source.worker is not None:
        rows = rows[rows["worker"] == source.worker]
    worker, row = np.unique(rows["worker"].to_numpy(np.int64), return_inverse=True)
    step, column = np.unique(rows["step"].to_numpy(np.int64), return_inverse=True)
    tall, wide = max(1, -(-len(worker) // RANKS)), max(1, -(-len(step) // STEPS))
    columns: dict[str, Any] = {}
    for figure in FIGURES:
        grid = np.full((len(worker), len(step)), np.nan)
        grid[row, column] = rows[figure].astype("Float64").to_numpy(float, na_value=np.nan)
        values, which = worst(grid, tall, wide, figure in _LEAST)
        columns |= {figure: values.ravel(), f"which {figure}": which.ravel()}
    lengths = rows.groupby("step")["total_ns"].median().round().astype(int).tolist()
    return {
        "workers": worker.tolist(), "steps": step.tolist(), "lengths": lengths, "workers_per_row": tall,
        "steps_per_column": wide,
    }, pa.table(columns)  # fmt: skip


def of_table(answer: tuple[dict[str, Any], pa.Table]) -> Cells:
    """Return the cells of the task's answer."""
    head, columns = answer
    return Cells(
        head,
        {figure: columns.column(figure).to_numpy() for figure in FIGURES},
        {figure: columns.column(f"which {figure}").to_numpy() for figure in FIGURES},
    )


def worst(grid: Floats, tall: int, wide: int, least: bool) -> tuple[Floats, Ints]:
    """Return the largest (or least) known value of each `tall` by `wide` cells, NaN without any, and its place among
    them, row by row.

    >>> values, which = worst(np.array([[1.0, 5, 2], [4, np.nan, np.nan]]), 2, 2, False)
    >>> values.tolist(), which.tolist()
    ([[5.0, 2.0]], [[1, 0]])
    """
    rows, columns = -(-grid.shape[0] // tall), -(-grid.shape[1] // wide)
    padded = np.full((rows * tall, columns * wide), np.nan)
    padded[: grid.shape[0], : grid.shape[1]] = grid
    cells = padded.reshape(rows, tall, columns, wide).transpose(0, 2, 1, 3).reshape(rows, columns, tall * wide)
    signed = -cells if least else cells
    which: Ints = np.where(np.isnan(signed), -np.inf, signed).argmax(axis=2)
    return np.take_along_axis(cells, which[..., None], 2)[..., 0], which

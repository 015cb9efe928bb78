# SPDX-License-Identifier: Apache-2.0
"""Pages of reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from pyprof.model import Ints
from pyprof.reports import Column, Report, every
from pyprof.rules.wording import plain
from pyprof.viewer import models
from pyprof.viewer.column_table import Frame
from pyprof.viewer.models import Cell

_KINDS: dict[type, models.ColumnKind] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    object: "object",
}


def columns_of(columns: Iterable[Column]) -> list[models.Column]:
    """Columns as the API has them."""
    return [
        models.Column(
            key=c.key, heading=c.heading, unit=c.unit, text=c.text, kind=_KINDS[c.kind], extra=c.extra
        )
        for c in columns
    ]


def reports() -> list[models.Report]:
    """Every report."""
    return [
        models.Report(
            name=one.name, title=one.title, suffix=one.suffix, text=one.text, columns=columns_of(one.all_columns),
            options=[
                models.Option(
                    name=option.name, text=option.text, default=option.default,
                    choices={value: list(out) for value, out in option.choices.items()},
                )
                for option in one.options
            ],
            view=models.View(**(one.view._asdict() | {"show": list(one.view.show)})),
        )
        for one in every()
    ]  # fmt: skip


class Sheet:
    """A report's rows in memory, and whether they are all."""

    def __init__(self, answer: tuple[Any, pa.Table], report: Report):
        self.complete: bool = answer[0]["complete"]
        self.frame = Frame(answer[1], report.columns)

    @property
    def nbytes(self) -> int:
        return self.frame.nbytes


def page(
    frame: Frame,
    offset: int,
    limit: int,
    sort: str | None,
    search: str,
    filters: Sequence[str],
    complete: bool = True,
) -> models.Table:
    """A page of a table. Raises Trouble for columns and conditions that do not exist."""
    rows = frame.select(search, filters, sort)
    shown: Ints = rows[offset : offset + limit]
    note = None
    if not complete:
        note = f"The first {frame.rows:,} rows; filters and sorting are of these. An export has all."
    return models.Table(
        columns=columns_of(frame.columns), rows=frame.cells(shown), ids=shown.tolist(), offset=offset,
        total=frame.rows, filtered=len(rows), complete=complete, note=note,
    )  # fmt: skip


def plain_rows(table: pd.DataFrame, keys: Sequence[str]) -> list[list[Cell]]:
    """Rows of a small frame as JSON has them."""
    return [
        [None if cell is None or cell is pd.NA else plain(cell) for cell in row]
        for row in table[list(keys)].astype(object).itertuples(index=False)
    ]

# SPDX-License-Identifier: Apache-2.0
"""Pages of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.model import Ints
from pyprof.reports import Column, Report, every
from pyprof.rules.wording import plain
from pyprof.views import models
from pyprof.views.column_table import Frame
from pyprof.views.models import Cell

if TYPE_CHECKING:
    from pyprof.views.queries import PageQuery

_KINDS: dict[type, models.ColumnKind] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    object: "object",
}


def columns_of(columns: Iterable[Column]) -> list[models.Column]:
    """Return columns as models of the API."""
    return [
        models.Column(
            key=column.key,
            heading=column.heading,
            unit=column.unit,
            text=column.text,
            kind=_KINDS[column.kind],
            extra=column.extra,
        )
        for column in columns
    ]


def reports() -> list[models.Report]:
    """Return every report."""
    return [
        models.Report(
            name=report.name, title=report.title, suffix=report.suffix, text=report.text,
            needs=report.needs, columns=columns_of(report.all_columns),
            options=[
                models.Option(
                    name=option.name, text=option.text, default=option.default,
                    choices={value: list(out) for value, out in option.choices.items()},
                )
                for option in report.options
            ],
            view=models.View(
                category=report.view.category, sort=report.view.sort, show=list(report.view.show)
            ),
            of_summary=report.of_summary,
        )
        for report in every()
    ]  # fmt: skip


class Sheet:
    """Rows of a report in memory, and whether they are complete."""

    def __init__(self, answer: tuple[Any, pa.Table], report: Report):
        self.complete: bool = answer[0]["complete"]
        self.frame = Frame(answer[1], report.columns)
        keys = {column.key for column in report.columns}
        self.sums = [key for key in report.view.sums.split() if key in keys]
        self.wholes = {part: whole for part, whole in report.view.wholes.items() if part in keys and whole in keys}
        self.same = {
            one: other
            for one, other in report.view.nested.items()
            if self.complete and self.frame.rows and one in keys and self.frame.equal(one, other)
        }

    @property
    def nbytes(self) -> int:
        return self.frame.nbytes


def page(
    frame: Frame,
    query: PageQuery,
    complete: bool = True,
    sums: Sequence[str] = (),
    wholes: Mapping[str, str] = {},
    same: Mapping[str, str] = {},
) -> models.Table:
    """Return a page of a table, with totals of the columns `sums`. Raises Trouble for an unknown column or
    condition."""
    rows = frame.select(query.search, query.filters, query.sort)
    visible: Ints = rows[query.offset : query.offset + query.limit]
    note = None
    if not complete:
        note = f"The first {frame.rows:,} rows; filters and sorting apply only to these. An export contains all."
    return models.Table(
        columns=columns_of(frame.columns), rows=frame.cells(visible), ids=visible.tolist(), offset=query.offset,
        total=frame.rows, filtered=len(rows), complete=complete, note=note,
        totals=totals(frame, sums, np.arange(frame.rows), rows) if complete else {}, wholes=dict(wholes),
        empty=frame.empty(), same=dict(same),
    )  # fmt: skip


def totals(frame: Frame, sums: Sequence[str], all_rows: Ints, filtered: Ints | None = None) -> dict[str, models.Total]:
    """Return the totals of columns over all rows and over the filtered ones, which are all by default."""
    out = {}
    for key in sums:
        whole, unknown = frame.total(key, all_rows)
        part = (whole, unknown) if filtered is None else frame.total(key, filtered)
        out[key] = models.Total(all=whole, filtered=part[0], unknown=part[1])
    return out


def plain_rows(table: pd.DataFrame, keys: Sequence[str]) -> list[list[Cell]]:
    """Return rows of a small frame for JSON."""
    return [
        [None if cell is None or cell is pd.NA else plain(cell) for cell in row]
        for row in table[list(keys)].astype(object).itertuples(index=False)
    ]

# SPDX-License-Identifier: Apache-2.0
"""Pages of tables, and their reports."""

from __future__ import annotations

from pydantic import Field

from pyprof.views.models.base import Cell, ColumnKind, Model


class Column(Model):
    """A column of a table: its definition and unit."""

    key: str
    heading: str
    unit: str
    text: str
    kind: ColumnKind
    extra: bool = Field(description="DLProf has no such column.")


class Option(Model):
    """An option of a report: each value, and the columns that it leaves out; `default` comes first."""

    name: str
    text: str
    default: str
    choices: dict[str, list[str]]


class View(Model):
    """Presentation of a report on the page: its menu section, and the initial sort and columns."""

    category: str
    sort: str
    show: list[str]


class Report(Model):
    """A report; `columns` are all that it can have."""

    name: str
    title: str
    suffix: str
    text: str
    needs: str = Field(description="What a recording needs for it to have rows; empty: nothing special.")
    columns: list[Column]
    options: list[Option]
    view: View
    of_summary: bool = Field(description="Whether the summary of a fleet has it.")


class Total(Model):
    """Sum of a column whose rows add up: of the `filtered` rows and of all, null if no value is known; `unknown`: how
    many of the filtered rows have none."""

    filtered: int | None
    all: int | None
    unknown: int


class Table(Model):
    """A page of a table. `ids`: the rows' indices in the unsorted table, which identify a selection. Not `complete`:
    the table is longer than what is shown of it, as `note` tells."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int]
    offset: int
    total: int
    filtered: int
    complete: bool
    note: str | None
    totals: dict[str, Total] = Field(description="By column; empty if the table is not complete.")
    wholes: dict[str, str] = Field(
        description="By column, the column of the same row that its shares are of, instead of its total."
    )
    empty: list[str] = Field(description="Columns without a value in any row, filtered or not.")
    same: dict[str, str] = Field(description="Columns that equal another in every row, and that one.")


class Node(Model):
    """A node of a tree. `key` is derived from its path; `inside`: whether it has children; `open`: whether they are
    visible."""

    key: str
    path: str
    name: str
    level: int = Field(description="1 for a root.")
    group: bool
    inside: bool
    open: bool


class Tree(Model):
    """Some rows of an unfolded tree: `nodes` and, in the same order, the cells of each. `open` is the parameter that
    reproduces this state in a request. `total`: all nodes; `filtered`: visible nodes, over all pages."""

    columns: list[Column]
    nodes: list[Node]
    rows: list[list[Cell]]
    open: str
    offset: int
    total: int
    filtered: int
    complete: bool
    note: str | None
    totals: dict[str, Total] = Field(description="By column, over the whole tree.")


class Launches(Model):
    """A page of GPU events. `next`: cursor of the next page, null on the last. `offset` applies if
    `paged` is true (iterations or operators with at most 100,000 events): then any column can be sorted and pages have
    numbers."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int] = Field(description="Ids of the events, for /api/details/launch/.")
    offset: int
    next: str | None
    paged: bool
    total: int
    filtered: int


class Iterations(Model):
    """A page of iterations of an aggregation's cut, including those outside the aggregation. Rows are per worker; the
    seven parts add up to the length."""

    columns: list[Column]
    rows: list[list[Cell]]
    offset: int
    total: int
    filtered: int
    first: int
    last: int
    longest: int | None


class Bars(Model):
    """Iterations as a chart: means over workers, in ns. Bar i covers the numbers `number[i]` to `until[i]`; its mean
    covers `count[i]` of them: those in the aggregation, or all if none are (`outside[i]`). `headings`: of the
    parts; `total`: all numbers; `first`, `last`: bounds of the aggregation."""

    number: list[int]
    until: list[int]
    count: list[int]
    outside: list[bool]
    duration: list[float]
    parts: dict[str, list[float | None]]
    headings: dict[str, str]
    total: int
    first: int
    last: int


class KeyOperator(Model):
    """An operator that could cut the run into iterations."""

    id: int
    op_id: str
    name: str
    type: str
    direction: str | None
    calls: int
    gpu: int | None
    cpu: int | None
    per_iteration: float = Field(description="Executions divided by iterations and workers.")
    per_step: bool = Field(description="Whether it runs once in each iteration of the aggregation.")


class KeyOperators(Model):
    """Candidates; those that run once per iteration come first."""

    rows: list[KeyOperator]
    total: int
    filtered: int

# SPDX-License-Identifier: Apache-2.0
"""Pages of tables, and the reports that they are of."""

from __future__ import annotations

from pydantic import Field

from pyprof.viewer.models.base import Cell, ColumnKind, Model


class Column(Model):
    """A column of a table: what it means and in which unit."""

    key: str
    heading: str
    unit: str
    text: str
    kind: ColumnKind
    extra: bool = Field(description="DLProf has no such column.")


class Option(Model):
    """What can be chosen of a report: each value, and the columns that it leaves out; `default` comes first."""

    name: str
    text: str
    default: str
    choices: dict[str, list[str]]


class View(Model):
    """How the page shows a report: where it is listed, and the sort, columns and bars that it begins with."""

    category: str
    sort: str
    show: list[str]
    bar: str


class Report(Model):
    """A report; `columns` are all that it can have."""

    name: str
    title: str
    suffix: str
    text: str
    columns: list[Column]
    options: list[Option]
    view: View


class Table(Model):
    """A page of a table. `ids`: the rows' places in the unsorted table, by which a selection is kept. Not `complete`:
    the table is longer than what is shown of it, as `note` says."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int]
    offset: int
    total: int
    filtered: int
    complete: bool
    note: str | None


class Node(Model):
    """A node of a tree. `key` is made of its path; `inside`: whether there are nodes in it; `open`: whether they are
    shown."""

    key: str
    path: str
    name: str
    level: int = Field(description="1 is a root.")
    group: bool
    inside: bool
    open: bool


class Tree(Model):
    """Some rows of a tree as it is unfolded: `nodes` and, in the same order, the cells of each. `open` is how that is
    said in a request. `total`: all nodes; `filtered`: those that are shown, over all pages."""

    columns: list[Column]
    nodes: list[Node]
    rows: list[list[Cell]]
    open: str
    offset: int
    total: int
    filtered: int
    complete: bool
    note: str | None


class Launches(Model):
    """A page of GPU events. `next`: cursor of the page behind it, null on the last. `total` and `filtered` are null
    where counting would take too long: /api/launches/count has them. `offset` counts where `paged` is true (a range of
    iterations or operators with at most 100,000 events): then any column sorts and pages have numbers."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int] = Field(description="Ids of the events, for /api/details/launch/.")
    offset: int
    next: str | None
    paged: bool
    total: int | None
    filtered: int | None


class Count(Model):
    """How many events there are, of all and of those that the filters leave; null where time was up."""

    total: int | None
    filtered: int | None


class Iterations(Model):
    """A page of iterations of an aggregation's cut; those outside of the aggregation too. Rows are per worker; the
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
    """Iterations as a chart has them: means over workers, in ns. Bar i is of the numbers `number[i]` to `until[i]`, of
    which `count[i]` are in the mean: those that the aggregation has, or if it has none (`outside[i]`) all. `total`: all
    numbers; `first`, `last`: of the aggregation."""

    number: list[int]
    until: list[int]
    count: list[int]
    outside: list[bool]
    duration: list[float]
    parts: dict[str, list[float | None]]
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
    per_iteration: float = Field(description="Its executions divided by iterations and workers.")
    per_step: bool = Field(description="It runs once in each iteration of the aggregation.")


class KeyOperators(Model):
    """Candidates, those that run once per iteration first."""

    rows: list[KeyOperator]
    total: int
    filtered: int

# SPDX-License-Identifier: Apache-2.0
"""The tables of the tabs: a report, the columns of it that are shown, and where a row leads.

Rows are filtered and sorted as on the page (`Frame.select`, `Tree.rows`), and sums are those of the reports. A share is
that of the sum over all rows of the column, as the page's is. Add a table: a function here, and its name in SHEETS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof.core.model import Bools, Ints
from pyprof.core.symbols import short_name
from pyprof.facts.steps.source import Source
from pyprof.metrics import share
from pyprof.reports import Column, Report, find
from pyprof.rules import Outcome
from pyprof.server.tasks import judged
from pyprof.top.cells import cell
from pyprof.views.column_table import Frame, from_rows, report_table
from pyprof.views.filters import split
from pyprof.views.findings import findings
from pyprof.views.models import Insights
from pyprof.views.tree import Tree
from pyprof.views.tree_reports import groups

Values = Mapping[str, Any]
SHARE = "share"


class Field(NamedTuple):
    """A column on the screen. `of`: the share of this column's sum. `head`: of a text that does not fit, the share of
    the kept characters before the gap; `spelled`: how texts are shown."""

    key: str
    heading: str
    of: str | None = None
    head: float = 0.4
    spelled: Callable[[str], str] = str


class Place(NamedTuple):
    """The place of a row on the page: a view and its parameters. `item`: kind and id of what the page describes."""

    view: str
    parameters: dict[str, str]
    item: tuple[str, str] | None = None


class Selected(NamedTuple):
    """Rows that pass the filter `text`, in the order `sort`. `matching`: of a tree, a mask of what passes with all
    above it."""

    text: str
    sort: str
    rows: Ints
    matching: Bools | None = None


class Sheet:
    """A table, the rows of it that are shown, and the place of the cursor among them."""

    cursor = 0

    def __init__(
        self, frame: Frame, fields: tuple[Field, ...], place: Callable[[Values], Place], sort: str = "",
        nothing: str = "", complete: bool = True,
    ):  # fmt: skip
        empty = {key for key in frame.empty() if frame.rows}
        self.frame, self.place, self.nothing = frame, place, nothing
        self.fields = tuple(one for one in fields if (one.of or one.key) not in empty)
        self.columns = {column.key: column for column in frame.columns}
        self.note = "" if complete else f"the first {frame.rows:,} rows"
        self._totals = {one.of: frame.total(one.of, np.arange(frame.rows))[0] for one in self.fields if one.of}
        self.state = self.select("", sort)

    @property
    def total(self) -> int:
        """Number of rows before any filter."""
        rows: int = self.frame.rows
        return rows

    def select(self, text: str, sort: str) -> Selected:
        """Return the rows that pass a filter, in order. Raises Trouble for a wrong filter."""
        search, filters = split(text, self.columns)
        return Selected(text, sort, self.frame.select(search, filters, sort or None))

    def next_order(self) -> str:
        """Return the order by the next column fields: texts from the beginning, numbers the largest first."""
        keys = [one.key for one in self.fields if one.of is None]
        now = self.state.sort.lstrip("-")
        key = keys[(keys.index(now) + 1) % len(keys)] if now in keys else keys[0]
        return key if self.columns[key].kind is str else f"-{key}"

    def reversed_order(self) -> str:
        """Return the other direction of the order."""
        now = self.state.sort
        if not now:
            return self.next_order()
        return now[1:] if now.startswith("-") else f"-{now}"

    def values(self, row: int) -> dict[str, Any]:
        """Return all values of a row by the keys of the columns."""
        return dict(zip(self.columns, self.frame.cells(np.array([row]))[0]))

    def cells(self, rows: Ints, scale: str) -> list[list[str]]:
        """Return the texts of rows, column by column; times in the unit `scale`."""
        values = [dict(zip(self.columns, cells)) for cells in self.frame.cells(rows)]
        return [[self._cell(one, row, scale) for row in values] for one in self.fields]

    def _cell(self, one: Field, row: Values, scale: str) -> str:
        if one.of is not None:
            return cell(_share(row[one.of], self._totals[one.of]), "%")
        value, column = row[one.key], self.columns[one.key]
        if column.kind is not str:
            return cell(value, column.unit, scale)
        if not value and one is self.fields[0]:
            return "(none)"
        return cell(one.spelled(value), "") if value else ""

    def head(self, one: Field) -> float | None:
        """Return how a column of texts is shortened; None for numbers."""
        return one.head if one.of is None and self.columns[one.key].kind is str else None

    def place_of(self, row: int) -> Place:
        """Return where the page shows a row."""
        return self.place(self.values(row))

    def title(self, row: int) -> str:
        """Return the name of a row."""
        return str(self.values(row)[self.fields[0].key] or "")


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or whole is None else share(part, whole)


class TreeSheet(Sheet):
    """Groups of the model with the operators in each; groups open and close."""

    def __init__(self, tree: Tree, fields: tuple[Field, ...], nothing: str):
        self.tree = tree
        self.opened = tree.parent < 0
        super().__init__(tree.frame, fields, _operator, "", nothing, tree.complete)
        self._totals = {key: sums.all for key, sums in tree.totals.items()}

    def select(self, text: str, sort: str) -> Selected:
        """Return the visible nodes; while there is a filter, those that pass it with all above them."""
        search, filters = split(text, self.columns)
        matching = self.tree.matching(search, filters) if search or filters else None
        rows = self.tree.rows(self.opened if matching is None else matching, matching, sort or None)
        return Selected(text, sort, rows, matching)

    def unfold(self, row: int, opened: bool) -> bool:
        """Open or close a node; return whether that changed anything."""
        if self.state.matching is not None or not self.tree.inside[row] or self.opened[row] == opened:
            return False
        self.opened[row] = opened
        return True

    def above(self, row: int) -> int:
        """Return the group around a node, -1 for none."""
        return int(self.tree.parent[row])

    def cells(self, rows: Ints, scale: str) -> list[list[str]]:
        """Return the texts of nodes: names are indented by their level."""
        opened = self.opened if self.state.matching is None else self.state.matching
        out = super().cells(rows, scale)
        for one, texts in zip(self.fields, out):
            for number, row in enumerate(rows.tolist()):
                if one.key == "name":
                    mark = ("▾ " if opened[row] else "▸ ") if self.tree.inside[row] else "  "
                    texts[number] = "  " * (int(self.tree.level[row]) - 1) + mark + texts[number]
        return out

    def place_of(self, row: int) -> Place:
        """Return where the page shows a node: an operator has details."""
        if self.tree.group[row]:
            return Place("operators", {"by": "group"})
        return _operator({"op_id": _op_id(self.tree.paths[row])})

    def title(self, row: int) -> str:
        """Return the full name of a node."""
        path = self.tree.paths[row]
        return path if self.tree.group[row] else path.rpartition(" ")[0]


def _op_id(path: str) -> str:
    """Return the id of an operator in the tree, whose path ends with it."""
    return path.rpartition(" ")[2]


def _operator(values: Values) -> Place:
    id = str(values["op_id"])
    return Place("operators", {"d": f"op:{id}"}, ("op", id))


def _filtered(view: str, table: str, keys: tuple[str, ...], more: dict[str, str]) -> Callable[[Values], Place]:
    """Return the place of a row in a table of the page: filtered by what identifies it."""

    def place(values: Values) -> Place:
        filters = {f"{table}.f.{key}": f"={values[key]}" if isinstance(values[key], str) else "?" for key in keys}
        return Place(view, more | filters)

    return place


def _sheet(source: Source, report: Report, fields: tuple[Field, ...], place: Callable[[Values], Place]) -> Sheet:
    answer, table = report_table(report, source)
    frame = Frame(table, report.columns)
    sort = report.view.sort
    if sort.lstrip("-") in frame.empty():  # no device: by time on the host
        sort = next((f"-{one.key}" for one in fields if one.key in _HOST and one.key in table.column_names), "")
    return Sheet(frame, fields, place, sort, report.nothing, answer["complete"])


_HOST = ("cpu", "host_self_ns")


def _times(source: Source, device: str, host: str) -> tuple[Field, ...]:
    """Return the columns of times: on the device with the share, and on the host, which has the share without a GPU."""
    if source.gpu:
        return Field(device, "Device"), Field(SHARE, "Share", device), Field(host, "Host")
    return Field(host, "Host"), Field(SHARE, "Share", host)


def by_module(source: Source) -> Sheet:
    """Operators in the groups of the model."""
    detail = find("detail")
    needed = tuple(column for column in detail.columns if column.key in ("op_id", "bound"))
    _, operators = report_table(detail._replace(columns=needed), source)
    bounds = dict(zip(operators.column("op_id").to_pylist(), operators.column("bound").to_pylist()))
    info, table = groups(source)
    cells = [
        None if group else bounds.get(_op_id(path))
        for path, group in zip(table.column("path").to_pylist(), table.column("group").to_pylist())
    ]
    table = table.append_column("bound", pa.array(cells, pa.string()))
    tree = Tree((info, table), "groups", tuple(column for column in needed if column.key == "bound"))
    fields = (
        Field("name", "Name"), Field("calls", "Calls"), *_times(source, "gpu", "cpu"), Field("tc", "TC"),
        Field("bound", "Bound"),
    )  # fmt: skip
    return TreeSheet(tree, fields, detail.nothing)


def by_place(source: Source) -> Sheet:
    """Operators one by one."""
    fields = (
        Field("name", "Operator"), Field("calls", "Calls"), *_times(source, "gpu", "cpu"), Field("using_tc", "TC"),
        Field("bound", "Bound"), Field("op_id", "Op ID"),
    )  # fmt: skip
    return _sheet(source, find("detail"), fields, _operator)


def by_type(source: Source) -> Sheet:
    """Operators by type of operation."""
    fields = (
        Field("type", "Type"), Field("calls", "Calls"), *_times(source, "gpu", "cpu"), Field("tc", "TC"),
        Field("ops", "Ops"),
    )  # fmt: skip
    return _sheet(source, find("op_type"), fields, _filtered("operators", "types", ("type",), {"by": "type"}))


def by_name(source: Source) -> Sheet:
    """Operators by name."""
    fields = (
        Field("name", "Name"), Field("calls", "Calls"), *_times(source, "device_self_ns", "host_self_ns"),
        Field("tc_self", "TC"), Field("bound", "Bound"),
    )  # fmt: skip
    return _sheet(source, find("operator"), fields, _filtered("operators", "operators", ("name",), {}))


def kernels(source: Source) -> Sheet:
    """Kernels by name."""
    fields = (
        Field("name", "Kernel", spelled=short_name), Field("calls", "Calls"), Field("total_ns", "Total"),
        Field(SHARE, "Share", "total_ns"), Field("mean_ns", "Mean"), Field("tc", "TC"),
        Field("bound", "Bound"), Field("efficiency", "Eff."),
        Field("max_ns", "Max"),
    )  # fmt: skip

    def place(values: Values) -> Place:
        return Place("kernels", {"d": f"kernel:{values['name']}"}, ("kernel", str(values["name"])))

    return _sheet(source, find("kernel_summary"), fields, place)


def idle(source: Source) -> Sheet:
    """Idle time by cause and place of the host."""
    fields = (
        Field("cause", "Cause"), Field("total_ns", "Total"), Field("share", "Share"), Field("line", "Line", head=0.0),
        Field("host", "Host"), Field("count", "Count"), Field("longest_ns", "Longest"), Field("operator", "Operator"),
    )  # fmt: skip
    keys = ("cause", "call", "host", "operator")
    return _sheet(source, find("idle"), fields, _filtered("gpus", "idle", keys, {"idle.o.by": "place"}))


def lines(source: Source) -> Sheet:
    """Source lines of the program."""
    fields = (
        Field("line", "Line", head=0.0), *_times(source, "device_self_ns", "host_self_ns"), Field("calls", "Calls"),
        Field("device_total_ns", "Total"), Field("host_total_ns", "Host total"), Field("kernels", "Kernels"),
    )  # fmt: skip

    def place(values: Values) -> Place:
        return Place("lines", {"d": f"source:{values['line']}"} if values["line"] else {})

    return _sheet(source, find("source_line"), fields, place)


_FINDINGS = (
    Column("saving", "Saving (ns)", "ns", "Estimated saving of wall time, of a step."),
    Column("share", "Share (%)", "%", "The saving as a share of the steady steps.", float),
    Column("rule", "Rule", "", "Name of the rule.", str),
    Column("problem", "Problem", "", "What was found, or that the rule was not evaluated.", str),
)


class FindingSheet(Sheet):
    """Findings of the rules, and the rules that need more facts."""

    def __init__(self, insights: Insights):
        self.insights = insights
        rows = [(one.saving_per_step, one.share, one.id, one.problem) for one in insights.expert]
        saving = "Saves a step" if insights.cut else "Saves"
        fields = (Field("problem", "Problem"), Field("saving", saving), Field("share", "Share"), Field("rule", "Rule"))
        evaluated = insights.silent
        super().__init__(
            from_rows(rows, _FINDINGS), fields, _finding, "", f"No finding ({evaluated} rules could be evaluated)."
        )


def _finding(values: Values) -> Place:
    return Place("overview", {"d": f"finding:{values['rule']}"}, ("finding", str(values["rule"])))


def finding_sheet(source: Source, outcomes: list[Outcome]) -> FindingSheet:
    """Findings of the rules, the largest saving first."""
    return FindingSheet(findings((judged(source, outcomes), None)))


OPERATORS: dict[str, Callable[[Source], Sheet]] = {
    "module": by_module, "operator": by_place, "type": by_type, "name": by_name
}  # fmt: skip
SHEETS: dict[str, Callable[[Source], Sheet]] = {"kernels": kernels, "idle": idle, "lines": lines}

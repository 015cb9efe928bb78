# SPDX-License-Identifier: Apache-2.0
"""Reports: tables of an aggregation, one file each. Open folder: a module here with a function decorated by `report`.

A function takes a `Source` and returns the rows as a data frame whose columns are the report's, in order; integers are
nullable, unknown is missing. Everything that shows reports (files, commands, pages, the documentation) follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyprof.db.source import Source
from pyprof.errors import UsageError
from pyprof.metrics import FIGURES
from pyprof.registry import Registry, load_folder

if TYPE_CHECKING:
    import pandas as pd


class Column(NamedTuple):
    """A column of a report: its key, heading, unit and definition. `kind`: int, float, str or bool."""

    key: str
    heading: str
    unit: str
    text: str
    kind: type = int


def figure(key: str, of: str | None = None, heading: str | None = None) -> Column:
    """A column that shows a figure of the metrics; `of` names the figure if the key is another."""
    found = FIGURES[of or key]
    return Column(key, heading or found.heading, found.unit, found.text)


def spread(key: str, of: str | None = None) -> tuple[Column, ...]:
    """Total, average, smallest and largest of a figure, as DLProf's reports have them."""
    found = FIGURES[of or key]
    each = "an execution" if not (of or "").startswith("kernel") else "an event"
    return (
        Column(key, f"Total {found.heading} ({found.unit})", found.unit, found.text),
        Column(
            f"{key}_avg", f"Avg. {found.heading} ({found.unit})", found.unit, f"Its mean of {each}.", float
        ),
        Column(f"{key}_min", f"Min {found.heading} ({found.unit})", found.unit, f"Its smallest of {each}."),
        Column(f"{key}_max", f"Max {found.heading} ({found.unit})", found.unit, f"Its largest of {each}."),
    )


class Report(NamedTuple):
    """A report: `suffix` is in the names of its files, `title` stands above it in DLProf's layout."""

    name: str
    title: str
    suffix: str
    text: str
    columns: tuple[Column, ...]
    table: Callable[[Source], pd.DataFrame]


REPORTS: Registry[Report] = Registry("report")
_Table = Callable[[Source], "pd.DataFrame"]


def report(name: str, title: str, columns: Sequence[Column], suffix: str = "") -> Callable[[_Table], _Table]:
    """Decorator: the function makes the report's table, its docstring describes it."""

    def add(table: _Table) -> _Table:
        text = " ".join((table.__doc__ or "").split())
        REPORTS.register(name)(Report(name, title, suffix or name, text, tuple(columns), table))
        return table

    return add


def find(name: str) -> Report:
    """A report by its name. Raises UsageError for one that does not exist."""
    load_folder(__name__)
    if name not in REPORTS:
        raise UsageError(f"report {name!r} does not exist; choose from {', '.join(REPORTS)}.")
    return REPORTS[name]

# SPDX-License-Identifier: Apache-2.0
"""Texts on the screen: the overview, details of a row, the keys. None of them is markup: names are data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.style import Style
from rich.text import Text

from pyprof.core.terminal import visible
from pyprof.overview import lines
from pyprof.overview.figures import Figures
from pyprof.reports import Column as Described
from pyprof.top import cells
from pyprof.views.models import Details

BOLD = Style(bold=True)
_MOST_LINES = 50  # of a call stack or a table
# Parts of a step: a letter, so that no color is needed, and the color, one that people tell apart who do not see red or
# green (Okabe and Ito, "Color Universal Design", 2008, and browns). Phases are upper case, waits lower case.
_PARTS = {
    "forward": ("F", "#56b4e9"), "backward": ("B", "#e69f00"), "recompute": ("R", "#cc79a7"),
    "optimizer": ("O", "#009e73"), "no_phase": ("W", "#cccccc"), "dataloader": ("D", "#f0e442"),
    "other": ("x", "#aaaaaa"), "data_loader": ("d", "#f0e442"), "launch_bound": ("l", "#d55e00"),
    "queued": ("q", "#999999"), "synchronization": ("s", "#9b582f"), "host_copy": ("h", "#4f94d4"),
    "not_recorded": ("n", "#777777"),
}  # fmt: skip


class Summary(NamedTuple):
    """Content of the overview. `headline`: sentences; `missing`: what the recording lacks, empty if nothing."""

    figures: Figures
    headline: str
    missing: str


def overview(summary: Summary, width: int) -> Text:
    """Return the overview for a width: headline, a step as a bar with its legend, the largest operators and modules,
    what is known."""
    figures, width = summary.figures, max(width, lines.NARROW)
    out = Text()
    for sentence in figures.verdict:
        out.append(_wrapped(visible(sentence), width))
    out.append(f"{_wrapped(visible(summary.headline) or lines.NOTHING, width)}\n", BOLD)
    if figures.step.parts:
        out.append_text(_bar(figures, width)).append("\n\n")
    for number, row in enumerate(lines.table(figures, width)):
        out.append(f"{row}\n", BOLD if number == 0 else None)
    out.append(f"\n{lines.ledger(figures, width)}\n")
    if figures.best is None:
        out.append(f"Finding: none ({figures.evaluated} rules could be evaluated).\n")
    if summary.missing:
        out.append(f"The recording is incomplete: {visible(summary.missing)}.\n")
    return out


def _wrapped(text: str, width: int) -> str:
    """Return a text in lines that end in no number without its unit, as a terminal would break them."""
    return "".join(f"{line}\n" for line in lines.wrap(text, width, _MOST_LINES, rest=""))


def _bar(figures: Figures, width: int) -> Text:
    """Return a step as a bar of letters, and the letters with names and shares."""
    parts = figures.step.parts
    out, end, done = Text(no_wrap=True), 0.0, 0
    for name, part in parts:
        end += part
        letter, color = _PARTS[name]
        until = round(width * end / 100)
        out.append(letter * (until - done), Style(color="black", bgcolor=color))
        done = until
    legend = Text("\n")
    shares = lines.round_shares([part for _, part in parts])
    place = 0
    for (name, _), number in zip(parts, shares):
        letter, color = _PARTS[name]
        entry = f" {lines.part_name(name, figures.gpu)} {number} %"
        if place and place + len(entry) + 3 > width:
            legend.append("\n")
            place = 0
        legend.append("  " if place else "")
        legend.append(letter, Style(color="black", bgcolor=color)).append(entry)
        place += len(entry) + 3
    return out.append_text(legend)


class Page(NamedTuple):
    """Details of one thing: figures and texts with their headings, and tables: title, columns."""

    title: str
    subtitle: str
    figures: Sequence[tuple[str, str]]
    texts: Sequence[tuple[str, str]]
    tables: Sequence[tuple[str, Sequence[cells.Column]]] = ()


def of_details(details: Details, scale: str) -> Page:
    """Return details as the drawer of the page has them."""
    stack = "\n".join(f"{frame.file}:{frame.line}" if frame.line else frame.file for frame in details.stack)
    partners = [(partner.relation.capitalize(), f"{partner.title} ({partner.id})") for partner in details.partners]
    tables = []
    for table in details.tables:
        columns = [
            cells.Column(
                _plain(column.heading, column.unit),
                [cells.cell(row[at], column.unit, scale) for row in table.rows[:_MOST_LINES]],
                0.4 if column.kind == "str" else None,
            )
            for at, column in enumerate(table.columns)
        ]
        more = f", {len(table.rows[:_MOST_LINES]):,} of {table.total:,}" if table.total > _MOST_LINES else ""
        tables.append((f"{table.title}{more}", columns))
    return Page(
        details.title,
        details.subtitle,
        [(_plain(one.heading, one.unit), cells.cell(one.value, one.unit, scale)) for one in details.figures],
        [*((text.heading, text.value) for text in details.texts), *partners, ("Stack Trace", stack)],
        tables,
    )


def _plain(heading: str, unit: str) -> str:
    """Return a heading without the unit, which each cell has."""
    return heading.removesuffix(f" ({unit})")


def of_row(title: str, columns: Iterable[Described], values: Sequence[Any], scale: str) -> Page:
    """Return a row of a report with all its columns."""
    figures, texts = [], []
    for column, value in zip(columns, values):
        if column.kind is str:
            texts.append((column.heading, value or ""))
        elif value is not None:
            figures.append((_plain(column.heading, column.unit), cells.cell(value, column.unit, scale)))
    return Page(title, "", figures, [text for text in texts if text[1] != title])


def page(content: Page, width: int) -> Text:
    """Return details as text."""
    out = Text()
    out.append(f"{visible(content.title) or '(no name)'}\n", BOLD)
    if content.subtitle:
        out.append(f"{visible(content.subtitle)}\n")
    if content.figures:
        out.append("\n")
    wide = max((len(heading) for heading, _ in content.figures), default=0)
    for heading, text in content.figures:
        out.append(f"{heading:<{wide}}  {text}\n")
    for heading, text in content.texts:
        rows = text.split("\n")
        if not text:
            continue
        out.append(f"\n{heading}\n", BOLD)
        for row in rows[:_MOST_LINES]:
            out.append(f"  {visible(row)}\n")
        if len(rows) > _MOST_LINES:
            out.append(f"  and {len(rows) - _MOST_LINES:,} lines\n")
    for title, columns in content.tables:
        out.append(f"\n{title}\n", BOLD)
        sizes = cells.widths(columns, width)
        for number in (None, *range(len(columns[0].cells))):
            out.append(f"{cells.line(columns, sizes, number)}\n")
    return out


KEYS = (
    ("1 to 6", "Overview, Findings, Operators, Kernels, Idle, Lines."),
    ("/ or Ctrl+K", "Search or filter the table; Enter keeps it, Esc removes it."),
    ("s, S", "Sort by the next column; the other direction."),
    ("Arrows, PgUp, Home", "Another row; PgDn and End as well."),
    ("Right, Left", "In the tree of operators: open and close a group."),
    ("b", "Operators by module, one by one, by type, by name."),
    ("Enter", "Details of the row. Esc closes them."),
    ("u", "Unit of times: the one that fits, or s, ms, us, ns for all."),
    ("o", "Address of the row on the page, while `pyprof view FILE` runs; printed at the end as well."),
    ("?", "This list."),
    ("q", "Quit."),
)
FILTERS = (
    ("gemm", "Rows with this in a text, in upper or lower case; digits also in numbers."),
    ("calls:>10 gpu:>5ms", "KEY:CONDITION; the keys are those of the columns of the report."),
    (">5ms  <=2.5KB  10..20us  =7", "Conditions for numbers."),
    ("name:gemm  name:=linear", 'A part of a text, or the whole; with spaces in quotes: line:"=my net.py:7".'),
    ("tc:1  tc:0", "Yes and no."),
    ("bound:?  bound:!?", "Unknown and known values."),
)


def help_text(keys: Iterable[str], width: int) -> Text:
    """Return the keys, and how to filter a table with these columns."""
    out = Text()
    for title, entries in (("Keys", KEYS), ("Filters", FILTERS)):
        wide = max(len(name) for name, _ in entries)
        out.append(f"{title}\n", BOLD)
        for name, text in entries:
            rows = textwrap.wrap(text, max(width - wide - 4, 20))
            for number, row in enumerate(rows):
                out.append(f"  {'' if number else name:<{wide}}  {row}\n")
        out.append("\n")
    names = ", ".join(keys)
    if names:
        out.append("Keys of the columns of this table\n", BOLD)
        out.append(textwrap.fill(names, width, initial_indent="  ", subsequent_indent="  "))
    return out

# SPDX-License-Identifier: Apache-2.0
"""Reports as files: the formats of `pyprof report`, spreadsheets and printable pages.

xlsx  one sheet with typed cells; texts are texts, never formulas; at most 1,048,575 rows, the limit of a sheet
pdf   a table on A4 for reading and printing; at most 2,000 rows, with a note of the total
md    as `pyprof report` writes it, with a title
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pandas as pd

from pyprof.core.errors import UsageError
from pyprof.core.terminal import visible
from pyprof.render.sink import Sink, numeric
from pyprof.render.text_cells import TABLE
from pyprof.render.writers import FORMATS
from pyprof.reports import Column, Report

if TYPE_CHECKING:
    from pyprof.facts.steps.source import Source

MEDIA = {
    "csv": "text/csv; charset=utf-8", "json": "application/json", "md": "text/markdown; charset=utf-8",
    "parquet": "application/vnd.apache.parquet", "pdf": "application/pdf",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
_SHEET_ROWS = 1_048_575  # below the headings
_CELL = 32_767  # characters of a cell
_PAGE_ROWS = 2_000
_SHOWN = 60  # characters of a text on a page
_WIDEST = 12  # columns of a page


class Sheet(Sink):
    """xlsx."""

    def __init__(self, report: Report, file: BinaryIO, title: str):
        import xlsxwriter

        super().__init__(report, file)
        self._book = xlsxwriter.Workbook(
            file,
            {"constant_memory": True, "strings_to_urls": False, "strings_to_formulas": False,
             "tmpdir": str(Path(file.name).parent)},  # removed even if the process is killed
        )  # fmt: skip
        self._book.set_properties({"title": title, "subject": report.title, "comments": report.text})
        self._sheet = self._book.add_worksheet(_sheet_name(report.title))
        self._sheet.set_header(f"&L{title.replace('&', '&&')[:200]}")
        bold = self._book.add_format({"bold": True, "text_wrap": True, "valign": "top"})
        self._sheet.freeze_panes(1, 0)
        for number, column in enumerate(report.columns):
            self._sheet.set_column(number, number, 14 if numeric(column) else 40)
            self._sheet.write_string(0, number, column.heading, bold)
        self._row = 0

    def part(self, frame: pd.DataFrame) -> None:
        for row in frame.head(max(_SHEET_ROWS - self._row, 0)).itertuples(index=False):
            self._row += 1
            for number, value in enumerate(row):
                self._cell(number, value)

    def _cell(self, number: int, value: Any) -> None:
        if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
            return
        if isinstance(value, str):
            self._sheet.write_string(self._row, number, value[:_CELL])
        elif isinstance(value, bool):
            self._sheet.write_boolean(self._row, number, value)
        else:
            self._sheet.write_number(self._row, number, value)

    def close(self) -> None:
        self._book.close()


def _sheet_name(title: str) -> str:
    return "".join(" " if character in "[]:*?/\\" else character for character in title)[:31]


class Page(Sink):
    """pdf. Its fonts contain only Latin letters: others become question marks."""

    def __init__(self, report: Report, file: BinaryIO, title: str):
        super().__init__(report, file)
        self._title, self._rows, self._count = title, list[list[str]](), 0

    def part(self, frame: pd.DataFrame) -> None:
        self._count += len(frame)
        rows = frame.head(max(_PAGE_ROWS - len(self._rows), 0))
        for row in zip(*(texts.to_pylist() for texts in self.texts(rows, TABLE))):
            self._rows.append([_latin(text) for text in row[:_WIDEST]])

    def close(self) -> None:
        from fpdf import FPDF
        from fpdf.fonts import FontFace

        page = FPDF(orientation="L", format="A4")
        page.set_title(f"{_latin(self._title)} {self.report.title}")
        page.add_page()
        page.set_font("Helvetica", "B", 13)
        page.cell(0, 8, _latin(f"{self._title}: {self.report.title}"), new_x="LMARGIN", new_y="NEXT")
        page.set_font("Helvetica", "", 7)
        for line in self._notes():
            page.cell(0, 4, line, new_x="LMARGIN", new_y="NEXT")
        columns = self.columns[:_WIDEST]
        page.set_font("Helvetica", "", 6)
        widths = tuple(1 if numeric(column) else 3 for column in columns)
        align = tuple("RIGHT" if numeric(column) else "LEFT" for column in columns)
        with page.table(
            col_widths=widths, text_align=align, line_height=3.2, headings_style=FontFace(emphasis="BOLD"),
            borders_layout="HORIZONTAL_LINES",
        ) as table:  # fmt: skip
            for cells in ([_latin(column.heading) for column in columns], *self._rows):
                row = table.row()
                for cell in cells:
                    row.cell(cell)
        self.file.write(bytes(page.output()))

    def _notes(self) -> list[str]:
        notes = [f"{self._count:,} rows"]
        if self._count > len(self._rows):
            notes = [f"The first {len(self._rows):,} of {self._count:,} rows; csv, json and parquet contain all."]
        if len(self.columns) > _WIDEST:
            notes.append(f"{_WIDEST} of {len(self.columns)} columns; other formats contain all.")
        return notes


def _latin(text: str) -> str:
    short = visible(text)
    short = short if len(short) <= _SHOWN else short[: _SHOWN - 3] + "..."
    return short.encode("latin-1", "replace").decode("latin-1")


def sink(format: str, report: Report, file: BinaryIO, title: str) -> Sink:
    """Return the writer of a report in a format; `title` names the profile."""
    own: dict[str, Callable[[Report, BinaryIO, str], Sink]] = {"xlsx": Sheet, "pdf": Page}
    if format in own:
        return own[format](report, file, title)
    if format == "md":
        name = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", visible(title))  # a file's name is a stranger's text
        file.write(f"# {name}: {report.title}\n\n".encode())
    return FORMATS[format].sink(report, file)


def write_parts(target: str, format: str, report: Report, title: str, parts: Iterable[pd.DataFrame]) -> None:
    """Write rows in parts."""
    with open(target, "wb") as file:
        writer = sink(format, report, file, title)
        try:
            for part in parts:
                writer.part(part)
        finally:
            writer.close()


# --- tables other than reports

_KINDS = {kind.__name__: kind for kind in (int, float, str, bool, object)}


def as_report(name: str, title: str, columns: Sequence[Column], text: str = "") -> Report:
    """Wrap columns of a table that is not a report, for writers of reports."""
    return Report(name, title, name, text or title, tuple(columns), _without_rows, all_columns=tuple(columns))


def _without_rows(source: Source) -> pd.DataFrame:
    raise UsageError("this table exists only in the viewer")


def outline(report: Report) -> dict[str, Any]:
    """Return what writers need to know about a report, as JSON."""
    columns = [[*column[:4], column.kind.__name__, column.extra] for column in report.columns]
    return {"name": report.name, "title": report.title, "text": report.text, "columns": columns}


def of_outline(description: dict[str, Any]) -> Report:
    """Return the report of an outline, without its rows."""
    columns = [
        Column(key, heading, unit, text, _KINDS[kind], extra)
        for key, heading, unit, text, kind, extra in description["columns"]
    ]
    return as_report(description["name"], description["title"], columns, description["text"])

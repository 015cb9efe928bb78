# SPDX-License-Identifier: Apache-2.0
"""Reports as files and on a terminal, in the formats of `FORMATS`. Files are written atomically.

csv      one line of headings; unrounded numbers; True and False; empty where unknown
json     {title: [{heading: value}]} with numbers, true, false and null
table    for a terminal: numbers grouped, fractions in four digits, yes and no
md       a Markdown table, formatted as table
parquet  typed columns named by heading; unit and definition are metadata of the columns

`style="dlprof"` is DLProf's layout of csv: a line with the title first, every text quoted, yes and no, averages and
shares with one decimal, and only DLProf's own columns. `style="raw"` is csv with texts as recorded. Rows are written in
parts, as they are computed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core import atomic_file
from pyprof.core.arguments import nearest
from pyprof.core.errors import PyProfError, UsageError
from pyprof.facts.steps.source import Source
from pyprof.render import text_cells
from pyprof.render.fit import Screen
from pyprof.render.layout import TextColumn, cut, lines
from pyprof.render.sink import Sink, numeric
from pyprof.reports import Report

STYLES = ("plain", "dlprof", "raw")
_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string(), object: pa.string()}
_TABLE = 500  # rows of a table under one line of headings
_WIDEST = 60  # cells of a text in it


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


class Csv(Sink):
    """csv, plain."""

    spelling = text_cells.CSV

    def __init__(self, report: Report, file: BinaryIO):
        super().__init__(report, file)
        self.head()

    def head(self) -> None:
        self.put(",".join(self.spelling.text(column.heading) for column in self.columns) + "\n")

    def part(self, frame: pd.DataFrame) -> None:
        if len(frame):
            self.lines(pc.binary_join_element_wise(*self.texts(frame, self.spelling), _large(",")), "\n")
            self.put("\n")


class Dlprof(Csv):
    """csv in DLProf's layout."""

    spelling = text_cells.DLPROF

    def head(self) -> None:
        self.columns = tuple(column for column in self.report.columns if not column.extra)
        self.put(f"{self.report.title}\n")
        super().head()


class Raw(Csv):
    """csv with unescaped texts."""

    spelling = text_cells.RAW


class Json(Sink):
    """json."""

    def __init__(self, report: Report, file: BinaryIO):
        super().__init__(report, file)
        self.put(f"{{{json.dumps(report.title)}: [")
        self._first = True

    def part(self, frame: pd.DataFrame) -> None:
        if not len(frame):
            return
        pieces: list[Any] = []
        for number, (column, texts) in enumerate(zip(self.columns, self.texts(frame, text_cells.JSON))):
            before = ", " if number else "{"
            pieces += [_large(f"{before}{json.dumps(column.heading)}: "), texts]
        self.put("\n" if self._first else ",\n")
        self.lines(pc.binary_join_element_wise(*pieces, _large("}"), _large("")), ",\n")
        self._first = False

    def close(self) -> None:
        self.put("\n]}\n")


class Markdown(Sink):
    """md."""

    def __init__(self, report: Report, file: BinaryIO):
        super().__init__(report, file)
        self.put("|".join(["", *(f" {text_cells.MARKDOWN.text(c.heading)} " for c in self.columns), ""]) + "\n")
        self.put("|".join(["", *(" ---: " if numeric(c) else " --- " for c in self.columns), ""]) + "\n")

    def part(self, frame: pd.DataFrame) -> None:
        for row in zip(*(texts.to_pylist() for texts in self.texts(frame, text_cells.MARKDOWN))):
            self.put(f"| {' | '.join(row)} |\n")


class Table(Sink):
    """table: as wide as its texts, whatever the terminal's width."""

    def part(self, frame: pd.DataFrame) -> None:
        for low in range(0, max(len(frame), 1), _TABLE):
            self._table(frame.iloc[low : low + _TABLE])

    def _table(self, frame: pd.DataFrame) -> None:
        columns = [
            TextColumn([column.heading], [cut(text, _WIDEST) for text in texts.to_pylist()], numeric(column))
            for column, texts in zip(self.columns, self.texts(frame, text_cells.TABLE))
        ]
        self.put("".join(f"{line}\n" for line in lines(columns)))


class Parquet(Sink):
    """parquet."""

    def __init__(self, report: Report, file: BinaryIO):
        import pyarrow.parquet as pq

        super().__init__(report, file)
        self._schema = pa.schema(
            [pa.field(c.heading, _TYPES[c.kind], metadata={"unit": c.unit, "definition": c.text}) for c in self.columns]
        )
        self._writer = pq.ParquetWriter(file, self._schema)

    def part(self, frame: pd.DataFrame) -> None:
        arrays = []
        for column, field in zip(self.columns, self._schema):
            cells = frame[column.key]
            if column.kind is object:
                cells = cells.map(lambda value: None if value is None else str(value))
            array = pa.array(cells, from_pandas=True)
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            arrays.append(array.cast(field.type))
        self._writer.write_table(pa.table(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class Format(NamedTuple):
    """Format: the file extension, and the writer."""

    extension: str
    sink: Callable[[Report, BinaryIO], Sink]


FORMATS = {
    "csv": Format("csv", Csv), "json": Format("json", Json), "table": Format("txt", Table),
    "md": Format("md", Markdown), "parquet": Format("parquet", Parquet),
}  # fmt: skip


_OF_CSV = dict(zip(STYLES, (Csv, Dlprof, Raw)))


def file_name(report: Report, profile_name: str, format_: str) -> str:
    """Return the name of a report's file. Raises UsageError for an unknown format, or a profile name that is a path."""
    if format_ not in FORMATS:
        raise UsageError(f"unknown format {format_!r}.{nearest(format_, FORMATS)} Choose from {', '.join(FORMATS)}.")
    if os.path.basename(profile_name) != profile_name or not profile_name or "\0" in profile_name:
        raise UsageError(f"profile name {profile_name!r} is not a file name; give one without a path.")
    return f"{profile_name}_{report.suffix}.{FORMATS[format_].extension}"


def write(
    report: Report,
    source: Source,
    folder: str | os.PathLike[str],
    profile_name: str,
    formats: Sequence[str] = ("csv",),
    style: str = "plain",
) -> list[str]:
    """Write a report in several formats; return the names of the files. Existing files are replaced. Raises PyProfError
    if a file cannot be written, UsageError for an unknown format or style."""
    names = [os.path.join(folder, file_name(report, profile_name, format_)) for format_ in dict.fromkeys(formats)]
    sinks = [_sink(format_, style) for format_ in dict.fromkeys(formats)]
    name = names[0] if names else ""
    try:
        with ExitStack() as stack:
            files = []
            for name in names:
                files.append(stack.enter_context(open(stack.enter_context(atomic_file.named(name)), "wb")))
            _write_rows(report, source, list(zip(sinks, files)), style)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PyProfError(f"{name}: the report could not be written ({reason}). Name another folder.") from error
    return names


def render(
    report: Report,
    source: Source,
    format_: str,
    stream: BinaryIO,
    style: str = "plain",
    width: int | None = None,
) -> int:
    """Write a report to an open binary stream, such as sys.stdout.buffer; return the number of rows. If a width is
    given, a table is fitted to a terminal (`fit`)."""
    file_name(report, "-", format_)
    if width is not None and format_ == "table":
        return _write_rows(report, source, [(partial(Screen, width=width), stream)], style)
    return _write_rows(report, source, [(_sink(format_, style), stream)], style)


def _sink(format_: str, style: str) -> Callable[[Report, BinaryIO], Sink]:
    if style not in STYLES:
        raise UsageError(f"unknown style {style!r}; choose from {', '.join(STYLES)}.")
    return _OF_CSV[style] if format_ == "csv" else FORMATS[format_].sink


def _write_rows(
    report: Report,
    source: Source,
    targets: list[tuple[Callable[[Report, BinaryIO], Sink], BinaryIO]],
    style: str,
) -> int:
    """Compute the rows once and pass them to every sink; return their number."""
    rows = 0
    if style == "dlprof" and report.sections is not None:
        for _, file in (pair for pair in targets if pair[0] is Dlprof):
            file.write(sectioned(report, source).encode("utf-8", "backslashreplace"))
        targets = [pair for pair in targets if pair[0] is not Dlprof]
    with ExitStack() as stack:
        sinks = [sink(report, file) for sink, file in targets]
        for sink in sinks:
            stack.callback(sink.close)
        for part in report.chunks(source) if sinks else ():
            rows += len(part)
            for sink in sinks:
                sink.part(part)
    return rows


def sectioned(report: Report, source: Source) -> str:
    """Return a report of sections in DLProf's layout, with blank lines between them."""
    blocks = []
    for section in report.sections(source) if report.sections else []:
        lines = [section.title]
        if section.headings:
            lines.append(",".join(["", *map(text_cells.DLPROF.text, section.headings)]))
        lines += [",".join(text_cells.cell_text(value, text_cells.DLPROF) for value in row) for row in section.rows]
        blocks.append("".join(f"{line}\n" for line in lines))
    return "\n".join(blocks)

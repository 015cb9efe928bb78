# SPDX-License-Identifier: Apache-2.0
"""Reports as files and on a terminal, in the formats of `FORMATS`. A file is there whole or not at all.

csv      one line of headings; numbers as they are, nothing rounded; True and False; empty where unknown
json     {title: [{heading: value}]} with numbers, true, false and null
table    for a terminal: numbers grouped, fractions in four digits, yes and no
md       a Markdown table, as above
parquet  typed columns named by heading; unit and definition are metadata of the columns

`style="dlprof"` is DLProf's layout of csv: a line with the title first, every text quoted, yes and no, averages and
shares with one decimal, its own columns alone. `style="raw"` is csv with texts as the recording has them. Rows are
written in parts as they are made.
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

from pyprof import atomic_file
from pyprof.analysis.source import Source
from pyprof.arguments import nearest
from pyprof.errors import PyProfError, UsageError
from pyprof.render import text_cells
from pyprof.render.fit import Screen
from pyprof.render.layout import Shown, cut, lines
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
    """csv with texts as they are."""

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
        self.put(
            "|".join(["", *(f" {text_cells.MARKDOWN.text(c.heading)} " for c in self.columns), ""]) + "\n"
        )
        self.put("|".join(["", *(" ---: " if numeric(c) else " --- " for c in self.columns), ""]) + "\n")

    def part(self, frame: pd.DataFrame) -> None:
        for row in zip(*(texts.to_pylist() for texts in self.texts(frame, text_cells.MARKDOWN))):
            self.put(f"| {' | '.join(row)} |\n")


class Table(Sink):
    """table: as wide as its texts are, whatever the terminal's width."""

    def part(self, frame: pd.DataFrame) -> None:
        for low in range(0, max(len(frame), 1), _TABLE):
            self._table(frame.iloc[low : low + _TABLE])

    def _table(self, frame: pd.DataFrame) -> None:
        shown = [
            Shown([column.heading], [cut(text, _WIDEST) for text in texts.to_pylist()], numeric(column))
            for column, texts in zip(self.columns, self.texts(frame, text_cells.TABLE))
        ]
        self.put("".join(f"{line}\n" for line in lines(shown)))


class Parquet(Sink):
    """parquet."""

    def __init__(self, report: Report, file: BinaryIO):
        import pyarrow.parquet as pq

        super().__init__(report, file)
        self._schema = pa.schema([
            pa.field(c.heading, _TYPES[c.kind], metadata={"unit": c.unit, "definition": c.text})
            for c in self.columns
        ])  # fmt: skip
        self._writer = pq.ParquetWriter(file, self._schema)

    def part(self, frame: pd.DataFrame) -> None:
        arrays = []
        for column, field in zip(self.columns, self._schema):
            found = frame[column.key]
            if column.kind is object:
                found = found.map(lambda value: None if value is None else str(value))
            array = pa.array(found, from_pandas=True)
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            arrays.append(array.cast(field.type))
        self._writer.write_table(pa.table(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class Format(NamedTuple):
    """A format: the end of its files' names, and what writes it."""

    extension: str
    sink: Callable[[Report, BinaryIO], Sink]


FORMATS = {
    "csv": Format("csv", Csv), "json": Format("json", Json), "table": Format("txt", Table),
    "md": Format("md", Markdown), "parquet": Format("parquet", Parquet),
}  # fmt: skip


_OF_CSV = dict(zip(STYLES, (Csv, Dlprof, Raw)))


def file_name(report: Report, profile_name: str, format_: str) -> str:
    """Name of a report's file. Raises UsageError for a format that does not exist, and a name that is a path."""
    if format_ not in FORMATS:
        raise UsageError(
            f"unknown format {format_!r}.{nearest(format_, FORMATS)} Choose from {', '.join(FORMATS)}."
        )
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
    """Write a report in several formats; return the files' names. A file that is there is replaced. Raises PyProfError
    if one cannot be written, UsageError for a format or style that does not exist."""
    names = [os.path.join(folder, file_name(report, profile_name, each)) for each in dict.fromkeys(formats)]
    sinks = [_sink(each, style) for each in dict.fromkeys(formats)]
    name = names[0] if names else ""
    try:
        with ExitStack() as stack:
            files = []
            for name in names:
                files.append(stack.enter_context(open(stack.enter_context(atomic_file.named(name)), "wb")))
            _pour(report, source, list(zip(sinks, files)), style)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PyProfError(
            f"{name}: the report could not be written ({reason}). Name another folder."
        ) from error
    return names


def render(
    report: Report,
    source: Source,
    format_: str,
    stream: BinaryIO,
    style: str = "plain",
    width: int | None = None,
) -> int:
    """Write a report to an open binary stream, such as sys.stdout.buffer; returns the number of rows. With a width a
    table is made to fit a terminal (`terminal`)."""
    file_name(report, "-", format_)
    if width is not None and format_ == "table":
        return _pour(report, source, [(partial(Screen, width=width), stream)], style)
    return _pour(report, source, [(_sink(format_, style), stream)], style)


def _sink(format_: str, style: str) -> Callable[[Report, BinaryIO], Sink]:
    if style not in STYLES:
        raise UsageError(f"style {style!r} does not exist; choose from {', '.join(STYLES)}.")
    return _OF_CSV[style] if format_ == "csv" else FORMATS[format_].sink


def _pour(
    report: Report,
    source: Source,
    targets: list[tuple[Callable[[Report, BinaryIO], Sink], BinaryIO]],
    style: str,
) -> int:
    """Make the rows once and hand them to every sink; returns how many they were."""
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
    """A report of sections in DLProf's layout, blank lines between them."""
    blocks = []
    for section in report.sections(source) if report.sections else []:
        lines = [section.title]
        if section.headings:
            lines.append(",".join(["", *map(text_cells.DLPROF.text, section.headings)]))
        lines += [",".join(text_cells.one(value, text_cells.DLPROF) for value in row) for row in section.rows]
        blocks.append("".join(f"{line}\n" for line in lines))
    return "\n".join(blocks)

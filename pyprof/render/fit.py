# SPDX-License-Identifier: Apache-2.0
"""Reports on a terminal, fitted to its width, without empty columns.

Columns without a value are left out, and in a report of figures the rows without one. Times and sizes are in the
unit that suits the largest value of their column. Headings are broken into lines. If the table is still too wide,
texts are cut and columns left out, and a last line gives their number; `--wide` prints the whole table as it is in a
file.

>>> scaled([1_500_000, 20_000, None], "ns")
('ms', ['1.5', '0.02', ''])
>>> scaled([512], "B"), scaled([3], "count")
(('B', ['512']), ('count', ['3']))
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, BinaryIO

import pandas as pd

from pyprof.render import text_cells
from pyprof.render.layout import GAP, TextColumn, cut, lines
from pyprof.render.sink import Sink, numeric
from pyprof.reports import Column, Report

# Unit of a column -> units to choose from, with their sizes.
_UNITS = {
    "ns": (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)),
    "B": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)),
    "FLOP/s": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("FLOP/s", 1.0)),
}
_FIRST, _TEXT = 24, 12  # minimum widths of the first column and of other texts
_MIN_NUMBERS = 5  # number of numeric columns that are removed last
_ROWS = 500


class Screen(Sink):
    """table, for a terminal of a given width."""

    def __init__(self, report: Report, file: BinaryIO, width: int):
        super().__init__(report, file)
        self._width = width
        self._rows = self._columns = 0  # omitted so far

    def part(self, frame: pd.DataFrame) -> None:
        if "value" in frame:
            mask = frame["value"].notna()
            self._rows += int((~mask).sum())
            frame = _scale_figures(frame[mask])
        for low in range(0, len(frame), _ROWS):
            rows = frame.iloc[low : low + _ROWS]
            columns = [
                text_column for column in self.columns if (text_column := _text_column(column, rows[column.key]))
            ]
            fitted = fit(columns, self._width)
            self._columns = max(self._columns, len(columns) - len(fitted))
            self.put("".join(f"{line}\n" for line in lines(fitted)))

    def close(self) -> None:
        omitted = [(self._columns, "columns do not fit the width"), (self._rows, "figures have no value")]
        message = " and ".join(f"{count} {what}" for count, what in omitted if count)
        if message:
            self.put(f"\n{textwrap.fill(f'{message}; --wide shows all.', self._width)}\n")


def _scale_figures(frame: pd.DataFrame) -> pd.DataFrame:
    """Scale figures, which have a unit each, and drop their definitions, which are in docs/metrics.md."""
    pairs = [
        (value, unit) if unit not in _UNITS or isinstance(value, str) else _scale_one(value, unit)
        for value, unit in zip(frame["value"], frame["unit"])
    ]
    table = frame.assign(value=[value for value, _ in pairs], unit=[unit for _, unit in pairs])
    return table.assign(definition=None) if "definition" in table else table


def _scale_one(value: Any, unit: str) -> tuple[str, str]:
    """Return a value scaled to the unit that suits it, and the unit."""
    name, (text,) = scaled([value], unit)
    return text, name


def _text_column(column: Column, values: pd.Series[Any]) -> TextColumn | None:
    """Return a column as text; None if it has no value."""
    if not values.notna().any():
        return None
    heading = column.heading
    if numeric(column) and column.unit in _UNITS:
        unit, texts = scaled([None if value is pd.NA or value != value else value for value in values], column.unit)
        heading = heading.replace(f"({column.unit})", f"({unit})")
    else:
        texts = [" ".join(text.split()) for text in text_cells.column(column, values, text_cells.TABLE).to_pylist()]
    if not any(texts):
        return None
    words = max(map(len, heading.split()))
    return TextColumn(textwrap.wrap(heading, max(words, 10)), texts, numeric(column))


def scaled(values: Sequence[Any], unit: str) -> tuple[str, list[str]]:
    """Return the unit that suits the largest value, and the values in that unit; missing values are empty texts."""
    largest = max((abs(value) for value in values if value is not None), default=0)
    units = _UNITS.get(unit, ((unit, 1.0),))
    name, size = next((entry for entry in units if largest >= entry[1]), units[-1])
    return name, ["" if value is None else _number(value / size) for value in values]


def _number(value: float) -> str:
    """Format a number with up to four digits; large numbers are whole and grouped.

    >>> _number(0.000123456), _number(12.0), _number(123456.7), _number(0.0)
    ('0.0001235', '12', '123,457', '0')
    """
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def fit(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """Return the columns that fit, always including the first. Texts are cut; then columns are removed from the right:
    numbers except for a few, texts, the remaining numbers."""
    fitted = list(columns)
    if _total(fitted) > width:
        fitted = _cut_texts(fitted, width)
    for least, numbers in ((_MIN_NUMBERS, True), (0, False), (1, True)):
        while _total(fitted) > width:
            removable = [place for place, column in enumerate(fitted) if place and column.numeric is numbers]
            if len(removable) <= least:
                break
            del fitted[removable[-1]]
    room = width - _total(fitted)
    return _grow(fitted, columns, room) if room > 0 else fitted


def _total(columns: Sequence[TextColumn]) -> int:
    """Return the width of columns side by side."""
    return sum(column.width + GAP for column in columns) - GAP


def _cut_texts(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """Cut texts wider than their limit to it."""
    return [
        column if column.numeric else _cut_to(column, _TEXT if number else _FIRST)
        for number, column in enumerate(columns)
    ]


def _grow(fitted: list[TextColumn], columns: Sequence[TextColumn], room: int) -> list[TextColumn]:
    """Distribute the remaining width to texts that were cut, from left to right."""
    originals = {id(column.heading): column for column in columns}
    out = []
    for column in fitted:
        original = originals[id(column.heading)]
        extra = min(original.width - column.width, room)
        room -= max(extra, 0)
        out.append(_cut_to(original, column.width + extra) if extra > 0 else column)
    return out


def _cut_to(column: TextColumn, width: int) -> TextColumn:
    """Cut the cells of a column to a width, but not below that of its heading."""
    width = max([width, *map(len, column.heading)])
    return column._replace(cells=[cut(text, width) for text in column.cells])

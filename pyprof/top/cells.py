# SPDX-License-Identifier: Apache-2.0
"""Cells as text, and columns side by side in a given width.

Texts of a profile are hostile: control characters are escaped, and nothing here is markup. Names that do not fit lose
their middle; then columns are left out, the last ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from pyprof.core.terminal import visible
from pyprof.core.units import TIMES, duration, percent, si, size
from pyprof.overview.lines import shorten

SCALES = ("", "ms", "us", "ns", "s")  # of times; "": the unit that suits each
GAP = 2
_FIRST, _TEXT = 28, 16  # widths to which the first text and other texts are cut before a column is left out
_SIZES = dict(TIMES)


def cell(value: Any, unit: str, scale: str = "") -> str:
    r"""Return a value with its unit; times in the unit `scale`, or the one that suits.

    >>> cell(1234567, "ns"), cell(1234567, "ns", "us"), cell(None, "ns"), cell(True, ""), cell(12345, "count")
    ('1.23 ms', '1,235 us', 'na', 'yes', '12,345')
    >>> cell("a\x1b[31m", ""), cell(99.5, "%"), cell(2.5e12, "FLOP/s")
    ('a\\x1b[31m', '99.5 %', '2.50 TFLOP/s')
    """
    if value is None or value != value:
        return "na"
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "ns":
        return f"{_number(value / _SIZES[scale])} {scale}" if scale else duration(value)
    if unit == "B":
        return size(value)
    if unit == "%":
        return percent(value / 100)
    if unit == "FLOP/s":
        return f"{si(value)}{'' if si(value)[-1].isalpha() else ' '}FLOP/s"
    return f"{value:,}" if isinstance(value, int) else _number(value)


def _number(value: float) -> str:
    """Format with four digits; large numbers are whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Column(NamedTuple):
    """A heading and its cells. `head`: of a text, which may be shortened, the share of the kept characters before the
    gap; None for numbers."""

    heading: str
    cells: Sequence[str]
    head: float | None = None


def widths(columns: Sequence[Column], width: int, least: Sequence[int] = ()) -> list[int]:
    """Return the widths of the columns that fit, the first of them all. `least`: widths that they had before, which
    they keep where there is room.

    >>> columns = [Column("Name", ["x" * 40], 0.4), Column("Calls", ["12"])]
    >>> widths(columns, 37), widths(columns, 30)
    ([30, 5], [30])
    """
    out = [max(cell_len(column.heading), *map(cell_len, column.cells), 0) for column in columns]
    out = [max(pair) for pair in zip(out, least)] if len(least) == len(out) else out
    while sum(out) + GAP * (len(out) - 1) > width:
        wide = [
            (out[at], at)
            for at, column in enumerate(columns[: len(out)])
            if column.head is not None and out[at] > (_TEXT if at else _FIRST)
        ]
        if wide:
            out[max(wide)[1]] -= 1
        elif len(out) > 1:
            out.pop()
        else:
            out[0] = max(width, 0)
    return _grown(columns, out, width)


def _grown(columns: Sequence[Column], sizes: list[int], width: int) -> list[int]:
    """Give the room of a column that was left out to texts, from left to right."""
    room = width - sum(sizes) - GAP * (len(sizes) - 1)
    for at, column in enumerate(columns[: len(sizes)]):
        missing = max(cell_len(column.heading), *map(cell_len, column.cells), 0) - sizes[at]
        if column.head is not None and missing > 0 < room:
            sizes[at] += min(missing, room)
            room -= min(missing, room)
    return sizes


def line(columns: Sequence[Column], sizes: Sequence[int], row: int | None) -> str:
    """Return a row, or the headings, of the columns that have sizes."""
    out = []
    for column, wide in zip(columns, sizes):
        text = column.heading if row is None else column.cells[row]
        text = shorten(text, wide, 0.4 if column.head is None else column.head)
        space = " " * (wide - cell_len(text))
        out.append(space + text if column.head is None else text + space)
    return (" " * GAP).join(out)

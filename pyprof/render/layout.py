# SPDX-License-Identifier: Apache-2.0
"""Columns of text side by side. Widths are in terminal cells: East Asian characters take two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

GAP = 2


class TextColumn(NamedTuple):
    """Column as text: lines of the heading, cells, and whether they are numbers."""

    heading: list[str]
    cells: list[str]
    numeric: bool

    @property
    def width(self) -> int:
        return max(map(_length, [*self.heading, *self.cells]), default=0)


def cut(text: str, width: int) -> str:
    """Cut a text to a number of cells, with an ellipsis where something is left out.

    >>> cut("sgemm_128x64", 9), cut("sgemm", 9)
    ('sgemm_12…', 'sgemm')
    """
    from rich.cells import set_cell_size

    return text if _length(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def lines(columns: Sequence[TextColumn]) -> Iterator[str]:
    """Yield the lines of a table: headings, a rule, rows."""
    widths = [column.width for column in columns]
    height = max((len(column.heading) for column in columns), default=0)
    headings = [[*[""] * (height - len(column.heading)), *column.heading] for column in columns]
    yield from _rows(columns, headings, widths)
    yield "─" * (sum(widths) + GAP * (len(widths) - 1))
    yield from _rows(columns, [column.cells for column in columns], widths)


def _rows(columns: Sequence[TextColumn], texts: Sequence[list[str]], widths: Sequence[int]) -> Iterator[str]:
    """Return lines of padded cells."""
    padded = [
        [_pad(text, width, column.numeric) for text in cells] for column, cells, width in zip(columns, texts, widths)
    ]
    separator = " " * GAP
    return (separator.join(cells).rstrip() for cells in zip(*padded))


def _pad(text: str, width: int, numeric: bool) -> str:
    """Pad a text to a number of cells; numbers are right-aligned."""
    width -= _length(text) - len(text)
    return text.rjust(width) if numeric else text.ljust(width)


def _length(text: str) -> int:
    """Return the width of a text in terminal cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

# SPDX-License-Identifier: Apache-2.0
"""Columns of text side by side, in cells of a terminal: East Asian characters take two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

GAP = 2


class Shown(NamedTuple):
    """A column as it is shown: heading in lines, cells, and whether they are numbers."""

    heading: list[str]
    cells: list[str]
    numeric: bool

    @property
    def width(self) -> int:
        return max(map(_length, [*self.heading, *self.cells]), default=0)


def cut(text: str, width: int) -> str:
    """The text in at most so many cells, with an ellipsis where something is left out.

    >>> cut("sgemm_128x64", 9), cut("sgemm", 9)
    ('sgemm_12…', 'sgemm')
    """
    from rich.cells import set_cell_size

    return text if _length(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def lines(shown: Sequence[Shown]) -> Iterator[str]:
    """The table: headings, a rule, rows."""
    widths = [one.width for one in shown]
    height = max((len(one.heading) for one in shown), default=0)
    headings = [[*[""] * (height - len(one.heading)), *one.heading] for one in shown]
    yield from _rows(shown, headings, widths)
    yield "─" * (sum(widths) + GAP * (len(widths) - 1))
    yield from _rows(shown, [one.cells for one in shown], widths)


def _rows(shown: Sequence[Shown], columns: Sequence[list[str]], widths: Sequence[int]) -> Iterator[str]:
    padded = [
        [_padded(text, width, one.numeric) for text in texts]
        for one, texts, width in zip(shown, columns, widths)
    ]
    between = " " * GAP
    return (between.join(texts).rstrip() for texts in zip(*padded))


def _padded(text: str, width: int, numeric: bool) -> str:
    width -= _length(text) - len(text)
    return text.rjust(width) if numeric else text.ljust(width)


def _length(text: str) -> int:
    """Cells of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

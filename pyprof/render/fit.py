# SPDX-License-Identifier: Apache-2.0
"""A report on a terminal: it fits the width, and shows what there is.

Columns without a value are left out, and in a report of figures the rows without one. Times and sizes are in the unit
that suits the largest of their column. Headings are broken into lines. If the table is still too wide, texts are cut
and columns left out, and a last line says how many; `--wide` prints the whole table as it is in a file.

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
from pyprof.render.layout import GAP, Shown, cut, lines
from pyprof.render.sink import Sink, numeric
from pyprof.reports import Column, Report

# Unit of a column -> units to choose from, with what one of them is.
_UNITS = {
    "ns": (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)),
    "B": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)),
}
_FIRST, _TEXT = 24, 12  # cells to which the first column, and other texts, may be cut
_NUMBERS = 5  # columns of numbers that are left out last
_ROWS = 500


class Screen(Sink):
    """table, for a terminal of some width."""

    def __init__(self, report: Report, file: BinaryIO, width: int):
        super().__init__(report, file)
        self._width = width
        self._rows = self._columns = 0  # that were left out

    def part(self, frame: pd.DataFrame) -> None:
        if "value" in frame:
            known = frame["value"].notna()
            self._rows += int((~known).sum())
            frame = _figures(frame[known])
        for low in range(0, len(frame), _ROWS):
            some = frame.iloc[low : low + _ROWS]
            shown = [found for column in self.columns if (found := _shown(column, some[column.key]))]
            fitting = fit(shown, self._width)
            self._columns = max(self._columns, len(shown) - len(fitting))
            self.put("".join(f"{line}\n" for line in lines(fitting)))

    def close(self) -> None:
        left = [(self._columns, "columns do not fit the width"), (self._rows, "figures have no value")]
        told = " and ".join(f"{count} {what}" for count, what in left if count)
        if told:
            self.put(f"\n{textwrap.fill(f'{told}; --wide shows all.', self._width)}\n")


def _figures(frame: pd.DataFrame) -> pd.DataFrame:
    """Figures that have a unit each, in units that suit them; without their definitions, which docs/metrics.md has."""
    pairs = [
        (value, unit) if unit not in _UNITS or isinstance(value, str) else _one(value, unit)
        for value, unit in zip(frame["value"], frame["unit"])
    ]
    found = frame.assign(value=[value for value, _ in pairs], unit=[unit for _, unit in pairs])
    return found.assign(definition=None) if "definition" in found else found


def _one(value: Any, unit: str) -> tuple[str, str]:
    name, (text,) = scaled([value], unit)
    return text, name


def _shown(column: Column, values: pd.Series[Any]) -> Shown | None:
    """None for a column without a value."""
    if not values.notna().any():
        return None
    heading = column.heading
    if numeric(column) and column.unit in _UNITS:
        unit, texts = scaled(
            [None if value is pd.NA or value != value else value for value in values], column.unit
        )
        heading = heading.replace(f"({column.unit})", f"({unit})")
    else:
        texts = [
            " ".join(text.split()) for text in text_cells.column(column, values, text_cells.TABLE).to_pylist()
        ]
    if not any(texts):
        return None
    words = max(map(len, heading.split()))
    return Shown(textwrap.wrap(heading, max(words, 10)), texts, numeric(column))


def scaled(values: Sequence[Any], unit: str) -> tuple[str, list[str]]:
    """The unit that suits the largest value, and the values in it; an empty text where there is none."""
    largest = max((abs(value) for value in values if value is not None), default=0)
    units = _UNITS.get(unit, ((unit, 1.0),))
    name, size = next((one for one in units if largest >= one[1]), units[-1])
    return name, ["" if value is None else _number(value / size) for value in values]


def _number(value: float) -> str:
    """Up to four digits, large numbers whole and grouped.

    >>> _number(0.000123456), _number(12.0), _number(123456.7), _number(0.0)
    ('0.0001235', '12', '123,457', '0')
    """
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def fit(shown: Sequence[Shown], width: int) -> list[Shown]:
    """The columns that fit, the first always. Texts are cut; then columns are left out from the right: numbers but for
    some, texts, the other numbers."""
    kept = list(shown)
    if _total(kept) > width:
        kept = _cut(kept, width)
    for least, numbers in ((_NUMBERS, True), (0, False), (1, True)):
        while _total(kept) > width:
            some = [n for n, one in enumerate(kept) if n and one.numeric is numbers]
            if len(some) <= least:
                break
            del kept[some[-1]]
    room = width - _total(kept)
    return _grown(kept, shown, room) if room > 0 else kept


def _total(shown: Sequence[Shown]) -> int:
    return sum(one.width + GAP for one in shown) - GAP


def _cut(shown: Sequence[Shown], width: int) -> list[Shown]:
    """Texts cut to what they may be cut to, if that is needed: all alike."""
    return [one if one.numeric else _to(one, _TEXT if number else _FIRST) for number, one in enumerate(shown)]


def _grown(kept: list[Shown], shown: Sequence[Shown], room: int) -> list[Shown]:
    """What is left of the width goes to texts that were cut, to the first one first."""
    whole = {id(one.heading): one for one in shown}
    out = []
    for one in kept:
        original = whole[id(one.heading)]
        more = min(original.width - one.width, room)
        room -= max(more, 0)
        out.append(_to(original, one.width + more) if more > 0 else one)
    return out


def _to(one: Shown, width: int) -> Shown:
    width = max([width, *map(len, one.heading)])
    return one._replace(cells=[cut(text, width) for text in one.cells])

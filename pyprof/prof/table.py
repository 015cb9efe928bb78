# SPDX-License-Identifier: Apache-2.0
"""Columns as text (CSV, fixed width, blank-separated) and as a data frame.

CSV quotes every field. The fixed-width style cuts texts and aligns numbers. Otherwise fields contain no blanks, so
that awk and cut work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.arguments import nearest
from pyprof.core.errors import UsageError
from pyprof.core.model import Column
from pyprof.core.terminal import cell, visible
from pyprof.costs.columns import COLUMNS, Cells, Reals, Spec, Texts, View

DEFAULT = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
_BLOCK = 65536


def select(keys: str) -> list[Spec]:
    """Return columns by their comma-separated keys. Raises UsageError for a key that does not exist or occurs twice."""
    names = [key.strip() for key in keys.split(",")]
    for key in names:
        if key not in COLUMNS:
            raise UsageError(f"unknown column {key!r}.{nearest(key, COLUMNS)} Choose from {','.join(COLUMNS)}.")
    if len(set(names)) < len(names):
        raise UsageError(f"a column is named twice in {keys!r}.")
    return [COLUMNS[key] for key in names]


def texts(spec: Spec, cells: Cells, block: slice, spell: Callable[[str], str] = str) -> list[str]:
    """Return the cells of a block of rows as text. `spell` is applied to each distinct text from the recording."""
    if isinstance(cells, Column):
        out = cells.values[block].astype(object)
        if cells.present is not None:
            out[~cells.present[block]] = spec.none
        return [str(value) for value in out.tolist()]
    if isinstance(cells, Reals):
        digits = cells.digits
        return [spec.none if value != value else f"{value:.{digits}f}" for value in cells.values[block].tolist()]
    table = np.array([spec.none if text is None else spell(text) for text in cells.texts], object)
    return list(table[cells.codes[block]].tolist())


def lines(view: View, specs: Sequence[Spec], style: str, width: int = 0, raw: bool = False) -> Iterator[str]:
    """Yield heading and rows. `style` is csv, width or blank; `raw` leaves texts unchanged. Raises UsageError if the
    width is too small."""
    widths = _widths(specs, width) if style == "width" else []
    cells = [spec.cells(view) for spec in specs]
    spell: Callable[[str], str] = str if raw else cell if style == "csv" else visible
    yield _join([spec.heading for spec in specs], specs, style, widths)
    for first in range(0, len(view.rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        columns = [texts(spec, column, block, spell) for spec, column in zip(specs, cells)]
        if style == "csv":
            quoted = [[f'"{text}"' if '"' not in text else _quote(text) for text in column] for column in columns]
            yield from map(",".join, zip(*quoted))
        elif style == "blank":
            yield from map(" ".join, zip(*([_no_blanks(text) for text in column] for column in columns)))
        else:
            fixed = [_fix(spec, column, size) for spec, column, size in zip(specs, columns, widths)]
            yield from map(" ".join, zip(*fixed))


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _no_blanks(text: str) -> str:
    return "_".join(text.split()) if not text.isalnum() else text


def _join(headings: list[str], specs: Sequence[Spec], style: str, widths: list[int]) -> str:
    if style == "csv":
        return ",".join(map(_quote, headings))
    if style == "blank":
        return " ".join(headings)
    return " ".join(heading[:size].ljust(size) for heading, size in zip(headings, widths))


def _widths(specs: Sequence[Spec], width: int) -> list[int]:
    """Share the remaining width among the columns without a width of their own."""
    fixed = sum(spec.width + 1 for spec in specs)
    flexible = sum(spec.width == 0 for spec in specs)
    minimum = fixed + 8 * flexible
    if width < minimum:
        raise UsageError(f"-w {width} is too small for these columns; they need at least {minimum}.")
    share = (width - fixed) // flexible if flexible else 0
    return [spec.width or share for spec in specs]


def _fix(spec: Spec, column: list[str], size: int) -> list[str]:
    if spec.key in ("trace", "caller"):
        column = [text.rpartition(",")[2].rpartition("/")[2] for text in column]
    right = bool(spec.unit) or spec.key in ("idx", "sub", "tid", "device", "stream")
    return [text[:size].rjust(size) if right else text[:size].ljust(size) for text in column]


def frame(view: View, specs: Sequence[Spec]) -> pd.DataFrame:
    """Return the columns as a data frame: nullable integers, floats, categories for texts."""
    out: dict[str, Any] = {}
    for spec in specs:
        cells = spec.cells(view)
        if isinstance(cells, Column):
            out[spec.key] = pd.arrays.IntegerArray(cells.values.astype(np.int64), ~cells.mask())
        elif isinstance(cells, Reals):
            out[spec.key] = cells.values
        else:
            out[spec.key] = _categories(cells)
    return pd.DataFrame(out)


def _categories(cells: Texts) -> Any:
    categories = list(dict.fromkeys(text for text in cells.texts if text is not None))
    code_of = {text: i for i, text in enumerate(categories)}
    codes = np.array([-1 if text is None else code_of[text] for text in cells.texts] or [-1], np.int64)
    return pd.Categorical.from_codes(codes[cells.codes], categories=pd.Index(categories, dtype=object))

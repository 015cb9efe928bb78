# SPDX-License-Identifier: Apache-2.0
"""Cells of reports as text, column by column; repeated texts are converted once.

Texts of a profile are hostile: names of kernels, layers and arguments are chosen by the program. In CSV, a text that
a spreadsheet would take for a formula gets a leading ', unless raw texts are requested. Characters that control a
terminal or a reader are replaced by escapes; Parquet keeps them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.terminal import cell, json_text, visible
from pyprof.reports import Column

_NEEDS_QUOTES = re.compile(r'[",\n]|^\s|\s$|^$')
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")


class Spelling(NamedTuple):
    """Spelling of a format: texts, unknown values, booleans, integers and floats."""

    text: Callable[[str], str]
    unknown: str
    truth: tuple[str, str]
    integer: Callable[[int], str]
    real: Callable[[float], str]


def _quoted(text: str) -> str:
    return '"' + cell(text).replace('"', '""') + '"'


def _quoted_if_needed(text: str) -> str:
    clean = cell(text)
    return _quoted(text) if _NEEDS_QUOTES.search(clean) else clean


def _raw(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _markdown(text: str) -> str:
    """Escape a text so that no character has a meaning in Markdown or HTML; lines are separated by breaks."""
    return "<br>".join(_MARKUP.sub(r"\\\1", visible(line)) for line in text.split("\n"))


def _group(number: int) -> str:
    return f"{number:,}"


def _short(number: float) -> str:
    """Format with four digits, so that a small share is not 0; large numbers are whole.

    >>> _short(0.028657), _short(99.7929), _short(2250674958.04)
    ('0.02866', '99.79', '2,250,674,958')
    """
    return f"{number:.4g}" if abs(number) < 1000 else f"{number:,.0f}"


def _json_real(number: float) -> str:
    """Format for JSON, which has no infinity: a text says it.

    >>> _json_real(0.5), _json_real(-math.inf)
    ('0.5', '"-inf"')
    """
    return repr(number) if math.isfinite(number) else f'"{number}"'


CSV = Spelling(_quoted_if_needed, "", ("False", "True"), str, repr)
DLPROF = Spelling(_quoted, "", ("no", "yes"), str, lambda number: f"{number:.1f}")
RAW = Spelling(_raw, "", ("False", "True"), str, repr)
JSON = Spelling(json_text, "null", ("false", "true"), str, _json_real)
TABLE = Spelling(visible, "", ("no", "yes"), _group, _short)
MARKDOWN = Spelling(_markdown, "", ("no", "yes"), _group, _short)


def cell_text(value: Any, spelling: Spelling) -> str:
    """Return a single value of any type as text."""
    if value is None or value is pd.NA or value != value:
        return spelling.unknown
    if isinstance(value, bool):
        return spelling.truth[value]
    if isinstance(value, int):
        return spelling.integer(value)
    return spelling.real(value) if isinstance(value, float) else spelling.text(str(value))


def column(spec: Column, cells: pd.Series[Any], spelling: Spelling) -> pa.Array:
    """Return the cells of a column as large strings without nulls."""
    if spec.kind in (str, bool):
        return _texts(cells, spelling)
    if spec.kind is int and spelling.integer is str:
        array = pa.array(cells, pa.int64(), from_pandas=True).cast(pa.large_string())
        return pc.fill_null(array, spelling.unknown)
    return pa.array([cell_text(value, spelling) for value in cells.tolist()], pa.large_string())


def _texts(cells: pd.Series[Any], spelling: Spelling) -> pa.Array:
    """Convert texts and booleans, each distinct value once."""
    codes, distinct = pd.factorize(cells)
    texts = [cell_text(_plain(value), spelling) for value in distinct]
    return pa.array([*texts, spelling.unknown], pa.large_string()).take(pa.array(codes % (len(texts) + 1)))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value

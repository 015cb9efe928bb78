# SPDX-License-Identifier: Apache-2.0
"""Cells of reports as text, column by column; texts that repeat are converted once.

Texts of a profile are hostile: names of kernels, layers and arguments are what a program chose. In CSV a text that a
spreadsheet would take for a formula (it begins with = + - @ and is no number) gets a ' before it. Characters that
control a terminal or a reader become blanks in CSV, Markdown and tables; JSON escapes them, Parquet keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.reports import Column

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_FORMULA = re.compile(r"[\s\ufeff]*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_NEEDS_QUOTES = re.compile(r'[",\n]|^\s|\s$|^$')
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")


class Spelling(NamedTuple):
    """How a format writes texts, what is unknown, truth values, integers and floats."""

    text: Callable[[str], str]
    unknown: str
    truth: tuple[str, str]
    integer: Callable[[int], str]
    real: Callable[[float], str]


def _clean(text: str) -> str:
    """Without control characters; a formula's first character is disarmed.

    >>> _clean("=cmd|x"), _clean("-1.5"), _clean("a\\x1b[31mb"), _clean("a\\nb")
    ("'=cmd|x", '-1.5', 'a [31mb', 'a\\nb')
    """
    text = _CONTROL.sub(" ", text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _quoted(text: str) -> str:
    return '"' + _clean(text).replace('"', '""') + '"'


def _as_needed(text: str) -> str:
    clean = _clean(text)
    return _quoted(text) if _NEEDS_QUOTES.search(clean) else clean


def printable(text: str) -> str:
    """In one line, without characters that a terminal would obey.

    >>> printable("a\\nb\\x1b[2J\\u202e")
    'a b [2J '
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _markdown(text: str) -> str:
    """No character has a meaning in Markdown or HTML; lines are separated by breaks."""
    return "<br>".join(_MARKUP.sub(r"\\\1", printable(line)) for line in text.split("\n"))


def _group(number: int) -> str:
    return f"{number:,}"


def _short(number: float) -> str:
    """Four digits, so that a small share is not nothing; large numbers whole.

    >>> _short(0.028657), _short(99.7929), _short(2250674958.04)
    ('0.02866', '99.79', '2,250,674,958')
    """
    return f"{number:.4g}" if abs(number) < 1000 else f"{number:,.0f}"


CSV = Spelling(_as_needed, "", ("False", "True"), str, repr)
DLPROF = Spelling(_quoted, "", ("no", "yes"), str, lambda number: f"{number:.1f}")
JSON = Spelling(lambda text: json.dumps(text, ensure_ascii=False), "null", ("false", "true"), str, repr)
TABLE = Spelling(printable, "", ("no", "yes"), _group, _short)
MARKDOWN = Spelling(_markdown, "", ("no", "yes"), _group, _short)


def one(value: Any, spelling: Spelling) -> str:
    """A single value of any type."""
    if value is None or value is pd.NA or value != value:
        return spelling.unknown
    if isinstance(value, bool):
        return spelling.truth[value]
    if isinstance(value, int):
        return spelling.integer(value)
    return spelling.real(value) if isinstance(value, float) else spelling.text(str(value))


def column(spec: Column, cells: pd.Series[Any], spelling: Spelling) -> pa.Array:
    """The cells of a column as large strings; none is missing."""
    if spec.kind in (str, bool):
        return _texts(cells, spelling)
    if spec.kind is int and spelling.integer is str:
        found = pa.array(cells, pa.int64(), from_pandas=True).cast(pa.large_string())
        return pc.fill_null(found, spelling.unknown)
    return pa.array([one(value, spelling) for value in cells.tolist()], pa.large_string())


def _texts(cells: pd.Series[Any], spelling: Spelling) -> pa.Array:
    """Texts and truth values: each distinct one is spelled once."""
    codes, distinct = pd.factorize(cells)
    spelled = [one(_plain(value), spelling) for value in distinct]
    return pa.array([*spelled, spelling.unknown], pa.large_string()).take(
        pa.array(codes % (len(spelled) + 1))
    )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value

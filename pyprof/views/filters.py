# SPDX-License-Identifier: Apache-2.0
"""Filters of tables: KEY:CONDITION, parsed once, then applied to columns.

Numbers: `>5ms`, `<= 2.5KB`, `10..20us`, `=7`; digits only are searched in the number as written. Units are those of
the column: ns us ms s, B KB MB GB KiB MiB GiB, %. Booleans: 1 or 0. Texts: a case-insensitive substring; `=TEXT` is
the whole text, or a whole line of it, as of a call stack. `?` matches unknown, `!?` known values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.core.model import Bools, Ints
from pyprof.reports import Column
from pyprof.views.problems import Trouble

_UNITS: dict[str, dict[str, float]] = {
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "B": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30},
    "%": {"%": 1},
}
_NUMBER = r"[+-]?(?:[0-9][0-9,_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*([a-zA-Zµ%]*)\s*")
_COMPARISON = re.compile(r"\s*(<=|>=|=|<|>)(.*)", re.S)
_YES, _NO = ("1", "y", "ye", "yes"), ("0", "n", "no")
_DIGITS = re.compile(r"[0-9,.\-+eE]+")
_FILTER = re.compile(r"([a-z_]+):(.*)", re.S)
_WORD = re.compile(r'[a-z_]+:"[^"]*"|\S+')  # a value with spaces is in quotes


class Bounds(NamedTuple):
    """An interval of numbers, and whether each end is included."""

    low: float
    high: float
    low_included: bool
    high_included: bool


class Condition(NamedTuple):
    """Condition on the values of a column: exactly one of the fields after `key` is set."""

    key: str
    known: bool | None = None
    text: Callable[[str], bool] | None = None
    truth: bool | None = None
    bounds: Bounds | None = None
    digits: str | None = None  # of a number as written, without separators


def split(text: str, keys: Container[str]) -> tuple[str, list[str]]:
    """Return the text to look for, and the filters among the words: those that begin with one of the keys.

    >>> split("volta gemm dur:>5ms aten::mm", ["dur"])
    ('volta gemm aten::mm', ['dur:>5ms'])
    >>> split('line:"=my net.py:7"', ["line"])
    ('', ['line:=my net.py:7'])
    """
    words, filters = [], []
    for word in _WORD.findall(text):
        match = _FILTER.fullmatch(word)
        if match is None or match[1] not in keys:
            words.append(word)
            continue
        value = match[2]
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        filters.append(f"{match[1]}:{value[1:-1] if quoted else value}")
    return " ".join(words), filters


def parse(filters: Sequence[str], columns: Iterable[Column]) -> list[Condition]:
    """Return the conditions of filters. Raises Trouble for an unknown column, a wrong condition or unit."""
    by_key = {column.key: column for column in columns}
    conditions = []
    for text in filters:
        key, colon, condition = text.partition(":")
        if not colon:
            raise Trouble("parameter", f"filter {text!r}: expected KEY:CONDITION, as in gpu:>5ms.", "filter")
        conditions.append(_condition(find_column(by_key, key, "filter"), condition))
    return conditions


def find_column(columns: dict[str, Column], key: str, parameter: str) -> Column:
    """Return a column by its key. Raises Trouble that names the parameter."""
    if key not in columns:
        raise Trouble("parameter", f"{parameter}: unknown column {key!r}; choose from {', '.join(columns)}.", parameter)
    return columns[key]


def _condition(column: Column, text: str) -> Condition:
    key = column.key
    if text.strip() in ("?", "!?"):
        return Condition(key, known=text.strip() == "!?")
    if column.kind in (str, object):
        return Condition(key, text=text_test(text))
    if column.kind is bool:
        return Condition(key, truth=_truth(text))
    bounds = number_test(text, column.unit)
    return Condition(key, digits=digits_of(text)) if bounds is None else Condition(key, bounds=bounds)


def is_digits(text: str) -> bool:
    """Return whether a text is to be searched in numbers as they are written."""
    return _DIGITS.fullmatch(text) is not None


def digits_of(text: str) -> str:
    """Return a number as written without separators of thousands."""
    return text.strip().replace(",", "").replace("_", "")


def text_test(text: str) -> Callable[[str], bool]:
    """Return the test that a text has to pass."""
    if text.startswith("="):
        whole = text[1:]
        return lambda cell: cell == whole or whole in cell.split("\n")
    needle = text.strip().casefold()
    return lambda cell: needle in cell.casefold()


def _truth(text: str) -> bool:
    """Return the boolean for yes or no, or how a reader begins to write them. Raises Trouble for anything else."""
    word = text.strip().casefold()
    if word in _YES or word in _NO:
        return word in _YES
    raise Trouble("parameter", f"filter {text!r}: for a boolean column, use yes or no.", "filter")


def number_test(text: str, unit: str) -> Bounds | None:
    """Return the bounds of a condition; None for digits only, which are searched as text. Raises Trouble.

    >>> number_test(">5ms", "ns")
    Bounds(low=5000000.0, high=inf, low_included=False, high_included=True)
    >>> number_test("12", "ns")
    """
    between = text.split("..")
    if len(between) == 2:
        high, suffix = _amount(between[1], unit)
        return Bounds(_amount(between[0], unit, suffix)[0], high, True, True)
    comparison = _COMPARISON.fullmatch(text)
    if comparison is None:
        if _DIGITS.fullmatch(text.strip()):
            return None
        value = _amount(text, unit)[0]
        return Bounds(value, value, True, True)
    value = _amount(comparison[2], unit)[0]
    infinite = float("inf")
    return {
        "<": Bounds(-infinite, value, True, False),
        "<=": Bounds(-infinite, value, True, True),
        "=": Bounds(value, value, True, True),
        ">": Bounds(value, infinite, False, True),
        ">=": Bounds(value, infinite, True, True),
    }[comparison[1]]


def _amount(text: str, unit: str, suffix: str = "") -> tuple[float, str]:
    """Return a number converted to the column's unit, and its own unit; `suffix` is the unit if none is written."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise Trouble("parameter", f"filter {text!r}: expected a number, as in >5 or 10..20.", "filter")
    written_unit = match[2] or suffix
    factors = _UNITS.get(unit, {})
    if written_unit and written_unit.lower() not in factors:
        units = f"its units are {' '.join(factors)}" if factors else "it has none"
        raise Trouble("parameter", f"filter {text!r}: {written_unit} is not a unit of this column; {units}.", "filter")
    number = match[1].replace(",", "").replace("_", "")
    return float(number) * (factors[written_unit.lower()] if written_unit else 1), written_unit


def numbers_pass(condition: Condition, values: Ints) -> Bools:
    """Return which numbers pass a condition; all of them are known."""
    if condition.known is not None:
        return np.full(len(values), condition.known)
    if condition.bounds is None:
        assert condition.digits is not None
        digits = digits_of(condition.digits)
        return np.array([digits in str(value) for value in values.tolist()], bool)
    low, high, low_included, high_included = condition.bounds
    above = values >= low if low_included else values > low
    below = values <= high if high_included else values < high
    out: Bools = above & below
    return out

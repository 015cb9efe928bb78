# SPDX-License-Identifier: Apache-2.0
"""Tables in memory: filtered, searched, sorted and split into pages, as numpy columns.

Each distinct text is stored once, with a code per row: a search tests each distinct text once, a sort compares
numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.model import Bools, Ints
from pyprof.reports import Column, Report
from pyprof.views.filters import Condition, digits_of, find_column, is_digits, parse
from pyprof.views.models import Cell

_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
MOST_ROWS = 100_000  # limit of tables that can be sorted and filtered


class Text:
    """Column of texts: the distinct texts, sorted, and the code of each row; -1 is unknown."""

    def __init__(self, values: pa.ChunkedArray | pa.Array):
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        texts: list[str] = [text or "" for text in array.dictionary.to_pylist()]
        codes: Ints = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        used = np.unique(codes[codes >= 0]).tolist()
        self.texts = sorted({texts[code] for code in used}, key=lambda text: (text.casefold(), text))
        place = {text: number for number, text in enumerate(self.texts)}
        used_codes = set(used)
        lookup = np.array([place[t] if i in used_codes else -1 for i, t in enumerate(texts)] + [-1], np.int64)
        self.codes: Ints = lookup[codes]

    def mask(self, test: Any) -> Bools:
        """Return a mask of the rows whose text passes a test."""
        hits = np.array([test(text) for text in self.texts] + [False], bool)
        out: Bools = hits[self.codes]
        return out

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + sum(map(len, self.texts)) + 60 * len(self.texts)


class Frame:
    """Table with the columns of a report."""

    def __init__(self, table: pa.Table, columns: Sequence[Column]):
        self.columns, self.rows = tuple(columns), table.num_rows
        self._at = {column.key: column for column in columns}
        self._values: dict[str, npt.NDArray[Any] | Text] = {}
        self._unknown: dict[str, Bools] = {}
        for column in columns:
            array = table.column(column.key)
            if column.kind in (str, object):
                text = self._values[column.key] = Text(array)
                self._unknown[column.key] = text.codes < 0
                continue
            unknown = np.asarray(array.is_null(nan_is_null=True).to_numpy(), bool)
            kind = {int: pa.int64(), bool: pa.bool_(), float: pa.float64()}[column.kind]
            fill = False if column.kind is bool else 0
            self._unknown[column.key] = unknown
            self._values[column.key] = array.cast(kind).fill_null(fill).to_numpy()

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self._values.values()) + sum(m.nbytes for m in self._unknown.values())

    def empty(self) -> list[str]:
        """Return the keys of the columns without a value."""
        return [column.key for column in self.columns if self._unknown[column.key].all()]

    def equal(self, one: str, other: str) -> bool:
        """Return whether two columns of numbers have the same values in every row."""
        (left, known), (right, right_known) = self.numbers(one), self.numbers(other)
        return np.array_equal(known, right_known) and np.array_equal(left[known], right[known])

    def largest(self, key: str) -> int | None:
        """Return the largest number of a column; None if there is none."""
        values, mask = self._values[key], ~self._unknown[key]
        return int(values[mask].max()) if not isinstance(values, Text) and mask.any() else None

    def numbers(self, key: str) -> tuple[npt.NDArray[Any], Bools]:
        """Return a column of numbers, and a mask of the known ones."""
        values = self._values[key]
        assert not isinstance(values, Text)
        return values, ~self._unknown[key]

    def total(self, key: str, rows: Ints) -> tuple[int | None, int]:
        """Return the sum of the known numbers of a column in some rows, None without any, and how many are unknown."""
        values, known = self.numbers(key)
        known = known[rows]
        return (int(values[rows][known].sum()) if known.any() else None), int((~known).sum())

    # --- selection of rows

    def matching(self, key: str, test: Any) -> Bools:
        """Return a mask of the rows whose text in a column passes a test."""
        values = self._values[key]
        assert isinstance(values, Text)
        return values.mask(test)

    def select(self, search: str = "", filters: Sequence[str] = (), sort: str | None = None) -> Ints:
        """Return the indices of the rows that pass, in order. Raises Trouble for an unknown column or condition."""
        mask: Bools = np.ones(self.rows, bool)
        for condition in parse(filters, self.columns):
            mask &= self._filter(condition)
        if search.strip():
            mask &= self._search(search.strip())
        rows: Ints = np.flatnonzero(mask)
        return self._sorted(rows, sort) if sort else rows

    def _filter(self, condition: Condition) -> Bools:
        values, unknown = self._values[condition.key], self._unknown[condition.key]
        if condition.known is not None:
            return ~unknown if condition.known else unknown
        if condition.digits is not None:
            return self._digits(condition.key, condition.digits)
        if isinstance(values, Text):
            return values.mask(condition.text)
        if condition.bounds is None:
            agree: Bools = values == condition.truth
            return ~unknown & agree
        low, high, low_included, high_included = condition.bounds
        above: Bools = values >= low if low_included else values > low
        below: Bools = values <= high if high_included else values < high
        return ~unknown & above & below

    def _digits(self, key: str, text: str) -> Bools:
        """Return a mask of the rows whose number, as written, contains these digits."""
        mask = pc.match_substring(pa.array(self._values[key]).cast(pa.string()), text)
        return np.asarray(mask.to_numpy(zero_copy_only=False), bool) & ~self._unknown[key]

    def _search(self, text: str) -> Bools:
        mask: Bools = np.zeros(self.rows, bool)
        needle = text.casefold()
        digits = is_digits(text)
        for key, values in self._values.items():
            if isinstance(values, Text):
                mask |= values.mask(lambda cell: needle in cell.casefold())
            elif digits and values.dtype != bool:
                mask |= self._digits(key, digits_of(text))
        return mask

    def _sorted(self, rows: Ints, sort: str) -> Ints:
        """Sort rows. Unknown values come last in both directions; the sort is stable."""
        keys: list[npt.NDArray[Any]] = []
        for name in sort.split(","):
            key = name.removeprefix("-")
            find_column(self._at, key, "sort")
            values = self._values[key]
            column = values.codes[rows] if isinstance(values, Text) else values[rows]
            if column.dtype == bool:
                column = column.astype(np.int8)
            keys += [-column if name.startswith("-") else column, self._unknown[key][rows]]
        order = np.lexsort(keys_last_first(keys))
        return rows[order]

    # --- contents of rows

    def cells(self, rows: Ints) -> list[list[Cell]]:
        """Return rows for JSON."""
        columns: list[list[Cell]] = []
        for column in self.columns:
            values, unknown = self._values[column.key], self._unknown[column.key][rows].tolist()
            if isinstance(values, Text):
                codes = values.codes[rows].tolist()
                texts: list[Cell] = [None if code < 0 else values.texts[code] for code in codes]
                columns.append([_decode(text) for text in texts] if column.kind is object else texts)
            else:
                columns.append([None if missing else value for value, missing in zip(values[rows].tolist(), unknown)])
        return [list(row) for row in zip(*columns)]

    def pandas(self, rows: Ints) -> pd.DataFrame:
        """Return rows as in reports."""
        out: dict[str, Any] = {}
        for column in self.columns:
            values, unknown = self._values[column.key], self._unknown[column.key][rows]
            if isinstance(values, Text):
                codes = values.codes[rows]
                if column.kind is object:
                    out[column.key] = pd.Series(
                        [_decode(values.texts[c]) if c >= 0 else None for c in codes], dtype=object
                    )
                else:
                    out[column.key] = pd.Categorical.from_codes(codes, categories=pd.Index(values.texts, dtype=object))
            elif column.kind is bool:
                out[column.key] = pd.arrays.BooleanArray(values[rows].astype(bool), unknown)
            elif column.kind is int:
                out[column.key] = pd.arrays.IntegerArray(values[rows].astype(np.int64), unknown)
            else:
                out[column.key] = np.where(unknown, np.nan, values[rows])
        return pd.DataFrame(out, columns=[column.key for column in self.columns])


def keys_last_first(keys: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Order pairs (values, unknown) for np.lexsort, which sorts by the last key first: unknown takes precedence."""
    return [key for pair in reversed(list(zip(keys[::2], keys[1::2]))) for key in pair]


def _decode(text: Any) -> Any:
    return None if text is None else json.loads(text)


def arrow(frame: pd.DataFrame, columns: Sequence[Column]) -> pa.Table:
    """Return a report's rows as Arrow columns; values of any type as JSON."""
    arrays = []
    for column in columns:
        values = frame[column.key]
        if column.kind is object:
            texts = [None if value is None or value is pd.NA else json.dumps(value, default=str) for value in values]
            arrays.append(pa.array(texts, pa.string()))
        else:
            array = pa.array(values, from_pandas=True)
            if pa.types.is_binary(array.type.value_type if pa.types.is_dictionary(array.type) else array.type):
                raise TypeError(f"column {column.key} has bytes")  # no profile has them
            no_texts = pa.types.is_dictionary(array.type) and pa.types.is_null(array.type.value_type)
            arrays.append(
                pa.nulls(len(array), pa.string()) if no_texts else array
            )  # a column without texts has no type
    return pa.table(arrays, names=[column.key for column in columns])


def from_rows(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> Frame:
    """Return the rows of a query as a table."""
    values = list(zip(*rows)) if rows else [() for _ in columns]
    arrays = []
    for column, cells in zip(columns, values):
        column_values = [None if cell is None else bool(cell) for cell in cells] if column.kind is bool else cells
        arrays.append(pa.array(column_values, _ARROW[column.kind]))
    return Frame(pa.table(arrays, names=[column.key for column in columns]), columns)


def report_table(report: Report, source: Any) -> tuple[dict[str, Any], pa.Table]:
    """Return a report as Arrow columns, at most `MOST_ROWS` rows."""
    parts, count = [], 0
    for part in report.chunks(source):
        parts.append(arrow(part.iloc[: MOST_ROWS - count], report.columns))
        count += len(part)
        if count > MOST_ROWS:
            break
    unified = [_unified(part) for part in parts]
    return {"complete": count <= MOST_ROWS}, pa.concat_tables(unified, promote_options="permissive")


def _unified(part: pa.Table) -> pa.Table:
    """Unify dictionaries: repeated texts are codes of a separate dictionary in each part."""
    return part.unify_dictionaries() if part.num_rows else part


def stream(table: pa.Table) -> bytes:
    """Serialize a table for another process."""
    body = BytesIO()
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
    return body.getvalue()

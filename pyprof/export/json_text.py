# SPDX-License-Identifier: Apache-2.0
"""JSON of millions of rows: columns of Arrow strings, joined row by row. Distinct values are spelled once.

>>> x = Column(np.array([7, 0]), np.array([True, False]))
>>> line('{"n":', number(np.array([1, 2])), optional(',"x":', number(x)), "}").to_pylist()
['{"n":1,"x":7}', '{"n":2}']
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.model import Column, Ints

_TEXT = pa.large_string()
_DIGITS = pa.array([f".{number:03d}" for number in range(1000)], _TEXT)


def quoted(text: str) -> str:
    """Return an ASCII JSON string. Control characters and lone surrogates, which UTF-8 cannot encode, are escaped."""
    return json.dumps(text)


def number(column: Column | Ints) -> pa.Array:
    """Return integers as text; null where one is missing."""
    values, present = column if isinstance(column, Column) else (column, None)
    mask = None if present is None else ~present
    return pa.array(np.ascontiguousarray(values, np.int64), pa.int64(), mask=mask).cast(_TEXT)


def micro(ns: Ints) -> pa.Array:
    """Return whole ns as microseconds with three decimals, without a detour through floats.

    >>> micro(np.array([1, 1_234_567, 2**62, -1500])).to_pylist()
    ['0.001', '1234.567', '4611686018427387.904', '-1.500']
    """
    whole = pa.array(np.abs(ns) // 1000, pa.int64()).cast(_TEXT)
    out = line(whole, _DIGITS.take(pa.array(np.abs(ns) % 1000)))
    return line(select(["", "-"], (ns < 0).astype(np.int64)), out) if (ns < 0).any() else out


def select(texts: Sequence[str | None], codes: Column | Ints) -> pa.Array:
    """Return the text for each code; null where the code is missing."""
    values, present = codes if isinstance(codes, Column) else (codes, None)
    mask = None if present is None else ~present
    return pa.array(texts, _TEXT).take(pa.array(np.ascontiguousarray(values, np.int64), mask=mask))


def optional(prefix: str, column: pa.Array) -> pa.Array:
    """Return the prefix and the value; empty where the value is null."""
    return pc.fill_null(line(prefix, column), "")


def line(*parts: pa.Array | str) -> pa.Array:
    """Join the parts row by row; null if any part is null."""
    arrays: list[Any] = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*arrays, pa.scalar("", _TEXT))


def put(lines: pa.Array, file: BinaryIO) -> None:
    """Write all rows without separators, directly from Arrow's memory."""
    if isinstance(lines, pa.ChunkedArray):
        for chunk in lines.chunks:
            put(chunk, file)
        return
    if len(lines):
        _, offsets, data = lines.buffers()
        at = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
        file.write(memoryview(data)[int(at[0]) : int(at[-1])])

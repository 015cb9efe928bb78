# SPDX-License-Identifier: Apache-2.0
"""Times of a trace: decimal microseconds as text to integer nanoseconds, without a float in between.

A float has 53 bits: microseconds since 1970 come out at quarters of a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.model import Column, Ints

_DECIMAL = pa.decimal128(38, 9)
_NANOSECONDS = pa.decimal128(38, 3)
_LIMIT = 1 << 62


def nanoseconds(texts: Sequence[Any]) -> Column:
    """Times in ns, rounded to the nearest; missing where a text is no number, or one beyond 146 years.

    >>> found = nanoseconds([b"1623142623460172", b"12.5", b"0.0004", b"1e3", b"null", b""])
    >>> found.values.tolist(), found.mask().tolist()
    ([1623142623460172000, 12500, 0, 1000000, 0, 0], [True, True, True, True, False, False])
    """
    try:
        values = _fast(texts)
    except pa.ArrowInvalid:
        return _slow(texts)
    if len(values) and (values.min() < -_LIMIT or values.max() > _LIMIT):
        return _slow(texts)
    return Column(values)


def _fast(texts: Sequence[Any]) -> Ints:
    joined = b"\n".join([*texts, b""])  # one buffer, and the places where each text begins
    bounds = np.flatnonzero(np.frombuffer(joined, np.uint8) == 10)
    if len(bounds) != len(texts):
        raise pa.ArrowInvalid("a time with a line break in it")
    offsets = np.r_[0, bounds + 1].astype(np.int32)
    lines = pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )  # each with its line break, which Arrow takes for a blank
    numbers = pc.ascii_trim_whitespace(lines).cast(_DECIMAL)
    exact = pc.round(numbers, 3, "half_to_even").cast(_NANOSECONDS)
    pairs = np.frombuffer(exact.buffers()[1], np.int64, 2 * len(texts), exact.offset * 16)
    low, high = pairs[::2], pairs[1::2]  # of 128 bits, the lower ones first
    if ((high != 0) & (high != -1)).any():
        raise pa.ArrowInvalid("a time beyond 64 bits")
    return low.copy()


def _slow(texts: Sequence[Any]) -> Column:
    values, present = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for i, text in enumerate(texts):
        try:
            number = Decimal(bytes(text).decode().strip('" ')) * 1000
            if number.is_finite() and abs(number) < _LIMIT:
                values[i], present[i] = int(number.to_integral_value()), True
        except (InvalidOperation, UnicodeError, ValueError, OverflowError):
            continue
    return Column(values, present)

# SPDX-License-Identifier: Apache-2.0
"""Times of a trace: microseconds, as whole numbers or decimal text, to integer nanoseconds, without a float in between.

A float has 53 bits: microseconds since 1970 come out at quarters of a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.model import Column, Ints

_LIMIT = 1 << 62
_LONGEST = (_LIMIT - 1) // 1000
_POWERS = 10 ** np.arange(19)


def nanoseconds(times: Sequence[Any]) -> Column:
    """Convert times to ns, rounded to the nearest. A time is missing if it is not a number, or one beyond 146 years.

    >>> column = nanoseconds([1623142623460172, "12.5", "0.0004", "1e3", None, ""])
    >>> column.values.tolist(), column.mask().tolist()
    ([1623142623460172000, 12500, 0, 1000000, 0, 0], [True, True, True, True, False, False])
    """
    try:
        if times and type(times[0]) is str:
            with suppress(TypeError):  # all are, in most traces
                return Column(_fast(times))
        kinds = {*map(type, times)}
        if kinds == {int}:
            return Column(_whole(times))
        if kinds <= {int, str}:
            return Column(_fast([*map(str, times)]))
    except (OverflowError, pa.ArrowInvalid):
        pass
    return _slow(times)


def _whole(times: Sequence[int]) -> Ints:
    """Convert whole numbers. Raises OverflowError for one beyond 146 years."""
    values = np.array(times, np.int64)
    if values.max() > _LONGEST or values.min() < -_LONGEST:
        raise OverflowError
    return values * 1000


def _fast(texts: Sequence[str]) -> Ints:
    """Convert texts that are all digits, at most 18, with a sign or a point. Raises ArrowInvalid for others."""
    joined = "\n".join([*texts, ""]).encode()  # one buffer, and the places where each text ends
    letters = np.frombuffer(joined, np.uint8)
    ends, points = np.flatnonzero(letters == ord("\n")), np.flatnonzero(letters == ord("."))
    if len(ends) != len(texts):
        raise pa.ArrowInvalid("a time with a line break in it")
    decimals = np.zeros(len(texts), np.int64)
    if len(points):  # the digits without the point are a whole number
        joined = joined.replace(b".", b"")
        line = np.searchsorted(ends, points)
        if (line[1:] == line[:-1]).any():
            raise pa.ArrowInvalid("a time with two points")
        decimals[line] = ends[line] - points - 1
        ends -= np.cumsum(np.bincount(line, minlength=len(ends)))
        if decimals.max() >= len(_POWERS):
            raise pa.ArrowInvalid("a time with many decimals")
    offsets = np.zeros(len(ends) + 1, np.int32)
    np.add(ends, 1, out=offsets[1:], casting="unsafe")
    lines = pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )  # each with its line break, which Arrow takes for a blank
    digits = pc.ascii_trim_whitespace(lines).cast(pa.int64()).to_numpy()
    scale = _POWERS[np.maximum(3 - decimals, 0)]
    if (np.abs(digits) > (_LIMIT - 1) // scale).any():
        raise pa.ArrowInvalid("a time beyond 146 years")
    values: Ints = digits * scale
    long = np.flatnonzero(decimals > 3)
    if len(long):
        below = _POWERS[decimals[long] - 3]
        values[long], remainder = np.divmod(digits[long], below)
        remainder *= 2
        values[long] += (remainder > below) | ((remainder == below) & (values[long] % 2 == 1))  # half to even
    return values


def _slow(times: Sequence[Any]) -> Column:
    values, present = np.zeros(len(times), np.int64), np.zeros(len(times), bool)
    for i, time in enumerate(times):
        try:
            number = Decimal(str(time)) * 1000
            if number.is_finite() and abs(number) < _LIMIT:
                values[i], present[i] = int(number.to_integral_value()), True
        except (InvalidOperation, ValueError, OverflowError):
            continue
    return Column(values, present)

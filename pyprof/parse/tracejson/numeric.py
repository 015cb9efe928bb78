# SPDX-License-Identifier: Apache-2.0
"""Numbers of events as columns. Values that are not numbers are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from pyprof.core.model import Column
from pyprof.parse.tracejson.events import FAULTS


def number_of(value: Any) -> int:
    """Return a process, thread or stream as a number. Many files have texts ("stream 7", "Spans").

    >>> number_of(7), number_of("25738"), number_of("stream 7"), number_of("Spans") < 0
    (7, 25738, 7, True)
    """
    if type(value) is int and abs(value) < 1 << 62:
        return value
    text = str(value)
    digits = text.rpartition(" ")[2]
    if digits.isascii() and digits.isdigit() and len(digits) < 18:
        return int(digits)
    return -1 - sum(byte << 8 * (index % 6) for index, byte in enumerate(text.encode("utf-8", "replace")))


def integers(values: Sequence[Any]) -> Column:
    """Convert whole numbers, also those that are written as text or with a fraction. Anything else is missing.

    >>> column = integers([7, None, "12", 2.9, [1], "x", 1 << 70])
    >>> column.values.tolist(), column.mask().tolist()
    ([7, 0, 12, 2, 0, 0, 0], [True, False, True, True, False, False, False])
    """
    missing = values.count(None)
    if missing == len(values) and missing:
        return Column.missing(len(values))
    try:
        array = np.array(values if not missing else [0 if value is None else value for value in values], np.int64)
        if array.ndim == 1:
            return Column(array, np.array([value is not None for value in values]) if missing else None)
    except (TypeError, ValueError, OverflowError):
        pass
    out, present = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    for index, value in enumerate(values):
        try:
            out[index] = int(value)
            present[index] = True
        except (TypeError, ValueError, OverflowError):
            continue
    return Column(out, present)


def counts(values: Sequence[Any]) -> list[int | None]:
    """Return counts, None for what is none. Tools write 0 for what they did not count.

    >>> counts([7, 0, -1, None, "x", 1 << 63])
    [7, None, None, None, None, None]
    """
    if values.count(None) == len(values):
        return [None] * len(values)
    column = integers(values)
    return [value if has and value > 0 else None for value, has in zip(column.values.tolist(), column.mask().tolist())]


_NO_TRIPLE = np.zeros(3, np.int64)


def triples(texts: Sequence[Any], cache: dict[bytes, Any]) -> Column:
    """Return grids and blocks from their texts. `cache` keeps decoded texts."""
    keys = [*map(bytes, texts)]
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    values = [cache[key] if key in cache else cache.setdefault(key, _triple(key)) for key in place]
    code = np.array([*map(place.__getitem__, keys)], np.int32)
    triples_ = np.array([_NO_TRIPLE if value is None else value for value in values], np.int64).reshape(-1, 3)
    return Column(triples_[code], np.array([value is not None for value in values], bool)[code])


def _triple(text: bytes) -> Any:
    try:
        value = msgspec.json.decode(text, type=tuple[int, int, int]) if text else None
    except FAULTS:
        return None
    return value if value and all(0 <= v < 1 << 31 for v in value) else None


def either(first: Column, second: Column) -> Column:
    has = first.mask()
    return Column(np.where(has, first.values, second.values), has | second.mask())

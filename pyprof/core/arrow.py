# SPDX-License-Identifier: Apache-2.0
"""Conversions between numpy and Arrow, without pandas.

`pa.array`, `pa.scalar` and `Array.to_numpy` import pandas wherever it is installed, which costs a command more time
than reading a recording of 100,000 kernels. All functions share memory with their input.

>>> code, distinct = factorize(np.array([7, 3, 7]))
>>> code.tolist(), distinct.tolist()
([0, 1, 0], [7, 3])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyprof.core.model import Bools, Ints


def factorize(values: Ints) -> tuple[Ints, Ints]:
    """Return a 32-bit code for each integer, and the distinct integers by code, in order of first occurrence."""
    encoded = array(values).dictionary_encode()
    return numbers(encoded.indices), numbers(encoded.dictionary)


def array(values: Ints) -> pa.Array:
    """Return integers as an Arrow array."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def texts(values: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def large_texts(values: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array that may exceed 2 GB; a lone surrogate, as in a file name, is escaped."""
    encoded = [value.encode("utf-8", "backslashreplace") for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def joined(values: pa.Array) -> memoryview:
    """Return the concatenated texts of an array of large texts, as they are in memory."""
    _, ends, data = values.buffers()
    first, last = np.frombuffer(ends, np.int64)[[values.offset, values.offset + len(values)]].tolist()
    return memoryview(data)[first:last]


def truths(values: Bools) -> pa.Array:
    """Return truth values as an Arrow array."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def numbers(values: pa.Array) -> Ints:
    """Return the integers of an Arrow array; the number at a null is arbitrary."""
    dtype = np.dtype(str(values.type))
    buffer = values.buffers()[1]
    if not len(values):
        return np.empty(0, dtype)
    out: Ints = np.frombuffer(buffer, dtype, len(values), values.offset * dtype.itemsize)
    return out


def bools(values: pa.Array) -> Bools:
    """Return the truth values of an Arrow array without nulls."""
    if not len(values):
        return np.empty(0, bool)
    bits = np.frombuffer(values.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=values.offset + len(values), bitorder="little")[values.offset :].view(bool)


def present(values: pa.Array) -> Bools:
    """Return a mask of the non-null elements of an Arrow array."""
    return bools(values.is_valid())

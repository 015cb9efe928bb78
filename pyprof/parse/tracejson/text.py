# SPDX-License-Identifier: Apache-2.0
"""The text of a trace: plain or gzip, whole or cut off."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyprof.core import inputs
from pyprof.core.errors import FormatError

_GZIP = b"\x1f\x8b"
_HEAD, _PART = 1 << 16, 1 << 20


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def head(path: Path) -> bytes:
    """Return the first bytes of the text, empty if it cannot be decompressed."""
    with path.open("rb") as file:
        first = file.read(_HEAD)
    if not first.startswith(_GZIP):
        return first
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        return unpack.copy().decompress(first, _HEAD)
    except zlib.error:
        return b"".join(_bytewise(unpack, first))


def read(path: Path, lost: dict[str, int]) -> bytes:
    """Return the whole text, or the readable part of a damaged archive. Raises FormatError if that is empty, or more
    than any trace has."""
    try:
        if not is_gzip(path):
            return path.read_bytes()
        limit = inputs.largest(path.stat().st_size)
        with gzip.open(path) as file:
            parts, size = [], 0
            while size <= limit and (part := file.read(_PART)):
                parts.append(part)
                size += len(part)
            text = b"".join(parts)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        text = _salvage(path, limit)
        if not text:
            raise FormatError(f"{path} is compressed and damaged from its beginning; copy it again.") from None
        lost["ends of a compressed file that is cut off or damaged"] = 1
    except OSError as error:
        raise FormatError(f"{path} cannot be read ({error.strerror or error}).") from error
    if len(text) > limit:
        raise FormatError(
            f"{path} holds more than {limit} bytes, which is too much for its size; if this is expected, "
            "decompress it first (gunzip)."
        )
    return text


def _salvage(path: Path, limit: int) -> bytes:
    """Return the decompressed bytes up to the first fault."""
    unpack, out, size = zlib.decompressobj(zlib.MAX_WBITS | 16), [], 0
    with path.open("rb") as file:
        while (part := file.read(_HEAD)) and size <= limit:
            before = unpack.copy()
            try:
                out.append(unpack.decompress(part))
                size += len(out[-1])
            except zlib.error:
                out += _bytewise(before, part)
                break
    return b"".join(out)


def _bytewise(unpack: Any, part: bytes) -> Iterator[bytes]:
    """Decompress a damaged part byte by byte up to its fault: in one call it yields nothing."""
    for index in range(len(part)):
        try:
            yield unpack.decompress(part[index : index + 1])
        except zlib.error:
            return

# SPDX-License-Identifier: Apache-2.0
"""The text of a trace: plain or gzip, whole or cut off."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyprof import inputs
from pyprof.errors import FormatError

_GZIP = b"\x1f\x8b"
_HEAD, _PART = 1 << 16, 1 << 20


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def head(path: Path) -> bytes:
    """The first bytes of the text, nothing if it cannot be had."""
    with path.open("rb") as file:
        first = file.read(_HEAD)
    if not first.startswith(_GZIP):
        return first
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        return unpack.copy().decompress(first, _HEAD)
    except zlib.error:
        return b"".join(_up_to_fault(unpack, first))


def read(path: Path, lost: dict[str, int]) -> bytes:
    """All of the text, or what a damaged archive still gives. Raises FormatError if that is nothing, or more than any
    trace has."""
    try:
        if not is_gzip(path):
            return path.read_bytes()
        most = inputs.largest(path.stat().st_size)
        with gzip.open(path) as file:
            parts, size = [], 0
            while size <= most and (part := file.read(_PART)):
                parts.append(part)
                size += len(part)
            text = b"".join(parts)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        text = _what_is_left(path, most)
        if not text:
            raise FormatError(
                f"{path}: is compressed and damaged from its beginning; copy it again."
            ) from None
        lost["ends of a compressed file that is cut off or damaged"] = 1
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if len(text) > most:
        raise FormatError(
            f"{path}: holds more than {most} bytes, which is too much for its size; if it is what you expect, "
            "decompress it first (gunzip)."
        )
    return text


def _what_is_left(path: Path, most: int) -> bytes:
    """Decompressed bytes up to the first fault."""
    unpack, out, size = zlib.decompressobj(zlib.MAX_WBITS | 16), [], 0
    with path.open("rb") as file:
        while (part := file.read(_HEAD)) and size <= most:
            before = unpack.copy()
            try:
                out.append(unpack.decompress(part))
                size += len(out[-1])
            except zlib.error:
                out += _up_to_fault(before, part)
                break
    return b"".join(out)


def _up_to_fault(unpack: Any, part: bytes) -> Iterator[bytes]:
    """What the bytes of a damaged part give one by one: all at once they give nothing."""
    for place in range(len(part)):
        try:
            yield unpack.decompress(part[place : place + 1])
        except zlib.error:
            return

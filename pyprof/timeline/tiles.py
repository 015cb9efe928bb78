# SPDX-License-Identifier: Apache-2.0
"""Tiles: the records of a track and level in a stretch of time, as bytes that a browser decodes.

Tile `number` covers [number << shift, (number + 1) << shift) ns and has the records that begin in it and those that
cross into it, by lane, then start. All numbers are little-endian. The columns are not packed further: zstd takes the
zeros of 64-bit columns away (about 4 bytes remain per event), nothing saturates, and a page reads two 32-bit numbers
per value.

  what                                                                                  type
  records n, lanes, level, track                                                        4 x u32
  number                                                                                i64
  records of each lane, then zeros to a multiple of 8 bytes                             lanes x u32
  start: difference to the record before; the first of a lane is absolute (ns)          n x i64
  length: end - start (ns)                                                              n x i64
  id: difference to the record before, as for start                                     n x i64
  level > 0: idle: length - busy (ns)                                                   n x i64
  level > 0: more: count - 1, then zeros to a multiple of 8                             n x u32
  name, then operator; then zeros to a multiple of 8                                    n x u32 each
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyprof.core.model import Ints
from pyprof.timeline.records import Records

_HEAD = struct.Struct("<4Iq")
_FINEST_SHIFT = 26  # 67 ms: 4,096 buckets of level 14
_RECORDS = 2048  # mean of the tiles of a track and level; smaller ones waste pages and requests
_MOST_RECORDS = 1 << 20  # of a tile
MOST_BYTES = 64 << 20  # of a tile, inflated


class Tile(NamedTuple):
    """A decoded tile."""

    track: int
    level: int
    number: int
    records: Records


def cut(records: Records, level: int) -> tuple[int, Iterator[tuple[int, Records]]] | None:
    """Return the shift of a level's tiles, and their numbers and records; None if one of them would be too large."""
    shift = max(_FINEST_SHIFT, level + 12)
    while _largest(records, shift) > _MOST_RECORDS:
        if shift == level:
            return None
        shift -= 1
    while not _is_full(records, shift):
        shift += 1
    return shift, _pieces(records, shift)


def _numbers(records: Records, shift: int) -> tuple[Ints, Ints]:
    """Return the first and the last tile of each record. One that ends where a tile begins does not reach it."""
    return records.start >> shift, np.maximum(records.end - 1, records.start) >> shift


def _largest(records: Records, shift: int) -> int:
    """Return the most records that begin in a tile; those of a lane are in order."""
    number = records.start >> shift
    bounds = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1], [True]]))
    return int(np.diff(bounds).max()) if len(number) else 0


def _is_full(records: Records, shift: int) -> bool:
    """Return whether the tiles have enough records on the average, or there are at most two: one on each side of 0.

    Tiles are counted in the lane with most of them: they are at most those of all lanes.
    """
    first, last = _numbers(records, shift)
    same_lane = records.lane[1:] == records.lane[:-1]
    again = np.concatenate([[False], same_lane & (first[1:] == last[:-1])])
    touched = np.bincount(records.lane, weights=last - first + 1 - again)
    return bool(touched.max() * _RECORDS <= len(records) or last.max() - first.min() <= 1)


def _pieces(records: Records, shift: int) -> Iterator[tuple[int, Records]]:
    first, last = _numbers(records, shift)
    copies = last - first + 1
    index = np.arange(len(records))
    number = first
    if (copies > 1).any():
        index = np.repeat(index, copies)
        number = first[index] + np.arange(len(index)) - np.repeat(np.cumsum(copies) - copies, copies)
    order = np.argsort(number, kind="stable")  # within a tile by lane, then start, as before
    number, index = number[order], index[order]
    bounds = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1], [True]]))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        yield int(number[low]), records.take(index[low:high])


def pack(track: int, level: int, number: int, records: Records) -> bytes:
    """Return the bytes of a tile, not compressed."""
    sizes = np.bincount(records.lane)
    first = np.concatenate([[0], np.cumsum(sizes)])[:-1][sizes > 0]
    parts = [
        _HEAD.pack(len(records), len(sizes), level, track, number),
        _u32(sizes),
        _differences(records.start, first),
        (records.end - records.start).astype("<i8").tobytes(),
        _differences(records.id, first),
    ]
    if level:
        parts.append((records.end - records.start - records.busy).astype("<i8").tobytes())
        parts.append(_u32(records.events - 1))
    parts.append(_u32(np.concatenate([records.name, records.operator])))
    return b"".join(parts)


def _u32(values: Ints) -> bytes:
    data = values.astype("<u4").tobytes()
    return data + bytes(-len(data) % 8)


def _differences(values: Ints, first: Ints) -> bytes:
    out = values.astype("<i8")
    out[1:] = np.diff(values)
    out[first] = values[first]
    return out.tobytes()


def size(records: int, lanes: int, level: int) -> int:
    """Return the bytes of a tile, not compressed."""
    u32 = [lanes, records, 2 * records] if level else [lanes, 2 * records]
    return _HEAD.size + 8 * records * (4 if level else 3) + sum(-(-count // 2) * 8 for count in u32)


def unpack(data: bytes) -> Tile:
    """Return a tile. Raises ValueError for bytes that are none."""
    if len(data) < _HEAD.size:
        raise ValueError("a tile is shorter than its head")
    n, lanes, level, track, number = _HEAD.unpack_from(data)
    if level > 62 or size(n, lanes, level) != len(data):
        raise ValueError("a tile has another size than its head says")
    place = _HEAD.size

    def column(kind: str, count: int) -> Ints:
        nonlocal place
        out: Ints = np.frombuffer(data, kind, count, place)
        place += -(-out.nbytes // 8) * 8
        return out.astype(np.int64)

    sizes = column("<u4", lanes)
    if sizes.sum() != n:
        raise ValueError("the lanes of a tile have other records than it has")
    first = np.concatenate([[0], np.cumsum(sizes)])[:-1][sizes > 0]
    start = _sums(column("<i8", n), first)
    length = column("<i8", n)
    id_ = _sums(column("<i8", n), first)
    idle = column("<i8", n) if level else np.zeros(n, np.int64)
    more = column("<u4", n) if level else np.zeros(n, np.int64)
    name, operator = column("<u4", 2 * n).reshape(2, n)
    if n and (length.min() < 0 or idle.min() < 0 or (idle > length).any()):
        raise ValueError("a tile has a record that ends before it starts")
    lane = np.repeat(np.arange(lanes), sizes)
    records = Records(lane, start, start + length, length - idle, more + 1, id_, name, operator)
    return Tile(track, level, number, records)


def _sums(differences: Ints, first: Ints) -> Ints:
    """Invert `_differences`."""
    if not len(differences):
        return differences
    out = np.cumsum(differences)
    before = np.where(first > 0, out[first - 1], 0)
    out -= np.repeat(before, np.diff(np.concatenate([first, [len(out)]])))
    return out


@cache
def _codec() -> pa.Codec:
    return pa.Codec("zstd", 1)


def compress(data: bytes) -> bytes:
    """Return a zstd frame with the size of its content."""
    out: bytes = _codec().compress(data, asbytes=True)
    return out


def check_frame(data: bytes, size: int) -> None:
    """Raise ValueError unless the bytes are one zstd frame that says that it has `size` bytes of content. A browser may
    then inflate them: a decoder stops at that size.

    The format: https://datatracker.ietf.org/doc/html/rfc8878 section 3.1.1.
    """
    if not 0 <= size <= MOST_BYTES:
        raise ValueError("a tile is too large")
    if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 6:
        raise ValueError("a tile is no zstd frame")
    flags = data[4]
    single_segment, has_dictionary = flags >> 5 & 1, flags & 3
    width = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    place = 5 + (not single_segment)
    content_size = int.from_bytes(data[place : place + width], "little") + (256 if width == 2 else 0)
    place += width
    if has_dictionary or width == 0 or content_size != size:
        raise ValueError("a tile has another size than its row says")
    last = False
    while not last:
        head = int.from_bytes(data[place : place + 3], "little")
        if place + 3 > len(data):
            raise ValueError("a tile is cut")
        last = bool(head & 1)
        place += 3 + (1 if head >> 1 & 3 == _RLE else head >> 3)
    if place + (4 if flags >> 2 & 1 else 0) != len(data):
        raise ValueError("a tile is more or less than a zstd frame")


_RLE = 1  # a block of one byte, repeated


def inflate(data: bytes, size: int) -> bytes:
    """Return the content of a zstd frame of a known size. Raises ValueError for another size or damaged bytes."""
    check_frame(data, size)
    try:
        out: bytes = _codec().decompress(data, size, asbytes=True)
    except OSError as error:  # pyarrow's
        raise ValueError("a tile cannot be inflated") from error
    if len(out) != size:
        raise ValueError("a tile has another size than its row says")
    return out

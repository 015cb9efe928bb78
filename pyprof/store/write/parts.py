# SPDX-License-Identifier: Apache-2.0
"""A part: the tables of facts of one recording in a file, to become those of a run together with others (`combine`).

Ids, texts and times in it are the recording's own. The file is a sequence of Arrow streams, one for each piece of a
table, the index of the pieces as JSON, the length of the index in 8 bytes, and `_MAGIC`. So of each part only the piece
at hand is in memory.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa

from pyprof.core.errors import FormatError
from pyprof.core.model import Process, Trace
from pyprof.parse.merge import processes, unix_start
from pyprof.store.write import facts

_MAGIC = b"PyProf1\n"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
_DAMAGED = "{} is no part of a run, or a damaged one. Remove it, and read the recording again."


class Facts(NamedTuple):
    """Facts of a recording that its tables lack. `start`: unix time of its zero in ns, None if unknown. `threads`: how
    many it has. `on_gpu`: whether it has GPU events; None if it has neither these nor operators. `length_ns`: the
    longest sum of times in a table."""

    path: str
    format: str
    meta: dict[str, str]
    lost: dict[str, int]
    processes: list[Process]
    t0: int
    slack: int
    start: int | None
    threads: int
    on_gpu: bool | None
    length_ns: float


class Piece(NamedTuple):
    """A piece of a table: where its stream is in the file, in bytes, its number of rows, and the stream's CRC-32."""

    table: str
    offset: int
    length: int
    rows: int
    check: int


class Writer:
    """Writes a part; `end` completes it."""

    def __init__(self, file: IO[bytes]):
        self._file, self._pieces, self._offset = file, list[Piece](), 0

    def add(self, table: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
            stream.write_table(rows)
        data = sink.getvalue()
        self._file.write(data)
        self._pieces.append(Piece(table, self._offset, data.size, rows.num_rows, zlib.crc32(data)))
        self._offset += data.size

    def end(self) -> None:
        index = msgspec.json.encode(self._pieces)
        self._file.write(index + len(index).to_bytes(8, "little") + _MAGIC)


class Part:
    """A part to read, a file or its content; close it, or use `with`. `label` is its name in messages. Raises
    FormatError for another file."""

    def __init__(self, source: str | bytes, label: str):
        self._label = label
        self._file = file = io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")  # noqa: SIM115
        try:
            end = file.seek(-8 - len(_MAGIC), 2)
            tail = file.read()
            length = int.from_bytes(tail[:8], "little")
            if tail[8:] != _MAGIC:
                raise ValueError("another file")
            file.seek(end - length)
            self.pieces = msgspec.json.decode(file.read(length), type=list[Piece])
        except (OSError, OverflowError, ValueError, msgspec.MsgspecError) as error:
            file.close()
            raise FormatError(_DAMAGED.format(label)) from error

    def read(self, table: str) -> Iterator[pa.Table]:
        """Yield the pieces of a table that have rows."""
        for piece in self.pieces:
            if piece.table == table and piece.rows:
                try:
                    self._file.seek(piece.offset)
                    data = self._file.read(piece.length)
                    if zlib.crc32(data) != piece.check:
                        raise ValueError("another content")
                    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
                        yield stream.read_all()
                except (OSError, OverflowError, ValueError, pa.ArrowException) as error:
                    raise FormatError(_DAMAGED.format(self._label)) from error

    def whole(self, table: str) -> pa.Table | None:
        """Return a table at once; None if it has no rows."""
        pieces = list(self.read(table))
        return pa.concat_tables(pieces) if pieces else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write(trace: Trace, file: IO[bytes], on_gpu: bool = False) -> Facts:
    """Write the part of a recording, which is empty afterwards, and return its facts. `on_gpu`: as of `facts.tables`.
    Raises FormatError."""
    has_gpu = True if len(trace.gpu) else False if len(trace.ops) else None
    spent = [table.end - table.start for table in (trace.gpu, trace.launches, trace.ops)]
    spent.append(np.where(trace.ranges.end.mask(), trace.ranges.end.values - trace.ranges.start, 0))
    length = max(float(times.sum(dtype=float)) for times in spent)
    described = processes(trace)
    writer = Writer(file)
    lost = trace.lost
    for name, rows in facts.tables(trace, on_gpu or has_gpu is None):
        if name == "lost":
            lost = dict(zip(rows.column("reason").to_pylist(), rows.column("count").to_pylist()))
        else:
            writer.add(name, rows)
    writer.end()
    return Facts(
        trace.path, trace.format, trace.meta, lost, described, trace.t0, trace.slack,
        unix_start(trace.t0, trace.meta), len(trace.threads), has_gpu, length,
    )  # fmt: skip


def packed(tables: Iterable[tuple[str, pa.Table]]) -> bytes:
    """Return tables as the content of a part."""
    file = io.BytesIO()
    writer = Writer(file)
    for table, rows in tables:
        writer.add(table, rows)
    writer.end()
    return file.getvalue()

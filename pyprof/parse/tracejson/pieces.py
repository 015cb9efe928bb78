# SPDX-License-Identifier: Apache-2.0
"""A large trace in pieces, on all cores.

The text is cut where one event ends and the next begins, about every `PIECE` bytes, and never held as a whole. Child
processes and this one share the pieces: their numbers are in a pipe, from which any idle process reads the next.

Only sound JSON is read this way. A piece must be a list of events by itself, and the text before the first event and
after the last an object without them: then the cuts were between events of the trace, whatever its names contain.
Every other text is rejected, so that it is read as a whole, where it can be repaired.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import Pipe
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pyprof.core import inputs
from pyprof.core.errors import FormatError
from pyprof.parse import reader_process
from pyprof.parse.tracejson import text as texts
from pyprof.parse.tracejson.columns import Collector
from pyprof.parse.tracejson.events import (
    BORDER,
    FAULTS,
    LIST_BEGINS,
    Document,
    chunks,
    escape_paths,
    events_of,
)

PIECE = 1 << 22
_MIN_BYTES = 1 << 26  # bytes of text that make up for a child's start
_PACKED = 15  # approximate ratio of a trace's text to its compressed size
_PART = 1 << 20
_TASK = struct.Struct("qqq")  # number of a piece, first byte, end: read from a pipe as a whole
_OBJECTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OPENING = b'{"traceEvents":['


class _UnsoundError(Exception):
    """The text cannot be read in pieces."""


def read(path: Path, lost: dict[str, int]) -> tuple[dict[str, Any], Collector] | None:
    """Return the fields beside the events, and the events; None for a text that must be read as a whole. Raises
    FormatError if a child died."""
    collector = Collector({})
    try:
        packed = texts.is_gzip(path)
        size = path.stat().st_size * (_PACKED if packed else 1)
        if size < 2 * PIECE or (packed and not hasattr(os, "memfd_create")):
            return None
        with ExitStack() as stack:
            file = os.memfd_create("trace") if packed else os.open(path, os.O_RDONLY)
            stack.callback(os.close, file)
            team = stack.enter_context(
                _team(path, file, min(reader_process.cores() - 1, size // _MIN_BYTES), collector)
            )
            grown = _decompress(path, file) if packed else iter([path.stat().st_size])
            facts = _cut(file, grown, collector, team)
            team.finish()
    except (_UnsoundError, EOFError, zlib.error, OSError, *FAULTS):
        return None
    for _, losses in sorted(collector.losses, key=itemgetter(0)):
        for reason, number in losses.items():
            lost[reason] = lost.get(reason, 0) + number
    collector.lost = lost
    return facts, collector


def _decompress(path: Path, file: int) -> Iterator[int]:
    """Decompress into a file and yield its length so far."""
    limit, size = inputs.largest(path.stat().st_size), 0
    with gzip.open(path) as packed, open(file, "wb", buffering=0, closefd=False) as out:
        while part := packed.read(_PART):
            size += len(part)
            if size > limit:
                raise _UnsoundError
            out.write(part)
            yield size


def _cut(file: int, grown: Iterator[int], collector: Collector, team: _Team) -> dict[str, Any]:
    """Cut a growing text and pass its pieces to the team; return the fields beside the events."""
    before: dict[str, Any] | None = None
    number, first, position, window, size = 0, 0, PIECE, PIECE // 16, 0
    is_list = False
    for size in grown:
        while position + window <= size:
            border = BORDER.search(os.pread(file, window, position))
            if border is None:
                position += window
                continue
            end = position + border.start() + 1
            if before is None:
                before, is_list = _first(os.pread(file, end, 0), collector)
            else:
                team.give(number, first, end)
            number, first = number + 1, position + border.end() - 1
            position = first + PIECE
    if before is None:
        raise _UnsoundError
    remainder = os.pread(file, size - first, first)
    if is_list:
        _collect(b"[" + remainder, collector, number)
        return {}
    after, events = _facts(_OPENING + remainder)
    _collect(events, collector, number)
    return before | after


def _first(text: bytes, collector: Collector) -> tuple[dict[str, Any], bool]:
    """Collect the first piece; return the fields before it, and whether the file is a bare list of events."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    if text[:4096].lstrip()[:1] == b"[":
        _collect(text + b"]", collector, 0)
        return {}, True
    begin = LIST_BEGINS.search(text)
    if begin is None:
        raise _UnsoundError
    before, _ = _facts(text[: begin.end()] + b"]}")
    _collect(b"[" + text[begin.end() :] + b"]", collector, 0)
    return before, False


def _facts(text: bytes) -> tuple[dict[str, Any], Any]:
    """Return the fields beside the list of events, and that list, which must be the first and the last of its name."""
    parts = _OBJECTS.decode(text)
    events = parts.pop("traceEvents", None)
    if events is None:
        raise _UnsoundError
    if text.startswith(_OPENING) and _address(events) != _address(text) + len(_OPENING) - 1:
        raise _UnsoundError  # there is a second list behind it
    return {name: msgspec.json.decode(part) for name, part in parts.items()}, events


def _address(text: Any) -> int:
    return int(np.frombuffer(text, np.uint8).__array_interface__["data"][0])


def _collect(text: Any, collector: Collector, place: int) -> None:
    """Add the events of a list to the collector."""
    trace, collector.lost = Document({}, events_of(escape_paths(bytes(text)))), {}
    collector.count += len(trace.events)
    for events in chunks(trace, collector.lost):
        collector.add(events, place)
    if collector.lost:
        collector.losses.append((place, collector.lost))


class _Team:
    """This process and its children, which take pieces in turn."""

    def __init__(self, path: Path, file: int, collector: Collector):
        self._path, self._file, self._collector = path, file, collector
        self._children: list[tuple[Any, Any]] = []
        self._tasks, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self) -> None:
        """Add a child. Raises OSError."""
        receiver, sender = Pipe(duplex=False)
        with sender:
            self._children.append((reader_process.start(serve, self._file, self._tasks, sender.fileno()), receiver))

    def give(self, place: int, first: int, end: int) -> None:
        """Queue a piece; read it at once if there are no children, or all are busy."""
        try:
            if self._children:
                os.write(self._write, _TASK.pack(place, first, end))
                return
        except BlockingIOError:
            pass
        _piece(self._file, self._collector, place, first, end)

    def finish(self) -> None:
        """Read the remaining pieces, and collect the results of the children. Raises FormatError if one of them
        died."""
        os.close(self._write)
        self._write = -1
        pipes = [pipe for _, pipe in self._children]
        while not any(pipe.poll() for pipe in pipes) and _next(self._file, self._tasks, self._collector):
            pass
        for process, pipe in self._children:
            try:
                part = pipe.recv()
            except (EOFError, OSError):
                raise FormatError(reader_process.ended(self._path, process)) from None
            if part is None:
                raise _UnsoundError
            self._collector.join(part)

    def close(self) -> None:
        for process, pipe in self._children:
            process.kill()  # no effect on one that has ended
            process.wait()
            pipe.close()
        os.close(self._tasks)
        if self._write >= 0:
            os.close(self._write)


@contextmanager
def _team(path: Path, file: int, helpers: int, collector: Collector) -> Iterator[_Team]:
    with closing(_Team(path, file, collector)) as team:
        for _ in range(helpers):
            try:
                team.start()
            except OSError:  # no memory for another process
                break
        yield team


def _next(file: int, tasks: int, collector: Collector) -> bool:
    """Collect a piece. Return whether there was one left."""
    task = os.read(tasks, _TASK.size)
    if task:
        _piece(file, collector, *_TASK.unpack(task))
    return bool(task)


def _piece(file: int, collector: Collector, place: int, first: int, end: int) -> None:
    _collect(b"[" + os.pread(file, end - first, first) + b"]", collector, place)


def serve(file: int, tasks: int, result: int) -> None:
    """Collect pieces in a child process until there are no more; send None if one is unsound."""
    collector: Collector | None = Collector({})
    with reader_process.serving(result) as pipe:
        try:
            while collector is not None and _next(file, tasks, collector):
                pass
        except (_UnsoundError, OSError, *FAULTS):
            collector = None
        pipe.send(collector)

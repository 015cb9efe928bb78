# SPDX-License-Identifier: Apache-2.0
"""Parallel reading of several recordings: a child process per core, one file at a time each.

Children get requests over a pipe, send answers back, and end when the pipe does. A child that dies costs only the file
that it was reading.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pyprof.core.errors import FormatError
from pyprof.parse import reader_process

_MIN_BYTES = 1 << 27  # bytes to read that make up for a child's start of half a second


class Request(Protocol):
    """Something to do with a file."""

    @property
    def path(self) -> Path: ...


_Request = TypeVar("_Request", bound=Request)
_Answer = TypeVar("_Answer")


def read(
    requests: Sequence[_Request],
    answer: Callable[[_Request], _Answer | FormatError],
    serve: Callable[[int], None],
    progress: Callable[[_Answer | FormatError], None] = lambda result: None,
    processes: int | None = None,
) -> list[_Answer | FormatError]:
    """Return the answer to each request, or the error that says why its file cannot be read, in order. `answer` works
    in this process; `serve` runs in a child with the descriptor of its pipe. `progress` is called with each result.
    `processes`: the number of children, by default one for each core if there is enough to read. On an interrupt, and
    where `progress` raises, the children are ended first.
    """
    paths = [request.path for request in requests]
    if processes is None:
        processes = reader_process.cores() if sum(map(_size, paths)) >= _MIN_BYTES else 1
    count = min(len(paths), processes)
    out: dict[int, Any] = {}
    if count < 2:
        for number, request in enumerate(requests):
            out[number] = answer(request)
            progress(out[number])
        return [out[number] for number in range(len(paths))]
    # Largest first, so that no core waits long for another at the end.
    order = sorted(range(len(paths)), key=lambda number: -_size(paths[number]))
    waiting, lock, done = iter(order), threading.Lock(), queue.SimpleQueue[int]()
    started: set[subprocess.Popen[bytes]] = set()
    stopped = threading.Event()

    def work() -> None:
        child: _Child | None = None
        while True:
            with lock:
                number = None if stopped.is_set() else next(waiting, None)
                if number is None:
                    break
                if child is None:
                    with suppress(OSError):  # no memory for another process: read in this one
                        child = _Child(serve)
                        started.add(child.process)
            out[number] = result = answer(requests[number]) if child is None else child.ask(requests[number])
            done.put(number)
            if child is not None and isinstance(result, _Died):
                child.close()
                child = None
        if child is not None:
            child.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for _ in paths:
            progress(out[done.get()])
    finally:
        stopped.set()
        with lock:
            for process in started:
                process.kill()  # no effect on one that has ended
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    return [out[number] for number in range(len(paths))]


class _Died(FormatError):
    """The child ended while it read."""


class _Child:
    def __init__(self, serve: Callable[[int], None]) -> None:
        self.pipe, other = Pipe()
        with other:
            self.process = reader_process.start(serve, other.fileno())

    def ask(self, request: Request) -> Any:
        try:
            self.pipe.send(request)
            return self.pipe.recv()
        except (EOFError, OSError):
            return _Died(reader_process.ended(request.path, self.process))

    def close(self) -> None:
        self.pipe.close()
        self.process.wait()


def _size(path: Path) -> int:
    """Estimate the bytes to read. Traces are compressed to about a fifteenth; one that is elsewhere may be large."""
    with suppress(OSError):
        return path.stat().st_size * (15 if path.suffix == ".gz" else 1)
    return _MIN_BYTES

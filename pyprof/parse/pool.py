# SPDX-License-Identifier: Apache-2.0
"""Parallel reading of several recordings: a child process per core, one file at a time each.

Children get paths over a pipe, send traces back, and end when the pipe does. A child that dies costs only the file
that it was reading.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from pyprof.errors import FormatError
from pyprof.model import Trace
from pyprof.parse import reader_process

Result = Trace | FormatError
_MIN_BYTES = 1 << 27  # bytes to read that make up for a child's start of half a second


def read(paths: Sequence[Path], load: Callable[[Path], Result], serve: Callable[[int], None]) -> list[Result]:
    """Return each recording, or the error that says why it cannot be read, in order. `load` reads a file in this
    process; `serve` runs in a child with the descriptor of its pipe. On an interrupt the children are ended first.
    """
    count = min(len(paths), reader_process.cores()) if sum(map(_size, paths)) >= _MIN_BYTES else 1
    if count < 2:
        return [load(path) for path in paths]
    out: dict[int, Result] = {}
    # Largest first, so that no core waits long for another at the end.
    order = sorted(range(len(paths)), key=lambda number: -_size(paths[number]))
    waiting, lock = iter(order), threading.Lock()
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
            out[number] = result = load(paths[number]) if child is None else child.ask(paths[number])
            if child is not None and isinstance(result, _Died):
                child.close()
                child = None
        if child is not None:
            child.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
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

    def ask(self, path: Path) -> Result:
        try:
            self.pipe.send(path)
            result: Result = self.pipe.recv()
            return result
        except (EOFError, OSError):
            return _Died(reader_process.ended(path, self.process))

    def close(self) -> None:
        self.pipe.close()
        self.process.wait()


def _size(path: Path) -> int:
    """Estimate the bytes to read. Traces are compressed to about a fifteenth."""
    with suppress(OSError):
        return path.stat().st_size * (15 if path.suffix == ".gz" else 1)
    return 0

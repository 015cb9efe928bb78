# SPDX-License-Identifier: Apache-2.0
"""Reading several recordings at once: a child process per core, one file at a time each.

They get paths over a pipe, send traces back, and end when the pipe does. A child that dies costs the file that it was
reading.
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
_WORTH = 1 << 27  # bytes to read, from which on children pay for their start of half a second each


def read(paths: Sequence[Path], one: Callable[[Path], Result], serve: Callable[[int], None]) -> list[Result]:
    """Each recording, or why it cannot be read, in their order. `one` reads one here; `serve` is what a child does with
    the descriptor of its pipe. Interrupted, it ends its children first."""
    count = min(len(paths), reader_process.cores()) if sum(map(_size, paths)) >= _WORTH else 1
    if count < 2:
        return [one(path) for path in paths]
    out: dict[int, Result] = {}
    # The largest first, so that no core waits long for the other at the end.
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
                    with suppress(OSError):  # no memory for a process more: here, then
                        child = _Child(serve)
                        started.add(child.process)
            out[number] = found = one(paths[number]) if child is None else child.ask(paths[number])
            if child is not None and isinstance(found, _Died):
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
                process.kill()  # nothing to one that has ended
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
            found: Result = self.pipe.recv()
            return found
        except (EOFError, OSError):
            return _Died(reader_process.ended(path, self.process))

    def close(self) -> None:
        self.pipe.close()
        self.process.wait()


def _size(path: Path) -> int:
    """Bytes to read, about: traces are packed to a fifteenth."""
    with suppress(OSError):
        return path.stat().st_size * (15 if path.suffix == ".gz" else 1)
    return 0

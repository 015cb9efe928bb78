# SPDX-License-Identifier: Apache-2.0
"""Queries in a process of their own, which ends with them.

SQLite looks at the clock between two instructions of a query, and one call of a function is one instruction, however
long it takes. Only a process that can be killed ends a query on time, and on Ctrl-C.
"""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.core.errors import PyProfError
from pyprof.parse.reader_process import ended, serving, start
from pyprof.query.engine import ALL, Answer, Bounds, Queries, gathered, time_is_up

_MOST_HEAP = 1 << 29  # bytes of SQLite


class Query(NamedTuple):
    """A SELECT on a database, which messages name by its label."""

    path: Path
    label: str
    text: str
    bounds: Bounds = ALL


class QueryProcess:
    """A process for one query at a time. It starts with the first one, and anew after one that had to be killed."""

    def __init__(self, seconds: float, advice: str = "Select fewer rows."):
        """`seconds`: that a query may take, `advice`: what to do where that is too little."""
        self._seconds, self._advice = seconds, advice
        self._lock = threading.Lock()
        self._child: tuple[Connection, subprocess.Popen[bytes]] | None = None

    def answer(self, query: Query) -> Answer:
        """Return the rows of a query. Raises UsageError for what is no SELECT or wrong, PyProfError when time is up."""
        with self._lock:
            try:
                return gathered(self._parts(query))
            except PyProfError:
                raise
            except BaseException:  # Ctrl-C
                self.close()
                raise

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child = None
            self._end()

    def _parts(self, query: Query) -> Iterator[Any]:
        if self._child is None:
            pipe, other = Pipe()
            with other:
                self._child = pipe, start(serve, other.fileno())
            self._end = weakref.finalize(self, _end, *self._child)
        pipe, process = self._child
        try:
            pipe.send((query, self._seconds))
            while True:
                part = pipe.recv()
                if isinstance(part, PyProfError):
                    raise part
                yield part
                if isinstance(part, bool):
                    return
        except (EOFError, ConnectionError):
            code = process.wait()
            self.close()
            if code == -signal.SIGALRM:
                raise time_is_up(self._seconds, self._advice) from None
            raise PyProfError(ended(query.label, process)) from None


def _end(pipe: Connection, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    pipe.close()


def serve(descriptor: int) -> None:
    """Answer queries in a child process until the pipe ends. An alarm that nobody handles ends one whose time is up,
    even if nobody waits for it any more."""
    sqlite3.connect(":memory:").execute(f"pragma hard_heap_limit = {_MOST_HEAP}")
    with serving(descriptor) as pipe, suppress(EOFError, OSError):
        while True:
            for part in _results(*pipe.recv()):
                if isinstance(part, bool | PyProfError):  # the last one
                    signal.setitimer(signal.ITIMER_REAL, 0)
                pipe.send(part)


def _results(query: Query, seconds: float) -> Iterator[Any]:
    try:
        with Queries(query.path, query.label, math.inf) as queries:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield from queries.stream(query.text, query.bounds)
    except PyProfError as error:
        yield error.with_traceback(None)

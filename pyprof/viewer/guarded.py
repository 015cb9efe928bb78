# SPDX-License-Identifier: Apache-2.0
"""Connections to the database that is served: they read, do nothing else, and end when time is up.

The file is hostile: whoever sent it may have put code into it. One with views, triggers or virtual tables, which we
never write, is refused. An authorizer lets statements read tables and call functions, and nothing that writes, attaches
files or loads code. A progress handler ends a statement when its request has taken too long or who asked has gone.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyprof.db.store import Store
from pyprof.errors import FormatError
from pyprof.model import Column
from pyprof.viewer.problems import Trouble

SECONDS = 5.0  # for the statements of a request
_STEPS = 20_000  # instructions of SQLite between two looks at the clock, well under a millisecond
_KEPT = 4
_ALLOWED = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)
}  # fmt: skip
_REFUSED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


class Deadline:
    """When a request has to be done; `cancel` is: at once."""

    def __init__(self, seconds: float = SECONDS):
        self._end, self._cancelled = time.monotonic() + seconds, threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def over(self) -> bool:
        return self._cancelled.is_set() or time.monotonic() > self._end

    def check(self) -> None:
        """Raises Trouble when time is up."""
        if self.over:
            raise Trouble(
                "slow",
                "This took too long and was ended. Narrow it down: an iteration, an operator, a worker.",
            )


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


_CODE = (
    "select name from sqlite_master where type in ('view', 'trigger') or sql like 'create virtual%' limit 1"
)


class Guarded(Store):
    """A database whose statements can only read; each request has a deadline. Raises FormatError."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.deadline: Deadline | None = None
        try:
            found = self.rows(_CODE)
        except BaseException:
            self.close()
            raise
        if found:
            self.close()
            raise FormatError(
                f"{path}: holds code ({found[0][0]}), which no profile does. Make it anew from the recording."
            )
        for pragma in (
            "query_only = on",
            "trusted_schema = off",
            "cell_size_check = on",
            "cache_size = -8000",
        ):
            self.connection.execute(f"pragma {pragma}")
        self.connection.set_authorizer(_authorize)
        self.connection.set_progress_handler(self._stop, _STEPS)

    def _stop(self) -> int:
        return int(self.deadline is not None and self.deadline.over)

    def named(
        self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._check()
        try:
            return super().named(query, parameters)
        except FormatError:
            self._check()  # a statement that was ended is no damage
            raise

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> dict[str, Column]:
        self._check()
        return super().columns(query, parameters)

    def _check(self) -> None:
        if self.deadline is not None:
            self.deadline.check()


class Pool:
    """Connections to one database, for requests that run at once."""

    def __init__(self, path: Path):
        self.path = path
        self._idle: list[Guarded] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def store(self, deadline: Deadline) -> Iterator[Guarded]:
        """A connection for a request. Raises FormatError."""
        with self._lock:
            store = self._idle.pop() if self._idle else None
        store = store or Guarded(self.path)
        store.deadline = deadline
        try:
            with store.sound():
                yield store
        finally:
            store.deadline = None
            with self._lock:
                keep = not self._closed and len(self._idle) < _KEPT
                if keep:
                    self._idle.append(store)
            if not keep:
                store.close()

    def close(self) -> None:
        """Close what is idle; what is in use when it is given back."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for store in idle:
            store.close()

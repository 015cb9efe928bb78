# SPDX-License-Identifier: Apache-2.0
"""Connections to the served database: statements end at the request's deadline, or when the client disconnects."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyprof.core.errors import PyProfError
from pyprof.core.model import Column
from pyprof.store.files import Store
from pyprof.views.problems import Trouble

SECONDS = 5.0  # limit for the statements of a request
_MAX_IDLE = 4


def slow() -> Trouble:
    """Return the error to raise when time is up."""
    return Trouble(
        "slow", "This took too long and was stopped. Narrow it down to an iteration, an operator or a worker."
    )


class Deadline:
    """Time at which a request must end; `cancel` ends it at once."""

    def __init__(self, seconds: float = SECONDS):
        self._end, self._cancelled = time.monotonic() + seconds, threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def over(self) -> bool:
        return self._cancelled.is_set() or time.monotonic() > self._end

    def check(self) -> None:
        """Raise Trouble when time is up."""
        if self.over:
            raise slow()


class Guarded(Store):
    """Database whose statements end with the current request; `summary` as of Store. Raises FormatError, and Trouble
    when time is up."""

    def __init__(self, path: Path, summary: bool = False):
        self.deadline: Deadline | None = Deadline(Store.timeout)
        super().__init__(path, summary=summary)
        self.deadline = None

    def _over(self) -> bool:
        return self.deadline is not None and self.deadline.over

    def _ended(self) -> PyProfError:
        return slow()

    def named(
        self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._check()
        return super().named(query, parameters)

    def each(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        for row in super().each(query, parameters):  # what is done with a row may take long
            self._check()
            yield row

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> dict[str, Column]:
        self._check()
        return super().columns(query, parameters)

    def _check(self) -> None:
        if self.deadline is not None:
            self.deadline.check()


class Pool:
    """Connections to one database, for concurrent requests."""

    def __init__(self, path: Path):
        self.path = path
        self._idle: list[Guarded] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def store(self, deadline: Deadline) -> Iterator[Guarded]:
        """Provide a connection for a request. Raises FormatError."""
        with self._lock:
            store = self._idle.pop() if self._idle else None
        store = store or Guarded(self.path, summary=True)  # what may be opened was checked before
        store.deadline = deadline
        try:
            with store.translate_errors():
                yield store
        finally:
            store.deadline = None
            with self._lock:
                reusable = not self._closed and len(self._idle) < _MAX_IDLE
                if reusable:
                    self._idle.append(store)
            if not reusable:
                store.close()

    def close(self) -> None:
        """Close idle connections; others are closed when they are returned."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for store in idle:
            store.close()

# SPDX-License-Identifier: Apache-2.0
"""Context of a task in a child process: its database, and the callback for progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Progress = Callable[[float, str], None]  # completed share, current step


class Session:
    """Database of tasks, and objects shared by several tasks."""

    def __init__(self, path: str):
        self.path = Path(path)
        self._sources: dict[tuple[int, int | None], Any] = {}

    @property
    def store(self) -> Any:
        """Open database. Raises FormatError."""
        if "_store" not in self.__dict__:
            from pyprof.server.guarded_store import Guarded

            self._store = Guarded(self.path, summary=True)  # what may be opened was checked before
        return self._store

    def source(self, aggregation: int, worker: int | None) -> Any:
        """Return an aggregation of the database; the last one is cached with what its reports share."""
        from pyprof.facts.steps.aggregation import aggregations
        from pyprof.facts.steps.source import Source

        key = aggregation, worker
        if key not in self._sources:
            match = next(candidate for candidate in aggregations(self.store) if candidate.id == aggregation)
            self._sources = {key: Source(self.store, match, worker)}
        return self._sources[key]

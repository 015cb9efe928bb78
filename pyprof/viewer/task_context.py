# SPDX-License-Identifier: Apache-2.0
"""What a task in a child process works with: the database that it is about, and whom it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Told = Callable[[float, str], None]  # share that is done, what is being done


class Session:
    """The database that tasks are about, and what several of them need."""

    def __init__(self, path: str):
        self.path = Path(path)
        self._sources: dict[tuple[int, int | None], Any] = {}

    @property
    def store(self) -> Any:
        """The database. Raises FormatError."""
        if "_store" not in self.__dict__:
            from pyprof.viewer.guarded_store import Guarded

            self._store = Guarded(self.path)
        return self._store

    def source(self, aggregation: int, worker: int | None) -> Any:
        """An aggregation of the database; the last one is kept with what its reports share."""
        from pyprof.analysis.aggregation import aggregations
        from pyprof.analysis.source import Source

        key = aggregation, worker
        if key not in self._sources:
            found = next(one for one in aggregations(self.store) if one.id == aggregation)
            self._sources = {key: Source(self.store, found, worker)}
        return self._sources[key]

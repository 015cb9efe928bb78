# SPDX-License-Identifier: Apache-2.0
"""What reports and rules read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pyprof.db.activity import Activity
from pyprof.db.aggregate import Aggregation
from pyprof.db.store import Store
from pyprof.db.window import window
from pyprof.metrics import Window
from pyprof.parse.api_names import API_KINDS as API_KINDS  # what the numbers in api.kind mean

_Value = TypeVar("_Value")
_KEPT = 2_000_000  # events of a recording whose columns several reports share; of more they are read again each time


@dataclass(frozen=True)
class Source:
    """An aggregation of a database, of all workers or of one."""

    store: Store
    aggregation: Aggregation
    worker: int | None = None

    @cached_property
    def window(self) -> Window:
        return window(self.store, self.aggregation, self.worker)

    def activity(self, worker: int) -> Activity:
        """What a worker did."""
        return self.once(("activity", worker), lambda: Activity(self.store, worker))

    def once(self, key: Any, make: Callable[[], _Value]) -> _Value:
        """What several reports need, worked out once while the recording is small enough to keep it."""
        if key in self._known:
            value: _Value = self._known[key]
            return value
        value = make()
        if self._small:
            self._known[key] = value
        return value

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    @cached_property
    def _small(self) -> bool:
        return int(self.store.rows("select coalesce(sum(calls), 0) from event_block")[0][0]) <= _KEPT

    @cached_property
    def gpu(self) -> bool:
        """Whether something ran on a GPU; if not, operator events stand for GPU events."""
        return bool(self.store.rows("select 1 from event_block where kind < 3 limit 1"))

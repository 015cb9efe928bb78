# SPDX-License-Identifier: Apache-2.0
"""The input of reports and rules: a database with a selected aggregation and worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyprof.core.api_names import API_KINDS as API_KINDS  # what the numbers in api.kind mean
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.aggregation import Aggregation
from pyprof.facts.steps.window import window
from pyprof.metrics import Window
from pyprof.store import reads
from pyprof.store.files import Store


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
        """Return the activity of a worker."""
        return self.store.cached(("activity", worker), lambda: Activity(self.store, worker))

    @cached_property
    def gpu(self) -> bool:
        """True if anything ran on a GPU; if not, operator events take the place of GPU events."""
        return reads.has_gpu(self.store)

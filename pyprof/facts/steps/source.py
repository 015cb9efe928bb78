# SPDX-License-Identifier: Apache-2.0
"""The input of reports and rules: a database with a selected aggregation and worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.core.api_names import API_KINDS as API_KINDS  # what the numbers in api.kind mean
from pyprof.core.model import Ints
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


def used(source: Source) -> Ints:
    """Return the numbers of the iterations of an aggregation that means are taken of, ascending: the steady ones, or
    without any all whole ones, or all."""
    key = "used", source.aggregation.id, source.worker
    return source.store.cached(key, lambda: _used(source), small=True)


def _used(source: Source) -> Ints:
    window = source.aggregation
    rows = source.store.rows(
        """select number, max(partial) = 0, min(steady) = 1 from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by number order by number""",
        (window.iteration_set, window.first, window.last, source.worker, source.worker),
    )
    number, whole, is_steady = np.array(rows, np.int64).reshape(-1, 3).T
    out: Ints = number
    for selected in (whole == 1, is_steady == 1):
        if selected.any():
            out = number[selected]
    return out

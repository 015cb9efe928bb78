# SPDX-License-Identifier: Apache-2.0
"""Work of a data loader's workers: what the loop waited for, and how many workers would keep up with it."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from pyprof.facts.device.partition import Union
from pyprof.store.files import Store

# Stages of a batch, in their order, each with the columns of its start and end.
STAGES = {
    "samples": ("start_ns", "collate_start_ns"),
    "collate": ("collate_start_ns", "collate_end_ns"),
    "pin": ("pin_start_ns", "pin_end_ns"),
    "queue": ("collate_end_ns", "wait_end_ns"),
}
_TABLE = "loader_batch"


class Work(NamedTuple):
    """Sums over the batches of a loader, in ns: time of its workers to get samples and to collate, CPU time of their
    threads that send, all CPU time of workers, waits of the loop. `slowest_ns`: of the sample that took longest,
    `slowest` its index, as far as they are known."""

    loader: int
    batches: int
    samples: int
    samples_ns: int
    collate_ns: int
    sending_ns: int
    pin_ns: int
    cpu_ns: int
    wait_ns: int
    slowest_ns: int | None
    slowest: int | None

    @property
    def total_ns(self) -> int:
        """Time of workers."""
        return self.samples_ns + self.collate_ns + self.sending_ns


class Enough(NamedTuple):
    """The number of workers that would do, and the time of the loop with them in ns; `by_cpu`: processors allow no
    less."""

    workers: int
    time_ns: int
    by_cpu: bool


def has_batches(store: Store) -> bool:
    """Return whether the recording has the work of loader workers. Files from before it have no such table."""
    return any(name.startswith("loader_workers.") for name in store.meta) and _TABLE in store.tables()


def stages(store: Store, worker: int) -> dict[str, Union] | None:
    """Return the time in which the loop of a worker waited for a batch, by the stage that the batch was in; None if
    none is known."""
    if not has_batches(store):
        return None
    names = dict.fromkeys(name for columns in STAGES.values() for name in columns)
    table = store.columns(
        f"""select wait_start_ns, {", ".join(names)} from {_TABLE}
            where worker = {worker} and wait_start_ns is not null order by wait_start_ns"""
    )
    low, high = table["wait_start_ns"].values, table["wait_end_ns"].values
    if not len(low):
        return None
    out = {}
    for stage, columns in STAGES.items():
        first, last = (table[name] for name in columns)
        start, end = np.maximum(first.values, low), np.minimum(last.values, high)
        inside = first.mask() & last.mask() & (end > start)
        out[stage] = Union(start[inside], end[inside])
    return out


def work(store: Store, windows: Iterable[tuple[int, int, int]]) -> list[Work]:
    """Return the work for the batches that the loop got in windows (worker, start and end in ns), or that were sent in
    them if it is not known when it did; one per loader, the one that was waited for longest first."""
    sums: dict[int, list[Work]] = {}
    for worker, start, end in windows:
        rows = store.rows(
            f"""select loader, count(*), sum(samples), sum(collate_start_ns - start_ns),
                       sum(collate_end_ns - collate_start_ns), sum(send_cpu_ns),
                       coalesce(sum(pin_end_ns - pin_start_ns), 0), sum(cpu_ns + send_cpu_ns),
                       coalesce(sum(wait_end_ns - wait_start_ns), 0), max(slowest_ns), slowest_sample
                from {_TABLE} where worker = ? and coalesce(wait_end_ns, send_end_ns) between ? and ?
                group by loader""",
            (worker, start, end),
        )
        for row in rows:
            sums.setdefault(row[0], []).append(Work(*row))
    return sorted(map(_added, sums.values()), key=lambda one: -one.wait_ns)


def _added(parts: list[Work]) -> Work:
    """Add up the work of several processes for loaders of one number."""
    names = Work._fields[1 : Work._fields.index("slowest_ns")]
    totals: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in names}
    return max(parts, key=lambda one: one.slowest_ns or -1)._replace(**totals)


def enough(work_ns: int, cpu_ns: int, own_ns: int, processors: float, threads: int = 1) -> Enough:
    """Return how many workers would do for a loop that takes `own_ns` without its waits, on `threads` processors, at
    least; `cpu_ns`: of the work, which shares all `processors` with the loop.

    >>> enough(work_ns=900, cpu_ns=90, own_ns=200, processors=2)
    Enough(workers=5, time_ns=200, by_cpu=False)
    >>> enough(work_ns=900, cpu_ns=800, own_ns=200, processors=2)
    Enough(workers=2, time_ns=500, by_cpu=True)
    """
    least = ceil((cpu_ns + own_ns * min(threads, processors)) / max(processors, 1))
    time = max(own_ns, least, 1)
    return Enough(max(ceil(work_ns / time), 1), time, least > own_ns)

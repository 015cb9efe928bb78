# SPDX-License-Identifier: Apache-2.0
"""Build a profile database from a recording: the facts and a first aggregation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from pyprof.analysis.aggregation import aggregate
from pyprof.model import Trace
from pyprof.store import files
from pyprof.store.write import facts


def build(
    trace: Trace,
    path: str,
    first: int | None = None,
    last: int | None = None,
    key: str | None = None,
    progress: Callable[[str, float], None] = lambda what, share: None,
    complete: Callable[[str], None] = lambda name: None,
) -> None:
    """Write the database of a recording atomically.

    The trace is empty afterwards. `first`, `last`, `key`: see aggregate. `progress` is called with a description of
    the current step and the share of the work that is done; `complete` at the end, with the name of the file before
    it has its own. Raises PyProfError.
    """
    meta = trace.meta | {
        "source": trace.path,
        "format": trace.format,
        "t0": str(trace.t0),
        "slack": str(trace.slack),
    }
    with files.written(path) as name:
        files.create(name, _with_progress(trace, progress), meta)
        with files.Store(name, own=True, label=trace.path) as database:
            aggregate(
                database,
                first,
                last,
                key,
                lambda share: progress("aggregating", _WRITTEN + share * (1 - _WRITTEN)),
            )
        complete(name)


_WRITTEN = 0.8  # share of the time that the facts take, about


def _with_progress(trace: Trace, progress: Callable[[str, float], None]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of facts, and report progress for each."""
    total, done = len(trace.ranges) + len(trace.ops) + len(trace.launches) + len(trace.gpu), 0
    for name, table in facts.tables(trace):
        progress(f"writing {name}", _WRITTEN * min(done / max(total, 1), 1))
        done += table.num_rows if name in ("range", "api", "event") else 0
        yield name, table

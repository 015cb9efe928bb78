# SPDX-License-Identifier: Apache-2.0
"""From a recording to a profile database: facts, and a first aggregation."""

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
    told: Callable[[str, float], None] = lambda what, share: None,
) -> None:
    """Write the database of a recording: whole or not at all. The trace is empty afterwards. `first`, `last`, `key`:
    see aggregate. `told` is called with what is being done and the share that is done. Raises PyProfError."""
    meta = trace.meta | {
        "source": trace.path,
        "format": trace.format,
        "t0": str(trace.t0),
        "slack": str(trace.slack),
    }
    with files.written(path) as name:
        files.create(name, _followed(trace, told), meta)
        with files.Store(name, own=True, shown=trace.path) as database:
            aggregate(
                database,
                first,
                last,
                key,
                lambda share: told("aggregating", _WRITTEN + share * (1 - _WRITTEN)),
            )


_WRITTEN = 0.8  # share of the time that the facts take, about


def _followed(trace: Trace, told: Callable[[str, float], None]) -> Iterator[tuple[str, pa.Table]]:
    total, done = len(trace.ranges) + len(trace.ops) + len(trace.launches) + len(trace.gpu), 0
    for name, table in facts.tables(trace):
        told(f"writing {name}", _WRITTEN * min(done / max(total, 1), 1))
        done += table.num_rows if name in ("range", "api", "event") else 0
        yield name, table

# SPDX-License-Identifier: Apache-2.0
"""Build a profile database from a recording: the facts and a first aggregation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pyprof.core.model import Trace
from pyprof.facts.host import gaps
from pyprof.facts.ranks import rank_work
from pyprof.facts.steps import iteration_cuts
from pyprof.facts.steps.aggregation import aggregate
from pyprof.facts.steps.iteration_cuts import Iterations
from pyprof.store import files
from pyprof.store.write import dimensions, facts
from pyprof.store.write.run import Run


class Recorded(NamedTuple):
    """The content of a database: the name of its source, facts of the run, the tables of facts; `rows`: the number of
    rows of the large tables, about."""

    path: str
    meta: dict[str, str]
    tables: Iterator[tuple[str, pa.Table]]
    rows: int


def of_trace(trace: Trace) -> Recorded:
    """Return a recording for `build`, which empties it."""
    own = {"source": trace.path, "format": trace.format, "t0": str(trace.t0), "slack": str(trace.slack)}
    total = len(trace.ranges) + len(trace.ops) + len(trace.launches) + len(trace.gpu)
    return Recorded(trace.path, trace.meta | own, facts.tables(trace), total)


def of_run(run: Run) -> Recorded:
    """Return a run of several recordings for `build`."""
    meta, tables = run.database()
    return Recorded(run.path, meta, tables, run.rows(_LARGE))


def build(
    recorded: Recorded,
    path: str,
    first: int | None = None,
    last: int | None = None,
    key: str | None = None,
    progress: Callable[[str, float], None] = lambda what, share: None,
    complete: Callable[[str], None] = lambda name: None,
    automatic: Callable[[files.Store], Iterations] = iteration_cuts.automatic,
) -> None:
    """Write the database of a recording atomically.

    `first`, `last`, `key`, `automatic`: see aggregate. `progress` is called with a description of the current step and
    the share of the work that is done; `complete` at the end, with the name of the file before it has its own. Raises
    PyProfError.
    """
    with files.written(path) as name:
        files.create(name, _with_progress(recorded, progress), recorded.meta)
        with files.Store(name, own=True, label=recorded.path) as database:
            gaps.add(database, name)
            rank_work.add(database, name)
            aggregate(
                database,
                first,
                last,
                key,
                lambda share: progress("aggregating", _WRITTEN + share * (1 - _WRITTEN)),
                automatic,
            )
        complete(name)


_WRITTEN = 0.8  # share of the time that the facts take, about
_LARGE = ("range", "api", "event")


def _with_progress(recorded: Recorded, progress: Callable[[str, float], None]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of facts as the database has them, and report progress for each."""
    done = 0
    for name, table in recorded.tables:
        progress(f"writing {name}", _WRITTEN * min(done / max(recorded.rows, 1), 1))
        done += table.num_rows if name in _LARGE else 0
        yield name, table.drop_columns(list(dimensions.NUMBERING)) if name == "operator" else table

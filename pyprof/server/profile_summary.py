# SPDX-License-Identifier: Apache-2.0
"""Summary of the served profile."""

from __future__ import annotations

from typing import Any

import pyprof
from pyprof.facts.steps.aggregation import Aggregation, aggregations
from pyprof.server import demo
from pyprof.server.guarded_store import Guarded
from pyprof.server.library import Opened
from pyprof.store import reads
from pyprof.store.files import MAJOR, MINOR
from pyprof.views import models

_ASIDE = ("schema_major", "schema_minor", "created_schema", "writer_version", "source", "format")


def profile(store: Guarded, opened: Opened, runs: list[models.Run], source_root: bool) -> models.Profile:
    """Return workers, devices, aggregations, facts, and counts of everything."""
    meta = store.meta
    counts = _counts(store)
    return models.Profile(
        name=opened.name,
        path=str(opened.input),
        source=meta.get("source"),
        format=meta.get("format"),
        gpu=reads.has_gpu(store),
        workers=_models(
            store,
            models.Worker,
            """select id, name, rank, host, label, pid, span, start_ns as start, end_ns as "end"
               from worker order by id""",
        ),
        devices=_models(
            store,
            models.Device,
            """select worker, number, name, compute_capability, sm_count, memory_bytes, clock_hz,
                      bandwidth_bytes_per_s as bandwidth, events from device order by worker, number""",
        ),
        aggregations=_aggregations(store),
        facts={key: value or "" for key, value in meta.items() if key not in _ASIDE},
        lost=_models(store, models.Lost, "select reason, count from lost order by reason"),
        counts=models.Counts(**counts),
        run=opened.run,
        runs=runs,
        runs_reason=None,
        schema_version=meta.get("created_schema", f"{MAJOR}.{MINOR}"),
        reads_schema=f"{MAJOR}.{MINOR}",
        written_by=meta.get("writer_version"),
        program=pyprof.__version__,
        version=opened.version,
        can_aggregate=not store.is_summary,
        fleet=store.is_summary,
        notice=demo.NOTICE if opened.input.resolve() == demo.RECORDING else None,
        source_root=source_root,
    )


def _models(store: Guarded, model: type[Any], query: str) -> list[Any]:
    names, rows = store.named(query)
    return [model(**dict(zip(names, row))) for row in rows]


def _aggregations(store: Guarded) -> list[models.Aggregation]:
    totals = dict(store.rows("select iteration_set, count(distinct number) from iteration group by iteration_set"))
    # Workers mark the same steps: the first one's numbers stand for all.
    marks = [
        number
        for (number,) in store.rows(
            "select number from step where worker = (select min(worker) from step) order by start_ns"
        )
    ]

    def steps(one: Aggregation) -> tuple[int, int] | None:
        known = one.method == "marks" and 0 <= one.first <= one.last < len(marks)
        return (marks[one.first], marks[one.last]) if known else None

    return [
        models.Aggregation(
            **aggregation._asdict(), total=totals.get(aggregation.iteration_set, 0), steps=steps(aggregation)
        )
        for aggregation in aggregations(store)
    ]


def _counts(store: Guarded) -> dict[str, int]:
    queries = {
        "operators": "select count(*) from operator where unassociated = 0",
        "iterations": "select count(distinct number) from iteration where iteration_set = 1",
        "devices_used": "select count(distinct worker << 20 | number) from device where events > 0",
        "memory_events": "select count(*) from (select 1 from memory limit 1000000)",
        "collectives": "select count(*) from (select 1 from collective limit 1000000)",
        "stacks": "select count(*) from stack where frames <> ''",
        "modules": "select count(distinct module) from operator where module is not null",
    }
    return {name: int(store.rows(query)[0][0]) for name, query in queries.items()}

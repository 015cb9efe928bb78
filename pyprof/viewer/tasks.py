# SPDX-License-Identifier: Apache-2.0
"""What a child process does: one function per task, decorated by `task`; its arguments are JSON, its result is JSON, an
Arrow table behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.registry import Registry
from pyprof.reports import find
from pyprof.viewer.column_table import Frame, arrow, report_table

if TYPE_CHECKING:
    from pyprof.viewer.task_context import Session, Told

TASKS: Registry[Callable[..., Any]] = Registry("task")


@TASKS.register("report")
def report(
    session: Session, told: Told, name: str, options: dict[str, str], aggregation: int, worker: int | None
) -> tuple[dict[str, Any], pa.Table]:
    """The first rows of a report, and whether that is all of it."""
    return report_table(find(name, **options), session.source(aggregation, worker))


@TASKS.register("tree")
def tree(
    session: Session, told: Told, name: str, aggregation: int, worker: int | None
) -> tuple[dict[str, Any], pa.Table]:
    """A report that is a tree, as nodes."""
    from pyprof.viewer.tree_reports import MADE

    return MADE[name](session.source(aggregation, worker))


@TASKS.register("file")
def file(
    session: Session,
    told: Told,
    name: str,
    options: dict[str, str],
    aggregation: int,
    worker: int | None,
    target: str,
    format: str,
    title: str,
    search: str,
    filters: list[str],
) -> dict[str, Any]:
    """A report of any length as a file, with the rows that pass the filters."""
    from pyprof.viewer.exports import written

    made = find(name, **options)

    def parts() -> Iterator[pd.DataFrame]:
        rows = 0
        for part in made.chunks(session.source(aggregation, worker)):
            kept = Frame(arrow(part, made.columns), made.columns).select(search, filters)
            yield part.iloc[kept]
            rows += len(kept)
            told(0.5, f"{rows:,} rows")

    written(target, format, made, title, parts())
    return {}


@TASKS.register("rows")
def rows(
    session: Session,
    told: Told,
    given: pa.Table,
    report: dict[str, Any],
    target: str,
    format: str,
    title: str,
) -> dict[str, Any]:
    """The rows of a table, which the server has, as a file."""
    from pyprof.viewer.exports import of_outline, written

    made = of_outline(report)
    frame = Frame(given, made.columns)
    written(target, format, made, title, [frame.pandas(frame.select())])
    return {}


@TASKS.register("events")
def events(
    session: Session,
    told: Told,
    report: dict[str, Any],
    aggregation: int,
    worker: int | None,
    iteration: int | None,
    operator: int | None,
    target: str,
    format: str,
    title: str,
    search: str,
    filters: list[str],
) -> dict[str, Any]:
    """GPU events, of any number, as a file, in the order of launches."""
    from pyprof.viewer import events
    from pyprof.viewer.exports import of_outline, written

    source = session.source(aggregation, worker)
    parts = events.parts(source, iteration, operator, search, filters)
    written(target, format, of_outline(report), title, parts)
    return {}


@TASKS.register("insights")
def insights(session: Session, told: Told, aggregation: int, worker: int | None) -> dict[str, Any]:
    """What the rules say."""
    from pyprof.rules.evaluation import evaluate

    source = session.source(aggregation, worker)
    found: list[dict[str, Any]] = []
    silent = 0
    for outcome in evaluate(source):
        one = outcome.finding
        known = outcome.rule
        rule: dict[str, Any] = {"id": known.id, "name": known.name, "text": known.text}
        rule["rows"] = known.rows and known.rows._asdict()
        if one is not None:
            found.append(
                rule | {"outcome": "found", "problem": one.problem, "advice": one.advice, "saving": one.saving,
                        "share": outcome.share, "verify": one.verify, "evidence": [dict(row) for row in one.evidence]}
            )  # fmt: skip
        elif outcome.needs:
            found.append(
                rule | {"outcome": "needs", "problem": f"{outcome.rule.id} {outcome.rule.name}: not evaluated",
                        "advice": outcome.needs, "saving": None, "share": None, "verify": "", "evidence": []}
            )  # fmt: skip
        else:
            silent += 1
    return {"expert": found, "silent": silent}


@TASKS.register("ledger")
def ledger(session: Session, told: Told) -> list[dict[str, Any]]:
    """The coverage ledger, all workers together."""
    from pyprof.analysis.coverage import ledger as coverage_ledger

    found = coverage_ledger(session.store, by_worker=False)
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in found.astype(object).where(found.notna(), None).to_dict("records"):
        lines.setdefault(row["line"], []).append(
            {key: row[key] for key in ("part", "time", "count", "share")}
        )
    return [{"line": line, "parts": parts} for line, parts in lines.items()]


@TASKS.register("memory")
def memory(
    session: Session,
    told: Told,
    aggregation: int,
    worker: int | None,
    points: int,
    start: int | None,
    end: int | None,
) -> list[dict[str, Any]]:
    """Curves of memory in use."""
    from pyprof.analysis.allocations import CPU, allocations
    from pyprof.reports.memory import within
    from pyprof.viewer.downsample import thinned

    names = dict(session.store.rows("select id, name from worker"))
    out = []
    for one in allocations(session.source(aggregation, worker)):
        here = np.flatnonzero(one.inside & within(one.time, start, end))
        if not len(here):
            continue
        time, used = one.time[here], one.allocated[here]
        kept = thinned(used, points)
        top = int(used.argmax())
        reserved = one.reserved.take(here[kept])
        known = reserved.mask()
        out.append({
            "worker": one.worker, "name": names[one.worker], "device": None if one.device == CPU else one.device,
            "recorded": one.recorded, "events": len(here), "time": time[kept].tolist(),
            "allocated": used[kept].tolist(),
            "reserved": [int(v) if k else None for v, k in zip(reserved.values.tolist(), known.tolist())],
            "peak": int(used[top]), "peak_time": int(time[top]),
        })  # fmt: skip
    return out


@TASKS.register("memory_table")
def memory_table(
    session: Session,
    told: Told,
    aggregation: int,
    worker: int | None,
    show: str,
    start: int | None,
    end: int | None,
) -> tuple[dict[str, Any], pa.Table]:
    """The report memory, of a stretch of time."""
    from pyprof.reports.memory import stretch

    made = find("memory", show=show)
    return report_table(made._replace(make=lambda source, show: stretch(source, show, start, end)),
                 session.source(aggregation, worker))  # fmt: skip


@TASKS.register("compare")
def compare(
    session: Session, told: Told, aggregation: int, other: str, other_aggregation: int, by: str, version: str
) -> tuple[dict[str, Any], pa.Table]:
    """This database and another one side by side; `version` is that of the other, so that answers do not mix."""
    from pyprof.metrics import METRICS
    from pyprof.reports.diff import diff
    from pyprof.viewer.task_context import Session as Other

    second_session = Other(other)
    with second_session.store.translate_errors():
        base, second = session.source(aggregation, None), second_session.source(other_aggregation, None)
        told_, rows = report_table(diff(base, by), second)
        values = [
            {name: metric.function(one.window) for name, metric in METRICS.items()} for one in (base, second)
        ]
    counts = [one.aggregation.last - one.aggregation.first + 1 for one in (base, second)]
    return told_ | {"base": values[0], "other": values[1], "counts": counts}, rows


@TASKS.register("import")
def import_(session: Session, told: Told, source: str, target: str) -> dict[str, Any]:
    """A recording, a folder of them, or a database of an older schema as a database."""
    from pyprof.session import Profile

    Profile.open(source, progress=lambda what, share: told(0.3 * share, what)).save(target)
    return {}


@TASKS.register("aggregate")
def aggregate(
    session: Session, told: Told, target: str, start: int | None, stop: int | None, key: str | None
) -> dict[str, Any]:
    """Add an aggregation to `target`: the database itself if it is ours, else a copy, which is made first."""
    from pyprof.analysis.aggregation import aggregate as add
    from pyprof.store import files

    with _writable(session, target, told) as name, files.Store(name) as database:
        made = add(database, start, stop, key, lambda share: told(0.2 + 0.8 * share, "aggregating"))
    return {"aggregation": made.id}


@contextmanager
def _writable(session: Session, target: str, told: Told) -> Iterator[str]:
    """The database in the cache: the one that is served, or that another server has made meanwhile; else a copy."""
    from pyprof.store import files

    told(0.0, "copying")
    if Path(target).exists():
        yield target
        return
    with files.written(target) as name:
        with files.Store(session.path) as database:
            database.copy(name)
        yield name

# SPDX-License-Identifier: Apache-2.0
"""Tasks of a child process: one function each, registered in `TASKS`; arguments and result are JSON, followed by an
Arrow table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.registry import Registry
from pyprof.reports import find
from pyprof.store import reads
from pyprof.views.column_table import Frame, arrow, report_table

if TYPE_CHECKING:
    from pyprof.facts.steps.source import Source
    from pyprof.rules import Outcome
    from pyprof.server.task_context import Progress, Session

TASKS: Registry[Callable[..., Any]] = Registry("task")


@TASKS.register("report")
def report(
    session: Session,
    progress: Progress,
    name: str,
    options: dict[str, str],
    aggregation: int,
    worker: int | None,
) -> tuple[dict[str, Any], pa.Table]:
    """Return the first rows of a report, and whether they are complete."""
    return report_table(find(name, **options), session.source(aggregation, worker))


@TASKS.register("counters")
def counters(session: Session, progress: Progress, worker: int, device: int) -> tuple[dict[str, int], pa.Table]:
    """Return counters of a device over the whole recording."""
    from pyprof.views.counter_values import table

    return table(session.store, worker, device)


@TASKS.register("critical_path")
def critical_path(session: Session, progress: Progress, aggregation: int, at: int) -> dict[str, Any]:
    """Return the critical path of a step."""
    from pyprof.views.path_stretches import answer

    return answer(session.source(aggregation, None), at)


@TASKS.register("rank_heat")
def rank_heat(
    session: Session, progress: Progress, aggregation: int, worker: int | None
) -> tuple[dict[str, Any], pa.Table]:
    """Return the cells of ranks and steps."""
    from pyprof.views.rank_heat import table

    return table(session.source(aggregation, worker))


@TASKS.register("roofline_shares")
def roofline_shares(session: Session, progress: Progress, worker: int) -> tuple[dict[str, Any], pa.Table]:
    """Return the share of the roofline that each event of a worker reaches."""
    from pyprof.views.roofline import shares

    return {}, shares(session.store, worker)


@TASKS.register("memory_steps")
def memory_steps(
    session: Session,
    progress: Progress,
    aggregation: int,
    worker: int,
    device: int,
    start: int,
    width: int,
    count: int,
) -> dict[str, list[float | None]]:
    """Return the memory in use of a device in buckets."""
    from pyprof.views.counter_values import memory

    return memory(session.source(aggregation, None), worker, device, start, width, count)


@TASKS.register("trace")
def trace(session: Session, progress: Progress, target: str, start: int, end: int) -> dict[str, Any]:
    """Write what is in progress between two times as a Chrome trace."""
    from pyprof.export import write

    write("chrome", session.store, target, start, end)
    return {}


@TASKS.register("tree")
def tree(
    session: Session, progress: Progress, name: str, aggregation: int, worker: int | None
) -> tuple[dict[str, Any], pa.Table]:
    """Return a report that is a tree, as nodes."""
    from pyprof.views.tree_reports import TREES

    return TREES[name](session.source(aggregation, worker))


@TASKS.register("file")
def file(
    session: Session,
    progress: Progress,
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
    """Write a report of any length to a file, with the rows that pass the filters."""
    from pyprof.views.exports import write_parts

    spec = find(name, **options)

    def parts() -> Iterator[pd.DataFrame]:
        rows = 0
        for part in spec.chunks(session.source(aggregation, worker)):
            indices = Frame(arrow(part, spec.columns), spec.columns).select(search, filters)
            yield part.iloc[indices]
            rows += len(indices)
            progress(0.5, f"{rows:,} rows")

    write_parts(target, format, spec, title, parts())
    return {}


@TASKS.register("rows")
def rows(
    session: Session,
    progress: Progress,
    table: pa.Table,
    report: dict[str, Any],
    target: str,
    format: str,
    title: str,
) -> dict[str, Any]:
    """Write the rows of a table, sent by the server, to a file."""
    from pyprof.views.exports import of_outline, write_parts

    spec = of_outline(report)
    frame = Frame(table, spec.columns)
    write_parts(target, format, spec, title, [frame.pandas(frame.select())])
    return {}


@TASKS.register("events")
def events(
    session: Session,
    progress: Progress,
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
    """Write any number of GPU events to a file, in the order of launches."""
    from pyprof.views import events
    from pyprof.views.exports import of_outline, write_parts

    source = session.source(aggregation, worker)
    parts = events.parts(source, iteration, operator, search, filters)
    write_parts(target, format, of_outline(report), title, parts)
    return {}


@TASKS.register("insights")
def insights(session: Session, progress: Progress, aggregation: int, worker: int | None) -> dict[str, Any]:
    """Return the findings of the rules."""
    from pyprof.rules.evaluation import evaluate

    source = session.source(aggregation, worker)
    return judged(source, evaluate(source))


def judged(source: Source, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the findings among the outcomes of the rules, what they need, and the sentence about a step."""
    from pyprof.reports.headline import (
        best_finding,
        headline,
        late_rank,
        mean_step,
    )
    from pyprof.rules.context import NO_GPU, Run

    results: list[dict[str, Any]] = []
    silent, run = 0, Run(source)
    for outcome in outcomes:
        finding = outcome.finding
        definition = outcome.rule
        facts: dict[str, Any] = {"id": definition.id, "name": definition.name, "text": definition.text}
        facts["rows"] = definition.rows and definition.rows.of(source.gpu)
        if finding is not None:
            results.append(
                facts | {"outcome": "found", "problem": finding.problem, "advice": finding.advice,
                         "saving": finding.saving, "share": outcome.share, "verify": finding.verify,
                         "evidence": [dict(row) for row in finding.evidence]}
            )  # fmt: skip
        elif outcome.needs and outcome.needs.startswith(NO_GPU):
            continue  # does not apply to a CPU
        elif outcome.needs:
            results.append(
                facts | {"outcome": "needs", "problem": f"{outcome.rule.id} {outcome.rule.name}: not evaluated",
                        "advice": outcome.needs, "saving": None, "share": None, "verify": "", "evidence": []}
            )  # fmt: skip
        else:
            silent += 1
    step = mean_step(source, run)
    sentence = headline(step, best_finding(outcomes, run), late_rank(source))
    return {
        "expert": results, "silent": silent, "headline": sentence, "steps": run.steps if run.cut else 1, "cut": run.cut,
        "step": step._asdict(),
    }  # fmt: skip


@TASKS.register("fleet")
def fleet(session: Session, progress: Progress, aggregation: int, worker: int | None) -> dict[str, str]:
    """Return the sentences about the summary of a fleet."""
    from pyprof.reports.headline import of_summary

    return {"headline": of_summary(session.source(aggregation, worker))}


@TASKS.register("ledger")
def ledger(session: Session, progress: Progress) -> list[dict[str, Any]]:
    """Return the coverage ledger over all workers."""
    from pyprof.facts.steps.coverage import ledger as compute

    table = compute(session.store, by_worker=False)
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        lines.setdefault(row["line"], []).append({key: row[key] for key in ("part", "time", "count", "share")})
    return [{"line": line, "parts": parts} for line, parts in lines.items()]


@TASKS.register("memory")
def memory(
    session: Session,
    progress: Progress,
    aggregation: int,
    worker: int | None,
    points: int,
    start: int | None,
    end: int | None,
) -> list[dict[str, Any]]:
    """Return curves of memory in use."""
    from pyprof.facts.allocations import CPU, allocations
    from pyprof.reports.memory import within
    from pyprof.views.downsample import downsample

    names = reads.worker_names(session.store)
    out = []
    for events in allocations(session.source(aggregation, worker)):
        inside = np.flatnonzero(events.inside & within(events.time, start, end))
        if not len(inside):
            continue
        time, used = events.time[inside], events.allocated[inside]
        indices = downsample(used, points)
        top = int(used.argmax())
        reserved = events.reserved.take(inside[indices])
        mask = reserved.mask()
        out.append({
            "worker": events.worker, "name": names[events.worker],
            "device": None if events.device == CPU else events.device, "recorded": events.recorded,
            "events": len(inside), "time": time[indices].tolist(), "allocated": used[indices].tolist(),
            "reserved": [
                int(value) if is_known else None for value, is_known in zip(reserved.values.tolist(), mask.tolist())
            ],
            "peak": int(used[top]), "peak_time": int(time[top]),
        })  # fmt: skip
    return out


@TASKS.register("memory_table")
def memory_table(
    session: Session,
    progress: Progress,
    aggregation: int,
    worker: int | None,
    show: str,
    start: int | None,
    end: int | None,
) -> tuple[dict[str, Any], pa.Table]:
    """Return the report memory for a time range."""
    from pyprof.reports.memory import stretch

    spec = find("memory", show=show)
    return report_table(
        spec._replace(make=lambda source, show: stretch(source, show, start, end)), session.source(aggregation, worker)
    )


@TASKS.register("alive")
def alive(
    session: Session, progress: Progress, aggregation: int, worker: int | None, by: str, at: int | None
) -> tuple[dict[str, Any], pa.Table]:
    """Return the report alive for a moment."""
    from pyprof.reports.alive import moment

    spec = find("alive", by=by)
    return report_table(
        spec._replace(make=lambda source, by: moment(source, by, at)), session.source(aggregation, worker)
    )


@TASKS.register("compare")
def compare(
    session: Session,
    progress: Progress,
    aggregation: int,
    other: str,
    other_aggregation: int,
    by: str,
    per: str,
    version: str,
) -> tuple[dict[str, Any], pa.Table]:
    """Return this database and another one side by side; `version` is that of the other, so that cached answers do not
    mix."""
    from pyprof.metrics import METRICS
    from pyprof.reports.change import describe_change
    from pyprof.reports.diff import cautions, diff
    from pyprof.server.task_context import Session as Other

    second_session = Other(other)
    with second_session.store as store, store.translate_errors():
        base, second = session.source(aggregation, None), second_session.source(other_aggregation, None)
        info, rows = report_table(diff(base, by, per), second)
        step_table = diff(base).table(second)
        steps, change = _step_rows(step_table), describe_change(base, second, step_table)
        values = [{name: metric.function(side.window) for name, metric in METRICS.items()} for side in (base, second)]
        notes = cautions(base, second, per)
    return info | {"base": values[0], "other": values[1], "notes": notes, "steps": steps,
                   "headline": " ".join(change)}, rows  # fmt: skip


def _step_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the report diff that describe a step, for `models.Change`."""
    out = []
    for row in table.to_dict("records"):
        if row["section"] not in ("step", "part", "memory"):
            continue
        key, unit = ("bytes", "B") if row["section"] == "memory" else ("time_ns", "ns")
        values = {side: row[f"{side}_{key}"] for side in ("base", "other", "delta")}
        out.append(
            {"section": row["section"], "name": row["name"], "unit": unit, "share": row["share"],
             "noise": None if row["noise"] is None else bool(row["noise"]), **values}
        )  # fmt: skip
    return out


@TASKS.register("import")
def import_(session: Session, progress: Progress, source: str, target: str, files: list[str] | None) -> dict[str, Any]:
    """Convert a recording, a folder or some files of it, or a database of an older schema to a database."""
    from pyprof.profiles import Profile

    Profile.open(source, progress=lambda what, share: progress(0.3 * share, what), only=files).save(target)
    return {}


@TASKS.register("aggregate")
def aggregate(
    session: Session, progress: Progress, target: str, start: int | None, stop: int | None, key: str | None
) -> dict[str, Any]:
    """Add an aggregation to `target`: the database itself if it is in the cache, else a new copy."""
    from pyprof.facts.steps.aggregation import aggregate as add
    from pyprof.store import files

    with _writable(session, target, progress) as name, files.Store(name) as database:
        aggregation = add(database, start, stop, key, lambda share: progress(0.2 + 0.8 * share, "aggregating"))
    return {"aggregation": aggregation.id}


@contextmanager
def _writable(session: Session, target: str, progress: Progress) -> Iterator[str]:
    """Provide the database in the cache: the served one, one created meanwhile by another server, or a new copy."""
    from pyprof.store import files

    progress(0.0, "copying")
    if Path(target).exists():
        yield target
        return
    with files.written(target) as name:
        with files.Store(session.path) as database:
            database.copy(name)
        yield name

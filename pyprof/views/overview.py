# SPDX-License-Identifier: Apache-2.0
"""The dashboard: figures of the metrics, arranged as in DLProf's panels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from pyprof.core.model import NO_PHASE, NOT_READ, PHASES
from pyprof.facts.steps.coverage import is_missing, missing_launches
from pyprof.facts.steps.source import Source
from pyprof.metrics import METRICS, PART_HEADINGS, PARTS, Value, Window, share, value
from pyprof.reports import find
from pyprof.reports.summary import rows as summary_rows
from pyprof.store import fleet_folder
from pyprof.views import models
from pyprof.views.models import Breakdown, Figure, Overview, Part

TOP = 10
_NAMED = 5  # recordings that were not read, and are named
_PERFORMANCE = ("wall_time", "tc_utilization", "gpu_utilization", "iterations", "average_iteration")
_KERNELS = {
    "tc_events_": ("tc", "Kernels Using Tensor Cores", "Kernels that used tensor cores."),
    "memory_events_": ("memory", "Memory Kernels", "Copies and sets."),
    "other_events_": (
        "kernel",
        "All Other Kernels",
        "All other kernels, including those of unknown use; without a GPU, operator events.",
    ),
}
_TOP_KEYS = ("type", "phase", "shapes", "line")


def overview(source: Source) -> Overview:
    """Return all panels that do not read single events."""
    window = source.window
    detail = find("detail").table(source)
    figures = [figure(name, window) for name in METRICS]
    by_name = {entry.key: entry for entry in figures}
    total = source.store.rows(
        "select count(distinct number) from iteration where iteration_set = ?",
        (source.aggregation.iteration_set,),
    )[0][0]
    return Overview(
        figures=figures,
        performance=_performance(source, by_name, total),
        gpu_utilization=_utilization(window),
        resources=_resources(window),
        kernel_time=_kernel_time(source),
        tensor_cores=_tensor_cores(window),
        iterations=_summary(source, "Iterations"),
        top=_top(source, detail),
        modules=_modules(detail),
        threads=[] if source.gpu else _threads(source),
        system=_system(source),
        notes=_notes(source),
    )


def figure(name: str, window: Window) -> Figure:
    """Return a figure of the metrics."""
    metric = METRICS[name]
    return Figure(
        key=name,
        heading=metric.heading,
        value=metric.function(window),
        unit=metric.unit,
        text=metric.text,
        denominator=metric.denominator,
    )


def _performance(source: Source, figures: dict[str, Figure], total: int) -> list[Figure]:
    window = source.aggregation
    own = (
        Figure(
            key="total_iterations",
            heading="Total Iterations",
            value=total,
            unit="count",
            text="Number of iterations in the recording.",
        ),
        figures["iterations"].model_copy(update={"heading": "Profiled Iterations"}),
        Figure(
            key="first",
            heading="Start Iteration",
            value=window.first,
            unit="",
            text="First iteration in the window, from 0.",
        ),
        Figure(
            key="last",
            heading="Stop Iteration",
            value=window.last,
            unit="",
            text="Last iteration in the window.",
        ),
    )
    return [*(figures[name] for name in _PERFORMANCE[:3]), *own, figures["average_iteration"]]


def _summary(source: Source, section: str) -> list[Figure]:
    return [
        Figure(key=row.name, heading=row.name, value=row.value, unit=row.unit, text=row.text)
        for row in summary_rows(source)
        if row.section == section
    ]


def _system(source: Source) -> list[Figure]:
    """Return DLProf's System Configuration without unknown values."""
    return [entry for entry in _summary(source, "System Config") if entry.value is not None]


def _two_parts(
    key: str,
    title: str,
    amounts: tuple[int, int],
    shares: tuple[Value, Value],
    words: Sequence[tuple[str, str, str]],
) -> Breakdown:
    """Return two parts of a time in ns, with shares in percent; `words` are key, heading and text of each. Both are
    unknown if the first share is."""
    unknown = shares[0] is None
    return Breakdown(
        key=key, title=title, unit="ns", total=None if unknown else sum(amounts),
        parts=[
            Part(
                key=name, heading=heading, value=None if unknown else amount, unit="ns", share=_float(part_share),
                text=text,
            )
            for (name, heading, text), amount, part_share in zip(words, amounts, shares)
        ],
    )  # fmt: skip


def _utilization(window: Window) -> Breakdown:
    """Return busy and idle time of all devices in use."""
    wall = sum(device.wall for device in window.used)
    busy = sum(device.sums.get("busy_ns", 0) for device in window.used)
    return _two_parts(
        "gpu_utilization",
        "GPU Utilization",
        (busy, wall - busy),
        (value("gpu_utilization", window), value("gpu_idle", window)),
        (
            ("busy", "Using GPU", METRICS["gpu_utilization"].text),
            ("idle", "Idle GPU", METRICS["gpu_idle"].text),
        ),
    )


def _resources(window: Window) -> Breakdown:
    parts = []
    for key in PARTS:
        name = f"{key}_share"
        part_share = value(name, window)
        amount = sum(worker.parts.get(key, 0) for worker in window.workers)
        parts.append(
            Part(
                key=key,
                heading=PART_HEADINGS[key],
                value=None if part_share is None else amount,
                unit="ns",
                share=_float(part_share),
                text=METRICS[name].text,
            )
        )
    return Breakdown(
        key="resources", title="Resource Usage Breakdown", unit="ns", parts=parts, total=window.wall or None
    )


def _kernel_time(source: Source) -> Breakdown:
    totals = source.window.totals
    total = totals["events_gpu_ns"]
    parts = []
    for prefix, (key, heading, text) in _KERNELS.items():
        is_known = source.gpu or prefix == "other_events_"
        amount = totals[prefix + "gpu_ns"]
        parts.append(
            Part(
                key=key,
                heading=heading,
                value=amount if is_known else None,
                unit="ns",
                share=share(amount, total) if is_known else None,
                text=text,
                count=totals[prefix + "calls"] if is_known else None,
            )
        )
    return Breakdown(key="kernel_time", title="Total Kernel GPU Time", total=total, unit="ns", parts=parts)


def _tensor_cores(window: Window) -> Breakdown:
    used = value("tc_utilization", window)
    amount = window.totals["eligible_tc_ns"]
    other_text = "Other kernels of the operators that tensor cores could do."
    return _two_parts(
        "tensor_cores",
        "Tensor Core Kernel Efficiency",
        (amount, window.totals["eligible_kernel_ns"] - amount),
        (used, None if used is None else 100 - used),
        (
            ("tc", "Eligible, Using Tensor Cores", METRICS["tc_utilization"].text),
            ("kernel", "Eligible, Not Using Tensor Cores", other_text),
        ),
    )


def _float(number: Value) -> float | None:
    return None if number is None else float(number)


def _modules(detail: pd.DataFrame) -> list[models.Share]:
    """Return the modules of the longest time, those whose paths differ only in numbers together; all operators outside
    of modules are one, named "". Empty if no module was recorded."""
    if not detail["module"].notna().any():
        return []
    rows = detail.assign(module=detail["module"].fillna("")).groupby("module")[["gpu", "calls"]].sum()
    groups: dict[str, list[tuple[str, int, int]]] = {}
    for name, time, calls in rows.itertuples():
        groups.setdefault(_numberless(name), []).append((name, int(time), int(calls)))
    names = {name if len(members) > 1 else members[0][0]: members for name, members in groups.items()}
    sums = (
        (name, sum(time for _, time, _ in members), sum(calls for *_, calls in members))
        for name, members in names.items()
    )
    total = int(rows["gpu"].sum())
    out = []
    for row in _largest(sums):
        rows_of_group = names[row.name]
        members = tuple(_largest(rows_of_group, total)) if len(rows_of_group) > 1 else ()
        out.append(row.model_copy(update={"count": len(rows_of_group), "members": members}))
    return out


def _numberless(path: str) -> str:
    """Return the path of a module with * for the numbers of its layers.

    >>> _numberless("encoder.layers.11.linear2"), _numberless("Net_0.Layer_12.Linear_0")
    ('encoder.layers.*.linear2', 'Net_*.Layer_*.Linear_*')
    """
    return ".".join(re.sub(r"(^|_)\d+$", r"\1*", name) for name in path.split("."))


def _threads(source: Source) -> list[models.Share]:
    """Return the threads on whose operators the CPU spent most time."""
    window = source.aggregation
    rows = source.store.rows(
        """select worker.name, thread.tid, thread.name, sum(event.duration_ns), count(*)
           from iteration
           join event on event.id >= iteration.first_event and event.id < iteration.last_event
           join op on op.id = event.op
           join thread on thread.id = op.thread
           join worker on worker.id = thread.worker
           where iteration.iteration_set = :set and iteration.number between :first and :last
                 and (:worker is null or iteration.worker = :worker)
           group by thread.id""",
        {"set": window.iteration_set, "first": window.first, "last": window.last, "worker": source.worker},
    )
    several = len({worker for worker, *_ in rows}) > 1
    return _largest(
        (" ".join([*([worker] if several else []), name or "Thread", str(tid)]), time, calls)
        for worker, tid, name, time, calls in rows
    )


def _largest(rows: Iterable[tuple[str, int, int]], total: int | None = None) -> list[models.Share]:
    """Return the rows of the longest time, given name, time and calls. `total`: the sum of all, if not of these."""
    ordered = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])
    whole = sum(time for _, time, _ in ordered) if total is None else total
    return [
        models.Share(name=name, time=time, share=100 * time / whole, calls=calls) for name, time, calls in ordered[:TOP]
    ]


def _top(source: Source, table: pd.DataFrame) -> models.Top:
    """Return the operators of most time by type, phase, shapes and source line."""
    query = f"select op_id, coalesce(phase, {NO_PHASE}) from operator"
    phases = {op_id: PHASES[phase] for op_id, phase in source.store.rows(query)}
    table = table.assign(phase=table["op_id"].map(phases).where(lambda phase: phase != PHASES[NO_PHASE], None))
    table = table.assign(line=table["stack"].str.rsplit("\n", n=1).str[-1], time=table["gpu"].fillna(0))
    total = int(table["time"].sum())
    table = table[table["time"] > 0].sort_values("time", ascending=False, kind="stable")
    groups = [rows for _, rows in table.groupby(list(_TOP_KEYS), dropna=False, sort=False)]
    groups = sorted(groups, key=lambda rows: -int(rows["time"].sum()))[:TOP]
    return models.Top(total_time=total, groups=[_top_group(rows, total) for rows in groups])


def _top_group(rows: pd.DataFrame, total: int) -> models.TopGroup:
    first: dict[str, Any] = {
        key: None if pd.isna(rows[key].iloc[0]) else rows[key].iloc[0] for key in (*_TOP_KEYS, "eligible")
    }
    using = rows["using_tc"]
    time = int(rows["time"].sum())
    return models.TopGroup(
        **first, module=_common([path for path in rows["module"] if isinstance(path, str)]), operators=len(rows),
        calls=int(rows["calls"].sum()), time=time, share=100 * time / total,
        using_tc=True if using.fillna(False).any() else None if using.isna().any() else False,
        members=[
            models.TopOperator(op_id=op_id, name=name, calls=int(calls), time=int(own))
            for op_id, name, calls, own in rows[["op_id", "name", "calls", "time"]].head(TOP).itertuples(index=False)
        ],
    )  # fmt: skip


def _common(paths: list[str]) -> str | None:
    """Return paths that differ only in numbers as one, None if they differ otherwise.

    >>> _common(["Net_0.Layer_1.Linear_0", "Net_0.Layer_12.Linear_0"]), _common(["a", "b"])
    ('Net_0.Layer_*.Linear_0', None)
    """
    parts = [path.split(".") for path in dict.fromkeys(paths)]
    if not parts or any(len(path) != len(parts[0]) for path in parts):
        return None
    out = []
    for names in zip(*parts):
        alike = {re.sub(r"\d+$", "*", name) for name in names}
        if len(alike) > 1:
            return None
        out.append(names[0] if len(set(names)) == 1 else alike.pop())
    return ".".join(out)


def _notes(source: Source) -> list[str]:
    notes = []
    store = source.store
    if not source.gpu:
        lacking = missing_launches(store)[0]
        notes.append(
            f"The work of {lacking:,} launches is not in the recording: times are operators' own, on the CPU."
            if lacking
            else "Everything ran on the CPU: times are operators' own."
        )
    if not store.rows("select 1 from operator where unassociated = 0 limit 1"):
        notes.append("No operators were recorded: kernels have no operators, modules or source lines.")
    # Records that were repaired and kept change no figure: the coverage has them.
    lost = store.rows("select reason, count from lost where instr(reason, ?) <> 1", (NOT_READ,))
    missing = sum(count or 0 for reason, count in lost if is_missing(reason))
    failed = fleet_folder.failed(store)
    notes += [f"Not read: {sentence}" for sentence in failed[:_NAMED]]
    if len(failed) > _NAMED:
        notes.append(f"{len(failed) - _NAMED} more recordings were not read: see Coverage.")
    if missing:
        notes.append(f"{missing:,} records are missing, lost in the recording or its reading: see Coverage.")
    return notes


def step_time(table: Any) -> Breakdown:
    """Return the step-time report, summed over workers and steps."""
    report = find("step_time")
    keys = [column for column in report.columns if column.key.endswith("_ns") and column.key != "total_ns"]
    total = int(table["total_ns"].sum()) if len(table) else 0
    parts = []
    for column in keys:
        values = table[column.key]
        amount = int(values.sum()) if len(values) and values.notna().all() else None
        parts.append(
            Part(
                key=column.key.removesuffix("_ns"),
                heading=column.heading.removesuffix(" (ns)"),
                value=amount,
                unit="ns",
                share=None if amount is None else share(amount, total),
                text=column.text,
            )
        )
    return Breakdown(
        key="step_time",
        title="Step Time Breakdown",
        total=total if len(table) else None,
        unit="ns",
        parts=parts,
    )

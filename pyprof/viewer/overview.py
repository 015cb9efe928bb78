# SPDX-License-Identifier: Apache-2.0
"""The dashboard: figures of the metrics, arranged as in DLProf's panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyprof.analysis.coverage import is_missing
from pyprof.analysis.source import Source
from pyprof.metrics import METRICS, PART_HEADINGS, PARTS, Value, Window, share, value
from pyprof.reports import find
from pyprof.reports.summary import rows as summary_rows
from pyprof.viewer import models
from pyprof.viewer.models import Breakdown, Cell, Figure, Overview, Part
from pyprof.viewer.report_pages import columns_of, plain_rows

TOP = 10
_PERFORMANCE = ("wall_time", "tc_utilization", "gpu_utilization", "iterations", "average_iteration")
_KERNELS = {
    "tc_events_": ("tc", "Using Tensor Cores", "Kernels that used tensor cores."),
    "memory_events_": ("memory", "Memory Kernels", "Copies and sets."),
    "other_events_": (
        "kernel",
        "All Other Kernels",
        "All other kernels, including those of unknown use; without a GPU, operator events.",
    ),
}
_TOP_COLUMNS = ("gpu", "name", "direction", "type", "calls", "eligible", "using_tc", "op_id")


def overview(source: Source) -> Overview:
    """Return all panels that do not read single events."""
    window = source.window
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
        top_operators=_top(source),
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
    """Return busy and idle time of the devices in use; the share is the mean over devices."""
    wall = sum(device.wall for device in window.used)
    busy = sum(device.sums.get("busy", 0) for device in window.used)
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
    total = totals["events_gpu"]
    parts = []
    for prefix, (key, heading, text) in _KERNELS.items():
        is_known = source.gpu or prefix == "other_events_"
        amount = totals[prefix + "gpu"]
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
    amount = window.totals["eligible_tc"]
    other_text = "Other kernels of the operators that tensor cores could do."
    return _two_parts(
        "tensor_cores",
        "Tensor Core Kernel Efficiency",
        (amount, window.totals["eligible_kernel"] - amount),
        (used, None if used is None else 100 - used),
        (
            ("tc", "Using Tensor Cores", METRICS["tc_utilization"].text),
            ("kernel", "Not Using Tensor Cores", other_text),
        ),
    )


def _float(number: Value) -> float | None:
    return None if number is None else float(number)


def _top(source: Source) -> models.Table:
    """Return DLProf's Top 10 GPU Ops."""
    report = find("detail")
    frame = report.table(source)
    frame = frame.sort_values("gpu", ascending=False, kind="stable")
    named = frame[frame["gpu"].fillna(0) > 0].head(TOP)
    columns = [next(column for column in report.columns if column.key == key) for key in _TOP_COLUMNS]
    rows: list[list[Cell]] = plain_rows(named, [column.key for column in columns])
    return models.Table(
        columns=columns_of(columns),
        rows=rows,
        ids=[int(i) for i in named.index],
        offset=0,
        total=len(rows),
        filtered=len(rows),
        complete=True,
        note=None,
        totals={},
    )


def _notes(source: Source) -> list[str]:
    notes = []
    store, window = source.store, source.aggregation
    if not source.gpu:
        notes.append("Nothing ran on a GPU: operators' own time on the CPU takes the place of device time.")
    if not store.rows("select 1 from operator where unassociated = 0 limit 1"):
        notes.append("No operators were recorded: kernels have no operators, modules or source lines.")
    if window.method == "none":
        notes.append(
            "No iterations were found: the whole recording counts as one. Select a key operator under Iterations."
        )
    lost = {reason: count for reason, count in store.rows("select reason, count from lost") if count}
    missing = sum(count for reason, count in lost.items() if is_missing(reason))
    if missing:
        notes.append(f"{missing:,} records are missing, lost in the recording or its reading: see Coverage.")
    if repaired := sum(lost.values()) - missing:
        notes.append(f"{repaired:,} records were incomplete, but kept: see Coverage.")
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

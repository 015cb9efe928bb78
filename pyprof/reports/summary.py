# SPDX-License-Identifier: Apache-2.0
"""Summary of the window in figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.metrics import FIGURES, METRICS, Figure
from pyprof.reports import Column, Section, View, report

_SYSTEM, _SUMMARY, _ITERATIONS, _OPS, _KERNELS, _MORE = (
    "System Config", "Summary Report", "Iterations", "All Ops", "All Kernels", "More Figures",
)  # fmt: skip
_SHARES = (
    "tc_utilization", "gpu_utilization", "tc_share", "kernel_share", "memory_share", "dataloader_share", "io_share",
    "cpu_share", "other_share",
)  # fmt: skip
_LENGTHS = ("average_iteration", "iteration_std")
_HEADINGS = {
    "tc_utilization": "Tensor Core Kernel Utilization %",
    "iteration_std": METRICS["iteration_std"].heading,
}
_OP_ROWS = {
    "": ("All ops", "Everything that ran, including work outside operators."),
    "using_": ("Ops using TC", "Operators with a kernel that used tensor cores."),
    "missed_": ("Ops eligible for TC but not using", "Operators that tensor cores could do, without such a kernel."),
    "others_": ("All other ops", "All other operators."),
}
_KERNEL_ROWS = {
    "events_": ("All kernels", "Kernels, copies and sets launched in the window."),
    "tc_events_": ("Kernels using TC", "Kernels that used tensor cores."),
    "memory_events_": ("Memory", "Copies and sets."),
    "other_events_": ("All other kernels", "All other kernels; without a GPU, operator events."),
    "unknown_events_": (
        "TC use unknown",
        "Other kernels for which the use of tensor cores is unknown.",
    ),
}
_SUM = FIGURES["kernel_gpu"]._replace(heading="GPU Time, Summed")
_COUNT = Figure("Calls", "count", "Number of kernels, copies and sets launched.")


class Row(NamedTuple):
    """Row of the report; `dlprof` is its heading in DLProf's layout (in a table, its column's), empty if it is not in
    it."""

    section: str
    name: str
    figure: str | None
    value: str | int | float | None
    unit: str
    text: str
    dlprof: str


def sections(source: Source) -> list[Section]:
    """Return DLProf's layout: headings with values, and two small tables. Unknown system facts are left out."""
    in_layout = [row for row in rows(source) if row.dlprof]
    out = []
    for title in (_SYSTEM, _SUMMARY, _ITERATIONS):
        section_rows = [row for row in in_layout if row.section == title]
        known_rows = [row for row in section_rows if title != _SYSTEM or row.value is not None]
        out.append(Section(title, (), tuple((row.dlprof, row.value) for row in known_rows)))
    for title in (_OPS, _KERNELS):
        section_rows = [row for row in in_layout if row.section == title]
        headings = tuple(dict.fromkeys(row.dlprof for row in section_rows))
        names = dict.fromkeys(row.name for row in section_rows)
        values = {name: tuple(row.value for row in section_rows if row.name == name) for name in names}
        out.append(Section(title, headings, tuple((name, *cells) for name, cells in values.items())))
    return out


@report(
    "summary",
    "Summary Report",
    (
        Column("section", "Section", "", "Part of the report.", str),
        Column("name", "Name", "", "Subject of the value.", str),
        Column("figure", "Figure", "", "Figure of the subject, if it has several.", str),
        Column("value", "Value", "", "A number or a text.", object),
        Column("unit", "Unit", "", "Unit of the value.", str),
        Column("definition", "Definition", "", "Meaning of the value.", str),
    ),
    sections=sections,
    view=View("Summary"),
)
def summary(source: Source) -> pd.DataFrame:
    """One row per value: facts about the system, all figures of docs/metrics.md, the iterations, and the totals of
    operators and kernels. GPU Time of operators is a sum of unions (overlapping work of one operator counts once);
    GPU Time, Summed, of kernels is a sum of events: the two differ where events of an operator overlap."""
    columns = ["section", "name", "figure", "value", "unit", "definition"]
    return pd.DataFrame([(*row[:4], row.unit or None, row.text) for row in rows(source)], columns=columns, dtype=object)


def rows(source: Source) -> Iterator[Row]:
    """Yield all rows."""
    yield from _system(source)
    yield _metric(source, "wall_time", _SUMMARY, "Wall Clock Time (ns)")
    for name in _SHARES:
        yield _metric(source, name, _SUMMARY, _HEADINGS.get(name, f"{METRICS[name].heading} %"))
    yield from _iterations(source)
    yield from _ops(source)
    yield from _kernels(source)
    placed = {"wall_time", "iterations", *_SHARES, *_LENGTHS}
    for name in METRICS:
        if name not in placed:
            yield _metric(source, name, _MORE, "")


def _metric(source: Source, name: str, section: str, dlprof: str) -> Row:
    """Return the row of a metric."""
    metric = METRICS[name]
    return Row(section, metric.heading, None, metric.function(source.window), metric.unit, metric.text, dlprof)


def _system(source: Source) -> Iterator[Row]:
    """Yield the facts about the system."""
    meta = source.store.meta
    devices = source.store.rows("select distinct number, name from device order by number")
    names = ", ".join(dict.fromkeys(name for _, name in devices if name))
    counted = len({number for number, _ in devices}) or None
    torch, cuda = meta.get("torch"), meta.get("cuda") or meta.get("hip")
    nsys = meta.get("EXPORT_PRODUCT_VERSION") if "Nsight" in meta.get("EXPORT_PRODUCT_NAME", "") else None
    count = counted if counted or not meta.get("gpu.count", "").isdigit() else int(meta["gpu.count"])
    values: tuple[tuple[str, str | int | None, str], ...] = (
        ("GPU Count", count, "Number of GPUs in the recording."),
        ("GPU Name(s)", names or None, "Names of the GPUs, without duplicates."),
        ("CPU Model", meta.get("cpu.name"), "Processor of the machine."),
        ("GPU Driver Version", meta.get("cuda.driver"), "CUDA version that the driver supports."),
        ("Framework", f"PyTorch {torch}" if torch else None, "Framework and its version."),
        ("CUDA Version", cuda, "Version with which the framework was built."),
        ("cuDNN Version", meta.get("cudnn"), "Version of the library that the framework used."),
        ("NSys Version", nsys, "Version of Nsight Systems, if it made the recording."),
        ("PyProf Version", meta.get("writer_version"), "Version of PyProf that wrote the database."),
        ("Database Schema", meta.get("created_schema"), "Version of the database's tables."),
    )
    headings = {"PyProf Version": "DLProf Version", "Database Schema": "DLProf Build"}
    for name, value, text in values:
        cell = f"PyProf {value}" if name == "PyProf Version" else value
        yield Row(_SYSTEM, name, None, cell, "", text, headings.get(name, name))


def _iterations(source: Source) -> Iterator[Row]:
    """Yield the rows about iterations."""
    window, section = source.aggregation, _ITERATIONS
    total = source.store.rows(
        "select count(distinct number) from iteration where iteration_set = ?", (window.iteration_set,)
    )[0][0]
    yield Row(
        section,
        "Total Iterations",
        None,
        total,
        "count",
        "Number of iterations in the recording.",
        "Total Iterations",
    )
    yield _metric(source, "iterations", section, "Aggregated Iterations")
    yield Row(
        section,
        "Start Iteration",
        None,
        window.first,
        "",
        "First iteration in the window, from 0.",
        "Start Iteration",
    )
    yield Row(section, "Stop Iteration", None, window.last, "", "Last iteration in the window.", "Stop Iteration")
    yield _metric(source, "average_iteration", section, "Average Iteration Time (ns)")
    yield _metric(source, "iteration_std", section, _HEADINGS["iteration_std"])
    yield Row(
        section,
        "Iterations Cut By",
        None,
        window.note,
        "",
        "How the recording was divided into iterations.",
        "",
    )
    yield Row(section, "Key Operator", None, window.key, "", "Operator that marks the iterations, if one does.", "")


def _ops(source: Source) -> Iterator[Row]:
    """Yield the totals of operators."""
    totals = source.window.totals
    columns = (
        ("gpu_ns", FIGURES["gpu"], "GPU Time (ns)"),
        ("cpu_ns", FIGURES["cpu"], "CPU Time (ns)"),
        ("operators", Figure("Ops", "count", "Operators: places in the model, directions, shapes."), "# Ops"),
        ("calls", FIGURES["calls"], ""),
    )
    for prefix, (name, definition) in _OP_ROWS.items():
        for key, figure, dlprof in columns:
            value = totals[prefix + key] if source.gpu or prefix not in ("using_", "missed_", "others_") else None
            yield Row(_OPS, name, figure.heading, value, figure.unit, f"{definition} {figure.text}", dlprof)


def _kernels(source: Source) -> Iterator[Row]:
    """Yield the totals of kernels."""
    totals = source.window.totals
    columns = (
        ("gpu_ns", _SUM, "GPU Time (ns)"),
        ("api_ns", FIGURES["kernel_api"], "CPU Time (ns)"),
        ("calls", _COUNT, "# Kernels"),
    )
    for prefix, (name, definition) in _KERNEL_ROWS.items():
        for key, figure, dlprof in columns:
            value = totals[prefix + key]
            is_known = source.gpu or (key != "api_ns" and prefix in ("events_", "other_events_"))
            if key == "api_ns" and totals[prefix + "calls"] and not totals[prefix + "launched"]:
                is_known = False
            cell = value if is_known else None
            dlprof = "" if prefix == "unknown_events_" else dlprof
            yield Row(_KERNELS, name, figure.heading, cell, figure.unit, f"{definition} {figure.text}", dlprof)

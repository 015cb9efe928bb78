# SPDX-License-Identifier: Apache-2.0
"""The window in figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from pyprof.analysis.source import Source
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
    "": ("All ops", "Everything that ran, also outside of operators."),
    "using_": ("Ops using TC", "Operators of which a kernel used tensor cores."),
    "missed_": ("Ops eligible for TC but not using", "Operators that tensor cores could do, without such a kernel."),
    "others_": ("All other ops", "The others."),
}  # fmt: skip
_KERNEL_ROWS = {
    "events_": ("All kernels", "Kernels, copies and sets that were launched in the window."),
    "tc_events_": ("Kernels using TC", "Kernels that used tensor cores."),
    "memory_events_": ("Memory", "Copies and sets."),
    "other_events_": ("All other kernels", "The others; without a GPU operator events."),
    "unknown_events_": (
        "TC use unknown",
        "Those of the others of which it is not known whether they used tensor cores.",
    ),
}
_SUM = FIGURES["kernel_gpu"]._replace(heading="GPU Time, Summed")
_COUNT = Figure("Calls", "count", "Kernels, copies and sets that were launched.")


class Row(NamedTuple):
    """A row of the report; `theirs` is its heading (of a table: its column's) in DLProf's layout, "" if it is not
    there."""

    section: str
    name: str
    figure: str | None
    value: str | int | float | None
    unit: str
    text: str
    theirs: str


def sections(source: Source) -> list[Section]:
    """DLProf's layout: headings with values, and two small tables. Unknown facts of the system are left out."""
    found = [row for row in rows(source) if row.theirs]
    out = []
    for title in (_SYSTEM, _SUMMARY, _ITERATIONS):
        mine = [row for row in found if row.section == title]
        keep = [row for row in mine if title != _SYSTEM or row.value is not None]
        out.append(Section(title, (), tuple((row.theirs, row.value) for row in keep)))
    for title in (_OPS, _KERNELS):
        mine = [row for row in found if row.section == title]
        headings = tuple(dict.fromkeys(row.theirs for row in mine))
        names = dict.fromkeys(row.name for row in mine)
        values = {name: tuple(row.value for row in mine if row.name == name) for name in names}
        out.append(Section(title, headings, tuple((name, *cells) for name, cells in values.items())))
    return out


@report(
    "summary",
    "Summary Report",
    (
        Column("section", "Section", "", "Part of the report.", str),
        Column("name", "Name", "", "What the value is of.", str),
        Column("figure", "Figure", "", "Which figure of it, where it has several.", str),
        Column("value", "Value", "", "The value: a number or a text.", object),
        Column("unit", "Unit", "", "Its unit.", str),
        Column("definition", "Definition", "", "What the value means.", str),
    ),
    sections=sections,
    view=View("Summary"),
)
def summary(source: Source) -> pd.DataFrame:
    """One row per value: facts of the system, all figures of docs/metrics.md, the iterations, and what operators and
    kernels add up to. GPU Time of operators is a sum of unions (what one operator does at once counts once); GPU Time,
    Summed, of kernels is a sum of events: the two differ where events of an operator overlap."""
    columns = ["section", "name", "figure", "value", "unit", "definition"]
    return pd.DataFrame(
        [(*row[:4], row.unit or None, row.text) for row in rows(source)], columns=columns, dtype=object
    )


def rows(source: Source) -> Iterator[Row]:
    """All rows."""
    yield from _system(source)
    yield _metric(source, "wall_time", _SUMMARY, "Wall Clock Time (ns)")
    for name in _SHARES:
        yield _metric(source, name, _SUMMARY, _HEADINGS.get(name, f"{METRICS[name].heading} %"))
    yield from _iterations(source)
    yield from _ops(source)
    yield from _kernels(source)
    shown = {"wall_time", "iterations", *_SHARES, *_LENGTHS}
    for name in METRICS:
        if name not in shown:
            yield _metric(source, name, _MORE, "")


def _metric(source: Source, name: str, section: str, theirs: str) -> Row:
    one = METRICS[name]
    return Row(section, one.heading, None, one.function(source.window), one.unit, one.text, theirs)


def _system(source: Source) -> Iterator[Row]:
    meta = source.store.meta
    devices = source.store.rows("select distinct number, name from device order by number")
    names = ", ".join(dict.fromkeys(name for _, name in devices if name))
    counted = len({number for number, _ in devices}) or None
    torch, cuda = meta.get("torch"), meta.get("cuda") or meta.get("hip")
    nsys = meta.get("EXPORT_PRODUCT_VERSION") if "Nsight" in meta.get("EXPORT_PRODUCT_NAME", "") else None
    count = counted if counted or not meta.get("gpu.count", "").isdigit() else int(meta["gpu.count"])
    values: tuple[tuple[str, str | int | None, str], ...] = (
        ("GPU Count", count, "Devices that the recording names."),
        ("GPU Name(s)", names or None, "Their names, each once."),
        ("CPU Model", meta.get("cpu.name"), "Processor of the machine."),
        ("GPU Driver Version", meta.get("cuda.driver"), "As the CUDA driver numbers itself."),
        ("Framework", f"PyTorch {torch}" if torch else None, "What ran the program."),
        ("CUDA Version", cuda, "With which the framework was built."),
        ("cuDNN Version", meta.get("cudnn"), "The library that the framework used."),
        ("NSys Version", nsys, "Nsight Systems, if it made the recording."),
        ("PyProf Version", meta.get("writer_version"), "What made the database."),
        ("Database Schema", meta.get("created_schema"), "Version of the database's tables."),
    )
    theirs = {"PyProf Version": "DLProf Version", "Database Schema": "DLProf Build"}
    for name, value, text in values:
        shown = f"PyProf {value}" if name == "PyProf Version" else value
        yield Row(_SYSTEM, name, None, shown, "", text, theirs.get(name, name))


def _iterations(source: Source) -> Iterator[Row]:
    one, section = source.aggregation, _ITERATIONS
    total = source.store.rows(
        "select count(distinct number) from iteration where iteration_set = ?", (one.iteration_set,)
    )[0][0]
    yield Row(
        section, "Total Iterations", None, total, "count", "Iterations of the recording.", "Total Iterations"
    )
    yield _metric(source, "iterations", section, "Aggregated Iterations")
    yield Row(
        section, "Start Iteration", None, one.first, "", "The first in the window, from 0.", "Start Iteration"
    )
    yield Row(section, "Stop Iteration", None, one.last, "", "The last in the window.", "Stop Iteration")
    yield _metric(source, "average_iteration", section, "Average Iteration Time (ns)")
    yield _metric(source, "iteration_std", section, _HEADINGS["iteration_std"])
    yield Row(section, "Iterations Are", None, one.note, "", "What the recording was cut by.", "")
    yield Row(
        section, "Key Operator", None, one.key, "", "The operator that it was cut by, if it was one.", ""
    )


def _ops(source: Source) -> Iterator[Row]:
    totals = source.window.totals
    columns = (
        ("gpu", FIGURES["gpu"], "GPU Time (ns)"), ("cpu", FIGURES["cpu"], "CPU Time (ns)"),
        ("operators", Figure("Ops", "count", "Operators: places in the model, directions, shapes."), "# Ops"),
        ("calls", FIGURES["calls"], ""),
    )  # fmt: skip
    for prefix, (name, what) in _OP_ROWS.items():
        for key, figure, theirs in columns:
            value = (
                totals[prefix + key] if source.gpu or prefix not in ("using_", "missed_", "others_") else None
            )
            yield Row(_OPS, name, figure.heading, value, figure.unit, f"{what} {figure.text}", theirs)


def _kernels(source: Source) -> Iterator[Row]:
    totals = source.window.totals
    columns = (
        ("gpu", _SUM, "GPU Time (ns)"), ("api", FIGURES["kernel_api"], "CPU Time (ns)"),
        ("calls", _COUNT, "# Kernels"),
    )  # fmt: skip
    for prefix, (name, what) in _KERNEL_ROWS.items():
        for key, figure, theirs in columns:
            value = totals[prefix + key]
            known = source.gpu or (key != "api" and prefix in ("events_", "other_events_"))
            if key == "api" and totals[prefix + "calls"] and not totals[prefix + "launched"]:
                known = False
            shown = value if known else None
            theirs = "" if prefix == "unknown_events_" else theirs
            yield Row(_KERNELS, name, figure.heading, shown, figure.unit, f"{what} {figure.text}", theirs)

# SPDX-License-Identifier: Apache-2.0
"""Repeated sequences of kernels on a stream: candidates for fusion."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import KERNELS, MEMCPY, MEMSET, Ints
from pyprof.facts.steps.sequences import LONGEST, SHORTEST, repeats
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import codes, launched
from pyprof.reports import Column, View, report
from pyprof.store.ids import worker_of

_MOST = 1000  # rows
_BETWEEN = " > "


@report(
    "sequences",
    "Kernel Sequences",
    (
        Column("length", "Length", "count", f"Number of kernels in the sequence: {SHORTEST} to {LONGEST}."),
        Column("kernels", "Kernels", "", "Short names of the kernels in order, separated by >.", str),
        Column(
            "operators", "Operators", "",
            "Innermost operator of each kernel in the first occurrence; - for none.", str,
        ),
        Column(
            "occurrences", "Occurrences", "count",
            "Number of runs; of overlapping occurrences the earlier one counts.",
        ),
        Column("time_ns", "Time (ns)", "ns", "Sum of the times of its kernels."),
        Column("mean_ns", "Mean (ns)", "ns", "Time of its kernels in one occurrence.", float),
        Column(
            "share", "Share (%)", "%",
            "Time as a share of the time of all kernels; sequences may share kernels.", float,
        ),
        Column(
            "gap_ns", "Mean Gap (ns)", "ns",
            "Mean time from the end of a kernel to the start of the next one in it.", float,
        ),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sort="-time_ns"),
)  # fmt: skip
def sequences(source: Source) -> pd.DataFrame:
    """One row per sequence of kernels that runs at least twice on a stream, sorted by time: candidates for fusion.
    Kernels are of one sequence if nothing else runs between them on their stream, whatever the gap; they are equal
    if their full names are. Collectives are kernels; copies and sets end a sequence. A sequence that is always part
    of a longer one is left out; one longer than 6 kernels is shown in pieces. At most 1,000 rows. A recording
    without a GPU has no rows."""
    names = ("name", "start_ns", "duration_ns", "kind", "site", "device", "stream")
    cell = {name: codes(column) for name, column in launched(source, names, (*KERNELS, MEMCPY, MEMSET)).items()}
    queue = pd.factorize((worker_of(cell["id"]) << 20) + cell["device"])[0]
    order = np.lexsort((cell["id"], cell["start_ns"], cell["stream"], queue))
    cell = {name: values[order] for name, values in cell.items()}
    queue, kernel = queue[order], np.isin(cell["kind"], KERNELS)
    ends = np.zeros(len(order), bool)
    ends[1:] = (queue[1:] != queue[:-1]) | (cell["stream"][1:] != cell["stream"][:-1])
    run = np.cumsum(ends | ~kernel, dtype=np.int64)[kernel]
    cell = {name: values[kernel] for name, values in cell.items()}
    table = _figures(cell, run)
    time = int(cell["duration_ns"].sum())
    table["mean_ns"] = table["time_ns"] / table["occurrences"]
    table["share"] = 100 * table["time_ns"] / max(time, 1)
    table = table.sort_values(["time_ns", "length", "first"], ascending=[False, False, True], ignore_index=True)
    return _add_names(source, table.iloc[:_MOST].copy(), cell)


def _figures(cell: dict[str, Ints], run: Ints) -> pd.DataFrame:
    """Return length, first index, occurrences, time and mean gap of each sequence."""
    start, duration = cell["start_ns"], cell["duration_ns"]
    time = np.r_[0, np.cumsum(duration)]
    gap = np.r_[0, np.cumsum(np.maximum(start[1:] - (start + duration)[:-1], 0))]
    frames = []
    for group in repeats(cell["name"], run):
        of_time, of_gap = np.zeros(len(group.first), np.int64), np.zeros(len(group.first), np.int64)
        np.add.at(of_time, group.pattern, time[group.places + group.length] - time[group.places])
        np.add.at(of_gap, group.pattern, gap[group.places + group.length - 1] - gap[group.places])
        calls = np.bincount(group.pattern, minlength=len(group.first))
        frames.append(pd.DataFrame({
            "length": group.length, "first": group.first, "occurrences": calls, "time_ns": of_time,
            "gap_ns": of_gap / (np.maximum(calls, 1) * (group.length - 1)),
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _add_names(source: Source, table: pd.DataFrame, cell: dict[str, Ints]) -> pd.DataFrame:
    """Add the names of kernels and operators."""
    names = dict(source.store.rows("select id, short_name from kernel_name"))
    operators = dict(source.store.rows("select id, op from site"))
    kernels, launched_by = [], []
    for first, length in zip(table["first"].tolist(), table["length"].tolist()):
        kernels.append(_BETWEEN.join(names[number] for number in cell["name"][first : first + length].tolist()))
        sites = cell["site"][first : first + length].tolist()
        launched_by.append(_BETWEEN.join(operators.get(number) or "-" for number in sites))
    return table.assign(kernels=kernels, operators=launched_by)

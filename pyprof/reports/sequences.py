# SPDX-License-Identifier: Apache-2.0
"""Kernels that run one after the other, again and again: what could be one kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.analysis.sequences import LONGEST, SHORTEST, repeats
from pyprof.analysis.source import Source
from pyprof.model import KERNEL, Ints
from pyprof.reports import Column, View, report
from pyprof.reports.operator_queries import launched

_MOST = 1000  # rows
_BETWEEN = " > "


@report(
    "sequences",
    "Kernel Sequences",
    (
        Column("length", "Length", "count", f"Kernels of the sequence: {SHORTEST} to {LONGEST}."),
        Column("kernels", "Kernels", "", "Short names of the kernels in their order, with > between them.", str),
        Column("operators", "Operators", "", "Innermost operator of each where the sequence is first; - of none.", str),
        Column(
            "occurrences", "Occurrences", "count",
            "How often it runs; of occurrences that overlap the earlier one counts.",
        ),
        Column("time_ns", "Time (ns)", "ns", "Sum of the times of its kernels."),
        Column("mean_ns", "Mean (ns)", "ns", "Time of its kernels in one occurrence.", float),
        Column("share", "Share (%)", "%", "Time as a share of that of all kernels; sequences share kernels.", float),
        Column(
            "gap_ns", "Mean Gap (ns)", "ns",
            "From the end of a kernel to the start of the next one in it: mean of all gaps.", float,
        ),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sort="-time_ns", bar="time_ns"),
)  # fmt: skip
def sequences(source: Source) -> pd.DataFrame:
    """One row per sequence of kernels that runs at least twice on a stream, by time: candidates for fusion. Kernels are
    of one sequence if nothing else runs between them on their stream, whatever the gap; they are equal if their whole
    names are. Collectives are kernels, copies and sets end a sequence. A sequence that is always part of a longer one
    is left out; one longer than 6 kernels is shown in pieces. At most 1,000 rows, none without a GPU."""
    event = launched(
        source,
        "name, start, dur, kind, coalesce(site, -1) as site, coalesce(device, -1) as device, "
        "coalesce(stream, -1) as stream",
        "kind < 3",
    )
    cell = {name: column.values for name, column in event.items()}
    queue = pd.factorize((cell["id"] >> 40 << 20) + cell["device"])[0]
    order = np.lexsort((cell["id"], cell["start"], cell["stream"], queue))
    cell = {name: values[order] for name, values in cell.items()}
    queue, kernel = queue[order], cell["kind"] == KERNEL
    ends = np.zeros(len(order), bool)
    ends[1:] = (queue[1:] != queue[:-1]) | (cell["stream"][1:] != cell["stream"][:-1])
    run = np.cumsum(ends | ~kernel)[kernel]
    cell = {name: values[kernel] for name, values in cell.items()}
    found = _figures(cell, run)
    time = int(cell["dur"].sum())
    found["mean_ns"] = found["time_ns"] / found["occurrences"]
    found["share"] = 100 * found["time_ns"] / max(time, 1)
    found = found.sort_values(
        ["time_ns", "length", "first"], ascending=[False, False, True], ignore_index=True
    )
    return _named(source, found.iloc[:_MOST].copy(), cell)


def _figures(cell: dict[str, Ints], run: Ints) -> pd.DataFrame:
    """Length, first place, occurrences, time and mean gap of each sequence."""
    start, duration = cell["start"], cell["dur"]
    time = np.r_[0, np.cumsum(duration)]
    gap = np.r_[0, np.cumsum(np.maximum(start[1:] - (start + duration)[:-1], 0))]
    frames = []
    for one in repeats(cell["name"], run):
        of_time, of_gap = np.zeros(len(one.first), np.int64), np.zeros(len(one.first), np.int64)
        np.add.at(of_time, one.pattern, time[one.places + one.length] - time[one.places])
        np.add.at(of_gap, one.pattern, gap[one.places + one.length - 1] - gap[one.places])
        calls = np.bincount(one.pattern, minlength=len(one.first))
        frames.append(pd.DataFrame({
            "length": one.length, "first": one.first, "occurrences": calls, "time_ns": of_time,
            "gap_ns": of_gap / (np.maximum(calls, 1) * (one.length - 1)),
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _named(source: Source, found: pd.DataFrame, cell: dict[str, Ints]) -> pd.DataFrame:
    names = dict(source.store.rows("select id, short_name from kernel_name"))
    operators = dict(source.store.rows("select id, op from site"))
    kernels, launched_by = [], []
    for first, length in zip(found["first"].tolist(), found["length"].tolist()):
        kernels.append(_BETWEEN.join(names[one] for one in cell["name"][first : first + length].tolist()))
        sites = cell["site"][first : first + length].tolist()
        launched_by.append(_BETWEEN.join(operators.get(one) or "-" for one in sites))
    return found.assign(kernels=kernels, operators=launched_by)

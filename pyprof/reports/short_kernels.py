# SPDX-License-Identifier: Apache-2.0
"""Kernel durations: a histogram, and the operators whose kernels are short."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import KERNEL, Ints
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import codes, distinct, launched
from pyprof.reports import Column, Option, View, report

# Bounds of the histogram in ns: 1, 2, 5, 10 ... us, up to hours.
EDGES = np.array([digit * 10**power for power in range(3, 13) for digit in (1, 2, 5)], np.int64)
_LIMITS = ("5us", "1us", "2us", "10us", "20us", "50us", "100us")
_HISTOGRAM = ("from_ns", "to_ns", "kernels_cumulative", "time_cumulative")
_OPERATORS = ("operator", "mean_ns", "of_kernels")


@report(
    "short_kernels",
    "Short Kernels",
    (
        Column("from_ns", "From (ns)", "ns", "Lower bound of the kernel times, inclusive."),
        Column("to_ns", "To (ns)", "ns", "Upper bound of the kernel times, exclusive."),
        Column("operator", "Operator", "", "Innermost operator that launched them; empty if none did.", str),
        Column(
            "kernels",
            "Kernels",
            "count",
            "Kernels in this range of times; for an operator, those below the limit.",
        ),
        Column("time_ns", "Time (ns)", "ns", "Sum of their times."),
        Column("mean_ns", "Mean (ns)", "ns", "Time divided by kernels.", float),
        Column("of_kernels", "Kernels of the Operator", "count", "All kernels of the operator, including longer ones."),
        Column("kernels_share", "Kernels (%)", "%", "Kernels as a share of all kernels.", float),
        Column("time_share", "Time (%)", "%", "Time as a share of the time of all kernels.", float),
        Column("kernels_cumulative", "Kernels Up to Here (%)", "%", "Share of kernels shorter than To.", float),
        Column("time_cumulative", "Time Up to Here (%)", "%", "Share of time in kernels shorter than To.", float),
    ),
    options=(
        Option(
            "by",
            "What each row covers: a range of times, or an operator with kernels below the limit.",
            {"time": _OPERATORS, "operator": _HISTOGRAM},
        ),
        Option("below", "The limit of --by=operator.", dict.fromkeys(_LIMITS, ())),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sums="kernels time_ns"),
)
def short_kernels(source: Source, by: str, below: str) -> pd.DataFrame:
    """One row per range of times, in steps of 1, 2 and 5, from that of the shortest to that of the longest kernel
    launched in the aggregated iterations; with --by=operator, one per operator with kernels below the limit,
    sorted by their number. A kernel that takes less time than its launch, a few microseconds, makes the GPU wait for
    the CPU. Copies and sets are not kernels; collectives are. A recording without a GPU has no rows."""
    event = launched(source, ("duration_ns", "site"), (KERNEL,))
    duration = event["duration_ns"].values
    if by == "time":
        table = _histogram(duration)
    else:
        table = _operators(source, duration, codes(event["site"]), int(below.removesuffix("us")) * 1000)
    for name, of in (("kernels", len(duration)), ("time_ns", int(duration.sum()))):
        table[f"{name.removesuffix('_ns')}_share"] = 100 * table[name] / max(of, 1)
    for name in ("kernels", "time"):
        table[f"{name}_cumulative"] = table[f"{name}_share"].cumsum()
    return table


def _histogram(duration: Ints) -> pd.DataFrame:
    """Return number and time of the kernels in each range of times; empty ranges between others are included."""
    place = np.searchsorted(EDGES, duration, side="right")
    low = int(place.min(initial=len(EDGES)))
    high = int(place.max(initial=low - 1)) + 1
    time = np.zeros(len(EDGES) + 1, np.int64)
    np.add.at(time, place, duration)
    table = pd.DataFrame({
        "from_ns": np.r_[0, EDGES], "to_ns": pd.array([*EDGES.tolist(), None], "Int64"),
        "kernels": np.bincount(place, minlength=len(EDGES) + 1), "time_ns": time,
    })  # fmt: skip
    return table.iloc[low:high].reset_index(drop=True)


def _operators(source: Source, duration: Ints, site: Ints, limit: int) -> pd.DataFrame:
    """Return operators with kernels below the limit, sorted by the number of these."""
    names, code = distinct(source.store.rows("select id, op from site"), (None,))
    short = np.where(duration < limit, duration, 0)
    frame = pd.DataFrame({"row": code[site], "kernels": duration < limit, "time_ns": short, "of_kernels": 1})
    table = frame.groupby("row").sum().reset_index()
    table = table[table["kernels"] > 0].sort_values(
        ["kernels", "time_ns"], ascending=False, kind="stable", ignore_index=True
    )
    return table.assign(
        operator=[names[row][0] for row in table["row"].tolist()], mean_ns=table["time_ns"] / table["kernels"]
    )

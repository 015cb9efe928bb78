# SPDX-License-Identifier: Apache-2.0
"""Calls of the CUDA or HIP API: how often, how long, and what they launched."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.analysis.source import API_KINDS, Source
from pyprof.analysis.timeline import Activity
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import bounds, distinct, distribution, spans, started
from pyprof.reports.step_time import WORKER

_PER_THREAD = ("worker", "thread")


@report(
    "api_calls",
    "API Calls",
    (
        WORKER,
        Column("thread", "Thread", "", "Number of the thread that called, as the system has it."),
        Column("name", "Name", "", "The function, without the version that CUPTI adds.", str),
        Column("kind", "Kind", "", f"What it does: {', '.join(API_KINDS)}.", str),
        Column("calls", "Calls", "count", "Calls that start in the aggregated iterations."),
        Column("total_ns", "Total (ns)", "ns", "Sum of their times on the CPU; a call within a call counts in both."),
        Column(
            "share", "Share of the Window (%)", "%",
            "Total as a share of the time of the aggregated iterations; of several threads the mean of their shares.",
            float,
        ),
        Column("mean_ns", "Mean (ns)", "ns", "Total divided by calls.", float),
        Column("median_ns", "Median (ns)", "ns", "The middle one, of two the mean.", float),
        Column("p95_ns", "95th Percentile (ns)", "ns", "The shortest that 95 % of the calls do not exceed."),
        Column("min_ns", "Min (ns)", "ns", "The shortest."),
        Column("max_ns", "Max (ns)", "ns", "The longest."),
        Column("kernels", "Kernels", "count", "Kernels that they launched; of a graph's launch all of its replay."),
        Column("copies", "Copies and Sets", "count", "Copies and sets that they started."),
    ),
    options=(
        Option(
            "group_by",
            "What a row is of: a function, or a function on a thread.",
            {"name": _PER_THREAD, "thread": ()},
        ),
    ),
    needs="calls of the CUDA or HIP API",
    view=View("Kernels", sort="-total_ns", bar="total_ns"),
)  # fmt: skip
def api_calls(source: Source, group_by: str) -> pd.DataFrame:
    """One row per function of the CUDA or HIP API that was called in the aggregated iterations, by total time; with
    --group-by=thread per worker, thread and function. Rows of several workers are added up. What a call returned is
    not recorded. None in a recording without a GPU."""
    texts = source.store.rows("select id, text from string")
    names, code = distinct(((number, text.partition("_v")[0]) for number, text in texts), (None,))
    frames = [_calls(source.activity(low >> 40), source) for low, _ in spans(source)]
    found = pd.concat(frames) if frames else pd.DataFrame(columns=_CALLS, dtype=np.int64)
    found["name"] = code[found.pop("text").to_numpy(np.int64)]
    keys = ["name", "kind"] if group_by == "name" else ["worker", "thread", "name", "kind"]
    grouped = found.groupby(keys, sort=True)
    row = grouped.ngroup().to_numpy()
    table = grouped[["kernels", "copies"]].sum().reset_index()
    sums = distribution(row, found["dur"].to_numpy(), len(table))
    threads = found.assign(row=row).drop_duplicates(["row", "worker", "thread"])
    windows = threads.groupby("row")["window"].sum()
    table["calls"], table["total_ns"] = sums["calls"], sums["total"]
    table["share"] = 100 * sums["total"] / windows.where(windows > 0)
    for name in ("mean", "median", "p95", "min", "max"):
        table[f"{name}_ns"] = sums[name]
    table["name"] = [names[number][0] for number in table["name"].tolist()]
    table["kind"] = [API_KINDS[number] for number in table["kind"].tolist()]
    if group_by == "thread":
        workers = dict(source.store.rows("select id, name from worker"))
        tids = dict(source.store.rows("select id, tid from thread"))
        table["worker"] = [workers[number] for number in table["worker"].tolist()]
        table["thread"] = [tids[number] for number in table["thread"].tolist()]
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


_CALLS = ["worker", "thread", "text", "kind", "dur", "kernels", "copies", "window"]


def _calls(activity: Activity, source: Source) -> pd.DataFrame:
    """Each call of a worker, and how long the worker's aggregated iterations are."""
    call = {name: column.values for name, column in activity.call.items()}
    of_kernels = np.bincount(activity.launch[activity.launched & activity.kernel], minlength=len(call["id"]))
    of_copies = np.bincount(activity.launch[activity.launched & ~activity.kernel], minlength=len(call["id"]))
    start, end = bounds(source, activity.worker)
    inside = np.flatnonzero(started(source, activity.worker, activity.span[1], call["start"]))
    return pd.DataFrame({
        "worker": activity.worker, "thread": call["thread"][inside], "text": call["name"][inside],
        "kind": call["kind"][inside], "dur": call["dur"][inside], "kernels": of_kernels[inside],
        "copies": of_copies[inside], "window": end - start,
    })  # fmt: skip

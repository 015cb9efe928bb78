# SPDX-License-Identifier: Apache-2.0
"""Calls of the CUDA or HIP API: number, time, and the work that they launched."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.analysis.source import API_KINDS, Source
from pyprof.analysis.timeline import Activity
from pyprof.api_names import without_version
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import bounds, distinct, distribution, spans, started
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.ids import worker_of

_PER_THREAD = ("worker", "thread")


@report(
    "api_calls",
    "API Calls",
    (
        WORKER,
        Column("thread", "Thread", "", "System number (TID) of the calling thread."),
        Column("name", "Name", "", "Name of the function, without the version suffix that CUPTI adds.", str),
        Column("kind", "Kind", "", f"Kind of work: {', '.join(API_KINDS)}.", str),
        Column("calls", "Calls", "count", "Calls that start in the aggregated iterations."),
        Column(
            "total_ns", "Total (ns)", "ns",
            "Sum of their times on the CPU; a nested call also counts in the outer one.",
        ),
        Column(
            "share", "Share of the Window (%)", "%",
            "Total as a share of the time of the aggregated iterations; for several threads, the mean of their shares.",
            float,
        ),
        Column("mean_ns", "Mean (ns)", "ns", "Total divided by calls.", float),
        Column("median_ns", "Median (ns)", "ns", "Median; of two middle values their mean.", float),
        Column("p95_ns", "95th Percentile (ns)", "ns", "Shortest time that 95 % of the calls do not exceed."),
        Column("min_ns", "Min (ns)", "ns", "Shortest."),
        Column("max_ns", "Max (ns)", "ns", "Longest."),
        Column(
            "kernels", "Kernels", "count",
            "Kernels that they launched; for a graph launch, all kernels of the replay.",
        ),
        Column("copies", "Copies and Sets", "count", "Copies and sets that they started."),
    ),
    options=(
        Option(
            "group_by",
            "What each row covers: a function, or a function on a thread.",
            {"name": _PER_THREAD, "thread": ()},
        ),
    ),
    needs="calls of the CUDA or HIP API",
    view=View("Kernels", sort="-total_ns", sums="calls total_ns kernels copies"),
)  # fmt: skip
def api_calls(source: Source, group_by: str) -> pd.DataFrame:
    """One row per function of the CUDA or HIP API called in the aggregated iterations, sorted by total time; with
    --group-by=thread, one per worker, thread and function. Values of several workers are summed. Return values are
    not recorded. A recording without a GPU has no rows."""
    texts = source.store.rows("select id, text from string")
    names, code = distinct(((number, without_version(text)) for number, text in texts), (None,))
    frames = [_calls(source.activity(worker_of(low)), source) for low, _ in spans(source)]
    calls = pd.concat(frames) if frames else pd.DataFrame(columns=_CALLS, dtype=np.int64)
    calls["name"] = code[calls.pop("text").to_numpy(np.int64)]
    keys = ["name", "kind"] if group_by == "name" else ["worker", "thread", "name", "kind"]
    grouped = calls.groupby(keys, sort=True)
    row = grouped.ngroup().to_numpy()
    table = grouped[["kernels", "copies"]].sum().reset_index()
    sums = distribution(row, calls["duration_ns"].to_numpy(), len(table))
    threads = calls.assign(row=row).drop_duplicates(["row", "worker", "thread"])
    windows = threads.groupby("row")["window"].sum()
    table["calls"], table["total_ns"] = sums["calls"], sums["total"]
    table["share"] = 100 * sums["total"] / windows.where(windows > 0)
    for name in ("mean", "median", "p95", "min", "max"):
        table[f"{name}_ns"] = sums[name]
    table["name"] = [names[number][0] for number in table["name"].tolist()]
    table["kind"] = [API_KINDS[number] for number in table["kind"].tolist()]
    if group_by == "thread":
        workers = reads.worker_names(source.store)
        tids = dict(source.store.rows("select id, tid from thread"))
        table["worker"] = [workers[number] for number in table["worker"].tolist()]
        table["thread"] = [tids[number] for number in table["thread"].tolist()]
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


_CALLS = ["worker", "thread", "text", "kind", "duration_ns", "kernels", "copies", "window"]


def _calls(activity: Activity, source: Source) -> pd.DataFrame:
    """Return the calls of a worker, each with the length of the worker's aggregated iterations."""
    call = {name: column.values for name, column in activity.call.items()}
    of_kernels = np.bincount(activity.launch[activity.launched & activity.kernel], minlength=len(call["id"]))
    of_copies = np.bincount(activity.launch[activity.launched & ~activity.kernel], minlength=len(call["id"]))
    start, end = bounds(source, activity.worker)
    inside = np.flatnonzero(started(source, activity.worker, activity.span[1], call["start_ns"]))
    return pd.DataFrame({
        "worker": activity.worker, "thread": call["thread"][inside], "text": call["name"][inside],
        "kind": call["kind"][inside], "duration_ns": call["duration_ns"][inside], "kernels": of_kernels[inside],
        "copies": of_copies[inside], "window": end - start,
    })  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Calls of the CUDA or HIP API: number, time, and the work that they launched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.api_names import without_version
from pyprof.core.model import Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.source import API_KINDS, Source
from pyprof.measures.queries import bounds, distinct, distribution, spans, started
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.ids import worker_of

_PER_THREAD = ("worker", "thread")
_KEYS = {"thread": "thread", "text": "name", "kind": "kind"}  # columns of calls that tell rows apart


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
            "by",
            "What each row covers: a function, or a function on a thread.",
            {"name": _PER_THREAD, "thread": ()},
        ),
    ),
    needs="calls of the CUDA or HIP API",
    view=View("Kernels", sort="-total_ns", sums="calls total_ns kernels copies"),
)  # fmt: skip
def api_calls(source: Source, by: str) -> pd.DataFrame:
    """One row per function of the CUDA or HIP API called in the aggregated iterations, sorted by total time; with
    --by=thread, one per worker, thread and function. Values of several workers are summed. Return values are
    not recorded. A recording without a GPU has no rows."""
    texts = source.store.rows("select id, text from string")
    names, code = distinct(((number, without_version(text)) for number, text in texts), (None,))
    parts = [_calls(source.activity(worker_of(low)), source) for low, _ in spans(source)]
    calls = pd.concat([part.table for part in parts]) if parts else pd.DataFrame(columns=_CALLS, dtype=np.int64)
    calls["name"] = code[calls.pop("text").to_numpy(np.int64)]
    keys = ["name", "kind"] if by == "name" else ["worker", "thread", "name", "kind"]
    grouped = calls.groupby(keys, sort=True)
    row = grouped.ngroup().to_numpy()
    table = grouped[["kernels", "copies"]].sum().reset_index()
    first = np.cumsum([0, *(len(part.table) for part in parts)]).tolist()
    of_call = [row[start + part.code] for start, part in zip(first, parts)]
    sums = distribution(
        np.concatenate([np.empty(0, np.int64), *of_call]),
        np.concatenate([np.empty(0, np.int64), *(part.duration for part in parts)]),
        len(table),
    )
    threads = calls.assign(row=row).drop_duplicates(["row", "worker", "thread"])
    windows = threads.groupby("row")["window"].sum()
    table["calls"], table["total_ns"] = sums["calls"], sums["total"]
    table["share"] = 100 * sums["total"] / windows.where(windows > 0)
    for name in ("mean", "median", "p95", "min", "max"):
        table[f"{name}_ns"] = sums[name]
    table["name"] = [names[number][0] for number in table["name"].tolist()]
    table["kind"] = [API_KINDS[number] for number in table["kind"].tolist()]
    if by == "thread":
        workers = reads.worker_names(source.store)
        tids = dict(source.store.rows("select id, tid from thread"))
        table["worker"] = [workers[number] for number in table["worker"].tolist()]
        table["thread"] = [tids[number] for number in table["thread"].tolist()]
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


_CALLS = ["worker", "thread", "text", "kind", "kernels", "copies", "window"]


class _Calls(NamedTuple):
    """The calls of a worker: their rows of `table`, one for each function on each thread, and their lengths in ns."""

    table: pd.DataFrame
    code: Ints
    duration: Ints


def _calls(activity: Activity, source: Source) -> _Calls:
    """Return the aggregated calls of a worker; `window`: the length of its iterations on the host."""
    start, end = bounds(source, activity.worker)
    begun = activity.of_calls("start_ns").values
    inside = np.flatnonzero(started(source, activity.worker, activity.span[1], begun))
    size = len(begun)
    del begun
    keys = {name: activity.of_calls(column).values[inside] for name, column in _KEYS.items()}
    which = np.zeros(len(inside), np.int64)
    for values in keys.values():
        which = which * (int(values.max(initial=0)) + 1) + values
    code, unique = pd.factorize(which)
    place = np.zeros(len(unique), np.int64)  # of a call of each
    place[code] = np.arange(len(code))
    table = pd.DataFrame({name: values[place].astype(np.int64) for name, values in keys.items()})
    for name, of_kernels in (("kernels", True), ("copies", False)):
        launches = activity.launch[activity.launched & (activity.kernel == of_kernels)]
        launched = np.bincount(launches, minlength=size)[inside]
        sums = np.zeros(len(table), np.int64)
        np.add.at(sums, code, launched)
        table[name] = sums
    table = table.assign(worker=activity.worker, window=end - start)[_CALLS]
    return _Calls(table, code, activity.of_calls("duration_ns").values[inside])

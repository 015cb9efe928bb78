# SPDX-License-Identifier: Apache-2.0
"""The user's ranges (NVTX, record_function): time on the CPU, and the GPU work launched in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core import intervals
from pyprof.core.model import PUSH_POP, START_END
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.user_ranges import instances
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import distribution, spans, started
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.ids import worker_of

_STYLES = {PUSH_POP: "push/pop", START_END: "start/end"}
_ON_GPU = (
    "kernels",
    "copies",
    "busy_ns",
    "projected",
    *(f"gpu_{one}_ns" for one in ("total", "median", "min", "max")),
)
_OUTSIDE = -1  # kind of work launched outside ranges


@report(
    "ranges",
    "User Ranges",
    (
        WORKER,
        Column("thread", "Thread", "", "System number (TID) of the thread that opened it."),
        Column(
            "path", "Range", "",
            "Texts of the ranges around it and its own, separated by /; empty for work launched outside all "
            "ranges.", str,
        ),
        Column(
            "style", "Style", "",
            "push/pop: ranges that nest, including record_function; start/end: any others.", str,
        ),
        Column("instances", "Instances", "count", "Ranges that start in the aggregated iterations."),
        Column("host_total_ns", "Host Total (ns)", "ns", "Sum of their times on the CPU."),
        Column("host_median_ns", "Host Median (ns)", "ns", "Median; of two middle values their mean.", float),
        Column("host_min_ns", "Host Min (ns)", "ns", "Shortest."),
        Column("host_max_ns", "Host Max (ns)", "ns", "Longest."),
        Column("kernels", "Kernels", "count", "Kernels launched in them, by their thread."),
        Column("copies", "Copies and Sets", "count", "Copies and sets started in them, by their thread."),
        Column(
            "busy_ns", "GPU Busy (ns)", "ns",
            "Time in which at least one of these ran, on any device, summed over the ranges.",
        ),
        Column("projected", "Instances on the GPU", "count", "Ranges that launched GPU work."),
        Column(
            "gpu_total_ns", "GPU Span (ns)", "ns",
            "Sum of the times from the start of the first to the end of the last event launched in each; empty if "
            "there is none.",
        ),
        Column("gpu_median_ns", "GPU Span Median (ns)", "ns", "Median; of two middle values their mean.", float),
        Column("gpu_min_ns", "GPU Span Min (ns)", "ns", "Shortest."),
        Column("gpu_max_ns", "GPU Span Max (ns)", "ns", "Longest."),
    ),
    options=(
        Option(
            "by", "What each row covers: ranges of one path, or of one path on a thread.",
            {"path": ("worker", "thread"), "thread": ()},
        ),
    ),
    needs="NVTX ranges or record_function",
    view=View("Operators"),
)  # fmt: skip
def ranges(source: Source, by: str) -> pd.DataFrame:
    """One row per path of the user's ranges that start in the aggregated iterations, sorted by time on the CPU; with
    --by=thread, one per worker, thread and path. Without iterations, all ranges count. Work launched in a
    range also counts for the ranges around it. Ranges that mark steps and those of operators are left out, in paths
    too. A start/end range has a path of its own and covers what its thread launches. Values of several workers are
    summed. Without a GPU, its columns are empty."""
    texts = reads.texts(source.store)
    frames = [_worker(source.activity(worker_of(low)), source, texts, (low, high)) for low, high in spans(source)]
    rows = pd.concat(frames) if frames else pd.DataFrame(columns=_INSTANCE)
    if not len(rows.index) or (rows["kind"] == _OUTSIDE).all():
        rows = rows.iloc[:0]
    keys = ["path", "kind"] if by == "path" else ["worker", "thread", "path", "kind"]
    table = _table(rows, keys)
    if not source.gpu:
        table = table.assign(**dict.fromkeys(_ON_GPU))
    if by == "thread":
        workers = reads.worker_names(source.store)
        tids = dict(source.store.rows("select id, tid from thread"))
        table["worker"] = [workers[number] for number in table["worker"].tolist()]
        table["thread"] = [tids.get(number) for number in table["thread"].tolist()]
    return table


_INSTANCE = ["worker", "thread", "path", "kind", "host", "kernels", "copies", "busy", "span"]


def _table(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return one row per key: sums and quantiles of its instances."""
    grouped = rows.groupby(keys, sort=True)
    row = grouped.ngroup().to_numpy(np.int64)
    table = grouped[["kernels", "copies", "busy"]].sum().reset_index().rename(columns={"busy": "busy_ns"})
    host = distribution(row, rows["host"].to_numpy(np.int64), len(table))
    projected = rows["span"].to_numpy(np.int64) >= 0
    gpu = distribution(row[projected], rows["span"].to_numpy(np.int64)[projected], len(table))
    inside = table["kind"] != _OUTSIDE
    table["instances"] = host["calls"].where(inside)
    for name in ("total", "median", "min", "max"):
        table[f"host_{name}_ns"] = host[name].where(inside)
        table[f"gpu_{name}_ns"] = gpu[name].where(inside & (gpu["calls"] > 0))
    table["projected"] = gpu["calls"].where(inside)
    order = table.assign(last=~inside).sort_values(
        ["last", "host_total_ns", "path"], ascending=[True, False, True], kind="stable"
    )
    table = table.loc[order.index].reset_index(drop=True)
    table["path"] = table["path"].where(table["kind"] != _OUTSIDE)
    table["style"] = table["kind"].map(_STYLES)
    return table


def _worker(activity: Activity, source: Source, texts: dict[int, str], launched: tuple[int, int]) -> pd.DataFrame:
    """Return the instances of a worker, and what was launched outside them as one of kind -1."""
    table, events = instances(activity, texts)
    start = table.pop("start").to_numpy(np.int64)
    if source.aggregation.method != "none":  # otherwise the first range may begin before the recording
        table = table[started(source, activity.worker, activity.span[1], start)]
    events = events[slice(*np.searchsorted(activity.id[events], launched))]
    if not len(table) or not len(events):
        return table
    kernels = int(activity.kernel[events].sum())
    busy = intervals.union_by(np.zeros(len(events), np.int64), activity.start[events], activity.end[events], 1)
    outside = (activity.worker, -1, "", _OUTSIDE, 0, kernels, len(events) - kernels, int(busy[0]), -1)
    return pd.concat([table, pd.DataFrame([outside], columns=_INSTANCE)])

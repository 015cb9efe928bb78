# SPDX-License-Identifier: Apache-2.0
"""Operators that take longer on some ranks than on others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.detail import OP_ID
from pyprof.store import reads

# A rank is an outlier by the rule of Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993): |x - median| is
# more than 3.5 / 0.6745 median absolute deviations, and, as ranks may be equal to the ns, more than 1 % of the median.
_DEVIATIONS = 3.5 / 0.6745
_LEAST = 0.01
_OVER = "over all workers; one that does not execute the operator counts with 0"
_COLUMNS = (
    Column("operator", "Operator", "", "Path of the operator.", str),
    OP_ID,
    Column("ranks", "Ranks", "count", "Workers that execute it."),
    Column("calls", "Calls", "count", "Executions, of all workers."),
    Column(
        "total_ns", "Total (ns)", "ns",
        "Time of its GPU events, of all workers; without a GPU, its own time on the CPU.",
    ),
    Column("mean_ns", "Mean (ns)", "ns", f"Mean {_OVER}.", float),
    Column("std_ns", "Std. Dev. (ns)", "ns", f"Standard deviation {_OVER}.", float),
    Column("min_ns", "Min (ns)", "ns", f"Minimum {_OVER}."),
    Column("max_ns", "Max (ns)", "ns", f"Maximum {_OVER}."),
    Column("worst", "Worst", "", "Worker with the most time; of several the first.", str),
    Column(
        "outliers", "Outliers", "",
        "Workers whose time is further from the median than 5.19 times the median of these distances (the modified "
        "z-score of 3.5 of Iglewicz and Hoaglin), and than 1 % of the median; empty if there are none.", str,
    ),
)  # fmt: skip


@report(
    "rank_operators",
    "Operators over Ranks",
    _COLUMNS,
    of_summary=True,
    view=View("Operators", sort="-total_ns"),
)
def rank_operators(source: Source) -> pd.DataFrame:
    """One row per operator of the aggregated iterations, by total time: how different its time is on the workers. With
    one worker selected, the others still count."""
    store = source.store
    names = reads.worker_names(store)
    columns = store.columns(
        f"select worker, operator, calls, gpu_ns, cpu_ns from op_stat where aggregation = {source.aggregation.id}"
    )
    used, place = np.unique(columns["operator"].values, return_inverse=True)
    rank = np.searchsorted(np.array(list(names)), columns["worker"].values)
    times, calls = np.zeros((len(used), len(names)), np.int64), np.zeros((len(used), len(names)), np.int64)
    times[place, rank] = columns["gpu_ns" if source.gpu else "cpu_ns"].values
    calls[place, rank] = columns["calls"].values
    median = np.median(times, axis=1)
    distance = np.abs(times - median[:, None])
    limit = np.maximum(_DEVIATIONS * np.median(distance, axis=1), _LEAST * median)
    outlier = distance > limit[:, None]
    described = {row[0]: row[1:] for row in store.rows("select id, name, op_id from operator")}
    text = np.array(list(names.values()), object)
    table = pd.DataFrame(
        {
            "operator": [described[number][0] for number in used.tolist()],
            "op_id": [described[number][1] for number in used.tolist()],
            "ranks": (calls > 0).sum(axis=1),
            "calls": calls.sum(axis=1),
            "total_ns": times.sum(axis=1),
            "mean_ns": times.mean(axis=1),
            "std_ns": times.std(axis=1),
            "min_ns": times.min(axis=1),
            "max_ns": times.max(axis=1),
            "worst": text[times.argmax(axis=1)],
            "outliers": [", ".join(text[row]) or None for row in outlier],
        }
    )
    return table.sort_values(["total_ns", "op_id"], ascending=[False, True], kind="stable", ignore_index=True)

# SPDX-License-Identifier: Apache-2.0
"""Figures over the ranks of a fleet, of its summary."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.analysis.stragglers import arrivals
from pyprof.reports.operator_queries import spans
from pyprof.session import Profile
from pyprof.store import reads

# A rank is an outlier by the rule of Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993): |x - median| is
# more than 3.5 / 0.6745 median absolute deviations, and, as ranks may be equal to the ns, more than 1 % of the median.
_DEVIATIONS = 3.5 / 0.6745
_LEAST = 0.01


def operators(profile: Profile) -> pd.DataFrame:
    """Return one row per operator, the longest first. A rank that does not execute it counts with 0."""
    store, aggregation = profile.database, profile.aggregation.id
    names = reads.worker_names(store)
    columns = store.columns(
        f"select worker, operator, calls, gpu_ns, cpu_ns from op_stat where aggregation = {aggregation}"
    )
    worker, operator = columns["worker"].values, columns["operator"].values
    used, place = np.unique(operator, return_inverse=True)
    rank = np.searchsorted(np.array(list(names)), worker)
    of = "gpu_ns" if profile.source().gpu else "cpu_ns"
    times, calls = np.zeros((len(used), len(names)), np.int64), np.zeros((len(used), len(names)), np.int64)
    times[place, rank] = columns[of].values
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
            "time": of,
            "ranks": (calls > 0).sum(axis=1),
            "calls": calls.sum(axis=1),
            "total_ns": times.sum(axis=1),
            "mean_ns": times.mean(axis=1),
            "std_ns": times.std(axis=1),
            "min_ns": times.min(axis=1),
            "max_ns": times.max(axis=1),
            "worst": text[times.argmax(axis=1)],
            "outliers": [", ".join(text[row]) for row in outlier],
        }
    )
    return table.sort_values(["total_ns", "op_id"], ascending=[False, True], kind="stable", ignore_index=True)


def stragglers(profile: Profile) -> pd.DataFrame:
    """Return what the report stragglers says of each rank, as far as kernels of collectives say it: not the causes."""
    source = profile.source()
    arrived = arrivals(source, spans(source))
    table = arrived.groupby(["worker", "device"], sort=True).agg(
        collectives=("duration_ns", "size"), times_last=("last", "sum"), late_ns=("late", "sum"),
        late_max=("late", "max"), alone_ns=("alone", "sum"),
    ).reset_index()  # fmt: skip
    names = reads.worker_names(source.store)
    table["worker"] = [names[number] for number in table["worker"]]
    return table.sort_values(["late_ns", "times_last"], ascending=False, kind="stable", ignore_index=True)

# SPDX-License-Identifier: Apache-2.0
"""Ranks by the lengths of their steps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER

_COLUMNS = (
    WORKER,
    Column("rank", "Rank", "", "Rank of the process; empty if it is not known."),
    Column("host", "Host", "", "Its host; empty if it is not known.", str),
    Column("steps", "Steps", "count", "Steps of step_time; those in which the recording ends count as well."),
    Column("step_avg", "Avg. Step (ns)", "ns", "Mean length of its steps.", float),
    Column("step_min", "Min Step (ns)", "ns", "Length of its shortest step."),
    Column("step_max", "Max Step (ns)", "ns", "Length of its longest step."),
    Column(
        "over_median_ns",
        "Over Median (ns)",
        "ns",
        "Mean step less that of the median worker; of an even number, less the mean of the two in the middle. Rounded.",
    ),
    Column("over_median", "Over Median (%)", "%", "The same as a share of the median.", float),
)


@report(
    "rank_times",
    "Ranks by Step Time",
    _COLUMNS,
    of_summary=True,
    view=View("Communication", sort="-step_avg"),
)
def rank_times(source: Source) -> pd.DataFrame:
    """One row per worker, by the mean length of its steps, the longest first. Steps are those of step_time. Ranks that
    wait for each other in collectives have steps of about the same length, whichever is late: the report stragglers
    says which one is."""
    whole = Source(source.store, source.aggregation)
    facts = {row[0]: row[1:] for row in source.store.rows("select id, name, rank, host from worker")}
    lengths = {activity.worker: steps.length(activity) for activity, steps in activities(whole)}
    mean = {worker: float(length.mean()) for worker, length in lengths.items()}
    median = float(np.median([*mean.values()])) if mean else 0.0
    rows = []
    for worker, length in sorted(lengths.items(), key=lambda one: (-mean[one[0]], one[0])):
        if source.worker in (None, worker):
            over = mean[worker] - median
            share = 100 * over / median if median else None
            sizes = (len(length), mean[worker], int(length.min()), int(length.max()))
            rows.append((*facts[worker], *sizes, round(over), share))
    return pd.DataFrame(rows, columns=[column.key for column in _COLUMNS], dtype=object)

# SPDX-License-Identifier: Apache-2.0
"""Steps of all ranks beside each other: how long each took, how late the rank was in it, and what it waited for.

A rank is a worker here; of its devices the latest counts. It is late at a collective by what its kernel is shorter than
that of the median rank, the one that arrived in the middle (the earlier of two): the kernels end together, so that this
needs no common clock (`stragglers`). A rank that says nothing is one that is like the median rank of its step, within a
few percent of the step, in all of these figures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Bools
from pyprof.facts.ranks.stragglers import arrivals
from pyprof.facts.steps.device_steps import device_steps, step_numbers
from pyprof.facts.steps.source import Source
from pyprof.store import reads

NEAR = 0.03  # of the step: as far as a rank may be from the median rank without being apart
FIGURES = ("total_ns", "late_ns", "dataloader_ns", "communication_ns", "busy_ns")
_COMPARED = 3  # ranks: the median of two is neither


def rank_steps(source: Source, spans: list[tuple[int, int]]) -> pd.DataFrame:
    """Return one row per worker and aggregated step, of all workers, in their order. `spans`: ids of the events.

    Columns: worker, `step` (numbers as in `device_steps.Steps`), `start`, FIGURES in ns, `collectives` that say how
    late the rank was, and `times_last` of them, `partial`. Lateness is missing in a step without such collectives,
    times of devices without a GPU.
    """
    whole = Source(source.store, source.aggregation)
    key = ("rank_steps", source.aggregation)
    # Few rows in a recording of any size.
    table: pd.DataFrame = source.store.cached(key, lambda: _rank_steps(whole, spans), small=True)
    return table


def _rank_steps(source: Source, spans: list[tuple[int, int]]) -> pd.DataFrame:
    frames = [_of_worker(source, worker) for worker in reads.worker_names(source.store)]
    table = pd.concat(frames, ignore_index=True)
    return table.join(_lateness(source, spans), on=["worker", "step"])


def _of_worker(source: Source, worker: int) -> pd.DataFrame:
    """Return the steps of a worker. Its activity is not kept: there may be a thousand workers."""
    activity, steps = source.activity(worker), device_steps(source, worker)
    devices = (activity.communication, np.ones(len(activity.id), bool)) if source.gpu else ()
    times: list[Any] = [activity.union(mask).within(steps.start, steps.end) for mask in devices]
    communication, busy = times or (pd.NA, pd.NA)
    return pd.DataFrame({
        "worker": worker, "step": steps.number, "start": steps.start, "total_ns": steps.length(activity),
        "dataloader_ns": activity.dataloader.within(steps.start, steps.end),
        "communication_ns": communication, "busy_ns": busy,
        "partial": pd.array(steps.partial, "boolean") if steps.known else pd.NA,
    })  # fmt: skip


def _lateness(source: Source, spans: list[tuple[int, int]]) -> pd.DataFrame:
    """Return, by worker and step, `late_ns`, `collectives` and `times_last`."""
    rows = arrivals(source, spans)
    order = rows.sort_values(["instance", "duration_ns"], ascending=[True, False], kind="stable")
    grouped = order.groupby("instance")["duration_ns"]
    middle = order[grouped.cumcount() == (grouped.transform("size") - 1) // 2].set_index("instance")
    median = rows["instance"].map(middle["duration_ns"])
    rows = rows.assign(
        late_ns=(median - rows["duration_ns"]).clip(lower=0),
        step=step_numbers(source, rows["event"].to_numpy()),
    )
    each = rows.groupby(["worker", "step", "instance"]).agg(late_ns=("late_ns", "max"), last=("last", "any"))
    return (
        each.groupby(level=["worker", "step"])
        .agg(late_ns=("late_ns", "sum"), collectives=("late_ns", "size"), times_last=("last", "sum"))
        .astype("Int64")
    )


def apart(table: pd.DataFrame) -> Bools:
    """Return which rows of `rank_steps` say something: a figure is farther than NEAR of the median step from the median
    of all ranks in that step, or there are too few ranks to compare.

    >>> rows = pd.DataFrame({"step": 1, **dict.fromkeys(FIGURES, 0), "total_ns": [100, 100, 102, 104]})
    >>> apart(rows).tolist()
    [False, False, False, False]
    >>> apart(rows.assign(late_ns=[0, 0, 3, 4])).tolist(), apart(rows[:2]).tolist()
    ([False, False, False, True], [True, True])
    """
    known = table[["step", *FIGURES]].astype("Float64")
    steps = known.groupby("step")
    median = steps[list(FIGURES)].transform("median")
    median["late_ns"] = 0  # it is said against the median rank already
    distance = (known[list(FIGURES)] - median).abs()
    far = distance.gt(NEAR * median["total_ns"], axis=0).fillna(False).any(axis=1)
    return np.asarray(far.astype(bool) | (steps["total_ns"].transform("size") < _COMPARED))

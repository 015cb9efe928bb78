# SPDX-License-Identifier: Apache-2.0
"""Waits of ranks on CPUs: for an operator that few of them spend much more time in; of one rank, for others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.units import percent
from pyprof.facts.host.host_work import main_thread
from pyprof.rules import Finding
from pyprof.rules.context import Run
from pyprof.rules.host_places import COLLECTIVES, ranges_of, ranges_with, texts_like
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import located
from pyprof.store import reads

_COMMUNICATION = r"^(?:c10d::|gloo:|mpi:)"


def slow_operators(run: Run) -> Finding | None:
    """Return a finding about the operator that few of the ranks spend most time in beyond the median rank's, if that is
    much of a step; None if the ranks have no collectives. Its saving is that time. Of one rank alone it is that it
    waits."""
    if not run.excerpts or not texts_like(run, COLLECTIVES):
        return None
    if run.workers < 2:
        return _waits_alone(run)
    table = _times(run)
    if not len(table):
        return None
    names = reads.worker_names(run.store)
    first = table.sort_values("more", ascending=False).iloc[0]
    name, source, worker, most, usual = first[["operator", "source", "worker", "most", "usual"]]
    time = most - usual
    if run.share(time) <= limit("R30.share"):
        return None
    run.late_ranks.add("R30")
    each = [run.time(one) for one in (most, usual)]
    return run.finding(
        f"All ranks wait for {names[worker]}: it spends {each[0]}, {percent(run.share(time))} of the time more than "
        f"the median rank ({each[1]}), in {located(name, source)}.",
        "Share the work among the ranks, or move it out of the step. If all ranks have it, that rank has more data or "
        "a slower CPU.",
        time,
        run.top(table, "more", "operator source time_ns=most median_rank_ns=usual"),
        "A step gets shorter, and the collectives of the other ranks with it.",
    )


def _waits_alone(run: Run) -> Finding | None:
    """Return a finding about the time of one rank in collectives in which it runs nothing else."""
    texts, time, called = texts_like(run, COLLECTIVES), 0, set[int]()
    for one in run.excerpts:
        busy = run.host_work(one.worker).busy(main_thread(run.store, one.worker)).with_(one.paused)
        apart = ranges_of(run, one, COLLECTIVES)
        time += len(apart) - len(apart.both(busy))
        called |= set(ranges_with(run, texts, one.worker, *one.window)["text"].tolist())
    if run.share(time) <= limit("R30.share"):
        return None
    named = sorted(texts[code] for code in called)
    return run.finding(
        f"The program waits {run.cost(time)}, for collectives "
        f"({', '.join(named[:2])}{' ...' if len(named) > 2 else ''}) and runs nothing else. One rank's recording "
        "does not tell whether another rank comes late or the transfer takes so long.",
        "Read the recordings of all ranks together: pyprof report FOLDER.",
        None,
        [{"collectives": ", ".join(named), "time_ns": time}],
        "A step gets shorter, and the wait with it.",
    )


def _times(run: Run) -> pd.DataFrame:
    """Return operators, by name and line, that one worker spends more than twice the median worker's time in, in most
    steps: `most`, `usual` and `more`, the difference, in ns."""
    about, names = run.operators, run.kernel_names
    apart = names.index[names["kernel"].astype(str).str.contains(_COMMUNICATION)]
    events = run.events(("operator", "name", "duration_ns"), lambda one: slice(None))
    events = events[events["operator"].isin(about.index[about["unassociated"] == 0]) & ~events["name"].isin(apart)]
    by = run.named(events).groupby(["operator", "source", "worker"], dropna=False)["duration_ns"]
    sums, counts = (one.unstack(fill_value=0) for one in (by.sum(), by.size()))
    order = np.sort(sums.to_numpy(), axis=1)
    table = pd.DataFrame({
        "worker": sums.idxmax(axis=1), "most": order[:, -1], "usual": order[:, (order.shape[1] - 1) // 2],
    })  # fmt: skip
    often = 2 * counts.max(axis=1) >= run.steps
    table = table[often & (2 * table["usual"] < table["most"])]
    return table.assign(more=table["most"] - table["usual"]).reset_index()

# SPDX-License-Identifier: Apache-2.0
"""Waits of ranks on CPUs: for an operator that few of them spend much more time in; of one rank, for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyprof.core.units import percent
from pyprof.facts.host.host_work import main_thread
from pyprof.rules import Finding
from pyprof.rules.host_places import COLLECTIVES, collectives_on_host, ranges_with, texts_like
from pyprof.rules.thresholds import limit
from pyprof.store import reads

if TYPE_CHECKING:
    from pyprof.rules.context import Run

_COMMUNICATION = r"^(?:c10d::|gloo:|mpi:)"


def slow_operators(run: Run) -> Finding | None:
    """Return a finding about the operator that few of the ranks spend most time in beyond the median rank's, if that is
    much of a step; None if the ranks have no collectives. Its saving is that time. Of one rank alone it is that it
    waits."""
    if not run.samples or not texts_like(run, COLLECTIVES):
        return None
    if len(run.samples) < 2:
        return _waits_alone(run)
    table = _times(run)
    if not len(table):
        return None
    names = reads.worker_names(run.store)
    first = table.sort_values("more", ascending=False).iloc[0]
    name, source, worker, most, usual = first[["name", "source", "worker", "most", "usual"]]
    time = run.scaled((most - usual) * run.workers)
    if run.share(time) <= limit("R30.share"):
        return None
    run.late_ranks.add("R30")
    each = [run.time(run.scaled(one * run.workers)) for one in (most, usual)]
    return run.finding(
        f"All ranks wait for {names[worker]}: it spends {each[0]}, {percent(run.share(time))} of the time more than "
        f"the median rank ({each[1]}), in {name}{f' ({source})' if isinstance(source, str) else ''}.",
        "Share the work among the ranks, or move it out of the step. If all ranks have it, that rank has more data or "
        "a slower CPU.",
        time,
        run.top(table, "more", operator="name", source="source", time_ns="most", median_rank_ns="usual"),
        "A step gets shorter, and the collectives of the other ranks with it.",
    )


def _waits_alone(run: Run) -> Finding | None:
    """Return a finding about the time of one rank in collectives in which it runs nothing else."""
    (sample,) = run.samples
    activity = run.source.activity(sample.worker)
    busy = run.host_work(sample.worker).busy(main_thread(run.store, sample.worker)).with_(activity.paused)
    apart = collectives_on_host(run, sample)
    time = run.scaled(len(apart) - len(apart.both(busy)))
    if run.share(time) <= limit("R30.share"):
        return None
    texts = texts_like(run, COLLECTIVES)
    called = ranges_with(run, texts, sample.worker, sample.start, sample.end)["text"]
    named = sorted(texts[code] for code in np.unique(called).tolist())
    return run.finding(
        f"The program waits {run.time(time)}, {percent(run.share(time))} of the time, for collectives "
        f"({', '.join(named[:2])}{' ...' if len(named) > 2 else ''}) and runs nothing else. One rank's recording "
        "does not tell whether another rank comes late or the transfer takes so long.",
        "Read the recordings of all ranks together: pyprof report FOLDER.",
        None,
        [{"collectives": ", ".join(named), "time_ns": time}],
        "A step gets shorter, and the wait with it.",
    )


def _times(run: Run) -> pd.DataFrame:
    """Return operators, by name and line, that one worker spends more than twice the median worker's time in, in most
    steps: `most`, `usual` and `more`, the difference, in ns of the samples."""
    parts = [
        pd.DataFrame({
            "operator": sample.of("operator"), "time": sample.of("duration_ns"), "worker": sample.worker,
            "kernel": run.kernel_names["kernel"].reindex(sample.of("name")).to_numpy(),
        })
        for sample in run.samples
    ]  # fmt: skip
    events = pd.concat(parts).join(run.operators[["name", "source", "unassociated"]], on="operator")
    events = events[
        (events["unassociated"] == 0) & ~events["kernel"].astype(str).str.contains(_COMMUNICATION)
    ]
    by = events.groupby(["name", "source", "worker"], dropna=False)["time"]
    sums, counts = (one.unstack(fill_value=0) for one in (by.sum(), by.size()))
    order = np.sort(sums.to_numpy(), axis=1)
    table = pd.DataFrame({
        "worker": sums.idxmax(axis=1), "most": order[:, -1], "usual": order[:, (order.shape[1] - 1) // 2],
    })  # fmt: skip
    often = 2 * counts.max(axis=1) >= run.sampled_steps
    table = table[often & (2 * table["usual"] < table["most"])]
    return table.assign(more=table["most"] - table["usual"]).reset_index()

# SPDX-License-Identifier: Apache-2.0
"""Communication by library: hidden by computation, exposed, and what steps waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.facts.device.communication import LIBRARIES, OTHER, libraries
from pyprof.facts.device.timeline import Activity
from pyprof.facts.path.critical_path import COMMUNICATION, RANKS, Rank
from pyprof.facts.path.path_walk import paths
from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.communication import DEVICE
from pyprof.reports.step_time import WORKER

_COLUMNS = (
    WORKER,
    DEVICE,
    Column(
        "library", "Library", "",
        f"By the names of kernels and copies: {', '.join(name for name, *_ in LIBRARIES)}, {OTHER}.", str,
    ),
    Column("calls", "Calls", "count", "Kernels and copies that run in the steps, or partly."),
    Column("communication_ns", "Communication (ns)", "ns", "Time in the steps with at least one of them."),
    Column("hidden_ns", "Hidden (ns)", "ns", "The part with another kernel on the device that is no communication."),
    Column("exposed_ns", "Exposed (ns)", "ns", "The rest: nothing is computed meanwhile."),
    Column(
        "blocking_ns", "Blocking (ns)", "ns",
        "Time in which the critical path of the rank's own steps is in it (critical_path --ranks=own): the step waited "
        "for it, whether another kernel ran or not. Exposed communication that is not blocking delays nothing: the "
        "host or another stream holds the step up as well.",
    ),
    Column(
        "waiting_ns", "Waiting for Ranks (ns)", "ns",
        "The part of blocking before the last rank had arrived; 0 if the kernels of other ranks are not known.",
    ),
    Column("exposed_share", "Exposed (%)", "%", "Exposed as a share of the steps.", float),
    Column("blocking_share", "Blocking (%)", "%", "Blocking as a share of the steps.", float),
)  # fmt: skip


@report(
    "exposed",
    "Exposed and Blocking Communication",
    _COLUMNS,
    needs="communication on a GPU",
    view=View("Communication", sort="-blocking_ns", sums="calls communication_ns hidden_ns exposed_ns blocking_ns"),
)
def exposed(source: Source) -> pd.DataFrame:
    """One row per worker, device and library that communicates, sorted by what blocks, then by what is exposed: NCCL
    and RCCL, and what is none of their collectives (DeepEP, NVSHMEM, custom all-reduces, copies between devices). Steps
    have the device's bounds, as in step_time. Two libraries at the same time count for both."""
    ranks: dict[int, Rank] = {}
    blocking = _blocking(source, ranks)
    rows = [row for activity, steps in activities(source) for row in _rows(source, activity, *steps.window, blocking)]
    table = pd.DataFrame(rows, columns=[column.key for column in _COLUMNS], dtype=object)
    return table.sort_values(["blocking_ns", "exposed_ns"], ascending=False, kind="stable", ignore_index=True)


def _blocking(source: Source, ranks: dict[int, Rank]) -> dict[tuple[int, int, str], tuple[int, int]]:
    """Return by worker, device and library the time of the paths of its own steps, and that before the last rank."""
    named = libraries(source.store)
    out: dict[tuple[int, int, str], tuple[int, int]] = {}
    for group in paths(source, False, ranks, places=False):
        rows = group.segments[group.segments["part"].isin((COMMUNICATION, RANKS))]
        for worker in rows["worker"].unique().tolist():
            own = rows[rows["worker"] == worker]
            event, place = ranks[worker].activity.event, own["event"].to_numpy()
            own = own.assign(device=event["device"].values[place], name=event["name"].values[place])
            sums = own.groupby(["device", "name", "part"])["length"].sum().reset_index()
            for device, name, part, length in sums.to_numpy().tolist():
                key = worker, device, named[name]
                all_of, waiting = out.get(key, (0, 0))
                out[key] = all_of + length, waiting + (length if part == RANKS else 0)
    return out


def _rows(
    source: Source,
    activity: Activity,
    low: int,
    high: int,
    blocking: dict[tuple[int, int, str], tuple[int, int]],
) -> Iterator[tuple[Any, ...]]:
    named = libraries(source.store)
    name = activity.event["name"].values
    window = np.array([low]), np.array([high])
    length = high - low - int(activity.paused.within(*window)[0])
    inside = (activity.end > low) & (activity.start < high)
    for device in activity.devices:
        on = activity.on(device)
        computation = activity.union(on & activity.kernel & ~activity.communication)
        for library in sorted(set(named.values())):
            own = on & np.isin(name, [number for number, one in named.items() if one == library])
            calls = int((own & inside).sum())
            if not calls:
                continue
            union = activity.union(own)
            both = union.with_(computation)
            time, alone, together = (int(one.within(*window)[0]) for one in (union, computation, both))
            hidden = time + alone - together
            waited, waiting = blocking.get((activity.worker, device, library), (0, 0))
            shares = (100 * part / length if length else None for part in (time - hidden, waited))
            yield (
                activity.name, device, library, calls, time, hidden, time - hidden, waited, waiting, *shares,
            )  # fmt: skip

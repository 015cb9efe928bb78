# SPDX-License-Identifier: Apache-2.0
"""Figures of every iteration of a run, and of several runs side by side: what the gate compares.

An iteration of several workers is one sample, the mean over its workers: ranks wait for each other and are not
independent. They are those of which the overview takes means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyprof.core.model import Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.device_steps import Steps, activities
from pyprof.facts.steps.source import Source, used
from pyprof.reports import complete, diff
from pyprof.reports.idle import IDLE
from pyprof.reports.waterfall import divide

STEP, BUSY, ALL_IDLE, MEMORY = "step_time", "busy", "idle", "memory"
Floats = NDArray[np.float64]


class Iterations(NamedTuple):
    """The compared iterations of a run: their numbers, one row each with the figures of the step (ns, bytes), and one
    row per worker and iteration, in the order of worker and number, with the ids of executions and events."""

    run: Source
    numbers: Ints
    parts: pd.DataFrame
    ids: pd.DataFrame

    def sums(self, way: diff.Way, row: pd.Series[int]) -> pd.DataFrame:
        """Return the device time in each iteration (rows) of each number in `row`, which is by key (ns)."""
        table = self.ids.rename(columns={f"{end}_{way.sums.table}": end for end in ("low", "high")})
        key, sample, device = diff.executions(self.run, way, table)
        cells = pd.DataFrame(
            {"row": pd.Series(key).map(row), "number": table["number"].to_numpy()[sample], "device": device}
        )
        out = cells.pivot_table(index="number", columns="row", values="device", aggfunc="sum", fill_value=0)
        workers = max(self.ids["worker"].nunique(), 1)
        return out.reindex(self.numbers, fill_value=0).astype(float) / workers


class Rows(NamedTuple):
    """Operators or kernels of several runs: `labels` has texts by the number of the row, `times` per run the device
    time in each iteration by that number (ns)."""

    labels: pd.DataFrame
    times: list[pd.DataFrame]
    sides: pd.DataFrame


def iterations(run: Source) -> Iterations:
    """Return the compared iterations of a run; none if no worker has complete ones in common with the others."""
    parts, ids = [], []
    of_means = used(run)
    for activity, steps in activities(run):
        own = _ids(run, activity.worker)
        figures = _figures(activity, steps)
        figures.index = own.index = pd.Index(own["number"], name="number")
        selected = ~steps.partial & own["number"].isin(of_means).to_numpy()
        parts.append(figures[selected])
        ids.append(own[selected])
    if not parts:
        return Iterations(run, np.array([], np.int64), pd.DataFrame({STEP: []}), pd.DataFrame({"worker": []}))
    numbers = parts[0].index
    for part in parts[1:]:
        numbers = numbers.intersection(part.index)
    names = list(dict.fromkeys(name for part in parts for name in part))
    means = parts[0].reindex(numbers).reindex(columns=names, fill_value=0.0)
    for part in parts[1:]:
        means = means + part.reindex(numbers).reindex(columns=names, fill_value=0.0)
    means = means / len(parts)
    return Iterations(
        run, numbers.to_numpy(), means.reset_index(drop=True), pd.concat([one.loc[numbers] for one in ids])
    )


def rows(runs: list[Iterations], sides: list[int], by: str) -> Rows:
    """Match the operators or kernels of runs, each on a side (0 base, 1 other)."""
    way = diff.WAYS[by]
    tables = []
    for number, (one, side) in enumerate(zip(runs, sides)):
        table = diff.rows_of(one.run, way, complete.iterations(one.run, way.sums))
        tables.append(table.assign(side=side, run=number))
    matched = diff.matched(tables, way)
    times = [
        one.sums(way, matched[matched["run"] == number].set_index("key")["row"]) for number, one in enumerate(runs)
    ]
    return Rows(diff.labels_of(matched), times, matched.groupby("row")["side"].agg(["min", "max"]))


def _ids(run: Source, worker: int) -> pd.DataFrame:
    window = run.aggregation
    columns = run.store.columns(
        f"""select worker, number, first_op as low_op, last_op as high_op, first_event as low_event,
                   last_event as high_event from iteration
            where iteration_set = {window.iteration_set} and worker = {worker}
              and number between {window.first} and {window.last} order by number"""
    )
    return pd.DataFrame({name: column.values for name, column in columns.items()})


def _figures(activity: Activity, steps: Steps) -> pd.DataFrame:
    """Return the figures of each step of a worker, means over its devices."""
    length = steps.length(activity).astype(float)
    out = {STEP: length}
    devices: list[int | None] = [*activity.devices] or [None]
    parts: dict[str, Floats] = {}
    for device in devices:
        for name, (_, part) in divide(activity, steps, device).items():
            parts[name] = parts.get(name, 0.0) + part / len(devices)
    if activity.devices:
        idle = {name.removeprefix(IDLE): part for name, part in parts.items() if name.startswith(IDLE)}
        out[ALL_IDLE] = sum(idle.values(), np.zeros(len(length)))
    else:
        idle = {"data loader": parts["data loader"]}
        out[ALL_IDLE] = length - parts["operators"]
    out[BUSY] = length - out[ALL_IDLE]
    out |= {f"{ALL_IDLE}:{cause}": part for cause, part in idle.items()}
    peak = _peaks(activity, steps.start, steps.end)
    if peak is not None:
        out[MEMORY] = peak
    return pd.DataFrame(out)


def _peaks(activity: Activity, start: Ints, end: Ints) -> Floats | None:
    """Return the most bytes in use in each step on the device with the most, or on the CPU without a GPU."""
    columns = activity.store.columns(
        f"""select coalesce(device, -1) as device, time_ns, allocated_bytes from memory
            where {activity.own("id")} and allocated_bytes is not null order by time_ns, id"""
    )
    device, time, size = (column.values for column in columns.values())
    on = np.unique(device[device >= 0]).tolist() or np.unique(device).tolist()
    peaks = []
    for number in on:
        mask = device == number
        at, values = time[mask], size[mask]
        # What was in use when the step began counts.
        first = np.maximum(np.searchsorted(at, start, side="right") - 1, 0)
        last = np.maximum(np.searchsorted(at, end, side="left"), first + 1)
        bounds = np.ravel(np.column_stack([first, last]))
        peaks.append(np.maximum.reduceat(np.r_[values, 0], bounds)[::2].astype(float))
    return np.max(peaks, axis=0) if peaks else None

# SPDX-License-Identifier: Apache-2.0
"""Steps with the device's bounds: a step lasts until what it launched has ended, as the TensorBoard plugin of
torch.profiler has it.

Step i is [max(end of the step before, its start on the host), max(its end on the host, the last end on a device of what
it launched)]. Before the first step stands the last end of events that no step launched, if they ended before the first
event of that step. Steps touch: their sum is the window. Where no step launched anything, the bounds are the host's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints

_CUT_OFF = 0.8  # of the events of the step before: a last step with fewer is a part of one


class Steps(NamedTuple):
    """The aggregated steps of a worker. `number` as the program marked them, else that of the iteration; `partial`: the
    recording ends within the step, unknown (`known` False) where no step launched anything."""

    number: Ints
    start: Ints
    end: Ints
    partial: Bools
    known: bool

    @property
    def window(self) -> tuple[int, int]:
        """From the start of the first to the end of the last."""
        return int(self.start[0]), int(self.end[-1])


def activities(source: Source) -> list[tuple[Activity, Steps]]:
    """Every worker of the source that has iterations in the aggregation."""
    chosen = source.aggregation
    workers = source.store.rows(
        """select distinct worker from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?) order by worker""",
        (chosen.iteration_set, chosen.first, chosen.last, source.worker, source.worker),
    )
    found = [source.activity(worker) for (worker,) in workers]
    return [(one, _steps(source, one)) for one in found]


def _steps(source: Source, activity: Activity) -> Steps:
    key = "steps", source.aggregation.id, activity.worker
    return source.store.once(key, lambda: device_steps(source, activity))


def device_steps(source: Source, activity: Activity) -> Steps:
    """The steps of a worker that are aggregated, with the device's bounds."""
    chosen = source.aggregation
    table = source.store.columns(
        f"""select number, start, "end", first_event, last_event, partial from iteration
            where iteration_set = {chosen.iteration_set} and worker = {activity.worker} order by number"""
    )
    number, start, end, first, last, partial = (column.values for column in table.values())
    step = np.searchsorted(first, activity.id, side="right") - 1
    inside = activity.launched & (step >= 0) & (activity.id < last[np.maximum(step, 0)])
    known = bool(inside.any())
    if known:
        count = np.bincount(step[inside], minlength=len(number))
        reached = end.copy()
        np.maximum.at(reached, step[inside], activity.end[inside])
        stop = np.maximum.accumulate(reached)
        begin = np.maximum(start, np.r_[_before(activity, inside, step == 0, int(start[0])), stop[:-1]])
        partial = np.where(_cut_off(count), 1, partial)
        start, end = begin, stop
    kept = (number >= chosen.first) & (number <= chosen.last)
    return Steps(
        marked(source, activity.worker, number)[kept], start[kept], end[kept], partial[kept] == 1, known
    )


def _before(activity: Activity, inside: Bools, in_first: Bools, start: int) -> int:
    """When the device was done with what ran before the first step."""
    if not (inside & in_first).any():
        return start
    first = activity.start[inside & in_first].min()
    earlier = activity.end[~inside & (activity.end < first)]
    return max(start, int(earlier.max())) if len(earlier) else start


def _cut_off(count: Ints) -> Bools:
    """Last steps without events, and the one before them if it has far fewer than the step before."""
    last = int(np.flatnonzero(count)[-1])
    out = np.arange(len(count)) > last
    out[last] = last > 0 and count[last] < _CUT_OFF * count[last - 1]
    return out


def marked(source: Source, worker: int, number: Ints) -> Ints:
    """The numbers that the program gave a worker's iterations; their own where it marked none."""
    if source.aggregation.method != "marks":
        return number
    rows = source.store.rows("select number from step where worker = ? order by start", (worker,))
    return np.array([row[0] for row in rows], np.int64)[number]

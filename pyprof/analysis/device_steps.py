# SPDX-License-Identifier: Apache-2.0
"""Steps with device bounds: a step lasts until the work that it launched has ended, as in the TensorBoard plugin of
torch.profiler.

Step i is [max(end of the step before, its start on the host), max(its end on the host, the last end on a device of
what it launched)]. The first step starts no earlier than the last end of events that no step launched and that ended
before the first event of that step. Steps touch: their sum is the window. Where no step launched anything, the
bounds are those of the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints

_CUT_OFF = 0.8  # of the events of the step before: a last step with fewer is a part of one


class Steps(NamedTuple):
    """The aggregated steps of a worker.

    `number` is the program's, if it marked steps, else that of the iteration. `partial`: the recording ends within
    the step; unknown (`known` False) where no step launched anything.
    """

    number: Ints
    start: Ints
    end: Ints
    partial: Bools
    known: bool

    @property
    def window(self) -> tuple[int, int]:
        """The time from the start of the first step to the end of the last one."""
        return int(self.start[0]), int(self.end[-1])

    def length(self, activity: Activity) -> Ints:
        """Return the length of each step of a worker, without pauses in which the recording was read."""
        out: Ints = self.end - self.start - activity.paused.within(self.start, self.end)
        return out


def activities(source: Source) -> list[tuple[Activity, Steps]]:
    """Return every worker of the source that has iterations in the aggregation, with its steps."""
    aggregation = source.aggregation
    workers = source.store.rows(
        """select distinct worker from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?) order by worker""",
        (aggregation.iteration_set, aggregation.first, aggregation.last, source.worker, source.worker),
    )
    per_worker = [source.activity(worker) for (worker,) in workers]
    return [(activity, _steps(source, activity)) for activity in per_worker]


def _steps(source: Source, activity: Activity) -> Steps:
    key = "steps", source.aggregation.id, activity.worker
    return source.store.cached(key, lambda: device_steps(source, activity), small=True)


def device_steps(source: Source, activity: Activity) -> Steps:
    """Return the aggregated steps of a worker with device bounds."""
    aggregation = source.aggregation
    table = source.store.columns(
        f"""select number, start_ns, end_ns, first_event, last_event, partial from iteration
            where iteration_set = {aggregation.iteration_set} and worker = {activity.worker} order by number"""
    )
    number, start, end, first, last, partial = (column.values for column in table.values())
    # Ids are in order, so the events of a step follow each other.
    low, high = np.searchsorted(activity.id, first), np.searchsorted(activity.id, last)
    high = np.minimum(high, np.r_[low[1:], len(activity.id)])
    launched = np.r_[0, np.cumsum(activity.launched)]
    count = np.where(high > low, launched[high] - launched[low], 0)
    known = bool(count.any())
    if known:
        reached = end.copy()
        for step in np.flatnonzero(count).tolist():
            own = slice(low[step], high[step])
            reached[step] = max(end[step], activity.end[own][activity.launched[own]].max())
        stop = np.maximum.accumulate(reached)
        begin = np.maximum(start, np.r_[_before(activity, count, low, high, int(start[0])), stop[:-1]])
        partial = np.where(_cut_off(count), 1, partial)
        start, end = begin, stop
    aggregated = (number >= aggregation.first) & (number <= aggregation.last)
    return Steps(
        marked_numbers(source, activity.worker, number)[aggregated],
        start[aggregated],
        end[aggregated],
        partial[aggregated] == 1,
        known,
    )


def _before(activity: Activity, count: Ints, low: Ints, high: Ints, start: int) -> int:
    """Return when the device had finished what ran before the first step: events that no step launched. `low`, `high`:
    places of each step's events, of which `count` were launched."""
    if not count[0]:
        return start
    own = slice(low[0], high[0])
    first = activity.start[own][activity.launched[own]].min()
    outside = ~activity.launched
    edges = np.r_[0, np.maximum.accumulate(np.where(high > low, high, 0)), len(outside)]
    for begin, end in zip(edges[:-1].tolist(), np.r_[low, len(outside)].tolist()):
        outside[begin:end] = True
    outside &= activity.end < first
    return max(start, int(activity.end[outside].max())) if outside.any() else start


def _cut_off(count: Ints) -> Bools:
    """Return which steps are cut off: last steps without events, and the one before if it has far fewer than its
    predecessor."""
    last = int(np.flatnonzero(count)[-1])
    out = np.arange(len(count)) > last
    out[last] = last > 0 and count[last] < _CUT_OFF * count[last - 1]
    return out


def marked_numbers(source: Source, worker: int, number: Ints) -> Ints:
    """Return the numbers that the program gave a worker's iterations; their own numbers where it marked none."""
    if source.aggregation.method != "marks":
        return number
    rows = source.store.rows("select number from step where worker = ? order by start_ns", (worker,))
    return np.array([row[0] for row in rows], np.int64)[number]

# SPDX-License-Identifier: Apache-2.0
"""Steps with device bounds (`device_bounds`), as the database has them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import Bools, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.dataframes import steps_of
from pyprof.facts.steps.source import Source, used
from pyprof.store.ids import worker_of


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

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Starts and ends of the stretches of steps that follow each other."""
        if not len(self.start):
            return []
        apart = np.flatnonzero(self.start[1:] > self.end[:-1])
        first, last = np.r_[0, apart + 1], np.r_[apart, len(self.end) - 1]
        return list(zip(self.start[first].tolist(), self.end[last].tolist()))

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
    return [(source.activity(worker), device_steps(source, worker)) for (worker,) in workers]


def used_steps(source: Source, steps: Steps) -> Steps:
    """Return those of the steps of a worker that means are taken of; all, if it has none of them."""
    mask = np.isin(np.arange(len(steps.start)) + source.aggregation.first, used(source))
    if not mask.any():
        return steps
    return Steps(steps.number[mask], steps.start[mask], steps.end[mask], steps.partial[mask], steps.known)


def device_steps(source: Source, worker: int) -> Steps:
    """Return the aggregated steps of a worker with device bounds."""
    aggregation = source.aggregation
    table = source.store.columns(
        f"""select number, start_ns, end_ns, partial = 1 or coalesce(cut_off, 0) = 1 as partial,
                   cut_off is not null as known
            from iteration where iteration_set = {aggregation.iteration_set} and worker = {worker} order by number"""
    )
    number, start, end, partial, known = (column.values for column in table.values())
    aggregated = (number >= aggregation.first) & (number <= aggregation.last)
    return Steps(
        marked_numbers(source, worker, number)[aggregated],
        start[aggregated],
        end[aggregated],
        partial[aggregated] == 1,
        bool(known.all()),
    )


def marked_numbers(source: Source, worker: int, number: Ints) -> Ints:
    """Return the numbers that the program gave a worker's iterations; their own numbers where it marked none."""
    if source.aggregation.method != "marks":
        return number
    rows = source.store.rows("select number from step where worker = ? order by start_ns", (worker,))
    return np.array([row[0] for row in rows], np.int64)[number]


def step_numbers(source: Source, event: Ints) -> Ints:
    """Return the step in which each event was launched, by its id; steps have the numbers of `Steps`."""
    number = np.asarray(steps_of(source.store, source.aggregation, event).fillna(0), np.int64)
    for worker in np.unique(worker_of(event)).tolist():
        rows = worker_of(event) == worker
        number[rows] = marked_numbers(source, worker, number[rows])
    return number

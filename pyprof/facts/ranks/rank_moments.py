# SPDX-License-Identifier: Apache-2.0
"""Moments that ranks have in common: starts of steps, ends of collectives.

A rank is a worker here. Steps are those that the program marked, by their own numbers; without marks, the iterations
of the automatic cut, by their numbers from 0, but for those that only begin because the recording does. Collectives are
aligned ones (`collective_groups`) in which every rank needs data of every other: they end on no rank before the last
one has arrived. They count from 1, by their ends on the first worker that takes part.

How late a rank is, is said against the median rank, the one in the middle (the earlier of two). It is late to a step
by the clock. To a collective it is late by what its kernel is shorter than that of the median rank, as the kernels end
together, which needs no common clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Ints
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.store.files import Store

STEP, COLLECTIVE = "step", "collective"
# Cuts whose first iterations begin where an operator began; those of others begin with the recording.
_BEGUN = "('marks', 'ranges', 'dataloader')"


class Moments(NamedTuple):
    """Moments, by number. Of a collective there is one for each of its kernels."""

    number: Ints
    worker: Ints
    time: Ints  # ns on the worker's own clock
    length: Ints  # ns of the collective's kernel; 0 of a step
    event: Ints  # id of the kernel; -1 of a step


class RankMoment(NamedTuple):
    """A moment on a worker. `shift`: what moves it to that of the median rank, ns; `late`: ns after the median rank."""

    worker: int
    time: int
    shift: int
    late: int


class Stretch(NamedTuple):
    """A step of a worker: its bounds on the host, in which its operators begin, and on the devices, as in the report
    step_time, in ns."""

    start: int
    end: int
    device_start: int
    device_end: int


def steps(store: Store) -> tuple[Moments, str]:
    """Return the starts of steps on the host, and what they are: step, or iteration."""
    what, query = _steps(store)
    rows = store.rows(f"select number, worker, start_ns from ({query}) order by number, worker")
    number, worker, time = np.array(rows, np.int64).reshape(-1, 3).T
    return Moments(number, worker, time, np.zeros_like(time), np.full_like(time, -1)), what


def stretches(store: Store, number: int) -> dict[int, Stretch]:
    """Return a step on each worker that has it."""
    rows = store.rows(f"select * from ({_steps(store)[1]}) where number = ? order by worker", (number,))
    return {worker: Stretch(*bounds) for worker, _, *bounds in rows}


def marked(store: Store, most: int) -> list[tuple[int, int, Stretch]]:
    """Return the worker and number of the steps that the program marked, the earliest first; at most so many."""
    rows = store.rows(f"{_MARKED} order by device_start_ns limit {most}")
    return [(worker, number, Stretch(*bounds)) for worker, number, *bounds in rows]


_MARKED = """select s.worker, s.number, s.start_ns, s.end_ns,
       coalesce(i.start_ns, s.start_ns) as device_start_ns, coalesce(i.end_ns, s.end_ns) as device_end_ns
from (select *, row_number() over (partition by worker order by start_ns) - 1 as place from step) s
left join iteration i on i.worker = s.worker and i.number = s.place
    and i.iteration_set = (select min(id) from iteration_set where method = 'marks')"""


def _steps(store: Store) -> tuple[str, str]:
    """Return what steps are, and the query of their worker, number and bounds."""
    if store.rows("select 1 from step limit 1"):
        return "step", _MARKED
    return "iteration", (
        f"""select worker, number, host_start_ns as start_ns, host_end_ns as end_ns, start_ns as device_start_ns,
                   end_ns as device_end_ns
            from iteration join iteration_set s on s.id = iteration_set
            where s.id = 1 and s.method != 'none' and (s.method in {_BEGUN} or number > 0)"""
    )


def ends(store: Store) -> tuple[Moments, list[str]]:
    """Return the ends of collectives, and the name of each number, from 1."""
    rows = collectives(store)
    rows = rows[(rows["instance"] >= 0) & rows["name"].isin(MUTUAL)]
    rows = rows.assign(end=rows["start_ns"] + rows["duration_ns"]).sort_values(
        ["worker", "end"], kind="stable"
    )
    first = rows.drop_duplicates("instance").sort_values(["end", "instance"], kind="stable")
    number = pd.Series(np.arange(1, len(first) + 1), first["instance"].to_numpy())
    rows = rows.assign(number=rows["instance"].map(number)).sort_values("number", kind="stable")
    columns = (rows[key].to_numpy(np.int64) for key in ("number", "worker", "end", "duration_ns", "event"))
    return Moments(*columns), first["name"].tolist()


def numbers(moments: Moments) -> tuple[Ints, Ints]:
    """Return the numbers that occur, and the time of each on its median rank."""
    order = np.lexsort((moments.time, moments.number))
    number, first, count = np.unique(moments.number[order], return_index=True, return_counts=True)
    return number, moments.time[order][first + (count - 1) // 2]


def ranks(moments: Moments, number: int) -> list[RankMoment]:
    """Return the moments of a number, by worker; none without such a number. A worker with several devices is as late
    as the last of them.

    >>> moments = Moments(*(np.array(column) for column in ([7, 7, 7], [0, 1, 2], [10, 50, 12], [0] * 3, [-1] * 3)))
    >>> [(one.worker, one.shift, one.late) for one in ranks(moments, 7)]
    [(0, 2, -2), (1, -38, 38), (2, 0, 0)]
    """
    low, high = np.searchsorted(moments.number, [number, number + 1]).tolist()
    time: dict[int, int] = {}
    length: dict[int, int] = {}
    columns = (column[low:high].tolist() for column in (moments.worker, moments.time, moments.length))
    for worker, moment, kernel in zip(*columns):
        time[worker] = max(moment, time.get(worker, moment))
        length[worker] = min(kernel, length.get(worker, kernel))
    if not time:
        return []
    middle = (len(time) - 1) // 2
    median, longer = sorted(time.values())[middle], sorted(length.values(), reverse=True)[middle]
    of_step = moments.event[low] < 0
    return [
        RankMoment(worker, time[worker], median - time[worker],
                   time[worker] - median if of_step else longer - length[worker])
        for worker in sorted(time)
    ]  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Ranks on one axis: what moves the times of each so that a step begins, or a collective ends, on all of them at once.

A child process reads the moments once; a request picks one of them. Ids and times stay those of the recording: only
where events are compared with the time of the picture, their worker's shift counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof.core.model import Ints
from pyprof.facts.ranks import rank_moments
from pyprof.facts.ranks.collective_groups import one_clock
from pyprof.facts.ranks.rank_moments import COLLECTIVE, Moments
from pyprof.store.files import Store
from pyprof.views.models import Alignment, RankOffset
from pyprof.views.problems import Trouble

ALIGNED = r"^(step|collective):-?\d{1,15}$"
_LONGEST = 1 << 53  # ns: 104 days; more is no integer of JavaScript
_NONE = {
    "step": "No step was recorded on the ranks: mark steps with p.step() or pyprof.step().",
    "collective": "No collective could be matched on several ranks; the report communication says why.",
}


class Known(NamedTuple):
    """The moments of a recording, the names of collectives or what steps are, and whether all ranks have one clock."""

    moments: Moments
    names: list[str] | str
    one_clock: bool

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.moments) + 100 * len(self.names)


def table(store: Store, by: str) -> tuple[dict[str, Any], pa.Table]:
    """Return the moments of a kind, as a task of a child."""
    names: list[str] | str
    moments, names = rank_moments.ends(store) if by == COLLECTIVE else rank_moments.steps(store)
    return {"names": names, "one_clock": one_clock(store)}, pa.table(moments._asdict())


def of_table(answer: tuple[dict[str, Any], pa.Table]) -> Known:
    """Return the moments of the task's answer."""
    head, columns = answer
    return Known(
        Moments(*(columns.column(name).to_numpy() for name in Moments._fields)),
        head["names"],
        head["one_clock"],
    )


def parse(to: str) -> tuple[str, int | None]:
    """Return the kind and the number of `step:12`, `collective`."""
    by, _, number = to.partition(":")
    return by, int(number) if number else None


def alignment(
    known: Known, workers: Sequence[int], to: str, at: int | None = None, event: int | None = None
) -> Alignment:
    """Return the shift of each worker. Without a number, or with a time and a number that no rank has, the step is the
    last that begins at the time or before, the collective that of an event, or the first that ends at the time or
    later. Raises Trouble where there is none."""
    by, number = parse(to)
    numbers, times = rank_moments.numbers(known.moments)
    if not len(numbers):
        raise Trouble("missing", _NONE[by], "to")
    if number is None or (at is not None and number not in numbers):
        number = _nearest(known, by, numbers, times, at, event)
    ranks = {rank.worker: rank for rank in rank_moments.ranks(known.moments, number)}
    if not ranks:
        raise Trouble(
            "missing",
            f"There is no {by} {number} on any rank: they have {numbers[0]} to {numbers[-1]}.",
            "to",
        )
    if any(abs(rank.shift) >= _LONGEST for rank in ranks.values()):
        raise Trouble("damaged", f"The times of {by} {number} are none that a recording can have.")
    place = int(np.searchsorted(numbers, number))
    name = known.names[number - 1] if by == COLLECTIVE else known.names
    offsets = []
    for worker in workers:
        rank = ranks.get(worker)
        offsets.append(
            RankOffset(worker=worker, time=rank and rank.time, shift=rank.shift if rank else 0,
                       late=rank and rank.late)
        )  # fmt: skip
    return Alignment(
        by="collective" if by == COLLECTIVE else "step",
        number=number,
        label=f"{name} {number} of {len(numbers)}" if by == COLLECTIVE else f"{name} {number}",
        before=int(numbers[place - 1]) if place else None,
        after=int(numbers[place + 1]) if place + 1 < len(numbers) else None,
        one_clock=known.one_clock,
        ranks=offsets,
    )


def _nearest(known: Known, by: str, numbers: Ints, times: Ints, at: int | None, event: int | None) -> int:
    if by == COLLECTIVE and event is not None:
        place = np.flatnonzero(known.moments.event == event)
        if len(place):
            return int(known.moments.number[place[0]])
    order = np.argsort(times, kind="stable")
    time = int(times[order[0]]) if at is None else at
    if by == COLLECTIVE:
        place = np.minimum(np.searchsorted(times[order], time, side="left"), len(order) - 1)
    else:
        place = np.maximum(np.searchsorted(times[order], time, side="right") - 1, 0)
    return int(numbers[order[place]])


def shifts_of(one: Alignment | None) -> Mapping[int, int]:
    """Return what is added to the times of each worker."""
    return {rank.worker: rank.shift for rank in one.ranks} if one else {}

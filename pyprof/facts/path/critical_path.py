# SPDX-License-Identifier: Apache-2.0
"""The critical path of a step: what it waited for at each moment, from its end back to its beginning.

The step of a worker has device bounds (`device_steps`). The path begins at what ended last and always goes to what
released that (`dependencies`): from an event of a device to the event before it, or to the API call that launched it;
from the host's thread to the event that its last waiting call waited for. The time in between belongs to the host's
thread. So each moment of the step is in exactly one segment, and the segments add up to its length.

Across ranks, a collective that all ranks exchange data in (`collective_groups`) leads to the rank that arrived last,
whose kernel is the shortest: the path goes on there. Times of other ranks are put on the clock of the step's worker
(`rank_clocks`); where that would be later than where the path is already, the path does not go back.

Steps are taken in groups (`path_walk`), in the order of time.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.intervals import at_places
from pyprof.core.model import Ints
from pyprof.facts.device.timeline import Activity, Excerpt
from pyprof.facts.host.host_time import HostTime
from pyprof.facts.path.dependencies import NONE, STREAM, Dependencies
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.facts.ranks.rank_clocks import between, clocks
from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source

PARTS = (
    "kernel", "copy or set", "communication", "wait for ranks", "queued", "launch", "host", "api call", "data loader",
    "synchronization", "not recorded",
)  # fmt: skip
KERNEL, COPY, COMMUNICATION, RANKS, QUEUED, LAUNCHING, HOST, CALL, LOADER, SYNC, UNRECORDED = range(len(PARTS))


class Rank:
    """A worker's events, what they waited for, and its host. `excerpt`: if not all of its activity counts."""

    def __init__(self, source: Source, worker: int, excerpt: Excerpt | None = None):
        self.activity: Activity = excerpt or source.activity(worker)
        self.host = HostTime(self.activity)
        self.releases = Dependencies(self.activity)
        activity = self.activity
        self.part: Ints = np.where(
            activity.communication, COMMUNICATION, np.where(activity.kernel, KERNEL, COPY)
        ).astype(np.int8)
        self.instance = np.full(len(activity.start), NONE, np.int32)
        rows = mutual(source)
        rows = rows[rows["worker"] == worker]
        place = np.searchsorted(activity.id, rows["event"].to_numpy())
        there = np.r_[activity.id, NONE][place] == rows["event"]
        self.instance[place[there]] = rows["instance"][there]
        # Numbers of texts and operators, in half the memory.
        self.kernel_name: Ints = activity.of_events("name").values.astype(np.int32)
        self.operator: Ints = activity.of_events("operator").values.astype(np.int32)
        self.call_name: Ints = activity.of_calls("name").values.astype(np.int32)

    @cached_property
    def runs(self) -> tuple[Ints, Ints, Ints]:
        """Events in the order of their streams; the place of each in it; and the first place of its run: events that
        each waited for the one before, none of them a collective of several ranks."""
        releases, alone = self.releases, self.instance < 0
        follows = (releases.kind == STREAM) & alone & alone[releases.before]
        order = releases.by_stream
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        head = np.where(follows[order], np.int32(0), np.arange(len(order), dtype=np.int32))
        return order, place, np.maximum.accumulate(head, out=head)


class StepEnd(NamedTuple):
    """A step on a worker, with its bounds on that worker's clock; `length` without pauses in which the recording was
    read."""

    number: int
    worker: int
    start: int
    end: int
    length: int


class Paths(NamedTuple):
    """The paths of some steps, each on the clock of its step's worker, latest first.

    `segments`: `path`: index in `steps`; `part`, `worker`, `event` (its place, -1 on the host), `thread` (-1 on a
    device), `low` and `high`, `begin`: the low end on the worker's own clock; `length` without pauses in which the
    recording was read; on the host also `operator`, `text`, `function`, `call` as in `HostTime.of`, else -1.
    """

    steps: list[StepEnd]
    segments: pd.DataFrame


def steps_of(source: Source) -> list[StepEnd]:
    """Return the steps of each worker, in order."""
    out = []
    for activity, own in activities(source):
        columns = (own.number.tolist(), own.start.tolist(), own.end.tolist(), own.length(activity).tolist())
        out += [StepEnd(number, activity.worker, start, end, length) for number, start, end, length in zip(*columns)]
    return out


def last_ends(source: Source) -> list[StepEnd]:
    """Return the steps by their numbers, each on the worker that ends it last."""
    steps = steps_of(source)
    known = clocks(source.store)
    last: dict[int, tuple[int, StepEnd]] = {}
    of_worker: dict[int, list[StepEnd]] = {}
    for step in steps:
        of_worker.setdefault(step.worker, []).append(step)
    for worker, own in of_worker.items():
        common = between(known, worker, steps[0].worker, np.array([step.end for step in own])).tolist()
        for step, end in zip(own, common):
            if step.number not in last or end > last[step.number][0]:
                last[step.number] = end, step
    return [last[number][1] for number in sorted(last)]


def mutual(source: Source) -> pd.DataFrame:
    """Return the aligned collectives in which all ranks exchange data."""
    rows = collectives(source.store)
    return rows[(rows["instance"] >= 0) & rows["name"].isin(MUTUAL)]


class LastArrival(NamedTuple):
    """The last arrival at a collective: the worker, the event's id and its length."""

    worker: int
    event: int
    length: int


def last_arrivals(source: Source) -> dict[int, LastArrival]:
    """Return the last arrival at each collective, by its number."""
    rows = mutual(source).sort_values(["instance", "duration_ns", "worker", "device"], kind="stable")
    first = rows.drop_duplicates("instance")
    columns = (first[name].tolist() for name in ("instance", "worker", "event", "duration_ns"))
    return {instance: LastArrival(worker, event, length) for instance, worker, event, length in zip(*columns)}


def numbered(rank: Rank, segments: pd.DataFrame) -> pd.DataFrame:
    """Return segments of a rank with their places as numbers, -1 for none: `kernel`: of the table `kernel_name`; `call`
    and `host`: of `string`; `operator`; `where`: 0: in the operator, 1: before it, 2: a kernel of it; `stack`: of
    Python functions, for `HostWork.stack`."""
    event, thread, begin = (segments[name].to_numpy(np.int64) for name in ("event", "thread", "begin"))
    on_host = (thread >= 0) & (event < 0)
    following, stack = (np.full(len(event), NONE, np.int64) for _ in range(2))
    if len(host := np.flatnonzero(on_host)):
        following[host] = rank.host.work.following(thread[host], begin[host])
        stack[host] = rank.host.work.stacks(thread[host], begin[host])
    inside = segments["operator"].to_numpy(np.int64)
    own = at_places(rank.operator, event)
    operator = np.where(on_host, np.where(inside >= 0, inside, following), own)
    where = np.where(on_host, np.where(inside >= 0, 0, 1), 2)
    launching = segments["part"].to_numpy() == LAUNCHING
    call = at_places(rank.call_name, at_places(rank.activity.launch, event))
    text, function = (segments[name].to_numpy(np.int64) for name in ("text", "function"))
    return segments.assign(
        kernel=at_places(rank.kernel_name, event),
        call=np.where(launching, call, segments["call"].to_numpy(np.int64)),
        host=np.where(text >= 0, text, function),
        operator=operator,
        where=np.where(operator < 0, NONE, where),
        stack=stack,
    )

# SPDX-License-Identifier: Apache-2.0
"""Work of a rank between moments of its recording: the part of causes of lateness that needs its events and those of no
other rank. `delay_causes` compares ranks with it.

The time between two moments is divided twice. By PARTS: kernels and copies on a device, other communication there,
waits for the data loader, API calls, operators and ranges of the host, other; and by ON_HOST for the host alone,
without the calls in which it waits for a device. Time that an earlier part has already is not counted again. Such times
add up over consecutive stretches, so a fleet's summary keeps them from each moment that other ranks may share to the
next (`tables`), and reads them back (`_FromSummary`); a profile computes them from its events (`_FromEvents`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.analysis.collective_groups import MUTUAL, collectives
from pyprof.analysis.partition import Union, partition
from pyprof.analysis.source import API_KINDS
from pyprof.analysis.timeline import Activity
from pyprof.model import Column, Ints
from pyprof.store.files import Store
from pyprof.store.ids import first_id

ON_HOST = ("dataloader", "launch", "host", "other")
PARTS = ("kernels", "communication", *ON_HOST)
_WAITS = [API_KINDS.index(kind) for kind in ("sync", "memcpy")]
# Columns of the table moment, but for what is left of the time.
_PARTS = [f"{part}_ns" for part in PARTS[:-1]]
_HOST = ["waits_ns", *(f"unwaited_{part}_ns" for part in ON_HOST[:-1])]
_MOMENT = ["device", "time_ns", "computation_ns", *_PARTS, *_HOST]


class RankWork(ABC):
    """The work of a worker. `begin`, `end`: stretches of time, in ns."""

    @abstractmethod
    def launches(self, event: Ints) -> Ints:
        """Return when the calls that launched given collectives began; without a launch record, when these started."""

    @abstractmethod
    def computation(self, device: int, begin: Ints, end: Ints) -> Ints:
        """Return the time in which kernels other than communication ran."""

    @abstractmethod
    def parts(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the times of PARTS."""

    @abstractmethod
    def on_host(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the times of ON_HOST without the calls in which the host waited, between moments of a device."""

    @abstractmethod
    def in_operators(self, device: int, begin: Ints, end: Ints) -> pd.DataFrame:
        """Return the time of operators in the part host, counted in those around each as well: `row`, the place of the
        stretch, `operator`, its number, and `time`, of some rows more than one."""


def rank_work(store: Store, worker: int) -> RankWork:
    """Return the work of a worker."""
    if store.is_summary:
        return store.cached(("rank work", worker), lambda: _FromSummary(store, worker))
    return _FromEvents(store.cached(("activity", worker), lambda: Activity(store, worker)))


class _FromEvents(RankWork):
    def __init__(self, activity: Activity):
        self._activity = activity

    def launches(self, event: Ints) -> Ints:
        activity = self._activity
        place = np.searchsorted(activity.id, event)
        call = activity.launch[place]
        start = activity.call["start_ns"].values
        return np.where(call >= 0, start[np.maximum(call, 0)] if len(start) else 0, activity.start[place])

    def computation(self, device: int, begin: Ints, end: Ints) -> Ints:
        activity = self._activity
        kernels = activity.union(activity.kernel & ~activity.communication & activity.on(device))
        return kernels.within(begin, end)

    def parts(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        return dict(zip(PARTS, partition([*self._on_device(device), *self._host], begin, end)))

    def on_host(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        return dict(zip(("waits", *ON_HOST), partition([self._waits, *self._host], begin, end)))

    def in_operators(self, device: int, begin: Ints, end: Ints) -> pd.DataFrame:
        worker = self._activity.worker
        ops = self._activity.store.columns(
            f"""select operator, start_ns, end_ns from op
                where id >= {first_id(worker)} and id < {first_id(worker + 1)} order by id"""
        )
        opened, closed = ops["start_ns"].values, ops["end_ns"].values
        low, high = _pieces(begin, end)
        first = np.searchsorted(high, opened, side="right")
        op, piece = _expanded(first, np.searchsorted(low, closed))
        start, stop = np.maximum(opened[op], low[piece]), np.minimum(closed[op], high[piece])
        kernels, communication = self._on_device(device)
        other = kernels.with_(communication).with_(self._activity.dataloader).with_(self._activity.runtime)
        time = stop - start - other.within(start, stop)
        table = pd.DataFrame({"piece": piece, "operator": ops["operator"].values[op], "time": time})
        sums = table[time > 0].groupby(["piece", "operator"])["time"].sum().reset_index()
        piece, operator, spent = (sums[name].to_numpy(np.int64) for name in ("piece", "operator", "time"))
        return _in_stretches(low[piece], operator, spent, begin, end)

    def _on_device(self, device: int) -> tuple[Union, Union]:
        """Return the time in kernels and copies, and the time in communication."""
        activity = self._activity
        on = activity.on(device)
        return activity.union(on & ~activity.communication), activity.union(on & activity.communication)

    @property
    def _host(self) -> list[Union]:
        return [self._activity.dataloader, self._activity.runtime, self._activity.cpu]

    @property
    def _waits(self) -> Union:
        """Return the time in calls that may wait for a device."""
        call = self._activity.call
        mask = np.isin(call["kind"].values, _WAITS)
        start = call["start_ns"].values[mask]
        return Union(start, start + call["duration_ns"].values[mask])


class _FromSummary(RankWork):
    """The times between moments that a summary has. Others are damage: all that are asked for were written."""

    def __init__(self, store: Store, worker: int):
        self._store, self._worker = store, worker

    @cached_property
    def _launched(self) -> dict[str, Column]:
        low, high = first_id(self._worker), first_id(self._worker + 1)
        return self._store.columns(
            "select event, start_ns from launch where event >= ? and event < ? order by event", (low, high)
        )

    @cached_property
    def _moments(self) -> dict[str, Ints]:
        return self._of_worker("moment", _MOMENT)

    @cached_property
    def _operators(self) -> dict[str, Ints]:
        return self._of_worker("moment_operator", ["device", "time_ns", "operator", "host_ns"])

    def _of_worker(self, table: str, names: list[str]) -> dict[str, Ints]:
        columns = self._store.columns(
            f"select {', '.join(names)} from {table} where worker = ? order by device, time_ns",
            (self._worker,),
        )
        return {name: column.values for name, column in columns.items()}

    def _on(self, device: int, time: Ints) -> tuple[slice, Ints]:
        """Return the moments of a device, and the places of some among them."""
        low, high = np.searchsorted(self._moments["device"], [device, device + 1]).tolist()
        moments = self._moments["time_ns"][low:high]
        if not np.isin(time, moments).all():
            raise self._store.damaged(f"table moment lacks moments of worker {self._worker}")
        return slice(low, high), np.searchsorted(moments, time)

    def _between(self, names: list[str], device: int, begin: Ints, end: Ints) -> list[Ints]:
        own, first = self._on(device, begin)
        _, last = self._on(device, end)
        sums = (np.cumsum(self._moments[name][own]) for name in names)
        return [sum_[last] - sum_[first] for sum_ in sums]

    def launches(self, event: Ints) -> Ints:
        known = self._launched["event"].values
        if not np.isin(event, known).all():
            raise self._store.damaged(f"table launch lacks collectives of worker {self._worker}")
        return self._launched["start_ns"].values[np.searchsorted(known, event)]

    def computation(self, device: int, begin: Ints, end: Ints) -> Ints:
        return self._between(["computation_ns"], device, begin, end)[0]

    def parts(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        return dict(zip(PARTS, _with_rest(self._between(_PARTS, device, begin, end), begin, end)))

    def on_host(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        times = _with_rest(self._between(_HOST, device, begin, end), begin, end)
        return dict(zip(("waits", *ON_HOST), times))

    def in_operators(self, device: int, begin: Ints, end: Ints) -> pd.DataFrame:
        columns = self._operators
        low, high = np.searchsorted(columns["device"], [device, device + 1]).tolist()
        time, operator, spent = (columns[name][low:high] for name in ("time_ns", "operator", "host_ns"))
        return _in_stretches(time, operator, spent, begin, end)


def _pieces(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the bounds of the pieces into which the bounds of all stretches divide them, by time.

    >>> [bound.tolist() for bound in _pieces(np.array([0, 5, 20]), np.array([9, 12, 30]))]
    [[0, 5, 9, 20], [5, 9, 12, 30]]
    """
    edges = np.unique(np.r_[begin, end])
    change = np.bincount(np.searchsorted(edges, begin), minlength=len(edges))
    change -= np.bincount(np.searchsorted(edges, end), minlength=len(edges))
    inside = np.flatnonzero(np.cumsum(change) > 0)
    return edges[inside], edges[inside + 1]


def _expanded(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return, for each range of places [first, last), its number as often as it has places, and these.

    >>> [column.tolist() for column in _expanded(np.array([0, 4, 2]), np.array([2, 3, 3]))]
    [[0, 0, 2], [0, 1, 2]]
    """
    many = np.maximum(last - first, 0)
    number = np.repeat(np.arange(len(first)), many)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)


def _in_stretches(time: Ints, operator: Ints, spent: Ints, begin: Ints, end: Ints) -> pd.DataFrame:
    """Return the rows of `RankWork.in_operators`, of times of operators in pieces that begin at given times, in order,
    and none of which is partly in a stretch."""
    row, place = _expanded(np.searchsorted(time, begin), np.searchsorted(time, end))
    return pd.DataFrame({"row": row, "operator": operator[place], "time": spent[place]})


def _with_rest(times: list[Ints], begin: Ints, end: Ints) -> list[Ints]:
    """Return times of stretches, and what they leave of them."""
    return [*times, end - begin - np.sum(times, axis=0)]


def tables(store: Store) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a summary (store/summary.sql) of all workers of a database."""
    known = collectives(store)
    for (worker,) in store.rows("select id from worker order by id"):
        work = rank_work(store, worker)
        own = known[known["worker"] == worker]
        event = own.loc[own["name"].isin(MUTUAL), "event"].to_numpy()
        if not len(event):
            continue
        yield "launch", pa.table({"event": event, "start_ns": work.launches(event)})
        for device, rows in own.groupby("device"):
            yield from _of_device(store, work, worker, int(device), rows)


def _of_device(
    store: Store, work: RankWork, worker: int, device: int, rows: pd.DataFrame
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a device: of its moments, and of operators between those at which ranks are compared. `rows`:
    its collectives."""
    start, length, event = (rows[name].to_numpy() for name in ("start_ns", "duration_ns", "event"))
    mutual = rows["name"].isin(MUTUAL).to_numpy()
    if not mutual.any():
        return
    begun = store.rows("select start_ns from worker where id = ?", (worker,))[0]
    steps = store.columns("select start_ns from step where worker = ?", (worker,))["start_ns"].values
    compared = np.unique(np.r_[start, start + length, steps])
    moments = np.unique(np.r_[compared, work.launches(event[mutual]), begun])
    begin, end = moments[:-1], moments[1:]
    division, host = work.parts(device, begin, end), work.on_host(device, begin, end)
    times = [work.computation(device, begin, end), *(division[part] for part in PARTS[:-1])]
    times += [host[part] for part in ("waits", *ON_HOST[:-1])]
    columns = {name: np.r_[0, time] for name, time in zip(_MOMENT[2:], times)}
    rank = {"worker": np.full(len(moments), worker), "device": np.full(len(moments), device)}
    yield "moment", pa.table({**rank, "time_ns": moments, **columns})
    operators = work.in_operators(device, compared[:-1], compared[1:])
    rank = {"worker": np.full(len(operators), worker), "device": np.full(len(operators), device)}
    time = compared[operators["row"].to_numpy(np.int64)]
    yield (
        "moment_operator",
        pa.table({**rank, "time_ns": time, "operator": operators["operator"].to_numpy(np.int64),
                  "host_ns": operators["time"].to_numpy(np.int64)}),
    )  # fmt: skip

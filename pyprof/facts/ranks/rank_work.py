# SPDX-License-Identifier: Apache-2.0
"""Arrivals of a rank at collectives, and its work before each: the part of causes of lateness that needs its events and
those of no other rank. `delay_causes` compares ranks with it.

The time between two moments is divided twice. By PARTS: kernels and copies on a device, other communication there,
waits for the data loader, API calls, operators and ranges of the host, other; and by ON_HOST for the host alone,
without the calls in which it waits for a device. Time that an earlier part has already is not counted again. Such times
add up over consecutive stretches, so they are rows of the database from each moment that other ranks may share to the
next, worked out once (`add`). A database that has none, because it is older, is read as if it had.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.model import Ints
from pyprof.facts.device.partition import Union, partition
from pyprof.facts.device.timeline import Activity
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.facts.steps.source import API_KINDS
from pyprof.store.files import Store, ingest
from pyprof.store.ids import first_id

ON_HOST = ("dataloader", "launch", "host", "other")
PARTS = ("kernels", "communication", *ON_HOST)
_WAITS = [API_KINDS.index(kind) for kind in ("sync", "memcpy")]
# Columns of the table moment, but for what is left of the time.
_PARTS = [f"{part}_ns" for part in PARTS[:-1]]
_HOST = ["waits_ns", *(f"unwaited_{part}_ns" for part in ON_HOST[:-1])]
_TABLES = {
    "launch": ["event", "start_ns"],
    "moment": ["device", "time_ns", "computation_ns", *_PARTS, *_HOST],
    "moment_operator": ["device", "time_ns", "operator", "host_ns"],
}
_ORDER = {"launch": "event", "moment": "device, time_ns", "moment_operator": "device, time_ns"}


def rank_work(store: Store, worker: int) -> RankWork:
    """Return the work of a worker."""
    return store.cached(("rank work", worker), lambda: RankWork(store, worker), small=True)


def add(store: Store, name: str) -> None:
    """Work out the tables of all workers of a database that was just built, and write them into its file."""
    for (worker,) in store.rows("select id from worker order by id"):
        for table, rows in _compute(store, worker):
            if rows.num_rows:
                ingest(name, table, rows)


class RankWork:
    """The work of a worker. `begin`, `end`: stretches of time between its moments, in ns."""

    def __init__(self, store: Store, worker: int):
        self._store, self._worker = store, worker
        parts: dict[str, dict[str, Ints]] = {}
        if store.rows("select 1 from sqlite_master where name = 'moment'"):
            parts = {table: self._read(table) for table in _TABLES}
        else:
            known = list(_compute(store, worker))
            for table, names in _TABLES.items():
                own = [rows for name, rows in known if name == table]
                parts[table] = {
                    name: np.concatenate([np.empty(0, np.int64), *(rows.column(name).to_numpy() for rows in own)])
                    for name in names
                }
        self._launched, self._moments, self._operators = parts.values()

    def _read(self, table: str) -> dict[str, Ints]:
        own, parameters = "worker = ?", [self._worker]
        if table == "launch":
            own, parameters = "event >= ? and event < ?", [first_id(self._worker), first_id(self._worker + 1)]
        query = f"select {', '.join(_TABLES[table])} from {table} where {own} order by {_ORDER[table]}"
        return {name: column.values for name, column in self._store.columns(query, parameters).items()}

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
        """Return when the calls that launched given collectives began; without a launch record, when these started."""
        known = self._launched["event"]
        if not np.isin(event, known).all():
            raise self._store.damaged(f"table launch lacks collectives of worker {self._worker}")
        out: Ints = self._launched["start_ns"][np.searchsorted(known, event)]
        return out

    def computation(self, device: int, begin: Ints, end: Ints) -> Ints:
        """Return the time in which kernels other than communication ran."""
        return self._between(["computation_ns"], device, begin, end)[0]

    def parts(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the times of PARTS."""
        return dict(zip(PARTS, _with_rest(self._between(_PARTS, device, begin, end), begin, end)))

    def on_host(self, device: int, begin: Ints, end: Ints) -> dict[str, Ints]:
        """Return the times of ON_HOST without the calls in which the host waited, between moments of a device."""
        times = _with_rest(self._between(_HOST, device, begin, end), begin, end)
        return dict(zip(("waits", *ON_HOST), times))

    def in_operators(self, device: int, begin: Ints, end: Ints) -> pd.DataFrame:
        """Return the time of operators in the part host, counted in those around each as well: `row`, the place of the
        stretch, `operator`, its number, and `time`, of some rows more than one."""
        columns = self._operators
        low, high = np.searchsorted(columns["device"], [device, device + 1]).tolist()
        time, operator, spent = (columns[name][low:high] for name in ("time_ns", "operator", "host_ns"))
        row, place = _expanded(np.searchsorted(time, begin), np.searchsorted(time, end))
        return pd.DataFrame({"row": row, "operator": operator[place], "time": spent[place]})


def _with_rest(times: list[Ints], begin: Ints, end: Ints) -> list[Ints]:
    """Return times of stretches, and what they leave of them."""
    return [*times, end - begin - np.sum(times, axis=0)]


def _expanded(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return, for each range of places [first, last), its number as often as it has places, and these.

    >>> [column.tolist() for column in _expanded(np.array([0, 4, 2]), np.array([2, 3, 3]))]
    [[0, 0, 2], [0, 1, 2]]
    """
    many = np.maximum(last - first, 0)
    number = np.repeat(np.arange(len(first)), many)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)


def _compute(store: Store, worker: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a worker: nothing without collectives in which all ranks exchange data."""
    known = collectives(store)
    own = known[known["worker"] == worker]
    event = own.loc[own["name"].isin(MUTUAL), "event"].to_numpy()
    if len(event):
        activity = store.cached(("activity", worker), lambda: Activity(store, worker))
        yield "launch", pa.table({"event": event, "start_ns": _launches(activity, event)})
        for device, rows in own.groupby("device"):
            yield from _of_device(activity, int(device), rows)  # type: ignore[arg-type]


def _launches(activity: Activity, event: Ints) -> Ints:
    place = np.searchsorted(activity.id, event)
    call = activity.launch[place]
    start = activity.call["start_ns"].values
    return np.where(call >= 0, start[np.maximum(call, 0)] if len(start) else 0, activity.start[place])


def _of_device(activity: Activity, device: int, rows: pd.DataFrame) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a device: of its moments, and of operators between those at which ranks are compared. `rows`:
    its collectives."""
    start, length, event = (rows[name].to_numpy() for name in ("start_ns", "duration_ns", "event"))
    mutual = rows["name"].isin(MUTUAL).to_numpy()
    if not mutual.any():
        return
    query = "select start_ns from step where worker = ?"
    steps = activity.store.columns(query, (activity.worker,))["start_ns"].values
    compared = np.unique(np.r_[start, start + length, steps])
    moments = np.unique(np.r_[compared, _launches(activity, event[mutual]), activity.span[0]])
    begin, end = moments[:-1], moments[1:]
    on, apart = activity.on(device), activity.communication
    kernels, communication = activity.union(on & ~apart), activity.union(on & apart)
    host = [activity.dataloader, activity.runtime, activity.cpu]
    division = partition([kernels, communication, *host], begin, end)[:-1]
    alone = partition([_waits(activity), *host], begin, end)[:-1]
    computed = activity.union(activity.kernel & ~apart & on).within(begin, end)
    columns = dict(zip(_TABLES["moment"][2:], (np.r_[0, time] for time in (computed, *division, *alone))))
    rank = {"worker": np.full(len(moments), activity.worker), "device": np.full(len(moments), device)}
    yield "moment", pa.table({**rank, "time_ns": moments, **columns})
    other = kernels.with_(communication).with_(activity.dataloader).with_(activity.runtime)
    yield "moment_operator", _operators(activity, device, compared, other)


def _waits(activity: Activity) -> Union:
    """Return the time in calls that may wait for a device."""
    call = activity.call
    mask = np.isin(call["kind"].values, _WAITS)
    start = call["start_ns"].values[mask]
    return Union(start, start + call["duration_ns"].values[mask])


def _operators(activity: Activity, device: int, moments: Ints, other: Union) -> pa.Table:
    """Return the time of operators between moments, without `other`."""
    ops = activity.store.table("op", ("operator", "start_ns", "end_ns"), *activity.ids("op"))
    opened, closed = ops["start_ns"].values, ops["end_ns"].values
    low, high = moments[:-1], moments[1:]
    op, piece = _expanded(np.searchsorted(high, opened, side="right"), np.searchsorted(low, closed))
    start, stop = np.maximum(opened[op], low[piece]), np.minimum(closed[op], high[piece])
    time = stop - start - other.within(start, stop)
    table = pd.DataFrame({"time_ns": low[piece], "operator": ops["operator"].values[op], "host_ns": time})
    sums = table[time > 0].groupby(["time_ns", "operator"])["host_ns"].sum().reset_index()
    rank = {"worker": np.full(len(sums), activity.worker), "device": np.full(len(sums), device)}
    names = ("time_ns", "operator", "host_ns")
    return pa.table({**rank, **{name: sums[name].to_numpy(np.int64) for name in names}})

# SPDX-License-Identifier: Apache-2.0
"""Why a rank came late to a collective: what it did since a point that all ranks share, beside the median rank.

Points that ranks share are the end of the collective before (the one of the same process group: it ends on all ranks
together) and, at the first collective of a recording, the beginning of the same marked step. The time of a rank from
that point to its arrival is divided: kernels and copies on its device, communication of other groups, waits for the
data loader, API calls, operators and ranges of the host, other; what is at the same time one of those before does not
count.
A rank's delay is by how much more of each it has than the median rank, which is the one that arrived in the middle (of
an even number the earlier of two).

Two parts lie before the shared point. `before`: what the recording does not show. At its first collective that is by
how much the step began later; without the same marked step on all ranks it is all. `carried`: a rank that waits in a
collective has its host go on meanwhile; one that came late has that work still to do after it, and is late again,
though it does no more than others. So much of its longer time on the host as the median rank had done before the
collective ended, and it had not, is carried.

Lateness is a difference of the lengths of kernels, each on its own clock. That ranks do not end a collective at exactly
the same time is in `other` (at the first collective of a recording in `before`), so that all parts add up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.collective_groups import MUTUAL, collectives
from pyprof.analysis.partition import Union, partition
from pyprof.analysis.source import API_KINDS, Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints

ON_HOST = ("dataloader", "launch", "host", "other")
PARTS = ("kernels", "communication", *ON_HOST)
OWN = "own"
_WAITS = [API_KINDS.index(kind) for kind in ("sync", "memcpy")]
_KEYS = ["worker", "device"]
_MISSING = np.iinfo(np.int64).min


def explained(source: Source, found: pd.DataFrame) -> pd.DataFrame:
    """Rows of `lateness.arrivals` with, in ns: `median`: by how much the median rank came later than the first;
    `before`, `carried` and those of PARTS: the rest of what the rank was later than the first, negative where it was
    faster than the median rank; `own`: the sum of PARTS. `first`: no collective before it is shared. `operator`: place
    in the table `operator` of the host operator in which the rank spent most time more than the median rank, -1
    without. All of them are 0 in rows that were not last."""
    found = found.reset_index(drop=True)
    found = found.join(_shared(source, found))
    found["reference"] = _median(found)
    wanted = found.groupby("instance")["last"].transform("any") & (found["last"] | found["reference"])
    some = found[wanted].copy()
    taken, shadow = _parts(source, some)
    middle = np.flatnonzero(some["reference"])
    at = pd.Series(middle, some["instance"].to_numpy()[middle])
    place = some["instance"].map(at).to_numpy(np.int64)  # of the median rank's row
    length = some["dur"].to_numpy()
    behind = length[place] - length
    more = {name: part - part[place] for name, part in taken.items()}
    carried = np.zeros(len(some), np.int64)
    for name in ON_HOST:
        ahead = shadow[name][place] - shadow[name]
        both = np.where(
            np.sign(more[name]) == np.sign(ahead), np.minimum(np.abs(more[name]), np.abs(ahead)), 0
        )
        part = both * np.sign(ahead)
        more[name], carried = more[name] - part, carried + part
    rest = behind - carried - sum(more.values())
    first = some["first"].to_numpy(bool)
    more["other"] = more["other"] + np.where(first, 0, rest)
    longest = found.groupby("instance")["dur"].transform("max").loc[some.index].to_numpy(np.int64)
    columns = {"median": longest - length[place], "before": np.where(first, rest, 0), "carried": carried}
    columns |= more | {OWN: sum(more.values())}
    last = some["last"].to_numpy(bool)
    for name, values in columns.items():
        found[name] = 0
        found.loc[some.index, name] = np.where(last, values, 0).astype(np.int64)
    found["operator"] = -1
    found.loc[some.index, "operator"] = np.where(last, _operators(source, some, place), -1)
    return found


def _shared(source: Source, found: pd.DataFrame) -> pd.DataFrame:
    """Per row, `shared`: when, on its clock, the point was that its collective's ranks share, the least integer without
    any; `first`: whether it is no collective before; `launched`: when that was launched."""
    every = collectives(source.store)
    every = every[(every["instance"] >= 0) & every["name"].isin(MUTUAL)].sort_values(
        ["start", "event"], kind="stable"
    )
    every = every.assign(end=every["start"] + every["dur"], group=every["group"].fillna(""))
    before = every.groupby([*_KEYS, "group"])[["instance", "end", "event"]].shift(1)
    before = (
        before.set_index(every["event"].to_numpy()).reindex(found["event"].to_numpy()).reset_index(drop=True)
    )
    same = _same(before["instance"], found)
    mark, number = _marks(source, found)
    end, event = (before[name].fillna(-1).to_numpy(np.int64) for name in ("end", "event"))
    launched = end.copy()
    for worker, here in _workers(found):
        here = here[same[here]]
        launched[here] = _launches(source.activity(worker), event[here])
    at = np.where(same, end, np.where(_same(number, found), mark, _MISSING))
    return pd.DataFrame({"shared": at, "first": ~same, "launched": launched})


def _same(value: pd.Series[Any], found: pd.DataFrame) -> Bools:
    """Whether all ranks of the row's collective have the same value."""
    groups = value.groupby(found["instance"].to_numpy())
    count = groups.transform("count")
    return np.asarray(
        (count == groups.transform("size")) & (groups.transform("min") == groups.transform("max"))
    )


def _marks(source: Source, found: pd.DataFrame) -> tuple[Ints, pd.Series[Any]]:
    """Start and number of the marked step in which each row was launched; the number is missing without one."""
    start, number = np.full(len(found), _MISSING), np.full(len(found), np.nan)
    for worker, here in _workers(found):
        steps = source.store.columns(
            f'select number, start, "end" from step where worker = {worker} order by start'
        )
        begin, end = steps["start"].values, steps["end"].values
        launched = _launches(source.activity(worker), found["event"].to_numpy()[here])
        place = np.searchsorted(begin, launched, side="right") - 1
        inside = (place >= 0) & (launched <= np.r_[end, 0][place])
        start[here[inside]] = begin[place[inside]]
        number[here[inside]] = steps["number"].values[place[inside]]
    return start, pd.Series(number)


def _launches(activity: Activity, event: Ints) -> Ints:
    """When the calls that launched some events began; without a record of it when they started."""
    place = np.searchsorted(activity.id, event)
    call = activity.launch[place]
    start = activity.call["start"].values
    return np.where(call >= 0, start[np.maximum(call, 0)] if len(start) else 0, activity.start[place])


def _workers(found: pd.DataFrame) -> Iterator[tuple[int, Ints]]:
    worker = found["worker"].to_numpy()
    for one in np.unique(worker).tolist():
        yield one, np.flatnonzero(worker == one)


def _median(found: pd.DataFrame) -> Bools:
    """The row of each collective whose rank arrived in the middle."""
    order = found.sort_values(["instance", "dur", *_KEYS], ascending=[True, False, True, True], kind="stable")
    place = order.groupby("instance").cumcount()
    size = order.groupby("instance")["dur"].transform("size")
    return np.asarray((place == (size - 1) // 2).reindex(found.index))


def _parts(source: Source, some: pd.DataFrame) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Per row the division of the time since the shared point; and what the host did from the launch of the collective
    before, of its group, until that ended, without the calls in which it waited. 0 without such a point."""
    taken: dict[str, Ints] = {name: np.zeros(len(some), np.int64) for name in PARTS}
    shadow: dict[str, Ints] = {name: np.zeros(len(some), np.int64) for name in ON_HOST}
    shared, start, first = (some[name].to_numpy() for name in ("shared", "start", "first"))
    for worker, device, mine in _on_devices(some):
        activity = source.activity(worker)
        here = mine[shared[mine] != _MISSING]
        begin = shared[here]
        end = np.maximum(start[here], begin)
        host = [activity.dataloader, activity.runtime, activity.cpu]
        for name, part in zip(PARTS, partition([*_device(activity, device), *host], begin, end)):
            taken[name][here] = part
        after = here[~first[here]]
        launched = np.minimum(some["launched"].to_numpy()[after], shared[after])
        for name, part in zip(ON_HOST, partition([_waits(activity), *host], launched, shared[after])[1:]):
            shadow[name][after] = part
    return taken, shadow


def _on_devices(some: pd.DataFrame) -> Iterator[tuple[int, int, Ints]]:
    """Workers and devices, and the places of their rows."""
    groups: dict[tuple[int, int], Ints] = some.reset_index(drop=True).groupby(_KEYS).indices  # type: ignore[assignment]
    for (worker, device), here in groups.items():
        yield int(worker), int(device), here


def _device(activity: Activity, device: int) -> tuple[Union, Union]:
    """Time in kernels and copies, and in communication."""
    on = activity.on(device)
    return activity.union(on & ~activity.communication), activity.union(on & activity.communication)


def _waits(activity: Activity) -> Union:
    """Time in calls that may wait for a device."""
    call = activity.call
    chosen = np.isin(call["kind"].values, _WAITS)
    start = call["start"].values[chosen]
    return Union(start, start + call["dur"].values[chosen])


def _operators(source: Source, some: pd.DataFrame, place: Ints) -> Ints:
    """Per row the operator in which the rank spent the most host time more than the row at `place`, -1 without."""
    out = np.full(len(some), -1, np.int64)
    frames = [_in_operators(source, some, here, worker, device) for worker, device, here in _on_devices(some)]
    if not frames:
        return out
    time = pd.concat(frames).groupby(["row", "operator"])["time"].sum()
    found = time.reset_index()
    keys = pd.MultiIndex.from_arrays([place[found["row"].to_numpy(np.int64)], found["operator"]])
    found["more"] = found["time"] - time.reindex(keys, fill_value=0).to_numpy()
    found = found[found["more"] > 0].sort_values(["row", "more"], ascending=[True, False], kind="stable")
    most = found.drop_duplicates("row")
    out[most["row"].to_numpy(np.int64)] = most["operator"].to_numpy()
    return out


def _in_operators(source: Source, some: pd.DataFrame, rows: Ints, worker: int, device: int) -> pd.DataFrame:
    """Time of each of some rows of a device in each operator: what the division leaves to the host."""
    activity = source.activity(worker)
    known = source.store.columns(
        f"""select operator, start, "end" - start as dur from op
            where id >= {worker << 40} and id < {(worker + 1) << 40} order by id"""
    )
    start = known["start"].values
    end = start + known["dur"].values
    shared = some["shared"].to_numpy()[rows]
    rows = rows[shared != _MISSING]
    begin = shared[shared != _MISSING]
    stop = np.maximum(some["start"].to_numpy()[rows], begin)
    first = np.searchsorted(np.maximum.accumulate(end), begin, side="right")
    many = np.maximum(np.searchsorted(start, stop) - first, 0)
    row = np.repeat(np.arange(len(rows)), many)
    op = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
    low = np.maximum(start[op], begin[row])
    high = np.maximum(np.minimum(end[op], stop[row]), low)
    kernels, collective = _device(activity, device)
    other = kernels.with_(collective).with_(activity.dataloader).with_(activity.runtime)
    time = high - low - other.within(low, high)
    return pd.DataFrame({"row": rows[row], "operator": known["operator"].values[op], "time": time})

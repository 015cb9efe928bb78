# SPDX-License-Identifier: Apache-2.0
"""Causes of lateness at collectives: the work of a rank since a point that all ranks share, beside the median rank.

Points that ranks share are the end of the previous collective of the same process group, which ends on all ranks
together, and, for the first collective of a recording, the beginning of the same marked step. The time of a rank
from that point to its arrival is divided into parts (`rank_work`). A rank's delay is the excess of each part over that
of the median rank, the one that arrived in the middle (of an even number the earlier of two).

Two parts lie before the shared point. `before` is what the recording does not show. For a rank's first collective,
it is how much later the step began; without the same marked step on all ranks it is the whole delay. `carried` is
host work left over from before: while a rank waits in a collective its host goes on, and a rank that came late still
has that work to do afterwards, so it is late again although it does no more than others. The part of its excess host
time that the median rank had done before the collective ended, and it had not, is carried.

Lateness is a difference of the lengths of kernels, each on its own clock. The small differences between the ends of
a collective on its ranks are in `other` (for the first collective of a recording in `before`), so that all parts add
up to the lateness.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.facts.ranks.rank_work import ON_HOST, PARTS, rank_work
from pyprof.facts.steps.source import Source

OWN = "own"
_KEYS = ["worker", "device"]
_MISSING = np.iinfo(np.int64).min


def explain_delays(source: Source, arrivals: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `stragglers.arrivals` with the causes of each delay, in ns.

    `median`: how much later than the first rank the median rank came. `before`, `carried` and those of PARTS: the
    rest of the lateness, negative where the rank was faster than the median rank. `own`: the sum of PARTS. `first`:
    whether no earlier collective is shared. `operator`: place in the table `operator` of the host operator in which
    the rank spent most time beyond the median rank, -1 without one. All of them are 0 in rows that were not last.
    """
    arrivals = arrivals.reset_index(drop=True)
    arrivals = arrivals.join(_shared(source, arrivals))
    arrivals["reference"] = _median(arrivals)
    compared = arrivals.groupby("instance")["last"].transform("any") & (arrivals["last"] | arrivals["reference"])
    rows = arrivals[compared].copy()
    division, shadow = _parts(source, rows)
    middle = np.flatnonzero(rows["reference"])
    at = pd.Series(middle, rows["instance"].to_numpy()[middle])
    place = rows["instance"].map(at).to_numpy(np.int64)  # of the median rank's row
    length = rows["duration_ns"].to_numpy()
    behind = length[place] - length
    excess = {name: part - part[place] for name, part in division.items()}
    carried = np.zeros(len(rows), np.int64)
    for name in ON_HOST:
        ahead = shadow[name][place] - shadow[name]
        both = np.where(np.sign(excess[name]) == np.sign(ahead), np.minimum(np.abs(excess[name]), np.abs(ahead)), 0)
        part = both * np.sign(ahead)
        excess[name], carried = excess[name] - part, carried + part
    remainder = behind - carried - sum(excess.values())
    first = rows["first"].to_numpy(bool)
    excess["other"] = excess["other"] + np.where(first, 0, remainder)
    longest = arrivals.groupby("instance")["duration_ns"].transform("max").loc[rows.index].to_numpy(np.int64)
    columns = {"median": longest - length[place], "before": np.where(first, remainder, 0), "carried": carried}
    columns |= excess | {OWN: sum(excess.values())}
    last = rows["last"].to_numpy(bool)
    for name, values in columns.items():
        arrivals[name] = 0
        arrivals.loc[rows.index, name] = np.where(last, values, 0).astype(np.int64)
    arrivals["operator"] = -1
    arrivals.loc[rows.index, "operator"] = np.where(last, _operators(source, rows, place), -1)
    return arrivals


def _shared(source: Source, rows: pd.DataFrame) -> pd.DataFrame:
    """Return, per row, `shared`: the time, on its clock, of the point that its collective's ranks share, the least
    integer without one; `first`: whether there is no earlier collective; `launched`: when that one was launched.
    """
    mutual = collectives(source.store)
    mutual = mutual[(mutual["instance"] >= 0) & mutual["name"].isin(MUTUAL)].sort_values(
        ["start_ns", "event"], kind="stable"
    )
    mutual = mutual.assign(end=mutual["start_ns"] + mutual["duration_ns"], group=mutual["group"].fillna(""))
    before = mutual.groupby([*_KEYS, "group"])[["instance", "end", "event"]].shift(1)
    before = before.set_index(mutual["event"].to_numpy()).reindex(rows["event"].to_numpy()).reset_index(drop=True)
    same = _same(before["instance"], rows)
    mark, number = _marks(source, rows)
    end, event = (before[name].fillna(-1).to_numpy(np.int64) for name in ("end", "event"))
    launched = end.copy()
    for worker, index in _workers(rows):
        index = index[same[index]]
        launched[index] = rank_work(source.store, worker).launches(event[index])
    at = np.where(same, end, np.where(_same(number, rows), mark, _MISSING))
    return pd.DataFrame({"shared": at, "first": ~same, "launched": launched})


def _same(value: pd.Series[Any], rows: pd.DataFrame) -> Bools:
    """Return whether all ranks of the row's collective have the same value."""
    groups = value.groupby(rows["instance"].to_numpy())
    count = groups.transform("count")
    return np.asarray((count == groups.transform("size")) & (groups.transform("min") == groups.transform("max")))


def _marks(source: Source, rows: pd.DataFrame) -> tuple[Ints, pd.Series[Any]]:
    """Return start and number of the marked step in which each row was launched; the number is missing without one."""
    start, number = np.full(len(rows), _MISSING), np.full(len(rows), np.nan)
    for worker, index in _workers(rows):
        steps = source.store.columns(
            f"select number, start_ns, end_ns from step where worker = {worker} order by start_ns"
        )
        begin, end = steps["start_ns"].values, steps["end_ns"].values
        launched = rank_work(source.store, worker).launches(rows["event"].to_numpy()[index])
        place = np.searchsorted(begin, launched, side="right") - 1
        inside = (place >= 0) & (launched <= np.r_[end, 0][place])
        start[index[inside]] = begin[place[inside]]
        number[index[inside]] = steps["number"].values[place[inside]]
    return start, pd.Series(number)


def _workers(rows: pd.DataFrame) -> Iterator[tuple[int, Ints]]:
    """Yield each worker with the places of its rows."""
    worker = rows["worker"].to_numpy()
    for number in np.unique(worker).tolist():
        yield number, np.flatnonzero(worker == number)


def _median(rows: pd.DataFrame) -> Bools:
    """Return which row of each collective is that of the median rank."""
    order = rows.sort_values(["instance", "duration_ns", *_KEYS], ascending=[True, False, True, True], kind="stable")
    place = order.groupby("instance").cumcount()
    size = order.groupby("instance")["duration_ns"].transform("size")
    return np.asarray((place == (size - 1) // 2).reindex(rows.index))


def _parts(source: Source, rows: pd.DataFrame) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return, per row, the division of the time since the shared point, and what the host did between the launch and
    the end of the previous collective of the group, without the calls in which it waited. Both are 0 without such a
    point."""
    division: dict[str, Ints] = {name: np.zeros(len(rows), np.int64) for name in PARTS}
    shadow: dict[str, Ints] = {name: np.zeros(len(rows), np.int64) for name in ON_HOST}
    shared, start, first = (rows[name].to_numpy() for name in ("shared", "start_ns", "first"))
    for worker, device, own in _on_devices(rows):
        work = rank_work(source.store, worker)
        index = own[shared[own] != _MISSING]
        begin = shared[index]
        parts = work.parts(device, begin, np.maximum(start[index], begin))
        after = index[~first[index]]
        launched = np.minimum(rows["launched"].to_numpy()[after], shared[after])
        on_host = work.on_host(device, launched, shared[after])
        for name in PARTS:
            division[name][index] = parts[name]
        for name in ON_HOST:
            shadow[name][after] = on_host[name]
    return division, shadow


def _on_devices(rows: pd.DataFrame) -> Iterator[tuple[int, int, Ints]]:
    """Yield each worker and device with the places of its rows."""
    groups: dict[tuple[int, int], Ints] = rows.reset_index(drop=True).groupby(_KEYS).indices  # type: ignore[assignment]
    for (worker, device), index in groups.items():
        yield int(worker), int(device), index


def _operators(source: Source, rows: pd.DataFrame, place: Ints) -> Ints:
    """Return, per row, the operator in which the rank spent the most host time beyond the row at `place`, -1 without
    one."""
    out = np.full(len(rows), -1, np.int64)
    frames = [_in_operators(source, rows, index, worker, device) for worker, device, index in _on_devices(rows)]
    if not frames:
        return out
    time = pd.concat(frames).groupby(["row", "operator"])["time"].sum()
    sums = time.reset_index()
    keys = pd.MultiIndex.from_arrays([place[sums["row"].to_numpy(np.int64)], sums["operator"]])
    sums["excess"] = sums["time"] - time.reindex(keys, fill_value=0).to_numpy()
    sums = sums[sums["excess"] > 0].sort_values(["row", "excess"], ascending=[True, False], kind="stable")
    most = sums.drop_duplicates("row")
    out[most["row"].to_numpy(np.int64)] = most["operator"].to_numpy()
    return out


def _in_operators(source: Source, table: pd.DataFrame, rows: Ints, worker: int, device: int) -> pd.DataFrame:
    """Return the host time of each given row of a device in each operator: what the division leaves to the host."""
    shared = table["shared"].to_numpy()[rows]
    rows = rows[shared != _MISSING]
    begin = shared[shared != _MISSING]
    end = np.maximum(table["start_ns"].to_numpy()[rows], begin)
    times = rank_work(source.store, worker).in_operators(device, begin, end)
    return times.assign(row=rows[times["row"].to_numpy()])

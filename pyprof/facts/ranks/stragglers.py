# SPDX-License-Identifier: Apache-2.0
"""Stragglers: the rank that comes last to each collective, and what that costs the others.

This covers aligned collectives (`collective_groups`) in which every rank needs data of every other (all_reduce,
all_gather, reduce_scatter, all_to_all). The last rank is the one with the shortest kernel: kernels of a collective
end together, so the shortest one began last. Ranks whose kernels are equally short are equally late. This needs no
common clock. In a broadcast or a reduction to one rank, a short kernel may also be that of a rank with little to do,
so these are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives, within
from pyprof.facts.ranks.rank_work import rank_work
from pyprof.facts.steps.dataframes import steps_of
from pyprof.facts.steps.source import Source

_RANK = ["worker", "device"]


def arrivals(source: Source, spans: list[tuple[int, int]]) -> pd.DataFrame:
    """Return one row per rank and aligned collective that all its ranks launched in `spans` (ids of events).

    Collectives before which the recording of a rank was read are left out. Columns are those of `collectives` and:
    `last`: whether the rank came last; `late`: ns from the arrival of the first rank to its own; `alone`: ns by
    which it was later than every other rank; `step`: iteration, of the first rank; `place`: number of the collective
    among those of its group in that iteration, missing if the run is not cut into iterations.
    """
    rows = collectives(source.store)
    inside = pd.Series(within(rows, spans), rows.index)
    whole = inside.groupby(rows["instance"]).transform("all")
    rows = rows[whole & (rows["instance"] >= 0) & rows["name"].isin(MUTUAL)].copy()
    paused = pd.Series(_paused(source, rows), rows.index)  # a rank that came late because its recording was read
    rows = rows[~paused.groupby(rows["instance"]).transform("any")].copy()
    dur = rows.groupby("instance")["duration_ns"]
    least, longest = dur.transform("min"), dur.transform("max")
    rows["last"] = (rows["duration_ns"] == least) & (longest > least)
    rows["late"] = (longest - rows["duration_ns"]).where(rows["last"], 0)
    second = _second(rows)
    rows["alone"] = (second - rows["duration_ns"]).where(rows["last"], 0)
    return _placed(source, rows)


def _second(rows: pd.DataFrame) -> pd.Series[Any]:
    """Return the second shortest kernel of each row's collective; the shortest if two are equal."""
    order = rows.sort_values(["instance", "duration_ns"], kind="stable")
    second = order[order.groupby("instance").cumcount() == 1].set_index("instance")["duration_ns"]
    return rows["instance"].map(second)


def _placed(source: Source, rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `step` and `place`."""
    first = rows.sort_values(["instance", *_RANK], kind="stable").drop_duplicates("instance")
    number = steps_of(source.store, source.aggregation, first["event"].to_numpy())
    first = first.assign(step=number, group=first["group"].fillna("")).sort_values(["start_ns", "event"], kind="stable")
    first["place"] = first.groupby(["group", "step"]).cumcount()
    if source.aggregation.method == "none":
        first["place"] = pd.NA
    table = first.set_index("instance")
    rows["step"] = rows["instance"].map(table["step"]).astype("Int64")
    rows["place"] = rows["instance"].map(table["place"]).astype("Int64")
    return rows


def computation(source: Source, arrivals: pd.DataFrame) -> Ints:
    """Return, per row of `arrivals`, the ns in which kernels other than communication ran on its device.

    The time counts from the end of the last collective before it on that device (without one, from the beginning) to
    its start.
    """
    out = np.zeros(len(arrivals), np.int64)
    for worker, device, index, before in _before(source, arrivals):
        work = rank_work(source.store, worker)
        out[index] = work.computation(device, before, arrivals["start_ns"].to_numpy()[index])
    return out


def _paused(source: Source, rows: pd.DataFrame) -> Bools:
    """Return whether the rank's recording was read between the last collective before each row and the row's."""
    out = np.zeros(len(rows), bool)
    for worker, _, index, before in _before(source, rows):
        out[index] = source.activity(worker).paused.within(before, rows["start_ns"].to_numpy()[index]) > 0
    return out


def _before(source: Source, rows: pd.DataFrame) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Yield each worker and device with the places of its rows, and for each row the end of the last collective before
    it."""
    keys = ["worker", "device"]
    every = collectives(source.store)
    ends = (every["start_ns"] + every["duration_ns"]).groupby([every[key] for key in keys])
    before = {key: np.sort(times.to_numpy()) for key, times in ends}
    groups: dict[tuple[int, int], Ints] = rows.groupby(keys, sort=False).indices  # type: ignore[assignment]
    for (worker, device), places in groups.items():
        begun = source.activity(worker).span[0]
        index = np.sort(places)
        start = rows["start_ns"].to_numpy()[index]
        end = before.get((worker, device), start[:0])
        place = np.searchsorted(end, start, side="right")
        yield worker, device, index, np.r_[min(begun, int(start.min())), end][place]

# SPDX-License-Identifier: Apache-2.0
"""Which rank comes last to collectives, and what that costs the others.

Of aligned collectives (`aligned`) in which every rank needs data of every other (all_reduce, all_gather,
reduce_scatter, all_to_all). The last rank is the one with the shortest kernel: kernels of a collective end together,
so the one that is shortest began last; ranks whose kernels are equally short are equally late. This needs no common
clock. In a broadcast or a reduction to one rank a short kernel may as well be that of a rank with little to do: they
say nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.collective_groups import MUTUAL, collectives, within
from pyprof.analysis.dataframes import steps_of
from pyprof.analysis.source import Source
from pyprof.model import Bools, Ints

_RANK = ["worker", "device"]


def arrivals(source: Source, spans: list[tuple[int, int]]) -> pd.DataFrame:
    """One row per rank and aligned collective that all its ranks launched in `spans` (ids of events), but those before
    which the recording of a rank was read, with the
    columns of `collectives` and: `last`: whether it came last; `late`: ns from when the first rank was there until it
    was; `alone`: ns by which it was later than every other rank; `step`: iteration, of the first rank; `place`:
    number of the collective among those of its group in that iteration, missing if the run is not cut into
    iterations."""
    found = collectives(source.store)
    inside = pd.Series(within(found, spans), found.index)
    whole = inside.groupby(found["instance"]).transform("all")
    found = found[whole & (found["instance"] >= 0) & found["name"].isin(MUTUAL)].copy()
    paused = pd.Series(
        _paused(source, found), found.index
    )  # a rank that came late because its recording was read
    found = found[~paused.groupby(found["instance"]).transform("any")].copy()
    dur = found.groupby("instance")["dur"]
    least, longest = dur.transform("min"), dur.transform("max")
    found["last"] = (found["dur"] == least) & (longest > least)
    found["late"] = (longest - found["dur"]).where(found["last"], 0)
    second = _second(found)
    found["alone"] = (second - found["dur"]).where(found["last"], 0)
    return _placed(source, found)


def _second(found: pd.DataFrame) -> pd.Series[Any]:
    """The second shortest kernel of each row's collective; the shortest if two are."""
    order = found.sort_values(["instance", "dur"], kind="stable")
    second = order[order.groupby("instance").cumcount() == 1].set_index("instance")["dur"]
    return found["instance"].map(second)


def _placed(source: Source, found: pd.DataFrame) -> pd.DataFrame:
    first = found.sort_values(["instance", *_RANK], kind="stable").drop_duplicates("instance")
    number = steps_of(source.store, source.aggregation, first["event"].to_numpy())
    first = first.assign(step=number, group=first["group"].fillna("")).sort_values(
        ["start", "event"], kind="stable"
    )
    first["place"] = first.groupby(["group", "step"]).cumcount()
    if source.aggregation.method == "none":
        first["place"] = pd.NA
    table = first.set_index("instance")
    found["step"] = found["instance"].map(table["step"]).astype("Int64")
    found["place"] = found["instance"].map(table["place"]).astype("Int64")
    return found


def computation(source: Source, found: pd.DataFrame) -> Ints:
    """Per row of `arrivals`, ns in which kernels that are no communication ran on its device, from the end of the last
    collective before it on that device (without: from the beginning) to its start."""
    out = np.zeros(len(found), np.int64)
    for worker, device, here, before in _before(source, found):
        activity = source.activity(worker)
        kernels = activity.union(activity.kernel & ~activity.communication & activity.on(device))
        out[here] = kernels.within(before, found["start"].to_numpy()[here])
    return out


def _paused(source: Source, found: pd.DataFrame) -> Bools:
    """Whether the rank's recording was read between the last collective before each row and the row's."""
    out = np.zeros(len(found), bool)
    for worker, _, here, before in _before(source, found):
        out[here] = source.activity(worker).paused.within(before, found["start"].to_numpy()[here]) > 0
    return out


def _before(source: Source, found: pd.DataFrame) -> Iterator[tuple[int, int, Ints, Ints]]:
    """By worker and device: places of its rows, and for each when the last collective before it ended there."""
    keys = ["worker", "device"]
    everything = collectives(source.store)
    ends = (everything["start"] + everything["dur"]).groupby([everything[key] for key in keys])
    before = {key: np.sort(some.to_numpy()) for key, some in ends}
    groups: dict[tuple[int, int], Ints] = found.groupby(keys, sort=False).indices  # type: ignore[assignment]
    for (worker, device), places in groups.items():
        begun = source.activity(worker).span[0]
        here = np.sort(places)
        start = found["start"].to_numpy()[here]
        end = before.get((worker, device), start[:0])
        place = np.searchsorted(end, start, side="right")
        yield worker, device, here, np.r_[min(begun, int(start.min())), end][place]

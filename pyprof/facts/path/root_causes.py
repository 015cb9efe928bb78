# SPDX-License-Identifier: Apache-2.0
"""Causes of late steps across ranks: which rank the median waited for, what it did meanwhile, and what that cost.

How late a rank is at a collective by its own, and in which part of its work, is as in `delay_causes`: against the
median rank, since the collective before. Within a part, its time in each place (operator, module, source line, API
call, kernel) is compared with the median rank's in the same place; the one with the largest excess over all
collectives is the cause. What that cost is the difference to a replay of all ranks without it (`what_if`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Ints
from pyprof.facts.host.host_time import CALLING, LOADING, OUTSIDE
from pyprof.facts.host.host_work import cut_at
from pyprof.facts.host.places import PLACE_COLUMNS, place_texts
from pyprof.facts.path.critical_path import Rank, StepEnd, last_ends, numbered
from pyprof.facts.path.what_if import Removed, Replay
from pyprof.facts.ranks.collective_groups import collectives
from pyprof.facts.ranks.delay_causes import OWN, explain_delays
from pyprof.facts.ranks.rank_clocks import between, clocks
from pyprof.facts.ranks.rank_work import ON_HOST, PARTS
from pyprof.facts.ranks.stragglers import arrivals
from pyprof.facts.steps.source import Source
from pyprof.store import reads

WORTH = 0.01  # share of the step that a delay must cost to be named
_CANDIDATES = 8  # parts of ranks' work that are removed in a replay each: those that make ranks late most
BEFORE = "before the recording"
# Parts of a rank's work, as reports name them.
NAMES = {
    "kernels": "kernels", "communication": "communication", "dataloader": "data loader", "launch": "api calls",
    "host": "host operators", "other": "outside operators", BEFORE: BEFORE,
}  # fmt: skip
PLACE = ("kernel", *PLACE_COLUMNS)
_RANK = ["worker", "device"]
_MISSING = np.iinfo(np.int64).min


class Causes(NamedTuple):
    """Causes of delays of steps.

    `rows`: one per rank and part of its work that a step waited for, by what it cost: worker, device, part, PLACE,
    `collectives` at which it was last, `caused`: ns by which it was late in this part, `there`: in this place,
    `saving`: ns by which all steps together would be shorter, missing for BEFORE. `step`: mean length of the steps in
    ns, on the rank that ends each last; `steps`: their number. `notes`: what is not known, or that nobody is late; a
    sentence each.
    """

    rows: pd.DataFrame
    step: float
    steps: int
    notes: tuple[str, ...]


def root_causes(source: Source, spans: list[tuple[int, int]]) -> Causes:
    """Return the causes of the aggregated steps. `spans`: ids of their events."""
    key = "root_causes", source.aggregation
    causes: Causes = source.store.cached(key, lambda: _root_causes(source, spans), small=True)
    return causes


def _root_causes(source: Source, spans: list[tuple[int, int]]) -> Causes:
    none = pd.DataFrame(columns=[*_RANK, "part", *PLACE, "collectives", "caused", "there", "saving"])
    reason = _reason(source)
    if reason:
        return Causes(none, 0, 0, (reason,))
    whole = Source(source.store, source.aggregation)
    late = explain_delays(whole, arrivals(whole, spans))
    ranks: dict[int, Rank] = {}
    steps = last_ends(whole)
    step = float(np.mean([one.length for one in steps]))
    delays = late[late["last"]].reset_index(drop=True)
    rows = [none]
    sums = _costs(whole, ranks, delays, steps)
    if len(sums):
        places = _places(source, ranks, late, sums)
        rows.append(sums.merge(places, on=[*_RANK, "part"], how="left"))
    before = delays[delays["first"] & (delays["before"] >= max(WORTH * step, 1))]
    if len(before):
        early = before.groupby(_RANK).agg(collectives=("before", "size"), caused=("before", "sum")).reset_index()
        rows.append(early.sort_values("caused", ascending=False, kind="stable").assign(part=BEFORE, saving=None))
    table = pd.concat([one.astype(object) for one in rows], ignore_index=True)
    table = table.reindex(columns=none.columns).astype(object)
    return Causes(table, step, len(steps), tuple(_notes(source, table)))


def _reason(source: Source) -> str:
    """Return why ranks cannot be compared; empty if they can."""
    if len(reads.worker_names(source.store)) < 2:
        return (
            "One rank was recorded: which rank it waited for is not known. The report critical_path says what its "
            "steps waited for."
        )
    known = collectives(source.store)
    if not len(known):
        return "No collective on a GPU was recorded: nothing says when ranks waited for each other."
    if not (known["instance"] >= 0).any():
        how = known["how"].value_counts().index[0].removeprefix("no: ")
        return f"No collective could be matched on several ranks ({how}): who came last is not known."
    return ""


def _notes(source: Source, rows: pd.DataFrame) -> list[str]:
    names, out = reads.worker_names(source.store), []
    if not rows["saving"].notna().any():
        out.append(
            f"No rank delayed the steps by {100 * WORTH:.0f} % or more by its own: nobody is to blame. Whether the "
            "transfers themselves are slow is not known: no recording has the peak of the links."
        )
    if (rows["part"] == BEFORE).any():
        out.append("What happened before the first collective's step began is not recorded; nobody is blamed for it.")
    if source.aggregation.method != "marks":
        whole = source.aggregation.method == "none"
        instead = "the whole recording counts as one" if whole else "iterations stand for them"
        out.append(f"The program marked no steps: {instead}.")
    unknown = [names[one.worker] for one in clocks(source.store).values() if one.line is None]
    if unknown:
        out.append(
            f"The clock of {len(unknown)} of {len(names)} workers is not known ({unknown[0]}"
            f"{' ...' if len(unknown) > 1 else ''}): they share no collective with the median."
        )
    return out


def _costs(source: Source, ranks: dict[int, Rank], delays: pd.DataFrame, steps: list[StepEnd]) -> pd.DataFrame:
    """Return the ranks and parts of their work that cost enough, by what they cost: worker, device, part,
    `collectives`, `caused`, `saving`. The first collective of a recording blames nobody."""
    least = max(WORTH * sum(step.length for step in steps), 1)
    delays = delays[~delays["first"] & (delays[OWN] > 0)]
    parts = delays.melt([*_RANK, "event", OWN], list(PARTS), "part", "caused")
    parts = parts[parts["caused"] > 0]
    sums = parts.groupby([*_RANK, "part"], sort=True).agg(collectives=("caused", "size"), caused=("caused", "sum"))
    sums = sums.reset_index().sort_values("caused", ascending=False, kind="stable", ignore_index=True)
    sums = sums[sums["caused"] >= least].head(_CANDIDATES)
    if not len(sums):
        return sums.assign(saving=0)
    for (number,) in source.store.rows("select id from worker"):
        ranks.setdefault(number, Rank(source, number))
    known, last = clocks(source.store), steps[-1]
    begins = [int(between(known, step.worker, last.worker, np.array([step.start]))[0]) for step in steps]
    replay = Replay(ranks, known, last.worker, min(begins))
    saving = []
    for worker, device, part in sums[[*_RANK, "part"]].itertuples(index=False):
        own = parts[(parts["worker"] == worker) & (parts["device"] == device) & (parts["part"] == part)]
        place = np.searchsorted(ranks[worker].activity.id, own["event"].to_numpy())
        length = np.minimum(own["caused"], own[OWN]).tolist()
        removed = [Removed(*delay, part in ON_HOST) for delay in zip(place.tolist(), length)]
        saving.append(replay.saving(worker, removed, last.end))
    sums["saving"] = saving
    sums = sums[sums["saving"] >= least]
    return sums.sort_values("saving", ascending=False, kind="stable", ignore_index=True)


def _places(source: Source, ranks: dict[int, Rank], late: pd.DataFrame, sums: pd.DataFrame) -> pd.DataFrame:
    """Return the place with the largest excess of each rank and part: worker, device, part, PLACE, `there`."""
    is_late = late["last"] & pd.MultiIndex.from_frame(late[_RANK]).isin(pd.MultiIndex.from_frame(sums[_RANK]))
    is_late &= (late["shared"] != _MISSING) & ~late["first"] & (late[OWN] > 0)
    compared = late[is_late | (late["reference"] & late["instance"].isin(late["instance"][is_late]))]
    frames = []
    for worker, device in compared[_RANK].drop_duplicates().to_numpy().tolist():
        rows = compared[(compared["worker"] == worker) & (compared["device"] == device)]
        frames.append(_times(source, ranks[worker], device, rows))
    times = pd.concat(frames, ignore_index=True)
    keys = ["part", *PLACE]
    own = times[times["last"]].merge(late.loc[is_late, ["instance", *_RANK]], on=["instance", *_RANK])
    rank = own[["instance", *_RANK]].drop_duplicates()
    median = times[times["reference"]].drop(columns=_RANK).merge(rank, on="instance")
    both = pd.concat([own, median.assign(time=-median["time"])])
    excess = both.groupby([*_RANK, *keys], dropna=False, sort=True)["time"].sum().reset_index(name="there")
    excess = excess[excess["there"] > 0].sort_values("there", ascending=False, kind="stable")
    return excess.drop_duplicates([*_RANK, "part"])


def _times(source: Source, rank: Rank, device: int, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the time of a rank in each place before each of its collectives, since the point that all ranks share."""
    activity = rank.activity
    begin = rows["shared"].to_numpy(np.int64)
    end = np.maximum(rows["start_ns"].to_numpy(np.int64), begin)
    known = begin != _MISSING
    rows, begin, end = rows[known], begin[known], end[known]
    on = activity.on(device)
    busy = activity.union(on)
    event, row, time = _within(activity.start, activity.end, np.flatnonzero(on), begin, end)
    device_time = pd.DataFrame({
        "row": row, "event": event, "thread": -1, "begin": begin[row], "time": time,
        "part": np.where(activity.communication[event], "communication", "kernels"),
    })  # fmt: skip
    stretch, low, high = cut_at(np.r_[busy.start, busy.end], begin, end)
    free = ~busy.covers(low, high) & (high > low)
    stretch, low, high = stretch[free], low[free], high[free]
    place = np.searchsorted(activity.id, rows["event"].to_numpy())
    launch = activity.launch[place]
    thread = np.where(launch >= 0, np.r_[activity.call["thread"].values, 0][launch], rank.host.main)
    pieces = rank.host.of(thread.astype(np.int64)[stretch], low, high)
    kind = pieces["kind"].to_numpy()
    host_time = pieces.assign(
        row=stretch[pieces["stretch"].to_numpy()], event=-1, begin=pieces["low"], time=pieces["high"] - pieces["low"],
        part=np.select([kind == LOADING, kind == CALLING, kind == OUTSIDE], ["dataloader", "launch", "other"], "host"),
    )  # fmt: skip
    table = pd.concat([device_time, host_time], ignore_index=True)
    places = ["operator", "text", "function", "call"]
    table[places] = table[places].fillna(-1).astype(np.int64)
    table = numbered(rank, table)
    keys = ["row", "part", "kernel", "call", "host", "where", "operator", "stack"]
    table = table.groupby(keys, sort=False)["time"].sum().reset_index()
    texts = place_texts(source.store, rank.host.work.stack, table)
    kernels = dict(source.store.rows("select id, short_name from kernel_name"))
    texts["kernel"] = table["kernel"].map(kernels).astype(object)
    columns = ["instance", *_RANK, "last", "reference"]
    return table[["row", "part", "time"]].join(texts).join(rows[columns].reset_index(drop=True), on="row")


def _within(start: Ints, end: Ints, selected: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the selected events that are partly within each [low, high): event, place of the bounds, ns within."""
    order = selected[np.argsort(start[selected], kind="stable")]
    first = np.searchsorted(np.maximum.accumulate(end[order]), low, side="right")
    many = np.maximum(np.searchsorted(start[order], high) - first, 0)
    row = np.repeat(np.arange(len(low)), many)
    event = order[np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)]
    time = np.minimum(end[event], high[row]) - np.maximum(start[event], low[row])
    there = time > 0
    return event[there], row[there], time[there]

# SPDX-License-Identifier: Apache-2.0
"""Ranks that the other ranks wait for."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.ranks.delay_causes import explain_delays
from pyprof.facts.ranks.rank_work import PARTS
from pyprof.facts.ranks.stragglers import arrivals, computation
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, Option, View, report
from pyprof.reports.communication import DEVICE, DTYPE, GROUP, NAME
from pyprof.reports.step_time import WORKER
from pyprof.store import reads

_COLLECTIVE = ("name", "process_group", "dtype", "place")
_CAUSES = ("median", "before", "carried", "own", *PARTS)
_MORE = "Part of late by its own: by how much longer than the median rank it "
_COLUMNS = (
    WORKER,
    DEVICE,
    NAME,
    GROUP,
    DTYPE,
    Column(
        "place", "Place", "",
        "Number of the collective within its process group in an iteration, from 0; empty without iterations.",
    ),
    Column(
        "collectives", "Collectives", "count",
        "Aligned collectives in which every rank needs data of every other rank.",
    ),
    Column(
        "times_last", "Times Last", "count",
        "Collectives in which no rank arrived later; equally late ranks all count.",
    ),
    Column("share", "Share (%)", "%", "Times last as a share of the collectives.", float),
    Column(
        "late_ns", "Late (ns)", "ns",
        "Time from the arrival of the first rank to its own, summed over the collectives in which it was last.",
    ),
    Column(
        "late_avg", "Avg. Late (ns)", "ns",
        "Mean over the collectives in which it was last; empty if it never was.", float,
    ),
    Column("late_max", "Max Late (ns)", "ns", "Maximum over the collectives."),
    Column(
        "alone_ns", "Late Alone (ns)", "ns",
        "The same from the arrival of the next to last rank: the time that all would have saved if it had arrived "
        "then.",
    ),
    Column(
        "computation_avg", "Avg. Computation Before (ns)", "ns",
        "Mean time of kernels other than collectives, from the end of the previous collective on its device to the "
        "start of this one, over the collectives in which it was last. Empty if it never was.", float,
    ),
    Column(
        "others_computation_avg", "Avg. Computation of Others (ns)", "ns",
        "The same for the other ranks before the same collectives. If it is less, the rank has more to compute or a "
        "slower GPU; if not, its launches, data or waits were late.", float,
    ),
    Column(
        "own_ns", "Late by Its Own (ns)", "ns",
        "Part of late: by how much longer than the median rank it took since the collective before, or for the first "
        "in a recording since the step began; negative if it was faster. The parts from kernels to other add up to it.",
    ),
    Column("kernels_ns", "More in Kernels (ns)", "ns", f"{_MORE}had a kernel or a copy on its device."),
    Column(
        "communication_ns", "More in Communication (ns)", "ns",
        f"{_MORE}had nothing but other collectives on its device: of other groups, between two ranks.",
    ),
    Column(
        "dataloader_ns", "More in DataLoader (ns)", "ns",
        f"{_MORE}waited for its data loader while none of these ran.",
    ),
    Column(
        "launch_ns", "More in Launch and Synchronization (ns)", "ns",
        f"{_MORE}was in API calls and in none of these.",
    ),
    Column(
        "host_ns", "More in Host Operators (ns)", "ns",
        f"{_MORE}was in operators and named ranges and in none of these.",
    ),
    Column(
        "other_ns", "More in Other (ns)", "ns",
        f"{_MORE}was in none of these, for example in Python outside operators; plus the difference between the "
        "ends of its collectives and those of the median rank.",
    ),
    Column(
        "operator", "Slowest Operator", "",
        "Path of the host operator in which it spent the most extra time compared with the median rank, in the "
        "collective where that is longest; empty if there is none.", str,
    ),
    Column(
        "carried_ns", "Late Before (ns)", "ns",
        "Part of late: host work that the median rank had already done when the collective before ended and it had "
        "not, because it had arrived later at that one. Not counted as its own here.",
    ),
    Column(
        "before_ns", "Before the Recording (ns)", "ns",
        "Part of late at the first collective of a recording: by how much its step began later than the median rank's, "
        "or the whole difference if not all ranks marked the same step. What happened before is not recorded.",
    ),
    Column(
        "median_ns", "Median Late (ns)", "ns",
        "Part of late: from the arrival of the first rank to that of the median rank. It, before, carried and own add "
        "up to late.",
    ),
    Column(
        "first", "First Collectives", "count",
        "Number of these collectives that are the first of their process group in the recording.",
    ),
    Column(
        "begin", "Begin (ns)", "ns", "Start of the rank's first marked step on the host, else of its recording."
    ),
)  # fmt: skip


@report(
    "stragglers",
    "Stragglers",
    _COLUMNS,
    needs="collectives on the GPUs of at least two ranks, recorded together",
    options=(
        Option(
            "by",
            "What each row covers: a rank at one collective of an iteration, or a rank.",
            {"collective": (), "rank": _COLLECTIVE},
        ),
    ),
    of_summary=True,
    view=View("Communication"),
)
def stragglers(source: Source, by: str) -> pd.DataFrame:
    """One row per rank (a worker's device) and collective of an iteration at which it was last, or per rank, sorted by
    how late it was in total by its own, then by how late at all, for aligned collectives (see communication) that every
    rank launched in the aggregated iterations. The last rank of a collective is the one with the shortest kernel: the
    kernels wait for each other on the devices and end together, so the one that began last is the shortest, whatever
    the clocks of different hosts say. Broadcasts, reductions to one rank, and transfers between two ranks are left out,
    because not all ranks wait there. So is a collective before which the recording of a rank was read, which made that
    rank late. The lateness of a rank is explained by comparing what it did since the collective before, which ended on
    all ranks together, with the median rank, the one that arrived in the middle (the earlier of two): where kernels,
    communication, data loader, API calls and host overlap, the time counts for the first of them. There are no rows if
    one rank was recorded, or if nothing could be aligned."""
    arrived = explain_delays(_all_workers(source), arrivals(_all_workers(source), spans(_all_workers(source))))
    arrived["computed"] = computation(source, arrived)
    total = arrived.groupby("instance")["computed"].transform("sum")
    arrived["others"] = (total - arrived["computed"]) / (arrived["ranks"].astype(float) - 1)
    for name in ("computed", "others", "late"):
        arrived[f"last_{name}"] = arrived[name].where(arrived["last"])
    if source.worker is not None:
        arrived = arrived[arrived["worker"] == source.worker]
    if by == "collective":  # of 512 ranks most say nothing
        keys = ["worker", "device", "name", "group", "dtype", "place"]
        arrived = arrived[arrived.groupby(keys, dropna=False)["last"].transform("any").astype(bool)]
    keys = ["worker", "device"] + (["name", "group", "dtype", "place"] if by == "collective" else [])
    table = arrived.groupby(keys, sort=True, dropna=False).agg(
        collectives=("duration_ns", "size"), times_last=("last", "sum"), late_ns=("late", "sum"), late_avg=("last_late",
        "mean"),
        late_max=("late", "max"), alone_ns=("alone", "sum"), computation_avg=("last_computed", "mean"),
        others_computation_avg=("last_others", "mean"), first=("first", "sum"),
        **{f"{cause}_ns": (cause, "sum") for cause in _CAUSES},
    ).reset_index()  # fmt: skip
    longest = arrived[arrived["operator"] >= 0].sort_values("host", ascending=False, kind="stable")
    operator = longest.drop_duplicates(keys).set_index(keys)["operator"].map(_operators(source))
    table["operator"] = operator.reindex(pd.MultiIndex.from_frame(table[keys])).to_numpy(object)
    table["share"] = 100 * table["times_last"] / table["collectives"]
    table = table.sort_values(["own_ns", "late_ns", "times_last"], ascending=False, kind="stable", ignore_index=True)
    workers = reads.worker_names(source.store)
    begin = reads.begins(source.store)
    extra = {} if by == "collective" else dict.fromkeys(_COLLECTIVE)
    table = table.rename(columns={"group": "process_group"})
    return table.assign(
        worker=[workers[number] for number in table["worker"]],
        begin=[begin[number] for number in table["worker"]],
        device=table["device"].where(table["device"] >= 0),
        **extra,
    )


def _all_workers(source: Source) -> Source:
    """Return a source of all workers: lateness is relative to the other ranks."""
    return Source(source.store, source.aggregation)


def _operators(source: Source) -> dict[int, str | None]:
    """Return the paths of operators, None for work outside all operators."""
    return dict(source.store.rows("select id, case when unassociated = 1 then null else name end from operator"))

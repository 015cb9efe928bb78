# SPDX-License-Identifier: Apache-2.0
"""Ranks for which the others wait."""

from __future__ import annotations

import pandas as pd

from pyprof.analysis.delay_causes import PARTS, explain_delays
from pyprof.analysis.source import Source
from pyprof.analysis.stragglers import arrivals, computation
from pyprof.reports import Column, Option, View, report
from pyprof.reports.communication import DEVICE, DTYPE, GROUP, NAME
from pyprof.reports.operator_queries import spans
from pyprof.reports.step_time import WORKER

_COLLECTIVE = ("name", "process_group", "dtype", "place")
_CAUSES = ("median", "before", "carried", "own", *PARTS)
_MORE = "Of late by its own: by how much longer than the median rank it "
_COLUMNS = (
    WORKER,
    DEVICE,
    NAME,
    GROUP,
    DTYPE,
    Column(
        "place", "Place", "",
        "Number of the collective among those of its process group in an iteration, from 0; empty without iterations.",
    ),
    Column("collectives", "Collectives", "count", "Aligned collectives of which every rank needs data of every other."),
    Column(
        "times_last", "Times Last", "count",
        "Those in which no rank came later; ranks as late as each other all count.",
    ),
    Column("share", "Share (%)", "%", "Times last as a share of the collectives.", float),
    Column(
        "late_ns", "Late (ns)", "ns",
        "Sum over the collectives in which it was last: from the arrival of the first rank to its own.",
    ),
    Column(
        "late_avg", "Avg. Late (ns)", "ns",
        "Its mean of a collective in which it was last; empty if it never was.", float,
    ),
    Column("late_max", "Max Late (ns)", "ns", "Its largest of a collective."),
    Column(
        "alone_ns", "Late Alone (ns)", "ns",
        "The same from the arrival of the last rank but it: what all would have saved, had it come with that one.",
    ),
    Column(
        "computation_avg", "Avg. Computation Before (ns)", "ns",
        "Of the collectives in which it was last: mean time of kernels that are no collectives, from the end of the "
        "last collective before on its device to the start of this one. Empty if it never was last.", float,
    ),
    Column(
        "others_computation_avg", "Avg. Computation of Others (ns)", "ns",
        "The same of the other ranks before the same collectives: if it is less, the rank has more to compute or a "
        "slower GPU; if not, its launches, data or waits were late.", float,
    ),
    Column(
        "own_ns", "Late by Its Own (ns)", "ns",
        "Of late: by how much longer than the median rank it took since the collective before, or at the first of a "
        "recording since the step began; negative where it was faster. The parts from kernels to other add up to it.",
    ),
    Column("kernels_ns", "More in Kernels (ns)", "ns", f"{_MORE}had a kernel or a copy on its device."),
    Column(
        "communication_ns", "More in Communication (ns)", "ns",
        f"{_MORE}had nothing but other collectives on its device: of other groups, between two ranks.",
    ),
    Column(
        "dataloader_ns", "More in DataLoader (ns)", "ns",
        f"{_MORE}waited for its data loader, and nothing of these ran.",
    ),
    Column(
        "launch_ns", "More in Launch and Synchronization (ns)", "ns",
        f"{_MORE}was in API calls, and in nothing of these.",
    ),
    Column(
        "host_ns", "More in Host Operators (ns)", "ns",
        f"{_MORE}was in operators and named ranges, and in nothing of these.",
    ),
    Column(
        "other_ns", "More in Other (ns)", "ns",
        f"{_MORE}was in nothing of these, as Python outside of operators; and by how much its collectives did not end "
        "together with the median rank's.",
    ),
    Column(
        "operator", "Slowest Operator", "",
        "Path of the host operator in which it spent most time more than the median rank, in the collective where that "
        "is longest; empty without.", str,
    ),
    Column(
        "carried_ns", "Late Before (ns)", "ns",
        "Of late: work on the host that the median rank had done when the collective before ended, and it had not, as "
        "it had come later to that one. Not by its own here.",
    ),
    Column(
        "before_ns", "Before the Recording (ns)", "ns",
        "Of late, at the first collective of a recording: by how much its step began later than the median rank's; all "
        "that it was later than that, if not all ranks marked the same step. What was before is not recorded.",
    ),
    Column(
        "median_ns", "Median Late (ns)", "ns",
        "Of late: from the arrival of the first rank to that of the median rank. It, before, carried and own add up to "
        "late.",
    ),
    Column(
        "first", "First Collectives", "count",
        "Of the collectives, those that are the first of their process group in the recording.",
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
            "group_by",
            "What a row is of: a rank at one collective of an iteration, or a rank.",
            {"collective": (), "rank": _COLLECTIVE},
        ),
    ),
    view=View("Communication"),
)
def stragglers(source: Source, group_by: str) -> pd.DataFrame:
    """One row per rank (a worker's device) and collective of an iteration, or per rank, by how late it came in sum by
    its own, then by how late at all: of aligned collectives (see communication) that every rank launched in the
    aggregated iterations. The last rank of a collective is the one with the shortest kernel: the kernels wait for each
    other on the devices and end together, so that the one that began last is shortest, whatever the clocks of
    different hosts say. Broadcasts, reductions to one rank, and transfers between two are left out: not all ranks wait
    there. So is a collective before which the recording of a rank was read, which made that rank late. How late it
    came is divided by comparing what it did since the collective before, which ended on all ranks together, with the
    median rank, the one that arrived in the middle (the earlier of two): what is at the same time several of kernels,
    communication, data loader, API calls and host counts for the first of them. None if one rank was recorded, or
    nothing could be aligned."""
    found = explain_delays(_everyone(source), arrivals(_everyone(source), spans(_everyone(source))))
    found["computed"] = computation(source, found)
    total = found.groupby("instance")["computed"].transform("sum")
    found["others"] = (total - found["computed"]) / (found["ranks"].astype(float) - 1)
    for name in ("computed", "others", "late"):
        found[f"last_{name}"] = found[name].where(found["last"])
    if source.worker is not None:
        found = found[found["worker"] == source.worker]
    keys = ["worker", "device"] + (["name", "group", "dtype", "place"] if group_by == "collective" else [])
    table = found.groupby(keys, sort=True, dropna=False).agg(
        collectives=("dur", "size"), times_last=("last", "sum"), late_ns=("late", "sum"), late_avg=("last_late",
        "mean"),
        late_max=("late", "max"), alone_ns=("alone", "sum"), computation_avg=("last_computed", "mean"),
        others_computation_avg=("last_others", "mean"), first=("first", "sum"),
        **{f"{cause}_ns": (cause, "sum") for cause in _CAUSES},
    ).reset_index()  # fmt: skip
    longest = found[found["operator"] >= 0].sort_values("host", ascending=False, kind="stable")
    operator = longest.drop_duplicates(keys).set_index(keys)["operator"].map(_operators(source))
    table["operator"] = operator.reindex(pd.MultiIndex.from_frame(table[keys])).to_numpy(object)
    table["share"] = 100 * table["times_last"] / table["collectives"]
    table = table.sort_values(
        ["own_ns", "late_ns", "times_last"], ascending=False, kind="stable", ignore_index=True
    )
    workers = dict(source.store.rows("select id, name from worker"))
    begin = dict(
        source.store.rows(
            """select w.id, coalesce(min(s.start), w.start) from worker w left join step s on s.worker = w.id
               group by w.id"""
        )
    )
    extra = {} if group_by == "collective" else dict.fromkeys(_COLLECTIVE)
    table = table.rename(columns={"group": "process_group"})
    return table.assign(
        worker=[workers[one] for one in table["worker"]], begin=[begin[one] for one in table["worker"]],
        device=table["device"].where(table["device"] >= 0), **extra,
    )  # fmt: skip


def _everyone(source: Source) -> Source:
    """All workers: a rank is late compared with others."""
    return Source(source.store, source.aggregation)


def _operators(source: Source) -> dict[int, str | None]:
    """Paths of operators, none of what no operator did."""
    return dict(
        source.store.rows("select id, case when unassociated = 1 then null else name end from operator")
    )

# SPDX-License-Identifier: Apache-2.0
"""Ranks for which the others wait."""

from __future__ import annotations

import pandas as pd

from pyprof.db.lateness import arrivals, computation
from pyprof.db.source import Source
from pyprof.reports import Column, Option, report
from pyprof.reports.communication import DEVICE, DTYPE, GROUP, NAME
from pyprof.reports.step_time import WORKER
from pyprof.reports.sums import spans

_COLLECTIVE = ("name", "process_group", "dtype", "place")
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
)
def stragglers(source: Source, group_by: str) -> pd.DataFrame:
    """One row per rank (a worker's device) and collective of an iteration, or per rank, by how late it came in sum: of
    aligned collectives (see communication) that every rank launched in the aggregated iterations. The last rank of a
    collective is the one with the shortest kernel: the kernels wait for each other on the devices and end together, so
    that the one that began last is shortest, whatever the clocks of different hosts say. Broadcasts, reductions to one
    rank, and transfers between two are left out: not all ranks wait there. So is a collective before which the
    recording of a rank was read, which made that rank late. None if one rank was recorded, or nothing
    could be aligned."""
    found = arrivals(_everyone(source), spans(_everyone(source)))
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
        others_computation_avg=("last_others", "mean"),
    ).reset_index()  # fmt: skip
    table["share"] = 100 * table["times_last"] / table["collectives"]
    table = table.sort_values(["late_ns", "times_last"], ascending=False, kind="stable", ignore_index=True)
    workers = dict(source.store.rows("select id, name from worker"))
    extra = {} if group_by == "collective" else dict.fromkeys(_COLLECTIVE)
    table = table.rename(columns={"group": "process_group"})
    return table.assign(
        worker=[workers[one] for one in table["worker"]], device=table["device"].where(table["device"] >= 0), **extra
    )  # fmt: skip


def _everyone(source: Source) -> Source:
    """All workers: a rank is late compared with others."""
    return Source(source.store, source.aggregation)

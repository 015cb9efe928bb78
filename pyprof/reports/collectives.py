# SPDX-License-Identifier: Apache-2.0
"""Collectives over all ranks: one row per kind, size and data type, whatever the number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.facts.device.bandwidth import factors, has_factor, sizes
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives, within
from pyprof.facts.ranks.rank_clocks import clocks, common
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, Option, View, report
from pyprof.reports.communication import DTYPE, GROUP, NAME, world

_SKEW = "Delay of the last rank after the first"
_TRANSFER = "Time of a call after the last rank arrived"
_COLUMNS = (
    NAME,
    GROUP,
    Column(
        "size", "Ranks of the Group", "",
        "Number of ranks in the group: as recorded, else all if every rank was recorded.",
    ),
    DTYPE,
    Column(
        "up_to", "Size Up To (B)", "B",
        "Size class: the least power of two that is not less than the size of the collective, as in communication; "
        "if ranks differ, the largest size counts. Empty if unknown.",
    ),
    Column("groups", "Process Groups", "count", "Number of process groups; empty if not recorded."),
    Column("ranks", "Ranks", "count", "Recorded ranks (devices of workers) that took part."),
    Column("calls", "Calls", "count", "Collectives, each counted once for all its ranks; if not aligned, kernels."),
    Column("kernels", "Kernels", "count", "Their kernels on all ranks."),
    Column("bytes", "Bytes (B)", "B", "Sum of the sizes of the calls; empty if any is unknown."),
    Column("latency_ns", "Latency (ns)", "ns", "Sum of the times of the kernels on all ranks."),
    Column("wait_ns", "Waiting (ns)", "ns", "Part of the latency before the last rank arrived. Empty if not aligned."),
    Column("wait_share", "Waiting (%)", "%", "Waiting as a share of latency.", float),
    Column("skew_min", "Min Skew (ns)", "ns", f"{_SKEW}: minimum over the calls."),
    Column("skew_avg", "Avg. Skew (ns)", "ns", f"{_SKEW}: mean over the calls.", float),
    Column(
        "skew_max", "Max Skew (ns)", "ns",
        f"{_SKEW}: maximum over the calls. Kernels of aligned {', '.join(MUTUAL)} end together, so that this is the "
        "difference between the longest and the shortest. Of other aligned collectives it is the difference between "
        "the first and the last start on the common clock (report clocks).",
    ),
    Column(
        "transfer_ns", "Data Transfer (ns)", "ns",
        "Sum over the calls of the time after the last rank arrived: its kernel, the shortest of all ranks. Empty if "
        "not aligned.",
    ),
    Column("transfer_avg", "Avg. Data Transfer (ns)", "ns", "Data transfer divided by calls.", float),
    Column(
        "algbw", "Algorithm Bandwidth (GB/s)", "GB/s",
        "Bytes per ns of data transfer, as in doc/PERFORMANCE.md of nccl-tests.", float,
    ),
    Column(
        "busbw", "Bus Bandwidth (GB/s)", "GB/s",
        "Algorithm bandwidth times the factor of nccl-tests (doc/PERFORMANCE.md) for n ranks of the group: all_reduce "
        "2 (n - 1) / n; all_gather, reduce_scatter and all_to_all (n - 1) / n; broadcast, reduce and send_recv 1.",
        float,
    ),
    Column("aligned_by", "Aligned By", "", "How kernels of other ranks were matched, or why they were not.", str),
    Column("transfer_min", "Min Data Transfer (ns)", "ns", f"{_TRANSFER}: minimum over the calls."),
    Column("transfer_max", "Max Data Transfer (ns)", "ns", f"{_TRANSFER}: maximum over the calls."),
    Column(
        "skew_error", "Error of Skews (ns)", "ns",
        "By how much a skew may be off: twice the largest error of its ranks' clocks (report clocks) and, where it is "
        "a difference of lengths, the time between the first and the last end of a call's kernels on the common "
        "clock, the largest of the calls. Empty if a clock or its error is not known.",
    ),
    Column("note", "Note", "", "What is not known of these collectives, and why.", str),
)  # fmt: skip
_KEYS = ["name", "group", "size", "dtype", "up_to", "how"]


@report(
    "collectives",
    "Collectives",
    _COLUMNS,
    needs="collectives on a GPU",
    options=(
        Option(
            "by",
            "What each row covers besides the kind, the size and the type: all groups of as many ranks, or one.",
            {"size": ("process_group",), "group": ("groups",)},
        ),
    ),
    of_summary=True,
    view=View("Communication"),
)
def over_ranks(source: Source, by: str) -> pd.DataFrame:
    """One row per collective, number of ranks of its group, data type and size class over all ranks, sorted by latency,
    for collectives that a rank launched in the aggregated iterations; with --by=group, one per process group as
    well; for one worker, those that it takes part in, with what is known of all ranks. The kernels of a collective are
    matched as in communication, which has the same figures per rank. Collectives that are not aligned have rows of
    their own, without skew and without a transfer time apart from waiting."""
    all_workers = Source(source.store, source.aggregation)
    launches = collectives(source.store)
    selected = launches[within(launches, spans(all_workers))]
    if source.worker is not None:
        own = selected["worker"] == source.worker
        selected = selected[own | (selected["instance"] >= 0) & selected["instance"].isin(selected["instance"][own])]
    calls = _calls(source, launches, selected)
    keys = [key for key in _KEYS if key != "group" or by == "group"]
    table = calls.groupby(keys, sort=True, dropna=False).agg(
        calls=("kernels", "size"), kernels=("kernels", "sum"), bytes=("bytes", "sum"), sized=("sized", "all"),
        latency_ns=("latency", "sum"), aligned=("aligned", "all"), wait_ns=("wait", "sum"),
        skew_min=("skew", "min"), skew_avg=("skew", "mean"), skew_max=("skew", "max"), transfer_ns=("transfer", "sum"),
        transfer_min=("transfer", "min"), transfer_max=("transfer", "max"), skew_error=("error", "max"),
        certain=("certain", "all"),
    ).reset_index()  # fmt: skip
    counted = selected.assign(call=_call(selected)).merge(
        calls.reset_index()[["call", *_KEYS]], on="call", suffixes=("_of", "")
    )
    counted["rank"] = counted.groupby(["worker", "device"]).ngroup()
    grouped = counted.groupby(keys, sort=True, dropna=False)
    groups = grouped["group"].nunique().astype("Int64").reset_index(drop=True)
    table["groups"] = groups.where(groups > 0)
    table["ranks"] = grouped["rank"].nunique().to_numpy()
    table["process_group"] = table["group"] if by == "group" else None
    table = _add_rates(table)
    table["note"] = _notes(table)
    return table


def _call(kernels: pd.DataFrame) -> Any:
    """Return a number shared by the kernels of a collective; a kernel that is not aligned gets a number of its own."""
    return np.where(kernels["instance"] >= 0, kernels["instance"], -1 - kernels["event"])


def _calls(source: Source, launches: pd.DataFrame, selected: pd.DataFrame) -> pd.DataFrame:
    """Return one row per call with its keys: kernels, latency and wait of the selected kernels; bytes, transfer, skew
    and its error of all ranks."""
    selected = selected.assign(call=_call(selected), bytes=sizes(selected))
    selected["size"] = selected["size"].fillna(world(source, selected))
    calls = selected.groupby("call", sort=True).agg(
        name=("name", "first"), group=("group", "first"), size=("size", "first"), dtype=("dtype", "first"),
        how=("how", "first"), kernels=("duration_ns", "size"), latency=("duration_ns", "sum"), bytes=("bytes", "max"),
        transfer=("transfer", "first"),
    )  # fmt: skip
    calls["aligned"], calls["sized"] = calls["transfer"].notna(), calls["bytes"].notna()
    calls["wait"] = calls["latency"] - calls["transfer"] * calls["kernels"]
    calls["up_to"] = _up_to(calls["bytes"])
    calls = calls.join(_arrivals(source, launches[launches["instance"].isin(calls.index[calls["aligned"]])]))
    mutual = calls["name"].isin(MUTUAL)
    calls["skew"] = calls["longer"].where(mutual, calls["started"])
    calls["error"] = (2 * calls["off"]).where(~mutual, 2 * calls["off"] + calls["ended"])
    calls["certain"] = calls["error"].notna()
    return calls


def _arrivals(source: Source, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return per call, of all its kernels, in ns: `longer`, the longest less the shortest; `started` and `ended`, from
    the first start, or end, to the last by the common clock; `off`, the largest error of a rank's clock. The last three
    are missing if a rank's clock is not known."""
    known = clocks(source.store)
    errors = {number: clock.line.error for number, clock in known.items() if clock.line is not None}
    worker, start = kernels["worker"].to_numpy(), kernels["start_ns"].to_numpy()
    times = pd.DataFrame({
        "length": kernels["duration_ns"], "start": common(known, worker, start),
        "end": common(known, worker, start + kernels["duration_ns"].to_numpy()),
        "off": pd.Series(worker, kernels.index).map(errors).astype(float),
    })  # fmt: skip
    grouped = times.groupby(kernels["instance"])
    apart = grouped.max() - grouped.min()
    everywhere = grouped[["start", "off"]].count().eq(grouped.size(), axis=0)
    out = pd.DataFrame({
        "longer": apart["length"], "started": apart["start"].where(everywhere["start"]),
        "ended": apart["end"].where(everywhere["start"]), "off": grouped["off"].max().where(everywhere["off"]),
    })  # fmt: skip
    return out.round().astype("Int64")


def _up_to(size: pd.Series[Any]) -> pd.Series[Any]:
    """Return the least power of two that is not less than each size.

    >>> _up_to(pd.Series([0, 1, 1000, 1024, 1025, None], dtype="Int64")).tolist()
    [0, 1, 1024, 1024, 2048, <NA>]
    """
    known = size.dropna().astype(object)
    out = known.map(lambda count: 1 << (int(count) - 1).bit_length() if count > 0 else 0)
    return out.astype("Int64").reindex(size.index)


def _add_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Add shares, means and bandwidths, and sort by latency."""
    aligned = table["aligned"].astype(bool)
    table["bytes"] = table["bytes"].where(table["sized"].astype(bool))
    table["skew_error"] = table["skew_error"].where(table["certain"].astype(bool))
    for name in ("transfer_ns", "wait_ns"):
        table[name] = table[name].where(aligned)
    transfer = table["transfer_ns"].astype("Float64")
    table["wait_share"] = 100 * table["wait_ns"].astype("Float64") / table["latency_ns"].where(table["latency_ns"] > 0)
    table["transfer_avg"] = transfer / table["calls"]
    table["algbw"] = table["bytes"].astype("Float64") / transfer.where(transfer > 0)
    table["busbw"] = table["algbw"] * factors(table["name"], table["size"])
    table = table.rename(columns={"how": "aligned_by"})
    return table.sort_values("latency_ns", ascending=False, kind="stable", ignore_index=True)


def _notes(table: pd.DataFrame) -> list[str | None]:
    """Return what is not known of each row, and why."""
    aligned, skewed, certain = (
        table["aligned"].astype(bool),
        table["skew_max"].notna(),
        table["skew_error"].notna(),
    )
    reasons = (
        (
            ~aligned,
            "no skew, transfer and bandwidths: the kernels of the other ranks are not known (Aligned By)",
        ),
        (aligned & ~skewed, "no skew: the clocks of its ranks are not known (report clocks)"),
        (
            skewed & ~certain,
            "no error of the skews: fewer than three collectives to compare its ranks' clocks by",
        ),
        (table["dtype"].isna(), "the data type is not recorded"),
        (~table["sized"].astype(bool), "no bandwidths: the size is not recorded"),
        (
            table["algbw"].notna() & ~has_factor(table["name"]),
            "no bus bandwidth: nccl-tests has no factor for it",
        ),
        (
            table["algbw"].notna() & has_factor(table["name"]) & table["size"].isna(),
            "no bus bandwidth: the number of ranks of the group is not known",
        ),
    )
    texts = [np.where(mask, text, "") for mask, text in reasons]
    return ["; ".join(filter(None, row)) or None for row in zip(*texts)]

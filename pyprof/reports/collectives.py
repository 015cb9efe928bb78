# SPDX-License-Identifier: Apache-2.0
"""Collectives over all ranks: one row per kind, size and data type, however many ranks there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.bandwidth import factors, sizes
from pyprof.analysis.collective_groups import MUTUAL, collectives, within
from pyprof.analysis.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.communication import DTYPE, NAME, world
from pyprof.reports.operator_queries import spans

_SKEW = "By how much the last rank came later than the first"
_COLUMNS = (
    NAME,
    Column("size", "Ranks of the Group", "", "Ranks of the group, as recorded, else all if every rank was recorded."),
    DTYPE,
    Column(
        "up_to", "Size Up To (B)", "B",
        "Class of sizes: the least power of two that is not less than the size of the collective, as in communication; "
        "of ranks with unequal sizes the largest counts. Empty if unknown.",
    ),
    Column("groups", "Process Groups", "count", "Process groups of these; empty if not recorded."),
    Column("ranks", "Ranks", "count", "Recorded ranks (devices of workers) that took part."),
    Column("calls", "Calls", "count", "Collectives, each counted once over its ranks; if not aligned, kernels."),
    Column("kernels", "Kernels", "count", "Kernels of these on all ranks."),
    Column("bytes", "Bytes (B)", "B", "Sum of the sizes of the calls; empty if one is unknown."),
    Column("latency_ns", "Latency (ns)", "ns", "Sum of the times of the kernels on all ranks."),
    Column("wait_ns", "Waiting (ns)", "ns", "Of latency: until the last rank came. Empty if not aligned."),
    Column("wait_share", "Waiting (%)", "%", "Waiting as a share of latency.", float),
    Column("skew_min", "Min Skew (ns)", "ns", f"{_SKEW}, of the call where that is least."),
    Column("skew_avg", "Avg. Skew (ns)", "ns", f"{_SKEW}: mean over the calls.", float),
    Column(
        "skew_max", "Max Skew (ns)", "ns",
        f"{_SKEW}, of the call where that is most. Skews are known of aligned {', '.join(MUTUAL)}: their kernels end "
        "together, so that this is the difference between the longest and the shortest.",
    ),
    Column(
        "transfer_ns", "Data Transfer (ns)", "ns",
        "Sum over the calls of the time after the last rank came: its kernel, the shortest of all ranks. Empty if not "
        "aligned.",
    ),
    Column("transfer_avg", "Avg. Data Transfer (ns)", "ns", "Data transfer divided by calls.", float),
    Column("algbw", "Algorithm Bandwidth (GB/s)", "GB/s", "Bytes per ns of data transfer.", float),
    Column(
        "busbw", "Bus Bandwidth (GB/s)", "GB/s",
        "Algorithm bandwidth times the factor of nccl-tests for this collective and number of ranks.", float,
    ),
    Column("aligned_by", "Aligned By", "", "How kernels of other ranks were found, or why they were not.", str),
)  # fmt: skip
_KEYS = ["name", "size", "dtype", "up_to", "how"]


@report("collectives", "Collectives", _COLUMNS, needs="collectives on a GPU", view=View("Communication"))
def over_ranks(source: Source) -> pd.DataFrame:
    """One row per collective, number of ranks of its group, data type and class of sizes over all ranks, by latency:
    collectives that a rank launched in the aggregated iterations; of one worker alone those that it takes part in, with
    what is known of all ranks. The kernels of a collective are found as in communication, which has the same by
    rank. What is not aligned has rows of its own: there is no skew, and no transfer apart from waiting."""
    everyone = Source(source.store, source.aggregation)
    every = collectives(source.store)
    chosen = every[within(every, spans(everyone))]
    if source.worker is not None:
        mine = chosen["worker"] == source.worker
        chosen = chosen[mine | (chosen["instance"] >= 0) & chosen["instance"].isin(chosen["instance"][mine])]
    calls = _calls(source, every, chosen)
    table = calls.groupby(_KEYS, sort=True, dropna=False).agg(
        calls=("kernels", "size"), kernels=("kernels", "sum"), bytes=("bytes", "sum"), sized=("sized", "all"),
        latency_ns=("latency", "sum"), aligned=("aligned", "all"), wait_ns=("wait", "sum"), mutual=("mutual", "all"),
        skew_min=("skew", "min"), skew_avg=("skew", "mean"), skew_max=("skew", "max"), transfer_ns=("transfer", "sum"),
    ).reset_index()  # fmt: skip
    counted = chosen.assign(call=_call(chosen)).merge(
        calls.reset_index()[["call", *_KEYS]], on="call", suffixes=("_of", "")
    )
    counted["rank"] = counted.groupby(["worker", "device"]).ngroup()
    of = counted.groupby(_KEYS, sort=True, dropna=False)
    groups = of["group"].nunique().astype("Int64").reset_index(drop=True)
    table["groups"] = groups.where(groups > 0)
    table["ranks"] = of["rank"].nunique().to_numpy()
    return _rated(table)


def _call(found: pd.DataFrame) -> Any:
    """What kernels belong together: the number of the collective; of one that is not aligned a number of its own."""
    return np.where(found["instance"] >= 0, found["instance"], -1 - found["event"])


def _calls(source: Source, every: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """One row per call with its keys: kernels, latency and wait of those that are chosen, bytes, transfer and skew of
    all its ranks."""
    chosen = chosen.assign(call=_call(chosen), bytes=sizes(chosen))
    chosen["size"] = chosen["size"].fillna(world(source, chosen))
    aligned = every[every["instance"] >= 0].groupby("instance")["dur"].agg(["min", "max"])
    calls = chosen.groupby("call", sort=True).agg(
        name=("name", "first"), size=("size", "first"), dtype=("dtype", "first"), how=("how", "first"),
        kernels=("dur", "size"), latency=("dur", "sum"), bytes=("bytes", "max"), transfer=("transfer", "first"),
    )  # fmt: skip
    calls["aligned"], calls["sized"] = calls["transfer"].notna(), calls["bytes"].notna()
    calls["wait"] = calls["latency"] - calls["transfer"] * calls["kernels"]
    calls["mutual"] = calls["aligned"] & calls["name"].isin(MUTUAL)
    skew = pd.Series(calls.index, calls.index).map(aligned["max"] - aligned["min"])
    calls["skew"] = skew.astype("Float64").where(calls["mutual"])
    calls["up_to"] = _up_to(calls["bytes"])
    return calls


def _up_to(size: pd.Series[Any]) -> pd.Series[Any]:
    """The least power of two that is not less than each size.

    >>> _up_to(pd.Series([0, 1, 1000, 1024, 1025, None], dtype="Int64")).tolist()
    [0, 1, 1024, 1024, 2048, <NA>]
    """
    known = size.dropna().astype(object)
    out = known.map(lambda one: 1 << (int(one) - 1).bit_length() if one > 0 else 0)
    return out.astype("Int64").reindex(size.index)


def _rated(table: pd.DataFrame) -> pd.DataFrame:
    """With shares, means and bandwidths, in the order of the report."""
    there = table["aligned"].astype(bool)
    table["bytes"] = table["bytes"].where(table["sized"].astype(bool))
    for name in ("transfer_ns", "wait_ns"):
        table[name] = table[name].where(there)
    transfer = table["transfer_ns"].astype("Float64")
    table["wait_share"] = (
        100 * table["wait_ns"].astype("Float64") / table["latency_ns"].where(table["latency_ns"] > 0)
    )
    table["transfer_avg"] = transfer / table["calls"]
    table["algbw"] = table["bytes"].astype("Float64") / transfer.where(transfer > 0)
    table["busbw"] = table["algbw"] * factors(table["name"], table["size"])
    table = table.rename(columns={"how": "aligned_by"})
    return table.sort_values("latency_ns", ascending=False, kind="stable", ignore_index=True)

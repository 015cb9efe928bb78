# SPDX-License-Identifier: Apache-2.0
"""Collectives of every rank: how many, how large, how long, and how much of that was waiting for other ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.db.aligned import collectives, within
from pyprof.db.bandwidth import factors, sizes
from pyprof.db.source import Source
from pyprof.reports import Column, report
from pyprof.reports.step_time import WORKER
from pyprof.reports.sums import spans

NAME = Column("name", "Collective", "", "As c10d names it: all_reduce, all_gather, all_to_all ...", str)
GROUP = Column(
    "process_group", "Process Group", "", "Name of the group of ranks; empty if not recorded.", str
)
DTYPE = Column("dtype", "Data Type", "", "Type of the elements; empty if not recorded.", str)
DEVICE = Column("device", "Device", "", "Number of the device.")
_KEYS = ["worker", "device", "name", "group", "dtype"]
_COLUMNS = (
    WORKER,
    DEVICE,
    NAME,
    GROUP,
    Column("size", "Ranks of the Group", "", "Ranks of the group, as recorded, else all if every rank was recorded."),
    DTYPE,
    Column("calls", "Calls", "count", "Kernels of the collective."),
    Column(
        "bytes", "Bytes (B)", "B",
        "Sum of their sizes as nccl-tests counts: the larger of what a rank sends and receives; of an all-to-all "
        "what it sends, if the other is not recorded. Empty if the size of one is unknown.",
    ),
    Column("latency_ns", "Latency (ns)", "ns", "Sum of the times of these kernels, waits for other ranks included."),
    Column("aligned", "Aligned Calls", "count", "Calls whose kernels on the other ranks are known."),
    Column("aligned_ns", "Aligned Latency (ns)", "ns", "Latency of the aligned calls: transfer and wait add up to it."),
    Column(
        "transfer_ns", "Data Transfer (ns)", "ns",
        "Of the aligned calls: the shortest kernel of each among all ranks, the one of the rank that came last. Empty "
        "without aligned calls.",
    ),
    Column(
        "wait_ns", "Waiting (ns)", "ns",
        "Of the aligned calls: latency less data transfer, waiting for other ranks.",
    ),
    Column(
        "algbw", "Algorithm Bandwidth (GB/s)", "GB/s",
        "Bytes per ns of data transfer, of aligned calls; without such calls of latency, which is too little where "
        "a rank waited. Empty if bytes are unknown.", float,
    ),
    Column(
        "busbw", "Bus Bandwidth (GB/s)", "GB/s",
        "Algorithm bandwidth times the factor of nccl-tests for this collective and number of ranks.", float,
    ),
    Column("bandwidth_of", "Bandwidth Of", "", "transfer or latency: what bandwidths divide by.", str),
    Column("aligned_by", "Aligned By", "", "How kernels of other ranks were found, or why they were not.", str),
)  # fmt: skip


@report("communication", "Communication", _COLUMNS)
def communication(source: Source) -> pd.DataFrame:
    """One row per worker, device, collective, process group and data type, by latency: kernels of collectives that
    were launched in the aggregated iterations. Kernels on several ranks are one collective by process group and
    sequence number where both are recorded, else by order in the process group, else by order; by order only if all
    ranks have as many of the same kinds, which on one clock end together. The shortest of them is the data transfer:
    its rank came last and waited for nobody. With one rank recorded that is unknown."""
    found = collectives(source.store)
    found = found[within(found, spans(source))].copy()
    found["bytes"] = sizes(found)
    for key in ("transfer", "bytes"):
        found[f"has_{key}"] = found[key].notna()
    there = found["has_transfer"]
    found["aligned_ns"] = found["dur"].where(there, 0)
    found["aligned_bytes"] = found["bytes"].where(there, 0)
    found["has_aligned_bytes"] = found["has_bytes"] | ~there
    found["reason"] = found["how"].where(~there)
    found["way"] = found["how"].where(there)
    table = found.groupby(_KEYS, sort=True, dropna=False).agg(
        calls=("dur", "size"), bytes=("bytes", "sum"), latency_ns=("dur", "sum"), aligned=("has_transfer", "sum"),
        aligned_ns=("aligned_ns", "sum"), transfer_ns=("transfer", "sum"), sized=("has_bytes", "all"),
        aligned_bytes=("aligned_bytes", "sum"), aligned_sized=("has_aligned_bytes", "all"), least=("size", "min"),
        most=("size", "max"), way=("way", "first"), reason=("reason", "first"), ranks=("ranks", "min"),
    ).reset_index()  # fmt: skip
    return _table(source, table)


def _table(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """The columns of the report."""
    workers = dict(source.store.rows("select id, name from worker"))
    some = table["aligned"] > 0
    whole = table["calls"].where(table["calls"] == table["aligned"]).notna()
    table["bytes"] = table["bytes"].where(table["sized"].astype(bool))
    moved = table["aligned_bytes"].where(table["aligned_sized"].astype(bool)).where(some, table["bytes"])
    table["transfer_ns"] = table["transfer_ns"].where(some)
    table["wait_ns"] = (table["aligned_ns"] - table["transfer_ns"]).where(some)
    table["aligned_ns"] = table["aligned_ns"].where(some)
    table["size"] = table["least"].where(table["least"] == table["most"]).fillna(_world(source, table))
    time = table["transfer_ns"].where(some, table["latency_ns"]).astype("Float64")
    table["algbw"] = moved.astype("Float64") / time.where(time > 0)
    table["busbw"] = table["algbw"] * factors(table["name"], table["size"])
    known = table["algbw"].notna()
    table["bandwidth_of"] = pd.Series(np.where(some, "transfer", "latency"), table.index).where(known)
    ways, reasons = table["way"], table["reason"]
    table["aligned_by"] = np.where(whole, ways, np.where(some, ways + ", some " + reasons, reasons))
    table = table.sort_values("latency_ns", ascending=False, kind="stable", ignore_index=True)
    return table.assign(
        worker=[workers[one] for one in table["worker"]], process_group=table["group"],
        device=table["device"].where(table["device"] >= 0),
    )  # fmt: skip


def _world(source: Source, table: pd.DataFrame) -> pd.Series[Any]:
    """All ranks of the run, of collectives that are aligned over as many."""
    told = source.store.meta.get("distributed.world_size", "")
    world = int(told) if told.isascii() and told.isdigit() and len(told) < 10 else 0
    return table["ranks"].where(table["ranks"] == world)

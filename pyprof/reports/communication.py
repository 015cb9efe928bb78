# SPDX-License-Identifier: Apache-2.0
"""Collectives of every rank: how many, how large, how long, and how much of that was waiting for other ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.bandwidth import factors, sizes
from pyprof.analysis.collective_groups import collectives, within
from pyprof.analysis.dataframes import steps_of
from pyprof.analysis.device_steps import marked_numbers
from pyprof.analysis.source import Source
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import spans
from pyprof.reports.step_time import STEP, WORKER

NAME = Column("name", "Collective", "", "As c10d names it: all_reduce, all_gather, all_to_all ...", str)
GROUP = Column(
    "process_group", "Process Group", "", "Name of the group of ranks; empty if not recorded.", str
)
DTYPE = Column("dtype", "Data Type", "", "Type of the elements; empty if not recorded.", str)
DEVICE = Column("device", "Device", "", "Number of the device.")
_KEYS = ["worker", "device", "name", "group", "dtype"]
_KIND = ("name", "process_group", "size", "dtype", "algbw", "busbw", "bandwidth_of")  # fmt: skip  # of one kind
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
    Column("bytes_avg", "Avg. Size (B)", "B", "Bytes divided by calls.", float),
    Column("latency_avg", "Avg. Latency (ns)", "ns", "Latency divided by calls.", float),
    Column("transfer_avg", "Avg. Data Transfer (ns)", "ns", "Data transfer divided by aligned calls.", float),
    STEP._replace(text=f"{STEP.text} A collective is of the step in which it was launched."),
)  # fmt: skip


@report(
    "communication",
    "Communication",
    _COLUMNS,
    needs="collectives on a GPU",
    options=(
        Option(
            "group_by",
            "What a row is of: one kind of collective, or all collectives of a step.",
            {"collective": ("step",), "step": _KIND},
        ),
    ),
    view=View("Communication", sort="-latency_ns"),
)
def communication(source: Source, group_by: str) -> pd.DataFrame:
    """One row per worker, device, collective, process group and data type, by latency: kernels of collectives that
    were launched in the aggregated iterations; with --group-by=step per worker, device and step, in their order.
    Kernels on several ranks are one collective by process group and sequence number where both are recorded, else by
    order in the process group, else by order; by order only if all ranks have as many of the same kinds, which on one
    clock end together. The shortest of them is the data transfer: its rank came last and waited for nobody. With one
    rank recorded that is unknown."""
    found = collectives(source.store)
    found = found[within(found, spans(source))].copy()
    found["bytes"] = sizes(found)
    for key in ("transfer", "bytes"):
        found[f"has_{key}"] = found[key].notna()
    found["step"] = _step(source, found) if group_by == "step" else 0
    there = found["has_transfer"]
    found["aligned_ns"] = found["dur"].where(there, 0)
    found["aligned_bytes"] = found["bytes"].where(there, 0)
    found["has_aligned_bytes"] = found["has_bytes"] | ~there
    found["reason"] = found["how"].where(~there)
    found["way"] = found["how"].where(there)
    keys = _KEYS if group_by == "collective" else ["worker", "device", "step"]
    table = found.groupby(keys, sort=True, dropna=False).agg(
        calls=("dur", "size"), bytes=("bytes", "sum"), latency_ns=("dur", "sum"), aligned=("has_transfer", "sum"),
        aligned_ns=("aligned_ns", "sum"), transfer_ns=("transfer", "sum"), sized=("has_bytes", "all"),
        aligned_bytes=("aligned_bytes", "sum"), aligned_sized=("has_aligned_bytes", "all"), least=("size", "min"),
        most=("size", "max"), way=("way", "first"), reason=("reason", "first"), ranks=("ranks", "min"),
    ).reset_index()  # fmt: skip
    if group_by == "step":
        return _shown(source, table.assign(**dict.fromkeys((*_KIND, "group"))))
    table = _rated(source, table).sort_values("latency_ns", ascending=False, kind="stable", ignore_index=True)
    return _shown(source, table.assign(step=None))


def _step(source: Source, found: pd.DataFrame) -> Any:
    """The step of each row, as the report step_time numbers it."""
    event = found["event"].to_numpy()
    number = np.asarray(steps_of(source.store, source.aggregation, event).fillna(0), np.int64)
    for worker in np.unique(event >> 40).tolist():
        here = event >> 40 == worker
        number[here] = marked_numbers(source, worker, number[here])
    return number


def _rated(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """With sizes of groups and bandwidths."""
    some = table["aligned"] > 0
    moved = table["aligned_bytes"].where(table["aligned_sized"].astype(bool))
    moved = moved.where(some, table["bytes"].where(table["sized"].astype(bool)))
    table["size"] = table["least"].where(table["least"] == table["most"]).fillna(world(source, table))
    time = table["transfer_ns"].where(some, table["latency_ns"]).astype("Float64")
    table["algbw"] = moved.astype("Float64") / time.where(time > 0)
    table["busbw"] = table["algbw"] * factors(table["name"], table["size"])
    table["bandwidth_of"] = pd.Series(np.where(some, "transfer", "latency"), table.index).where(
        table["algbw"].notna()
    )
    return table


def _shown(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """The columns of the report."""
    workers = dict(source.store.rows("select id, name from worker"))
    some = table["aligned"] > 0
    table["bytes"] = table["bytes"].where(table["sized"].astype(bool))
    table["transfer_ns"] = table["transfer_ns"].where(some)
    table["wait_ns"] = (table["aligned_ns"] - table["transfer_ns"]).where(some)
    table["aligned_ns"] = table["aligned_ns"].where(some)
    ways, reasons, whole = table["way"], table["reason"], table["calls"] == table["aligned"]
    means = (("bytes", "bytes_avg", "calls"), ("latency_ns", "latency_avg", "calls"),
             ("transfer_ns", "transfer_avg", "aligned"))  # fmt: skip
    for key, mean, of in means:
        table[mean] = table[key].astype("Float64") / table[of].where(table[of] > 0).astype("Float64")
    return table.assign(
        aligned_by=np.where(whole, ways, np.where(some, ways + ", some " + reasons, reasons)),
        worker=[workers[one] for one in table["worker"]], process_group=table["group"],
        device=table["device"].where(table["device"] >= 0),
    )  # fmt: skip


def world(source: Source, table: pd.DataFrame) -> pd.Series[Any]:
    """All ranks of the run, of collectives that are aligned over as many."""
    told = source.store.meta.get("distributed.world_size", "")
    world = int(told) if told.isascii() and told.isdigit() and len(told) < 10 else 0
    return table["ranks"].where(table["ranks"] == world)

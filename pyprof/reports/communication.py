# SPDX-License-Identifier: Apache-2.0
"""Collectives of every rank: number, size, duration, and the part of it spent waiting for other ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.facts.device.bandwidth import factors, sizes
from pyprof.facts.ranks.collective_groups import collectives, within
from pyprof.facts.steps.device_steps import step_numbers
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import STEP, WORKER
from pyprof.store import reads

NAME = Column("name", "Collective", "", "Name in c10d: all_reduce, all_gather, all_to_all ...", str)
GROUP = Column("process_group", "Process Group", "", "Name of the group of ranks; empty if not recorded.", str)
DTYPE = Column("dtype", "Data Type", "", "Type of the elements; empty if not recorded.", str)
DEVICE = Column("device", "Device", "", "Number of the device.")
_KEYS = ["worker", "device", "name", "group", "dtype"]
_KIND = ("name", "process_group", "size", "dtype", "algbw", "busbw", "bandwidth_of")  # fmt: skip  # of one kind
_COLUMNS = (
    WORKER,
    DEVICE,
    NAME,
    GROUP,
    Column(
        "size", "Ranks of the Group", "",
        "Number of ranks in the group: as recorded, else all if every rank was recorded.",
    ),
    DTYPE,
    Column("calls", "Calls", "count", "Kernels of the collective."),
    Column(
        "bytes", "Bytes (B)", "B",
        "Sum of their sizes as nccl-tests counts them: the larger of what a rank sends and receives; for an "
        "all-to-all what it sends, if the other is not recorded. Empty if any size is unknown.",
    ),
    Column("latency_ns", "Latency (ns)", "ns", "Sum of the times of these kernels, including waits for other ranks."),
    Column("aligned", "Aligned Calls", "count", "Calls with known kernels on the other ranks."),
    Column("aligned_ns", "Aligned Latency (ns)", "ns", "Latency of the aligned calls: the sum of transfer and wait."),
    Column(
        "transfer_ns", "Data Transfer (ns)", "ns",
        "Sum over the aligned calls of the shortest kernel of all ranks, that of the rank that arrived last. Empty "
        "without aligned calls.",
    ),
    Column(
        "wait_ns", "Waiting (ns)", "ns",
        "Time that aligned calls waited for other ranks: aligned latency minus data transfer.",
    ),
    Column(
        "algbw", "Algorithm Bandwidth (GB/s)", "GB/s",
        "Bytes per ns of data transfer, for aligned calls; without such calls, per ns of latency, which is too low "
        "if a rank waited. Empty if bytes are unknown.", float,
    ),
    Column(
        "busbw", "Bus Bandwidth (GB/s)", "GB/s",
        "Algorithm bandwidth times the factor of nccl-tests for this collective and number of ranks.", float,
    ),
    Column("bandwidth_of", "Bandwidth Of", "", "Divisor of the bandwidths: transfer or latency.", str),
    Column("aligned_by", "Aligned By", "", "How kernels of other ranks were matched, or why they were not.", str),
    Column("bytes_avg", "Avg. Size (B)", "B", "Bytes divided by calls.", float),
    Column("latency_avg", "Avg. Latency (ns)", "ns", "Latency divided by calls.", float),
    Column("transfer_avg", "Avg. Data Transfer (ns)", "ns", "Data transfer divided by aligned calls.", float),
    STEP._replace(text=f"{STEP.text} A collective belongs to the step in which it was launched."),
)  # fmt: skip


@report(
    "communication",
    "Communication",
    _COLUMNS,
    needs="collectives on a GPU",
    options=(
        Option(
            "by",
            "What each row covers: one kind of collective, or all collectives of a step.",
            {"collective": ("step",), "step": _KIND},
        ),
    ),
    of_summary=True,
    view=View(
        "Communication",
        sort="-latency_ns",
        sums="calls bytes latency_ns aligned aligned_ns transfer_ns wait_ns",
    ),
)
def communication(source: Source, by: str) -> pd.DataFrame:
    """One row per worker, device, collective, process group and data type, sorted by latency, for kernels of
    collectives launched in the aggregated iterations; with --by=step, one per worker, device and step, in step
    order. Kernels on several ranks are matched as one collective by process group and sequence number where both are
    recorded, else by order in the process group, else by order; by order only if all ranks have the same number of
    each kind, and if kernels on one clock end together. The shortest of them is the data transfer: its rank came
    last and waited for no other. If only one rank was recorded, it is unknown."""
    kernels = collectives(source.store)
    kernels = kernels[within(kernels, spans(source))].copy()
    kernels["bytes"] = sizes(kernels)
    for key in ("transfer", "bytes"):
        kernels[f"has_{key}"] = kernels[key].notna()
    kernels["step"] = step_numbers(source, kernels["event"].to_numpy()) if by == "step" else 0
    aligned = kernels["has_transfer"]
    kernels["aligned_ns"] = kernels["duration_ns"].where(aligned, 0)
    kernels["aligned_bytes"] = kernels["bytes"].where(aligned, 0)
    kernels["has_aligned_bytes"] = kernels["has_bytes"] | ~aligned
    kernels["reason"] = kernels["how"].where(~aligned)
    kernels["way"] = kernels["how"].where(aligned)
    keys = _KEYS if by == "collective" else ["worker", "device", "step"]
    table = kernels.groupby(keys, sort=True, dropna=False).agg(
        calls=("duration_ns", "size"), bytes=("bytes", "sum"), latency_ns=("duration_ns", "sum"),
        aligned=("has_transfer", "sum"), aligned_ns=("aligned_ns", "sum"), transfer_ns=("transfer", "sum"),
        sized=("has_bytes", "all"), aligned_bytes=("aligned_bytes", "sum"),
        aligned_sized=("has_aligned_bytes", "all"), least=("size", "min"), most=("size", "max"),
        way=("way", "first"), reason=("reason", "first"), ranks=("ranks", "min"),
    ).reset_index()  # fmt: skip
    if by == "step":
        return _finish(source, table.assign(**dict.fromkeys((*_KIND, "group"))))
    table = _add_bandwidths(source, table).sort_values("latency_ns", ascending=False, kind="stable", ignore_index=True)
    return _finish(source, table.assign(step=None))


def _add_bandwidths(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Add group sizes and bandwidths."""
    aligned = table["aligned"] > 0
    moved = table["aligned_bytes"].where(table["aligned_sized"].astype(bool))
    moved = moved.where(aligned, table["bytes"].where(table["sized"].astype(bool)))
    table["size"] = table["least"].where(table["least"] == table["most"]).fillna(world(source, table))
    time = table["transfer_ns"].where(aligned, table["latency_ns"]).astype("Float64")
    table["algbw"] = moved.astype("Float64") / time.where(time > 0)
    table["busbw"] = table["algbw"] * factors(table["name"], table["size"])
    table["bandwidth_of"] = pd.Series(np.where(aligned, "transfer", "latency"), table.index).where(
        table["algbw"].notna()
    )
    return table


def _finish(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Add the remaining columns of the report."""
    workers = reads.worker_names(source.store)
    aligned = table["aligned"] > 0
    table["bytes"] = table["bytes"].where(table["sized"].astype(bool))
    table["transfer_ns"] = table["transfer_ns"].where(aligned)
    table["wait_ns"] = (table["aligned_ns"] - table["transfer_ns"]).where(aligned)
    table["aligned_ns"] = table["aligned_ns"].where(aligned)
    ways, reasons, all_aligned = table["way"], table["reason"], table["calls"] == table["aligned"]
    means = (("bytes", "bytes_avg", "calls"), ("latency_ns", "latency_avg", "calls"),
             ("transfer_ns", "transfer_avg", "aligned"))  # fmt: skip
    for key, mean, count in means:
        table[mean] = table[key].astype("Float64") / table[count].where(table[count] > 0).astype("Float64")
    return table.assign(
        aligned_by=np.where(all_aligned, ways, np.where(aligned, ways + ", some " + reasons, reasons)),
        worker=[workers[number] for number in table["worker"]],
        process_group=table["group"],
        device=table["device"].where(table["device"] >= 0),
    )


def world(source: Source, table: pd.DataFrame) -> pd.Series[Any]:
    """Return the world size for collectives that are aligned over all ranks; missing for the others."""
    text = source.store.meta.get("distributed.world_size", "")
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return table["ranks"].where(table["ranks"] == size)

# SPDX-License-Identifier: Apache-2.0
"""Copies and sets on devices: where from, where to, how fast, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Ints
from pyprof.reports import Column, View, report
from pyprof.reports.operator_queries import distinct, spans
from pyprof.reports.step_time import WORKER

# Source: ENUM_CUDA_MEM_KIND of Nsight Systems' exports.
_MEMORY = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static"
}  # fmt: skip
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("kind", "Kind", "", "HtoD, DtoH, DtoD, PtoP ...: host, device, peer (communication); or memset.", str),
    Column("source", "Source", "", "Kind of memory that was read: pageable, pinned, device ...; or empty.", str),
    Column("target", "Target", "", "Kind of memory that was written; empty if unknown.", str),
    Column("operator", "Operator", "", "Path of the operator that launched it; empty if none did.", str),
    Column("stack", "Stack Trace", "", "Source lines of that operator's call, one a line, outermost first.", str),
    Column("calls", "Calls", "count", "Copies or sets."),
    Column("bytes", "Bytes (B)", "B", "Bytes that they moved or set; empty if one is unknown."),
    Column("total_ns", "Total (ns)", "ns", "Sum of their times on the device."),
    Column("gb_per_s", "Throughput (GB/s)", "GB/s", "Bytes per ns of the total.", float),
    Column(
        "exposed_ns", "Exposed (ns)", "ns",
        "Sum of the parts of these times in which no kernel ran on the device; copies at the same time count each.",
    ),
)  # fmt: skip
_KEYS = ["worker", "device", "kind", "source", "target", "operator"]
_NONE = -1


@report(
    "memory_copies",
    "Memory Copies",
    _COLUMNS,
    needs="copies on a GPU",
    view=View("Memory", sort="-total_ns", bar="total_ns"),
)
def memory_copies(source: Source) -> pd.DataFrame:
    """One row per worker, device, kind of copy, kinds of memory and operator, by total time: copies and sets that were
    launched in the aggregated iterations. None in a recording without a GPU."""
    operators, code = distinct(
        source.store.rows(
            """select o.id, case when o.unassociated = 1 then null else o.name end, nullif(k.frames, '')
               from operator o left join stack k on k.id = o.stack"""
        ),
        (None, None),
    )
    frames = [_copies(source.activity(low >> 40), low, high, code) for low, high in spans(source)]
    found = (
        pd.concat(frames) if frames else pd.DataFrame(columns=[*_KEYS, "dur", "bytes", "known", "exposed"])
    )
    table = found.groupby(_KEYS, sort=True).agg(
        calls=("dur", "size"), bytes=("bytes", "sum"), known=("known", "all"), total_ns=("dur", "sum"),
        exposed_ns=("exposed", "sum"),
    ).reset_index()  # fmt: skip
    table["bytes"] = table["bytes"].astype("Int64").where(table.pop("known").astype(bool))
    table["gb_per_s"] = table["bytes"].astype("Float64") / table["total_ns"].where(table["total_ns"] > 0)
    table = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return _named(source, table, operators)


def _copies(activity: Activity, low: int, high: int, operator: Ints) -> pd.DataFrame:
    """Each copy and set with its keys as numbers; `operator`: what to call each operator."""
    first, last = np.searchsorted(activity.id, [low, high])
    mine = first + np.flatnonzero(~activity.kernel[first:last])
    column = {name: activity.event[name].take(mine) for name in ("device", "copied", "copy_from", "copy_to")}
    exposed = np.zeros(len(mine), np.int64)
    for device in activity.devices:
        here = np.flatnonzero(activity.on(device)[mine])
        kernels = activity.union(activity.on(device) & activity.kernel)
        start, end = activity.start[mine[here]], activity.end[mine[here]]
        exposed[here] = end - start - kernels.within(start, end)
    plain: dict[str, Ints] = {name: np.where(c.mask(), c.values, _NONE) for name, c in column.items()}
    return pd.DataFrame(
        {
            "worker": activity.worker, "device": plain["device"], "kind": activity.event["name"].values[mine],
            "source": plain["copy_from"], "target": plain["copy_to"],
            "operator": operator[activity.event["operator"].values[mine]], "dur": (activity.end - activity.start)[mine],
            "bytes": np.where(column["copied"].mask(), column["copied"].values, 0), "known": column["copied"].mask(),
            "exposed": exposed,
        }
    )  # fmt: skip


def _named(source: Source, table: pd.DataFrame, operators: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Texts for the numbers."""
    workers = dict(source.store.rows("select id, name from worker"))
    kinds = dict(source.store.rows("select id, short_name from kernel_name"))
    return table.assign(
        worker=[workers[one] for one in table["worker"]],
        device=table["device"].where(table["device"] >= 0),
        kind=[kinds[one].removeprefix("memcpy ") for one in table["kind"]],
        source=table["source"].map(_MEMORY),
        target=table["target"].map(_MEMORY),
        stack=[operators[one][1] for one in table["operator"]],
        operator=[operators[one][0] for one in table["operator"]],
    )

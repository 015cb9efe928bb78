# SPDX-License-Identifier: Apache-2.0
"""Copies and sets on devices: source, target, throughput and cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import MEMORY_KINDS, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import distinct, spans
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.ids import worker_of

_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("kind", "Kind", "", "HtoD, DtoH, DtoD, PtoP ...: host, device, peer (communication); or memset.", str),
    Column("source", "Source", "", "Kind of memory read: pageable, pinned, device ...; empty if unknown.", str),
    Column("target", "Target", "", "Kind of memory written; empty if unknown.", str),
    Column("operator", "Operator", "", "Path of the operator that launched it; empty if none did.", str),
    Column("stack", "Stack Trace", "", "Source lines of that operator's call, one per line, outermost first.", str),
    Column("calls", "Calls", "count", "Copies or sets."),
    Column("bytes", "Bytes Copied (B)", "B", "Bytes that they moved or set; empty if any are unknown."),
    Column("total_ns", "Total (ns)", "ns", "Sum of their times on the device."),
    Column("gb_per_s", "Throughput (GB/s)", "GB/s", "Bytes per ns of total time.", float),
    Column(
        "exposed_ns",
        "Exposed (ns)",
        "ns",
        "Part of the total in which no kernel ran on the device; each of several overlapping copies counts.",
    ),
)
_KEYS = ["worker", "device", "kind", "source", "target", "operator"]
_NONE = -1


@report(
    "memory_copies",
    "Memory Copies",
    _COLUMNS,
    needs="copies on a GPU",
    view=View("Memory", sort="-total_ns", sums="calls bytes total_ns exposed_ns"),
)
def memory_copies(source: Source) -> pd.DataFrame:
    """One row per worker, device, kind of copy, kinds of memory and operator, sorted by total time, for copies and sets
    launched in the aggregated iterations. A recording without a GPU has no rows."""
    operators, code = distinct(
        source.store.rows(
            """select o.id, case when o.unassociated = 1 then null else o.name end, nullif(k.frames, '')
               from operator o left join stack k on k.id = o.stack"""
        ),
        (None, None),
    )
    frames = [_copies(source.activity(worker_of(low)), low, high, code) for low, high in spans(source)]
    copies = pd.concat(frames) if frames else pd.DataFrame(columns=[*_KEYS, "duration_ns", "bytes", "known", "exposed"])
    table = copies.groupby(_KEYS, sort=True).agg(
        calls=("duration_ns", "size"), bytes=("bytes", "sum"), known=("known", "all"),
        total_ns=("duration_ns", "sum"), exposed_ns=("exposed", "sum"),
    ).reset_index()  # fmt: skip
    table["bytes"] = table["bytes"].astype("Int64").where(table.pop("known").astype(bool))
    table["gb_per_s"] = table["bytes"].astype("Float64") / table["total_ns"].where(table["total_ns"] > 0)
    table = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return _add_names(source, table, operators)


def _copies(activity: Activity, low: int, high: int, operator: Ints) -> pd.DataFrame:
    """Return the copies and sets with their keys as numbers; `operator` is the code of each operator."""
    first, last = np.searchsorted(activity.id, [low, high])
    events = first + np.flatnonzero(~activity.kernel[first:last])
    column = {name: activity.event[name].take(events) for name in ("device", "copied_bytes", "copy_from", "copy_to")}
    size, exposed = column["copied_bytes"], np.zeros(len(events), np.int64)
    for device in activity.devices:
        rows = np.flatnonzero(activity.on(device)[events])
        kernels = activity.union(activity.on(device) & activity.kernel)
        start, end = activity.start[events[rows]], activity.end[events[rows]]
        exposed[rows] = end - start - kernels.within(start, end)
    codes: dict[str, Ints] = {name: np.where(values.mask(), values.values, _NONE) for name, values in column.items()}
    return pd.DataFrame(
        {
            "worker": activity.worker, "device": codes["device"], "kind": activity.event["name"].values[events],
            "source": codes["copy_from"], "target": codes["copy_to"],
            "operator": operator[activity.event["operator"].values[events]],
            "duration_ns": (activity.end - activity.start)[events],
            "bytes": np.where(size.mask(), size.values, 0), "known": size.mask(), "exposed": exposed,
        }
    )  # fmt: skip


def _add_names(source: Source, table: pd.DataFrame, operators: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Replace numbers by texts."""
    workers = reads.worker_names(source.store)
    kinds = dict(source.store.rows("select id, short_name from kernel_name"))
    return table.assign(
        worker=[workers[number] for number in table["worker"]],
        device=table["device"].where(table["device"] >= 0),
        kind=[kinds[number].removeprefix("memcpy ") for number in table["kind"]],
        source=table["source"].map(MEMORY_KINDS),
        target=table["target"].map(MEMORY_KINDS),
        stack=[operators[number][1] for number in table["operator"]],
        operator=[operators[number][0] for number in table["operator"]],
    )

# SPDX-License-Identifier: Apache-2.0
"""Devices: properties and utilization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.device import launch_stats
from pyprof.facts.device.concurrency import integral
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.device_steps import Steps, activities
from pyprof.facts.steps.source import Source
from pyprof.metrics import share
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER, concat_rows

_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("name", "Name", "", "Name that the device reports.", str),
    Column("compute_capability", "Compute Capability", "", "Compute capability of the device.", str),
    Column("memory_bytes", "Memory (B)", "B", "Total memory of the device."),
    Column("sm_count", "Multiprocessors", "count", "Number of multiprocessors of the device."),
    Column(
        "busy_ns",
        "Kernel Busy (ns)",
        "ns",
        "Time in the window with at least one kernel; copies and sets do not count.",
    ),
    Column("kernel_ns", "Kernel Time (ns)", "ns", "Sum of the times of kernels in the window."),
    Column(
        "window_ns", "Window (ns)", "ns",
        "From the start of the first aggregated step to the end of the last, with the device's bounds as in step_time, "
        "without pauses in which the recording was read.",
    ),
    Column(
        "utilization", "Kernel Utilization (%)", "%",
        "Time with at least one kernel, as a share of the window; called GPU Utilization in the TensorBoard plugin.",
        float,
    ),
    Column(
        "sm_efficiency", "Est. SM Efficiency (%)", "%",
        "Share of the multiprocessors that had a block, averaged over the window: at each moment the sum of blocks / "
        "multiprocessors of the running kernels, at most 1. Empty if a grid or the multiprocessors are unknown.",
        float,
    ),
    Column(
        "achieved_occupancy", "Est. Achieved Occupancy (%)", "%",
        "Share of a multiprocessor's threads that the kernels' blocks could fill, weighted by the kernels' times in "
        "the window, over kernels with known occupancy: recorded, else estimated from the launch.",
        float,
    ),
    Column(
        "tc_share", "Kernel Time using Tensor Cores (%)", "%",
        "Time of kernels that used tensor cores, as a share of the time of kernels for which this is known; in the "
        "window, each of several overlapping kernels counts.", float,
    ),
)  # fmt: skip


@report("gpu", "GPU Summary", _COLUMNS, needs="a GPU", view=View("Summary"))
def gpu(source: Source) -> pd.DataFrame:
    """One row per worker and device on which something ran: the device's properties, and its use in the window. A
    recording without a GPU has no rows."""
    shapes = launch_stats.shapes(source.store)
    rows = []
    for activity, steps in activities(source):
        properties = {
            number: cells
            for number, *cells in source.store.rows(
                """select number, name, compute_capability, memory_bytes, sm_count from device where worker = ?""",
                (activity.worker,),
            )
        }
        for device in activity.devices:
            name, capability, memory, multiprocessors = properties[device]
            filled = launch_stats.filled(shapes, multiprocessors, capability)
            rows.append({
                "worker": [activity.name], "device": device, "name": name, "compute_capability": capability,
                "memory_bytes": memory, "sm_count": multiprocessors,
                **_use(activity, activity.on(device) & activity.kernel, steps, filled, multiprocessors),
            })  # fmt: skip
    return concat_rows(rows, list(_COLUMNS))


def _use(
    activity: Activity,
    kernels: Bools,
    steps: Steps,
    filled: tuple[Ints, Ints],
    multiprocessors: int | None,
) -> dict[str, Any]:
    """Return the columns about the use of a device in the window."""
    low, high = steps.window
    window = int(steps.length(activity).sum())
    start, end = np.maximum(activity.start[kernels], low), np.minimum(activity.end[kernels], high)
    inside = np.flatnonzero(end > start)
    start, end = start[inside], end[inside]
    geometry = activity.event["geometry"]
    place = np.where(geometry.mask(), geometry.values, -1)[kernels][inside]
    sms_used, occupancy = (part[place] for part in filled)
    tc = activity.event["tc"].take(np.flatnonzero(kernels)[inside])
    length = end - start
    busy = len(Union(start, end))
    known = occupancy >= 0
    efficiency = None
    if multiprocessors and (sms_used >= 0).all():
        bounds = np.array([low]), np.array([high])
        (filled_ns,) = integral(start, end, sms_used, multiprocessors, *bounds).tolist()
        efficiency = share(filled_ns, multiprocessors * window)
    occupied = share(int((length * occupancy)[known].sum()), int(length[known].sum()))
    return {
        "busy_ns": busy, "kernel_ns": int(length.sum()), "window_ns": window, "utilization": share(busy, window),
        "sm_efficiency": efficiency,
        "achieved_occupancy": None if occupied is None else occupied / 10_000,
        "tc_share": share(int(length[tc.mask() & (tc.values == 1)].sum()), int(length[tc.mask()].sum())),
    }  # fmt: skip

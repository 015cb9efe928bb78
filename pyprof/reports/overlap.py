# SPDX-License-Identifier: Apache-2.0
"""Communication hidden by other kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.device_steps import Steps, activities
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import PARTIAL, START, STEP, TOTAL, WORKER, concat_rows, of_steps

_COLUMNS = (
    WORKER,
    STEP,
    Column("device", "Device", "", "Number of the device."),
    START,
    TOTAL,
    Column("computation_ns", "Computation (ns)", "ns", "Time with at least one kernel other than communication."),
    Column(
        "communication_ns", "All Communication (ns)", "ns",
        "Time with at least one kernel of a collective or copy between devices.",
    ),
    Column("overlap_ns", "Overlap (ns)", "ns", "Time with both: communication hidden by computation."),
    Column("exposed_ns", "Exposed Communication (ns)", "ns", "Time with communication and no other kernel."),
    Column("overlap", "Overlap (%)", "%", "Overlap as a share of the communication; empty without any.", float),
    Column("memory_ns", "Copies and Sets (ns)", "ns", "Time with another copy or set, and neither of them."),
    Column(
        "other_ns", "Device Idle (ns)", "ns",
        "Time in which the device was idle. Computation, exposed communication, copies and sets, and this add up to "
        "the step.",
    ),
    PARTIAL,
)  # fmt: skip
_PARTS = ("computation_ns", "communication_ns", "overlap_ns", "exposed_ns", "memory_ns", "other_ns")


@report(
    "overlap",
    "Computation and Communication",
    _COLUMNS,
    needs="kernels on a GPU",
    view=View("Time", sums=" ".join(("total_ns", *_PARTS)), wholes=dict.fromkeys(_PARTS, "total_ns")),
)
def overlap(source: Source) -> pd.DataFrame:
    """One row per worker, step and device on which something ran, with the device's bounds of steps as in step_time.
    Communication is identified by the names of kernels and copies, never by ranges. Times are unions: two kernels at
    the same time count once. A recording without a GPU has no rows."""
    rows = [_rows(activity, steps, device) for activity, steps in activities(source) for device in activity.devices]
    table = concat_rows(rows, list(_COLUMNS))
    return table.sort_values(["worker", "step", "device"], kind="stable", ignore_index=True)


def _rows(activity: Activity, steps: Steps, device: int) -> dict[str, Any]:
    """Return the columns for the steps of a device."""
    parts = activity.classes(activity.on(device))
    working = parts["kernel"].with_(parts["communication"])
    any_work = working.with_(parts["memcpy"]).with_(parts["memset"])
    computation, communication, work, busy = (
        union.within(steps.start, steps.end) for union in (parts["kernel"], parts["communication"], working, any_work)
    )
    both = computation + communication - work
    share = np.where(communication > 0, 100 * both / np.maximum(communication, 1), np.nan)
    step = of_steps(activity, steps)
    return {
        **step, "device": device, "computation_ns": computation, "communication_ns": communication,
        "overlap_ns": both, "exposed_ns": communication - both, "overlap": share, "memory_ns": busy - work,
        "other_ns": step["total_ns"] - busy,
    }  # fmt: skip

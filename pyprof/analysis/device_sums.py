# SPDX-License-Identifier: Apache-2.0
"""Lengths of the events of a device within given intervals, each moment once."""

from __future__ import annotations

from pyprof.analysis.timeline import Activity
from pyprof.model import Ints


def device_sums(activity: Activity, device: int, start: Ints, end: Ints) -> dict[str, Ints]:
    """Return lengths in ns within each [start, end): of computation (kernels that do not communicate), communication,
    communication without computation, copies and sets without either, and all together."""
    parts = activity.classes(activity.on(device))
    working = parts["kernel"].with_(parts["communication"])
    busy = working.with_(parts["memcpy"]).with_(parts["memset"])
    computation, communication, work, every = (
        union.within(start, end) for union in (parts["kernel"], parts["communication"], working, busy)
    )
    return {
        "computation": computation, "communication": communication, "exposed_communication": work - computation,
        "exposed_memory": every - work, "busy": every,
    }  # fmt: skip

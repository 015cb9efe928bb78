# SPDX-License-Identifier: Apache-2.0
"""What a device does within given steps: lengths of its events, each moment once.

The names are those of the columns of `iteration_device`, which has the same lengths within iterations of the host.
"""

from __future__ import annotations

from pyprof.analysis.partition import Union
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints


def device_sums(activity: Activity, device: int, start: Ints, end: Ints) -> dict[str, int]:
    """Return sums over the intervals [start, end), ns."""
    own, kernel, communication = activity.on(device), activity.kernel, activity.communication

    def union(mask: Bools) -> Union:
        return activity.union(own & mask)

    def length(of: Union) -> int:
        return int(of.within(start, end).sum())

    compute, between = union(kernel & ~communication), union(communication)
    working = compute.with_(between)
    busy = working.with_(union(~kernel & ~communication))
    return {
        "busy_ns": length(busy),
        "kernel_busy_ns": length(union(kernel)),
        "communication_ns": length(between),
        "exposed_communication_ns": length(working) - length(compute),
        "exposed_memory_ns": length(busy) - length(working),
    }

# SPDX-License-Identifier: Apache-2.0
"""Detection of changes of the system clock while a window is open.

Times in a recording are those of the system clock. torch counts ticks and converts them by the clock's value at both
ends of the window: if it was set in between, operators may lie beside their calls.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

TOLERANCE_NS = 100_000  # an interrupted reading proves nothing


def offset_ns() -> int:
    """Return the system clock minus a monotonic one; of several readings, the one that took the shortest time."""
    readings = []
    for _ in range(5):
        before = monotonic_ns()
        now = time_ns()
        after = monotonic_ns()
        readings.append((after - before, now - (before + after) // 2))
    return min(readings)[1]

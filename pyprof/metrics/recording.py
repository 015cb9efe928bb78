# SPDX-License-Identifier: Apache-2.0
"""The cost of recording, as far as the recording has it."""

from __future__ import annotations

from pyprof.metrics import Value, Window, metric, share


def _sum(window: Window, fact: str, absent: int | None = None) -> int | None:
    """Return a fact in ns, summed over the workers; None if it is unknown for one of them.

    In a run of several files a fact that differs is `worker.NAME.FACT`; one that is the same in all has no prefix.
    """
    count = max(len(window.workers), 1)
    same = window.facts.get(fact, "")
    if same.isdecimal():
        return int(same) * count
    values = [int(text) for name, text in window.facts.items()
             if name.startswith("worker.") and name.endswith(f".{fact}") and text.isdecimal()]  # fmt: skip
    return sum(values) if len(values) == count or (values and absent is not None) else absent


def _overhead(window: Window) -> int | None:
    sites, pauses = _sum(window, "overhead.sites_ns"), _sum(window, "pauses_ns", 0)
    return None if sites is None or pauses is None else sites + pauses


@metric("profiler_overhead", "Overhead of Recorded Calls", "ns", "")
def _profiler_overhead(window: Window) -> Value:
    """Estimated time that PyProf took from the program, over the whole recording and all workers: recorded calls and
    calls of modules, each at the cost that was measured when the recording ended, and pauses in which torch's
    records were read. The time that torch's profiler adds to each operator is not included. Unknown for recordings
    of other tools."""
    return _overhead(window)


@metric("profiler_overhead_share", "Overhead Share of Recorded Calls", "%", "time that was recorded")
def _profiler_overhead_share(window: Window) -> Value:
    """Overhead of recorded calls as a share of the time in which the recording's windows were open, over all workers.
    Torch's own profiler adds more: a step that waits for launches takes up to two thirds longer while recorded."""
    overhead, length = _overhead(window), _sum(window, "overhead.window_ns")
    return None if overhead is None or length is None else share(overhead, length)

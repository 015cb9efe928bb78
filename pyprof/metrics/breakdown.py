# SPDX-License-Identifier: Apache-2.0
"""Time of the window and of its iterations, and its breakdown by activity."""

from __future__ import annotations

from statistics import median, pstdev

from pyprof.metrics import PARTS, Value, Window, metric, share


@metric("wall_time", "Wall Clock Time", "ns")
def _wall_time(window: Window) -> Value:
    """From the start of the first aggregated iteration to the end of the last, of the slowest worker. An iteration
    lasts until the work that it launched has ended, and the next one begins there."""
    return max((worker.wall for worker in window.workers), default=None)


@metric("iterations", "Aggregated Iterations", "count")
def _iterations(window: Window) -> Value:
    """Iterations in the window, of the worker with the most."""
    return max((len(worker.durations) for worker in window.workers), default=None)


@metric("average_iteration", "Average Iteration Time", "ns", "iterations")
def _average_iteration(window: Window) -> Value:
    """Wall time divided by the number of iterations, over all workers."""
    count = sum(len(worker.durations) for worker in window.workers)
    return window.wall / count if count else None


@metric("median_iteration", "Median Iteration Time", "ns")
def _median_iteration(window: Window) -> Value:
    """Median of the iterations' lengths, over all workers."""
    lengths = [length for worker in window.workers for length in worker.durations]
    return median(lengths) if lengths else None


@metric("iteration_std", "Iteration Time Standard Deviation", "ns")
def _iteration_std(window: Window) -> Value:
    """Standard deviation of the iterations' lengths, of the population, over all workers."""
    lengths = [length for worker in window.workers for length in worker.durations]
    return pstdev(lengths) if lengths else None


@metric("iteration_variation", "Iteration Time Variation", "%", "average iteration time")
def _iteration_variation(window: Window) -> Value:
    """Standard deviation of the iterations' lengths as a share of their mean."""
    lengths = [length for worker in window.workers for length in worker.durations]
    return 100 * pstdev(lengths) * len(lengths) / sum(lengths) if sum(lengths) else None


_PART_TEXTS = {
    "tc": ("Tensor Core Kernel Duration", "kernels that use tensor cores"),
    "kernel": (
        "Non-Tensor Core Kernel Duration",
        "other kernels, including communication and those with unknown use of tensor cores",
    ),
    "memory": ("Memory Duration", "copies and sets on the device, including copies between devices"),
    "dataloader": ("Dataloader Duration", "waits of the training loop for its data loader"),
    "io": ("IO Duration", "calls that read or write files"),
    "cpu": ("CPU Duration", "operators and API calls on the CPU"),
    "other": ("Other Duration", "none of the others"),
}


def _part(name: str) -> None:
    heading, what = _PART_TEXTS[name]

    def part(window: Window) -> Value:
        lacking = "io" if name == "io" else "gpu" if name in ("tc", "kernel", "memory") else None
        if lacking and window.facts.get(lacking) == "none":
            return None
        return share(sum(worker.parts[name] for worker in window.workers), window.wall)

    needs = {"io": " Unknown if no such call was recorded."}.get(name, "")
    if name in ("tc", "kernel", "memory"):
        needs = " Unknown in a recording without a GPU."
    priority = " Time already counted in a category above is excluded." if PARTS.index(name) else ""
    part.__doc__ = f"Time with {what}, as a share of the wall time.{priority}{needs}"
    metric(f"{name}_share", heading, "%", "wall time of all workers")(part)


for _name in PARTS:
    _part(_name)

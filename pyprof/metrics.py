# SPDX-License-Identifier: Apache-2.0
"""Every figure, defined once: name, heading, unit, what it is, and of what it is a share.

Reports, rules, the Python API and the page show these texts and call these functions; nobody defines a figure twice.
Inputs are exact integers of ns; a share is a float, None where its denominator is nothing or unknown.

Add a figure of the whole window: one function that takes a `Window`, decorated with `metric`. Its docstring is the
definition. Add a figure of a row (an operator, a kernel): one line in `FIGURES`.

>>> one = Worker(0, "rank0", 100, (60, 40), {"tc": 10, "kernel": 30, "other": 60})
>>> value("average_iteration", Window((one,), (), {}))
50.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import NamedTuple

from pyprof.registry import Registry

# Parts of a worker's wall time, in the order of their priority: what two of them do at once counts for the first.
PARTS = ("tc", "kernel", "memory", "dataloader", "io", "cpu", "other")


class Figure(NamedTuple):
    """What a column of a report shows."""

    heading: str
    unit: str
    text: str


# Figures of rows: an execution of an operator, or sums over executions.
FIGURES: dict[str, Figure] = {
    "calls": Figure("Calls", "count", "Executions of the operator that started in the window."),
    "cpu": Figure(
        "CPU Time", "ns", "Time in the operator's ranges on its thread, without operators of their own inside them."
    ),
    "api": Figure("API Time", "ns", "Union of the CUDA API calls that the operator made."),
    "gpu": Figure(
        "GPU Time", "ns",
        "Union of the kernels, copies and sets that the operator launched, per device, added up over devices. In a "
        "recording without a GPU: own time of its operator events.",
    ),
    "overhead": Figure("CPU Overhead", "ns", "CPU time less API time."),
    "idle": Figure("GPU Idle", "ns", "From the operator's first GPU event to its last one, less its GPU time."),
    "kernels": Figure("Kernel Calls", "count", "Kernels launched; without a GPU operator events."),
    "tc_kernels": Figure("TC Kernel Calls", "count", "Kernels launched that used tensor cores."),
    "kernel": Figure("Kernel Time", "ns", "Sum of the kernels' times, without copies and sets."),
    "tc": Figure("TC Time", "ns", "Sum of the times of kernels that used tensor cores."),
    "kernel_gpu": Figure("GPU Time", "ns", "Sum of the times on the device."),
    "kernel_api": Figure("API Time", "ns", "Sum of the times of the API calls that launched them."),
    "flops": Figure("FLOPs", "count", "Operations executed, a fused multiply-add is 2; what is known of them."),
    "bytes": Figure("Bytes", "B", "Bytes that must move, every input read once and every output written once."),
}  # fmt: skip


@dataclass(frozen=True)
class Worker:
    """A process in the window: its wall time, the length of each iteration, and the parts of the wall time, in ns."""

    number: int
    name: str
    wall: int
    durations: tuple[int, ...]
    parts: Mapping[str, int]


@dataclass(frozen=True)
class Device:
    """A device of a worker with at least one event, or a visible one without; the sums of `iteration_device`."""

    worker: int
    number: int
    wall: int
    sums: Mapping[str, int]
    name: str | None = None
    events: int = 0


@dataclass(frozen=True)
class Window:
    """The iterations that were aggregated: what figures of the whole are computed from. `totals` are sums over all
    operators: calls, cpu, gpu, overhead, idle, kernels, tc_kernels, kernel, tc, flops, bytes ..., and the same with
    eligible_ (operators that tensor cores could do), eligible_tc_ (those that used them) before the name."""

    workers: tuple[Worker, ...]
    devices: tuple[Device, ...]
    totals: Mapping[str, int]
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def wall(self) -> int:
        """Sum of the workers' wall times: the denominator of shares over several workers."""
        return sum(worker.wall for worker in self.workers)

    @property
    def used(self) -> tuple[Device, ...]:
        """Devices on which something ran."""
        return tuple(device for device in self.devices if device.events)


Value = float | int | None


class Metric(NamedTuple):
    """A figure of the whole window."""

    name: str
    heading: str
    unit: str
    text: str
    denominator: str
    function: Callable[[Window], Value]


METRICS: Registry[Metric] = Registry("metric")
_Function = Callable[[Window], Value]


def metric(name: str, heading: str, unit: str, denominator: str = "") -> Callable[[_Function], _Function]:
    """Decorator: the function computes a figure, its docstring defines it."""

    def add(function: _Function) -> _Function:
        text = " ".join((function.__doc__ or "").split())
        METRICS.register(name)(Metric(name, heading, unit, text, denominator, function))
        return function

    return add


def value(name: str, window: Window) -> Value:
    """A figure by its name; None where it is unknown."""
    return METRICS[name].function(window)


def share(part: int, whole: int) -> float | None:
    """A percentage; None of nothing.

    >>> share(1, 4), share(0, 0)
    (25.0, None)
    """
    return 100 * part / whole if whole else None


@metric("wall_time", "Wall Clock Time", "ns")
def _wall_time(window: Window) -> Value:
    """From the start of the first aggregated iteration to the end of the last, of the slowest worker."""
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
    found = [length for worker in window.workers for length in worker.durations]
    return median(found) if found else None


@metric("iteration_std", "Iteration Time Standard Deviation", "ns")
def _iteration_std(window: Window) -> Value:
    """Standard deviation of the iterations' lengths, of the population, over all workers."""
    found = [length for worker in window.workers for length in worker.durations]
    return pstdev(found) if found else None


def _mean(window: Window, name: str) -> float | None:
    shares = [share(device.sums[name], device.wall) for device in window.used]
    known = [each for each in shares if each is not None]
    return fmean(known) if known else None


@metric("gpu_utilization", "GPU Utilization", "%", "wall time")
def _gpu_utilization(window: Window) -> Value:
    """Time in which at least one kernel, copy or set ran on the device, as a share of the wall time; mean over the
    devices on which something ran."""
    return _mean(window, "busy")


@metric("gpu_idle", "GPU Idle", "%", "wall time")
def _gpu_idle(window: Window) -> Value:
    """100 less the GPU utilization."""
    used = _mean(window, "busy")
    return None if used is None else 100 - used


@metric("kernel_utilization", "Kernel Utilization", "%", "wall time")
def _kernel_utilization(window: Window) -> Value:
    """As the GPU utilization, of kernels alone."""
    return _mean(window, "kernel_busy")


@metric("gpu_utilization_visible", "GPU Utilization of Visible GPUs", "%", "wall time")
def _gpu_utilization_visible(window: Window) -> Value:
    """As the GPU utilization, but the mean over all devices that the process could see, idle ones among them."""
    shares = [share(device.sums.get("busy", 0), device.wall) for device in window.devices]
    known = [each for each in shares if each is not None]
    return fmean(known) if known and window.used else None


@metric(
    "tc_utilization",
    "Tensor Core Kernel Efficiency",
    "%",
    "kernel time of operators that tensor cores could do",
)
def _tc_utilization(window: Window) -> Value:
    """Time of kernels that used tensor cores, as a share of the time of all kernels of operators that could use them;
    copies and sets are left out."""
    return share(window.totals.get("eligible_tc", 0), window.totals.get("eligible_kernel", 0))


_PART_TEXTS = {
    "tc": ("Tensor Core Kernel Duration", "kernels that use tensor cores"),
    "kernel": ("Non-Tensor Core Kernel Duration", "other kernels, communication among them"),
    "memory": ("Memory Duration", "copies and sets on the device"),
    "dataloader": ("Dataloader Duration", "waits of the training loop for its data loader"),
    "io": ("IO Duration", "calls that read or write files"),
    "cpu": ("CPU Duration", "operators and API calls on the CPU"),
    "other": ("Other Duration", "none of the others"),
}


def _part(name: str) -> None:
    heading, what = _PART_TEXTS[name]

    def part(window: Window) -> Value:
        if name == "io" and window.facts.get("io") == "none":
            return None
        return share(sum(worker.parts[name] for worker in window.workers), window.wall)

    before = ", ".join(_PART_TEXTS[each][1] for each in PARTS[: PARTS.index(name)])
    part.__doc__ = (
        f"Time with {what}{f', and none of {before}' if before else ''}, as a share of the wall time."
    )
    metric(f"{name}_share", heading, "%", "wall time of all workers")(part)


for _name in PARTS:
    _part(_name)


@metric("launch_late_share", "Launch-Bound Share", "%", "wall time")
def _launch_late_share(window: Window) -> Value:
    """Time in which a device waited for an event whose launch returned only after the event before had ended, as a
    share of the wall time; mean over the devices on which something ran."""
    return _mean(window, "late")


@metric("exposed_communication_share", "Exposed Communication", "%", "wall time")
def _exposed_communication(window: Window) -> Value:
    """Time in which collectives ran on the device and no other kernel, as a share of the wall time; mean over the
    devices on which something ran."""
    return _mean(window, "exposed_communication")


@metric("exposed_memory_share", "Exposed Copies", "%", "wall time")
def _exposed_memory(window: Window) -> Value:
    """Time in which copies or sets ran on the device and no kernel, as a share of the wall time; mean over the devices
    on which something ran."""
    return _mean(window, "exposed_memory")


@metric("communication_overlap", "Communication Overlap", "%", "time of collectives")
def _communication_overlap(window: Window) -> Value:
    """Time of collectives that other kernels overlap, as a share of the time of all collectives, over all devices."""
    total = sum(device.sums["communication"] for device in window.used)
    return share(total - sum(device.sums["exposed_communication"] for device in window.used), total)

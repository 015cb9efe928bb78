# SPDX-License-Identifier: Apache-2.0
"""Every figure, defined once: name, heading, unit, definition, and the base of a share.

Reports, rules, the Python API and the page show these texts and call these functions; no figure is defined twice.
Inputs are exact integers of ns; a share is a float, None where its denominator is zero or unknown.

To add a figure of the whole window, write one function that takes a `Window`, decorated with `metric`; its docstring
is the definition. To add a figure of a row (an operator, a kernel), add one line to `FIGURES`. `python -m
pyprof.reference metrics` prints docs/metrics.md.

>>> one = Worker(0, "rank0", 100, (60, 40), {"tc": 10, "kernel": 30, "other": 60})
>>> value("average_iteration", Window((one,), (), {}))
50.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyprof.core.registry import Registry, load_folder

# Parts of a worker's wall time and their headings, in the order of priority: time of two at once counts for the first.
# Those that step_time has of another meaning, which is the TensorBoard plugin's, say whose they are.
PART_HEADINGS = {
    "tc": "Using Tensor Cores", "kernel": "Not Using Tensor Cores", "memory": "Memory", "dataloader": "Dataloader",
    "io": "I/O", "cpu": "CPU (DLProf)", "other": "Other (DLProf)",
}  # fmt: skip
PARTS = tuple(PART_HEADINGS)


class Figure(NamedTuple):
    """The heading, unit and definition of a column of a report."""

    heading: str
    unit: str
    text: str


# Figures of rows: an execution of an operator, or sums over executions.
FIGURES: dict[str, Figure] = {
    "calls": Figure("Calls", "count", "Executions of the operator that started in the window."),
    "cpu": Figure(
        "CPU Time", "ns", "Time in the operator's ranges on its thread, without other operators inside them."
    ),
    "api": Figure("API Time", "ns", "Union of the CUDA API calls that the operator made."),
    "gpu": Figure(
        "GPU Time",
        "ns",
        "Union of the kernels, copies and sets that the operator launched, per device, added up over devices. In a "
        "recording without a GPU: own time of its operator events.",
    ),
    "overhead": Figure("CPU Overhead", "ns", "CPU time minus API time."),
    "idle": Figure("GPU Idle", "ns", "From the operator's first GPU event to its last one, minus its GPU time."),
    "kernels": Figure("Kernel Calls", "count", "Kernels launched; without a GPU, operator events."),
    "tc_kernels": Figure("TC Kernel Calls", "count", "Kernels launched that used tensor cores."),
    "kernel": Figure("Kernel Time", "ns", "Sum of the kernels' times, without copies and sets."),
    "tc": Figure("TC Time", "ns", "Sum of the times of kernels that used tensor cores."),
    "memory": Figure("Memory Time", "ns", "Sum of the times of copies and sets."),
    "kernel_gpu": Figure(
        "GPU Time",
        "ns",
        "Sum of the times on the device of the events that were launched in the window: concurrent events "
        "count separately, unlike in the union of an operator's GPU time.",
    ),
    "kernel_api": Figure(
        "API Time", "ns", "Sum of the times of the API calls that launched them; empty without a launch record."
    ),
    "roofline": Figure("Roofline Time", "ns", "Minimum time that the device needs for the known FLOPs and bytes."),
    "flops": Figure("FLOPs", "count", "Operations executed, as far as known; a fused multiply-add counts 2."),
    "bytes": Figure("Bytes", "B", "Bytes that must move: every input read once, every output written once."),
}


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
    sms: int | None = None


@dataclass(frozen=True)
class Window:
    """The aggregated iterations, from which figures of the whole are computed.

    `totals` are sums of the columns of op_stat over all operators: calls, cpu_ns, kernels and others, and operators,
    their number; the same over subsets: eligible_ (tensor cores support them), eligible_tc_ (and were used), using_
    (used them), missed_ (supported, not used), others_ (neither). Sums of the columns of op_kernel_stat over events:
    events_calls, events_gpu_ns, events_flops, events_flops_unknown_ns and others; over subsets: kernel_events_,
    tc_events_, memory_events_, other_events_ (kernels that are not known to use tensor cores), unknown_events_
    (kernels for which it is unknown), algorithm_events_ (convolutions by Winograd and FFT, whose executed FLOPs are
    unknown).

    `facts`: facts of the recording; io and gpu are "none" if it has no such records.
    """

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
    """Register a function that computes a figure; its docstring defines the figure."""

    def add(function: _Function) -> _Function:
        text = " ".join((function.__doc__ or "").split())
        METRICS.register(name)(Metric(name, heading, unit, text, denominator, function))
        return function

    return add


def value(name: str, window: Window) -> Value:
    """Return a figure by its name; None if it is unknown."""
    return METRICS[name].function(window)


def share(part: int, whole: int) -> float | None:
    """Return a percentage; None if the whole is zero.

    >>> share(1, 4), share(0, 0)
    (25.0, None)
    """
    return 100 * part / whole if whole else None


load_folder(__name__)

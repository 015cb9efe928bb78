# SPDX-License-Identifier: Apache-2.0
"""Every figure, defined once: name, heading, unit, what it is, and of what it is a share.

Reports, rules, the Python API and the page show these texts and call these functions; nobody defines a figure twice.
Inputs are exact integers of ns; a share is a float, None where its denominator is nothing or unknown.

Add a figure of the whole window: one function that takes a `Window`, decorated with `metric`. Its docstring is the
definition. Add a figure of a row (an operator, a kernel): one line in `FIGURES`. `python -m pyprof.metrics` prints
docs/metrics.md.

>>> one = Worker(0, "rank0", 100, (60, 40), {"tc": 10, "kernel": 30, "other": 60})
>>> value("average_iteration", Window((one,), (), {}))
50.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyprof.registry import Registry, load_folder

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
    "memory": Figure("Memory Time", "ns", "Sum of the times of copies and sets."),
    "kernel_gpu": Figure(
        "GPU Time", "ns",
        "Sum of the times on the device of the events that were launched in the window: events that run at once count "
        "each, which the union in an operator's GPU time does not.",
    ),
    "kernel_api": Figure(
        "API Time", "ns", "Sum of the times of the API calls that launched them; empty without launch record."
    ),
    "roofline": Figure(
        "Roofline Time", "ns", "The least time that the device needs for what is known of FLOPs and bytes."
    ),
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
    sms: int | None = None


@dataclass(frozen=True)
class Window:
    """The iterations that were aggregated: what figures of the whole are computed from.

    `totals` are sums over all operators: calls, operators, cpu, gpu, overhead, idle, kernels, tc_kernels, kernel, tc;
    the same over some of them: eligible_ (tensor cores could do them), eligible_tc_ (and did), using_ (used them),
    missed_ (could, did not), others_ (neither). Sums over events: events_calls, events_gpu, events_api,
    events_launched, events_flops, events_dense, events_bytes, events_roofline, _unknown of these (time of events of
    which it is not known), events_hardware_ps, events_model_ps (FLOPs at the devices' peaks),
    events_hardware_unknown (time of events of which the first is not known); of some: kernel_events_, tc_events_,
    memory_events_, other_events_ (kernels that are not known to use tensor cores), unknown_events_ (kernels of which it
    is not known).
    `facts`: what the recording says; io and gpu are "none" where it has no such records."""

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


load_folder(__name__)

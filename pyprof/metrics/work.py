# SPDX-License-Identifier: Apache-2.0
"""Kernel work: tensor cores, operations, distance from the device's limits."""

from __future__ import annotations

from pyprof.metrics import Value, Window, metric, share


@metric(
    "tc_utilization",
    "Tensor Core Kernel Efficiency",
    "%",
    "kernel time of operators that tensor cores could do",
)
def _tc_utilization(window: Window) -> Value:
    """Time of kernels that used tensor cores, as a share of the time of all kernels of operators that tensor cores
    support; copies and sets are left out. Unknown without such operators, and in a recording without a GPU."""
    if window.facts.get("gpu") == "none":
        return None
    return share(window.totals.get("eligible_tc_ns", 0), window.totals.get("eligible_kernel_ns", 0))


@metric("tc_unknown", "Tensor Core Use Unknown", "%", "kernel time")
def _tc_unknown(window: Window) -> Value:
    """Time of kernels for which it is unknown whether they used tensor cores, as a share of the time of all kernels:
    products whose names do not tell, and kernels with unknown names. Unknown in a recording without a GPU."""
    if window.facts.get("gpu") == "none":
        return None
    return share(window.totals.get("unknown_events_gpu_ns", 0), _of_kernels(window, "gpu_ns"))


def _of_kernels(window: Window, name: str) -> int:
    return window.totals.get(f"kernel_events_{name}", 0)


def _known(window: Window, name: str) -> int:
    """Return the time of the kernels whose FLOPs, bytes or roofline are known."""
    return _of_kernels(window, "gpu_ns") - _of_kernels(window, f"{name}_unknown_ns")


@metric("roofline_efficiency", "Roofline Efficiency", "%", "time of kernels whose roofline is known")
def _roofline_efficiency(window: Window) -> Value:
    """The minimum time that the device needs for the kernels' FLOPs and bytes (docs/roofline.md), as a share of the
    time that they took. Convolutions by Winograd and FFT are left out: how many FLOPs they execute is unknown. Unknown
    above 100 %: then caches hold the data."""
    other = {name: window.totals.get(f"algorithm_events_{name}", 0) for name in ("gpu_ns", "roofline_ns")}
    other["gpu_ns"] -= window.totals.get("algorithm_events_roofline_unknown_ns", 0)
    needed, known = _of_kernels(window, "roofline_ns"), _known(window, "roofline")
    value = share(needed - other["roofline_ns"], known - other["gpu_ns"])
    return None if value is None or value > 100 else value


@metric("roofline_coverage", "Kernel Time with a Roofline", "%", "kernel time")
def _roofline_coverage(window: Window) -> Value:
    """Share of the kernels' time for which FLOPs, bytes and the device's peaks are known. Unknown in a recording
    without a GPU."""
    return share(_known(window, "roofline"), _of_kernels(window, "gpu_ns")) if window.used else None


@metric("achieved_flops", "Achieved FLOP/s", "FLOP/s", "wall time of all workers")
def _achieved_flops(window: Window) -> Value:
    """Known FLOPs of the kernels (of the operator events without a GPU), divided by the wall time of all workers."""
    if not _known(window, "flops") or not window.wall:
        return None
    return 1_000_000_000 * _of_kernels(window, "flops") / window.wall


@metric("flops_coverage", "Kernel Time with FLOPs", "%", "kernel time")
def _flops_coverage(window: Window) -> Value:
    """Share of the kernels' time (of the operator events' own time without a GPU) whose FLOPs are known."""
    return share(_known(window, "flops"), _of_kernels(window, "gpu_ns"))


MOST = 105.0  # percent of the peak at the boost clock


def _at_peak(window: Window, name: str, what: str) -> Value:
    """Return a share from a sum of ps. If only zeros are known, and not everything is, the share is unknown."""
    wall = sum(device.wall for device in window.used)
    known, needed = _known(window, what), _of_kernels(window, name)
    if not known or not wall or (not needed and known < _of_kernels(window, "gpu_ns")):
        return None
    return 100 * needed / (1000 * wall)


@metric("hfu", "Hardware FLOPs Utilization", "%", "wall time of each device")
def _hfu(window: Window) -> Value:
    """The time that the devices need at their dense peaks for the FLOPs that their kernels execute, each kernel at the
    peak of its type, as a share of the wall time, over the devices on which something ran. This is a lower bound:
    unknown FLOPs count as zero, also those of convolutions by Winograd and FFT, which execute fewer than their
    definition has; "Kernel Time with Executed FLOPs" is the share that is known. Unknown above 105 %, which is
    impossible: a time, the FLOPs or the peak is wrong."""
    share_of_peak = _at_peak(window, "hardware_ps", "hardware")
    return None if share_of_peak is not None and share_of_peak > MOST else share_of_peak


@metric("hfu_coverage", "Kernel Time with Executed FLOPs", "%", "kernel time")
def _hfu_coverage(window: Window) -> Value:
    """Share of the kernels' time for which the hardware FLOPs utilization knows the FLOPs that are executed and the
    device's peak. Unknown in a recording without a GPU."""
    return share(_known(window, "hardware"), _of_kernels(window, "gpu_ns")) if window.used else None


@metric("mfu", "Model FLOPs Utilization", "%", "wall time of each device")
def _mfu(window: Window) -> Value:
    """Hardware FLOPs utilization with the FLOPs that the model needs: without recomputation, and with the whole
    rectangle of causal attention (docs/columns.md)."""
    return _at_peak(window, "model_ps", "roofline")

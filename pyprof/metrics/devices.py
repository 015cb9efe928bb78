# SPDX-License-Identifier: Apache-2.0
"""Use of devices: times of all devices as a share of their wall times, so that each device counts as long as its
worker ran. Only devices on which something ran in the recording count, never idle ones; in a recording without a GPU
the shares are unknown.

Occupancy and SM efficiency are estimates from the launch only, as in the TensorBoard plugin of torch.profiler.
"""

from __future__ import annotations

from pyprof.metrics import Value, Window, metric, share


def _share(window: Window, name: str) -> float | None:
    return share(sum(device.sums[name] for device in window.used), sum(device.wall for device in window.used))


@metric("gpu_utilization", "GPU Utilization", "%", "wall time")
def _gpu_utilization(window: Window) -> Value:
    """Time in which at least one kernel, copy or set ran on the device, as a share of the wall time, over the
    devices on which something ran."""
    return _share(window, "busy_ns")


@metric("gpu_idle", "GPU Idle", "%", "wall time")
def _gpu_idle(window: Window) -> Value:
    """100 % minus the GPU utilization."""
    used = _share(window, "busy_ns")
    return None if used is None else 100 - used


@metric("kernel_utilization", "Kernel Utilization", "%", "wall time")
def _kernel_utilization(window: Window) -> Value:
    """Time in which at least one kernel ran on the device, as a share of the wall time, over the devices on which
    something ran. Kernels of collectives count, copies between devices do not."""
    return _share(window, "kernel_busy_ns")


@metric("gpu_utilization_visible", "GPU Utilization of Visible GPUs", "%", "wall time")
def _gpu_utilization_visible(window: Window) -> Value:
    """GPU utilization of all devices that the process could see, idle ones included."""
    busy = sum(device.sums.get("busy_ns", 0) for device in window.devices)
    return share(busy, sum(device.wall for device in window.devices)) if window.used else None


@metric("launch_late_share", "Late Launches", "%", "wall time")
def _launch_late_share(window: Window) -> Value:
    """Time in which a device waited for an event whose launch returned only after the event before had ended, for
    whatever cause (the report idle has the causes), as a share of the wall time, over the devices on which
    something ran."""
    return _share(window, "late_ns")


@metric("exposed_communication_share", "Exposed Communication", "%", "wall time")
def _exposed_communication(window: Window) -> Value:
    """Time with communication on the device (kernels of collectives, copies between devices) and no other kernel, as a
    share of the wall time, over the devices on which something ran."""
    return _share(window, "exposed_communication_ns")


@metric("exposed_memory_share", "Exposed Copies", "%", "wall time")
def _exposed_memory(window: Window) -> Value:
    """Time in which copies or sets ran on the device, and neither a kernel nor communication, as a share of the wall
    time, over the devices on which something ran."""
    return _share(window, "exposed_memory_ns")


@metric("communication_overlap", "Communication Overlap", "%", "time of communication")
def _communication_overlap(window: Window) -> Value:
    """Time of communication (kernels of collectives, copies between devices) that other kernels overlap, as a share of
    all of it, over all devices."""
    total = sum(device.sums["communication_ns"] for device in window.used)
    return share(total - sum(device.sums["exposed_communication_ns"] for device in window.used), total)


@metric("launch_delay", "Average Launch Delay", "ns", "events with a launch record")
def _launch_delay(window: Window) -> Value:
    """From the end of the API call that launched an event to its start on the device, 0 if it started before; mean
    over the events that were launched in the window."""
    launched = sum(device.sums["launched"] for device in window.used)
    return sum(device.sums["delay_ns"] for device in window.used) / launched if launched else None


@metric("queue_depth", "Average Queue Depth", "events", "wall time")
def _queue_depth(window: Window) -> Value:
    """Events that were launched and had not ended, on average over the wall time: the sum of their times from the
    start of the launch to the end on the device, divided by the wall time, over the devices on which something
    ran."""
    if not any(device.sums["launched"] for device in window.used):
        return None
    wall = sum(device.wall for device in window.used)
    return sum(device.sums["queued_ns"] for device in window.used) / wall if wall else None


@metric("sync_wait_share", "Synchronization Wait", "%", "wall time")
def _sync_wait_share(window: Window) -> Value:
    """Time in which the CPU was in a call that waits for the device while the device worked, as a share of the wall
    time, over the devices on which something ran."""
    return _share(window, "waited_ns")


@metric("occupancy", "Estimated Achieved Occupancy", "%", "time of kernels whose occupancy is known")
def _occupancy(window: Window) -> Value:
    """Share of a multiprocessor's threads that the kernels' blocks could fill, weighted with the kernels' times: as
    many blocks as registers, shared memory, warps and block slots allow, and at most those of the grid."""
    time = sum(device.sums["occupied_of_ns"] for device in window.used)
    return sum(device.sums["occupied_bp_ns"] for device in window.used) / (100 * time) if time else None


@metric("sm_efficiency", "Estimated SM Efficiency", "%", "wall time")
def _sm_efficiency(window: Window) -> Value:
    """Share of the multiprocessors that had a block, averaged over the wall time: at each moment the sum of blocks /
    multiprocessors of the running kernels, at most 1. Over the devices on which something ran and whose multiprocessors
    and grids are known."""
    known = [
        (device.sums["filled_sm_ns"], device.sms * device.wall)
        for device in window.used
        if device.sms and (device.sums["shaped_ns"] or not device.sums["kernel_ns"])
    ]
    return share(sum(filled for filled, _ in known), sum(whole for _, whole in known))

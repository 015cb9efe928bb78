# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this process: rows of TARGET_INFO_GPU, resources of their multiprocessors, completion of their work."""

from __future__ import annotations

import threading
from typing import Any

import torch

from pyprof.capture.core.internal_errors import internal, tolerated
from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.instrument.cuda_graphs import LONGEST_S, captures
from pyprof.core.occupancy import Chip

# Column of the export -> attribute of torch.cuda.get_device_properties.
_PROPERTIES = {
    "name": "name", "totalMemory": "total_memory", "smCount": "multi_processor_count", "computeMajor": "major",
    "computeMinor": "minor", "threadsPerWarp": "warp_size", "l2CacheSize": "L2_cache_size",
    "maxRegistersPerSm": "regs_per_multiprocessor", "maxShmemPerSm": "shared_memory_per_multiprocessor",
}  # fmt: skip
COLUMNS = (
    "id", "name", "l2CacheSize", "totalMemory", "smCount", "uuid", "cuDevice", "maxShmemPerSm", "maxRegistersPerSm",
    "threadsPerWarp", "maxWarpsPerSm", "computeMajor", "computeMinor", "clockRate", "memoryBandwidth",
)  # fmt: skip


_NEEDED = ("computeMajor", "computeMinor", "smCount", "maxWarpsPerSm", "maxRegistersPerSm", "maxShmemPerSm")


def initialized() -> bool:
    """Return whether the program has initialized CUDA. Nothing in this module initializes it."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized())


def gpus() -> list[dict[str, Any]]:
    """Return a row per GPU that torch sees; empty before the program has initialized CUDA."""
    out: list[dict[str, Any]] = []
    with tolerated():  # after an error of a kernel every call of CUDA may fail
        for number in range(torch.cuda.device_count() if initialized() else 0):
            out.append(row(number, torch.cuda.get_device_properties(number)))
    return out


def row(number: int, properties: Any) -> dict[str, Any]:
    """Return the row of one GPU; a property that this torch does not have is None."""
    out = {column: getattr(properties, name, None) for column, name in _PROPERTIES.items()}
    uuid = getattr(properties, "uuid", None)
    threads = getattr(properties, "max_threads_per_multi_processor", None)
    warps = threads // out["threadsPerWarp"] if threads and out["threadsPerWarp"] else None
    khz = getattr(properties, "clock_rate", None)
    return {
        "id": number, "cuDevice": number, "uuid": None if uuid is None else f"GPU-{uuid}",
        "maxWarpsPerSm": warps, **out, "clockRate": 1000 * khz if khz else None,
        "memoryBandwidth": _bandwidth(properties),
    }  # fmt: skip


def _bandwidth(properties: Any) -> int | None:
    """Return bytes per second: two transfers per clock over the whole bus. Source: torch.cuda._device_limits."""
    khz = getattr(properties, "memory_clock_rate", None)
    bits = getattr(properties, "memory_bus_width", None)
    return 2 * 1000 * khz * bits // 8 if khz and bits else None


def chip(gpu: dict[str, Any]) -> Chip | None:
    """Return the input of the occupancy estimate; None where torch does not provide it, and for GPUs not made by
    NVIDIA."""
    if torch.version.hip is not None or gpu.get("threadsPerWarp") != 32:
        return None
    if any(gpu.get(name) is None for name in _NEEDED):
        return None
    major, minor, multiprocessors, warps, registers, shared = (gpu[name] for name in _NEEDED)
    return Chip(major, minor, multiprocessors, 32 * warps, registers, shared)


def finish_kernels() -> None:
    """Wait at the end of a window for the kernels launched in it, for at most ten seconds.

    Kernels still running when a collector stops are missing from its records. Inside a window nothing waits for a
    device. While a CUDA graph is being captured, by this thread or another, nothing waits either: the capture would
    fail.
    """
    if not initialized() or _capturing():
        return
    thread = threading.Thread(target=_synchronize, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down, where CUDA waits for its kernels anyway
        _synchronize()
    else:
        thread.join(LONGEST_S)


def _capturing() -> bool:
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except internal():  # after an error of a kernel every call fails: there is nothing to wait for
        return True


def _synchronize() -> None:
    # Do not create a context on a device that the program does not use.
    used = look_up("torch._C._cuda_hasPrimaryContext", "") or torch.cuda.current_device().__eq__
    for number in range(torch.cuda.device_count()):
        with captures.blocked() as none, tolerated():
            # An error of a kernel is the program's own; it will get it at its next call.
            if none and used(number):
                torch.cuda.synchronize(number)

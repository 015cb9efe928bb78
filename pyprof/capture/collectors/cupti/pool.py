# SPDX-License-Identifier: Apache-2.0
"""Buffers for CUPTI's records and the clock of the records: torch's own, which do not take the GIL.

CUPTI requests a buffer, and returns it, on the thread that launches, under a lock of its own. A callback written in
Python would wait there for the GIL, while a thread that holds the GIL waits for that lock in its own CUDA call, as
torch does when it records an event or frees a tensor: a deadlock. torch 2.13 has callbacks in C++ with a list of
completed buffers. An older torch has none, and then CUPTI is not used.

torch's list accepts whatever it is handed, and `_cupti_monitor_reset_buffers` frees all buffers, including those
that CUPTI still writes to. So no buffer is handed out twice, and the buffers are freed when all that were handed out
have come back.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import torch

from pyprof.capture.collectors.cupti.decode import Buffer
from pyprof.capture.core.torch_internals import look_up
from pyprof.core.errors import CaptureError

BUFFER_BYTES = 8 << 20
MOST_BUFFERS = 128  # 1 GiB: some four million launches


def _native(name: str, check: Any = None) -> Any:
    return look_up(f"torch._C._profiler.{name}", "", check=check)  # reported by `missing` where it matters


def _number(function: Any) -> None:
    if function() < 0:
        raise ValueError("an address or a count was expected")


_requested, _completed, _clock_address, _now, _allocated, _pending = (
    _native(name, _number)
    for name in (
        "_cupti_monitor_buffer_request_callback_address", "_cupti_monitor_buffer_complete_callback_address",
        "_cupti_approximate_time_callback_address", "_get_approximate_time", "_cupti_monitor_allocated_buffers",
        "_cupti_monitor_pending_buffers",
    )
)  # fmt: skip
_next, _configure, _reset = (
    _native(f"_cupti_monitor_{name}") for name in ("get_completed", "configure_buffers", "reset_buffers")
)


def missing() -> str:
    """Return "" if this torch has everything the module needs, else the reason."""
    parts = (_requested, _completed, _clock_address, _now, _allocated, _pending, _next, _configure, _reset)
    if None in parts:
        return (
            f"torch {torch.__version__} has no buffers for CUPTI that work without the GIL, and others can "
            "deadlock; use the collector kineto, or torch 2.13"
        )
    return ""


def now() -> int:
    """Return the time on the clock of the records, in its own ticks."""
    return int(_now())


class Pool:
    """Pool of the process's buffers."""

    def __init__(self) -> None:
        self._back = 0  # completed buffers that torch has not freed

    def open(self) -> None:
        """Prepare the pool for a window. Raises CaptureError while torch's own CUPTI monitor uses the buffers."""
        monitor = sys.modules.get("torch.profiler._cupti_monitor")  # importing it would require cupti-python
        if monitor is not None and monitor.get_monitor() is not None:
            raise CaptureError("torch's own CUPTI monitor is running, and the buffers serve only one user")
        if _allocated() < self._back:  # the monitor was running, and has freed them
            self._back = 0
        self.take()  # left over from an abandoned window
        self.free()
        _configure(BUFFER_BYTES)

    @property
    def callbacks(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Addresses of the CUPTI callbacks: buffer requested, buffer completed."""
        return ctypes.c_void_p(_requested()), ctypes.c_void_p(_completed())

    @property
    def clock(self) -> ctypes.c_void_p:
        """Address of the clock function for CUPTI, the one behind `now`."""
        return ctypes.c_void_p(_clock_address())

    @property
    def full(self) -> bool:
        """True if the maximum number of buffers is waiting to be read."""
        return bool(_allocated() >= MOST_BUFFERS)

    def take(self) -> list[Buffer]:
        """Return the buffers completed since the last call; they stay valid until `free`."""
        out = []
        while _pending():
            address, valid, *_ = _next()
            self._back += 1
            if valid:
                whole = (ctypes.c_uint8 * valid).from_address(address)
                out.append(Buffer(np.frombuffer(whole, np.uint8), valid))
        return out

    def free(self) -> None:
        """Free the buffers, or keep them for later while CUPTI still holds one."""
        if self._back and self._back == _allocated():
            _reset()
            self._back = 0


pool = Pool()

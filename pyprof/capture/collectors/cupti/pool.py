# SPDX-License-Identifier: Apache-2.0
"""Buffers for CUPTI's records and the clock of the records: torch's own, which take no GIL.

CUPTI asks for a buffer, and hands it back, on the thread that launches, under a lock of its own. A callback written in
Python would wait there for the GIL, while a thread that has the GIL waits for that lock in its own call of CUDA, as
torch does when it records an event or frees a tensor: neither goes on. torch 2.13 has callbacks in C++ with a list of
the buffers that came back. An older torch has none, and then CUPTI is not used.

torch's list takes in whatever it is handed, and `_cupti_monitor_reset_buffers` frees all buffers, those that CUPTI
still writes to as well. So no buffer is given out twice, and they are freed when as many came back as were given out.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import torch

from pyprof.capture.collectors.cupti.decode import Buffer
from pyprof.capture.core.torch_internals import look_up
from pyprof.errors import CaptureError

BUFFER_BYTES = 8 << 20
MOST_BUFFERS = 128  # 1 GiB: some four million launches


def _native(name: str, check: Any = None) -> Any:
    return look_up(f"torch._C._profiler.{name}", "", check=check)  # said by `missing` where it matters


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
    """ "" if this torch has what the module needs, else a sentence."""
    parts = (_requested, _completed, _clock_address, _now, _allocated, _pending, _next, _configure, _reset)
    if None in parts:
        return (
            f"torch {torch.__version__} has no buffers for CUPTI that work without Python's lock, and others can "
            "deadlock; use the collector kineto, or torch 2.13"
        )
    return ""


def now() -> int:
    """On the clock of the records, in its own ticks."""
    return int(_now())


class Pool:
    """The buffers of the process."""

    def __init__(self) -> None:
        self._back = 0  # buffers that came back, of those that torch has not freed

    def open(self) -> None:
        """Before they are used. Raises CaptureError while torch's own CUPTI monitor uses them."""
        monitor = sys.modules.get("torch.profiler._cupti_monitor")  # to import it would need cupti-python
        if monitor is not None and monitor.get_monitor() is not None:
            raise CaptureError("torch's own CUPTI monitor is at work, and the buffers serve one")
        if _allocated() < self._back:  # it was, and has freed them
            self._back = 0
        self.take()  # of a window that was given up
        self.free()
        _configure(BUFFER_BYTES)

    @property
    def callbacks(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Addresses of the functions for CUPTI: a buffer is needed, a buffer comes back."""
        return ctypes.c_void_p(_requested()), ctypes.c_void_p(_completed())

    @property
    def clock(self) -> ctypes.c_void_p:
        """Address of the clock for CUPTI: that of `now`."""
        return ctypes.c_void_p(_clock_address())

    @property
    def full(self) -> bool:
        """Whether as much waits to be read as there may be."""
        return bool(_allocated() >= MOST_BUFFERS)

    def take(self) -> list[Buffer]:
        """The buffers that came back since the last time; they hold until `free`."""
        out = []
        while _pending():
            address, valid, *_ = _next()
            self._back += 1
            if valid:
                whole = (ctypes.c_uint8 * valid).from_address(address)
                out.append(Buffer(np.frombuffer(whole, np.uint8), valid))
        return out

    def free(self) -> None:
        """Free the buffers, unless CUPTI has one of them: then they are kept until it has none."""
        if self._back and self._back == _allocated():
            _reset()
            self._back = 0


pool = Pool()

# SPDX-License-Identifier: Apache-2.0
"""A window recorded by CUPTI's Activity API.

Buffers and the clock are torch's (`pool.py`); the records are read when the window is closed. Times are brought to the
clock of the rest of the recording by two pairs of readings, at the start and at the end.

CUPTI has one set of callbacks, one clock and one set of kinds for the process, and Kineto names its own whenever it
starts, and disables what it enabled when it stops. So we start after it and stop before it, every time.
"""

from __future__ import annotations

from contextlib import suppress
from time import time_ns
from typing import Any, NamedTuple

import numpy as np

from pyprof.capture.collectors.cupti import library as cupti
from pyprof.capture.collectors.cupti import pool as buffers
from pyprof.capture.collectors.cupti import records
from pyprof.capture.collectors.cupti.decode import Names, decode
from pyprof.capture.collectors.device import LAUNCH, Array, Records
from pyprof.core.errors import CaptureError

_FULL = "windows whose end lacks device events: 1 GiB of activity records was reached"
_MINUTE = 60 * 10**9
# In order of enabling. Calls come first: a kernel without its launch is of little use.
KINDS = (
    records.RUNTIME, records.DRIVER, records.KERNEL, records.MEMCPY, records.PEER_COPY, records.MEMSET,
)  # fmt: skip
# Calls that launch nothing and come with every operator: cudaGetDevice, cudaSetDevice, cudaGetLastError,
# cudaPeekAtLastError, cudaEventCreate, ...WithFlags, cudaEventDestroy, cudaDeviceGetAttribute, cudaStreamIsCapturing;
# cuCtxGetCurrent, cuDevicePrimaryCtxGetState, cuKernelGetAttribute. Source: cupti_runtime_cbid.h, cupti_driver_cbid.h.
_IDLE_RUNTIME = (17, 16, 10, 11, 133, 134, 136, 200, 317)
_IDLE_DRIVER = (304, 392, 686)


class Reading(NamedTuple):
    """The same moment on two clocks."""

    cupti: int  # ticks
    unix: int  # ns


def read_clocks() -> Reading:
    """Read both clocks several times and return the closest pair."""
    readings = []
    for _ in range(5):
        before = time_ns()
        stamp = buffers.now()
        after = time_ns()
        readings.append((after - before, Reading(stamp, (before + after) // 2)))
    return min(readings)[1]


def to_unix(times: Array, first: Reading, last: Reading) -> Array:
    """Convert CUPTI's times, in ticks of any length, to ns of the Unix epoch.

    >>> to_unix(np.array([0, 500, 1000]), Reading(0, 7000), Reading(1000, 8010)).tolist()
    [7000, 7505, 8010]
    """
    elapsed = last.cupti - first.cupti
    drift = (last.unix - first.unix - elapsed) / elapsed if elapsed > 0 else 0.0
    since = times - first.cupti
    out: Array = first.unix + since + np.rint(since * drift).astype(np.int64)
    return out


class Cupti:
    """CUPTI collector. If `start` raises CaptureError, nothing is recorded; `stop` fills `records`."""

    def __init__(self, library: Any = None, pool: buffers.Pool = buffers.pool, sync: bool = False):
        self.records = Records()
        self.running = False
        self._library = library
        self._pool = pool
        self._kinds = (*KINDS, *((records.SYNC,) if sync else ()))
        self._enabled: list[int] = []
        self._left_out: list[tuple[bool, int]] = []
        self._threads: int | None = None

    def start(self) -> None:
        """Start recording. Kineto must be running already, if it is used."""
        if self._library is None:
            self._library = cupti.load()
        library = self._library
        self._sizes = records.sizes(library.version())
        library.flush()  # return buffers of other profilers to them: torch's list would treat them as ours
        self._pool.open()
        library.register(*self._pool.callbacks)
        library.use_clock(self._pool.clock)
        try:
            self._threads = library.thread_ids(cupti.SYSTEM_THREADS)
            self._first = read_clocks()
            library.dropped()  # those of an earlier profiler
            for kind in self._kinds:
                library.enable(kind)
                self._enabled.append(kind)
            for driver, functions in ((False, _IDLE_RUNTIME), (True, _IDLE_DRIVER)):
                for function in functions:
                    library.leave_out(driver, function)
                    self._left_out.append((driver, function))
        except BaseException:
            self._end()
            raise
        self.running = True

    def bound(self) -> None:
        """Stop recording between two steps if the buffers are full."""
        if self.running and self._enabled and self._pool.full:
            self._end()
            self.records.drop(_FULL, 1)

    def stop(self) -> None:
        """Stop recording and decode the buffers. Raises CaptureError if CUPTI's records cannot be read."""
        if not self.running:
            return
        self.running = False
        library = self._library
        self._end()
        library.flush()
        last = read_clocks()
        dropped = library.dropped()
        try:
            decoded = decode(
                self._pool.take(),
                self._sizes,
                Names(cupti.text, library.call_name),
                lambda times: to_unix(times, self._first, last),
                lambda data, valid, place: library.next_record(data.ctypes.data, valid, place),
            )
        finally:
            self._pool.free()
        _check_clock(decoded, self._first, last)
        decoded.drop("activity records that CUPTI dropped", dropped)
        self.records.extend(decoded)

    def _end(self) -> None:
        for kind in self._enabled:
            self._library.disable(kind)
        self._enabled = []
        for driver, function in self._left_out:  # the setting would affect a later profiler
            self._library.leave_out(driver, function, False)
        self._left_out = []
        if self._threads is not None:
            with suppress(CaptureError):
                self._library.thread_ids(self._threads)
            self._threads = None


def _check_clock(decoded: Records, first: Reading, last: Reading) -> None:
    """Raise CaptureError if the calls lie outside the time of the window: then the clock is not PyProf's."""
    starts = decoded.column(LAUNCH, "start")
    if len(starts) and not first.unix - _MINUTE < np.median(starts) < last.unix + _MINUTE:
        raise CaptureError(
            "CUPTI's times are not those of PyProf's clock: another profiler has set a different one. "
            "Use the collector kineto"
        )

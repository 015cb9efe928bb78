# SPDX-License-Identifier: Apache-2.0
"""A window recorded by CUPTI's Activity API.

CUPTI asks for a buffer and hands it back when it is full, on threads of its own; both callbacks only pass on an
address and a size. Everything else happens when the window is closed. Times are brought to the clock of the rest of
the recording by two pairs of readings, at the start and at the end.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import time_ns
from typing import Any, NamedTuple

import numpy as np

from pyprof.capture.collectors.cupti import library as cupti
from pyprof.capture.collectors.cupti import records
from pyprof.capture.collectors.cupti.decode import Buffer, Bytes, Names, decode
from pyprof.capture.collectors.device import Array, Records
from pyprof.errors import CaptureError

BUFFER_BYTES = 8 << 20
MOST_BUFFERS = 128  # 1 GiB: some four million launches; CUPTI counts what does not fit
# Order of enabling. Calls come first: a kernel without its launch is worth little.
KINDS = (
    records.RUNTIME, records.DRIVER, records.KERNEL, records.MEMCPY, records.PEER_COPY, records.MEMSET, records.SYNC,
)  # fmt: skip
# Calls that launch nothing and come with every operator: cudaGetDevice, cudaSetDevice, cudaGetLastError,
# cudaPeekAtLastError, cudaEventCreate, ...WithFlags, cudaEventDestroy, cudaDeviceGetAttribute, cudaStreamIsCapturing;
# cuCtxGetCurrent, cuDevicePrimaryCtxGetState, cuKernelGetAttribute. Source: cupti_runtime_cbid.h, cupti_driver_cbid.h.
_IDLE_RUNTIME = (17, 16, 10, 11, 133, 134, 136, 200, 317)
_IDLE_DRIVER = (304, 392, 686)


class Reading(NamedTuple):
    """The same moment on two clocks, ns."""

    cupti: int
    unix: int


def read_clocks(library: Any) -> Reading:
    """The closest of some readings."""
    found = []
    for _ in range(5):
        before = time_ns()
        stamp = library.timestamp()
        after = time_ns()
        found.append((after - before, Reading(stamp, (before + after) // 2)))
    return min(found)[1]


def to_unix(times: Array, first: Reading, last: Reading) -> Array:
    """CUPTI's times on the clock of the epoch, drift between the readings taken out.

    >>> to_unix(np.array([0, 500, 1000]), Reading(0, 7000), Reading(1000, 8010)).tolist()
    [7000, 7505, 8010]
    """
    passed = last.cupti - first.cupti
    drift = (last.unix - first.unix - passed) / passed if passed > 0 else 0.0
    since = times - first.cupti
    out: Array = first.unix + since + np.rint(since * drift).astype(np.int64)
    return out


class _Pool:
    """Buffers of the process. The callbacks live as long as it: CUPTI may call them whenever it likes."""

    def __init__(self) -> None:
        self.given: dict[int, Bytes] = {}  # address -> buffer that CUPTI has
        self.filled: deque[tuple[int, int]] = deque()  # address and valid bytes of those that came back
        self.most = MOST_BUFFERS
        self.requested = cupti.BUFFER_REQUESTED(self._request)
        self.completed = cupti.BUFFER_COMPLETED(self._complete)

    def _request(self, buffer: Any, size: Any, most_records: Any) -> None:
        most_records[0] = 0  # as many as fit
        if len(self.given) >= self.most:
            buffer[0], size[0] = None, 0  # CUPTI drops the records, and counts them
            return
        data = np.empty(BUFFER_BYTES, np.uint8)
        address = data.ctypes.data
        self.given[address] = data
        buffer[0], size[0] = address, BUFFER_BYTES

    def _complete(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self.filled.append((buffer, valid))

    def take(self) -> list[Buffer]:
        """The buffers that came back so far."""
        out = []
        while self.filled:
            address, valid = self.filled.popleft()
            data = self.given.pop(address, None)
            if data is not None and valid:
                out.append(Buffer(data, min(valid, len(data))))
        return out


_pool = _Pool()


class Cupti:
    """The collector. `start` raises CaptureError, and then nothing records; `stop` fills `records`."""

    def __init__(self, library: Any = None, pool: _Pool = _pool):
        self.records = Records()
        self.running = False
        self._library = library
        self._pool = pool
        self._enabled: list[int] = []
        self._threads: int | None = None

    def start(self) -> None:
        """Begin to record."""
        if self._library is None:
            self._library = cupti.load()
        library = self._library
        self._sizes = records.sizes(library.version())
        self._pool.take()  # of a window that was given up
        library.register(self._pool.requested, self._pool.completed)
        try:
            self._threads = library.thread_ids(cupti.SYSTEM_THREADS)
            self._first = read_clocks(library)
            library.dropped()  # of whoever recorded before
            for kind in KINDS:
                library.enable(kind)
                self._enabled.append(kind)
            for driver, functions in ((False, _IDLE_RUNTIME), (True, _IDLE_DRIVER)):
                for function in functions:
                    library.leave_out(driver, function)
        except BaseException:
            self._end()
            raise
        self.running = True

    def stop(self) -> None:
        """End the recording and decode it. Raises CaptureError if CUPTI's records cannot be read."""
        if not self.running:
            return
        self.running = False
        library = self._library
        self._end()
        library.flush()
        last = read_clocks(library)
        dropped = library.dropped()
        found = decode(
            self._pool.take(), self._sizes, Names(cupti.text, library.call_name),
            lambda times: to_unix(times, self._first, last),
            lambda data, valid, place: library.next_record(data.ctypes.data, valid, place),
        )  # fmt: skip
        found.drop("activity records that CUPTI dropped", dropped)
        self.records.extend(found)

    def _end(self) -> None:
        for kind in self._enabled:
            self._library.disable(kind)
        self._enabled = []
        if self._threads is not None:
            with suppress(CaptureError):
                self._library.thread_ids(self._threads)
            self._threads = None

# SPDX-License-Identifier: Apache-2.0
"""Schedule for reading torch's records in the middle of a window, so that they never fill the memory.

torch's profiler keeps about 500 bytes for each operator while it records and about 5 kB when it is stopped, and does
not report how many it has. Their number is estimated: from the recorded calls and the operators per call so far;
and, for operators without a recorded call (compiled code, TorchScript, a backward, C++), from the memory that the
process has allocated, which a thread monitors. Both overestimate.

A reading takes time. If steps are marked it happens between two of them.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from time import process_time_ns

from pyprof.capture import THREAD
from pyprof.capture.process.faults import guarded

_READ_BYTES = 5_700  # per operator, while torch is read
_SHARE = 100  # of the machine's memory one part


def _most() -> int:
    """Return how many operators torch may hold: those that take a hundredth of the memory while they are read, 40,000
    (230 MB) to 400,000. A reading waits for the GPU, so it is worth memory."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = 0
    for path in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):  # of a container
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            memory = min(memory, int(file.read()))  # "max" is no limit
    return min(max(memory // _SHARE // _READ_BYTES, 40_000), 400_000)


MOST = _most()  # operators that torch may hold
_EARLY = MOST * 5 // 8  # at which the thread requests a reading
_PER_CALL = 15.0  # assumed operators of a call, until some were read
_BYTES = 500  # that torch allocates per operator: 500.2 with torch 2.13 for `torch.add`
_FASTEST_NS = 500  # CPU time of an operator that is recorded
_SHORTEST, _LONGEST = 0.003, 0.02  # seconds between two checks


class Pace:
    """Calls and operators since the last reading."""

    def __init__(self) -> None:
        self._per_call = 0.0
        self._calls = 0  # at the last reading
        self._step_calls = 0  # when the last step began
        self.pending = False  # the thread has requested a reading

    def begin(self) -> None:
        """Reset the counts when a window opens."""
        self._calls = self._step_calls = 0
        self.pending = False

    def limit(self) -> int:
        """Return the number of calls that may be recorded until the next reading."""
        return max(int(MOST / (self._per_call or _PER_CALL)), 1)

    def read(self, calls: int, operators: int) -> None:
        """Update the estimate after a reading of `operators` operators; `calls` were recorded in this window so far."""
        new = calls - self._calls
        if new and operators:
            self._per_call = operators / new
        self._calls = calls
        self.pending = False

    def due(self, calls: int) -> bool:
        """Return whether the next step might have too many operators, at the end of a step."""
        since, step = calls - self._calls, calls - self._step_calls
        self._step_calls = calls
        return self.pending or (since + step) * (self._per_call or _PER_CALL) > MOST


class Watcher:
    """Thread that monitors the process's allocated memory, and calls `ask` as long as it is large.

    It does not read by itself: while the program runs operators, torch cannot (`collectors/gil_pause.py`).
    """

    def __init__(self, ask: Callable[[], None]):
        self._ask = ask
        self._ended = threading.Event()
        self._held = False
        self._noise = 0.0  # bytes that were not torch's records
        self._start = self._cpu = self._grown = 0  # bytes, ns, bytes since the last reading
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, unless this C library does not report allocated memory."""
        if _allocated() is not None:
            self.restart(0)
            self._thread = threading.Thread(target=self._look, name=THREAD, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting."""
        self._ended.set()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def hold(self) -> None:
        """Pause until `restart`: torch's records are being read, which takes ten times as much memory."""
        self._held = True

    def restart(self, operators: int) -> None:
        """Start over after torch's records were read, `operators` of them."""
        self._held = False
        if operators:
            self._noise = max(self._noise / 2, self._grown - operators * _BYTES)
        self._start, self._cpu, self._grown = _allocated() or 0, process_time_ns(), 0

    def _estimate(self) -> float:
        ran = process_time_ns() - self._cpu
        return min((self._grown - self._noise) / _BYTES, ran / _FASTEST_NS)

    def _look(self) -> None:
        pause = _LONGEST
        while not self._ended.wait(pause):
            if self._held:
                continue
            self._grown = max(self._grown, (_allocated() or 0) - self._start)
            estimate = self._estimate()
            if estimate > _EARLY:
                guarded(self._ask)
            pause = min(max((_EARLY - estimate) * _FASTEST_NS / 1e9, _SHORTEST), _LONGEST)


class _Heap(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and later: malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _heap() -> Callable[[], _Heap] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    function.restype = _Heap
    return function


_mallinfo = _heap()


def trim() -> None:
    """Return freed memory to the system, if the C library can: the rest of a recording does not need the memory that
    torch held while its records were read."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _allocated() -> int | None:
    """Return the bytes that the process has allocated and not freed; None if the C library does not report it."""
    if _mallinfo is None:
        return None
    heap = _mallinfo()
    return int(heap.uordblks + heap.hblkhd)

# SPDX-License-Identifier: Apache-2.0
"""When torch's records are read in the middle of a window, so that they never fill the memory.

torch's profiler keeps about 500 bytes for each operator while it records and about 5 kB when it is stopped, and does
not say how many it has. They are estimated: from the calls that were recorded and the operators that each had so far;
and, for operators that no call of ours comes with (compiled code, TorchScript, a backward, C++), from what the process
has allocated, which a thread looks at. Both say too many rather than too few.

A reading takes time. Where steps are marked it is made between two of them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from time import process_time_ns

from pyprof.capture import THREAD
from pyprof.capture.process.faults import guarded

MOST = 40_000  # operators that torch may hold: 230 MB while they are read
_EARLY = 25_000  # at which the thread asks for a reading
_PER_CALL = 15.0  # operators of a call, until some were read
_BYTES = 500  # that torch allocates per operator: 500.2 with torch 2.13 for `torch.add`
_FASTEST_NS = 500  # CPU time of an operator that is recorded
_SHORTEST, _LONGEST = 0.003, 0.02  # seconds between two looks


class Pace:
    """Calls and operators since the last reading."""

    def __init__(self) -> None:
        self._per_call = 0.0
        self._calls = 0  # at the last reading
        self._step_calls = 0  # when the last step began
        self.asked = False  # the thread asks for a reading

    def begin(self) -> None:
        """A window opens."""
        self._calls = self._step_calls = 0
        self.asked = False

    def limit(self) -> int:
        """Calls that may be recorded until the next reading."""
        return max(int(MOST / (self._per_call or _PER_CALL)), 1)

    def read(self, calls: int, operators: int) -> None:
        """A reading found so many operators; `calls` were recorded in this window so far."""
        new = calls - self._calls
        if new and operators:
            self._per_call = operators / new
        self._calls = calls
        self.asked = False

    def due(self, calls: int) -> bool:
        """Whether a step has ended and the next one might have too many operators."""
        since, step = calls - self._calls, calls - self._step_calls
        self._step_calls = calls
        return self.asked or (since + step) * (self._per_call or _PER_CALL) > MOST


class Watcher:
    """A thread that looks at what the process has allocated, and calls `ask` as long as it is much.

    It does not read by itself: while the program runs operators, torch cannot (`collectors/quiet.py`).
    """

    def __init__(self, ask: Callable[[], None]):
        self._ask = ask
        self._ended = threading.Event()
        self._held = False
        self._noise = 0.0  # bytes that were not torch's records
        self._start = self._cpu = self._grown = 0  # bytes, ns, bytes since the last reading
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start to look, unless this C library does not say what was allocated."""
        if _allocated() is not None:
            self.restart(0)
            self._thread = threading.Thread(target=self._look, name=THREAD, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no more, soon."""
        self._ended.set()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def hold(self) -> None:
        """Look no more until `restart`: torch's records are being read, which takes ten times as much memory."""
        self._held = True

    def restart(self, operators: int) -> None:
        """torch's records were read: so many."""
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
    """Give memory that was freed back to the system, where the C library can: what torch held while its records were
    read is not what the rest of a recording needs."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _allocated() -> int | None:
    """Bytes that the process has allocated and not freed; None where the C library does not say."""
    if _mallinfo is None:
        return None
    heap = _mallinfo()
    return int(heap.uordblks + heap.hblkhd)

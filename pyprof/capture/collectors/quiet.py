# SPDX-License-Identifier: Apache-2.0
"""A pause in which no other thread runs an operator, for ending torch's profiler.

torch (2.7 to 2.15) ends a recording of all threads while they go on: an operator then writes into records that are
being read or were freed, and the process crashes, sooner on a busy machine. An operator runs without the GIL, but
begins and ends in Python, which needs it. So the GIL is held for a while: the other threads finish their operators
and wait.

Source: disableProfiler in torch/csrc/autograd/profiler_kineto.cpp. Four training threads and a fifth that starts and
ends a profile crash with SIGSEGV or SIGABRT after some tens of rounds; with the pause they did not in 1200.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pyprof.capture import THREAD
from pyprof.capture.instrument.recorder import local, recorder

_R = TypeVar("_R")
# Microseconds, less than another thread waits until it asks for the lock: sys.getswitchinterval().
_PAUSE = 1000
_LEAVE = 0.01  # seconds for functions to end that began while a recording was being ended


def _library() -> ctypes.PyDLL | None:
    """Return the C library, called with the GIL held."""
    try:
        library = ctypes.PyDLL(None)
        library.usleep, library.open, library.read, library.close  # noqa: B018
    except (AttributeError, OSError):
        return None
    return library


_libc = _library()


def crowded() -> bool:
    """Return whether threads other than PyProf's own have run Python."""
    ours = {thread.ident for thread in threading.enumerate() if thread.name == THREAD}
    return bool(sys._current_frames().keys() - ours - {threading.get_ident()})


def settle(seconds: float) -> bool:
    """Hold the GIL until no thread that has called operators is computing. Returns whether that was within
    `seconds`."""
    until = time.perf_counter() + seconds
    threads = [state.tid for state in recorder.threads if state is not local.state]
    while _libc is not None and any(map(_computes, threads)):
        if time.perf_counter() > until:
            return False
        _libc.usleep(_PAUSE)
    return True


def call(function: Callable[[], _R]) -> _R:
    """Call a builtin function after a pause, without a bytecode in between: no other thread gets the GIL there."""
    if _libc is None or not crowded():
        return function()
    functions = functools.partial(_libc.usleep, _PAUSE), function
    return list(map(operator.call, functions))[1]  # type: ignore[arg-type]


def leave() -> None:
    """Give other threads time to finish functions that they began while a recording was being ended."""
    if crowded():
        time.sleep(_LEAVE)


def _computes(tid: int) -> bool:
    """Return whether a thread, by the system's id, runs or waits for a processor: its state in proc(5), stat. False
    where the system does not provide it, and for a thread that has ended."""
    if _libc is None:
        return False
    file = _libc.open(b"/proc/self/task/%d/stat" % tid, os.O_RDONLY)
    if file < 0:
        return False
    line = ctypes.create_string_buffer(128)
    _libc.read(file, line, len(line) - 1)
    _libc.close(file)
    return line.value.rpartition(b") ")[2][:1] == b"R"

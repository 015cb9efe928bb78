# SPDX-License-Identifier: Apache-2.0
"""A pause in which no other thread runs an operator, so that torch's profiler can be ended safely.

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
# Shorter than the time after which a waiting thread asks for the GIL: sys.getswitchinterval(), by default 5 ms.
_PAUSE_US = 1000
_GRACE_S = 0.01  # for functions to end that began while a recording was being ended


def _library() -> ctypes.PyDLL | None:
    """Return the C library, whose functions are called with the GIL held; None if it lacks one of those needed."""
    try:
        library = ctypes.PyDLL(None)
        # Raises AttributeError where one is missing.
        library.usleep, library.open, library.read, library.close  # noqa: B018
    except (AttributeError, OSError):
        return None
    return library


_libc = _library()


def has_other_threads() -> bool:
    """Return whether threads other than PyProf's own have run Python."""
    ours = {thread.ident for thread in threading.enumerate() if thread.name == THREAD}
    return bool(sys._current_frames().keys() - ours - {threading.get_ident()})


def wait_for_others(seconds: float) -> bool:
    """Hold the GIL until no thread that has called operators runs any more. Return False if some still did after
    `seconds`."""
    until = time.perf_counter() + seconds
    threads = [state.tid for state in recorder.threads if state is not local.state]
    while _libc is not None and any(map(_is_running, threads)):
        if time.perf_counter() > until:
            return False
        _libc.usleep(_PAUSE_US)
    return True


def call_after_pause(function: Callable[[], _R]) -> _R:
    """Call a builtin function after a pause, with the GIL held throughout: between the two, `map` runs no bytecode."""
    if _libc is None or not has_other_threads():
        return function()
    functions = functools.partial(_libc.usleep, _PAUSE_US), function
    return list(map(operator.call, functions))[1]  # type: ignore[arg-type]


def let_others_finish() -> None:
    """Give other threads time, without the GIL, to finish functions that began while a recording was being ended."""
    if has_other_threads():
        time.sleep(_GRACE_S)


def _is_running(tid: int) -> bool:
    """Return whether the thread with this system id runs or waits for a processor: state R of proc_pid_stat(5). False
    where the system has no /proc, and for a thread that has ended."""
    if _libc is None:
        return False
    file = _libc.open(b"/proc/self/task/%d/stat" % tid, os.O_RDONLY)
    if file < 0:
        return False
    line = ctypes.create_string_buffer(128)
    _libc.read(file, line, len(line) - 1)
    _libc.close(file)
    return line.value.rpartition(b") ")[2][:1] == b"R"

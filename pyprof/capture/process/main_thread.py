# SPDX-License-Identifier: Apache-2.0
"""Call a function on the main thread, between two bytecodes, as Python calls a signal handler.

Source: Py_AddPendingCall in Python's C API, https://docs.python.org/3/c-api/init.html#asynchronous-notifications.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from types import FrameType

from pyprof.capture.process.faults import guarded

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PROFILER = os.path.join("torch", "autograd", "profiler.py")
_BETWEEN = 6  # frames from record_function to the operator that begins a range
_waiting: list[Callable[[], object]] = []


def soon(function: Callable[[], object]) -> None:
    """Call `function` as soon as the main thread runs bytecode that is not PyProf's own. Does nothing if a call is
    pending."""
    if _add is None or _waiting:
        return
    _waiting.append(function)
    if _add(_is_true, _pending):  # Python's queue is full
        _waiting.clear()


class _Pending:
    """The call that Python makes, as the question whether this object is true: unlike a callback of ctypes, it lets an
    exception of a signal handler, which may run in between, reach the program."""

    def __bool__(self) -> bool:
        functions = tuple(_waiting)
        _waiting.clear()
        frame = sys._getframe(1)
        if not (_interrupts_pyprof(frame) or _enters_range(frame)):
            for function in functions:
                guarded(function)
        return False  # 0, which Python takes for success


def _interrupts_pyprof(frame: FrameType | None) -> bool:
    """Return whether PyProf's own code is running, or a function of Python's library that it has called."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            return True
        if not file.startswith(_PYTHON) or "-packages" in file:
            return False
        frame = frame.f_back
    return False


def _enters_range(frame: FrameType | None) -> bool:
    """Return whether record_function is about to open or close a range: torch has begun it, and PyProf does not know
    yet."""
    for _ in range(_BETWEEN):
        if frame is None:
            return False
        code = frame.f_code
        if code.co_filename.endswith(_PROFILER) and code.co_name in ("__enter__", "__exit__"):
            return True
        frame = frame.f_back
    return False


# Both kept for as long as Python may call them.
_pending = ctypes.py_object(_Pending())
_is_true = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
_add = getattr(ctypes.pythonapi, "Py_AddPendingCall", None)

# SPDX-License-Identifier: Apache-2.0
"""Functions that torch's profiler was still recording when it was stopped, and when it may be restarted.

A RecordFunction writes its end into the recording in which it began. torch (2.4 to 2.15) only checks whether any
recording runs: a function that began in one and ends in a later one writes into freed memory, and the process may
crash, in record_function.__exit__ for instance. So ranges of record_function that are open on the thread are ended
before the recording is, which torch allows, and nothing is started while another function may be open.

Source: onFunctionExit in torch/csrc/autograd/profiler_kineto.cpp, RecordFunction::end in ATen/record_function.cpp.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from enum import Flag, auto
from time import time_ns
from typing import Any, NamedTuple

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.torch_internals import graph_task, lack, look_up
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from pyprof.core.model import Ints

MARK = "profiler::pyprof"  # ends when the recording is about to be stopped
_MARKS = 6  # the first takes microseconds, where it is cold, and any may be interrupted
CUT = "record_function, cut"  # source of a range that torch has recorded only in part
_TASKS = "/proc/self/task"


def _enters(mark: Any) -> None:
    with mark(MARK):
        pass


_mark = look_up("torch._C._profiler._RecordFunctionFast", "", check=_enters)
_exit = look_up("torch.ops.profiler._record_function_exit._RecordFunction", "")
_plain = look_up("torch._C.DisableTorchFunctionSubclass", "")


def mark() -> list[int]:
    """Record functions in torch's profiler that end now: functions that end after them were open. Return a time inside
    each, none without them."""
    times: list[int] = []
    try:
        if _mark is not None:
            for _ in range(_MARKS):
                with _mark(MARK):
                    times.append(time_ns())
    except internal() as error:
        lack("torch._C._profiler._RecordFunctionFast", "", error)
    return times


def error_ns(start: Ints, end: Ints, inside: Ints) -> int:
    """Return by how much torch's times are off, in ns, from starts and ends of functions and a time that we read inside
    each; 0 if each lies between them.

    torch converts ticks by a single pair of readings of two clocks at the start of a recording, and does not notice if
    it was interrupted between the two: then all its times are off, and an operator may lie beside its call.
    Source: makeConverter in c10/util/ApproximateClock.cpp.

    >>> import numpy as np
    >>> error_ns(np.array([100, 200]), np.array([120, 290]), np.array([105, 260]))
    0
    >>> error_ns(np.array([100, 200]), np.array([120, 290]), np.array([145, 235]))
    -30
    """
    low, high = int((start - inside).max()), int((end - inside).min())
    return 0 if low <= 0 <= high else (low + high) // 2


def cut_ranges() -> dict[int, list[Any]]:
    """Return the open ranges of record_function by thread, when torch's profiler is about to be stopped. Ranges of this
    thread are ended."""
    out = {}
    for state in recorder.threads:
        if state.scopes:
            out[state.tid] = list(state.scopes)
            _cut(state)
    end_ranges(local.state)
    return out


def _cut(state: ThreadState) -> None:
    """Note that torch's records of the open ranges are incomplete."""
    for index, (name, start, source, layer) in enumerate(state.open):
        if source == "record_function":
            state.open[index] = name, start, CUT, layer


def end_ranges(state: ThreadState) -> None:
    """End torch's record of the ranges that are open on this thread. Leaving them later does nothing."""
    _cut(state)
    try:
        while state.scopes and _exit is not None and _plain is not None:
            with _plain():  # hide it from modes of the program
                _exit(state.scopes[-1].record)
            state.scopes.pop()
    except internal() as error:  # functions that stay open delay the next recording
        lack("torch.ops.profiler._record_function_exit", "", error)


class Kind(Flag):
    """Kinds of functions open on a thread."""

    OPERATOR = auto()  # calls no Python
    NODE = auto()  # of autograd
    RANGE = auto()  # record_function of Python
    OTHER = auto()  # a range of C++, a region of torch.compile


class Function(NamedTuple):
    """A function that was open at a stop. `scope` as torch numbers it."""

    tid: int
    name: str
    operator: bool
    backward: bool
    range: bool


class _Thread:
    """Functions open on one thread since a stop."""

    def __init__(self, stopped: int):
        self.stopped, self.kinds = stopped, Kind(0)
        self.scopes: list[Any] = []


class Unfinished:
    """Functions that were open when a recording of this process was stopped."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}

    def note(self, functions: Iterable[Function], scopes: Mapping[int, list[Any]]) -> None:
        """Note the functions open at a stop just now, and the Python ranges among them by thread."""
        now, ranges = time_ns(), dict.fromkeys(scopes, 0)
        current = threading.get_native_id()
        for function in functions:
            tid = function.tid
            if function.range and tid in scopes:
                ranges[tid] += 1
                if tid == current and ranges[tid] <= len(scopes[tid]):
                    continue  # ended
            thread = self._threads.setdefault(tid, _Thread(now))
            thread.stopped = now
            thread.kinds |= _kind(function)
            if function.range and tid in scopes and ranges[tid] <= len(scopes[tid]):
                thread.kinds, thread.scopes = thread.kinds & ~Kind.OTHER | Kind.RANGE, scopes[tid]

    def step(self) -> None:
        """Note that this thread is between two steps: inside nothing but ranges."""
        thread = self._threads.get(threading.get_native_id())
        if thread is not None:
            thread.kinds &= Kind.RANGE

    @property
    def remain(self) -> bool:
        """True if a function may still be open."""
        for tid, thread in list(self._threads.items()):
            state = next((state for state in recorder.threads if state.tid == tid), None)
            thread.kinds &= ~_left(thread, tid, state)
            if not thread.kinds or not _alive(tid):
                self._threads.pop(tid, None)  # another thread may have asked, too
        return bool(self._threads)


def _kind(function: Function) -> Kind:
    if function.backward or function.name.startswith("autograd::"):
        return Kind.NODE
    return Kind.OPERATOR if function.operator and "::" in function.name else Kind.OTHER


def _left(thread: _Thread, tid: int, state: ThreadState | None) -> Kind:
    """Return the kinds that the thread has certainly left since: an operator when it has begun another call, an
    autograd node when it is in no backward. Nodes also run on threads of torch's own, while the thread of the
    backward waits."""
    left = Kind(0)
    alone = state is None and sum(bool(other.calls) for other in recorder.threads) == 1
    if (tid == threading.get_native_id() or alone) and graph_task() < 0:
        left |= Kind.NODE
        if alone:
            left |= Kind.OPERATOR
    if state is not None:
        begun = max((state.calls[-2:-1] or [0])[0], (state.modules[-2:-1] or [0])[0])
        if begun > thread.stopped and Kind.NODE not in thread.kinds & ~left:
            left |= Kind.OPERATOR
        if not any(scope in state.scopes for scope in thread.scopes):
            left |= Kind.RANGE
    return left


def _alive(tid: int) -> bool:
    return not os.path.isdir(_TASKS) or os.path.isdir(f"{_TASKS}/{tid}")


unfinished = Unfinished()

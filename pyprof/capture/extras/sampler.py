# SPDX-License-Identifier: Apache-2.0
"""`sample="cpu"`: the Python stack of each running thread, every 10 ms, from a thread of PyProf's own.

A thread that has used no CPU time since the previous sample is waiting and gets no sample, if the system provides
that time (Linux); elsewhere each thread gets one, and the column is null. The stack is that of Python: C++ below it
is not visible, and while C++ code holds the GIL the sampler is late; missed samples are counted.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic_ns, time_ns
from types import CodeType, FrameType

from pyprof.capture import THREAD
from pyprof.capture.extras.stack_rows import StackRows
from pyprof.capture.instrument import notebook_cells
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.instrument.stacks import Frame
from pyprof.capture.output.capture_file import Recording, Table

_CREATE = """
-- The Python stack of a thread at an instant; cpuNs is the processor time of that thread since it was looked at last,
-- null where the system does not tell.
create table PYPROF_SAMPLE (time integer, globalTid integer, stackId integer, cpuNs integer)
"""
INTERVAL_NS = 10_000_000
_TOP = 5  # functions among the facts
_FIELDS = 4  # time, thread, stack, processor time or -1
# Bound now: with io=True a later lookup in the module may return a timed wrapper.
_open, _read, _close = os.open, os.read, os.close
_MISSED = "samples that came too late"
_UNKNOWN = "samples of threads unknown to Python"


class Sampler:
    """Samples so far."""

    def __init__(self, options: object, max_events: int, stacks: StackRows):
        self._max_events = max_events
        self._stacks = stacks
        self._resolved = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.clear()

    def __len__(self) -> int:
        return len(self._events) // _FIELDS

    def start(self, registry: Registry) -> None:
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._pid:  # a forked child has no such thread
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        try:
            self._sample()
        except Exception as error:  # print nothing to the program's stderr
            self.lost[f"samples after a fault ({type(error).__name__})"] = 1

    def _sample(self) -> None:
        tids = self._tids()
        self._used.clear()
        self._used.update((tid, _cpu_ns(tid)) for tid in tids.values())
        due = monotonic_ns() + INTERVAL_NS
        while not self._ended.wait(max(due - monotonic_ns(), 0) / 1e9):
            missed = (monotonic_ns() - due) // INTERVAL_NS
            if missed > 0:
                self.lost[_MISSED] += missed
            due += (max(missed, 0) + 1) * INTERVAL_NS
            self._look(time_ns())

    def _look(self, now: int) -> None:
        ours = {thread.ident for thread in threading.enumerate() if thread.name == THREAD}
        tids = self._tids()
        for ident, frame in sys._current_frames().items():
            if ident in ours:
                continue
            tid = tids.get(ident)
            if tid is None:
                self.lost[_UNKNOWN] += 1
                continue
            used = _cpu_ns(tid)
            before = self._used.get(tid)
            self._used[tid] = used
            spent = -1 if used is None or before is None else used - before
            if spent != 0:
                self._add(now, tid, self._stack(frame), spent)

    @staticmethod
    def _tids() -> dict[int, int]:
        """Return the system thread ids by Python's thread ids."""
        return {t.ident: t.native_id for t in threading.enumerate() if t.ident and t.native_id}

    def _stack(self, frame: FrameType) -> int:
        key: list[int] = []
        at: FrameType | None = frame
        while at is not None:
            key += (id(at.f_code), at.f_lasti)
            at = at.f_back
        place = tuple(key)
        number = self._places.get(place)
        if number is None:
            from pyprof.capture.extras.stack_rows import whole_walk

            code_objects = []
            at = frame
            while at is not None:
                code_objects.append(at.f_code)  # kept, so that their ids are not reused
                at = at.f_back
            self._codes.append(code_objects)
            number = self._places[place] = len(self._walks)
            self._walks.append(whole_walk(frame))
        return number

    def _add(self, now: int, tid: int, stack: int, spent: int) -> None:
        if len(self) >= self._max_events:
            self.lost[self._reason] += 1
        else:
            self._events.extend((now, tid, stack, spent))

    def take(self, recorder: Recorder) -> None:
        numbers = [self._stacks.of_frames(recorder.stacks, frames) for frames in self._walks]
        for index in range(self._resolved + 2, len(self._events), _FIELDS):
            self._events[index] = numbers[self._events[index]]
        for frames, number in zip(self._walks, numbers):
            self._innermost[number] = _name(frames, recorder.stacks.text)
        self._resolved = len(self._events)
        self._forget()

    def _forget(self) -> None:
        """Release the code objects of the program."""
        self._places: dict[tuple[int, ...], int] = {}
        self._walks: list[tuple[Frame, ...]] = []
        self._codes: list[list[CodeType]] = []

    def clear(self) -> None:
        self._events = array("q")
        self._resolved = 0
        self._innermost: dict[int, str] = {}
        self._used: dict[int, int | None] = {}
        self._reason = f"samples after the first {self._max_events}"
        self.lost: dict[str, int] = {self._reason: 0, _MISSED: 0, _UNKNOWN: 0}
        self._forget()

    def facts(self) -> dict[str, str]:
        """Return the number of samples, and the functions with most of them."""
        stacks = self._events[2::_FIELDS]
        facts = {"samples": str(len(stacks)), "samples.interval_ns": str(INTERVAL_NS)}
        functions = Counter(self._innermost.get(stack, "") for stack in stacks)
        for place, (function, count) in enumerate(functions.most_common(_TOP), 1):
            facts[f"samples.top.{place}"] = f"{100 * count / len(stacks):.0f} % {function}"
        return facts

    def tables(self) -> list[Table]:
        return [Table(_CREATE, "insert into PYPROF_SAMPLE values (?, ?, ?, ?)", self._rows)]

    def _rows(self, recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
        columns = [self._events[index::_FIELDS] for index in range(_FIELDS)]
        for time, tid, stack, spent in zip(*columns):
            yield time - recording.start, process | tid, stack, spent if spent >= 0 else None


def _name(frames: tuple[Frame, ...], text: Callable[[Frame], str]) -> str:
    if not frames:
        return "outside of the program"
    code = frames[0][0]
    return f"{getattr(code, 'co_qualname', code.co_name)} ({os.path.basename(notebook_cells.name(code.co_filename))})"


def _cpu_ns(tid: int) -> int | None:
    """Return the CPU time of a thread, ns; None where the system does not provide it. Source: proc(5), schedstat."""
    try:
        file = _open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(_read(file, 64).split()[0])
    except (OSError, ValueError, IndexError):
        return None
    finally:
        _close(file)

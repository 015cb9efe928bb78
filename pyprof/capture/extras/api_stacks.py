# SPDX-License-Identifier: Apache-2.0
"""`api_backtrace=NS`: the Python stack of CUDA API calls, and of calls that wait for the device, that take longer than
NS.

There is no callback in the process at the end of a CUDA call, so no stack can be taken there. Afterwards it is known
which Python call contained it, by thread and time:

* a recorded call (`F.linear`, `Tensor.to`, and calls that bring values to the host: `x.item()`, `if x:`): its stack
  is in its record;
* a function that only waits (`torch.cuda.synchronize()`): such calls are timed here, and those longer than NS
  have their stack taken when they end, from the frame that is still waiting;
* neither (a backward thread, a destructor, a C++ library): the stack is unknown.

Table PYPROF_API: one row per waiting call, and, if the recording has records of the CUDA API, one per API call.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterable
from time import time_ns
from types import ModuleType
from typing import Any, NamedTuple

import torch

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.options import Options
from pyprof.capture.extras.patch_target import Watched
from pyprof.capture.extras.stack_rows import StackRows
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.lookups import always, method
from pyprof.capture.instrument.recorder import Recorder, local, recorder
from pyprof.capture.instrument.targets import HOST
from pyprof.capture.output.capture_file import Recording, Table
from pyprof.capture.output.merge_calls import Innermost
from pyprof.core.marker import CallMarker, decode

_CREATE = """
-- A call that took longer than the threshold of --api_backtrace: of the CUDA API, or one of Python that waits for
-- values. stackId is that of PYPROF_STACK, null where it is not known.
create table PYPROF_API (start integer, end integer, globalTid integer, nameId integer, stackId integer)
"""
# Functions that wait, by module.
FUNCTIONS = (
    ("torch.cuda", "synchronize"),
    ("torch.accelerator", "synchronize"),
    ("torch.cpu", "synchronize"),
)
# Methods of classes of torch.cuda that wait.
CUDA_CLASSES = (("Event", "synchronize"), ("Stream", "synchronize"))
# Recorded calls that wait: their records have a stack.
CALLS = {
    *(("Tensor", name) for name in HOST), ("torch", "is_nonzero"),
    ("Tensor", "cpu"), ("Tensor", "nonzero"), ("torch", "nonzero"), ("Tensor", "masked_select"),
    ("torch", "masked_select"), ("Tensor", "unique"), ("torch", "unique"), ("torch", "equal"), ("Tensor", "equal"),
    ("torch", "allclose"), ("Tensor", "allclose"),
}  # fmt: skip
_LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
_TID = 0xFFFFFF  # as a globalTid holds it
_FIELDS = 5  # start, end, thread, name, stack


class ApiCall(NamedTuple):
    """A record of the CUDA runtime or driver, in ns of the epoch."""

    start: int
    end: int
    tid: int
    name: str


def cuda_calls(device: Any) -> list[ApiCall]:
    """Return the CUDA runtime and driver calls among a recording's device events."""
    if device is None:
        return []
    columns = [device.column(_LAUNCHES, name).tolist() for name in ("start", "end", "globalTid", "nameId")]
    return [
        ApiCall(start, end, tid & _TID, device.names[name] if name >= 0 else "")
        for start, end, tid, name in zip(*columns)
    ]


class ApiStacks:
    """Waiting calls so far, and the lookup of stacks for CUDA API calls."""

    def __init__(self, options: Options, max_events: int, stacks: StackRows):
        self._least = options.api_backtrace or 0
        self._max_events = max_events
        self._stacks = stacks
        self._active = False
        self._watched: list[Watched] = []
        self._events, self._new = array("q"), array("q")
        self.clear()

    def __len__(self) -> int:
        return (len(self._events) + len(self._new)) // _FIELDS

    def start(self, registry: Registry) -> None:
        for owner, name in CUDA_CLASSES:
            cls = getattr(torch.cuda, owner)
            original = getattr(cls, name)
            timed = self._timed(original, f"torch.cuda.{owner}.{name}")
            registry.replace(cls, name, method(original, always(timed)))
        for path, name in FUNCTIONS:
            module = sys.modules.get(path)
            if isinstance(module, ModuleType) and name in vars(module):
                wrapper = self._timed(vars(module)[name], f"{path}.{name}")
                self._watched.append(Watched(module, {name: wrapper}))
                self._watched[-1].install()
        self._active = True

    def stop(self) -> None:
        self._active = False
        for watched in reversed(self._watched):
            watched.remove()
        self._watched = []

    def _timed(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        number = self._names.setdefault(name, len(self._names))
        least = self._least

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(*args, **kwargs)
            start = time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                end = time_ns()
                if end - start > least:
                    self._add(start, end, number, sys._getframe(1))

        return call

    def _add(self, start: int, end: int, name: int, frame: Any) -> None:
        """Record a waiting call. The frame is still at the call, and the walk costs less than the call took."""
        try:
            if len(self) >= self._max_events:
                self.lost[self._reason] += 1
                return
            site = recorder.stacks.site(frame, local.state.context)
            self._new.extend((start, end, threading.get_native_id(), name, site))
        except internal() as error:  # never into the user's code
            recorder.drop(f"stack not taken ({type(error).__name__})")

    def take(self, recorder: Recorder) -> None:
        from pyprof.capture.extras.stack_rows import site_frames

        numbers: dict[int, int] = {}
        for index in range(0, len(self._new), _FIELDS):
            site = self._new[index + 4]
            if site not in numbers:
                frames = site_frames(recorder.stacks, site)
                numbers[site] = self._stacks.of_frames(recorder.stacks, frames)
            self._new[index + 4] = numbers[site]
        self._events.extend(self._new)
        self._new = array("q")

    def clear(self) -> None:
        self._events, self._new = array("q"), array("q")
        self._names: dict[str, int] = {}
        self._reason = f"stacks of waiting calls after the first {self._max_events}"
        self.lost: dict[str, int] = {self._reason: 0}

    def facts(self) -> dict[str, str]:
        return {"api_backtrace.threshold_ns": str(self._least)}

    def tables(self) -> list[Table]:
        return [Table(_CREATE, "insert into PYPROF_API values (?, ?, ?, ?, ?)", self._rows)]

    def _rows(self, recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
        rows = [*self._waiting(), *self._recorded(recording.calls)]
        rows += self.attach(cuda_calls(getattr(recording, "device", None)), rows, recording.calls)
        for start, end, tid, name, stack in sorted(rows, key=lambda row: row[0]):
            yield start - recording.start, end - recording.start, process | tid, code(name), stack

    def _waiting(self) -> list[tuple[int, int, int, str, int | None]]:
        names = list(self._names)
        columns = [self._events[index::_FIELDS] for index in range(_FIELDS)]
        return [(start, end, tid, names[name], stack) for start, end, tid, name, stack in zip(*columns)]

    def _recorded(self, calls: Iterable[Any]) -> list[tuple[int, int, int, str, int | None]]:
        """Return recorded calls that wait, with the stack of their record."""
        out = []
        for row in calls:
            if row.end - row.start > self._least:
                marker = decode(row.text)
                if isinstance(marker, CallMarker) and (marker.call.mod, marker.call.op) in CALLS:
                    name = f"{marker.call.mod}.{marker.call.op}"
                    out.append((row.start, row.end, row.tid, name, self._of_text(row.text)))
        return out

    def _of_text(self, text: str) -> int | None:
        marker = decode(text)
        trace = marker.trace if isinstance(marker, CallMarker) else ()
        return self._stacks.number([(frame, None) for frame in trace]) if trace else None

    def attach(
        self, api: Iterable[ApiCall], waiting: Iterable[Any], calls: Iterable[Any]
    ) -> list[tuple[int, int, int, str, int | None]]:
        """Return CUDA API calls above the threshold, with the stack of the Python call around each."""
        stacks: list[int | None] = [None]
        intervals: dict[int, list[tuple[int, int, int]]] = {}
        long = [call for call in api if call.end - call.start > self._least]
        if not long:
            return []
        for start, end, tid, _, stack in waiting:
            intervals.setdefault(tid, []).append((start, end, len(stacks)))
            stacks.append(stack)
        texts: list[str] = []
        for row in calls:
            intervals.setdefault(row.tid, []).append((row.start, row.end, len(stacks) + len(texts)))
            texts.append(row.text)
        where = {tid: Innermost(spans) for tid, spans in intervals.items()}
        out = []
        for call in long:
            place = where[call.tid].at(call.start) if call.tid in where else 0
            stack = stacks[place] if place < len(stacks) else self._of_text(texts[place - len(stacks)])
            out.append((call.start, call.end, call.tid, call.name, stack))
        return out

# SPDX-License-Identifier: Apache-2.0
"""Session: one recording, from its first window to its file. It switches the layers; `recording.py` keeps their data.

Without a file only NVTX ranges are written: nothing is kept, torch's profiler is not started.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import process_time_ns, time_ns

from pyprof.capture import DEFAULT_MAX_EVENTS, hooks
from pyprof.capture.collectors import kineto
from pyprof.capture.collectors.device import KERNEL
from pyprof.capture.collectors.kineto import Kineto, Waiting, stranded
from pyprof.capture.collectors.layer import Layer
from pyprof.capture.collectors.unfinished import end_ranges, unfinished
from pyprof.capture.core import torch_internals
from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.options import NOTHING, Options
from pyprof.capture.core.state import Slot, Until, end, owned
from pyprof.capture.core.torch_internals import graph_task
from pyprof.capture.extras import Extras
from pyprof.capture.instrument import compilation, modules, nvtx_ranges, parameters, seen_objects
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.patch import Patches
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.wrappers import emitting
from pyprof.capture.output import rotation
from pyprof.capture.output.capture_file import write
from pyprof.capture.pace import Pace, Watcher, trim
from pyprof.capture.process import main_thread
from pyprof.capture.process.faults import contained, guarded
from pyprof.capture.process.gc_pause import gc_disabled
from pyprof.capture.process.signals import held
from pyprof.capture.recording import SessionData
from pyprof.core import atomic_file, scratch
from pyprof.core.errors import CaptureError
from pyprof.core.marker import COLLECTION, SAVING

_patches = Patches()
_emitting_patches = Patches(emitting)
# The last session that opened a window. At shutdown patches are removed that it could not.
_current: Slot[Session | None] = owned(Slot(None), Until.SHUTDOWN, lambda _: _let_go())


class Session:
    """Recording into one file. Windows of one session follow each other; only one session exists at a time.

    `output` None: only NVTX ranges; `operators` then tells whether to write torch's own as well.
    """

    def __init__(
        self,
        output: str | None,
        max_events: int = DEFAULT_MAX_EVENTS,
        operators: bool = False,
        options: Options = NOTHING,
    ):
        if output is not None:
            try:
                atomic_file.check(output)
            except CaptureError as error:
                raise CaptureError(f"{output} {error}") from error
            self.folder = os.getcwd()  # the program may leave it
        self.output, self.max_events = output, max_events
        self.number = 0  # index of this window within a schedule
        self.keeps_others = False  # never replaces a file that this run has written
        self.for_rank = False  # the file name is inherited: it is written if this process is a rank
        self.unless_empty = False  # recording was not requested for this process: write no empty file
        self.only_calls = False  # torch's profiler stays off
        self.more_facts: dict[str, str] = {}  # for the file
        self._emit_nvtx = nvtx_ranges.Operators() if output is None and operators else None
        self._patches = _patches
        self.on_step: Callable[[Session], None] | None = None
        self.next_step = 0
        self._registry = Registry()
        self._extras = Extras(options, max_events)
        self._kineto = Kineto(self._extras.memory)
        self._device = Layer(options.collector, self._kineto, options.sync)
        self._pace = Pace()
        self._watcher = Watcher(self._ask)
        self._lock = threading.RLock()  # guards torch's profiler, which another thread may read
        self._open = False
        self.reading = False  # torch's records are being read in mid-window: do not close it now
        self._reset()

    def _reset(self) -> None:
        self.operators_given_up = False
        self._fault: Exception | None = None  # the recording is lost; reported by `write`
        self.data = SessionData()
        self._extras.clear()
        seen_objects.clear()

    @contained
    @held()
    def open(self) -> None:
        """Open a window; does nothing if it is open. A failing part is left out of the recording."""
        if self._open:
            return
        try:
            self._begin()
        except internal() as error:
            self._lose(error)
            self._stop()

    def _begin(self) -> None:
        if (last := _current.value) is not None and last._open:  # an earlier window that could not be closed
            last._stop()
        _current.value = self
        self._open = True
        recorder.clear()
        recorder.ranges = nvtx_ranges.plan.writer
        self._patches = _patches if recorder.ranges is None else _emitting_patches
        if self.output is not None or recorder.ranges is not None:
            guarded(self._patches.install)
            guarded(modules.install, self._registry)
            if not self.only_calls:  # they name operators
                guarded(parameters.install)
        if self.output is None:
            if self._emit_nvtx is not None:
                guarded(self._emit_nvtx.start)
            recorder.counting = recorder.keeping = False
            recorder.active = recorder.ranges is not None
            return
        stranded.end()
        self.operators_given_up = self.operators_given_up or self.only_calls
        if hooks.user_profiler_runs() and not self.operators_given_up:
            self._give_up_operators()
        self._device.start(held=self.operators_given_up)
        if not self.operators_given_up:
            try:
                self._start_operators()
            except internal() as error:
                self.operators_given_up = True
                print(
                    f"pyprof: torch's profiler does not start ({error}); call sites are recorded.",
                    file=sys.stderr,
                )
        self._device.begin()
        guarded(self._extras.start)
        self.data.begin()
        self._pace.begin()
        recorder.excess = 0
        self._allow()
        self._watcher = Watcher(self._ask)
        recorder.on_full = self._count
        recorder.active = recorder.keeping = True
        recorder.counting = False
        if not self.operators_given_up:
            guarded(self._watcher.begin)
        guarded(compilation.install)
        torch_internals.say()

    def _lose(self, error: Exception) -> None:
        """Keep an exception for `write`, which reports that the recording is lost. Its frames would keep tensors
        alive."""
        self._fault = self._fault or error.with_traceback(None)

    @contained
    @held()
    def close(self) -> None:
        """Close the window and keep its records. `write` raises an error of this, not the program."""
        if not self._open:
            return
        cpu = process_time_ns()
        try:
            self._stop()
            if self.output is None:
                nvtx_ranges.say_lost()
                seen_objects.clear()
            else:
                with gc_disabled():
                    self._keep()
                self.data.reading_cpu_ns += process_time_ns() - cpu
        except internal() as error:
            self._lose(error)
        finally:
            recorder.clear()
            self._kineto.clear()
            torch_internals.say()

    def _keep(self) -> None:
        self._device.keep()
        if self.data.pauses:
            trim()
        # Torch's own record of a record_function range is complete only if PyProf kept torch's profiler to the end.
        scopes = [] if self.operators_given_up else self._kineto.ranges
        self.data.end(self._kineto.operators(), scopes)
        self._extras.take(recorder)
        if not (kineto.ALL_THREADS or self.operators_given_up):
            calls = sum(len(state.calls) // 6 for state in recorder.threads if state.tid != self._kineto.tid)
            if calls:
                recorder.drop("operators of calls on other threads, which torch before 2.7 does not record", calls)
        if recorder.excess:
            recorder.drop(f"calls after the first {self.max_events} events", recorder.excess)
        self.data.drop(recorder.lost)

    @contained
    @held()
    def discard(self) -> None:
        """Close the window and forget everything so far."""
        if self._open:
            self._stop()
        recorder.clear()
        self._device.forget()
        self._kineto.clear()
        self._reset()

    @contained
    def forget(self) -> None:
        """Release everything of the program, after the file is written."""
        if self._open:  # an earlier close has failed
            self._stop()
        self._device.forget()
        self._reset()
        end(Until.WRITTEN, guarded)

    def abandon(self) -> None:
        """Stop recording in a forked child. The profiler belongs to the parent and is not touched."""
        recorder.active = recorder.keeping = False
        recorder.ranges = None
        guarded(self._extras.stop)
        self._unpatch()
        recorder.clear()

    def _stop(self) -> None:
        """Undo everything, even if a part fails."""
        self._open = False
        recorder.active = recorder.keeping = recorder.counting = False
        recorder.ranges = None
        guarded(self._extras.stop)
        if self._emit_nvtx is not None:
            guarded(self._emit_nvtx.stop)
        self._unpatch()
        guarded(self._watcher.end)
        try:
            with self._lock:
                self._kineto.stop()
        except internal() as error:  # all operators of the recording are lost with it
            self._lose(error)
        guarded(self._device.stop)

    def _unpatch(self) -> None:
        for undo in (self._registry.undo, self._patches.remove, parameters.remove, compilation.remove):
            guarded(undo)

    @contained
    def step(self) -> None:
        """Handle the end of a step marked by the program."""
        self.mark()
        if self.on_step is not None:
            self.on_step(self)
        self.between_steps()

    def between_steps(self) -> None:
        """Read torch's records after a step, if they would otherwise be read in the next one."""
        if not self._open or self.output is None or graph_task() >= 0 or self._kineto.of_another_thread:
            return
        unfinished.step()
        if self._kineto.running and self._pace.due(self._calls):
            self._pause(between_steps=True)
        elif not (self._kineto.running or self.operators_given_up) and recorder.keeping:
            self._go_on()

    def mark(self) -> None:
        """Note the end of a step."""
        if self._open and self.output is not None:
            self.data.mark(self.next_step)
            guarded(self._device.step)
        self.next_step += 1

    def forget_steps(self) -> None:
        """Discard all steps but the last, which now begins with the window."""
        self.data.forget_steps()

    @contained
    @held()
    def give_way(self) -> None:
        """Stop recording operators: the user's own torch.profiler starts, and its trace must be complete."""
        if self._emit_nvtx is not None:
            self._emit_nvtx.stop()
        if self.output is not None and not self.operators_given_up:
            self._give_up_operators()
            self._watcher.stop()  # there is nothing left to read
            self._kineto.stop()
        self._device.stop()

    def _give_up_operators(self) -> None:
        self.operators_given_up = True
        print(
            "pyprof: the program runs its own torch.profiler; operators are left to it, call sites are recorded.",
            file=sys.stderr,
        )

    def _count(self) -> None:
        """Read torch's records, then stop at the limit or go on: a thread has recorded `recorder.limit` calls."""
        # Inside a backward, whose events are still open, or on a thread that cannot end the recording.
        if graph_task() >= 0 or self._kineto.of_another_thread or self._later():
            recorder.limit += 6
        elif self._kineto.running or self.operators_given_up:
            self._pause()
        else:
            self._go_on()

    def _later(self) -> bool:
        """Return whether a reading to save memory waits for the end of compiled code: operators could not restart."""
        return self._pace.pending and self._calls < self.max_events and compilation.running()

    def _pause(self, between_steps: bool = False) -> None:
        with held():
            start, cpu = time_ns(), process_time_ns()
            self.reading = True
            try:
                self._read()
            except internal() as error:
                self._lose(error)
                recorder.active, recorder.keeping = recorder.ranges is not None, False
            finally:
                self.reading = False
                self.data.pause(start, between_steps)
                self.data.reading_cpu_ns += process_time_ns() - cpu

    def _read(self) -> None:
        with self._lock:
            if not self._open:  # another thread has closed the window
                return
            if self._kineto.running:
                self._watcher.hold()
                try:
                    self._kineto.stop()
                finally:
                    self._pace.read(self._calls, self._kineto.last)
                    self._watcher.restart(self._kineto.last)
            if self._calls + len(self._kineto) >= self.max_events:
                self._watcher.stop()
                self._extras.full()
                self.data.full = time_ns()
                recorder.active, recorder.keeping, recorder.counting = (
                    recorder.ranges is not None,
                    False,
                    True,
                )
                return
            if not self.operators_given_up:
                self._start_operators()
            self._allow()

    def _allow(self) -> None:
        """Set the number of calls, of each thread, after which `_count` is called."""
        if not (self._kineto.running or self.operators_given_up):
            recorder.limit = 0
            return
        lengths = [len(state.calls) // 6 for state in recorder.threads if state.calls]
        left = min(self._pace.limit(), self.max_events - sum(lengths) - len(self._kineto) + 1)
        recorder.limit = 6 * (max(lengths, default=0) + max(left // max(len(lengths), 1), 1))

    @property
    def _calls(self) -> int:
        return sum(len(state.calls) // 6 for state in recorder.threads)

    def _start_operators(self) -> None:
        """Start torch's profiler. It waits while a function of its last recording is open: `unfinished.py`."""
        end_ranges(local.state)
        with suppress(Waiting):
            self._kineto.start()
        self.data.without_operators(not self._kineto.running)

    def _go_on(self) -> None:
        """Restart torch's profiler if possible."""
        end_ranges(local.state)
        if not unfinished.remain:
            with held(), self._lock:
                if self._open and not self._kineto.running:
                    self._start_operators()
                    self._watcher.restart(0)
                    self._allow()

    def _ask(self) -> None:
        """Request a reading because much memory is allocated: at the next call, module or step, or on the main
        thread."""
        if not self.reading:
            if self._pace.pending:
                main_thread.soon(self._read_between)
            self._pace.pending = True
            recorder.limit = 0

    def _read_between(self) -> None:
        """Read between two bytecodes of the main thread, unless it is inside a recorded call."""
        if self._open and recorder.keeping and not (self.reading or local.state.busy) and self._pace.pending:
            self._count()

    @property
    def empty(self) -> bool:
        """True if the windows so far recorded no event; False after an error, which `write` reports."""
        data = self.data
        # Python collects garbage in a process that computes nothing too, such as a launcher of ranks.
        ranges = (row for row in data.ranges if not row.name.startswith((COLLECTION, SAVING)))
        events = data.calls or data.operators or any(ranges) or self._device.records.count(KERNEL)
        return not (events or self._fault)

    @property
    def is_open(self) -> bool:
        """True if a window is open."""
        return self._open

    @property
    def emits_operators(self) -> bool:
        """True if PyProf writes torch's own NVTX ranges."""
        return self._emit_nvtx is not None and self._emit_nvtx.running

    @property
    def path(self) -> str:
        """Full name of the file."""
        return os.path.join(self.folder, self.output or "")

    def write(self) -> None:
        """Write the file, and print one line about its contents on stderr."""
        if self.output is None:
            return
        if self._fault is not None:
            raise self._fault
        data, device = self.data, self._device
        limit = data.bound(self.max_events)
        data.end_of_operators(limit)
        if limit is not None:
            device.cut(limit, f"device events after the first {self.max_events} events")
        data.drop(device.records.lost)
        data.drop(self._extras.lost())
        device.say_empty()
        if data.is_empty(device.records) and rotation.stays(self.path, self.output):
            self.output = None
            return
        recording = data.recording(device, self._extras, self.folder, self.operators_given_up)
        recording.meta.update(self.more_facts)
        try:
            process_name = " ".join(sys.argv[:1]) or "python"
            with gc_disabled():
                rotation.put(self.path, self.output, lambda before: write(self.path, recording, process_name, before))
        except CaptureError as error:
            raise CaptureError(f"{self.output}: {error}") from error
        counts = [
            _plural(len(data.operators), "operator"),
            _plural(len(data.calls), "call"),
            *([_plural(kernels, "kernel")] if (kernels := device.records.count(KERNEL)) else []),
            *([_plural(len(data.steps), "step")] if data.steps else []),
            *([f"{lost} not recorded"] if (lost := sum(data.lost.values())) else []),
        ]
        hint = f". {rotation.HINT}" if data.is_empty(device.records) else ""
        print(f"{scratch.display_name(self.output)}: {', '.join(counts)}{hint}", file=sys.stderr)


def _let_go() -> None:
    if _current.value is not None:
        _current.value._unpatch()
    _current.clear()


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

# SPDX-License-Identifier: Apache-2.0
"""One recording, from its first window to its file. Switches the layers on and off; `recording.py` keeps their data.

Without a file it writes NVTX ranges alone: nothing is kept, torch's profiler is not started.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import time_ns

from pyprof import atomic_file
from pyprof.capture import DEFAULT_MAX_EVENTS, hooks
from pyprof.capture.collectors import kineto
from pyprof.capture.collectors.device import KERNEL
from pyprof.capture.collectors.kineto import Kineto, Waiting, stranded
from pyprof.capture.collectors.layer import Layer
from pyprof.capture.collectors.unfinished import end_ranges, unfinished
from pyprof.capture.core import torch_internals
from pyprof.capture.core.options import NOTHING, Options
from pyprof.capture.core.torch_internals import graph_task
from pyprof.capture.extras import Extras
from pyprof.capture.instrument import compilation, compiled, modules, nvtx_ranges, parameters, seen_objects
from pyprof.capture.instrument.patch import Patches, Registry
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.wrappers import emitting
from pyprof.capture.output import rotation
from pyprof.capture.output.capture_file import write
from pyprof.capture.pace import Pace, Watcher, trim
from pyprof.capture.process import main_thread
from pyprof.capture.process.faults import contained, guarded
from pyprof.capture.process.gc_pause import uncollected
from pyprof.capture.process.signals import held
from pyprof.capture.recording import Gathered
from pyprof.errors import CaptureError

_patches = Patches()
_emitting_patches = Patches(emitting)
_current: Session | None = None  # the last one that opened a window


class Session:
    """A recording into one file. Windows of one session follow each other; only one session exists at a time.

    `output` None: only NVTX ranges; then `operators` says whether torch's own are wanted as well.
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
                raise CaptureError(f"{output}: {error}") from error
            self.folder = os.getcwd()  # the program may leave it
        self.output, self.max_events = output, max_events
        self.number = 0  # of this window among those of one schedule
        self.keeps_others = False  # the file takes no name that this run has written
        self.for_rank = False  # nobody named the file here: it is written if this process is a rank
        self.unless_empty = False  # nobody asked this very process to record: it may have nothing to show
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
        self._lock = threading.RLock()  # of torch's profiler, which another thread may read
        self._open = False
        self.reading = False  # torch's records, in the middle of a window: not the moment to close it
        self._reset()

    def _reset(self) -> None:
        self.operators_given_up = False
        self._fault: Exception | None = None  # what was recorded is lost; `write` says so
        self.gathered = Gathered()
        self._extras.clear()
        seen_objects.clear()

    @contained
    @held()
    def open(self) -> None:
        """Open a window; nothing if it is open. What fails is left out of the recording, or is all of it."""
        if self._open:
            return
        try:
            self._begin()
        except Exception as error:
            self._lose(error)
            self._stop()

    def _begin(self) -> None:
        global _current
        if _current is not None and _current._open:  # an earlier window that could not be closed
            _current._stop()
        _current = self
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
            except Exception as error:
                self.operators_given_up = True
                print(
                    f"pyprof: torch's profiler does not start ({error}); call sites are recorded.",
                    file=sys.stderr,
                )
        self._device.begin()
        guarded(self._extras.start)
        self.gathered.begin()
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
        """Keep a fault for `write`, which says that the recording is lost. Its frames would keep tensors."""
        self._fault = self._fault or error.with_traceback(None)

    @contained
    @held()
    def close(self) -> None:
        """Close the window and keep what it recorded. What goes wrong is raised by `write`, not into the program."""
        if not self._open:
            return
        try:
            self._stop()
            if self.output is None:
                nvtx_ranges.say_lost()
                seen_objects.clear()
            else:
                with uncollected():
                    self._keep()
        except Exception as error:
            self._lose(error)
        finally:
            recorder.clear()
            self._kineto.clear()
            torch_internals.say()

    def _keep(self) -> None:
        self._device.keep()
        if self.gathered.pauses:
            trim()
        # Torch's own record of a record_function range is complete only if torch's profiler was ours to the end.
        scopes = [] if self.operators_given_up else self._kineto.ranges
        self.gathered.end(self._kineto.operators(), scopes)
        self._extras.take(recorder)
        if not (kineto.ALL_THREADS or self.operators_given_up):
            calls = sum(len(state.calls) // 6 for state in recorder.threads if state.tid != self._kineto.tid)
            if calls:
                recorder.drop(
                    "operators of calls on other threads, which torch before 2.7 does not record", calls
                )
        if recorder.excess:
            recorder.drop(f"calls after the first {self.max_events} events", recorder.excess)
        self.gathered.drop(recorder.lost)

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
        """After the file is written: keep nothing of the program."""
        if self._open:  # what should have closed it did not
            self._stop()
        if recorder.forget() and nvtx_ranges.plan.writer is not None:
            nvtx_ranges.plan.writer.forget()
        compiled.forget()
        modules.forget()
        parameters.forget()
        seen_objects.clear()

    def abandon(self) -> None:
        """In a forked child: be quiet. The profiler belongs to the parent and is not touched."""
        recorder.active = recorder.keeping = False
        recorder.ranges = None
        guarded(self._extras.stop)
        self._unpatch()
        recorder.clear()

    def _stop(self) -> None:
        """Take everything back, whatever fails on the way."""
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
        except Exception as error:  # whose operators are those of the whole recording
            self._lose(error)
        guarded(self._device.stop)

    def _unpatch(self) -> None:
        for undo in (self._registry.undo, self._patches.remove, parameters.remove, compilation.remove):
            guarded(undo)

    @contained
    def step(self) -> None:
        """The program marks the end of a step."""
        self.mark()
        if self.on_step is not None:
            self.on_step(self)
        self.between_steps()

    def between_steps(self) -> None:
        """A step has ended: read torch's records now if they would be read in the next one."""
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
            self.gathered.mark(self.next_step)
            guarded(self._device.step)
        self.next_step += 1

    def forget_steps(self) -> None:
        """What was marked before the last mark was no step: that one began with the window."""
        self.gathered.forget_steps()

    @contained
    @held()
    def give_way(self) -> None:
        """The user's own torch.profiler begins: its trace must be whole, so we keep to the sites."""
        if self._emit_nvtx is not None:
            self._emit_nvtx.stop()
        if self.output is not None and not self.operators_given_up:
            self._give_up_operators()
            self._kineto.stop()
        self._device.stop()

    def _give_up_operators(self) -> None:
        self.operators_given_up = True
        print(
            "pyprof: the program runs its own torch.profiler; operators are left to it, call sites are recorded.",
            file=sys.stderr,
        )

    def _count(self) -> None:
        """A thread has recorded `recorder.limit` calls: read torch's records, stop at the bound or go on."""
        # Inside a backward, whose events are still open, or on a thread that cannot end the recording.
        if graph_task() >= 0 or self._kineto.of_another_thread or self._later():
            recorder.limit += 6
        elif self._kineto.running or self.operators_given_up:
            self._pause()
        else:
            self._go_on()

    def _later(self) -> bool:
        """Whether a reading for the sake of memory waits for the end of compiled code: operators would not go on."""
        return self._pace.asked and self._calls < self.max_events and compilation.running()

    def _pause(self, between_steps: bool = False) -> None:
        with held():
            began = time_ns()
            self.reading = True
            try:
                self._read()
            except Exception as error:
                self._lose(error)
                recorder.active, recorder.keeping = recorder.ranges is not None, False
            finally:
                self.reading = False
                self.gathered.pause(began, between_steps)

    def _read(self) -> None:
        with self._lock:
            if not self._open:  # another thread closed the window meanwhile
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
                self.gathered.full = time_ns()
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
        """Set the number of calls, of each thread, after which `_count` is asked."""
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
        """Start torch's profiler. While a function of its last recording is open it waits: `unfinished.py`."""
        end_ranges(local.state)
        with suppress(Waiting):
            self._kineto.start()
        self.gathered.without_operators(not self._kineto.running)

    def _go_on(self) -> None:
        """Start torch's profiler again if it can be now."""
        end_ranges(local.state)
        if not unfinished.remain:
            with held(), self._lock:
                if self._open and not self._kineto.running:
                    self._start_operators()
                    self._watcher.restart(0)
                    self._allow()

    def _ask(self) -> None:
        """Much was allocated: read at the next call, module or step, or where the main thread is if none comes."""
        if not self.reading:
            if self._pace.asked:
                main_thread.soon(self._read_between)
            self._pace.asked = True
            recorder.limit = 0

    def _read_between(self) -> None:
        """Read between two bytecodes of the main thread, unless it is inside a call that is recorded."""
        if self._open and recorder.keeping and not (self.reading or local.state.busy) and self._pace.asked:
            self._count()

    @property
    def empty(self) -> bool:
        """Whether the windows so far recorded no event. False if something went wrong, which `write` says."""
        gathered = self.gathered
        found = gathered.calls or gathered.operators or gathered.ranges or self._device.records.count(KERNEL)
        return not (found or self._fault)

    @property
    def is_open(self) -> bool:
        """Whether a window is open."""
        return self._open

    @property
    def emits_operators(self) -> bool:
        """Whether torch's own NVTX ranges are written by us."""
        return self._emit_nvtx is not None and self._emit_nvtx.running

    @property
    def path(self) -> str:
        """The whole name of the file."""
        return os.path.join(self.folder, self.output or "")

    def write(self) -> None:
        """Write the file; one line on stderr says what is in it."""
        if self.output is None:
            return
        if self._fault is not None:
            raise self._fault
        gathered, device = self.gathered, self._device
        limit = gathered.bound(self.max_events)
        gathered.end_of_operators(limit)
        if limit is not None:
            device.cut(limit, f"device events after the first {self.max_events} events")
        gathered.drop(device.records.lost)
        gathered.drop(self._extras.lost())
        device.say_empty()
        if gathered.is_empty(device.records) and rotation.stays(self.path, self.output):
            self.output = None
            return
        recording = gathered.recording(device, self._extras, self.folder, self.operators_given_up)
        recording.meta.update(self.more_facts)
        try:
            process_name = " ".join(sys.argv[:1]) or "python"
            with uncollected():
                rotation.put(
                    self.path, self.output, lambda before: write(self.path, recording, process_name, before)
                )
        except CaptureError as error:
            raise CaptureError(f"{self.output}: {error}") from error
        counts = [
            _plural(len(gathered.operators), "operator"),
            _plural(len(gathered.calls), "call"),
            *([_plural(kernels, "kernel")] if (kernels := device.records.count(KERNEL)) else []),
            *([_plural(len(gathered.steps), "step")] if gathered.steps else []),
            *([f"{lost} not recorded"] if (lost := sum(gathered.lost.values())) else []),
        ]
        hint = f". {rotation.HINT}" if gathered.is_empty(device.records) else ""
        print(f"{self.output}: {', '.join(counts)}{hint}", file=sys.stderr)


def put_back() -> None:
    """Take away what the last window could not."""
    if _current is not None:
        _current._unpatch()


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

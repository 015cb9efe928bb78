# SPDX-License-Identifier: Apache-2.0
"""One recording, from its first window to its file: switches the layers on and off, and gathers what they hold.

Without a file it writes NVTX ranges alone: nothing is kept, torch's profiler is not started.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import time_ns

import torch

from pyprof.capture import (
    DEFAULT_MAX_EVENTS,
    annotate,
    clock,
    compiling,
    facts,
    hooks,
    modules,
    overhead,
    parameters,
    place,
    sources,
)
from pyprof.capture.collectors import nvtx
from pyprof.capture.collectors.device import KERNEL
from pyprof.capture.collectors.gpus import gpus
from pyprof.capture.collectors.kineto import Kineto, Operator, stranded
from pyprof.capture.collectors.layer import Layer
from pyprof.capture.options import NOTHING, Extras, Options
from pyprof.capture.patch import Patches, Registry
from pyprof.capture.recorder import recorder
from pyprof.capture.resolve import CallRow, RangeRow, resolve
from pyprof.capture.signals import held
from pyprof.capture.wrappers import emitting
from pyprof.capture.writer import Recording, StepRow, write
from pyprof.errors import CaptureError

# torch's records take 4 kB each until they are read: they are read whenever about this many have come together.
_READ_EVENTS = 50_000
_FIRST_CALLS = 4_000  # calls of a thread before their number is known
_patches = Patches()
_emitting_patches = Patches(emitting)


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
                place.check(output)
            except CaptureError as error:
                raise CaptureError(f"{output}: {error}") from error
            self.folder = os.getcwd()  # the program may leave it
        self.output, self.max_events = output, max_events
        self.number = 0  # of this window among those of one schedule
        self.keeps_others = False  # the file takes no name that this run has written
        self.for_rank = False  # nobody named the file here: it is written if this process is a rank
        self._emit_nvtx = nvtx.Operators() if output is None and operators else None
        self._patches = _patches
        self.on_step: Callable[[Session], None] | None = None
        self.next_step = 0
        self._registry = Registry()
        self._extras = Extras(options, max_events)
        self._kineto = Kineto(self._extras.memory)
        self._device = Layer(options.collector, self._kineto)
        self._open = False
        self.reading = False  # torch's records, in the middle of a window: not the moment to close it
        self._reset()

    def _reset(self) -> None:
        self.operators_given_up = False
        self._fault: Exception | None = None  # what was recorded is lost; `write` says so
        self._first = self._last = 0
        self._calls: list[CallRow] = []
        self._ranges: list[RangeRow] = []
        self._operators: list[Operator] = []
        self._steps: list[StepRow] = []
        self._lost: dict[str, int] = {}
        self._threads: dict[int, str] = {}
        self._pauses = self._paused_ns = 0
        self._facts: dict[str, str] = {}
        self._files: set[str] = set()  # that the stacks name
        self._extras.clear()
        # What the overhead is estimated from: recorded calls and module calls, those of them in steps, and the time.
        self._recorded = [0, 0]
        self._recorded_in_steps = [0, 0]
        self._windows = self._window_ns = 0
        self._moved_ns = 0  # by which the clock was set while a window was open
        self._first_step = 0  # of this window, in _steps
        facts.clear()

    @held()
    def open(self) -> None:
        """Open a window; nothing if it is open."""
        if self._open:
            return
        self._open = True
        recorder.clear()
        recorder.ranges = nvtx.plan.writer
        self._patches = _patches if recorder.ranges is None else _emitting_patches
        if self.output is not None or recorder.ranges is not None:
            self._patches.install()
            modules.install(self._registry)
            parameters.install()
        if self.output is None:
            if self._emit_nvtx is not None:
                self._emit_nvtx.start()
            self._step_start = time_ns()
            recorder.counting = recorder.keeping = False
            recorder.active = recorder.ranges is not None
            return
        stranded.end()
        if hooks.user_profiler_runs():
            self._give_up_operators()
        self._device.start(held=self.operators_given_up)
        if not self.operators_given_up:
            try:
                self._kineto.start()
            except RuntimeError as error:
                self.operators_given_up = True
                print(
                    f"pyprof: torch's profiler does not start ({error}); call sites are recorded.",
                    file=sys.stderr,
                )
        self._clock = clock.offset_ns()
        self._extras.start()
        now = time_ns()
        self._first = self._first or now
        self._step_start = self._opened = now
        self._first_step = len(self._steps)
        recorder.excess, recorder.limit = 0, 6 * min(_FIRST_CALLS, max(self.max_events // 8, 1))
        recorder.on_full = self._count
        recorder.active = recorder.keeping = True
        recorder.counting = False
        compiling.install()

    @held()
    def close(self) -> None:
        """Close the window and keep what it recorded. What goes wrong is raised by `write`, not into the program."""
        if not self._open:
            return
        try:
            self._stop()
            if self.output is None:
                nvtx.say_lost()
                facts.clear()
            else:
                self._keep()
        except Exception as error:
            self._fault = error.with_traceback(None)  # frames keep tensors
        recorder.clear()
        self._kineto.clear()

    def _keep(self) -> None:
        moved = clock.offset_ns() - self._clock
        if abs(moved) > clock.TOLERANCE_NS:
            self._moved_ns += moved
        self._last = max(time_ns(), self._opened)
        self._windows += 1
        self._window_ns += self._last - self._opened
        self._count_recorded()
        for state in recorder.threads:
            state.ranges.extend(annotate.open_ranges(state))
            if state.calls or state.ranges or state.modules:
                self._threads[state.tid] = state.name
        operators = self._kineto.operators()
        parameters.name(operators, recorder.threads)
        self._device.keep()
        # Torch's own record of a record_function range is complete only if torch's profiler was ours to the end.
        scopes = [] if self.operators_given_up else self._kineto.ranges
        calls, ranges = resolve(recorder, recorder.threads, operators, scopes)
        self._calls += calls
        self._ranges += ranges
        self._operators += operators
        self._files |= recorder.stacks.files()
        self._facts.update(facts.gather())
        self._extras.take(recorder)
        if recorder.excess:
            recorder.drop(f"calls after the first {self.max_events} events", recorder.excess)
        for reason, count in recorder.lost.items():
            self._lost[reason] = self._lost.get(reason, 0) + count

    @held()
    def discard(self) -> None:
        """Close the window and forget everything so far."""
        if self._open:
            with suppress(Exception):  # of reading what is not wanted
                self._stop()
        recorder.clear()
        self._device.forget()
        self._kineto.clear()
        self._reset()

    def forget(self) -> None:
        """After the file is written: keep nothing of the program."""
        if recorder.forget() and nvtx.plan.writer is not None:
            nvtx.plan.writer.forget()
        modules.forget()
        parameters.forget()
        facts.clear()

    def abandon(self) -> None:
        """In a forked child: be quiet. The profiler belongs to the parent and is not touched."""
        recorder.active = recorder.keeping = False
        recorder.ranges = None
        self._extras.stop()
        self._patches.remove()
        self._registry.undo()
        recorder.clear()

    def _stop(self) -> None:
        self._open = False
        recorder.active = recorder.keeping = recorder.counting = False
        recorder.ranges = None
        self._extras.stop()
        if self._emit_nvtx is not None:
            self._emit_nvtx.stop()
        self._registry.undo()
        self._patches.remove()
        parameters.remove()
        compiling.remove()
        self._kineto.stop()
        self._device.stop()

    def step(self) -> None:
        """The program marks the end of a step."""
        self.mark()
        if self.on_step is not None:
            self.on_step(self)

    def mark(self) -> None:
        """Note the end of a step."""
        if self._open and self.output is not None:
            now = max(time_ns(), self._step_start)  # unless the clock was set back
            self._steps.append(StepRow(self.next_step, self._step_start, now, threading.get_native_id()))
            self._step_start = now
        self.next_step += 1

    def forget_steps(self) -> None:
        """What was marked before the last mark was no step: that one began with the window."""
        self._steps = [step._replace(number=0, start=self._first) for step in self._steps[-1:]]

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
        if torch._C._current_graph_task_id() >= 0 or self._kineto.of_another_thread:
            recorder.limit += 6
            return
        with held():
            began = time_ns()
            self.reading = True
            try:
                self._read()
            except Exception as error:
                self._fault = error.with_traceback(None)  # frames keep tensors
                recorder.active, recorder.keeping = recorder.ranges is not None, False
            finally:
                self.reading = False
                self._pauses += 1
                self._paused_ns += time_ns() - began

    def _read(self) -> None:
        if self._kineto.running:
            self._kineto.stop()
            if not self._open:  # another thread closed the window meanwhile
                return
            self._kineto.start()
        calls = sum(len(state.calls) // 6 for state in recorder.threads)
        events = calls + len(self._kineto)
        if events >= self.max_events:
            self._kineto.stop()
            self._extras.full()
            recorder.active, recorder.keeping, recorder.counting = recorder.ranges is not None, False, True
            return
        per_call = events / max(calls, 1)
        more = int(min(self.max_events - events + 1, _READ_EVENTS) / per_call)
        recorder.limit += 6 * max(more, 1)

    @property
    def emits_operators(self) -> bool:
        """Whether torch's own NVTX ranges are written by us."""
        return self._emit_nvtx is not None and self._emit_nvtx.running

    def _count_recorded(self) -> None:
        """Calls and module calls of this window, and those that began in its steps."""
        steps = self._steps[self._first_step :]
        for state in recorder.threads:
            for which, starts in enumerate((state.calls[4::6], state.modules[1::3])):
                self._recorded[which] += len(starts)
                if steps:
                    within = sum(steps[0].start <= start < steps[-1].end for start in starts)
                    self._recorded_in_steps[which] += within

    def _overhead(self) -> dict[str, str]:
        """What recording cost, estimated; without the part of torch's own profiler."""
        costs = overhead.calibrate()
        (calls, modules_), (step_calls, step_modules) = self._recorded, self._recorded_in_steps
        out = {"calls": calls, "modules": modules_, "window_ns": self._window_ns, "windows": self._windows}
        if costs is not None:
            out["per_call_ns"], out["per_module_ns"] = costs
            out["sites_ns"] = calls * costs.call + modules_ * costs.module
            if self._steps:
                in_steps = step_calls * costs.call + step_modules * costs.module
                out["sites_per_step_ns"] = in_steps // len(self._steps)
        return {f"overhead.{name}": str(value) for name, value in out.items()}

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
        self._bound()
        self._lost.update(self._extras.lost())
        self._device.say_empty()
        try:
            write(self.path, self._recording(), " ".join(sys.argv[:1]) or "python")
        except CaptureError as error:
            raise CaptureError(f"{self.output}: {error}") from error
        steps = f", {_plural(len(self._steps), 'step')}" if self._steps else ""
        lost = sum(self._lost.values())
        kernels = self._device.records.count(KERNEL)
        steps = (f", {_plural(kernels, 'kernel')}" if kernels else "") + steps
        print(
            f"{self.output}: {_plural(len(self._operators), 'operator')}, {_plural(len(self._calls), 'call')}{steps}"
            + (f", {lost} not recorded" if lost else ""),
            file=sys.stderr,
        )

    def _bound(self) -> None:
        """Keep the first `max_events` events, by the time they began."""
        starts = [row.start for row in self._calls]
        starts += [row.start for row in self._ranges]
        starts += [row.start for row in self._operators]
        if len(starts) <= self.max_events:
            return
        limit = sorted(starts)[self.max_events]
        reason = f"operators, calls and ranges after the first {self.max_events} events"
        self._calls = [row for row in self._calls if row.start < limit]
        self._ranges = [row for row in self._ranges if row.start < limit]
        self._operators = [row for row in self._operators if row.start < limit]
        kept = len(self._calls) + len(self._ranges) + len(self._operators)
        self._lost[reason] = self._lost.get(reason, 0) + len(starts) - kept
        self._device.cut(limit, f"device events after the first {self.max_events} events")

    def _recording(self) -> Recording:
        recorded_operators = bool(self._operators) or not self.operators_given_up
        meta = {
            **self._facts,
            **facts.gather_seen(self._operators),
            **self._overhead(),
            **self._device.facts(),
            **self._extras.facts(),
            "folder": self.folder,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "layers": "sites+operators" if recorded_operators else "sites",
        }
        if self._moved_ns:
            meta["clock.set_ns"] = str(self._moved_ns)
        if self._pauses:
            meta["pauses"], meta["pauses_ns"] = str(self._pauses), str(self._paused_ns)
        if self.operators_given_up:
            meta["operators"] = "none since the program's own torch.profiler began, or torch's did not start"
        texts, left_out = sources.read(self._files)
        meta["sources"] = str(len(texts))
        if left_out:
            meta["sources.left_out"] = str(left_out)
        operators = sorted(self._operators, key=lambda operator: (operator.start, -operator.end))
        for operator in operators:
            self._threads.setdefault(operator.tid, "")
        for reason, count in self._device.records.lost.items():
            self._lost[reason] = self._lost.get(reason, 0) + count
        first = min([self._first, *(row.start for row in operators[:1])])
        return Recording(
            first,
            self._last,
            self._calls,
            self._ranges,
            operators,
            self._steps,
            self._threads,
            meta,
            self._lost,
            texts,
            self._device.records,
            tuple(gpus()),
            self._extras.tables(),
        )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

# SPDX-License-Identifier: Apache-2.0
"""One recording, from its first window to its file: switches the layers on and off, and gathers what they hold.

Without a file it writes NVTX ranges alone: nothing is kept, torch's profiler is not started.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from time import time_ns

import torch

from pyprof.capture import DEFAULT_MAX_EVENTS, annotate, facts, hooks, modules, overhead
from pyprof.capture.collectors import nvtx
from pyprof.capture.collectors.kineto import Kineto, Operator, stranded
from pyprof.capture.options import NOTHING, Extras, Options
from pyprof.capture.patch import Patches, Registry, emitting
from pyprof.capture.recorder import recorder
from pyprof.capture.resolve import CallRow, RangeRow, resolve
from pyprof.capture.signals import held
from pyprof.capture.writer import Recording, StepRow, check_folder, write

# torch's records take 4 kB each until they are read: they are read whenever about this many have come together.
_READ_EVENTS = 50_000
_FIRST_CALLS = 4_000  # calls of a thread before their number is known
_patches = Patches()
_emitting_patches = Patches(emitting)


class Session:
    """A recording into one file. Windows of one session follow each other; only one session exists at a time.

    `output` None: only NVTX ranges; then `operators` says whether torch's own are wanted as well.
    """

    def __init__(self, output: str | None, max_events: int = DEFAULT_MAX_EVENTS, operators: bool = False,
                 options: Options = NOTHING):  # fmt: skip
        if output is not None:
            check_folder(output)
        self.output, self.max_events = output, max_events
        self._emit_nvtx = nvtx.Operators() if output is None and operators else None
        self._patches = _patches
        self.on_step: Callable[[Session], None] | None = None
        self.next_step = 0
        self._registry = Registry()
        self._extras = Extras(options, max_events)
        self._kineto = Kineto(self._extras.memory)
        self._open = False
        self.reading = False  # torch's records, in the middle of a window: not the moment to close it
        self._reset()

    def _reset(self) -> None:
        self.operators_given_up = False
        self._first = self._last = 0
        self._calls: list[CallRow] = []
        self._ranges: list[RangeRow] = []
        self._operators: list[Operator] = []
        self._steps: list[StepRow] = []
        self._lost: dict[str, int] = {}
        self._threads: dict[int, str] = {}
        self._pauses = self._paused_ns = 0
        self._facts: dict[str, str] = {}
        self._extras.clear()
        # What the overhead is estimated from: recorded calls and module calls, those of them in steps, and the time.
        self._recorded = [0, 0]
        self._recorded_in_steps = [0, 0]
        self._windows = self._window_ns = 0
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
        if not self.operators_given_up:
            try:
                self._kineto.start()
            except RuntimeError as error:
                self.operators_given_up = True
                print(
                    f"pyprof: torch's profiler does not start ({error}); call sites are recorded.",
                    file=sys.stderr,
                )
        self._extras.start()
        now = time_ns()
        self._first = self._first or now
        self._step_start = self._opened = now
        self._first_step = len(self._steps)
        recorder.excess, recorder.limit = 0, 6 * min(_FIRST_CALLS, max(self.max_events // 8, 1))
        recorder.on_full = self._count
        recorder.active = recorder.keeping = True
        recorder.counting = False

    @held()
    def close(self) -> None:
        """Close the window and keep what it recorded."""
        if not self._open:
            return
        self._stop()
        if self.output is None:
            nvtx.say_lost()
            recorder.clear()
            facts.clear()
            return
        self._last = time_ns()
        self._windows += 1
        self._window_ns += self._last - self._opened
        self._count_recorded()
        for state in recorder.threads:
            state.ranges.extend(annotate.open_ranges(state))
            if state.calls or state.ranges or state.modules:
                self._threads[state.tid] = state.name
        operators = self._kineto.operators()
        # Torch's own record of a record_function range is complete only if torch's profiler was ours to the end.
        scopes = [] if self.operators_given_up else self._kineto.ranges
        calls, ranges = resolve(recorder, recorder.threads, operators, scopes)
        self._calls += calls
        self._ranges += ranges
        self._operators += operators
        self._facts.update(facts.gather())
        self._extras.take(recorder)
        if recorder.excess:
            recorder.drop(f"calls after the first {self.max_events} events", recorder.excess)
        for reason, count in recorder.lost.items():
            self._lost[reason] = self._lost.get(reason, 0) + count
        recorder.clear()
        self._kineto.clear()

    @held()
    def discard(self) -> None:
        """Close the window and forget everything so far."""
        if self._open:
            self._stop()
        recorder.clear()
        self._kineto.clear()
        self._reset()

    def forget(self) -> None:
        """After the file is written: keep nothing of the program."""
        if recorder.forget() and nvtx.plan.writer is not None:
            nvtx.plan.writer.forget()
        modules.forget()
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
        self._kineto.stop()
        self._registry.undo()
        self._patches.remove()

    def step(self) -> None:
        """The program marks the end of a step."""
        self.mark()
        if self.on_step is not None:
            self.on_step(self)

    def mark(self) -> None:
        """Note the end of a step."""
        if self._open and self.output is not None:
            now = time_ns()
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

    def write(self) -> None:
        """Write the file; one line on stderr says what is in it."""
        if self.output is None:
            return
        self._bound()
        self._lost.update(self._extras.lost())
        write(self.output, self._recording(), " ".join(sys.argv[:1]) or "python")
        steps = f", {_plural(len(self._steps), 'step')}" if self._steps else ""
        lost = sum(self._lost.values())
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

    def _recording(self) -> Recording:
        recorded_operators = bool(self._operators) or not self.operators_given_up
        meta = {
            **self._facts,
            **facts.gather_seen(self._operators),
            **self._overhead(),
            **self._extras.facts(),
            "folder": os.getcwd(),
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "layers": "sites+operators" if recorded_operators else "sites",
        }
        if self._pauses:
            meta["pauses"], meta["pauses_ns"] = str(self._pauses), str(self._paused_ns)
        if self.operators_given_up:
            meta["operators"] = "none since the program's own torch.profiler began, or torch's did not start"
        operators = sorted(self._operators, key=lambda operator: (operator.start, -operator.end))
        for operator in operators:
            self._threads.setdefault(operator.tid, "")
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
            self._extras.tables(),
        )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

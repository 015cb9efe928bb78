# SPDX-License-Identifier: Apache-2.0
"""Data of the windows of one session so far, and its conversion to the contents of a file."""

from __future__ import annotations

import threading
from time import time_ns

import numpy as np
import torch

from pyprof.capture.collectors.device import KERNEL, Records
from pyprof.capture.collectors.gpus import gpus
from pyprof.capture.collectors.kineto import UserRange
from pyprof.capture.collectors.layer import Layer
from pyprof.capture.core import torch_internals
from pyprof.capture.core.operators import Operators
from pyprof.capture.environment import clock, facts, overhead
from pyprof.capture.extras import Extras
from pyprof.capture.instrument import parameters, triton, user_ranges
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.output import sources
from pyprof.capture.output.capture_file import PauseRow, Recording, StepRow
from pyprof.capture.output.merge_calls import CallRow, RangeRow, resolve
from pyprof.core.model import NO_OPERATORS, READING


class SessionData:
    """Rows, facts and counts of closed windows, and the steps of the open one."""

    def __init__(self) -> None:
        self.first = self.last = 0
        self.calls: list[CallRow] = []
        self.ranges: list[RangeRow] = []
        self.operators = Operators()
        self.steps: list[StepRow] = []
        self.lost: dict[str, int] = {}
        self.pauses: list[PauseRow] = []
        self._threads: dict[int, str] = {}
        self._facts: dict[str, str] = {}
        self._files: set[str] = set()  # that the stacks name
        # Input of the overhead estimate: recorded calls and module calls, those of them in steps, and the time.
        self._recorded = [0, 0]
        self._recorded_in_steps = [0, 0]
        self._windows = self._window_ns = 0
        self._moved_ns = 0  # change of the system clock while a window was open
        self.step_start = 0  # of the running step
        self.reading_cpu_ns = 0  # of the process while records were read: in pauses, and when a window closed
        self._opened = self._clock = 0
        self.full = 0  # time at which the limit was reached
        self._waiting = 0  # time since when no operators are recorded; 0: they are
        self._first_step = 0  # of the open window, as an index of steps

    def begin(self) -> None:
        """Begin a window."""
        self._clock = clock.offset_ns()
        now = time_ns()
        self.first = self.first or now
        self.step_start = self._opened = now
        self._first_step = len(self.steps)

    def mark(self, number: int) -> None:
        """End a step of the open window."""
        now = max(time_ns(), self.step_start)  # unless the clock was set back
        self.steps.append(StepRow(number, self.step_start, now, threading.get_native_id()))
        self.step_start = now

    def pause(self, start: int, between_steps: bool) -> None:
        """Add a pause until now, in which torch's records were read. Between steps the pause lasts from the end of one
        to the start of the next."""
        start = self.step_start if between_steps else start
        now = max(time_ns(), start)
        self.pauses.append(PauseRow(start, now, threading.get_native_id(), READING))
        if between_steps:
            self.step_start = now

    def without_operators(self, waiting: bool) -> None:
        """Begin or end a stretch in which no operators are recorded."""
        now = time_ns()
        if waiting:
            if not self._waiting:
                self.drop({"stretches without operators: torch's profiler could not go on in the middle of a call": 1})
            self._waiting = self._waiting or now
        elif self._waiting:
            self.pauses.append(PauseRow(self._waiting, max(now, self._waiting), 0, NO_OPERATORS))
            self._waiting = 0

    def end_of_operators(self, limit: int | None) -> None:
        """End the recording at a time, that of the limit or when it was noticed."""
        ends = [time for time in (limit, self.full) if time]
        if ends and min(ends) < self.last:
            self.pauses.append(PauseRow(min(ends), self.last, 0, NO_OPERATORS))

    def forget_steps(self) -> None:
        """Discard all steps but the last, which now begins with the window."""
        self.steps = [step._replace(number=0, start=self.first) for step in self.steps[-1:]]

    def end(self, operators: Operators, scopes: list[UserRange]) -> None:
        """Add the data of the recorder and torch's profiler when the window is closed."""
        shift = clock.offset_ns() - self._clock
        if abs(shift) > clock.TOLERANCE_NS:
            self._moved_ns += shift
        self.last = max(time_ns(), self._opened)
        self.without_operators(False)
        self._windows += 1
        self._window_ns += self.last - self._opened
        self._count_recorded()
        for state in recorder.threads:
            state.ranges.extend(user_ranges.open_ranges(state))
            if state.calls or state.ranges or state.modules:
                self._threads[state.tid] = state.name
        parameters.name(operators, recorder.threads)
        triton.describe(operators, recorder)
        calls, ranges = resolve(recorder, recorder.threads, operators, scopes)
        self.calls += calls
        self.ranges += ranges
        self.operators.extend(operators)
        self._files |= recorder.stacks.files()
        self._facts.update(facts.gather())

    def _count_recorded(self) -> None:
        """Count calls and module calls of this window, and those that began in its steps."""
        steps = self.steps[self._first_step :]
        for state in recorder.threads:
            for index, starts in enumerate((state.calls[4::6], state.modules[1::3])):
                self._recorded[index] += len(starts)
                if steps:
                    within = sum(steps[0].start <= start < steps[-1].end for start in starts)
                    self._recorded_in_steps[index] += within

    def drop(self, counts: dict[str, int]) -> None:
        """Count losses, by reason."""
        for reason, count in counts.items():
            self.lost[reason] = self.lost.get(reason, 0) + count

    def bound(self, max_events: int) -> int | None:
        """Keep the first `max_events` events, by start. Returns the time up to which all are kept."""
        starts = np.array([row.start for table in (self.calls, self.ranges) for row in table], np.int64)
        starts = np.concatenate([starts, self.operators.start])
        if len(starts) <= max_events:
            return None
        limit = int(np.partition(starts, max_events)[max_events])
        self.calls = [row for row in self.calls if row.start < limit]
        self.ranges = [row for row in self.ranges if row.start < limit]
        self.operators = self.operators.take(np.flatnonzero(self.operators.start < limit))
        remaining = len(self.calls) + len(self.ranges) + len(self.operators)
        self.drop({f"operators, calls and ranges after the first {max_events} events": len(starts) - remaining})
        return limit

    def is_empty(self, records: Records) -> bool:
        """Return whether there are no operators, calls and kernels."""
        return not self.operators and not self.calls and not records.count(KERNEL)

    def recording(self, device: Layer, extras: Extras, folder: str, operators_given_up: bool) -> Recording:
        """Return the contents of the file."""
        operators = self.operators.in_order()
        for tid in operators.by_thread():
            self._threads.setdefault(tid, "")
        texts, left_out = sources.read(self._files)
        layers = "sites" if operators_given_up and not len(operators) else "sites+operators"
        meta = {
            **self._facts,
            **facts.gather_seen(self.operators),
            **self._overhead(),
            **torch_internals.facts(),
            **device.facts(),
            **extras.facts(),
            "folder": folder,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "layers": layers,
            "sources": str(len(texts)),
        }
        if left_out:
            meta["sources.left_out"] = str(left_out)
        if self._moved_ns:
            meta["clock.set_ns"] = str(self._moved_ns)
        if self.pauses:
            paused = [pause for pause in self.pauses if pause.what == READING]
            meta["pauses"] = str(len(paused))
            meta["pauses_ns"] = str(sum(pause.end - pause.start for pause in paused))
        if operators_given_up:
            meta["operators"] = "none since the program's own torch.profiler began, or torch's did not start"
        return Recording(
            start=min([self.first, *operators.start[:1].tolist()]),
            end=self.last,
            calls=self.calls,
            ranges=self.ranges,
            operators=operators,
            steps=self.steps,
            pauses=self.pauses,
            threads=self._threads,
            meta=meta,
            lost=self.lost,
            sources=texts,
            device=device.records,
            gpus=tuple(gpus()),
            tables=extras.tables(),
        )

    def _overhead(self) -> dict[str, str]:
        """Return the estimated cost of recording, without that of torch's own profiler."""
        costs = overhead.calibrate()
        (calls, modules), (step_calls, step_modules) = self._recorded, self._recorded_in_steps
        out = {"calls": calls, "modules": modules, "window_ns": self._window_ns, "windows": self._windows}
        paused = [pause for pause in self.pauses if pause.what == READING]
        out |= {"pauses": len(paused), "paused_ns": sum(pause.end - pause.start for pause in paused)}
        out["reading_cpu_ns"] = self.reading_cpu_ns
        if costs is not None:
            out["per_call_ns"], out["per_module_ns"] = costs
            out["sites_ns"] = calls * costs.call + modules * costs.module
            if self.steps:
                in_steps = step_calls * costs.call + step_modules * costs.module
                out["sites_per_step_ns"] = in_steps // len(self.steps)
        return {f"overhead.{name}": str(value) for name, value in out.items()}

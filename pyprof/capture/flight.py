# SPDX-License-Identifier: Apache-2.0
"""`pyprof.flight`: the last steps in memory, written when something goes wrong.

Calls, module calls and ranges are recorded as in a window; operators are not, since reading them costs ten times as
much as running them (docs/measurements.md). Records older than the last steps are dropped at the end of each step. A
record is a recording whose operators are the calls, and whose facts begin with a verdict (`flight_verdict.py`).

A thread inspects the running step at intervals. It samples where a slow one is, and writes the record of one that
does not end: a rank that waits for others never reaches its next line.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import Counter, deque
from statistics import median
from time import thread_time_ns, time_ns
from types import FrameType, TracebackType
from typing import Any

import torch

from pyprof.capture import THREAD, controller
from pyprof.capture.controller import control
from pyprof.capture.core.options import Options
from pyprof.capture.environment import ranks
from pyprof.capture.flight_verdict import FEWEST, Evidence, Extra, failure, place_of, verdict
from pyprof.capture.instrument import compiled
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from pyprof.capture.instrument.wrappers import recording
from pyprof.capture.output.merge_calls import BACKWARD, calls_as_operators
from pyprof.capture.process.faults import contained, guarded
from pyprof.capture.recording import SessionData
from pyprof.capture.session import Session
from pyprof.capture.steps import Marks
from pyprof.core.errors import CaptureError, UsageError
from pyprof.core.units import duration

_CALLS = 50_000  # kept per thread, however few steps there are
_DESCRIPTIONS = 50_000  # distinct arguments, after which the tables start over
_LEAST_NS = 50_000_000  # above the median, below which no step counts as slow: a busy machine varies as much
_LOOK, _RARE = (0.02, 0.5), 0.01  # seconds between two samples: limits; while a step is slow
_PATIENCE_NS = 1_000_000_000  # for the running step to end after a request for a record
_LISTS = ("calls", "modules", "ranges")
_NONE = [0] * len(_LISTS)


class flight:
    """Keep the last `steps` steps, and write them to `output` when something goes wrong: an exception that nobody
    catches, a step that takes `slow` times the median of those before, one that has not ended after `stall` seconds,
    or the signal named `on_signal`. The file's first lines say what that step did that the others did not.

    It begins at once and ends with `stop`, at the end of a `with`, or with the program. Steps are those of
    `pyprof.step()`, else of the optimizer or the data loader. After `most` slow steps one is written only if it is
    twice as slow as they were; one that takes less than 50 ms more than the median never is. Where a window is opened,
    the flight record gives way and begins anew after it.
    """

    def __init__(
        self,
        steps: int = 20,
        output: str = "flight.sqlite",
        slow: float = 3.0,
        stall: float = 60.0,
        most: int = 3,
        on_signal: str | None = "SIGUSR1",
    ):
        if not isinstance(steps, int) or steps <= FEWEST:
            raise UsageError(
                f"flight(): steps={steps!r}: expected more than {FEWEST}, the number of steps for a median."
            )
        if not slow > 1 or not stall > 0:
            raise UsageError("flight(): slow is a factor above 1, stall a number of seconds above 0.")
        if on_signal is not None and not (on_signal.startswith("SIG") and hasattr(signal, on_signal)):
            raise UsageError(
                f"flight(): on_signal={on_signal!r} is not a signal of this system; expected a name such as 'SIGUSR1'."
            )
        if control.flight is not None:
            raise CaptureError("a flight record is already active: end it with its stop() first.")
        self.steps, self.output, self.slow, self.stall, self.most = steps, output, slow, stall, most
        self._signal: Any = getattr(signal, on_signal) if on_signal else None
        self._session: Session | None = None
        # At the end of each step the number of records of each thread, and the number of them that were dropped.
        self._counts: deque[dict[ThreadState, list[int]]] = deque()
        self._dropped: dict[ThreadState, list[int]] = {}
        self._extras: list[Extra] = []
        self._written = self._window = self._number = 0
        self._longest = 0.0  # excess over the median, of the slow steps that were written
        self._median = 0.0
        self._garbage = self._garbage_since = self._computed = 0
        self._samples: Counter[tuple[str, str]] = Counter()
        self._request: tuple[int, str] | None = None  # time of the request, and reason
        self._stalled = -1  # the last step written because it did not end
        self._thread = threading.get_ident()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._marks = Marks(self._on_step)
        self._backwards = Registry()  # a backward is a call, since its operators are not recorded
        self._before: dict[str, Any] = {}  # handlers of the program
        self._collector = compiled.collector_callback(self._collected)
        self._pid = os.getpid()
        self._begin()

    @contained
    def _begin(self) -> None:
        if controller.ignores_script_windows() or ranks.is_helper():
            return
        controller.init_only()
        control.interrupt()
        control.flight, control.recorded = self, True
        self.open()
        if control.flight is not self:
            return
        self._marks.follow()
        control.on_script_step.append(self._script)
        self._before = {"sys": sys.excepthook, "threading": threading.excepthook}
        sys.excepthook, threading.excepthook = self._raised, self._raised_in_thread
        gc.callbacks.append(self._collector)
        if self._signal is not None and threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(self._signal)
            if handler in (signal.SIG_DFL, signal.SIG_IGN):
                self._before["signal"] = handler
                signal.signal(self._signal, self._signalled)
            else:
                print(
                    f"pyprof: {signal.Signals(self._signal).name} has a handler of the program's own, "
                    "which is kept: the signal writes no flight record.",
                    file=sys.stderr,
                )
        threading.Thread(target=self._watch, name=THREAD, daemon=True).start()

    def open(self) -> None:
        """Start keeping steps, unless a window is open."""
        with self._lock:  # or the watching thread would see a session without a first step
            self._open()

    def _open(self) -> None:
        if control.session is not None or self._ended.is_set():
            return
        options = Options(collector="none")
        session = controller.new_session(self.output, sys.maxsize, self._window, options)
        if session.output is None:  # a tool records, or no file can be written: both were reported
            self._leave()
            return
        session.keeps_others, session.only_calls = True, True
        control.session = self._session = session
        session.next_step = self._number
        session.open()
        self._backwards.undo()
        number = recorder.function(*BACKWARD)
        self._backwards.replace(torch.autograd, "backward", recording(torch.autograd.backward, number))
        recorder.on_full, recorder.limit = self._full, 6 * _CALLS
        self._forget_steps()

    def suspend(self) -> None:
        """Make room for a window. The kept steps are dropped."""
        with self._lock:  # another thread may be writing one
            session, self._session = self._session, None
            self._backwards.undo()
            if session is not None:
                session.discard()
                session.forget()
                if control.session is session:
                    control.session = None

    def owns(self, session: Session) -> bool:
        """Return whether a recording is this one."""
        return session is self._session

    def __enter__(self) -> flight:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._failed(error)
        self.stop()

    @contained
    def dump(self, reason: str = "The program asked for it.") -> str | None:
        """Write a record now. Returns the file's name, None if none could be written."""
        return self._write(reason)

    @contained
    def stop(self) -> None:
        """Stop keeping steps."""
        if control.flight is not self:
            return
        self.suspend()
        self._leave()
        control.resume()

    def _leave(self) -> None:
        control.flight = None
        self._ended.set()
        self._marks.leave()
        if self._script in control.on_script_step:
            control.on_script_step.remove(self._script)
        if self._collector in gc.callbacks:
            gc.callbacks.remove(self._collector)
        for module, hook in ((sys, self._raised), (threading, self._raised_in_thread)):
            if module.excepthook == hook:
                module.excepthook = self._before[module.__name__]  # type: ignore[attr-defined]
        ours = self._signal is not None and signal.getsignal(self._signal) == self._signalled
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(self._signal, self._before["signal"])

    def forked(self) -> None:
        """Reset the state in a forked child: the record is the parent's."""
        self._session = None
        self._backwards.undo()
        guarded(self._leave)

    @contained
    def _script(self) -> None:
        """Handle the end of a step marked by the script."""
        self._on_step(self._marks.script())

    def _on_step(self, restart: bool) -> None:
        session = self._session
        if session is None or control.session is not session or os.getpid() != self._pid:
            return
        with self._lock:
            self._thread = threading.get_ident()
            self._number += 1
            session.mark()
            if restart:
                self._forget_steps()
                self._number = session.next_step = 0
                session.data.steps.clear()
                return
            computed = thread_time_ns()
            self._extras.append(Extra(self._garbage, computed - self._computed))
            self._counts.append({state: self._count(state) for state in recorder.threads})
            data = session.data
            if self._request is not None:
                self._write(self._request[1])
            elif self._is_slow(data):
                self._write("A step was slow.")
            else:
                self._drop_old(data)
                lengths = [step.end - step.start for step in data.steps]
                self._median = median(lengths) if len(lengths) >= FEWEST else 0.0
            self._garbage, self._computed = 0, computed
            self._samples.clear()

    def _is_slow(self, data: SessionData) -> bool:
        """Return whether the last step must be written because it was slow; count such steps."""
        last = data.steps[-1]
        length = last.end - last.start
        excess = length - self._median
        if not 0 < self._slow_ns < length or (self._written >= self.most and excess < 2 * self._longest):
            return False
        self._written, self._longest = self._written + 1, max(self._longest, excess)
        return True

    @property
    def _slow_ns(self) -> float:
        """Length above which a step is slow; 0 if unknown yet."""
        return max(self.slow * self._median, self._median + _LEAST_NS) if self._median else 0.0

    def _drop_old(self, data: SessionData) -> None:
        """Drop records older than the last steps."""
        while len(data.steps) > self.steps:
            del data.steps[0], self._extras[0]
            for state, counts in self._counts.popleft().items():
                dropped = self._dropped.get(state, _NONE)
                for name, new, old in zip(_LISTS, counts, dropped):
                    del getattr(state, name)[: new - old]
                self._dropped[state] = counts
            data.first = data.steps[0].start
        if len(recorder.keys) > _DESCRIPTIONS and not any(state.busy for state in recorder.threads):
            self.suspend()
            self.open()

    def _count(self, state: ThreadState) -> list[int]:
        dropped = self._dropped.get(state, _NONE)
        return [len(getattr(state, name)) + missing for name, missing in zip(_LISTS, dropped)]

    def _forget_steps(self) -> None:
        self._counts.clear()
        self._dropped.clear()
        self._extras.clear()
        self._samples.clear()
        self._median, self._garbage, self._computed = 0.0, 0, thread_time_ns()

    def _full(self) -> None:
        """Forget the older half of a thread's calls, and the steps: it has reached the limit."""
        calls = local.state.calls
        with self._lock:
            del calls[: len(calls) // 12 * 6]
            if self._session is not None:
                self._session.data.steps.clear()
            self._forget_steps()

    @contained
    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._garbage_since = time_ns()
        elif threading.get_ident() == self._thread:
            self._garbage += time_ns() - self._garbage_since

    @contained
    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            place = f" at {place_of(frame)[0]}" if frame is not None else ""
            self._request = time_ns(), f"{signal.Signals(number).name} came{place}."

    def _raised(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        self._failed(error)
        self._before["sys"](kind, error, traceback)

    def _raised_in_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            self._failed(args.exc_value)
        self._before["threading"](args)

    @contained
    def _failed(self, error: BaseException) -> None:
        if os.getpid() == self._pid:
            self._write(failure(error), running=True)

    def _watch(self) -> None:
        pause = _LOOK[1]
        while not self._ended.wait(pause):
            with self._lock:
                guarded(self._look)
            slow = self._slow_ns
            pause = _RARE if self._samples else min(max(slow / 4e9, _LOOK[0]), _LOOK[1]) if slow else _LOOK[1]

    def _look(self) -> None:
        session, now = self._session, time_ns()
        if session is None or control.session is not session:
            return
        ran = now - session.data.step_start
        slow = self._slow_ns
        if slow and ran > slow and self._samples.total() < 1000:
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._samples[place_of(frame)] += 1
        request = self._request
        if request is not None and now - request[0] > _PATIENCE_NS:
            self._write(request[1], running=True)
        elif ran > self.stall * 1e9 and self._stalled != self._number:
            self._stalled = self._number
            self._write(f"A step has not ended after {duration(ran)}.", running=True)

    def _write(self, reason: str, running: bool = False) -> str | None:
        """Write a record and start over; `running`: it is about a step that has not ended."""
        with self._lock:
            session = self._session
            if session is None or control.session is not session:
                return None
            self._request = None
            if running:
                self._add_running(session)
            session.close()
            self._backwards.undo()
            control.session = self._session = None
            try:
                return self._put(session, reason, running)
            finally:
                session.forget()
                self._window += 1
                self.open()

    def _put(self, session: Session, reason: str, running: bool) -> str | None:
        data = session.data
        data.operators = calls_as_operators(data.calls)
        sentences = verdict(reason, Evidence(data.steps, data.calls, self._extras, self._samples, running))
        session.more_facts = {
            "operators": "none but the calls: this is a flight record",
            "layers": "sites",
            "flight.steps": str(len(data.steps)),
            **{f"flight.verdict.{number}": text for number, text in enumerate(sentences)},
        }
        name = controller.write(session)
        if name is not None:
            print("\n".join(f"{name}: {sentence}" for sentence in sentences), file=sys.stderr)
        return name

    def _add_running(self, session: Session) -> None:
        session.data.mark(self._number)
        frame = sys._current_frames().get(self._thread)
        if frame is not None and threading.get_ident() != self._thread:
            self._samples[place_of(frame)] += 1
        own_thread = threading.get_ident() == self._thread
        self._extras.append(Extra(self._garbage, thread_time_ns() - self._computed if own_thread else None))

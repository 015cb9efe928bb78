# SPDX-License-Identifier: Apache-2.0
"""Part of a run selected on the command line: `--steps a:b`, or `--delay` and `--duration` in seconds.

Steps are counted by pyprof.step() or p.step(); if the script marks none, as `steps.py` detects them. Times count
from the start of the script. A plan opens and closes the window of a session; `done` writes the file.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pyprof.capture import THREAD
from pyprof.capture.core.torch_internals import graph_task
from pyprof.capture.instrument.recorder import local
from pyprof.capture.process import main_thread
from pyprof.capture.steps import Marks
from pyprof.core.errors import UsageError

if TYPE_CHECKING:
    from pyprof.capture.session import Session

# seconds, and attempts in them, to have the main thread open or close the window itself
_PATIENCE, _ATTEMPTS = 1.0, 200


class Plan(Protocol):
    """Selection of a part of a run."""

    reached: bool  # the window was opened

    def begin(self, session: Session, done: Callable[[], object]) -> None:
        """Begin, before the script starts."""

    def end(self) -> None:
        """End, when the script has ended or the file is written."""

    def missed(self) -> str:
        """Return why nothing was recorded."""


def plan(steps: str | None, delay: float | None, duration: float | None) -> Plan | None:
    """Return the plan of a command line; None without any of these options. Raises UsageError."""
    if steps is not None:
        if delay is not None or duration is not None:
            raise UsageError("--steps counts steps, --delay and --duration seconds: use one or the other.")
        return Steps(*_bounds(steps))
    if delay is None and duration is None:
        return None
    for name, value, expected in (("--delay", delay, "0 or more"), ("--duration", duration, "more than 0")):
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and delay is value))):
            raise UsageError(f"{name} {value:g}: expected seconds, {expected}.")
    return Times(delay or 0.0, duration)


def _bounds(text: str) -> tuple[int, int | None]:
    """Return first step and end of `a:b`, as in a slice of Python: b is not recorded, either may be omitted.

    >>> _bounds("2:4"), _bounds(":3"), _bounds("5:")
    ((2, 4), (0, 3), (5, None))
    """
    match = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", text)
    if match is None:
        raise UsageError(f"--steps {text}: expected FIRST:END, such as 10:15 for the steps 10 to 14.")
    first, end = int(match[1] or 0), int(match[2]) if match[2] else None
    if end is not None and end <= first:
        raise UsageError(f"--steps {text} is empty: the end is exclusive, so {first}:{first + 1} records step {first}.")
    return first, end


class Steps:
    """Steps `first` to `end` - 1."""

    def __init__(self, first: int, end: int | None):
        self.first, self.end_step = first, end
        self.reached = False
        self._number = 0
        self._marks = Marks(self._on_step)

    def begin(self, session: Session, done: Callable[[], object]) -> None:
        self._session, self._done = session, done
        session.on_step = lambda _: self._step(self._marks.script())
        self._marks.follow()
        if not self.first:
            self._open()

    def end(self) -> None:
        self._marks.leave()

    def missed(self) -> str:
        counted = "1 step was" if self._number == 1 else f"{self._number} steps were"
        return f"the script ended before step {self.first}: {counted} counted"

    def _open(self) -> None:
        self.reached = True
        self._session.open()

    def _start_again(self) -> None:
        self._number = 0
        if self.first:
            self._session.discard()
            self.reached = False
        else:
            self._session.forget_steps()

    def _on_step(self, restart: bool) -> None:
        self._session.mark()
        self._step(restart)

    def _step(self, restart: bool) -> None:
        if restart:
            self._start_again()
        self._number += 1
        self._session.next_step = self._number
        if self._number == self.first:
            self._open()
        if self._number == self.end_step:
            self.end()
            self._done()


class Times:
    """Window from `delay` seconds on, for `duration` seconds or to the end.

    A thread waits; the main thread opens and closes the window between two of its instructions, so that no operator
    is cut in two. If the main thread does not get there (it waits for others), the waiting thread does it.
    """

    def __init__(self, delay: float, duration: float | None):
        self.delay, self.duration = delay, duration
        self.reached = False
        self._ended = threading.Event()
        self._lock = threading.RLock()  # held while the window is opened or closed

    def begin(self, session: Session, done: Callable[[], object]) -> None:
        self._session, self._done, self._pid = session, done, os.getpid()
        if not self.delay:
            self._open()
        if self.delay or self.duration is not None:
            threading.Thread(target=self._wait, name=THREAD, daemon=True).start()

    def end(self) -> None:
        self._ended.set()
        with self._lock:
            pass

    def missed(self) -> str:
        return f"the script ended within the --delay of {self.delay:g} seconds"

    def _open(self) -> None:
        self.reached = True
        self._session.open()

    def _wait(self) -> None:
        if self.delay and (self._ended.wait(self.delay) or not self._do(self._open)):
            return
        if self.duration is not None and not self._ended.wait(self.duration):
            self._do(self._finish)

    def _finish(self) -> None:
        self._ended.set()
        self._done()

    def _do(self, action: Callable[[], object]) -> bool:
        """Run an action on the main thread; return False if the run has ended."""
        finished = threading.Event()
        started = False

        def act() -> None:
            nonlocal started
            with self._lock:
                if not started and not self._ended.is_set():
                    started = True
                    action()
                    finished.set()

        def try_act() -> None:
            if not (self._session.reading or _in_operator()) and os.getpid() == self._pid:
                act()

        for _ in range(_ATTEMPTS):
            main_thread.soon(try_act)
            if finished.wait(_PATIENCE / _ATTEMPTS) or self._ended.is_set():
                break
        while self._session.reading and not self._ended.is_set():
            time.sleep(_PATIENCE / _ATTEMPTS)
        act()
        return not self._ended.is_set()


def _in_operator() -> bool:
    """Return whether this thread is inside a recorded call or a backward, whose events are still open."""
    return local.state.busy or graph_task() >= 0

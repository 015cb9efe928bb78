# SPDX-License-Identifier: Apache-2.0
"""The part of a run that the command line chooses: `--steps a:b`, or `--delay` and `--duration` in seconds.

Steps are counted by pyprof.step() or p.step(); where the script marks none, as `steps.py` finds them. Times count from
the start of the script. A plan opens and closes the window of a session; `done` writes the file.
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
from pyprof.errors import UsageError

if TYPE_CHECKING:
    from pyprof.capture.session import Session

_PATIENCE, _ATTEMPTS = (
    1.0,
    200,
)  # seconds in which the main thread is asked to open or close the window itself


class Plan(Protocol):
    """What part of a run is recorded."""

    reached: bool  # the window was opened

    def begin(self, session: Session, done: Callable[[], object]) -> None:
        """The script is about to start."""

    def end(self) -> None:
        """The script has ended, or the file is written."""

    def missed(self) -> str:
        """Why nothing was recorded."""


def plan(steps: str | None, delay: float | None, duration: float | None) -> Plan | None:
    """The plan of a command line; None without any of these options. Raises UsageError."""
    if steps is not None:
        if delay is not None or duration is not None:
            raise UsageError("--steps counts steps, --delay and --duration seconds: use one or the other.")
        return Steps(*_bounds(steps))
    if delay is None and duration is None:
        return None
    for name, value, least in (("--delay", delay, "0 or more"), ("--duration", duration, "more than 0")):
        if value is not None and not (
            math.isfinite(value) and (value > 0 or (value == 0 and delay is value))
        ):
            raise UsageError(f"{name} {value:g}: expected seconds, {least}.")
    return Times(delay or 0.0, duration)


def _bounds(text: str) -> tuple[int, int | None]:
    """First step and end of `a:b`, as in a slice of Python: b is not recorded, either may be left out.

    >>> _bounds("2:4"), _bounds(":3"), _bounds("5:")
    ((2, 4), (0, 3), (5, None))
    """
    found = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", text)
    if found is None:
        raise UsageError(f"--steps {text}: expected FIRST:END, such as 10:15 for the steps 10 to 14.")
    first, end = int(found[1] or 0), int(found[2]) if found[2] else None
    if end is not None and end <= first:
        raise UsageError(
            f"--steps {text} is empty: the end is exclusive, so {first}:{first + 1} records step {first}."
        )
    return first, end


class Steps:
    """Steps `first` to `end` - 1."""

    def __init__(self, first: int, end: int | None):
        self.first, self.end_step = first, end
        self.reached = False
        self._number = 0
        self._marks = Marks(self._found)

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

    def _found(self, again: bool) -> None:
        self._session.mark()
        self._step(again)

    def _step(self, again: bool) -> None:
        if again:
            self._start_again()
        self._number += 1
        self._session.next_step = self._number
        if self._number == self.first:
            self._open()
        if self._number == self.end_step:
            self.end()
            self._done()


class Times:
    """From `delay` seconds on, for `duration` seconds or to the end.

    A thread waits; what it decides is done by the main thread between two of its instructions, so that no operator of
    it is cut in two. If the main thread does not come to that (it waits for others), the waiting thread does it.
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
        """Have the main thread do something; False if the run has ended."""
        finished = threading.Event()
        begun = False

        def act() -> None:
            nonlocal begun
            with self._lock:
                if not begun and not self._ended.is_set():
                    begun = True
                    action()
                    finished.set()

        def asked() -> None:
            if not (self._session.reading or _in_operator()) and os.getpid() == self._pid:
                act()

        for _ in range(_ATTEMPTS):
            main_thread.soon(asked)
            if finished.wait(_PATIENCE / _ATTEMPTS) or self._ended.is_set():
                break
        while self._session.reading and not self._ended.is_set():
            time.sleep(_PATIENCE / _ATTEMPTS)
        act()
        return not self._ended.is_set()


def _in_operator() -> bool:
    """Whether this thread is inside a recorded call or a backward, whose events are still open."""
    return local.state.busy or graph_task() >= 0

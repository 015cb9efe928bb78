# SPDX-License-Identifier: Apache-2.0
"""`pyprof.profile`: a window that opens and closes by the number of steps."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from pyprof.capture import DEFAULT_MAX_EVENTS, controller
from pyprof.capture.controller import control
from pyprof.capture.core.options import Given, bound, options
from pyprof.capture.process.faults import contained
from pyprof.capture.session import Session
from pyprof.capture.steps import Marks
from pyprof.core.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack


class profile:
    """Record a part of a program: `with pyprof.profile("net.sqlite") as p:`, the file is written at the end.

    With `active` the loop calls `p.step()` after each step: the first `wait` steps are left alone, the next `warmup`
    are recorded and thrown away, `active` are kept, and the file is written then. Where it never does, steps are those
    of the optimizer or the data loader, except for `active=1` alone. With `wait` and `warmup` alone
    everything after them is kept. With `repeat` all this happens so many times, one file each: net.sqlite,
    net.1.sqlite, net.2.sqlite. When the body raises, the file is written and the error goes on.

    More options: `collector`, who records the GPU: `auto`, `kineto`, `cupti` or `none`. And on request: `sync=True`
    synchronisations of the GPU, `memory=True` events of the allocators, `io=True` accesses to files, `api_backtrace=NS`
    stacks of waiting calls above so many ns, `sample="cpu"` stacks of running threads every 10 ms.
    """

    _marks_of_others = True  # steps are those of the optimizer or the loader until the script marks one

    def __init__(
        self,
        output: str | None = None,
        wait: int = 0,
        warmup: int = 0,
        active: int = 0,
        repeat: int = 1,
        max_events: int = DEFAULT_MAX_EVENTS,
        **more: Unpack[Given],
    ):
        if min(wait, warmup, active) < 0 or repeat < 1:
            raise UsageError("profile(): wait, warmup and active are numbers of steps, repeat is 1 or more.")
        if repeat > 1 and not active:
            raise UsageError("profile(): repeat needs active, the number of steps that each file holds.")
        self.output = output
        self.wait, self.warmup, self.active, self.repeat = wait, warmup, active, repeat
        self.max_events, self.options = bound(max_events), options(control.options, more)
        self.number = 0
        self._session: Session | None = None
        self._marks: Marks | None = None

    def __enter__(self) -> profile:
        self._enter()
        return self

    @contained
    def _enter(self) -> None:
        self.number = self._window = 0
        if not controller.ignores_script_windows():
            controller.choose_window()
            controller.init_only()
            self._begin()
            # A single step ends before the script can mark it.
            if self._marks_of_others and (self.wait or self.warmup or self.active > 1):
                self._marks = Marks(self._on_step)
                self._marks.follow()
                control.on_script_step.append(self._script)

    def _begin(self) -> Session:
        """Wait for the next window, or open it."""
        self._first = self.number
        background = control.until_exit
        session = controller.new_session(self.output, self.max_events, self._window, self.options)
        control.session = self._session = session
        session.on_step, session.next_step = self._marked, self.number
        if not self.wait or (background and session.output is None):
            session.open()
        return session

    @contained
    def step(self, number: int | None = None) -> None:
        """Mark the end of a step. `number`: its number in the file; by default steps are counted from 0."""
        if control.plan is not None:
            controller.step()
        elif self._session is not None and control.session is self._session:
            if number is not None:
                self._session.next_step = number
            self._session.step()
        if control.plan is None:
            controller.notify_script_step()

    def _marked(self, session: Session) -> None:
        """Handle a step of the session marked by the script."""
        if self._marks is not None and self._marks.script():
            session = self._start_again(session)
        self._stepped(session)

    def _script(self) -> None:
        """Handle a step marked by the script, perhaps after unmarked steps have ended the window."""
        session = self._session if control.session is None else None
        if session is not None and self._marks is not None and self._marks.script():
            self._stepped(self._start_again(session))

    def _on_step(self, restart: bool) -> None:
        """Handle the end of a step that the script did not mark."""
        session = self._session
        if session is not None and control.session is session:
            session.mark()
            self._stepped(self._start_again(session) if restart else session)

    def _start_again(self, session: Session) -> Session:
        """Start counting over: the steps before the last one do not count. Returns the session that goes on."""
        if self._window:  # the file of those steps is written
            if control.session is session:
                control.session = None
                session.discard()
                session.forget()
            self.number = self._window = 0
            session = self._begin()
            self._first = 0 if self.wait or self.warmup else 1
        elif self.wait or (self.warmup and self.number >= self.warmup):
            session.discard()
            if not self.wait:
                session.open()
        else:
            session.forget_steps()
        self.number = 0
        return session

    def _stepped(self, session: Session) -> None:
        """Open, empty or close the window after the session has marked a step."""
        self.number += 1
        session.next_step = self.number
        first, steps = self.wait + self.warmup, self.number - self._first
        if steps == self.wait:
            session.open()
        if steps == first and self.warmup:
            session.discard()
            session.open()
        if self.active and steps == first + self.active:
            controller.finish()
            self._window += 1
            if self._window < self.repeat:
                control.interrupt()
                self._begin()

    @contained
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if self._marks is not None:
            self._marks.leave()
        if self._script in control.on_script_step:
            control.on_script_step.remove(self._script)
        if session is None or control.session is not session:
            return
        if self._window and self.number - self._first <= self.wait + self.warmup:  # a window without a step
            control.session = None
            session.discard()
            session.forget()
            control.resume()
        else:
            controller.finish()

# SPDX-License-Identifier: Apache-2.0
"""`pyprof.profile`: a window that opens and closes by the number of steps."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from pyprof.capture import DEFAULT_MAX_EVENTS, window
from pyprof.capture.faults import contained
from pyprof.capture.options import Given, bound, options
from pyprof.capture.session import Session
from pyprof.capture.window import control
from pyprof.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack


class profile:
    """Record a part of a program: `with pyprof.profile("net.sqlite") as p:`, the file is written at the end.

    With `active` the loop calls `p.step()` after each step: the first `wait` steps are left alone, the next `warmup`
    are recorded and thrown away, `active` are kept, and the file is written then. With `wait` and `warmup` alone
    everything after them is kept. With `repeat` all this happens so many times, one file each: net.sqlite,
    net.1.sqlite, net.2.sqlite. When the body raises, the file is written and the error goes on.

    More options: `collector`, who records the GPU: `auto`, `kineto`, `cupti` or `none`. And on request: `sync=True`
    synchronisations of the GPU, `memory=True` events of the allocators, `io=True` accesses to files, `api_backtrace=NS`
    stacks of waiting calls above so many ns, `sample="cpu"` stacks of running threads every 10 ms.
    """

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
        self.max_events, self.options = bound(max_events), options(control.more, more)
        self.number = 0
        self._session: Session | None = None

    def __enter__(self) -> profile:
        self._enter()
        return self

    @contained
    def _enter(self) -> None:
        self.number = self._window = 0
        if not window.passed_over():
            window.choose_window()
            window.init_only()
            self._begin()

    def _begin(self) -> None:
        """Wait for the next window, or open it."""
        self._first = self.number
        background = control.until_exit
        session = window.new_session(self.output, self.max_events, self._window, self.options)
        control.session = self._session = session
        session.on_step, session.next_step = self._stepped, self.number
        if not self.wait or (background and session.output is None):
            session.open()

    @contained
    def step(self) -> None:
        """Mark the end of a step."""
        if control.plan is not None:
            window.step()
        elif self._session is not None and control.session is self._session:
            self._session.step()

    def _stepped(self, session: Session) -> None:
        """After the session has marked a step: open, empty or close the window."""
        self.number += 1
        session.next_step = self.number
        first, steps = self.wait + self.warmup, self.number - self._first
        if steps == self.wait:
            session.open()
        if steps == first and self.warmup:
            session.discard()
            session.open()
        if self.active and steps == first + self.active:
            window.finish()
            self._window += 1
            if self._window < self.repeat:
                control.interrupt()
                self._begin()

    @contained
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is None or control.session is not session:
            return
        if self._window and self.number - self._first <= self.wait + self.warmup:  # a window without a step
            control.session = None
            session.discard()
            session.forget()
            control.resume()
        else:
            window.finish()

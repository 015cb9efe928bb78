# SPDX-License-Identifier: Apache-2.0
"""Windows requested by `pyprof trigger PID`, in a process in which PyProf is set up.

One byte is checked at the end of each step (`core/mailbox.py`); nothing else waits or listens. The window opens there
and closes the requested number of steps later. The program takes precedence: its own window ends a triggered one, and a
request is refused while it records. Errors in a request are reported to its sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pyprof.capture.core import torch_internals
from pyprof.capture.core.options import Given, options
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.process.faults import contained
from pyprof.capture.session import Session
from pyprof.capture.steps import Marks
from pyprof.core import mailbox
from pyprof.core.errors import CaptureError, PyProfError
from pyprof.core.mailbox import DONE, RECORDING, REFUSED, REQUESTED, Mailbox


class Control(Protocol):
    """State of the process, as far as a trigger needs it: `controller.Control`."""

    session: Session | None
    max_events: int
    options: Given

    def background(self) -> bool: ...
    def interrupt(self) -> None: ...


class _Watch(Marks):
    """Ends of steps; those of loaders only while a request is pending: searching for optimizers takes a moment."""

    box: Mailbox

    def _loader_next(self, iterator: Any) -> None:
        if self.box.state in (REQUESTED, RECORDING):
            super()._loader_next(iterator)


class Trigger:
    """Handler of requests in this process."""

    def __init__(self, box: Mailbox, control: Control, finish: Callable[[], str | None]):
        self._box = box
        self._control = control
        self._finish = finish
        self._session: Session | None = None  # the requested one
        self._number = 0  # of the running step, as far as steps are detected
        self._steps = self._end = 0  # length of the window, and the number of the step after it
        self._marks = _Watch(self._on_step)
        self._marks.box = box
        self._marks.follow()

    def owns(self, session: Session) -> bool:
        """Return whether a recording is the requested one."""
        return self._session is session

    @contained
    def script(self) -> None:
        """Handle the end of a step marked by the script."""
        self._on_step(self._marks.script())

    def _on_step(self, restart: bool) -> None:
        if self._session is not None and self._control.session is self._session:
            self._session.mark()
        if restart:  # the window began in the middle of a step
            self._number, self._end = 0, 1 + self._steps
            if self._session is not None:
                self._session.discard()
                self._session.open()
        self._number += 1
        if self._session is not None:
            self._session.next_step = self._number
            if self._number >= self._end:
                self.finish()
        elif self._box.page[0] == REQUESTED:
            self._begin()

    def _begin(self) -> None:
        try:
            request = self._box.content()
            self._session = self._open(str(request["output"]), int(request["steps"]))
        except PyProfError as error:
            self._box.put(REFUSED, text=str(error))
        except (ValueError, KeyError, TypeError):
            self._box.put(REFUSED, text="this version of PyProf does not understand the request.")

    def _open(self, output: str, steps: int) -> Session:
        control = self._control
        busy = control.session is not None and not control.background()
        if busy or recorder.observer is not None:
            raise CaptureError("it is already recording, or waits for the steps selected on its command line.")
        if ranges.plan.tool is not None:
            raise CaptureError(f"it runs under {ranges.plan.tool}, which records it.")
        if reason := torch_internals.unsupported():
            raise CaptureError(reason)
        session = Session(output, control.max_events, options=options(control.options))
        control.interrupt()
        control.session = session
        session.next_step, self._steps, self._end = self._number, steps, self._number + steps
        session.open()
        self._box.put(RECORDING)
        return session

    def finish(self) -> None:
        """Close the requested window, if there is one, and answer."""
        session, self._session = self._session, None
        if session is None:
            return
        name = None
        if self._control.session is session:
            name = self._finish()
        if name is None:
            self._box.put(REFUSED, text="no file was written: its stderr says why.")
        else:
            self._box.put(DONE, output=session.path)

    def forget(self, forked: bool = False) -> None:
        """Stop accepting requests. In a forked child the mailbox is the parent's."""
        self._marks.leave()
        if self._box.page[0] == REQUESTED and not forked:
            self._box.put(REFUSED, text="it ended before its next step.")
        self._box.close()


def arm(control: Control, finish: Callable[[], str | None]) -> Trigger | None:
    """Start accepting requests; return None if the system does not support it."""
    box = mailbox.make()
    return Trigger(box, control, finish) if box is not None else None

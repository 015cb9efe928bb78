# SPDX-License-Identifier: Apache-2.0
"""A window that `pyprof trigger PID` asks for, in a process that PyProf is set up in.

At the end of each step one byte is looked at (`mailbox.py`); nothing else waits or listens. The window opens there and
closes so many steps later. The program goes before: its own window ends a triggered one, and while it records a request
is refused. What is wrong with a request is told to who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyprof import mailbox
from pyprof.capture.core import torch_internals
from pyprof.capture.core.options import options
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.process.faults import contained
from pyprof.capture.session import Session
from pyprof.capture.steps import Marks
from pyprof.errors import CaptureError, PyProfError
from pyprof.mailbox import ASKED, DONE, RECORDING, REFUSED, Mailbox

if TYPE_CHECKING:
    from pyprof.capture.controller import Control


class _Watch(Marks):
    """Ends of steps, of loaders only while somebody waits for one: to ask for optimizers takes a moment."""

    wanted: Mailbox

    def _loader_next(self, iterator: Any) -> None:
        if self.wanted.state in (ASKED, RECORDING):
            super()._loader_next(iterator)


class Trigger:
    """What this process does about requests."""

    def __init__(self, box: Mailbox, control: Control, finish: Callable[[], str | None]):
        self._box = box
        self._control = control
        self._finish = finish
        self._session: Session | None = None  # the one that was asked for
        self._number = 0  # of the step that runs, as far as steps are found
        self._steps = self._end = 0  # of the window: how many, and the number of the one after it
        self._marks = _Watch(self._found)
        self._marks.wanted = box
        self._marks.follow()

    def owns(self, session: Session) -> bool:
        """Whether a recording is the one that was asked for."""
        return self._session is session

    @contained
    def script(self) -> None:
        """The script has marked the end of a step."""
        self._found(self._marks.script())

    def _found(self, again: bool) -> None:
        if self._session is not None and self._control.session is self._session:
            self._session.mark()
        if again:  # the window began somewhere in a step
            self._number, self._end = 0, 1 + self._steps
            if self._session is not None:
                self._session.discard()
                self._session.open()
        self._number += 1
        if self._session is not None:
            self._session.next_step = self._number
            if self._number >= self._end:
                self.finish()
        elif self._box.page[0] == ASKED:
            self._begin()

    def _begin(self) -> None:
        try:
            request = self._box.content()
            self._session = self._open(str(request["output"]), int(request["steps"]))
        except PyProfError as error:
            self._box.put(REFUSED, text=str(error))
        except (ValueError, KeyError, TypeError):
            self._box.put(REFUSED, text="the request is none that this version of PyProf knows.")

    def _open(self, output: str, steps: int) -> Session:
        control = self._control
        busy = control.session is not None and not control.background()
        if busy or recorder.observer is not None:
            raise CaptureError("it is recording already, or waits for the steps that it was told to record.")
        if ranges.plan.tool is not None:
            raise CaptureError(f"it runs under {ranges.plan.tool}, which records it.")
        if reason := torch_internals.unsupported():
            raise CaptureError(reason)
        session = Session(output, control.max_events, options=options(control.more))
        control.interrupt()
        control.session = session
        session.next_step, self._steps, self._end = self._number, steps, self._number + steps
        session.open()
        self._box.put(RECORDING)
        return session

    def finish(self) -> None:
        """Close the window that was asked for, if there is one, and answer."""
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
        """Be asked no more. In a forked child the mailbox is the parent's."""
        self._marks.leave()
        if self._box.page[0] == ASKED and not forked:
            self._box.put(REFUSED, text="it ended before its next step.")
        self._box.close()


def arm(control: Control, finish: Callable[[], str | None]) -> Trigger | None:
    """Be ready to be asked; None where the system has no way."""
    box = mailbox.make()
    return Trigger(box, control, finish) if box is not None else None

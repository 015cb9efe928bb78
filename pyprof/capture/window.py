# SPDX-License-Identifier: Apache-2.0
"""When PyProf records: `init`, `shutdown`, `start`, `stop`, `step`, `profile`.

`init` sets the hooks of `hooks.py`; what slows a call down is in place only while a window is open. `profile` and
`start` call it themselves. A recording can have several windows (torch.cuda.profiler.start and stop, called more than
once): they go to one file.

Where calls are written as NVTX ranges (`collectors/nvtx.py`), `init` opens a window without a file until the end of the
program; the script's own windows interrupt it. Under a tool that records the process no window has a file.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from pyprof.capture import DEFAULT_MAX_EVENTS, annotate, hooks
from pyprof.capture.collectors import nvtx as ranges
from pyprof.capture.collectors.kineto import stranded
from pyprof.capture.options import NOTHING, Given, Options, options
from pyprof.capture.patch import Registry, unwrap_all
from pyprof.capture.plan import Plan
from pyprof.capture.session import Session
from pyprof.capture.signals import held
from pyprof.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger(__name__)
DEFAULT_OUTPUT = "net.sqlite"
_HINT = (
    "pyprof: nothing was recorded. Record with `pyprof run SCRIPT`, with `pyprof.profile()` around the loop, "
    "or with `pyprof.init(output=FILE)`."
)


class _Control:
    """The state of this process: whether PyProf is initialised, and what records."""

    def __init__(self) -> None:
        self.hooks: Registry | None = None
        self.session: Session | None = None
        self.ranges: Session | None = None  # the window of `init` that writes NVTX ranges alone
        self.whole_run = False  # the session is not the script's own: torch.cuda.profiler may narrow it
        self.implicit = False  # and has not done so yet
        self.plan: Plan | None = None  # of the command line: the script's own windows are passed over
        self.passed_over = False  # one of them, and a line on stderr said so
        self.output = DEFAULT_OUTPUT
        self.written: set[str] = set()  # files of this run
        self.recorded = False
        self.pid = os.getpid()
        self.at_exit = False
        self.more: Given = {}  # what `init` asked for
        self.until_exit = False  # NVTX ranges are written whenever no other window is open

    def recording(self) -> bool:
        session = self.session
        return session is not None and (session.output is not None or session.emits_operators)

    def background(self) -> bool:
        """Whether the open window is the one of `init`, which gives way to any other."""
        return self.until_exit and self.session is not None and self.session is self.ranges

    def resume(self) -> None:
        """Open the window of `init` again, after another one."""
        if self.until_exit and self.session is None and os.getpid() == self.pid:
            self.session = self.ranges = Session(None)
            self.session.open()

    def interrupt(self) -> None:
        """Close the window of `init` for another one."""
        if self.background():
            assert self.session is not None
            self.session.close()
            self.session = self.ranges = None

    def cuda_profiler(self, start: bool) -> None:
        """The script's own window replaces the whole run; several windows go to one file."""
        session = self.session
        if session is None or not self.whole_run or os.getpid() != self.pid:
            return
        if start:
            if self.implicit:
                session.discard()
                self.implicit = False
            session.open()
        elif not self.implicit:  # a stop without a start is none
            session.close()

    def user_profiler(self, running: bool) -> None:
        if running and self.session is not None:
            self.session.give_way()


_control = _Control()


def init(output: str | None = None, max_events: int = DEFAULT_MAX_EVENTS, nvtx: str | None = None,
         **more: Unpack[Given]) -> None:  # fmt: skip
    """Set PyProf up. With `output` (or PYPROF_OUTPUT) record from now to the end of the program into that file.

    `nvtx` (or PYPROF_NVTX): calls as NVTX ranges, `auto` where a tool listens, `registered` or `classic` always,
    `off` never. `more`: memory, io, api_backtrace, sample, as of `profile`, for it and for later
    windows. A second call changes nothing, except that it may begin such a recording or name another `nvtx`.
    """
    chosen = options({**_control.more, **more})
    _control.more.update(more)
    if _control.hooks is None or nvtx is not None:
        _configure(nvtx)
    _install()
    _control.until_exit = ranges.plan.writer is not None
    if output is None and not _is_worker():
        output = os.environ.get("PYPROF_OUTPUT")
    if output and _control.plan is None and (_control.session is None or _control.background()):
        record_run(output, max_events, options=chosen)
    _control.resume()


def _configure(nvtx: str | None) -> None:
    ranges.check(nvtx)
    _control.interrupt()
    ranges.plan.configure(nvtx)


def _install() -> None:
    if _control.hooks is None:
        _control.hooks = Registry()
        hooks.install(_control.hooks, _control)
        if not _control.at_exit:
            _control.at_exit = True
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_forget)


def _is_worker() -> bool:
    """Whether this process was started by multiprocessing: a worker that imports the script again stays quiet."""
    return multiprocessing.parent_process() is not None


def record_run(output: str, max_events: int = DEFAULT_MAX_EVENTS, plan: Plan | None = None,
               options: Options = NOTHING) -> None:  # fmt: skip
    """Record from now until `finish`, unless the script chooses its own window. With a plan, what that says."""
    _control.interrupt()
    if _control.session is not None:
        raise CaptureError("PyProf is recording already: one window at a time.")
    session = _session(output, max_events, options)
    if session.output is not None:
        _control.output, _control.whole_run = output, plan is None
    _control.implicit = plan is None
    _control.session, _control.plan = session, plan
    if plan is None:
        session.open()
    else:
        plan.begin(session, finish)


def _session(output: str, max_events: int, options: Options) -> Session:
    """A session into a file; under a tool that records this process, one that writes NVTX ranges for it."""
    if ranges.plan.tool is None:
        try:
            return Session(output, max_events, options=options)
        except CaptureError:
            _control.resume()
            raise
    ranges.plan.say_no_file()
    _control.recorded = True
    return Session(None, operators=True)


def finish(last: bool = False) -> str | None:
    """End the recording, if there is one, and write its file. Returns the file's name.

    A file that cannot be written is one line on stderr: it must not end a training. NVTX ranges that `init` asked for
    go on, unless it is the `last`.
    """
    if _control.plan is not None:
        _control.plan.end()
    if last:
        _control.until_exit = False
    elif _control.background():
        return None
    try:
        return _finish()
    finally:
        _control.resume()


@held()
def _finish() -> str | None:
    session, _control.session = _control.session, None
    _control.ranges = None
    _control.whole_run = _control.implicit = False
    if session is None:
        return None
    if _control.plan is not None and not _control.plan.reached:
        session.forget()
        _control.recorded = True
        print(f"pyprof: nothing was recorded: {_control.plan.missed()}.", file=sys.stderr)
        return None
    try:
        session.close()
        session.write()
        _control.written.add(os.path.abspath(session.output or ""))
    except CaptureError as error:
        print(f"pyprof: {error}", file=sys.stderr)
    except Exception as error:  # a fault of ours: the program goes on
        log.debug("the recording is lost", exc_info=True)
        print(
            f"pyprof: the recording is lost ({type(error).__name__}: {error}). Please report this.",
            file=sys.stderr,
        )
    session.forget()
    _control.recorded = _control.recorded or session.output is not None
    return session.output


def shutdown() -> None:
    """Stop recording and put everything back as it was before `init`."""
    finish(last=True)
    unwrap_all()
    ranges.plan.reset()
    stranded.end()
    _control.more = {}
    _control.plan, _control.passed_over = None, False
    if _control.hooks is not None:
        _control.hooks.undo()
        _control.hooks = None


def start(output: str | None = None, max_events: int = DEFAULT_MAX_EVENTS, **more: Unpack[Given]) -> None:
    """Begin to record; `stop` writes the file. Raises CaptureError while another window is open.

    `more`: memory, io, api_backtrace, sample, as of `profile`.
    """
    chosen = options({**_control.more, **more})
    if _passed_over():
        return
    _choose_window()
    init_only()
    _control.session = _session(output or _control.output, max_events, chosen)
    _control.session.open()


def stop() -> str:
    """End the recording of `start` and write its file. Returns the file's name, "" under a tool that has it instead."""
    if _control.plan is not None:
        return _control.output
    if _control.session is None or _control.background():
        raise CaptureError("PyProf is not recording: call pyprof.start() first.")
    return finish() or ""


def step() -> None:
    """Mark the end of a step of the training loop. Without a recording it does nothing."""
    if _control.session is not None and os.getpid() == _control.pid:
        _control.session.step()


def init_only() -> None:
    """`init` without the window that it may open."""
    if _control.hooks is None:
        _configure(None)
        _install()


def _passed_over() -> bool:
    """Whether the command line has chosen the window, so that the script cannot."""
    if _control.plan is not None and not _control.passed_over:
        _control.passed_over = True
        print("pyprof: the command line says what is recorded, the script's own windows are passed over.",
              file=sys.stderr)  # fmt: skip
    return _control.plan is not None


def _choose_window() -> None:
    """The script opens a window of its own: what was recorded of the whole run so far is dropped."""
    _control.interrupt()
    if _control.session is None:
        return
    if not _control.implicit:
        raise CaptureError(
            "PyProf is recording already: end that window with pyprof.stop() or leave profile() first."
        )
    _control.session.discard()
    _control.session, _control.whole_run, _control.implicit = None, False, False


class profile:
    """Record a part of a program: `with pyprof.profile("net.sqlite") as p:`, the file is written at the end.

    With `active` the loop calls `p.step()` after each step: the first `wait` steps are left alone, the next `warmup`
    are recorded and thrown away, `active` are kept, and the file is written then. With `wait` and `warmup` alone
    everything after them is kept. With `repeat` all this happens so many times, one file each: net.sqlite,
    net.1.sqlite, net.2.sqlite. When the body raises, the file is written and the error goes on.

    More on request: `memory=True` events of the allocators, `io=True` accesses to files, `api_backtrace=NS` stacks of
    waiting calls above so many ns, `sample="cpu"` stacks of running threads every 10 ms.
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
        self.max_events, self.options = max_events, options({**_control.more, **more})
        self.number = 0
        self._session: Session | None = None

    def __enter__(self) -> profile:
        self.number = self._window = 0
        if not _passed_over():
            _choose_window()
            init_only()
            self._begin(self.output or _control.output)
        return self

    def _begin(self, output: str) -> None:
        """Wait for the next window, or open it."""
        self._first = self.number
        background = _control.until_exit
        session = _control.session = self._session = _session(output, self.max_events, self.options)
        session.on_step, session.next_step = self._stepped, self.number
        if not self.wait or (background and session.output is None):
            session.open()

    def step(self) -> None:
        """Mark the end of a step."""
        if _control.plan is not None:
            step()
        elif self._session is not None and _control.session is self._session:
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
            finish()
            self._window += 1
            if self._window < self.repeat:
                self._begin_again()

    def _begin_again(self) -> None:
        _control.interrupt()
        try:
            self._begin(_numbered(self.output or _control.output, self._window))
        except CaptureError as error:  # in the middle of a training
            print(f"pyprof: {error}", file=sys.stderr)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is None or _control.session is not session:
            return
        if self._window and self.number - self._first <= self.wait + self.warmup:  # a window without a step
            _control.session = None
            session.discard()
            session.forget()
            _control.resume()
        else:
            finish()


def _numbered(path: str, number: int) -> str:
    """The file of a later window: `net.1.sqlite`, or the next number that this run has not used."""
    root, extension = os.path.splitext(path)
    while os.path.abspath(name := f"{root}.{number}{extension}") in _control.written:
        number += 1
    return name


def _at_exit() -> None:
    if os.getpid() != _control.pid:
        return
    silent = (
        _control.hooks is None
        or _control.recorded
        or _is_worker()
        or any(name in os.environ for name in ranges.TOOLS)
    )
    if _control.session is not None:
        finish(last=True)
    elif not silent:
        print(_HINT, file=sys.stderr)


def _forget() -> None:
    """In a forked child: a worker records nothing and says nothing."""
    if _control.session is not None:
        _control.session.abandon()
    _control.session = _control.ranges = None
    _control.until_exit = False
    annotate.on_optimizer_step.clear()
    _control.pid, _control.recorded = os.getpid(), True


def recorded() -> bool:
    """Whether this process has written a file."""
    return _control.recorded

# SPDX-License-Identifier: Apache-2.0
"""Control of recording: `init`, `shutdown`, `start`, `stop`, `step`; `profile` is in `schedule.py`.

`init` sets the hooks of `hooks.py`; anything that slows a call down is installed only while a window is open.
`profile` and `start` call it themselves. A recording can have several windows (torch.cuda.profiler.start and stop,
called more than once): they go to one file.

If calls are written as NVTX ranges (`nvtx_ranges.py`), `init` opens a window without a file until the end of the
program; the script's own windows interrupt it. Under a tool that records the process no window has a file.

Nothing here stops a training: if a file cannot be written, a message says so and the window is empty.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyprof.capture import DEFAULT_MAX_EVENTS, environment_variables, hooks
from pyprof.capture.core import torch_internals
from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.options import Given, Options, bound, merged, options
from pyprof.capture.core.state import Until, end, owned
from pyprof.capture.environment import ranks
from pyprof.capture.instrument import call_sites, compiled
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.process import terminate
from pyprof.capture.process.faults import contained, guarded
from pyprof.capture.process.signals import held
from pyprof.capture.run_window import Plan
from pyprof.core.errors import CaptureError, PyProfError

if TYPE_CHECKING:
    from typing import Unpack

    from pyprof.capture.session import Session

log = logging.getLogger(__name__)
DEFAULT_OUTPUT = "net.sqlite"
_NO_RANGES = (
    "Python runs without debug ranges (-X no_debug_ranges or PYTHONNODEBUGRANGES): calls such as torch.add(x, y) are "
    "recorded as operators only, without a line. Remove the option, or use Python 3.13 or later."
)
_HINT = (
    "pyprof: nothing was recorded. Record with `pyprof run SCRIPT`, with `pyprof.profile()` around the loop, "
    "with `pyprof.init(output=FILE)`, or with `torch.cuda.profiler.start()` and `stop()` after `pyprof.init()`."
)


class TriggerHandler(Protocol):
    """Handler of `pyprof trigger`: `on_demand.Trigger`."""

    def owns(self, session: Session) -> bool: ...
    def script(self) -> object: ...
    def finish(self) -> None: ...
    def forget(self, forked: bool = False) -> None: ...


class FlightRecord(Protocol):
    """A record of the last steps: `flight.flight`."""

    def owns(self, session: Session) -> bool: ...
    def open(self) -> object: ...
    def suspend(self) -> object: ...
    def stop(self) -> object: ...
    def forked(self) -> object: ...


@dataclass(eq=False)
class Windows:
    """Windows of this process; a forked child begins with none of its parent's."""

    session: Session | None = None
    ranges: Session | None = None  # the window of `init` that only writes NVTX ranges
    whole_run: bool = False  # not a session of the script: torch.cuda.profiler may narrow it
    implicit: bool = False  # and has not narrowed it yet
    plan: Plan | None = None  # of the command line: the script's own windows are ignored
    trigger: TriggerHandler | None = None  # handler of `pyprof trigger`
    flight: FlightRecord | None = None  # keeps the last steps whenever no other window is open
    on_script_step: list[Callable[[], object]] = field(default_factory=list)  # when the script ends a step
    until_exit: bool = False  # NVTX ranges are written whenever no other window is open


@dataclass(eq=False)
class Setup:
    """Settings of `init`, the command line and the environment, until `shutdown`."""

    hooks: Registry | None = None
    start_failed: bool = False  # `start` has failed and reported it: `stop` has nothing to end
    from_environment: bool = False  # the plan comes from PYPROF_STEPS
    ignore_reported: bool = False  # a line on stderr about an ignored window was printed
    output: str = DEFAULT_OUTPUT
    max_events: int = DEFAULT_MAX_EVENTS
    reported: set[str] = field(default_factory=set)
    options: Given = field(default_factory=Given)  # of `init` and the command line
    automatic: bool = False  # `init` was not called by the program: see capture/autostart.py


class Control(Windows, Setup):
    """State of this process: whether PyProf is initialized, the current recording, and what stays after it."""

    def __init__(self) -> None:
        Windows.__init__(self)
        Setup.__init__(self)
        self.written: set[str] = set()  # files of this run, full paths
        self.ranks_wrote = False  # processes started by the script wrote files
        self.failed = False  # a file could not be written
        self.recorded = False
        self.pid = os.getpid()
        self.at_exit = False

    def choose(self, values: Given) -> None:
        """Set options for every recording from now on. Raises UsageError."""
        options(values)
        self.options = merged(self.options, values)

    def recording(self) -> bool:
        session = self.session
        if session is not None and (session.output is not None or session.emits_operators):
            return True
        # Ranges that no tool reads would only block torch's profiler for PyProf's window.
        return not ranges.attached()

    def background(self) -> bool:
        """Return whether the open window is the one of `init`, or a flight record, which give way to any other."""
        if self.flight is not None and self.session is not None and self.flight.owns(self.session):
            return True
        return self.until_exit and self.session is not None and self.session is self.ranges

    def resume(self) -> None:
        """Reopen the background window or flight record after a window, unless the command line has selected the
        window."""
        if self.flight is not None and self.plan is None and os.getpid() == self.pid:
            self.flight.open()
        free = self.until_exit and self.session is None and self.plan is None and recorder.observer is None
        if free and os.getpid() == self.pid:
            self.session = self.ranges = _session(None)
            self.session.open()

    def interrupt(self) -> None:
        """Close the window of `init` to make room for another one."""
        if self.flight is not None:
            self.flight.suspend()
        if self.background():
            assert self.session is not None
            self.session.close()
            self.session = self.ranges = None

    @contained
    def cuda_profiler(self, start: bool) -> None:
        """Open or close a window of the script, which replaces a recording of the whole run; all of them go to one
        file."""
        if os.getpid() != self.pid:
            return
        if start:
            _end_triggered()
        if start and (self.session is None or self.background()):
            _record_windows()
        session = self.session
        if session is None or not self.whole_run:
            return
        if start:
            if self.implicit:
                session.discard()
                self.implicit = False
            session.open()
        elif not self.implicit:  # a stop without a start is ignored
            session.close()

    @contained
    def user_profiler(self, running: bool) -> None:
        if running and self.session is not None:
            self.session.give_way()


def _session(output: str | None, *arguments: Any, **more: Any) -> Session:
    """Create a session. Its modules are imported with the first one: a third of what `init` would import."""
    from pyprof.capture.session import Session

    return Session(output, *arguments, **more)


control = owned(owned(Control(), Until.FORKED, Windows.__init__), Until.SHUTDOWN, Setup.__init__)


@contained
def init(
    output: str | None = None,
    max_events: int = DEFAULT_MAX_EVENTS,
    nvtx: str | None = None,
    **more: Unpack[Given],
) -> None:
    """Set PyProf up. With `output` (or PYPROF_OUTPUT) record from now to the end of the program into that file.

    `nvtx` (or PYPROF_NVTX): calls as NVTX ranges, `auto` where a tool listens, `registered` or `classic` always,
    `off` never. `more` are options as of `profile`, for this recording and for later windows. A second call changes
    nothing, except that it may begin such a recording, name another `nvtx` or add options.
    """
    settings = environment_variables.Settings({}) if ranks.is_helper() else environment_variables.read()
    control.choose(merged(settings.options, more))
    if max_events == DEFAULT_MAX_EVENTS:
        max_events = settings.max_events
    if max_events != DEFAULT_MAX_EVENTS:
        control.max_events = max_events
    if control.hooks is None or nvtx is not None:
        _configure(nvtx)
    _install()
    control.until_exit = ranges.plan.writer is not None
    if settings.error:
        _say_once(settings.error)
    for_rank = output is None and ranks.is_child()
    if output is None:
        output = ranks.inherited_output() or (DEFAULT_OUTPUT if settings.plan else None)
    if output:
        _end_triggered()
    free = control.plan is None and recorder.observer is None and (control.session is None or control.background())
    if settings.disabled:
        control.recorded = True
    elif output and free and not ranks.imports_script():
        control.from_environment = settings.plan is not None
        record_run(output, bound(max_events), settings.plan)
        if control.session is not None:
            control.session.for_rank, control.session.unless_empty = for_rank, control.automatic
    control.resume()


def _configure(nvtx: str | None) -> None:
    ranges.check(nvtx)
    control.interrupt()
    ranges.plan.configure(nvtx)


def _install() -> None:
    if os.getpid() != control.pid:  # forked before the hooks were set
        _forget()
    if ranks.imports_script():  # a worker that fails early prints no hint; the parent does
        control.recorded = True
    if control.hooks is None:
        control.hooks = Registry()
        if not control.at_exit:
            control.at_exit = True
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_forget)
            os.register_at_fork(
                before=terminate.block, after_in_parent=terminate.unblock, after_in_child=terminate.unblock
            )
        guarded(hooks.install, control.hooks, control)
        guarded(ranks.install, control.hooks)
    if control.trigger is None and not ranks.is_helper():
        guarded(_arm)


def _arm() -> None:
    from pyprof.capture import on_demand

    control.trigger = on_demand.arm(control, finish)
    if control.trigger is not None:
        control.on_script_step.append(control.trigger.script)


def _disarm(forked: bool = False) -> None:
    trigger, control.trigger = control.trigger, None
    control.on_script_step.clear()
    if trigger is not None:
        trigger.forget(forked)


@contained
def record_run(
    output: str, max_events: int = DEFAULT_MAX_EVENTS, plan: Plan | None = None, more: Given | None = None
) -> None:
    """Record from now until `finish`, unless the script opens its own window; with a plan, the part that it selects."""
    control.choose(more or {})
    control.interrupt()
    if control.session is not None:
        raise CaptureError("PyProf is already recording: only one window can be open at a time.")
    if ranks.is_child():  # a forked child ends without running atexit functions
        multiprocessing.util.Finalize(None, _at_exit, exitpriority=0)
    session = new_session(output, max_events)
    if ranges.plan.tool is None:
        control.output, control.whole_run = output, plan is None and session.output is not None
    control.implicit = plan is None
    control.session, control.plan = session, plan
    terminate.install(lambda: finish(last=True))
    if plan is None:
        session.open()
    else:
        plan.begin(session, finish)


def _record_windows() -> None:
    """Record the windows of torch.cuda.profiler.start and stop into one file, after `init` without an output.

    The file is written when the program ends. Under a tool only the ranges of `init` are needed.
    """
    excluded = control.plan is not None or recorder.observer is not None or ranks.imports_script()
    if excluded or ranges.plan.tool is not None:
        return
    if ranks.is_child():
        multiprocessing.util.Finalize(None, _at_exit, exitpriority=0)
    control.interrupt()
    session = new_session(None, control.max_events)
    if session.output is None:  # no file can be written, which was reported
        control.resume()
        return
    session.for_rank = ranks.is_child()
    control.session, control.whole_run, control.implicit = session, True, False
    terminate.install(lambda: finish(last=True))


def new_session(
    output: str | None, max_events: int, number: int = 0, session_options: Options | None = None
) -> Session:
    """Create a session for a file, the `number`th of one schedule; under a tool, one that writes NVTX ranges for it.

    If a file cannot be written, or a helper imports the script again, the session does nothing.
    """
    if not call_sites.complete():
        _say_once(_NO_RANGES)
    if ranges.plan.tool is not None:
        _say_once(ranges.plan.no_file())
        control.recorded = True
        return _session(None, operators=True)
    if ranks.imports_script():
        return _session(None)
    if reason := torch_internals.unsupported():
        control.recorded = True
        _say_once(f"nothing is recorded: {reason}")
        return _session(None)
    try:
        session = _session(output or control.output, max_events, options=session_options or options(control.options))
    except CaptureError as error:
        control.recorded = True
        _say_once(f"{error} Nothing is recorded.")
        return _session(None)
    session.number, session.keeps_others = number, number > 0 or output is None
    return session


def _say_once(sentence: str) -> None:
    if sentence not in control.reported:
        control.reported.add(sentence)
        print(f"pyprof: {sentence}", file=sys.stderr)


@contained
def finish(last: bool = False) -> str | None:
    """End the recording, if there is one, and write its file. Returns the file's name.

    If the file cannot be written, one line goes to stderr: this must not end a training. NVTX ranges of `init` go
    on, unless this is the `last` call.
    """
    if control.plan is not None:
        guarded(control.plan.end)
    if last:
        control.until_exit = False
    elif control.background():
        return None
    try:
        return _finish()
    finally:
        guarded(terminate.remove)
        guarded(control.resume)


@held()
def _finish() -> str | None:
    session, control.session = control.session, None
    control.ranges = None
    control.whole_run = control.implicit = False
    if session is None:
        return None
    try:
        if control.plan is not None and not control.plan.reached:
            control.recorded = True
            if session.unless_empty and ranks.rank() is None and ranks.files(session.path):
                return None  # this process has started the ranks that wrote these
            print(f"pyprof: nothing was recorded: {control.plan.missed()}.", file=sys.stderr)
        elif (session.for_rank and not ranks.is_rank()) or _unwanted(session):
            session.discard()  # a helper, whose parent writes the file; or a launcher
        else:
            return write(session)
    finally:
        session.forget()
    return None


def _unwanted(session: Session) -> bool:
    if session.unless_empty:
        session.close()
    return session.unless_empty and session.empty


def leave_out_empty() -> bool:
    """End the recording of the whole run without a file, if it is empty. Returns whether it was."""
    session = control.session
    if session is None or not control.whole_run:
        return False
    session.close()
    if not session.empty:
        return False
    control.session, control.whole_run, control.implicit = None, False, False
    control.recorded = True  # the ranks have recorded: print no hint
    session.discard()
    session.forget()
    terminate.remove()
    return True


def write(session: Session) -> str | None:
    """Close a session and write its file. Returns the file's name, or None after a line on stderr if that failed."""
    control.recorded = control.recorded or session.output is not None
    try:
        session.close()
        if session.output is not None:
            session.output = _file_name(session, session.output)
            session.write()
            if session.output is not None:  # else an older file was kept
                control.written.add(session.path)
        return session.output
    except CaptureError as error:
        control.failed = True
        print(f"pyprof: {error}", file=sys.stderr)
    except MemoryError:
        control.failed = True
        log.debug("the recording is lost", exc_info=True)
        print(
            "pyprof: out of memory, the recording is lost. Record fewer steps, or set a lower max_events.",
            file=sys.stderr,
        )
    except internal() as error:  # an internal error: the program goes on
        control.failed = True
        log.debug("the recording is lost", exc_info=True)
        print(
            f"pyprof: the recording is lost ({type(error).__name__}: {error}). Please report this.",
            file=sys.stderr,
        )
    return None


def _file_name(session: Session, output: str) -> str:
    """Return a name such as `net.rank3.1.sqlite`: with the rank, and an unused number for a later window of this
    run."""
    name = ranks.named(output, ranks.rank())
    root, extension = os.path.splitext(name)
    number = session.number
    while True:
        candidate = f"{root}.{number}{extension}" if number else name
        if not session.keeps_others or os.path.join(session.folder, candidate) not in control.written:
            return candidate
        number += 1


def shutdown() -> None:
    """Stop recording and restore everything as it was before `init`."""
    _end_triggered()
    _end_flight()
    finish(last=True)
    guarded(_disarm)
    registry = control.hooks
    end(Until.SHUTDOWN, guarded)
    if registry is not None:
        guarded(registry.undo)


@contained
def start(output: str | None = None, max_events: int = DEFAULT_MAX_EVENTS, **more: Unpack[Given]) -> None:
    """Start recording; `stop` writes the file. Raises CaptureError while another window is open.

    The default name is net.sqlite (or the output of `pyprof run`), for a second one net.1.sqlite. `more` are options
    as of `profile`.
    """
    control.start_failed = True  # reset below on success
    try:
        session_options, max_events = options(control.options, more), bound(max_events)
        if not ignores_script_windows():
            choose_window()
            init_only()
            control.session = new_session(output, max_events, session_options=session_options)
            control.session.open()
    except PyProfError:  # meant for the program's author: nothing was started
        control.start_failed = False
        raise
    control.start_failed = False


def stop() -> str:
    """End the recording of `start` and write its file. Returns the file's name, "" under a tool that records
    instead."""
    if control.plan is not None or recorder.observer is not None:
        return control.output
    failed, control.start_failed = control.start_failed, False
    if control.session is None or control.background():
        if failed:
            return ""
        raise CaptureError("PyProf is not recording: call pyprof.start() first.")
    return finish() or ""


@contained
def step() -> None:
    """Mark the end of a step of the training loop. Without a recording it does nothing."""
    session = control.session
    owners = (control.trigger, control.flight)  # mark their own steps
    if (
        session is not None
        and os.getpid() == control.pid
        and not any(owner is not None and owner.owns(session) for owner in owners)
    ):
        session.step()
    notify_script_step()


def notify_script_step() -> None:
    """Notify listeners of the end of a step marked by the script, whether or not anything is recorded."""
    if os.getpid() == control.pid:
        for notify in tuple(control.on_script_step):
            notify()


@contained
def _end_triggered() -> None:
    """End the recording of `pyprof trigger`, and write its file."""
    if control.trigger is not None:
        control.trigger.finish()


@contained
def _end_flight() -> None:
    if control.flight is not None:
        control.flight.stop()


@contained
def init_only() -> None:
    """Run `init` without the window that it may open."""
    if control.hooks is None:
        _configure(None)
        _install()


def ignores_script_windows() -> bool:
    """Return whether the script's own windows are ignored: the command line has selected the window, or an estimate
    runs."""
    if recorder.observer is not None:
        _say_once("an estimate is running; the script's own windows are ignored.")
        return True
    if control.plan is not None and not control.ignore_reported:
        control.ignore_reported = True
        source = "the environment" if control.from_environment else "the command line"
        print(
            f"pyprof: {source} selects the recorded window; the script's own windows are ignored.",
            file=sys.stderr,
        )
    return control.plan is not None


def choose_window() -> None:
    """Drop the recording of the whole run so far: the script opens a window of its own.

    Closed windows of torch.cuda.profiler have a file of their own, which is written now.
    """
    _end_triggered()
    if control.whole_run and control.session is not None and not (control.implicit or control.session.is_open):
        finish()
    control.interrupt()
    if control.session is None:
        return
    if not control.implicit:
        raise CaptureError("PyProf is already recording: end that window with pyprof.stop() or leave profile() first.")
    control.session.discard()
    control.session, control.whole_run, control.implicit = None, False, False


@contained
def _at_exit() -> None:
    if os.getpid() != control.pid:
        return
    silent = (
        control.hooks is None
        or control.recorded
        or ranks.is_child()
        or any(name in os.environ for name in ranges.TOOLS)
    )
    _end_triggered()
    _end_flight()
    if control.session is not None:
        finish(last=True)
    elif not silent:
        print(_HINT, file=sys.stderr)


@contained
def _forget() -> None:
    """Reset the state in a forked child: a worker records nothing and prints nothing."""
    if control.session is not None:
        control.session.abandon()
    compiled.forked()
    guarded(_disarm, forked=True)
    if control.flight is not None:
        control.flight.forked()
    end(Until.FORKED, guarded)
    control.pid, control.recorded = os.getpid(), True


def recorded() -> bool:
    """Return whether this process has written a file."""
    return control.recorded

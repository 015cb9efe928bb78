# SPDX-License-Identifier: Apache-2.0
"""When PyProf records: `init`, `shutdown`, `start`, `stop`, `step`; `profile` is in `schedule.py`.

`init` sets the hooks of `hooks.py`; what slows a call down is in place only while a window is open. `profile` and
`start` call it themselves. A recording can have several windows (torch.cuda.profiler.start and stop, called more than
once): they go to one file.

Where calls are written as NVTX ranges (`collectors/nvtx.py`), `init` opens a window without a file until the end of the
program; the script's own windows interrupt it. Under a tool that records the process no window has a file.

Nothing here stops a training: where a file cannot be written, a sentence says so and the window is empty.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyprof.capture import DEFAULT_MAX_EVENTS, environment_variables, hooks
from pyprof.capture.core import torch_internals
from pyprof.capture.core.options import Given, Options, bound, merged, options
from pyprof.capture.environment import ranks
from pyprof.capture.instrument import call_sites, compiled, user_ranges
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.capture.instrument.patch import Registry, unwrap_all
from pyprof.capture.instrument.recorder import forked, recorder
from pyprof.capture.process import terminate
from pyprof.capture.process.faults import contained, guarded
from pyprof.capture.process.signals import held
from pyprof.capture.run_window import Plan
from pyprof.errors import CaptureError, PyProfError

if TYPE_CHECKING:
    from typing import Unpack

    from pyprof.capture.flight import flight
    from pyprof.capture.on_demand import Trigger
    from pyprof.capture.session import Session

log = logging.getLogger(__name__)
DEFAULT_OUTPUT = "net.sqlite"
_NO_RANGES = (
    "Python runs without debug ranges (-X no_debug_ranges or PYTHONNODEBUGRANGES): calls such as torch.add(x, y) are "
    "seen as operators only, without a line. Leave the option out, or use Python 3.13 or later."
)
_HINT = (
    "pyprof: nothing was recorded. Record with `pyprof run SCRIPT`, with `pyprof.profile()` around the loop, "
    "with `pyprof.init(output=FILE)`, or with `torch.cuda.profiler.start()` and `stop()` after `pyprof.init()`."
)


class Control:
    """The state of this process: whether PyProf is initialised, and what records."""

    def __init__(self) -> None:
        self.hooks: Registry | None = None
        self.session: Session | None = None
        self.ranges: Session | None = None  # the window of `init` that writes NVTX ranges alone
        self.start_failed = False  # `start` met a fault, which it has told: `stop` has nothing to end
        self.whole_run = False  # the session is not the script's own: torch.cuda.profiler may narrow it
        self.implicit = False  # and has not done so yet
        self.plan: Plan | None = None  # of the command line: the script's own windows are passed over
        self.from_environment = False  # the plan is that of PYPROF_STEPS
        self.passed_over = False  # one of them, and a line on stderr said so
        self.output = DEFAULT_OUTPUT
        self.max_events = DEFAULT_MAX_EVENTS
        self.written: set[str] = set()  # files of this run, whole paths
        self.of_ranks = False  # processes that the script started wrote some
        self.failed = False  # one could not be written
        self.said: set[str] = set()
        self.more: Given = {}  # what `init` and the command line asked for
        self.recorded = False
        self.pid = os.getpid()
        self.at_exit = False
        self.trigger: Trigger | None = None  # what `pyprof trigger` asks
        self.flight: flight | None = None  # keeps the last steps whenever no other window is open
        self.automatic = False  # nobody called `init`: see autostart.py
        self.on_script_step: list[Callable[[], object]] = []  # called when the script marks the end of a step
        self.until_exit = False  # NVTX ranges are written whenever no other window is open

    def choose(self, more: Given) -> None:
        """Options for every recording from now on. Raises UsageError."""
        options(more)
        self.more = merged(self.more, more)

    def recording(self) -> bool:
        session = self.session
        if session is not None and (session.output is not None or session.emits_operators):
            return True
        return (
            not ranges.attached()
        )  # ranges that no tool reads would only keep our window from torch's profiler

    def background(self) -> bool:
        """Whether the open window is the one of `init`, or a flight record, which give way to any other."""
        if self.flight is not None and self.session is not None and self.flight.owns(self.session):
            return True
        return self.until_exit and self.session is not None and self.session is self.ranges

    def resume(self) -> None:
        """Open what gives way to windows again, after one, unless the command line has chosen the window."""
        if self.flight is not None and self.plan is None and os.getpid() == self.pid:
            self.flight.open()
        free = self.until_exit and self.session is None and self.plan is None and recorder.observer is None
        if free and os.getpid() == self.pid:
            self.session = self.ranges = _session(None)
            self.session.open()

    def interrupt(self) -> None:
        """Close the window of `init` for another one."""
        if self.flight is not None:
            self.flight.suspend()
        if self.background():
            assert self.session is not None
            self.session.close()
            self.session = self.ranges = None

    @contained
    def cuda_profiler(self, start: bool) -> None:
        """A window of the script, which replaces the whole run if that is recorded; all of them go to one file."""
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
        elif not self.implicit:  # a stop without a start is none
            session.close()

    @contained
    def user_profiler(self, running: bool) -> None:
        if running and self.session is not None:
            self.session.give_way()


def _session(output: str | None, *arguments: Any, **more: Any) -> Session:
    """A new one. What it consists of is imported when the first is wanted: a third of what `init` would import."""
    from pyprof.capture.session import Session

    return Session(output, *arguments, **more)


control = Control()


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
    said = environment_variables.Said({}) if ranks.is_helper() else environment_variables.read()
    control.choose(merged(said.more, more))
    if max_events == DEFAULT_MAX_EVENTS:
        max_events = said.max_events
    if max_events != DEFAULT_MAX_EVENTS:
        control.max_events = max_events
    if control.hooks is None or nvtx is not None:
        _configure(nvtx)
    _install()
    control.until_exit = ranges.plan.writer is not None
    if said.wrong:
        _say_once(said.wrong)
    for_rank = output is None and ranks.is_child()
    if output is None:
        output = ranks.inherited_output() or (DEFAULT_OUTPUT if said.plan else None)
    if output:
        _end_triggered()
    free = (
        control.plan is None
        and recorder.observer is None
        and (control.session is None or control.background())
    )
    if said.nothing:
        control.recorded = True
    elif output and free and not ranks.imports_script():
        control.from_environment = said.plan is not None
        record_run(output, bound(max_events), said.plan)
        if control.session is not None:
            control.session.for_rank, control.session.unless_empty = for_rank, control.automatic
    control.resume()


def _configure(nvtx: str | None) -> None:
    ranges.check(nvtx)
    control.interrupt()
    ranges.plan.configure(nvtx)


def _install() -> None:
    if os.getpid() != control.pid:  # forked before there was anything to follow
        _forget()
    if ranks.imports_script():  # a worker that fails before it runs anything: its hint is the parent's
        control.recorded = True
    if control.hooks is None:
        control.hooks = Registry()
        if not control.at_exit:
            control.at_exit = True
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_forget)
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
    """Record from now until `finish`, unless the script chooses its own window. With a plan, what that says."""
    control.choose(more or {})
    control.interrupt()
    if control.session is not None:
        raise CaptureError("PyProf is recording already: one window at a time.")
    if ranks.is_child():  # which ends without the functions of atexit, if it was forked
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
    """After `init` alone: what the script records between torch.cuda.profiler.start and stop goes to one file.

    It is written when the program ends. Under a tool the ranges of `init` are all that is wanted.
    """
    unwanted = control.plan is not None or recorder.observer is not None or ranks.imports_script()
    if unwanted or ranges.plan.tool is not None:
        return
    if ranks.is_child():
        multiprocessing.util.Finalize(None, _at_exit, exitpriority=0)
    control.interrupt()
    session = new_session(None, control.max_events)
    if session.output is None:  # no file can be written, which has been said
        control.resume()
        return
    session.for_rank = ranks.is_child()
    control.session, control.whole_run, control.implicit = session, True, False
    terminate.install(lambda: finish(last=True))


def new_session(
    output: str | None, max_events: int, number: int = 0, chosen: Options | None = None
) -> Session:
    """A session into a file, the `number`th of one schedule; under a tool, one that writes NVTX ranges for it.

    Where a file cannot be written, or a helper imports the script again, one that does nothing.
    """
    if not call_sites.complete():
        _say_once(_NO_RANGES)
    if ranges.plan.tool is not None:
        ranges.plan.say_no_file()
        control.recorded = True
        return _session(None, operators=True)
    if ranks.imports_script():
        return _session(None)
    if reason := torch_internals.unsupported():
        control.recorded = True
        _say_once(f"nothing is recorded: {reason}")
        return _session(None)
    try:
        session = _session(output or control.output, max_events, options=chosen or options(control.more))
    except CaptureError as error:
        control.recorded = True
        _say_once(f"{error} Nothing is recorded.")
        return _session(None)
    session.number, session.keeps_others = number, number > 0 or output is None
    return session


def _say_once(sentence: str) -> None:
    if sentence not in control.said:
        control.said.add(sentence)
        print(f"pyprof: {sentence}", file=sys.stderr)


@contained
def finish(last: bool = False) -> str | None:
    """End the recording, if there is one, and write its file. Returns the file's name.

    A file that cannot be written is one line on stderr: it must not end a training. NVTX ranges that `init` asked for
    go on, unless it is the `last`.
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
                return None  # it has started the ranks that wrote these
            print(f"pyprof: nothing was recorded: {control.plan.missed()}.", file=sys.stderr)
        elif (session.for_rank and not ranks.is_rank()) or _unwanted(session):
            session.discard()  # a helper: the file is that of its parent; or a launcher
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
    """End the recording of the whole run without a file, if there is nothing in it. Returns whether."""
    session = control.session
    if session is None or not control.whole_run:
        return False
    session.close()
    if not session.empty:
        return False
    control.session, control.whole_run, control.implicit = None, False, False
    control.recorded = True  # by the ranks: no hint
    session.discard()
    session.forget()
    terminate.remove()
    return True


def write(session: Session) -> str | None:
    """Close a session and write its file. Returns the file's name; None, and a line on stderr, if that failed."""
    control.recorded = control.recorded or session.output is not None
    try:
        session.close()
        if session.output is not None:
            session.output = _file_name(session, session.output)
            session.write()
            if session.output is not None:  # else an older file stays
                control.written.add(session.path)
        return session.output
    except CaptureError as error:
        control.failed = True
        print(f"pyprof: {error}", file=sys.stderr)
    except MemoryError:
        control.failed = True
        log.debug("the recording is lost", exc_info=True)
        print(
            "pyprof: memory is short, the recording is lost. Record fewer steps, or name a lower max_events.",
            file=sys.stderr,
        )
    except Exception as error:  # a fault of ours: the program goes on
        control.failed = True
        log.debug("the recording is lost", exc_info=True)
        print(
            f"pyprof: the recording is lost ({type(error).__name__}: {error}). Please report this.",
            file=sys.stderr,
        )
    return None


def _file_name(session: Session, output: str) -> str:
    """`net.rank3.1.sqlite`: with the rank, and a number for a later window that this run has not used."""
    name = ranks.named(output, ranks.rank())
    root, extension = os.path.splitext(name)
    number = session.number
    while True:
        found = f"{root}.{number}{extension}" if number else name
        if not session.keeps_others or os.path.join(session.folder, found) not in control.written:
            return found
        number += 1


def shutdown() -> None:
    """Stop recording and put everything back as it was before `init`."""
    _end_triggered()
    _end_flight()
    finish(last=True)
    for undo in (_disarm, terminate.remove, unwrap_all, ranges.plan.reset, ranks.forget):
        guarded(undo)
    session = sys.modules.get("pyprof.capture.session")
    if session is not None:
        guarded(session.put_back)
    kineto = sys.modules.get("pyprof.capture.collectors.kineto")
    if kineto is not None:
        guarded(kineto.stranded.end)
    control.more, control.output, control.max_events = {}, DEFAULT_OUTPUT, DEFAULT_MAX_EVENTS
    control.plan, control.passed_over = None, False
    control.automatic = control.from_environment = False
    control.said.clear()
    if control.hooks is not None:
        guarded(control.hooks.undo)
        control.hooks = None


@contained
def start(output: str | None = None, max_events: int = DEFAULT_MAX_EVENTS, **more: Unpack[Given]) -> None:
    """Begin to record; `stop` writes the file. Raises CaptureError while another window is open.

    Without a name it is net.sqlite (or what `pyprof run` was given), and a second one net.1.sqlite. `more` are options
    as of `profile`.
    """
    control.start_failed = True  # until it has not
    try:
        chosen, max_events = options(control.more, more), bound(max_events)
        if not passed_over():
            choose_window()
            init_only()
            control.session = new_session(output, max_events, chosen=chosen)
            control.session.open()
    except PyProfError:  # the author's, who has not begun to record
        control.start_failed = False
        raise
    control.start_failed = False


def stop() -> str:
    """End the recording of `start` and write its file. Returns the file's name, "" under a tool that has it instead."""
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
    owners = (control.trigger, control.flight)  # which mark the steps of theirs
    if (
        session is not None
        and os.getpid() == control.pid
        and not any(owner is not None and owner.owns(session) for owner in owners)
    ):
        session.step()
    tell_script_step()


def tell_script_step() -> None:
    """The script has marked the end of a step, whether or not anything is recorded."""
    if os.getpid() == control.pid:
        for follow in tuple(control.on_script_step):
            follow()


@contained
def _end_triggered() -> None:
    """What `pyprof trigger` asked for ends here, and its file is written."""
    if control.trigger is not None:
        control.trigger.finish()


@contained
def _end_flight() -> None:
    if control.flight is not None:
        control.flight.stop()


@contained
def init_only() -> None:
    """`init` without the window that it may open."""
    if control.hooks is None:
        _configure(None)
        _install()


def passed_over() -> bool:
    """Whether the command line has chosen the window, or an estimate is made, so that the script cannot."""
    if recorder.observer is not None:
        _say_once("an estimate is being made, the script's own windows are passed over.")
        return True
    if control.plan is not None and not control.passed_over:
        control.passed_over = True
        who = "the environment" if control.from_environment else "the command line"
        print(
            f"pyprof: {who} says what is recorded, the script's own windows are passed over.", file=sys.stderr
        )
    return control.plan is not None


def choose_window() -> None:
    """The script opens a window of its own: what was recorded of the whole run so far is dropped.

    Windows of torch.cuda.profiler that are closed have a file of their own, which is written now.
    """
    _end_triggered()
    if (
        control.whole_run
        and control.session is not None
        and not (control.implicit or control.session.is_open)
    ):
        finish()
    control.interrupt()
    if control.session is None:
        return
    if not control.implicit:
        raise CaptureError(
            "PyProf is recording already: end that window with pyprof.stop() or leave profile() first."
        )
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
    """In a forked child: a worker records nothing and says nothing."""
    if control.session is not None:
        control.session.abandon()
    forked()
    compiled.forked()
    control.session = control.ranges = None
    control.until_exit = False
    user_ranges.on_optimizer_step.clear()
    user_ranges.on_loader_next.clear()
    guarded(_disarm, forked=True)
    if control.flight is not None:
        control.flight.forked()
    control.plan = None
    control.pid, control.recorded = os.getpid(), True


def recorded() -> bool:
    """Whether this process has written a file."""
    return control.recorded

# SPDX-License-Identifier: Apache-2.0
"""`pyprof run SCRIPT [ARGS]`: run a script as `python SCRIPT ARGS` would, recorded; `-` is a script on stdin.

The whole run is recorded, up to a number of events, unless the command line names a part of it (`run_window.py`) or the
script opens a window of its own (torch.cuda.profiler.start and stop, pyprof.profile, pyprof.start). Its exit code, its
exceptions and their tracebacks are its own; the file is written in each case.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import Any

from pyprof.capture import THREAD, controller
from pyprof.capture.core import torch_internals
from pyprof.capture.core.internal_errors import from_handler
from pyprof.capture.core.options import Given
from pyprof.capture.environment import ranks
from pyprof.capture.instrument import nvtx_ranges
from pyprof.capture.instrument.stacks import ENDS
from pyprof.capture.run_window import Plan
from pyprof.core.arguments import refuse_unwritable
from pyprof.core.errors import CaptureError, UsageError
from pyprof.core.marker import caller

_MAX_LISTED = 4  # files of ranks, and threads, that are listed
_PATIENCE = 5.0  # seconds until the threads that the script waits for are named


def run(
    script: str,
    args: list[str],
    output: str,
    max_events: int,
    plan: Plan | None = None,
    options: Given | None = None,
    module: bool = False,
) -> int:
    """Run a script, or a `module` as python -m does, under capture. Returns the exit code of python."""
    if reason := torch_internals.unsupported():
        raise CaptureError(reason)
    whole = os.path.abspath(output)
    earlier = ranks.files(whole)
    if not nvtx_ranges.attached():  # else the tool writes the file
        refuse_unwritable(ranks.named(output, ranks.rank()))
    if os.path.exists(script) and os.path.exists(output) and os.path.samefile(script, output):
        raise UsageError(f"-o {output}: the recording would take the name of the script. Choose another file.")
    with as_main(script, args, module) as execute:
        controller.init_only()
        controller.record_run(output, max_events, plan, options)
        if plan is None:
            os.environ[ranks.OUTPUT_OF_RUN] = whole
        try:
            return execute()
        finally:
            try:
                _finish(script, whole, earlier)
            except Exception as error:
                if not from_handler(error):
                    raise
                _say_ignored(error)  # the program is over
            finally:
                os.environ.pop(ranks.OUTPUT_OF_RUN, None)


def _finish(script: str, output: str, earlier: ranks.Files) -> None:
    """End the recording. A process that only started ranks has nothing to write: their files are named instead."""
    files = ranks.files(output) if ranks.rank() is None else {}
    written = sorted(name for name, state in files.items() if earlier.get(name) != state)
    if not (written and controller.leave_out_empty()) and controller.finish() is None and not controller.recorded():
        print(f"pyprof: {script} opened no window, nothing was recorded.", file=sys.stderr)
    if written:
        controller.control.ranks_wrote = True
        listed = ", ".join(written[:_MAX_LISTED]) + (
            f" and {extra} more" if (extra := len(written) - _MAX_LISTED) > 0 else ""
        )
        print(f"pyprof: the script's ranks were recorded in {listed}.", file=sys.stderr)


@contextmanager
def as_main(script: str, args: list[str], module: bool = False) -> Iterator[Callable[[], int]]:
    """Set up the process as for `python SCRIPT ARGS`, or `python -m MODULE ARGS`. Yields a function that runs the
    script and returns its exit code."""
    main = ModuleType("__main__")
    if module:
        sys.path[0] = os.getcwd()
        spec, code = _module(script)
        path = spec.origin or script
        sys.argv = [path, *args]
        attributes = dict(__spec__=spec, __package__=spec.parent, __loader__=spec.loader, __cached__=spec.cached)
    else:
        stdin = script == "-"
        path = "<stdin>" if stdin else os.path.abspath(script)  # python's name for it, also in tracebacks
        code = _compile(script, path)
        sys.argv = [script, *args]
        sys.path[0] = "" if stdin else os.path.dirname(path)
        attributes = dict(__cached__=None)
    main.__dict__.update(__file__=path, __builtins__=builtins, **attributes)
    replaced = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        yield lambda: _run_to_end(code, main.__dict__)
    finally:
        sys.modules["__main__"] = replaced


def _compile(script: str, path: str) -> CodeType:
    try:
        with open(script if script != "-" else 0, "rb", closefd=script != "-") as file:
            source = file.read()
    except OSError as error:
        raise UsageError(f"{script} cannot be read ({error.strerror}). Pass a Python script.") from error
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CaptureError(f"{script} is not a Python script ({error}).") from error


def _module(name: str) -> tuple[ModuleSpec, CodeType]:
    """Return the code that python -m runs: a module, or `__main__` of a package. Packages around it are imported
    here."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec is not None else None
    except (ImportError, ValueError, SyntaxError) as error:
        raise UsageError(f"-m {name} cannot be run as a module ({error}).") from error
    if spec is None or code is None:
        raise UsageError(f"-m {name}: no module of this name can be run; expected one that python -m runs.")
    return spec, code


def _run_to_end(code: CodeType, namespace: dict[str, Any]) -> int:
    exit_code = _execute(code, namespace)
    _end_threads()
    return exit_code


def _execute(code: CodeType, namespace: dict[str, Any]) -> int:
    try:
        exec(code, namespace)
    except SystemExit as leave:
        return _exit_code(leave.code)
    except BaseException as error:
        _print_traceback(error, code)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end_threads() -> None:
    """Do what Python does when a program is over: run the exit hooks of `threading`, which wake the idle workers of
    executors, then wait for the threads. Their work belongs to the recording. Ctrl-C ends the wait."""
    shut_down, threading._shutdown = threading._shutdown, lambda: None  # type: ignore[attr-defined]  # once is enough
    ended = threading.Event()
    if _left_behind():
        threading.Thread(target=_name_threads, args=(ended,), name=THREAD, daemon=True).start()
    try:
        shut_down()
    except BaseException as error:  # Python too says so, and goes on
        _say_ignored(error)
    finally:
        ended.set()


def _say_ignored(error: BaseException) -> None:
    print(f"Exception ignored in: {threading!r}", file=sys.stderr)
    traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))


def _left_behind() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]


def _name_threads(ended: threading.Event) -> None:
    """Say, once, which threads keep the program from ending."""
    if ended.wait(_PATIENCE):
        return
    frames = sys._current_frames()
    waiting = [f"{thread.name!r}{_location(frames.get(thread.ident or 0))}" for thread in _left_behind()[:_MAX_LISTED]]
    if waiting:
        print(
            f"pyprof: the script is over, and waits for its threads: {', '.join(waiting)}. Ctrl-C ends the wait; the "
            "recording is written.",
            file=sys.stderr,
        )


def _location(frame: FrameType | None) -> str:
    """Return the line of the program that a thread has reached, else that of Python's library."""
    frames = () if frame is None else tuple(f"{f.f_code.co_filename}:{line}" for f, line in traceback.walk_stack(frame))
    return f" at {caller(frames[::-1]) or frames[0]}" if frames else ""


ENDS.append(_execute.__code__)  # stacks end here: the command's own frames are not part of the program


def _print_traceback(error: BaseException, code: CodeType) -> None:
    """Print the script's own traceback, without the frames of this file. The script may have its own hook."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code is not code:
        place = place.tb_next
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, place)
    else:
        traceback.print_exception(type(error), error, place)


def _exit_code(code: object) -> int:
    """Return python's exit code for the argument of sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1

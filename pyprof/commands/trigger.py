# SPDX-License-Identifier: Apache-2.0
"""`pyprof trigger PID`: make a running program record its next steps (`core/mailbox.py`, `capture/on_demand.py`).

The program must have called `pyprof.init()`, or have been started with PYPROF_TRIGGER after `pyprof enable`. From
Python 3.14 on it can be set up from outside (`sys.remote_exec`), if this command runs in the same version.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pyprof.core import mailbox
from pyprof.core.arguments import Parser
from pyprof.core.errors import CaptureError
from pyprof.core.frame import INTERRUPTED, say
from pyprof.core.mailbox import DONE, IDLE, RECORDING, REFUSED, REQUESTED, Mailbox

_LOOK = 0.05  # seconds between two checks of the answer
_REMIND = 10.0  # seconds without a step before a reminder is printed
_SET_UP = 10.0  # seconds for a running Python program to execute the script of sys.remote_exec
_REMOTE = """
import sys
if "torch" in sys.modules:
    sys.path.append({root!r})
    try:
        import pyprof
        pyprof.init()
    except Exception as error:
        print("pyprof: could not be set up (%s)." % error, file=sys.stderr)
    finally:
        sys.path.remove({root!r})
"""


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Record the next steps of running programs that called pyprof.init(), or were started with "
        "PYPROF_TRIGGER after pyprof enable. Prints the files' names. Example: pyprof trigger 4711 --steps 5"
    )
    parser.add_argument("pid", metavar="PID", nargs="+", type=_number, help="process; for several ranks each of them")
    parser.add_argument("--steps", metavar="N", type=_number, default=5, help="steps to record; default: %(default)s")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="net.sqlite",
        help="output file, with the number of a rank; an existing one is kept; default: %(default)s",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Send the requests, wait for the files and print their names."""
    failed = False
    with ExitStack() as boxes:
        pending: dict[int, Mailbox] = {}
        for pid in dict.fromkeys(arguments.pid):
            try:
                pending[pid] = _ask(pid, arguments.steps, os.path.abspath(arguments.output))
                boxes.callback(pending[pid].close)
            except CaptureError as error:
                failed = _say(str(error))
        try:
            return int(_wait(pending) or failed)
        except KeyboardInterrupt:
            for box in pending.values():
                if box.state == REQUESTED:
                    box.put(IDLE)
            return INTERRUPTED


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected 1 or more")
    return int(text)


def _say(sentence: str) -> bool:
    say("pyprof trigger", sentence)
    return True


def _ask(pid: int, steps: int, output: str) -> Mailbox:
    """Put a request into the mailbox of a process. Raises CaptureError."""
    import fcntl

    box = mailbox.of(pid) or _set_up(pid)
    if box is None:
        raise CaptureError(
            f"process {pid} cannot be triggered: it has not called pyprof.init(), nor imported torch with "
            "PYPROF_TRIGGER=1 set after pyprof enable."
        )
    try:
        fcntl.flock(box.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if box.state == RECORDING:
            raise BlockingIOError
    except BlockingIOError:
        box.close()
        raise CaptureError(f"process {pid} is in use by another pyprof trigger: wait for that one.") from None
    box.put(REQUESTED, steps=steps, output=output)
    return box


def _wait(boxes: dict[int, Mailbox]) -> bool:
    """Wait until all processes have answered, and print the names of the files. Returns whether one has none."""
    failed, began, waiting = False, time.monotonic(), dict(boxes)
    while waiting:
        for pid, box in list(waiting.items()):
            alive = _is_there(pid)
            state = box.state
            if state == DONE:
                print(box.content()["output"], flush=True)
            elif state == REFUSED:
                failed = _say(f"process {pid}: {box.content()['text']}")
            elif not alive:
                ended = (
                    "while it was recording: see its stderr for what was written"
                    if state == RECORDING
                    else "before a step did"
                )
                failed = _say(f"process {pid} ended {ended}.")
            else:
                continue
            del waiting[pid]
        if began and time.monotonic() - began > _REMIND:
            began = 0.0
            late = ", ".join(str(pid) for pid, box in waiting.items() if box.state == REQUESTED)
            if late:
                _say(f"waiting for the end of a step (pyprof.step(), else an optimizer's or loader's) in {late}.")
        time.sleep(_LOOK if waiting else 0)
    return failed


def _is_there(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _set_up(pid: int) -> Mailbox | None:
    """Make a Python of this version call `init`; return None if that is not possible. Not tried on a real 3.14 yet."""
    remote_exec: Any = getattr(sys, "remote_exec", None)
    if remote_exec is None:
        return None
    root = str(Path(__file__).resolve().parents[2])
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as script:
        script.write(_REMOTE.format(root=root))
        script.flush()
        os.chmod(script.name, 0o644)
        try:
            remote_exec(pid, script.name)
        except (OSError, RuntimeError, ValueError):  # no Python, another version, or not allowed
            return None
        end = time.monotonic() + _SET_UP
        while time.monotonic() < end:
            box = mailbox.of(pid)
            if box is not None:
                return box
            time.sleep(_LOOK)
    return None

# SPDX-License-Identifier: Apache-2.0
"""Child processes that read in parallel with this one.

They are started as `python -c`, not by multiprocessing, which would import the user's script again in each child, so
that `pyprof.load(folder)` at its top level would never end. They work until their pipe ends, however the parent
ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_CHILD_VARIABLE = "PYPROF_READS"  # in the environment of a child


def cores() -> int:
    """Return the number of processes that may read at a time: 1 in a child, which has no children."""
    if _CHILD_VARIABLE in os.environ or os.name != "posix":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(serve: Callable[..., None], *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a child that calls a function of a module with descriptors that are open in this process. Raises
    OSError."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {serve.__module__} import {serve.__name__}; "
        f"{serve.__name__}{(*descriptors,)!r}"
    )
    return subprocess.Popen([sys.executable, "-c", code], pass_fds=descriptors, stdin=subprocess.DEVNULL)


def serving(descriptor: int) -> Connection:
    """Set up a child process and return its end of the pipe."""
    os.environ[_CHILD_VARIABLE] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    return Connection(descriptor)


def answer(descriptor: int, work: Callable[[Any], Any]) -> None:
    """Answer requests in a child process until the pipe ends."""
    with serving(descriptor) as pipe, suppress(EOFError, OSError):
        while True:
            pipe.send(work(pipe.recv()))


def ended(source: object, process: subprocess.Popen[bytes]) -> str:
    """Return the message for a child that died while it read something."""
    return f"{source}: the process that read it ended ({process.wait()}); memory may be short."

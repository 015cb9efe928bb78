# SPDX-License-Identifier: Apache-2.0
"""Child processes that read beside this one.

They are started as `python -c`, not by multiprocessing: that would import the user's script again in each child, and
`pyprof.load(folder)` at its top level would never end. They work until their pipe ends, however the parent went.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

_INSIDE = "PYPROF_READS"  # in the environment of a child


def cores() -> int:
    """How many processes may read at a time: 1 in a child, which has no children."""
    if _INSIDE in os.environ or os.name != "posix":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(serve: Callable[..., None], *descriptors: int) -> subprocess.Popen[bytes]:
    """A child that calls a function of a module with files that are open here. Raises OSError."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {serve.__module__} import {serve.__name__}; "
        f"{serve.__name__}{(*descriptors,)!r}"
    )
    return subprocess.Popen([sys.executable, "-c", code], pass_fds=descriptors, stdin=subprocess.DEVNULL)


def serving(descriptor: int) -> Connection:
    """What a child does first. Returns its end of the pipe."""
    os.environ[_INSIDE] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    return Connection(descriptor)


def ended(what: object, process: subprocess.Popen[bytes]) -> str:
    """The sentence for a child that died while it read something."""
    return f"{what}: the process that read it ended ({process.wait()}); memory may be short."

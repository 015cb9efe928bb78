# SPDX-License-Identifier: Apache-2.0
"""Running the application: its input, output, exit code and signals are its own.

What the terminal sends (ctrl-C) reaches the application without us, for it is in the same process group; a signal that
another process sends to us alone is passed on. Either way the application ends as it would, and we go on: what it
recorded becomes a database.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyprof.errors import PyProfError

_PASSED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
           if hasattr(signal, name)]  # fmt: skip
_LOOK = 0.05  # seconds between two looks at what the application handles
_BLINK = 0.2  # seconds: whoever writes to the whole group has reached the application by then


@contextmanager
def signals_wait() -> Iterator[set[signal.Signals]]:
    """Signals that are passed on wait. Entered before anything starts threads, which would take them otherwise. Gives
    the mask of before; a signal that came while no application ran is handled at the end, as ever."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_PASSED, signal.SIGCHLD])
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(words: Sequence[str], mask: set[signal.Signals]) -> int:
    """Run a command in the foreground. Returns its exit code as a shell has it, 128 and the signal that ended it.
    Raises PyProfError if it cannot be run."""
    try:
        pid = os.posix_spawnp(words[0], list(words), os.environ, setsigmask=mask)
    except OSError as error:
        raise PyProfError(f"{words[0]}: cannot be run ({error.strerror}).") from error
    return _wait(pid)


def _wait(pid: int) -> int:
    if not hasattr(signal, "sigtimedwait"):  # macOS: signals to us alone wait until the application has ended
        return _code(os.waitpid(pid, 0)[1])
    caught = _caught(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return _code(status)
        came = signal.sigtimedwait([*_PASSED, signal.SIGCHLD], _LOOK)
        now = _caught(pid)
        before, caught = caught | now, now  # the handler may be there since we looked, or gone already
        if (
            came is None or came.si_signo == signal.SIGCHLD or came.si_code > 0
        ):  # the kernel's: everyone has it
            continue
        # To the group as well, perhaps (scancel, timeout): a second one would end what writes the recording.
        signal.sigtimedwait([signal.SIGCHLD], _BLINK)
        taken = before >> (came.si_signo - 1) & 1 and not _caught(pid) >> (came.si_signo - 1) & 1
        if not taken and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            os.kill(pid, came.si_signo)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _caught(pid: int) -> int:
    """The signals that a process handles, as a mask. PyProf's handler of SIGTERM puts itself away when it runs."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1], 16) for line in file if line.startswith("SigCgt")), 0)
    except (OSError, ValueError):
        return 0

# SPDX-License-Identifier: Apache-2.0
"""Run the application with its own input, output, exit code and signals.

Signals from the terminal (ctrl-C) reach the application directly, because it is in the same process group; a signal
that another process sends only to this process is forwarded. Either way the application ends as usual, and this
process goes on: what was recorded becomes a database.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyprof.core.errors import PyProfError

_FORWARDED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
           if hasattr(signal, name)]  # fmt: skip
_POLL = 0.05  # seconds between two checks of the application's handlers
_GRACE = 0.2  # seconds: a signal to the whole group has reached the application by then


@contextmanager
def signals_wait() -> Iterator[set[signal.Signals]]:
    """Block the signals that are forwarded, and yield the previous mask.

    Enter this before anything starts threads, which would receive them otherwise. A signal that arrived while no
    application ran is handled at the end, as usual.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_FORWARDED, signal.SIGCHLD])
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(words: Sequence[str], mask: set[signal.Signals]) -> int:
    """Run a command in the foreground and return its exit code as a shell does: 128 plus the signal that ended it.

    Raises PyProfError if it cannot be run.
    """
    try:
        pid = os.posix_spawnp(words[0], list(words), os.environ, setsigmask=mask)
    except OSError as error:
        raise PyProfError(f"{words[0]} cannot be run ({error.strerror}).") from error
    return _wait(pid)


def _wait(pid: int) -> int:
    if not hasattr(signal, "sigtimedwait"):  # macOS: signals to us alone wait until the application has ended
        return _code(os.waitpid(pid, 0)[1])
    caught = _caught(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return _code(status)
        received = signal.sigtimedwait([*_FORWARDED, signal.SIGCHLD], _POLL)
        now = _caught(pid)
        # The handler may have been set since the last check, or removed already.
        before, caught = caught | now, now
        # A positive si_code means the kernel sent it, to the whole group.
        if received is None or received.si_signo == signal.SIGCHLD or received.si_code > 0:
            continue
        # To the group as well, perhaps (scancel, timeout): a second one would end what writes the recording.
        signal.sigtimedwait([signal.SIGCHLD], _GRACE)
        was_handled = before >> (received.si_signo - 1) & 1 and not _caught(pid) >> (received.si_signo - 1) & 1
        if not was_handled and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            os.kill(pid, received.si_signo)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _caught(pid: int) -> int:
    """Return the signals that a process handles, as a mask. PyProf's handler of SIGTERM removes itself when it runs."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1], 16) for line in file if line.startswith("SigCgt")), 0)
    except (OSError, ValueError):
        return 0

# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends a recorded program as it always does, but the file is written first.

Launchers send it when a job is over or another rank has failed. Python itself would end without running anything.
Only where the program leaves the signal alone, only while the whole run (or a part that the command line chose) is
recorded, and a second SIGTERM does not wait.

A handler in Python runs when the main thread comes to its next instruction, which one that waits for other ranks never
does. So a thread hears of the signal too (`signal.set_wakeup_fd`), waits for `_PATIENCE` and then does it itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PATIENCE = 2.0  # seconds; launchers wait for 30 until they kill


class _Watch:
    """One installation of the handler."""

    def __init__(self, write: Callable[[], object]):
        self._write = write
        self._claimed = threading.Lock()
        self._begun = threading.Event()
        self.handler = self._handle  # one object, to be known again
        self._read, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self.handler)
        before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        if before != -1:  # the program's own: without the thread, then
            signal.set_wakeup_fd(before)
        threading.Thread(target=self._listen, name="pyprof", daemon=True).start()

    def remove(self) -> None:
        """From the main thread. What the program has set in the meantime stays."""
        if signal.getsignal(signal.SIGTERM) is self.handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._wake):
            signal.set_wakeup_fd(current)
        os.close(self._wake)  # which ends the thread

    def close(self) -> None:
        """The end that the thread reads."""
        os.close(self._read)

    def _handle(self, number: int, frame: Any) -> None:
        if self._claimed.acquire(blocking=False):
            self._begun.set()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._end()

    def _listen(self) -> None:
        with open(self._read, "rb", buffering=0) as signals:
            while numbers := signals.read(1):
                if numbers[0] != signal.SIGTERM or signal.getsignal(signal.SIGTERM) is not self.handler:
                    continue
                if not self._begun.wait(_PATIENCE) and self._claimed.acquire(blocking=False):
                    # signal.signal is for the main thread alone.
                    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
                    self._end()

    def _end(self) -> None:
        with suppress(BaseException):
            self._write()
        os.kill(os.getpid(), signal.SIGTERM)


_watch: _Watch | None = None


def install(write: Callable[[], object]) -> None:
    """Have `write` called at SIGTERM, before it ends the process."""
    global _watch
    if (
        _watch is None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        and os.name == "posix"
    ):
        _watch = _Watch(write)
        _watch.install()


def remove() -> None:
    """Put the signal back. From another thread than the main one it stays, and has nothing to write."""
    global _watch
    if _watch is not None and threading.current_thread() is threading.main_thread():
        _watch.remove()
        _watch = None


def forget() -> None:
    """In a forked child, which has no such thread: the signal is as it was."""
    global _watch
    if _watch is not None:
        _watch.remove()
        _watch.close()
        _watch = None

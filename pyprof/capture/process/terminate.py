# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends a recorded program as usual, but the file is written first.

Launchers send it when a job is over or another rank has failed. Python itself would end without running anything.
Only if the program does not handle the signal itself, only while the whole run (or a part selected on the command
line) is recorded, and a second SIGTERM does not wait.

A handler in Python runs at the next bytecode of the main thread, which a thread that waits for other ranks never
reaches. So another thread is notified of the signal too (`signal.set_wakeup_fd`), waits for `_PATIENCE` and then
writes the file itself. A child that has not started its own program yet would notify it as well: the thread checks
the sender.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyprof.capture import THREAD
from pyprof.capture.core.state import Slot, Until, owned

_PATIENCE = 2.0  # seconds; launchers wait for 30 until they kill
_CREDENTIALS = struct.Struct("3i")  # of the sender: process, user, group


class _Watch:
    """One installation of the handler."""

    def __init__(self, write: Callable[[], object]):
        self._write, self._pid = write, os.getpid()
        self._claimed = threading.Lock()
        self._begun = threading.Event()
        self.handler = self._handle  # a single object, for comparison
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._sender.setblocking(False)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self.handler)
        before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        if before != -1:  # the program has its own: go without the thread
            signal.set_wakeup_fd(before)
        threading.Thread(target=self._listen, name=THREAD, daemon=True).start()

    def remove(self) -> None:
        """Remove the handler, on the main thread. A handler that the program has set in the meantime stays."""
        if signal.getsignal(signal.SIGTERM) is self.handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._sender.fileno()):
            signal.set_wakeup_fd(current)
        self._sender.close()  # which ends the thread
        if os.getpid() != self._pid:  # a forked child has no such thread
            self._receiver.close()

    def _handle(self, number: int, frame: Any) -> None:
        if self._claimed.acquire(blocking=False):
            self._begun.set()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._end()

    def _listen(self) -> None:
        with self._receiver:
            while True:
                numbers, notes, _, _ = self._receiver.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
                if not numbers:
                    return
                own = any(_CREDENTIALS.unpack(note)[0] == os.getpid() for _, _, note in notes)
                if not own or numbers[0] != signal.SIGTERM:
                    continue
                if signal.getsignal(signal.SIGTERM) is not self.handler or self._begun.wait(_PATIENCE):
                    continue
                if self._claimed.acquire(blocking=False):
                    # signal.signal works only on the main thread.
                    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
                    self._end()

    def _end(self) -> None:
        with suppress(BaseException):
            self._write()
        os.kill(os.getpid(), signal.SIGTERM)


_watch: Slot[_Watch | None] = owned(Slot(None), Until.FORKED, lambda _: remove())
_masks = threading.local()  # during a fork


def install(write: Callable[[], object]) -> None:
    """Call `write` at SIGTERM, before it ends the process."""
    if (
        _watch.value is None
        and hasattr(socket, "SO_PASSCRED")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        _watch.value = _Watch(write)
        _watch.value.install()


def remove() -> None:
    """Restore the signal. On a thread other than the main one the handler stays, with nothing to write."""
    if _watch.value is not None and threading.current_thread() is threading.main_thread():
        _watch.value.remove()
        _watch.clear()


def block() -> None:
    """Block the signal before a fork: the child would lose one that arrives before the handler is removed there."""
    if _watch.value is not None:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def unblock() -> None:
    """Restore the signal's mask after a fork, in the parent and in the child."""
    before = _masks.__dict__.pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

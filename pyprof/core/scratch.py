# SPDX-License-Identifier: Apache-2.0
"""Temporary folders that do not outlive their process for long.

A folder is locked (flock) while in use, and the next process that needs one removes unlocked ones: leftovers of a
killed process, an unpacked archive for instance, may be gigabytes. SIGTERM and SIGHUP, which end a command without
Python's cleanup, remove them immediately.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None

_PREFIX = "pyprof-scratch-"
_FRESH = 60  # seconds in which a new folder may not be locked yet
_open: dict[str, int] = {}  # folders in use -> the process that created them


class Folder(tempfile.TemporaryDirectory[str]):
    """Temporary folder, used like `tempfile.TemporaryDirectory`. Raises OSError."""

    def __init__(self) -> None:
        _prune(tempfile.gettempdir())
        super().__init__(prefix=_PREFIX)
        _open[self.name] = os.getpid()
        self._lock = _locked(self.name)

    def cleanup(self) -> None:
        super().cleanup()
        _open.pop(self.name, None)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def around(path: str) -> str | None:
    """Return the folder for temporary files, if `path` is in a folder of this process in it."""
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if folder in _open else None


def display_name(path: str) -> str:
    """Return the name of a file as a person is told it: without the path where that is a temporary folder."""
    folder = os.path.dirname(path)
    return os.path.basename(path) if {folder, os.path.dirname(folder)} & _open.keys() else path


@contextmanager
def removed_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP remove the folders of this process before they end it. Main thread only; ignored signals
    and handlers of others stay."""
    handled = []
    try:
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is signal.SIG_DFL:
                with suppress(ValueError):  # not on the main thread
                    signal.signal(number, _end)
                    handled.append(number)
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    for name, process in [*_open.items()]:
        if process == os.getpid():  # a forked child has the entries of its parent, too
            shutil.rmtree(name, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _locked(name: str) -> int | None:
    """Return a descriptor that holds the lock of a folder; None without lock support."""
    if fcntl is None:
        return None
    file = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


@cache  # once in a process
def _prune(top: str) -> None:
    """Remove the folders in `top` that processes of this user have left behind."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_left(entry):
                    lock = _locked(entry.path)
                    if lock is not None:
                        shutil.rmtree(entry.path, ignore_errors=True)
                        os.close(lock)


def _is_left(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    return (
        entry.is_dir(follow_symlinks=False) and status.st_uid == os.getuid() and status.st_mtime < time.time() - _FRESH
    )

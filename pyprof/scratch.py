# SPDX-License-Identifier: Apache-2.0
"""Temporary folders that do not outlive their process for long.

A folder is locked (flock) as long as it is in use, and the next process that needs one removes those that nobody holds:
what a killed process left, an unpacked archive for instance, may be gigabytes. SIGTERM and SIGHUP, which end a command
without Python's cleaning up, remove them at once.
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
_FRESH = 60  # seconds in which a folder may have been made and not been locked yet
_open: dict[str, int] = {}  # folders in use, by the process that made them


class Folder(tempfile.TemporaryDirectory[str]):
    """A temporary folder, to be used like `tempfile.TemporaryDirectory`. Raises OSError."""

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
    """The folder for temporary files, where `path` is in a folder of this process's there."""
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if folder in _open else None


@contextmanager
def removed_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP remove the folders of this process before they end it. Of the main thread; where the
    signals are ignored or somebody else's, they stay so."""
    ours = []
    try:
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is signal.SIG_DFL:
                with suppress(ValueError):  # of another thread
                    signal.signal(number, _end)
                    ours.append(number)
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    for name, process in [*_open.items()]:
        if process == os.getpid():  # a forked child has those of its parent, too
            shutil.rmtree(name, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _locked(name: str) -> int | None:
    """A descriptor that holds the lock of a folder; None where there are no locks."""
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
    found = entry.stat(follow_symlinks=False)
    return (
        entry.is_dir(follow_symlinks=False)
        and found.st_uid == os.getuid()
        and found.st_mtime < time.time() - _FRESH
    )

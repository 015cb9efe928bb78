# SPDX-License-Identifier: Apache-2.0
"""Databases that the viewer makes: of recordings, and copies of databases to which an aggregation was added.

They lie in the user's cache folder ($XDG_CACHE_HOME/pyprof or ~/.cache/pyprof), never beside the input, under a name
made of the input's path, size and time and of the version of PyProf: an input that changes is read anew, and so is
every one with the figures of a new version. What nobody opened for thirty days is removed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pyprof import __version__
from pyprof.errors import FormatError, PyProfError
from pyprof.parse import folder as folders
from pyprof.store.files import MAJOR, MINOR

_DAYS = 30


class Stamp(NamedTuple):
    """Which content a path has: of a folder that of its recordings."""

    files: tuple[tuple[str, int, int], ...]  # path, size, time of change in ns

    @staticmethod
    def of(path: Path) -> Stamp:
        """Raises OSError if nothing is there."""
        if not path.is_dir():
            return Stamp((_said(path),))
        try:
            found, _ = folders.inputs(path)
        except FormatError as error:
            raise FileNotFoundError(str(error)) from error
        return Stamp(tuple(_said(one.path) for one in found))

    @property
    def key(self) -> str:
        text = repr((__version__, MAJOR, MINOR, self.files))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _said(path: Path) -> tuple[str, int, int]:
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns


def place() -> Path:
    """The folder, made if it is not there; nobody else can read it. Raises PyProfError."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base if os.path.isabs(base) else Path.home() / ".cache") / "pyprof" / "view"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise PermissionError(None, "it belongs to somebody else")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PyProfError(
            f"{folder}: databases of the viewer cannot be kept there ({reason}); set XDG_CACHE_HOME to another folder."
        ) from error
    return folder


def database(stamp: Stamp) -> Path:
    """Where the database of an input is, or would be. Using it keeps it. Raises PyProfError."""
    path = place() / f"{stamp.key}.sqlite"
    with suppress(OSError):
        os.utime(path.with_suffix(".used"))
    return path


def used(path: Path) -> None:
    """Remember that a database was opened: its own time of change is not touched."""
    with suppress(OSError):
        path.with_suffix(".used").touch()


def prune() -> None:
    """Remove what was not opened for long."""
    oldest = time.time() - _DAYS * 86400
    with suppress(PyProfError, OSError):
        for path in _old(place(), oldest):
            for each in (path, path.with_suffix(".used")):
                with suppress(FileNotFoundError):
                    each.unlink()


def _old(folder: Path, oldest: float) -> Iterator[Path]:
    for path in folder.glob("*.sqlite"):
        mark = path.with_suffix(".used")
        if max(one.stat().st_mtime for one in (path, mark) if one.exists()) < oldest:
            yield path

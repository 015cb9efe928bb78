# SPDX-License-Identifier: Apache-2.0
"""Databases that the viewer creates: from recordings, and copies of databases to which an aggregation was added.

They are in the user's cache folder ($XDG_CACHE_HOME/pyprof or ~/.cache/pyprof), never beside the input. Their names
are derived from the input's path, size and time and from the version of PyProf: a changed input is read again, and
so are all inputs by a new version. Databases that were not opened for thirty days are removed.
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
from pyprof.core.errors import FormatError, PyProfError
from pyprof.parse import folder as folders
from pyprof.store.files import MAJOR, MINOR

_DAYS = 30


class Stamp(NamedTuple):
    """Identity of a path's content; for a folder, that of its recordings."""

    files: tuple[tuple[str, int, int], ...]  # path, size, time of change in ns

    @staticmethod
    def of(source: folders.Source) -> Stamp:
        """Return the stamp of a run. Raises OSError if nothing is there."""
        path, files = source
        if files is not None:
            return Stamp(tuple(_entry(path / name) for name in files))
        if not path.is_dir():
            return Stamp((_entry(path),))
        try:
            inputs, _ = folders.inputs(path)
        except FormatError as error:
            raise FileNotFoundError(str(error)) from error
        return Stamp(tuple(_entry(input.path) for input in inputs))

    @property
    def key(self) -> str:
        text = repr((__version__, MAJOR, MINOR, self.files))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _entry(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def cache_folder() -> Path:
    """Return the cache folder, created if needed; other users cannot read it. Raises PyProfError."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base if os.path.isabs(base) else Path.home() / ".cache") / "pyprof" / "view"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise PermissionError(None, "it belongs to another user")
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PyProfError(
            f"{folder}: the viewer cannot store databases there ({reason}); set XDG_CACHE_HOME to another folder."
        ) from error
    return folder


def database(stamp: Stamp) -> Path:
    """Return the path of an input's database, existing or not, and mark it as used. Raises PyProfError."""
    path = cache_folder() / f"{stamp.key}.sqlite"
    with suppress(OSError):
        os.utime(path.with_suffix(".used"))
    return path


def touch(path: Path) -> None:
    """Record that a database was opened, without touching its own modification time."""
    with suppress(OSError):
        path.with_suffix(".used").touch()


def prune() -> None:
    """Remove databases and tokens that were not used for a long time."""
    oldest = time.time() - _DAYS * 86400
    with suppress(PyProfError, OSError):
        for path in _old(cache_folder(), oldest):
            for file in (path, path.with_suffix(".used")):
                with suppress(FileNotFoundError):
                    file.unlink()


def _old(folder: Path, oldest: float) -> Iterator[Path]:
    yield from (path for path in folder.glob("*.token") if path.stat().st_mtime < oldest)
    for path in folder.glob("*.sqlite"):
        mark = path.with_suffix(".used")
        if max(file.stat().st_mtime for file in (path, mark) if file.exists()) < oldest:
            yield path

# SPDX-License-Identifier: Apache-2.0
"""Databases of recordings, kept between runs of the tests: reading the larger ones takes seconds.

A database is named by the recording's content and by the code that made it, so that none is ever out of date. They are
in a folder of the system's for temporary files; those of code that is gone are removed after a day.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import tempfile
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(tempfile.gettempdir()) / f"pyprof-tests-{getpass.getuser()}"
_DAY_S = 86_400


def _files(path: Path, pattern: str) -> list[Path]:
    return sorted(path.rglob(pattern)) if path.is_dir() else [path]


def _digest(files: list[Path]) -> str:
    out = hashlib.sha256()
    for file in files:
        if file.is_file():
            out.update(str(file).encode() + b"\0" + file.read_bytes())
    return out.hexdigest()[:16]


@cache
def _code() -> str:
    return _digest(_files(ROOT / "pyprof", "*.py") + _files(ROOT / "pyprof", "*.c"))


def of(recording: Path) -> Path:
    """Return the database of a recording, made first if it isn't there. Processes wait for the one that makes it."""
    from pyprof import profiles

    FOLDER.mkdir(mode=0o700, exist_ok=True)
    path = FOLDER / _code() / f"{_digest(_files(recording, '*'))}_{recording.name.split('.')[0]}_dldb.sqlite"
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _remove_old()
            profiles.load(recording).save(path)
    return path


def _remove_old() -> None:
    """Remove databases that no run of the last day made."""
    for file in FOLDER.glob("*/*"):
        if file.parent.name != _code() and time.time() - file.stat().st_mtime > _DAY_S:
            file.unlink(missing_ok=True)

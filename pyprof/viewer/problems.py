# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as the page shows it: RFC 9457 problems."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from pyprof.errors import FormatError, PyProfError, UsageError

TITLES = {
    "parameter": (422, "Bad parameter in the URL"),
    "missing": (404, "Not there"),
    "token": (401, "Token needed"),
    "host": (400, "Unknown host"),
    "forbidden": (403, "Not allowed"),
    "foreign": (409, "No legal profile"),
    "older": (409, "Older database"),
    "newer": (409, "Newer database"),
    "damaged": (409, "Damaged database"),
    "vanished": (410, "The database cannot be found"),
    "unreadable": (409, "The recording cannot be read"),
    "opening": (503, "Being opened"),
    "slow": (503, "Took too long"),
    "busy": (503, "Busy"),
    "internal": (500, "A fault of the viewer"),
}


class Trouble(PyProfError):
    """A problem for whoever asked."""

    def __init__(self, type_: str, detail: str, parameter: str | None = None, progress: float | None = None):
        super().__init__(detail)
        self.type, self.parameter, self.progress = type_, parameter, progress
        self.status, self.title = TITLES[type_]

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "type": self.type, "title": self.title, "status": self.status, "detail": str(self),
            "parameter": self.parameter, "progress": self.progress,
        }  # fmt: skip


def of_file(path: Path, error: PyProfError) -> Trouble:
    """What is wrong with a file that cannot be opened."""
    if isinstance(error, Trouble):
        return error
    if not path.exists():
        return Trouble(
            "vanished",
            f"{path}: no such file. Start the viewer again: pyprof view FILE, or dlprofviewer FILE.",
        )
    found = _version(path)
    if found is not None:
        from pyprof.db.store import MAJOR, MINOR

        if found != (MAJOR, MINOR):
            return Trouble("older" if found < (MAJOR, MINOR) else "newer", str(error))
        return Trouble("damaged", str(error))
    if _is_sqlite(path) or (path.is_file() and not path.stat().st_size):
        return Trouble("foreign", str(error))
    return Trouble("unreadable", str(error))


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _version(path: Path) -> tuple[int, int] | None:
    """The schema of a profile database; None for another file."""
    from pyprof.db import store

    try:
        if not path.is_file() or not store.is_database(path):
            return None
        connection = sqlite3.connect(f"file:{path.resolve().as_uri()[7:]}?mode=ro", uri=True)
        try:
            meta = dict(connection.execute("select name, value from meta where name like 'schema_%'"))
        finally:
            connection.close()
        return int(meta["schema_major"]), int(meta["schema_minor"])
    except (OSError, sqlite3.Error, KeyError, ValueError, TypeError):
        return store.MAJOR, store.MINOR


def of_error(error: PyProfError) -> Trouble:
    """What went wrong while a request was answered."""
    if isinstance(error, Trouble):
        return error
    if isinstance(error, UsageError):
        return Trouble("parameter", str(error))
    if isinstance(error, FormatError):
        return Trouble("damaged", str(error))
    return Trouble("internal", str(error))

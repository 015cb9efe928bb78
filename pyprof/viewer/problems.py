# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as the page shows it: RFC 9457 problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyprof.errors import FormatError, PyProfError, UsageError, VersionError
from pyprof.sqlite_file import is_profile, is_sqlite

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
    if isinstance(error, VersionError):
        return Trouble("newer" if error.newer else "older", str(error))
    try:
        if path.is_file():
            if is_profile(path):
                return Trouble("damaged", str(error))
            if not path.stat().st_size or is_sqlite(path):
                return Trouble("foreign", str(error))
    except OSError:
        pass
    return Trouble("unreadable", str(error))


def of_error(error: PyProfError) -> Trouble:
    """What went wrong while a request was answered."""
    if isinstance(error, Trouble):
        return error
    if isinstance(error, UsageError):
        return Trouble("parameter", str(error))
    if isinstance(error, FormatError):
        return Trouble("damaged", str(error))
    return Trouble("internal", str(error))

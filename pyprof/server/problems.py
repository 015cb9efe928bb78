# SPDX-License-Identifier: Apache-2.0
"""Errors as the page shows them: RFC 9457 problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyprof.core.errors import DamagedError, FormatError, PyProfError, UsageError, VersionError
from pyprof.core.sqlite_file import is_profile, is_sqlite
from pyprof.views.problems import Trouble

TITLES = {
    "parameter": (422, "Bad parameters found in URL"),
    "missing": (404, "Not found"),
    "token": (401, "A token is needed"),
    "host": (400, "Unknown host"),
    "forbidden": (403, "Not allowed"),
    "foreign": (409, "The recording cannot be read"),
    "older": (409, "An older database was found"),
    "newer": (409, "A newer database was found"),
    "damaged": (409, "The database is damaged"),
    "vanished": (410, "The file cannot be found"),
    "unreadable": (409, "The recording cannot be read"),
    "empty": (404, "No recording here yet"),
    "opening": (503, "The recording is being read"),
    "slow": (503, "Timed out"),
    "busy": (503, "Busy"),
    "internal": (500, "Internal error"),
}


def status(trouble: Trouble) -> int:
    """Return the HTTP status."""
    return TITLES[trouble.type][0]


def body(trouble: Trouble) -> dict[str, Any]:
    """Return the JSON body."""
    code, title = TITLES[trouble.type]
    return {
        "type": trouble.type, "title": title, "status": code, "detail": str(trouble),
        "parameter": trouble.parameter, "progress": trouble.progress, "recording": trouble.recording,
    }  # fmt: skip


def of_file(path: Path, error: PyProfError) -> Trouble:
    """Return the problem with a file that cannot be opened."""
    if isinstance(error, Trouble):
        return error
    if not path.exists():
        return Trouble(
            "vanished",
            f"{path}: no such file. Start the viewer again: pyprof view FILE, or dlprofviewer FILE.",
        )
    if isinstance(error, VersionError):
        return Trouble("newer" if error.newer else "older", str(error))
    if isinstance(error, DamagedError):  # of a recording's database in the cache, too
        return Trouble("damaged", str(error))
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
    """Return the problem for an error during a request."""
    if isinstance(error, Trouble):
        return error
    if isinstance(error, UsageError):
        return Trouble("parameter", str(error))
    if isinstance(error, FormatError):
        return Trouble("damaged", str(error))
    return Trouble("internal", str(error))

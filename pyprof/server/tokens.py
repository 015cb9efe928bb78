# SPDX-License-Identifier: Apache-2.0
"""The token of a served file: the same after a restart, so that open pages and saved addresses go on working."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pyprof.core.errors import PyProfError, UsageError
from pyprof.server.cache import cache_folder
from pyprof.server.security import new_token

VARIABLE = "PYPROF_VIEW_TOKEN"
_VALID = re.compile(r"[A-Za-z0-9_-]{16,200}")


def token_of(files: Sequence[str]) -> str:
    """Return the token that PYPROF_VIEW_TOKEN sets, else that of the last server of the same files, else a new one,
    which is kept in the cache folder for this user only. Raises UsageError for a token that is too short or has other
    characters than URLs may have."""
    own = os.environ.get(VARIABLE)
    if own is not None:
        if not _VALID.fullmatch(own):
            raise UsageError(f"{VARIABLE}: expected 16 to 200 letters, digits, - or _.")
        return own
    with suppress(PyProfError, OSError):  # without a cache folder the token is as good, and not kept
        path = _path(files)
        token = _read(path)
        if token is None:
            token = new_token()
            _write(path, token)
        else:
            os.utime(path)  # in use: what is not opened for long is removed
        return token
    return new_token()


def _path(files: Sequence[str]) -> Path:
    names = "\0".join(str(Path(name).resolve()) for name in files)
    return cache_folder() / f"{hashlib.sha256(names.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.token"


def _read(path: Path) -> str | None:
    """Return a kept token; None without one, or if others could have read or written it."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            return None
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _VALID.fullmatch(text) else None


def _write(path: Path, token: str) -> None:
    """Write a token for this user only; another server that starts at this moment has the whole of one of them."""
    part = path.with_suffix(f".{os.getpid()}")
    with suppress(FileNotFoundError):
        part.unlink()
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w", encoding="ascii") as stream:
        stream.write(token)
    part.replace(path)

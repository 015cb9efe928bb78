# SPDX-License-Identifier: Apache-2.0
"""Files that a command is given, before anything is read."""

from __future__ import annotations

import stat
from pathlib import Path

from pyprof.errors import FormatError


def check(path: Path, expected: str) -> None:
    """Raise FormatError for what is neither a file nor a folder: a pipe or a device may have no end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file; give the path of {expected}.") from None
    except (OSError, ValueError) as error:  # a name with NUL
        raise FormatError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise FormatError(f"{path}: is {kind}, not a file; copy what it gives into a file first.")

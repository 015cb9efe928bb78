# SPDX-License-Identifier: Apache-2.0
"""Checks of the input files of a command, before anything is read."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.core.errors import FormatError

if TYPE_CHECKING:
    from pyprof.core.model import Ints

_RATIO, _SMALL = 200, 256 << 20
LONGEST = 2**62  # ns


def largest(compressed: int) -> int:
    """Return the maximum number of bytes accepted from so many compressed ones: a trace expands 10 to 60 times, a file
    made to exhaust memory a thousand times.

    >>> largest(1_000_000) == 256 << 20, largest(10_000_000)
    (True, 2000000000)
    """
    return max(_SMALL, _RATIO * compressed)


def check(path: Path, expected: str) -> None:
    """Raise FormatError for a path that is neither a file nor a folder: a pipe or a device may have no end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file; expected the path of {expected}.") from None
    except (OSError, ValueError) as error:  # a name with NUL
        raise FormatError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise FormatError(f"{path} is {kind}, not a file; copy its output into a file first.")


def check_sum(path: str, *durations: Ints) -> None:
    """Raise FormatError if times add up to more than a column of sums can hold, with room for the sum of two."""
    if any(float(values.sum(dtype=float)) >= LONGEST for values in durations):
        raise too_long(path)


def too_long(path: str) -> FormatError:
    """Return the error for times that add up to more."""
    return FormatError(
        f"{path}: its times add up to more than 146 years, so some must be wrong. Record again, or look for "
        "events that are too long."
    )

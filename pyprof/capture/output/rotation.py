# SPDX-License-Identifier: Apache-2.0
"""What becomes of a file that has the name of a new recording: it is kept, under a number.

The newest recording has the name that was asked for. An older `net.sqlite` becomes the first of `net.1.sqlite`,
`net.2.sqlite` ... that is free, `net.rank0.sqlite` becomes `net.rank0.1.sqlite`. It gets that name as a hard link
before the new file replaces it, so that at no time there is none, and two processes never take the same number. A
recording without operators, calls and kernels replaces nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count

HINT = "Did the program use torch while it was recorded?"


def stays(path: str, name: str) -> bool:
    """Whether a file at `path` stays because the new recording, to be called `name`, is empty; a line says so."""
    if not os.path.exists(path) or not os.path.getsize(path):
        return False
    print(
        f"pyprof: nothing was recorded (0 operators, 0 calls), {name} stays as it was. {HINT}",
        file=sys.stderr,
    )
    return True


def put(path: str, name: str, write: Callable[[Callable[[str], None]], None]) -> None:
    """Let `write` make a file at `path` and keep an older one, which a line on stderr says.

    `write` gets a function to call with the file's whole name, just before the file gets it. If writing fails, the
    older file has its name as before."""
    kept: list[tuple[str, str]] = []

    def before(target: str) -> None:
        older = aside(target)
        if older is not None:
            kept.append((target, older))

    try:
        write(before)
    except BaseException:
        for target, older in kept:
            _back(target, older)
        raise
    for _, older in kept:
        shown = os.path.join(os.path.dirname(name), os.path.basename(older))
        print(f"{name}: the older file of this name is kept as {shown}", file=sys.stderr)


def _back(target: str, older: str) -> None:
    with suppress(OSError):
        if os.path.exists(target):  # with two names
            os.unlink(older)
        else:
            os.replace(older, target)


def aside(path: str) -> str | None:
    """Give the file at `path` a second, numbered name; returns that, or None if there is no file or nothing in it.

    Raises OSError if the folder takes no further name.
    """
    try:
        if not os.path.getsize(path):
            return None
    except FileNotFoundError:
        return None
    root, extension = os.path.splitext(path)
    for number in count(1):
        name = f"{root}.{number}{extension}"
        try:
            os.link(path, name)
        except FileExistsError:
            continue
        except FileNotFoundError:  # another process has renamed it
            return None
        except OSError:  # a file system without hard links
            if not _renamed(path, name):
                continue
        return name
    return None


def _renamed(path: str, name: str) -> bool:
    """Rename a file without replacing another; False if the name is taken."""
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    os.replace(path, name)
    return True

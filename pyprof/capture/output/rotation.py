# SPDX-License-Identifier: Apache-2.0
"""Rotation of files: an existing file with the name of a new recording is kept, under a number.

The newest recording has the requested name. An older `net.sqlite` becomes the first free of `net.1.sqlite`,
`net.2.sqlite` ..., and `net.rank0.sqlite` becomes `net.rank0.1.sqlite`. It gets that name as a hard link before the
new file replaces it, so that a file always exists, and two processes never use the same number. A recording without
operators, calls and kernels replaces nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count

HINT = "Did the program use torch while it was recorded?"


def stays(path: str, name: str) -> bool:
    """Return whether a file at `path` stays because the new recording, to be called `name`, is empty; print a line if
    so."""
    if not os.path.exists(path) or not os.path.getsize(path):
        return False
    print(
        f"pyprof: nothing was recorded (0 operators, 0 calls), {name} stays as it was. {HINT}",
        file=sys.stderr,
    )
    return True


def put(path: str, name: str, write: Callable[[Callable[[str], None]], None]) -> None:
    """Let `write` create a file at `path`, keep an older one, and print a line about that on stderr.

    `write` receives a function to call with the file's full name, just before the file gets it. If writing fails,
    the older file keeps its name.
    """
    renamed: list[tuple[str, str]] = []

    def before(target: str) -> None:
        older = add_numbered_name(target)
        if older is not None:
            renamed.append((target, older))

    try:
        write(before)
    except BaseException:
        for target, older in renamed:
            _restore(target, older)
        raise
    for _, older in renamed:
        visible_name = os.path.join(os.path.dirname(name), os.path.basename(older))
        print(f"{name}: the older file of this name is kept as {visible_name}", file=sys.stderr)


def _restore(target: str, older: str) -> None:
    with suppress(OSError):
        if os.path.exists(target):  # with two names
            os.unlink(older)
        else:
            os.replace(older, target)


def add_numbered_name(path: str) -> str | None:
    """Give the file at `path` a second, numbered name; return it, or None if the file is missing or empty.

    Raises OSError if no file can be created in the folder.
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
            if not _rename(path, name):
                continue
        return name
    return None


def _rename(path: str, name: str) -> bool:
    """Rename a file without replacing another; return False if the name is in use."""
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    os.replace(path, name)
    return True

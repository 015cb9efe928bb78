# SPDX-License-Identifier: Apache-2.0
"""Profile databases in formats of other tools. Open folder: a module here with a function decorated by `exporter`.

The function fills the file that it is given the name of; `write` makes it appear whole or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from pyprof import atomic_file
from pyprof.errors import PyProfError, UsageError
from pyprof.registry import Registry, load_folder
from pyprof.store.files import Store


class Window(NamedTuple):
    """What is exported: all that is going on between two times, ns from the recording's first event; None: no bound."""

    start: int | None = None
    end: int | None = None

    def sql(self, begin: str, length: str) -> str:
        """A condition that something of this begin and length, SQL expressions in ns, is in the window."""
        parts = [] if self.end is None else [f"{begin} < {int(self.end)}"]
        if self.start is not None:
            # What is empty is in the window if it is at its start.
            parts.append(f"({begin} + {length} > {int(self.start)} or {begin} = {int(self.start)})")
        return " and ".join(parts) or "1"


_Fill = Callable[[Store, Window, str, bool], None]  # database, window, file to fill, whether to compress it
EXPORTS: Registry[_Fill] = Registry("export format")


def exporter(name: str) -> Callable[[_Fill], _Fill]:
    """Decorator: the function writes this format. Raises UsageError for a database that it cannot show."""
    return EXPORTS.register(name)


def formats() -> tuple[str, ...]:
    """Names of the formats."""
    load_folder(__name__)
    return tuple(sorted(EXPORTS))


def write(
    format_: str, store: Store, path: str | os.PathLike[str], start: int | None = None, end: int | None = None
) -> None:
    """Write a database, or what is going on from `start` to `end` (ns from the first event), in a format: whole or not
    at all, compressed if the name ends in .gz and the format can be. Raises UsageError for a format that does not exist
    or a window that is none, PyProfError where the file cannot be written."""
    if format_ not in formats():
        raise UsageError(f"export format {format_!r} does not exist; choose from {', '.join(formats())}.")
    if start is not None and end is not None and end <= start:
        raise UsageError(f"the window from {start} to {end} ns is empty; its end has to be after its start.")
    name = os.fspath(path)
    try:
        with store.translate_errors(), atomic_file.named(name) as scratch:
            EXPORTS[format_](store, Window(start, end), scratch, name.endswith(".gz"))
    except (OSError, sqlite3.OperationalError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error)
        raise PyProfError(
            f"{name}: the export could not be written ({reason}). Name another file."
        ) from error
    except sqlite3.DatabaseError as error:  # pages that do not fit together, two rows of one number
        raise store.damaged(error) from error

# SPDX-License-Identifier: Apache-2.0
"""Profile databases in formats of other tools. Open folder: a module here with a function decorated by `exporter`.

The function fills the file at the given path; `write` makes it appear atomically.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from pyprof.core import atomic_file
from pyprof.core.errors import PyProfError, UsageError
from pyprof.core.registry import Registry, load_folder
from pyprof.store.files import Store


class Window(NamedTuple):
    """Exported time range: everything in progress between two times, ns since the recording's first event; None:
    unbounded."""

    start: int | None = None
    end: int | None = None

    def sql(self, begin: str, length: str) -> str:
        """Return a condition that an event with this start and length, SQL expressions in ns, is in the window."""
        parts = [] if self.end is None else [f"{begin} < {int(self.end)}"]
        if self.start is not None:
            # An empty event is in the window if it is at its start.
            parts.append(f"({begin} + {length} > {int(self.start)} or {begin} = {int(self.start)})")
        return " and ".join(parts) or "1"


_Fill = Callable[[Store, Window, str, bool], None]  # database, window, path of the file, whether to compress it
EXPORTS: Registry[_Fill] = Registry("export format")


def exporter(name: str) -> Callable[[_Fill], _Fill]:
    """Return a decorator for a function that writes this format. It raises UsageError for a database that the format
    cannot show."""
    return EXPORTS.register(name)


def formats() -> tuple[str, ...]:
    """Return the names of the formats."""
    load_folder(__name__)
    return tuple(sorted(EXPORTS))


def write(
    format_: str, store: Store, path: str | os.PathLike[str], start: int | None = None, end: int | None = None
) -> None:
    """Write a database, or what is in progress from `start` to `end` (ns since the first event), in a format. The file
    is written atomically, and compressed if the name ends in .gz and the format allows it. Raises UsageError for an
    unknown format or an empty window, PyProfError if the file cannot be written."""
    if format_ not in formats():
        raise UsageError(f"unknown export format {format_!r}; choose from {', '.join(formats())}.")
    if start is not None and end is not None and end <= start:
        raise UsageError(f"the window from {start} to {end} ns is empty; its end must be after its start.")
    name = os.fspath(path)
    try:
        with store.translate_errors(), atomic_file.named(name) as scratch:
            EXPORTS[format_](store, Window(start, end), scratch, name.endswith(".gz"))
    except (OSError, sqlite3.OperationalError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error)
        raise PyProfError(f"{name}: the export could not be written ({reason}). Name another file.") from error
    except sqlite3.DatabaseError as error:  # inconsistent pages, duplicate ids
        raise store.damaged(error) from error

# SPDX-License-Identifier: Apache-2.0
"""The folder of a fleet (pyprof/fleet): the summary of all recordings, and beside it the database of each."""

from __future__ import annotations

from pathlib import Path

from pyprof.core.errors import FormatError
from pyprof.core.model import NOT_READ
from pyprof.store.files import Store, is_database

SUMMARY = "fleet.sqlite"  # the summary's name


def summary_in(path: Path) -> Path | None:
    """Return the summary of a fleet that a path is, or that is in the folder; None without one. A damaged database of a
    folder that has the summary's name is one: opening it tells what is wrong."""
    file = path / SUMMARY if path.is_dir() else path
    try:
        if not file.is_file() or not is_database(file):
            return None
        with Store(file, summary=True) as store:
            return file if store.is_summary else None
    except (FormatError, OSError):
        return file if file != path else None


def failed(store: Store) -> list[str]:
    """Return why recordings are missing, a sentence each."""
    reasons = (reason for (reason,) in store.rows("select reason from lost order by reason"))
    return [reason.removeprefix(NOT_READ) for reason in reasons if reason.startswith(NOT_READ)]


def databases(summary: Path) -> dict[str, Path]:
    """Return the database of each worker, by the workers' names. Raises FormatError."""
    with Store(summary, summary=True) as store:
        rows = store.rows("select w.name, r.database from recording r join worker w on w.id = r.worker order by w.id")
        folder = summary.parent
        for _, name in rows:
            if Path(str(name)).name != name or not name.endswith(".sqlite"):  # the file may be from anyone
                raise store.damaged(f"{name!r} is no name of a database beside it")
    return {name: folder / database for name, database in rows}

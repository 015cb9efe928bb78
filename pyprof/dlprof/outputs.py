# SPDX-License-Identifier: Apache-2.0
"""Where everything goes, and whether it can: known before the application runs.

A file that is there is an error without --force, but the database gets the next free name, so that aggregating a
recording a second time keeps the first one.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from pyprof import atomic_file
from pyprof.dlprof.options import Settings
from pyprof.errors import CaptureError, UsageError
from pyprof.render import writers
from pyprof.reports import Report, find

_DATABASE = "_dldb"
_ENDING = ".sqlite"
OF_NSYS = (".nsys-rep", ".qdrep")


class Outputs(NamedTuple):
    """`recording` is None where an existing file is aggregated, `events` where TensorBoard gets nothing."""

    folder: str
    recording: str | None
    database: str
    model_data: str | None
    events: str | None
    reports: tuple[Report, ...]
    made: bool  # the folder was not there


def outputs(settings: Settings) -> Outputs:
    """All names. Makes the folder; raises UsageError for what cannot be written, before anything is."""
    folder = settings.output_path
    made = _folder(folder)
    base = os.path.normpath(os.path.join(folder, settings.profile_name))
    recording = None
    if not settings.nsys_database:
        recording = os.path.normpath(os.path.join(folder, settings.nsys_base_name + _ENDING))
    model_data = f"{base}_model_data.json" if settings.dump_model_data else None
    reports = tuple(find(name) for name in settings.reports)
    of_nsys = [recording.removesuffix(_ENDING) + ending for ending in OF_NSYS] if recording else []
    if not settings.force:
        _refuse_existing([recording, *of_nsys, model_data, *_report_files(settings, reports)])
    found = Outputs(
        os.path.normpath(folder), recording, _database(base, settings.force), model_data,
        None if settings.suppress_tb_files else os.path.normpath(os.path.join(folder, settings.tb_dir)), reports, made,
    )  # fmt: skip
    _refuse_input(settings, found)
    if made:
        _make(folder)
    for path in filter(None, (found.recording, found.database)):
        try:
            atomic_file.check(path)
        except CaptureError as error:
            raise UsageError(f"{path}: {error}") from error
    return found


def profile_names(settings: Settings) -> list[str]:
    """What the names of report files begin with, for each of the domains, or for all of them together."""
    if not settings.domains:
        return [settings.profile_name]
    return [f"{settings.profile_name}_{each.replace('/', '_')}" for each in settings.domains]


def _report_files(settings: Settings, reports: tuple[Report, ...]) -> list[str]:
    names = profile_names(settings)
    return [
        os.path.normpath(os.path.join(settings.output_path, writers.file_name(report, name, ending)))
        for name in names for report in reports for ending in settings.formats
    ]  # fmt: skip


def _folder(folder: str) -> bool:
    """Whether the folder has to be made."""
    if os.path.isdir(folder):
        return False
    if os.path.exists(folder):
        raise UsageError(f"--output_path={folder}: is a file; expected a folder.")
    parent = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(parent):
        raise UsageError(f"--output_path={folder}: the folder {parent} does not exist; make it first.")
    return True


def _make(folder: str) -> None:
    try:
        os.mkdir(folder)
    except OSError as error:
        raise UsageError(f"--output_path={folder}: cannot be made ({error.strerror}).") from error


def _refuse_existing(paths: list[str | None]) -> None:
    found = [path for path in paths if path is not None and os.path.lexists(path)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise UsageError(
            f"{found[0]}{more} exists: --force=true replaces it; or give another --output_path, --profile_name or "
            "--nsys_base_name."
        )


def _database(base: str, force: bool) -> str:
    name, number = f"{base}{_DATABASE}{_ENDING}", 0
    while not force and os.path.lexists(name):
        number += 1
        name = f"{base}{_DATABASE}_{number}{_ENDING}"
    return name


def _refuse_input(settings: Settings, found: Outputs) -> None:
    """A recording is never replaced by what is made of it; a database may be, it is in what replaces it."""
    from pathlib import Path

    from pyprof.store.files import is_database

    source = Path(settings.nsys_database)
    if not settings.nsys_database or not source.is_file() or not os.path.exists(found.database):
        return
    if os.path.samefile(source, found.database) and not is_database(source):
        raise UsageError(
            f"{source}: is what is read, and would be replaced by the database; give another --profile_name."
        )

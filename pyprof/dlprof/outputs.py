# SPDX-License-Identifier: Apache-2.0
"""Names of all output files, checked before the application runs.

An existing file is an error without --force, except that the database gets the next free name, so that aggregating a
recording a second time keeps the first database.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from pyprof.core.arguments import refuse_unwritable
from pyprof.core.errors import UsageError
from pyprof.dlprof.options import Settings
from pyprof.render import writers
from pyprof.reports import Report, find

_DATABASE = "_dldb"
_ENDING = ".sqlite"
OF_NSYS = (".nsys-rep", ".qdrep")


class Outputs(NamedTuple):
    """`recording` is None if an existing file is aggregated, `events` if TensorBoard gets no files."""

    folder: str
    recording: str | None
    database: str
    model_data: str | None
    events: str | None
    reports: tuple[Report, ...]
    is_new_folder: bool  # the folder did not exist


def outputs(settings: Settings) -> Outputs:
    """Return all names. Creates the folder; raises UsageError for files that cannot be written, before any is."""
    folder = settings.output_path
    is_new = _folder(folder)
    base = os.path.normpath(os.path.join(folder, settings.profile_name))
    recording = None
    if not settings.nsys_database:
        recording = os.path.normpath(os.path.join(folder, settings.nsys_base_name + _ENDING))
    model_data = f"{base}_model_data.json" if settings.dump_model_data else None
    reports = tuple(find(name) for name in settings.reports)
    of_nsys = [recording.removesuffix(_ENDING) + ending for ending in OF_NSYS] if recording else []
    if not settings.force:
        _refuse_existing([recording, *of_nsys, model_data, *_report_files(settings, reports)])
    names = Outputs(
        os.path.normpath(folder), recording, _database(base, settings.force), model_data,
        None if settings.suppress_tb_files else os.path.normpath(os.path.join(folder, settings.tb_dir)), reports,
        is_new,
    )  # fmt: skip
    _refuse_input(settings, names)
    if is_new:
        _make(folder)
    for path in filter(None, (names.recording, names.database)):
        refuse_unwritable(path)
    return names


def profile_names(settings: Settings) -> list[str]:
    """Return the prefixes of report files: one for each of the domains, or one for all together."""
    if not settings.domains:
        return [settings.profile_name]
    return [f"{settings.profile_name}_{domain.replace('/', '_')}" for domain in settings.domains]


def _report_files(settings: Settings, reports: tuple[Report, ...]) -> list[str]:
    names = profile_names(settings)
    return [
        os.path.normpath(os.path.join(settings.output_path, writers.file_name(report, name, ending)))
        for name in names
        for report in reports
        for ending in settings.formats
    ]


def _folder(folder: str) -> bool:
    """Return whether the folder has to be created."""
    if os.path.isdir(folder):
        return False
    if os.path.exists(folder):
        raise UsageError(f"--output_path={folder} is a file; expected a folder.")
    parent = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(parent):
        raise UsageError(f"--output_path={folder}: the folder {parent} does not exist; create it first.")
    return True


def _make(folder: str) -> None:
    try:
        os.mkdir(folder)
    except OSError as error:
        raise UsageError(f"--output_path={folder} cannot be created ({error.strerror}).") from error


def _refuse_existing(paths: list[str | None]) -> None:
    existing = [path for path in paths if path is not None and os.path.lexists(path)]
    if existing:
        rest = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        raise UsageError(
            f"{existing[0]}{rest} exists: --force=true replaces it; or give another --output_path, --profile_name or "
            "--nsys_base_name."
        )


def _database(base: str, force: bool) -> str:
    name, number = f"{base}{_DATABASE}{_ENDING}", 0
    while not force and os.path.lexists(name):
        number += 1
        name = f"{base}{_DATABASE}_{number}{_ENDING}"
    return name


def _refuse_input(settings: Settings, names: Outputs) -> None:
    """Refuse to replace a recording by its own results. A database may be replaced: the new one contains it."""
    from pathlib import Path

    from pyprof.store.files import is_database

    source = Path(settings.nsys_database)
    if not settings.nsys_database or not source.is_file() or not os.path.exists(names.database):
        return
    if os.path.samefile(source, names.database) and not is_database(source):
        raise UsageError(f"{source} is the input and would be replaced by the database; give another --profile_name.")

# SPDX-License-Identifier: Apache-2.0
"""Recordings below a folder by the names of its files, for folders with much else: a notebook's, a log directory.

`search` opens no file. A file is a run, with two exceptions: the traces of `tensorboard_trace_handler` in a folder are
one run, and so are files of a folder whose names differ only in the rank. Whether they really are, `separate` tells by
opening them.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pyprof.core.errors import FormatError
from pyprof.core.sqlite_file import is_profile
from pyprof.parse import folder as folders
from pyprof.parse.folder import NOTES, Source

_MOST = 100_000  # files and folders of a search: the home of a user may have millions
_PROGRAMS = ("node_modules", "site-packages", "__pycache__")  # folders with many files, none a recording
_RECORDING = re.compile(r"\.(?:sqlite|nvvp|nsys-rep|qdrep)$|trace[^/]*\.json(?:\.gz)?$", re.IGNORECASE)
_HANDLER = re.compile(r"\.pt\.trace\.json(?:\.gz)?$")
_REPORT = re.compile(r"\.(?:nsys-rep|qdrep)$")


class Search(NamedTuple):
    """Runs by their names. `complete`: whether all files below the folder were looked at."""

    runs: dict[str, Source]
    complete: bool


def search(top: Path) -> Search:
    """Return the runs below a folder by the names of files, those of the folder itself first. Raises FormatError for a
    folder that cannot be read."""
    runs: dict[str, Source] = {}
    entries = 0
    for folder in _folders(top):
        runs.update(folder.runs)
        entries += folder.entries
    return Search(runs, entries < _MOST)


def holds_recording(top: Path) -> bool:
    """Return whether there is a run below a folder; it is left at the first."""
    try:
        return any(folder.runs for folder in _folders(top))
    except FormatError:
        return False


class _Folder(NamedTuple):
    runs: dict[str, Source]
    entries: int


def _folders(top: Path) -> Iterator[_Folder]:
    """Yield folders from the top down. Hidden files, and folders behind symbolic links, are left out."""
    waiting, entries = deque([top]), 0
    while waiting and entries < _MOST:
        folder = waiting.popleft()
        try:
            with os.scandir(folder) as iterator:
                children = sorted(islice(iterator, _MOST - entries), key=lambda entry: entry.name)
        except OSError as error:
            if folder == top:
                raise FormatError(f"{top} cannot be read ({error.strerror}).") from error
            continue
        entries += len(children)
        names = []
        for child in children:
            if child.name.startswith("."):
                continue
            if child.is_dir(follow_symlinks=False):
                if child.name not in _PROGRAMS:
                    waiting.append(folder / child.name)
            elif is_named(child.name):
                names.append(child.name)
        yield _Folder(dict(_grouped(folder, folder.relative_to(top).as_posix(), names)), len(children))


def is_named(name: str) -> bool:
    """Return whether a file with this name is taken for a recording.

    >>> is_named("net.sqlite"), is_named("trace.json"), is_named("net.json"), is_named("net_trace.notes.json")
    (True, True, False, False)
    """
    return _RECORDING.search(name) is not None and not name.endswith(NOTES)


def _grouped(folder: Path, place: str, names: list[str]) -> Iterator[tuple[str, Source]]:
    """Yield the runs of a folder, with their names: paths below the folder of the search."""
    groups: dict[str, list[str]] = {}
    present = set(names)
    for name in names:
        if _REPORT.search(name) and _REPORT.sub(".sqlite", name) in present:
            continue  # an export of it
        key = place if _HANDLER.search(name) else _below(place, folders.with_any_rank(name))
        groups.setdefault(key, []).append(name)
    for key, files in groups.items():
        if len(files) > 1 or key == place:
            yield key, Source(folder, tuple(files))
        else:
            yield _below(place, files[0]), Source(folder / files[0])


def _below(place: str, name: str) -> str:
    return name if place == "." else f"{place}/{name}"


def separate(top: Path, name: str, source: Source) -> dict[str, Source]:
    """Return the runs that the files of a run of `search` are. Opens them. Raises OSError for a file that is gone."""
    if source.files is None or len(source.files) < 2:
        return {name: source}
    paths = [source.path / file for file in source.files]
    databases = [path for path in paths if is_profile(path)]
    runs = folders.groups(folders.named(path for path in paths if path not in databases)).runs
    if len(runs) + len(databases) < 2:
        return {name: source}
    parts = [tuple(one.path.name for one in run) for run in runs] + [(path.name,) for path in databases]
    place = source.path.relative_to(top).as_posix()
    return {
        _below(place, folders.name_of_run(files)): (
            Source(source.path / files[0]) if len(files) == 1 else Source(source.path, files)
        )
        for files in parts
    }

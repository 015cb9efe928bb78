# SPDX-License-Identifier: Apache-2.0
"""The runs of a fleet's folder: its summary, and the databases of its ranks by the names of the workers."""

from __future__ import annotations

from pathlib import Path

from pyprof.core.errors import FormatError
from pyprof.parse.folder import Source
from pyprof.server.cache import Stamp
from pyprof.server.problems import of_file
from pyprof.store import fleet_folder

SUMMARY = "fleet"  # the run that is the summary; a worker of this name is not served


class FleetRuns:
    """The runs of a summary, or of a folder with one; read again when the summary changes."""

    def __init__(self, path: Path):
        self._path = path
        self._stamp: Stamp | None = None
        self._runs: dict[str, Source] = {}

    def look(self) -> dict[str, Source]:
        """Return names and databases, the summary first; empty for other paths. Raises Trouble."""
        file = self._path / fleet_folder.SUMMARY if self._path.is_dir() else self._path
        try:
            stamp = Stamp.of(Source(file)) if file.is_file() else None
            if stamp is None or stamp != self._stamp:
                self._runs = _runs(self._path) if stamp else {}
                self._stamp = stamp
        except (FormatError, OSError) as error:
            raise of_file(file, FormatError(str(error))) from error
        return self._runs

    def is_summary(self, run: str | None) -> bool:
        """Return whether a run, by default the first, is the summary."""
        return bool(self._runs) and run in (None, SUMMARY)

    def is_rank(self, run: str) -> bool:
        """Return whether a run is the database of a rank."""
        return run in self._runs and not self.is_summary(run)


def _runs(path: Path) -> dict[str, Source]:
    summary = fleet_folder.summary_in(path)
    if summary is None:
        return {}
    ranks = {name: Source(path) for name, path in fleet_folder.databases(summary).items() if name != SUMMARY}
    return {SUMMARY: Source(summary), **ranks}

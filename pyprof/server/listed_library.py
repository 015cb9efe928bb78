# SPDX-License-Identifier: Apache-2.0
"""Served profiles of a folder with much else: a notebook's, a log directory.

Runs are those that the names of files suggest (`parse.name_search`). A file is opened when somebody selects its run;
files that are not one run then become several. Files that are added appear, without a restart.
"""

from __future__ import annotations

import asyncio
import time

from pyprof.core.errors import FormatError
from pyprof.parse.folder import Source
from pyprof.parse.name_search import search, separate
from pyprof.server.library import LOOK, Library, Opened
from pyprof.views.problems import Trouble

_SHARE = 20  # a search takes at most this part of the time: a folder may be large, or on a slow disk
_NAMES = "*.sqlite, *trace*.json, *.nsys-rep or *.nvvp"


class ListedLibrary(Library):
    """The runs of a folder by the names of its files."""

    def __init__(self, folder: str, warm: bool = False):
        super().__init__(folder, warm=warm)
        self._listed: dict[str, Source] = {}
        self._separated: dict[str, tuple[Source, dict[str, Source]]] = {}  # by names of runs in `_listed`
        self._searching = asyncio.Lock()

    def runs(self) -> dict[str, Source]:
        """Return names and sources. Raises Trouble for a folder without recordings."""
        runs = super().runs()
        if not runs:
            more = f" {self._reason}" if self._reason else ""
            raise Trouble("empty", f"{self.path}: holds no {_NAMES}.{more}")
        return runs

    def _look(self) -> dict[str, Source]:
        begin = time.monotonic()
        try:
            self._listed, complete = search(self.path)
        except FormatError as error:
            raise Trouble("vanished", str(error)) from error
        self._pause = max(LOOK, _SHARE * (time.monotonic() - begin))
        self._reason = None if complete else "It has more files than are looked at."
        return self._merged()

    def _merged(self) -> dict[str, Source]:
        out: dict[str, Source] = {}
        for name, source in self._listed.items():
            known, parts = self._separated.get(name, (None, {}))
            out |= parts if known == source else {name: source}
        return out

    async def open(self, run: str | None) -> Opened:
        """Return the database of a run, as in the library of a folder. Raises Trouble."""
        async with self._searching:
            if self._is_due():
                await asyncio.to_thread(super().runs)
            name = next(iter(self.runs())) if run is None else run
            await self._separate(name)
            if name in self._listed and name in self._separated:
                name = next(iter(self._separated[name][1]))
        return await super().open(name)

    async def _separate(self, name: str) -> None:
        """Look into the files of a run, or of that whose part it was, unless that was done."""
        for whole in (name, *(whole for whole, (_, parts) in self._separated.items() if name in parts)):
            source = self._listed.get(whole)
            if source is None or source.files is None:
                continue
            if whole in self._separated and self._separated[whole][0] == source:
                continue
            try:
                self._separated[whole] = source, await asyncio.to_thread(separate, self.path, whole, source)
            except OSError as error:
                raise Trouble("vanished", f"{self.path / whole} cannot be read ({error}).") from error
            self._runs = self._merged()

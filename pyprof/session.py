# SPDX-License-Identifier: Apache-2.0
"""A recording or a profile database as Python objects: what the commands and the page stand on.

prof = pyprof.load("net.sqlite")
prof.kernels.groupby("op")["dur"].sum()
prof.report("op_type")
prof.save("net_dldb.sqlite")
"""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof import scratch
from pyprof.errors import FormatError
from pyprof.model import Rows, Trace
from pyprof.parse import formats
from pyprof.parse.rows import rows

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.db.aggregate import Aggregation
    from pyprof.db.source import Source
    from pyprof.db.store import Store
    from pyprof.prof.hardware import Hardware
    from pyprof.rules import Outcome


class Profile:
    """A recording; everything is computed when it is first asked for. All times are ns from its first event.

    Figures are those of one aggregation, the whole run or what `aggregate` chose.
    """

    _is_database = False

    def __init__(self, source: Trace | Store, memory: bool = False):
        self._trace = source if isinstance(source, Trace) else None
        self._path = source.path
        self._memory = memory
        if not isinstance(source, Trace):
            self.database = source
            self._is_database = True
            weakref.finalize(self, source.close)
        self._chosen: int | None = None

    # --- the recording itself

    @property
    def trace(self) -> Trace:
        """The recording as columns. Raises FormatError for a profile database, which has them in another form."""
        if self._is_database:
            raise FormatError(formats.NO_RECORDING.format(self._path))
        if self._trace is None:  # it went into the database
            self._trace = formats.load(self._path)
        return self._trace

    @cached_property
    def rows(self) -> Rows:
        """One row per kernel, or per operator event without a GPU. Raises FormatError if nothing was recorded."""
        return rows(self.trace, self._memory)

    @cached_property
    def hardware(self) -> Hardware:
        """The GPUs that were recorded, with their peaks."""
        from pyprof.prof import hardware

        return hardware.recorded(self.trace.devices, self.trace.meta)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table of `prof.py` with all its columns; unknown is missing."""
        from pyprof.prof import table
        from pyprof.prof.columns import COLUMNS, View

        return table.frame(View(self.rows, self.hardware), list(COLUMNS.values()))

    # --- the database

    @cached_property
    def database(self) -> Store:
        """The profile database: the file that was loaded, or a temporary one, which lives as long as this object."""
        from pyprof.db.store import Store

        folder = scratch.Folder()
        path = os.path.join(folder.name, "profile.sqlite")
        try:
            self.save(path)
            store = Store(path, own=True, shown=str(self._path))
        except BaseException:
            folder.cleanup()
            raise
        weakref.finalize(self, _remove, store, folder)
        return store

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a profile database: whole or not at all. Raises PyProfError."""
        from pyprof.db.build import build, copy

        if "database" in self.__dict__:
            copy(self.database, os.fspath(path))
            return
        trace, self._trace = self.trace, None
        build(trace, os.fspath(path))

    def export(
        self, format: str, path: str | os.PathLike[str], start: int | None = None, end: int | None = None
    ) -> None:
        """Write all, or what is going on from `start` to `end` (ns from the first event), for another tool: "chrome",
        "collapsed", "collapsed-cpu", "nsys" or "speedscope". Whole or not at all; a name that ends in .gz is
        compressed. Raises PyProfError."""
        from pyprof.export import write

        write(format, self.database, path, start, end)

    @property
    def aggregations(self) -> list[Aggregation]:
        """Everything that was aggregated."""
        from pyprof.db.aggregate import aggregations

        return aggregations(self.database)

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation whose figures are shown."""
        found = self.aggregations
        if not found:
            raise self.database.damaged("nothing in it was aggregated")
        return next((one for one in found if one.id == self._chosen), found[0])

    def aggregate(
        self, start: int | None = None, stop: int | None = None, key: str | None = None
    ) -> Aggregation:
        """Add up iterations start to stop, both included, cut by the operator `key`; from now on figures are theirs.
        Kept in the database. Raises UsageError for a key or iterations that do not exist."""
        from pyprof.db.aggregate import aggregate

        one = aggregate(self.database, start, stop, key)
        self._chosen = one.id
        return one

    def source(self, worker: int | None = None) -> Source:
        """What reports and rules read."""
        from pyprof.db.source import Source

        return Source(self.database, self.aggregation, worker)

    def report(self, name: str, worker: int | None = None, **options: str) -> pd.DataFrame:
        """A report by its name, with its options (docs/reports.md). Raises UsageError for what does not exist."""
        from pyprof.reports import find

        return find(name, **options).table(self.source(worker))

    def diff(self, other: Profile, by: str = "step") -> pd.DataFrame:
        """What another run has more or less of than this one: a step and its parts, or all operators or kernels by
        place (docs/reports.md). Raises UsageError."""
        from pyprof.reports.diff import diff

        return diff(self.source(), by).table(other.source())

    # --- data frames

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row per GPU event or CPU operator, in the order of their starts."""
        from pyprof.db import frames

        with self.database.sound():
            return frames.kernels(self.database, self.aggregation)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per execution of an operator."""
        from pyprof.db import frames

        with self.database.sound():
            return frames.ops(self.database, self.aggregation)

    @property
    def steps(self) -> pd.DataFrame:
        """One row per worker and iteration, with its breakdown; those that are not aggregated too."""
        from pyprof.db import frames

        with self.database.sound():
            return frames.steps(self.database, self.aggregation)

    @property
    def devices(self) -> pd.DataFrame:
        """One row per worker and device."""
        from pyprof.db import frames

        with self.database.sound():
            return frames.devices(self.database, self.aggregation)

    @property
    def outcomes(self) -> list[Outcome]:
        """Every rule's verdict: what it found, that it found nothing, or which facts it needs."""
        from pyprof.rules import evaluate

        return evaluate(self.source())

    @property
    def findings(self) -> pd.DataFrame:
        """What the expert rules found, the largest saving first."""
        from pyprof.db import frames

        return frames.findings([o.finding for o in self.outcomes if o.finding is not None])

    @property
    def coverage(self) -> pd.DataFrame:
        """The ledger: shares of the time on the device that are explained, and what was dropped."""
        from pyprof.db import frames

        with self.database.sound():
            return frames.coverage(self.database)

    def _repr_html_(self) -> str:
        from pyprof.db import frames

        return frames.html(self.source())


def _remove(store: Store, folder: scratch.Folder) -> None:
    store.close()
    folder.cleanup()


def load(path: str | os.PathLike[str], memory: bool = False) -> Profile:
    """Read a recording of any known format, all those of a folder (a run), or a profile database. `memory`: `rows` and
    `table` with copies and sets. Raises FormatError; for a folder of several runs it names them."""
    file = Path(path)
    if file.is_file():
        from pyprof.db import store

        if store.is_database(file):
            return Profile(store.Store(file), memory)
    return Profile(formats.load(path), memory)


def runs(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The runs in a folder by their paths in it, "." for itself. Raises FormatError for what is no folder."""
    from pyprof.parse import folder as folders

    return folders.runs(folder)

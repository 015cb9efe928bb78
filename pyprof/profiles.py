# SPDX-License-Identifier: Apache-2.0
"""A recording or a profile database as Python objects: the basis of the commands and the viewer.

prof = pyprof.load("net.sqlite")
prof.kernels.groupby("op")["duration_ns"].sum()
prof.report("op_type")
prof.save("net_dldb.sqlite")
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.core import scratch
from pyprof.core.errors import WHERE, FormatError, PyProfError, UsageError, VersionError, install
from pyprof.core.model import Rows, Trace
from pyprof.parse import folder, formats, loader
from pyprof.parse.rows import rows

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.costs.hardware.machine import Hardware
    from pyprof.facts.steps.aggregation import Aggregation
    from pyprof.facts.steps.source import Source
    from pyprof.integrations.notebook_frame import Frame
    from pyprof.overview.html import Overview
    from pyprof.rules import Outcome
    from pyprof.store.files import Store
    from pyprof.store.write.run import Run


Progress = Callable[[str, float], None]  # what is being done, and the share of it that is done
Change = Callable[[Trace], Trace]


class Selection(NamedTuple):
    """Iterations to aggregate, both ends included, and the operator whose ends separate them. None: the first, the
    last, and the steps marked by the program, else the repeating pattern."""

    first: int | None = None
    last: int | None = None
    key: str | None = None


WHOLE = Selection()


class Profile:
    """A recording; everything is computed on first access. All times are ns from its first event.

    Figures belong to one aggregation: the whole run, or the choice of `aggregate` or `select`. Only `aggregate`
    changes the file; a database of an older schema is never changed, since a copy of it is converted, which `save`
    keeps.
    """

    def __init__(self, source: Trace | Run | Store, memory: bool = False, progress: Progress | None = None):
        self._trace = source if isinstance(source, Trace) else None
        self._run: Run | None = None
        self._path = source.path
        self._only: Sequence[str] | None = None
        self._memory = memory
        self._progress = progress or _silent
        self.is_database = False
        if not isinstance(source, Trace):
            from pyprof.store.files import Store

            if isinstance(source, Store):
                self.is_database, self.database = True, source
                weakref.finalize(self, source.close)
            else:
                self._run = source
        self._aggregation_id: int | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        memory: bool = False,
        progress: Progress | None = None,
        change: Change | None = None,
        only: Sequence[str] | None = None,
        summary: bool = False,
        run: str | None = None,
    ) -> Profile:
        """Open a recording or a profile database as `load` does. `progress` is called with the stage and the share
        done; `change` is applied to the recording once it is read; `only`: names of the files of a folder that are of
        the run; `run`: name of the run of a folder; `summary`: open the summary of a fleet, or the one in a folder, as
        well. Raises FormatError; UsageError for a database with a `change`, or a name of no run."""
        from pyprof.store import files, fleet_folder

        file, of_run = folder.choose(Path(path), run)
        path, only = (file, of_run) if run is not None else (path, only)
        if summary and file.is_dir():
            file = fleet_folder.summary_in(file) or file
        try:
            is_database = file.is_file() and files.is_database(file)
        except OSError as error:
            raise FormatError(f"{path} cannot be read ({error.strerror}).") from error
        if not is_database:
            (progress or _silent)("reading", 0.0)
            from pyprof.store.write.run import Run, is_run

            if change is None and is_run(file):
                profile = cls(Run(file, only, progress or _silent), memory, progress)
                profile._only = only
                return profile
            trace = loader.load(path, only)
            profile = cls(change(trace) if change else trace, memory, progress)
            profile._only = only
            return profile
        if change:
            raise UsageError(
                f"{path} is a profile database; --mode=simple and --domains need the recording it was made of."
            )
        try:
            return cls(files.Store(file, summary=summary), memory, progress)
        except VersionError as error:
            if error.newer:
                raise
        return cls._upgraded(file, memory, progress)

    @classmethod
    def _upgraded(cls, file: Path, memory: bool, progress: Progress | None) -> Profile:
        """Open a copy of an older database, converted to the current schema. Raises FormatError."""
        from pyprof.facts.upgrade import upgrade
        from pyprof.store.files import Store

        folder = scratch.Folder()
        try:
            copy = os.path.join(folder.name, "profile.sqlite")
            upgrade(file, copy, progress or _silent)
            profile = cls(Store(copy, own=True, label=str(file)), memory, progress)
        except BaseException:
            folder.cleanup()
            raise
        weakref.finalize(profile, _remove, profile.database, folder)
        return profile

    @property
    def path(self) -> Path:
        """File or folder that was opened."""
        return Path(self._path)

    # --- the recording itself

    @property
    def trace(self) -> Trace:
        """Recording as columns. Raises FormatError for a profile database, which has them in another form."""
        if self.is_database:
            raise FormatError(formats.NO_RECORDING.format(self._path))
        if self._trace is None:  # it went into the database, one recording after the other if there are several
            self._trace = loader.load(self._path, self._only)
        return self._trace

    @cached_property
    def rows(self) -> Rows:
        """One row per kernel, or per operator event without a GPU. Raises FormatError if nothing was recorded."""
        return rows(self.trace, self._memory)

    @cached_property
    def hardware(self) -> Hardware:
        """Recorded GPUs, with their peaks."""
        from pyprof.costs.hardware import machine

        return machine.recorded(self.trace.devices, self.trace.meta)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table of `prof.py` with all its columns; unknown is missing."""
        from pyprof.costs.columns import COLUMNS, View
        from pyprof.prof import table

        return table.frame(View(self.rows, self.hardware), list(COLUMNS.values()))

    # --- the database

    @cached_property
    def database(self) -> Store:
        """Profile database: the file that was loaded, or a temporary one, which lives as long as this object."""
        return self._temporary(WHOLE)

    def _temporary(self, selection: Selection) -> Store:
        """Write a database with an aggregation of these iterations into a temporary folder, and open it."""
        from pyprof.store.files import Store

        folder = scratch.Folder()
        path = os.path.join(folder.name, "profile.sqlite")
        try:
            self._write(path, selection)
            store = Store(path, own=not self.is_database, label=str(self._path))
        except BaseException:
            folder.cleanup()
            raise
        weakref.finalize(self, _remove, store, folder)
        return store

    def save(self, path: str | os.PathLike[str], selection: Selection = WHOLE) -> None:
        """Write a profile database with the figures of the given iterations and a timeline, completely or not at all.
        Raises PyProfError."""
        from pyprof.timeline import build

        def add_timeline(name: str) -> None:
            build.add(name, str(self._path), lambda share: self._progress("drawing the timeline", share))

        self._write(path, selection, add_timeline)

    def _write(
        self,
        path: str | os.PathLike[str],
        selection: Selection,
        complete: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Write a database; `complete` is called with its name while no other process knows it."""
        from pyprof.facts.build import build, of_run, of_trace
        from pyprof.facts.steps.aggregation import aggregate
        from pyprof.store import files

        target = os.fspath(path)
        if "database" not in self.__dict__:
            if self._run is not None:
                recorded = of_run(self._run)
            else:
                trace, self._trace = self.trace, None
                recorded = of_trace(trace)
            build(recorded, target, *selection, self._progress, complete)
            return
        with files.written(target) as name:
            self._progress("copying", 0.0)
            self.database.copy(name)
            if self._matching(selection) is None:
                with files.Store(name, label=str(self._path)) as copy, copy.translate_errors():
                    aggregate(copy, *selection, lambda share: self._progress("aggregating", share))
            complete(name)

    def page(self, path: str | os.PathLike[str], anonymous: bool = False) -> None:
        """Write the page of the viewer with the figures of the current aggregation as one HTML file of at most 3 MB,
        which opens without a server; completely or not at all, in place of a file that is there. `anonymous`: without
        paths and names of files, hosts, users and modules. Raises PyProfError."""
        from importlib.util import find_spec

        from pyprof.timeline import build

        if find_spec("fastapi") is None:
            raise PyProfError(f"the page needs fastapi: {install('viewer')} {WHERE} installs it.")
        from pyprof.server.one_file import write

        aggregation = self.aggregation.id
        with scratch.Folder() as folder:
            copy = os.path.join(folder, "profile.sqlite")
            self.database.copy(copy)
            build.add(copy, str(self._path), lambda share: self._progress("drawing the timeline", share))
            write(
                copy,
                path,
                aggregation,
                self.path,
                anonymous,
                lambda share: self._progress("writing the page", share),
            )

    def select(self, selection: Selection) -> None:
        """Use figures of these iterations from now on. If the database lacks them, a temporary copy is made. Raises
        UsageError for a key or iterations that do not exist, or that the summary of a fleet does not have."""
        if (not self.is_database and "database" not in self.__dict__) or self._matching(selection) is None:
            if self.is_database and self.database.is_summary:
                raise UsageError(
                    f"{self._path}: the summary of a fleet has the figures of all iterations alone; open the database "
                    "of a rank for others."
                )
            self.database = self._temporary(selection)
        aggregation = self._matching(selection)
        self._aggregation_id = (aggregation or self.aggregations[-1]).id

    def _matching(self, selection: Selection) -> Aggregation | None:
        """Return the aggregation of these iterations, if the database has it."""
        from pyprof.store import reads

        if not self.aggregations:
            raise self.database.damaged("nothing in it was aggregated")
        if selection == WHOLE:
            return self.aggregations[0]
        for aggregation in self.aggregations:
            last = reads.iteration_count(self.database, aggregation.iteration_set) - 1
            cut = aggregation.iteration_set == 1 if selection.key is None else aggregation.key == selection.key
            bounds = (
                0 if selection.first is None else selection.first,
                last if selection.last is None else selection.last,
            )
            if cut and (aggregation.first, aggregation.last) == bounds:
                return aggregation
        return None

    def export(
        self, format: str, path: str | os.PathLike[str], start: int | None = None, end: int | None = None
    ) -> None:
        """Write the whole recording, or the part from `start` to `end` (ns from the first event), for another tool:
        "chrome", "collapsed" or "speedscope". Completely or not at all; a name that ends in
        .gz is compressed. Raises PyProfError."""
        from pyprof.export import write

        write(format, self.database, path, start, end)

    @property
    def aggregations(self) -> list[Aggregation]:
        """All aggregations."""
        from pyprof.facts.steps.aggregation import aggregations

        return aggregations(self.database)

    @property
    def aggregation(self) -> Aggregation:
        """Current aggregation."""
        current = next((one for one in self.aggregations if one.id == self._aggregation_id), None)
        whole = current or self._matching(WHOLE)
        assert whole is not None
        return whole

    def aggregate(self, start: int | None = None, stop: int | None = None, key: str | None = None) -> Aggregation:
        """Aggregate iterations start to stop, both included, separated by the operator `key`; figures are theirs from
        now on. Kept in the database. Raises UsageError for a key or iterations that do not exist."""
        from pyprof.facts.steps.aggregation import aggregate

        aggregation = aggregate(self.database, start, stop, key)
        self._aggregation_id = aggregation.id
        return aggregation

    def source(self, worker: int | str | None = None) -> Source:
        """Return the input of reports and rules, for all workers or for one, by its number or name. Raises
        UsageError."""
        from pyprof.facts.steps.source import Source

        return Source(self.database, self.aggregation, self._worker(worker))

    def _worker(self, worker: int | str | None) -> int | None:
        """Return the number of a worker."""
        if worker is None:
            return None
        from pyprof.store import reads

        workers = reads.worker_names(self.database)
        for number, name in workers.items():
            if str(worker) in (name, str(number)):
                return number
        names = ", ".join(workers.values())
        raise UsageError(f"worker {worker}: there is no such worker; the recording has {names}.")

    def report(self, name: str, worker: int | str | None = None, **options: str) -> pd.DataFrame:
        """Return a report by its name, with its options (docs/reports.md). Raises UsageError for an unknown name or
        option."""
        from pyprof.reports import find

        return find(name, **options).table(self.source(worker))

    def diff(self, other: Profile, by: str = "step", per: str = "iteration") -> pd.DataFrame:
        """Compare another run with this one: a step and its parts, or all operators or kernels by place, per iteration
        or summed over the run (docs/reports.md). Raises UsageError."""
        from pyprof.reports.diff import diff

        return diff(self.source(), by, per).table(other.source())

    def query(self, text: str) -> pd.DataFrame:
        """Return the rows of a SELECT over the views of docs/sql.md, on a connection that can only read. Raises
        UsageError for another statement, or a wrong one."""
        from pyprof.query.engine import Queries
        from pyprof.store.files import Store

        with Queries(self.database.path, self.database.label, Store.timeout) as queries:
            answer = queries.answer(text)
        return answer.frame().infer_objects().set_axis(answer.columns, axis=1)

    # --- data frames

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row per GPU event or CPU operator, in the order of their starts."""
        from pyprof.facts.steps import dataframes

        with self.database.translate_errors():
            return dataframes.kernels(self.database, self.aggregation)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per execution of an operator."""
        from pyprof.facts.steps import dataframes

        with self.database.translate_errors():
            return dataframes.ops(self.database, self.aggregation)

    @property
    def steps(self) -> pd.DataFrame:
        """One row per worker and iteration, with its breakdown; those that are not aggregated too."""
        from pyprof.facts.steps import dataframes

        with self.database.translate_errors():
            return dataframes.steps(self.database, self.aggregation)

    @property
    def devices(self) -> pd.DataFrame:
        """One row per worker and device."""
        from pyprof.facts.steps import dataframes

        with self.database.translate_errors():
            return dataframes.devices(self.database, self.aggregation)

    @property
    def outcomes(self) -> list[Outcome]:
        """Verdict of every rule: its finding, that it found nothing, or the facts it needs."""
        from pyprof.rules.evaluation import evaluate

        return evaluate(self.source())

    @property
    def findings(self) -> pd.DataFrame:
        """Findings of the expert rules, the largest saving first; paragraphs in a notebook."""
        from pyprof.facts.steps import dataframes
        from pyprof.overview.html import Findings

        return Findings(dataframes.findings([o.finding for o in self.outcomes if o.finding is not None]))

    @property
    def overview(self) -> Overview:
        """Overview: the length of a step and where its time goes, what to change first, the slowest operators and
        modules. The lines of `pyprof report` in a terminal, a table in a notebook."""
        from pyprof.overview.figures import figures
        from pyprof.overview.html import Overview

        return Overview(figures(self.source()), str(self._path))

    @property
    def coverage(self) -> pd.DataFrame:
        """Coverage ledger: shares of the time on the device that are explained, and losses."""
        from pyprof.facts.steps import dataframes

        with self.database.translate_errors():
            return dataframes.coverage(self.database)

    def show(self, height: int = 640) -> Frame:
        """Show the page of this profile in a notebook, `height` pixels high: that of `page`, in the notebook itself.
        Raises PyProfError outside of a notebook, and where the extra viewer is missing."""
        from pyprof.integrations.notebook_frame import show

        return show(str(self._path), self.page, height)

    def __repr__(self) -> str:
        return f"<Profile {self._path}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the overview, as IPython and notebooks show it."""
        overview = self.overview
        return {"text/plain": str(overview), "text/html": overview._repr_html_()}

    def _repr_html_(self) -> str:
        return self.overview._repr_html_()


def _silent(what: str, share: float) -> None:
    """Ignore progress."""


def _remove(store: Store, folder: scratch.Folder) -> None:
    store.close()
    folder.cleanup()


def load(path: str | os.PathLike[str], memory: bool = False, run: str | None = None) -> Profile:
    """Read a recording of any known format, all recordings of a folder (a run), or a profile database. `memory`:
    include copies and sets in `rows` and `table`. `run`: name of one of several runs of a folder, or a part of the name
    of one of its files. Raises FormatError; for a folder of several runs it names them."""
    from pyprof.integrations.notebook_progress import bar

    with bar() as progress:
        return Profile.open(path, memory, progress, run=run)


def runs(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the runs in a folder by their paths in it, "." for the folder itself. Raises FormatError if it is not a
    folder."""
    from pyprof.parse import folder as folders

    return folders.runs(folder)

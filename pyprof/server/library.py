# SPDX-License-Identifier: Apache-2.0
"""Served profiles: a file, or the runs of a folder, each opened on request.

An input is never changed. A profile database is read in place; a recording is converted to a database in the cache
(`cache`) first. An aggregation is added to a database of the cache; a profile database is copied there first, and
the copy is served from then on, also after a restart, until the input changes. The input is checked before each
request: a replaced input is reopened, a deleted one is reported as gone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pyprof.core.errors import PyProfError, UsageError
from pyprof.facts import upgrade
from pyprof.parse import folder as folders
from pyprof.parse.folder import Source
from pyprof.server import cache
from pyprof.server.cache import Stamp
from pyprof.server.engine import EXPORTS, Child, Engine, FrameCache
from pyprof.server.fleet_runs import FleetRuns
from pyprof.server.guarded_store import Guarded, Pool
from pyprof.server.problems import of_file
from pyprof.store import files
from pyprof.views.models import Run
from pyprof.views.problems import Trouble

State = Literal["new", "opening", "ready", "failed"]
LOOK = 2.0  # seconds between two scans of a folder


class Opened:
    """Open database: `input` is the requested path, `path` the database that is read; `of_fleet`: of a rank of a
    fleet."""

    def __init__(self, run: str, source: Source, path: Path, stamp: Stamp, of_fleet: bool = False):
        self.run, self.input, self.path, self.stamp = run, source.path, path, stamp
        self._source, self._of_fleet = source, of_fleet
        self.version = secrets.token_hex(8)
        self.looked = time.monotonic()
        self.pool = Pool(path)
        self.engine = Engine(str(path))
        self.exports = Engine(str(path), EXPORTS)
        self.frames = FrameCache()
        self.memo: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """Name of the profile, for titles and files."""
        return self.run if self._of_fleet else _title(self.run, self._source)

    @property
    def own(self) -> bool:
        """Flag for a database in the cache, which may be changed."""
        return self.path != self.input

    async def close(self) -> None:
        self.pool.close()
        await self.engine.close()
        await self.exports.close()


def name_of(path: Path) -> str:
    """Return the name of a profile for titles and files: that of a folder, or of a file without its suffix."""
    name = path.resolve().name or "profile"
    return name if path.is_dir() else _stem(name)


def _title(run: str, source: Source) -> str:
    """Return the name of the profile of a run, which is one of several files or folders that one path has."""
    if source.files is None:
        return name_of(source.path)
    name = run.rpartition("/")[2]
    if name == ".":  # the folder that is served
        return name_of(source.path)
    return name if source.path.is_dir() else _stem(name)


def _stem(name: str) -> str:
    for ending in (files.SUFFIX, ".pt.trace.json.gz", ".trace.json.gz", ".json.gz", ".tar.gz"):
        if name.endswith(ending) and name != ending:
            return name[: -len(ending)]
    return Path(name).stem or name


def _modified(source: Source) -> float | None:
    path, names = source
    try:
        return max(file.stat().st_mtime for file in ([path / name for name in names] if names else [path]))
    except OSError:
        return None


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the ends of paths that tell them apart. Raises UsageError for a path that is given twice.

    >>> distinct_names([Path("/a/x/net.sqlite"), Path("/a/y/net.sqlite")])
    ['x/net.sqlite', 'y/net.sqlite']
    """
    whole = [Path(os.path.abspath(path)).parts for path in paths]
    for count in range(1, max(map(len, whole)) + 1):
        names = ["/".join(parts[-count:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    raise UsageError(f"{next(path for path in paths if paths.count(path) > 1)}: given twice; name different files.")


class Library:
    """A file, the runs of a folder, or several files, and their open databases. `warm`: start a child process before
    the first request. Raises UsageError for a path that is given twice."""

    def __init__(self, *paths: str, warm: bool = False):
        self.path, *_ = self._paths = [Path(path) for path in paths]
        self._names = distinct_names(self._paths)
        self._warm = warm
        self._runs: dict[str, Source] = {}
        self._fleet = FleetRuns(self.path)
        self._reason: str | None = None
        self._looked = float("-inf")
        self._pause = LOOK
        self._opened: dict[str, Opened] = {}
        self._imports: dict[str, _Import] = {}
        self._failed: dict[str, tuple[Stamp, Trouble]] = {}
        self._read_again: set[Stamp] = set()  # whose database in the cache was useless
        self._retired: set[asyncio.Task[None]] = set()

    # --- runs

    def runs(self) -> dict[str, Source]:
        """Return names and sources: "" for one file, else paths below the folder. Raises Trouble."""
        if self._is_due():
            self._runs = self._look()
            self._looked = time.monotonic()
        return self._runs

    def is_summary(self, run: str | None) -> bool:
        """Return whether a run, by default the first, is the summary of a fleet. Raises Trouble."""
        self.runs()
        return self._fleet.is_summary(run)

    def _is_due(self) -> bool:
        return time.monotonic() - self._looked > self._pause

    def newest(self) -> str:
        """Return the name of the run whose file was written last. Raises Trouble."""
        return max(self.runs().items(), key=lambda item: _modified(item[1]) or 0.0)[0]

    @property
    def reason(self) -> str | None:
        """Sentence that says why the files of a folder are several runs; None where they are one."""
        self.runs()
        return self._reason

    def _look(self) -> dict[str, Source]:
        if len(self._paths) > 1:
            return dict(zip(self._names, map(Source, self._paths)))
        if of_fleet := self._fleet.look():
            return of_fleet
        if not self.path.is_dir():
            return {"": Source(self.path)}
        try:
            runs, reasons = folders.sources(self.path)
            with os.scandir(self.path) as entries:
                for entry in sorted(entries, key=lambda item: item.name):
                    if entry.is_file() and not entry.name.startswith(".") and _is_database(Path(entry.path)):
                        runs[entry.name] = Source(Path(entry.path))
        except (PyProfError, OSError) as error:
            raise Trouble("vanished", f"{self.path} cannot be read ({error}).") from error
        if not runs:
            raise Trouble(
                "empty",
                f"{self.path} contains no recording, run or profile database; give a file or another folder.",
            )
        self._reason = " ".join(reasons) or None
        return runs

    def check(self) -> None:
        """Raise Trouble for a file that does not exist."""
        for path in self._paths:
            if not path.exists():
                raise of_file(path, PyProfError(f"{path}: no such file."))

    def states(self) -> list[Run]:
        """Return the runs and their states."""
        out = []
        several = len(self._paths) > 1  # in the order in which they were named, whichever is newer
        for name, source in self.runs().items():
            running, failed = self._imports.get(name), self._failed.get(name)
            state: State = "ready" if name in self._opened else "opening" if running else "failed" if failed else "new"
            out.append(
                Run(name=name, state=state, progress=running.progress if running else float(state == "ready"),
                    detail=str(failed[1]) if failed and state == "failed" else None,
                    modified=None if several else _modified(source), fleet=self._fleet.is_summary(name))
            )  # fmt: skip
        return out

    # --- opening

    async def open(self, run: str | None) -> Opened:
        """Return the database of a run, by default the first. Raises Trouble; `opening` while it is imported."""
        runs = self.runs()
        name = next(iter(runs)) if run is None else run
        if name not in runs:
            self._looked = float("-inf")
            runs = self.runs()
        if name not in runs:
            hint = "one file is served" if "" in runs else f"choose from {', '.join(list(runs)[:20])}"
            raise Trouble("missing", f"No run {name!r}; {hint}.", "run")
        try:
            return await self._current(name, runs[name])
        except Trouble as trouble:
            trouble.recording = _title(name, runs[name])
            raise

    async def _current(self, name: str, source: Source) -> Opened:
        path, opened = source.path, self._opened.get(name)
        if opened is not None and path.is_dir() and time.monotonic() - opened.looked < LOOK:
            return opened
        try:
            stamp = await asyncio.to_thread(Stamp.of, source)
        except OSError as error:
            self._retire(name)
            raise of_file(path, PyProfError(f"{path} cannot be read ({error}).")) from error
        opened = self._opened.get(name)
        if opened is not None and opened.stamp == stamp:
            opened.looked = time.monotonic()
            return opened
        self._retire(name)
        failed = self._failed.get(name)
        if failed is not None and failed[0] == stamp:
            raise failed[1]
        return await self._open(name, source, stamp)

    async def _open(self, name: str, source: Source, stamp: Stamp) -> Opened:
        path, cached = source.path, cache.database(stamp)
        own = await asyncio.to_thread(_needs_no_import, path)
        database = None
        try:
            if own or cached.exists():
                database = await asyncio.to_thread(_check, path, cached, own, self.is_summary(name))
        except PyProfError as error:
            if own or stamp in self._read_again:
                trouble = of_file(path, error)
                self._failed[name] = stamp, trouble
                raise trouble from error
            self._read_again.add(stamp)
        if database is None:
            self._import(name, source, stamp, cached)
            running = self._imports[name]
            raise Trouble("opening", f"{path} is being read: {running.what}.", progress=running.progress)
        if name in self._opened:  # another request was faster
            return self._opened[name]
        opened = self._opened[name] = Opened(name, source, database, stamp, self._fleet.is_rank(name))
        if self._warm:
            opened.engine.warm()
        return opened

    def _import(self, name: str, source: Source, stamp: Stamp, target: Path) -> None:
        running = self._imports.get(name)
        if running is not None and running.stamp == stamp:
            return
        if running is not None:
            running.kill()
        self._imports[name] = _Import(self, name, source, stamp, target)

    def import_ended(self, import_: _Import, trouble: Trouble | None) -> None:
        """Handle the end of an import."""
        if self._imports.get(import_.name) is import_:
            del self._imports[import_.name]
            if trouble is not None:
                self._failed[import_.name] = import_.stamp, trouble

    async def wait(self, run: str, progress: Callable[[float, str], None]) -> Opened:
        """Open a run, however long it takes. Raises Trouble."""
        while True:
            try:
                return await self.open(run)
            except Trouble as trouble:
                if trouble.type != "opening":
                    raise
            while run in self._imports:
                running = self._imports[run]
                progress(running.progress, running.what)
                await asyncio.sleep(0.1)

    # --- closing

    def renew(self, opened: Opened) -> None:
        """Reopen the database after an aggregation was added."""
        if self._opened.get(opened.run) is opened:
            self._retire(opened.run)

    def _retire(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is not None:
            task = asyncio.ensure_future(_close_later(opened))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        for running in list(self._imports.values()):
            running.kill()
            with suppress(BaseException):
                await running.task
        for opened in self._opened.values():
            await opened.close()
        for task in list(self._retired):
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)


async def _close_later(opened: Opened) -> None:
    """Close a database after running requests had time to end."""
    try:
        await asyncio.sleep(10)
    finally:
        await opened.close()


class _Import:
    """Recording that is being read."""

    def __init__(self, library: Library, name: str, source: Source, stamp: Stamp, target: Path):
        self.name, self.source, self.stamp, self.target = name, source, stamp, target
        self.progress, self.what = 0.0, "reading"
        self._library = library
        self._child: Child | None = None
        self._killed = False
        self.task = asyncio.ensure_future(self._run())

    def kill(self) -> None:
        """End the child, and the task with it. A task that is cancelled while its child ends would leave it open."""
        self._killed = True
        if self._child is not None and self._child.alive:
            with suppress(ProcessLookupError):
                self._child.process.kill()

    async def _run(self) -> None:
        trouble: Trouble | None = None
        self._child = await Child.start(str(self.target))
        try:
            if not self._killed:
                path, files = self.source
                task = {"source": str(path), "target": str(self.target), "files": files}
                await self._child.do("import", task, self._update)
        except Trouble as error:
            trouble = error
        finally:
            await self._child.stop()
            self._library.import_ended(self, trouble)

    def _update(self, share: float, step: str) -> None:
        self.progress, self.what = share, step


def _needs_no_import(path: Path) -> bool:
    """Return whether a file is a database that needs no import, unlike one of an older schema. Damage is reported
    later."""
    try:
        return path.is_file() and _is_database(path) and upgrade.is_current(path)
    except PyProfError:
        return True


def _is_database(path: Path) -> bool:
    try:
        return files.is_database(path)
    except OSError:
        return False


def _check(path: Path, cached: Path, own: bool, summary: bool) -> Path:
    """Return the database to read, after opening it once: that of the cache, or the input itself if it is a database
    of its `own`, or the `summary` of a fleet. A useless one of the cache is removed. Raises PyProfError."""
    if cached.exists():
        try:
            Guarded(cached).close()
            cache.touch(cached)
            return cached
        except PyProfError:
            cached.unlink(missing_ok=True)
            if not own:
                raise
    Guarded(path, summary).close()
    return path

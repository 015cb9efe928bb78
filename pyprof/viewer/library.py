# SPDX-License-Identifier: Apache-2.0
"""What is served: a file, or the runs of a folder, each opened when it is asked for.

An input is never changed. A profile database is read where it is; a recording becomes a database in the cache
(`cache`) first. An aggregation is added to a database of the cache; of a profile database a copy goes there, which is
served from then on, also after a restart, until the input changes. Before each request the input is looked at: one that
was replaced is opened anew, one that is gone is said to be gone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pyprof.analysis import upgrade
from pyprof.errors import PyProfError
from pyprof.parse import folder as folders
from pyprof.store import files
from pyprof.viewer import cache
from pyprof.viewer.cache import Stamp
from pyprof.viewer.engine import EXPORTS, Child, Engine, Kept
from pyprof.viewer.guarded_store import Guarded, Pool
from pyprof.viewer.models import Run
from pyprof.viewer.problems import Trouble, of_file

State = Literal["new", "opening", "ready", "failed"]
_LOOK = 2.0  # seconds between two looks at what a folder holds


class Opened:
    """A database that is served: `input` is what was asked for, `path` the database that is read."""

    def __init__(self, run: str, input: Path, path: Path, stamp: Stamp):
        self.run, self.input, self.path, self.stamp = run, input, path, stamp
        self.version = secrets.token_hex(8)
        self.looked = time.monotonic()
        self.pool = Pool(path)
        self.engine = Engine(str(path))
        self.exports = Engine(str(path), EXPORTS)
        self.frames = Kept()
        self.known: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The profile's name, for titles and files."""
        name = self.input.resolve().name or "profile"
        return name if self.input.is_dir() else _stem(name)

    @property
    def own(self) -> bool:
        """Whether the database is one of the cache, which may be added to."""
        return self.path != self.input

    async def close(self) -> None:
        self.pool.close()
        await self.engine.close()
        await self.exports.close()


def _stem(name: str) -> str:
    for ending in (files.SUFFIX, ".pt.trace.json.gz", ".trace.json.gz", ".json.gz", ".tar.gz"):
        if name.endswith(ending) and name != ending:
            return name[: -len(ending)]
    return Path(name).stem or name


class Library:
    """A path and what is served of it. `warm`: start a process for what costs before somebody asks."""

    def __init__(self, path: str, warm: bool = False):
        self.path = Path(path)
        self._warm = warm
        self._runs: dict[str, Path] = {}
        self._looked = float("-inf")
        self._opened: dict[str, Opened] = {}
        self._imports: dict[str, _Import] = {}
        self._failed: dict[str, tuple[Stamp, Trouble]] = {}
        self._retired: set[asyncio.Task[None]] = set()

    # --- runs

    def runs(self) -> dict[str, Path]:
        """Names and paths: "" for one file, else paths below the folder. Raises Trouble."""
        if time.monotonic() - self._looked > _LOOK:
            self._runs = self._look()
            self._looked = time.monotonic()
        return self._runs

    def _look(self) -> dict[str, Path]:
        if not self.path.is_dir():
            return {"": self.path}
        try:
            found = folders.runs(self.path)
            with os.scandir(self.path) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.is_file() and not entry.name.startswith(".") and _is_database(Path(entry.path)):
                        found[entry.name] = Path(entry.path)
        except (PyProfError, OSError) as error:
            raise Trouble("vanished", f"{self.path}: cannot be read ({error}).") from error
        if not found:
            raise Trouble(
                "unreadable",
                f"{self.path}: holds no recording, no run and no profile database; give a file or another folder.",
            )
        return found

    def states(self) -> list[Run]:
        """The runs and how far they are."""
        out = []
        for name in self.runs():
            going, failed = self._imports.get(name), self._failed.get(name)
            state: State = (
                "ready" if name in self._opened else "opening" if going else "failed" if failed else "new"
            )
            out.append(
                Run(name=name, state=state, progress=going.progress if going else float(state == "ready"),
                    detail=str(failed[1]) if failed and state == "failed" else None)
            )  # fmt: skip
        return out

    # --- opening

    async def open(self, run: str | None) -> Opened:
        """The database of a run, the first one if none is named. Raises Trouble; `opening` while it is imported."""
        runs = self.runs()
        name = next(iter(runs)) if run is None else run
        if name not in runs:
            self._looked = float("-inf")
            runs = self.runs()
        if name not in runs:
            known = "one file is served" if "" in runs else f"choose from {', '.join(list(runs)[:20])}"
            raise Trouble("missing", f"There is no run {name!r}; {known}.", "run")
        path, opened = runs[name], self._opened.get(name)
        if opened is not None and path.is_dir() and time.monotonic() - opened.looked < _LOOK:
            return opened
        try:
            stamp = await asyncio.to_thread(Stamp.of, path)
        except OSError as error:
            self._retire(name)
            raise of_file(path, PyProfError(f"{path}: cannot be read ({error}).")) from error
        opened = self._opened.get(name)
        if opened is not None and opened.stamp == stamp:
            opened.looked = time.monotonic()
            return opened
        self._retire(name)
        failed = self._failed.get(name)
        if failed is not None and failed[0] == stamp:
            raise failed[1]
        return await self._open(name, path, stamp)

    async def _open(self, name: str, path: Path, stamp: Stamp) -> Opened:
        kept = cache.database(stamp)
        if not kept.exists() and not await asyncio.to_thread(_is_served_as_it_is, path):
            self._import(name, path, stamp, kept)
            going = self._imports[name]
            raise Trouble("opening", f"{path} is being read: {going.what}.", progress=going.progress)
        try:
            database = await asyncio.to_thread(_checked, path, kept)
        except PyProfError as error:
            trouble = of_file(path, error)
            self._failed[name] = stamp, trouble
            raise trouble from error
        if name in self._opened:  # somebody was faster
            return self._opened[name]
        opened = self._opened[name] = Opened(name, path, database, stamp)
        if self._warm:
            opened.engine.warm()
        return opened

    def _import(self, name: str, path: Path, stamp: Stamp, target: Path) -> None:
        going = self._imports.get(name)
        if going is not None and going.stamp == stamp:
            return
        if going is not None:
            going.task.cancel()
        self._imports[name] = _Import(self, name, path, stamp, target)

    def imported(self, one: _Import, trouble: Trouble | None) -> None:
        """An import has ended."""
        if self._imports.get(one.name) is one:
            del self._imports[one.name]
            if trouble is not None:
                self._failed[one.name] = one.stamp, trouble

    async def wait(self, run: str, told: Callable[[float, str], None]) -> Opened:
        """Open a run however long it takes. Raises Trouble."""
        while True:
            try:
                return await self.open(run)
            except Trouble as trouble:
                if trouble.type != "opening":
                    raise
            while run in self._imports:
                going = self._imports[run]
                told(going.progress, going.what)
                await asyncio.sleep(0.1)

    # --- closing

    def renew(self, opened: Opened) -> None:
        """An aggregation was added: open the database anew."""
        if self._opened.get(opened.run) is opened:
            self._retire(opened.run)

    def _retire(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is not None:
            task = asyncio.ensure_future(_closed_later(opened))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        for going in list(self._imports.values()):
            going.task.cancel()
            with suppress(BaseException):
                await going.task
        for opened in self._opened.values():
            await opened.close()
        for task in list(self._retired):
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)


async def _closed_later(opened: Opened) -> None:
    """Requests that are under way may end first."""
    try:
        await asyncio.sleep(10)
    finally:
        await opened.close()


class _Import:
    """A recording that is being read."""

    def __init__(self, library: Library, name: str, path: Path, stamp: Stamp, target: Path):
        self.name, self.path, self.stamp, self.target = name, path, stamp, target
        self.progress, self.what = 0.0, "reading"
        self._library = library
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        trouble: Trouble | None = None
        child = await Child.start(str(self.target))
        try:
            await child.do("import", {"source": str(self.path), "target": str(self.target)}, self._told)
        except Trouble as error:
            trouble = error
        finally:
            await child.stop()
            self._library.imported(self, trouble)

    def _told(self, share: float, what: str) -> None:
        self.progress, self.what = share, what


def _is_served_as_it_is(path: Path) -> bool:
    """Whether a file is a database that needs no import; one of an older schema does. A damaged one is told later."""
    try:
        return path.is_file() and _is_database(path) and upgrade.is_current(path)
    except PyProfError:
        return True


def _is_database(path: Path) -> bool:
    try:
        return files.is_database(path)
    except OSError:
        return False


def _checked(path: Path, kept: Path) -> Path:
    """The database to read, after it was opened once. Raises PyProfError."""
    if kept.exists():
        try:
            Guarded(kept).close()
            cache.used(kept)
            return kept
        except PyProfError:
            kept.unlink(missing_ok=True)  # ours, and of no use: the input is there
            if not _is_database(path):
                raise
    Guarded(path).close()
    return path

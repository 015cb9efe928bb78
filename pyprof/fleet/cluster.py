# SPDX-License-Identifier: Apache-2.0
"""Workers of a fleet, which do its tasks: those of a Dask scheduler, or processes of this machine.

A worker that dies costs its task, which another one does; a task whose workers keep dying costs its recording (Dask's
setting `distributed.scheduler.allowed-failures`). Processes of this machine have pipes and no port: who reaches the
port of a scheduler has the rights of its user. One that dies costs its recording.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyprof.core.errors import WHERE, FormatError, PyProfError, UsageError, install
from pyprof.fleet import tasks
from pyprof.fleet.tasks import Done, Task
from pyprof.parse import pool

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)
Progress = Callable[[str, float], None]
_SCHEDULER = "the scheduler"
_TOGETHER = 16  # summaries that one task joins
_PACKAGES = ("dask", "distributed", "msgpack", "pandas", "pyarrow")


def check(*packages: str) -> None:
    """Raise PyProfError where the extra is missing."""
    missing = [name for name in ("fsspec", *packages) if find_spec(name) is None]
    if missing:
        raise PyProfError(f"a fleet needs {missing[0]}: {install('fleet')} {WHERE} installs it.")


@contextmanager
def client_of(scheduler: str) -> Iterator[Client | int | None]:
    """Yield a client of the scheduler at an address; of `local` processes on this machine None, which is one for each
    core, or as many as `local:N` says. Raises UsageError for another text, PyProfError for a scheduler that does not
    answer."""
    name, colon, count = scheduler.partition(":")
    if name == "local":
        if colon and not (count.isascii() and count.isdecimal() and int(count)):
            raise UsageError(f"--scheduler={scheduler}: expected local, local:N with N of 1 or more, or an address.")
        yield int(count) if colon else None
        return
    if "://" not in scheduler:
        raise UsageError(f"--scheduler={scheduler}: expected tcp://HOST:PORT, local or local:N.")
    check("dask", "distributed")
    from distributed import Client

    try:
        client = Client(scheduler, timeout=20)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise PyProfError(f"{scheduler}: the scheduler does not answer ({error}).") from error
    with client:
        yield client


class Workers(Protocol):
    """Workers that do tasks."""

    def run(self, todo: Sequence[Task], progress: Progress) -> list[Done | FormatError]:
        """Return the record of each task, or why there is none, in order."""

    def joined(self, store: str, records: Sequence[Done], shifts: Sequence[int]) -> bytes:
        """Return the summary of all recordings."""


def workers(client: Client | int | None) -> Workers:
    """Return those of a client, else processes of this machine. Raises PyProfError for other versions there."""
    if client is None or isinstance(client, int):
        check()
        return Processes(client)
    check("dask", "distributed")
    check_versions(client)
    return Cluster(client)


def check_versions(client: Client) -> None:
    """Raise PyProfError if there is no worker, or if the scheduler or a worker has other versions than this process.

    The scheduler unpacks tasks, so it needs PyProf as well.
    """
    versions: Any = client.get_versions(check=False, packages=["pandas", "pyarrow"])
    if not versions["workers"]:
        raise PyProfError("the scheduler has no workers; start `dask worker` with its address.")
    own = _versions(versions["client"], tasks.version())
    of_pyprof = _of_pyprof(client)
    for name, answer in {_SCHEDULER: versions["scheduler"], **versions["workers"]}.items():
        theirs = _versions(answer, of_pyprof.get(name))
        for package, expected in own.items():
            if theirs[package] != expected:
                raise PyProfError(
                    f"{name} has {package} {theirs[package] or 'not installed'}, this process {expected}; "
                    "install the same version on both."
                )


def _of_pyprof(client: Client) -> dict[str, str]:
    """Return the version of PyProf of the scheduler and of each worker that has one."""
    answers: dict[str, Any] = dict(client.run(tasks.version, on_error="return"))
    try:
        answers[_SCHEDULER] = client.run_on_scheduler(tasks.version)  # type: ignore[no-untyped-call]
    except Exception:  # it cannot unpack the function: each version of distributed says so in its own way
        log.debug("the scheduler has no PyProf", exc_info=True)
    return {name: answer for name, answer in answers.items() if isinstance(answer, str)}


def _versions(answer: Mapping[str, Any], version: str | None) -> dict[str, str | None]:
    """Return the versions that must be equal, of an answer of distributed and the version of PyProf."""
    packages = answer["packages"]
    python = ".".join(str(packages["python"]).split(".")[:2])
    return {"python": python, "pyprof": version, **{name: packages.get(name) for name in _PACKAGES}}


class Processes(NamedTuple):
    """Processes of this machine, so many or one for each core; this one alone where that is as fast."""

    number: int | None

    def run(self, todo: Sequence[Task], progress: Progress) -> list[Done | FormatError]:
        line = _Line(len(todo), progress)
        return pool.read(todo, tasks.work, tasks.serve, line.add, self.number)

    def joined(self, store: str, records: Sequence[Done], shifts: Sequence[int]) -> bytes:
        return tasks.join_of(store, [record.name for record in records], shifts)


class Cluster(NamedTuple):
    """The workers of a scheduler of Dask."""

    client: Client

    def run(self, todo: Sequence[Task], progress: Progress) -> list[Done | FormatError]:
        from distributed import as_completed

        # Not by a key of its own: the scheduler may still have the result of a task of this key.
        futures = [self.client.submit(tasks.work, task, pure=False) for task in todo]
        place = {future.key: number for number, future in enumerate(futures)}
        out: dict[int, Done | FormatError] = {}
        line = _Line(len(todo), progress)
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            number = place[future.key]
            if future.status == "finished":
                out[number] = future.result()
            else:  # its workers died, or PyProf has a bug: the others go on
                error = future.exception()
                out[number] = FormatError(
                    f"{todo[number].url}: could not be done ({type(error).__name__}: {str(error)[:200]})."
                )
            future.release()
            line.add(out[number])
        return [out[number] for number in range(len(todo))]

    def joined(self, store: str, records: Sequence[Done], shifts: Sequence[int]) -> bytes:
        """Return the summary of all recordings, joined by the workers, a few at a time."""
        level = [
            self.client.submit(
                tasks.join_of, store, [record.name for record in records[low : low + _TOGETHER]],
                list(shifts[low : low + _TOGETHER]), pure=False,
            )
            for low in range(0, len(records), _TOGETHER)
        ]  # fmt: skip
        while len(level) > 1:
            level = [
                self.client.submit(tasks.join, *level[low : low + _TOGETHER], pure=False)
                for low in range(0, len(level), _TOGETHER)
            ]
        summary: bytes = level[0].result()
        return summary


class _Line:
    """Says how far the work is."""

    def __init__(self, total: int, progress: Progress):
        self._total, self._progress, self._start = total, progress, time.monotonic()
        self._done = self._failed = 0

    def add(self, result: Done | FormatError) -> None:
        self._done += 1
        self._failed += isinstance(result, FormatError)
        line = _line(self._done, self._total, self._failed, time.monotonic() - self._start)
        self._progress(line, self._done / self._total)


def _line(done: int, total: int, failed: int, seconds: float) -> str:
    """Return how far the work is.

    >>> _line(10, 40, 1, 60.0), _line(10, 40, 0, 6.0), _line(40, 40, 0, 60.0)
    ('10 of 40 recordings, 1 failed, 3 min left', '10 of 40 recordings, 18 s left', '40 of 40 recordings')
    """
    left = seconds / done * (total - done)
    time_left = f"{left:.0f} s left" if left < 120 else f"{left / 60:.0f} min left"
    parts = [
        f"{done} of {total} recordings",
        f"{failed} failed" if failed else "",
        time_left if done < total else "",
    ]
    return ", ".join(filter(None, parts))

# SPDX-License-Identifier: Apache-2.0
"""The machines of a fleet: a scheduler of Dask, its workers, what they run, and how far they are.

A worker that dies costs its task, which another one does; a task whose workers keep dying costs its recording (Dask's
setting `distributed.scheduler.allowed-failures`).
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from pyprof.errors import WHERE, PyProfError, UsageError, install
from pyprof.fleet import tasks
from pyprof.fleet.tasks import Done, Task

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

log = logging.getLogger(__name__)
Progress = Callable[[str, float], None]
_SCHEDULER = "the scheduler"
_TOGETHER = 16  # summaries that one task joins
_PACKAGES = ("dask", "distributed", "msgpack", "pandas", "pyarrow")


def check() -> None:
    """Raise PyProfError where the extra is missing."""
    missing = [name for name in ("dask", "distributed", "fsspec") if find_spec(name) is None]
    if missing:
        raise PyProfError(f"a fleet needs {missing[0]}: {install('fleet')} {WHERE} installs it.")


@contextmanager
def client_of(scheduler: str) -> Iterator[Client]:
    """Yield a client of the scheduler at an address, or of `local` workers on this machine: one for each core, or as
    many as `local:N` says. Raises UsageError for another text, PyProfError for a scheduler that does not answer."""
    check()
    from distributed import Client

    if scheduler == "local" or scheduler.startswith("local:"):
        count = scheduler.partition(":")[2] or "0"
        if not (count.isascii() and count.isdecimal()) or (":" in scheduler and count == "0"):
            raise UsageError(
                f"--scheduler={scheduler}: expected local, local:N with N of 1 or more, or an address."
            )
        with _local(int(count)) as cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
            yield client
        return
    if "://" not in scheduler:
        raise UsageError(f"--scheduler={scheduler}: expected tcp://HOST:PORT, local or local:N.")
    try:
        client = Client(scheduler, timeout=20)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise PyProfError(f"{scheduler}: the scheduler does not answer ({error}).") from error
    with client:
        yield client


def _local(count: int) -> LocalCluster:
    """Return a cluster of this machine; 0 is a worker for each core. Its workers ignore Ctrl-C; this process ends them,
    and if it comes while they start, after that."""
    from distributed import LocalCluster

    resource_tracker.ensure_running()  # to start it would end the blocking below
    interrupts: list[int] = []
    handler = None
    with suppress(ValueError):  # not on the main thread
        handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the workers inherit it
    try:
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=count or None,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        cluster.close()
        raise KeyboardInterrupt
    return cluster


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


def run(client: Client, todo: Sequence[Task], progress: Progress) -> list[Done | str]:
    """Return the record of each task, or why there is none, in order."""
    from distributed import as_completed

    # Not by a key of its own: the scheduler may still have the result of a task of this key.
    futures = [client.submit(tasks.work, task, pure=False) for task in todo]
    place = {future.key: number for number, future in enumerate(futures)}
    out: dict[int, Done | str] = {}
    start, failed = time.monotonic(), 0
    for done, future in enumerate(as_completed(futures), start=1):  # type: ignore[no-untyped-call]
        number = place[future.key]
        if future.status == "finished":
            out[number] = future.result()
        else:  # its workers died, or PyProf has a bug: the others go on
            error = future.exception()
            out[number] = (
                f"{todo[number].url}: could not be done ({type(error).__name__}: {str(error)[:200]})."
            )
        failed += isinstance(out[number], str)
        future.release()
        progress(_line(done, len(todo), failed, time.monotonic() - start), done / len(todo))
    return [out[number] for number in range(len(todo))]


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


def joined(client: Client, store: str, records: Sequence[Done], shifts: Sequence[int]) -> bytes:
    """Return the summary of all recordings, joined by the workers, a few at a time."""
    level = [
        client.submit(
            tasks.join_of, store, [record.name for record in records[low : low + _TOGETHER]],
            list(shifts[low : low + _TOGETHER]), pure=False,
        )
        for low in range(0, len(records), _TOGETHER)
    ]  # fmt: skip
    while len(level) > 1:
        level = [
            client.submit(tasks.join, *level[low : low + _TOGETHER], pure=False)
            for low in range(0, len(level), _TOGETHER)
        ]
    summary: bytes = level[0].result()
    return summary

# SPDX-License-Identifier: Apache-2.0
"""Fleets: many recordings of one run, read by the workers of a Dask cluster, without ever being on one machine; or by
processes of this one.

    fleet = pyprof.fleet.open("s3://bucket/run/*.pt.trace.json.gz", store="s3://bucket/fleet", client=client)
    fleet.report("communication")
    fleet.operators()           # of each operator: mean over ranks, spread, the worst rank
    fleet.profile("rank17")     # its own profile, read when it is asked for

A recording is one task: it is read, linked and costed, and its profile database goes into the store. Of each database
a summary goes on (`summary`), and workers join them in a tree; this process gets the summary of all. Needs the extra
fleet. docs/fleet.md has clusters, figures and limits.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pyprof.core import inputs, scratch
from pyprof.core.errors import FormatError, UsageError
from pyprof.core.model import NOT_READ
from pyprof.profiles import Profile
from pyprof.store.files import Store
from pyprof.store.fleet_folder import SUMMARY as SUMMARY

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

    from pyprof.fleet.cluster import Workers
    from pyprof.fleet.tasks import Done, Task

Progress = Callable[[str, float], None]


class Fleet:
    """The figures of all recordings of a fleet. All times are ns from the first event of the run.

    `failed`: why recordings are missing, a sentence by URL, or by the ranks that have none ("ranks 5 and 6").
    `summary`: the profile that the figures come from, which has no single events but the kernels of collectives.
    """

    def __init__(self, store: str, database: Path, records: Sequence[Done], failed: dict[str, str]):
        self.store, self.failed = store, failed
        self.summary = Profile(Store(database, summary=True))
        workers = [record for record in records for _ in range(record.workers)]
        names = self.summary.database.rows("select name from worker order by id")
        self._records = {name: record for (name,), record in zip(names, workers)}

    @property
    def ranks(self) -> pd.DataFrame:
        """One row per worker: its name, its recording and its database, host, steps and their mean length in ns, and
        what reading it took: CPU-seconds, bytes of its database and of its summary."""
        import pandas as pd

        steps = self.steps
        steps = steps[steps["aggregated"]].groupby("worker")["duration_ns"].agg(["size", "mean"])
        rows = [
            {
                "worker": name, "recording": record.url, "database": f"{self.store}/{record.name}.sqlite",
                "host": record.facts.processes[0].host if record.facts.processes else None,
                "cpu_s": record.cpu_s, "database_bytes": record.database_bytes, "summary_bytes": record.summary_bytes,
            }
            for name, record in self._records.items()
        ]  # fmt: skip
        table = pd.DataFrame(rows)
        table.insert(4, "steps", table["worker"].map(steps["size"]).fillna(0).astype("Int64"))
        table.insert(5, "step_mean_ns", table["worker"].map(steps["mean"]))
        return table

    @property
    def steps(self) -> pd.DataFrame:
        """One row per worker and iteration, with its breakdown, as of `Profile.steps`."""
        return self.summary.steps

    def report(self, name: str, worker: str | None = None, **options: str) -> pd.DataFrame:
        """Return a report over all ranks, or of one. Raises UsageError for one that needs the events of ranks, which
        their own profiles have."""
        return self.summary.report(name, worker=worker, **options)

    def operators(self) -> pd.DataFrame:
        """Return one row per operator: its time on the devices of each rank (without GPUs, on the CPU) in ns, as mean,
        standard deviation, least and most; the rank with the most; the ranks that are outliers (report
        rank_operators)."""
        return self.report("rank_operators")

    def stragglers(self) -> pd.DataFrame:
        """Return one row per worker and device: how often it came last to a collective, how late, and why (report
        stragglers)."""
        return self.report("stragglers", by="rank")

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that lie in the store as files of Parquet, by their names."""
        return {
            "ranks": self.ranks, "steps": self.steps, "operators": self.operators(), "stragglers": self.stragglers(),
            "communication": self.report("communication"),
        }  # fmt: skip

    def profile(self, worker: str) -> Profile:
        """Open the profile of a rank, by the name of its worker. Raises UsageError for an unknown one."""
        from pyprof.fleet.places import Place

        record = self._records.get(worker)
        if record is None:
            names = ", ".join(list(self._records)[:8]) + (", ..." if len(self._records) > 8 else "")
            raise UsageError(f"worker {worker}: there is no such worker; the fleet has {names}.")
        folder = scratch.Folder()
        profile = Profile.open(Place(f"{self.store}/{record.name}.sqlite").fetch(folder.name))
        weakref.finalize(profile, folder.cleanup)
        return profile


def open(
    urls: str | os.PathLike[str] | Iterable[str],
    client: Client | int | None = None,
    store: str | os.PathLike[str] | None = None,
    key: str | None = None,
    progress: Progress = lambda what, share: None,
) -> Fleet:
    """Read the recordings of a run on the workers of a Dask cluster, or in processes of this machine.

    `urls`: a folder, a pattern, or the URLs of recordings, on any store of fsspec that the workers reach. `client`: of
    the cluster, or the number of processes; by default one for each core. `store`: the folder, or its URL, for
    databases and summaries; by default `fleet` in the folder of the first recording. What is in it is not done again.
    `key`: the operator whose ends are those of iterations. `progress` is called with how far the work is. Raises
    PyProfError.
    """
    from pyprof.fleet import cluster
    from pyprof.fleet.places import Place

    workers = cluster.workers(client)
    recordings = _recordings(urls)
    top = str(store) if store is not None else f"{recordings[0][0].rpartition('/')[0]}/fleet"
    top = _absolute(top).rstrip("/")
    folder = Place(top).local
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"{top} is a file; expected the folder for databases and summaries.")
    return _opened(workers, _tasks(recordings, top, key), top, progress)


def _opened(workers: Workers, todo: list[Task], store: str, progress: Progress) -> Fleet:
    from pyprof.fleet import summary
    from pyprof.fleet.places import Place
    from pyprof.parse.folder import order_of, unread, without_recording
    from pyprof.parse.merge import common_clock
    from pyprof.store.write import run

    results = workers.run(todo, progress)
    todo, results = _again(workers, todo, results, _of_one_device(results), progress)
    todo, results = _again(workers, todo, results, _of_one_cut(todo, results), progress)
    failed = {task.url: str(one) for task, one in zip(todo, results) if isinstance(one, FormatError)}
    records = [one for one in results if not isinstance(one, FormatError)]
    if not records:
        raise FormatError(
            f"{store}: none of {len(todo)} recordings can be read; the first is: {next(iter(failed.values()))}"
        )
    records.sort(key=lambda record: order_of(record.facts.processes))
    clock = common_clock([record.facts.start for record in records])
    facts = [record.facts for record in records]
    absent = without_recording(
        [(one.meta, one.processes) for one in facts], unread([task.source for task in todo], results)
    )
    failed |= {sentence.partition(" of ")[0]: sentence for sentence in map(_sentence, absent)}
    folder = scratch.Folder()
    database = Path(folder.name) / SUMMARY
    content = workers.joined(store, records, clock.shifts if len(records) > 1 else [0])
    lost = {f"{NOT_READ}{sentence}": 1 for sentence in failed.values()} | absent
    databases = [f"{record.name}.sqlite" for record in records for _ in range(record.workers)]
    summary.write(str(database), content, run.meta(facts, clock, store), run.losses(facts, clock, lost), databases)
    Place(f"{store}/{SUMMARY}").write(str(database))
    fleet = Fleet(store, database, records, failed)
    for name, table in fleet.tables().items():
        Place(f"{store}/{name}.parquet").write(table.to_parquet(index=False))
    weakref.finalize(fleet, folder.cleanup)
    return fleet


def _sentence(reason: str) -> str:
    return reason.removeprefix(NOT_READ)


def _again(
    workers: Workers,
    todo: list[Task],
    results: list[Done | FormatError],
    changes: dict[int, dict[str, Any]],
    progress: Progress,
) -> tuple[list[Task], list[Done | FormatError]]:
    """Do tasks again with other values."""
    todo = [task._replace(**changes.get(number, {})) for number, task in enumerate(todo)]
    changed = workers.run([todo[number] for number in changes], progress) if changes else []
    done = dict(zip(changes, changed))
    return todo, [done.get(number, one) for number, one in enumerate(results)]


def _of_one_device(results: list[Done | FormatError]) -> dict[int, dict[str, Any]]:
    """Return the recordings without a GPU of a run on GPUs: there, operators are no events, as of `run.Run`."""
    records = {number: one for number, one in enumerate(results) if not isinstance(one, FormatError)}
    if not any(one.facts.on_gpu for one in records.values()):
        return {}
    return {number: {"on_gpu": True} for number, one in records.items() if one.facts.on_gpu is False and not one.on_gpu}


def _of_one_cut(todo: list[Task], results: list[Done | FormatError]) -> dict[int, dict[str, Any]]:
    """Return the recordings that are cut into iterations in another way than the run is."""
    from pyprof.facts.steps.iteration_cuts import common
    from pyprof.parse.folder import order_of

    records = {number: one for number, one in enumerate(results) if not isinstance(one, FormatError)}
    if not records or todo[0].key is not None:
        return {}
    ordered = sorted(records.values(), key=lambda one: order_of(one.facts.processes))
    cut = common([one.cut for one in ordered], [one.single for one in ordered])
    return {number: {"cut": cut} for number, one in records.items() if one.cut != cut}


def _recordings(urls: str | os.PathLike[str] | Iterable[str]) -> list[tuple[str, str]]:
    """Return the URL and the name of each recording. Raises FormatError if there is none."""
    from pyprof.fleet.places import Place
    from pyprof.parse.folder import is_named, listing
    from pyprof.parse.formats import EXPECTED

    if isinstance(urls, str | os.PathLike):
        text = _absolute(os.fspath(urls))
        place = Place(text)
        if place.local is not None and place.local.is_dir():
            listed = [str(recording.path) for recording in listing(place.local).recordings]
        elif "*" in text or place.is_folder():
            listed = [url for url in place.files() if is_named(url)]
        else:
            if place.local is not None:
                inputs.check(place.local, EXPECTED)
            listed = [text]
    else:
        listed = [_absolute(url) for url in urls]
    if not listed:
        raise FormatError(f"{urls} holds no recording; give a folder, a pattern or the URLs of recordings.")
    if len(set(listed)) < len(listed):
        raise UsageError(f"{max(listed, key=listed.count)} is named twice; a fleet has each recording once.")
    return [(url, PurePosixPath(url).name) for url in listed]


def _tasks(recordings: Sequence[tuple[str, str]], store: str, key: str | None) -> list[Task]:
    from pyprof.fleet.tasks import Task
    from pyprof.parse.folder import named

    names = [name for _, name in recordings]
    if len(set(names)) < len(names):
        name = max(names, key=names.count)
        raise UsageError(f"{name} is the name of several recordings; the recordings of a fleet have a name each.")
    url_of = {name: url for url, name in recordings}
    alone = len(recordings) == 1
    return [Task(url_of[one.path.name], store, one, alone, key=key) for one in named(map(Path, names))]


def _absolute(url: str) -> str:
    """Return a URL, or the absolute path on this machine."""
    return url if "://" in url or not url else os.path.abspath(url)


__all__ = ["Fleet", "open"]

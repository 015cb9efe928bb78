# SPDX-License-Identifier: Apache-2.0
"""Tasks of the workers of a fleet: a recording from its file to a database and a summary in the store, and the joining
of summaries.

The record of a recording (`.json`) is written last, so its files are complete when it is there, and what is done is not
done again: it has a digest of the recording's version, of the version of PyProf and of what was asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

import pyprof
from pyprof.core import scratch
from pyprof.core.errors import FormatError
from pyprof.facts.build import Recorded, build
from pyprof.facts.steps import iteration_cuts
from pyprof.facts.steps.iteration_cuts import Cut, Iterations
from pyprof.fleet import summary
from pyprof.fleet.places import Place, digest
from pyprof.parse import reader_process
from pyprof.parse.folder import Input
from pyprof.parse.loader import or_error
from pyprof.parse.merge import common_clock
from pyprof.store import files
from pyprof.store.files import Store
from pyprof.store.write import run
from pyprof.store.write.combine import combine
from pyprof.store.write.parts import Facts, Part
from pyprof.timeline import build as timeline


class Task(NamedTuple):
    """A recording of a fleet. `url`: its file; `store`: the folder of the results; `source`: what its name says, with
    the name as its path; `alone`, `on_gpu` as of `run.Recording`; `key`: the operator whose ends are those of
    iterations, None for the automatic cut; `cut`: that of the run, once it is known to be another than this one's.
    """

    url: str
    store: str
    source: Input
    alone: bool
    key: str | None = None
    on_gpu: bool = False
    cut: Cut | None = None

    @property
    def path(self) -> Path:
        """Path of the file, if it is on this machine."""
        return Path(self.url)

    @property
    def name(self) -> str:
        """Name of its files in the store."""
        worker = "".join(c if c.isalnum() or c in "._-" else "_" for c in self.source.worker)[:80]
        return f"{worker}.{self.source.span}-{digest(self.url)}"


class Done(NamedTuple):
    """The record of a recording: its files in the store, its facts, its number of workers, `on_gpu` as of its task, how
    it is cut into iterations, `single` as of `iteration_cuts`; and what it took: CPU-seconds, bytes of its database and
    of its summary."""

    digest: str
    url: str
    name: str
    facts: Facts
    workers: int
    on_gpu: bool
    cut: Cut
    single: list[str]
    cpu_s: float
    database_bytes: int
    summary_bytes: int

    def answers(self, task: Task, request: str) -> bool:
        """Return whether a task with this digest is done."""
        return self.digest == request and self.on_gpu >= task.on_gpu and task.cut in (None, self.cut)


def version() -> str:
    """Return the version of PyProf on the machine that is asked."""
    return pyprof.__version__


def work(task: Task) -> Done | FormatError:
    """Bring a recording into the store, unless it is there. Return its record, or why it cannot be read."""
    return or_error(task.path, lambda: _work(task))


def serve(descriptor: int) -> None:
    """Do tasks in a child process until the pipe ends."""
    reader_process.answer(descriptor, work)


def _work(task: Task) -> Done:
    store, source = Place(task.store), Place(task.url)
    request = digest(task.url, source.version(), pyprof.__version__, f"{files.MAJOR}.{files.MINOR}", repr(task[2:5]))
    record = _record(store / f"{task.name}.json")
    if record is not None and record.answers(task, request):
        return record
    start = time.process_time()
    with scratch.Folder() as folder, scratch.Folder() as copies:
        path = source.fetch(copies)
        part, database = os.path.join(folder, "part"), os.path.join(folder, "profile.sqlite")
        recording = run.Recording(task.source._replace(path=path), part, task.alone, task.on_gpu)
        facts = run.make_part(recording)
        if isinstance(facts, FormatError):
            raise FormatError(str(facts).replace(str(path), task.url))
        facts = facts._replace(path=task.url)
        with Part(part, task.url) as whole:
            tables = combine([whole], [0], [facts.threads])
            lost = run.losses([facts], common_clock([facts.start]), {})
            total = sum(piece.rows for piece in whole.pieces)
            meta = run.meta([facts], common_clock([facts.start]), task.url)
            build(
                Recorded(task.url, meta, iter([*[("lost", lost)], *tables]), total),
                database,
                key=task.key,
                automatic=partial(_iterations, cut=task.cut),
            )
            timeline.add(database, task.url)
            with Store(database, own=True) as opened:
                is_cut = task.cut is None or iteration_cuts.like(opened, task.cut) is not None
            reduced = summary.reduced(database, whole, is_cut)
        with Store(database, own=True) as opened:
            cut = Cut(*opened.rows("select method, key, note from iteration_set where id = 1")[0])
            single = iteration_cuts.single(opened)
            workers = int(opened.rows("select count(*) from worker")[0][0])
        (store / f"{task.name}.sqlite").write(database)
        (store / f"{task.name}.summary").write(reduced)
        done = Done(
            request, task.url, task.name, facts, workers, task.on_gpu, task.cut or cut, single,
            time.process_time() - start, os.stat(database).st_size, len(reduced),
        )  # fmt: skip
    (store / f"{task.name}.json").write(msgspec.json.encode(done))
    return done


def _iterations(store: Store, cut: Cut | None) -> Iterations:
    """Return the iterations of a run's cut, if it is known; else, and of a recording that it does not cut, its own."""
    return (iteration_cuts.like(store, cut) if cut else None) or iteration_cuts.automatic(store)


def _record(place: Place) -> Done | None:
    """Return a record; None if there is none that can be read."""
    content = place.read()
    try:
        return None if content is None else msgspec.json.decode(content, type=Done)
    except msgspec.MsgspecError:
        return None


def join_of(store: str, names: Sequence[str], shifts: Sequence[int]) -> bytes:
    """Return the summary of some recordings in the store. Raises FormatError for one that is not there."""
    place = Place(store)
    summaries = []
    for name in names:
        content = (place / f"{name}.summary").read()
        if content is None:
            raise FormatError(f"{store} has no {name}.summary any more; start again.")
        summaries.append(content)
    return summary.joined(summaries, shifts)


def join(*summaries: bytes) -> bytes:
    """Return the summary of several."""
    return summary.joined(summaries, [0] * len(summaries))

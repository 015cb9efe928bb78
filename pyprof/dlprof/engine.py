# SPDX-License-Identifier: Apache-2.0
"""From a recording, or a profile database, to a database, reports and feedback: what `dlprof`, `pyprof report` and
`pyprof save` share.

A file is never changed by reading it. A recording becomes a database; of a database a copy is aggregated anew, which
keeps the aggregations that are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof import scratch
from pyprof.db import store
from pyprof.db.aggregate import Aggregation, aggregate, aggregations
from pyprof.db.build import build
from pyprof.db.source import Source
from pyprof.errors import FormatError, UsageError
from pyprof.model import PUSH_POP, Column, Trace
from pyprof.parse import formats
from pyprof.parse.assemble import empty_ops

SIMPLE = "simple_mode_global_node_name"  # DLProf's name for the one operator of --mode=simple
DEFAULT_DOMAIN = "default"
Told = Callable[[str, float], None]
Changed = Callable[[Trace], Trace]


class Wanted(NamedTuple):
    """What is aggregated; None is the whole run, cut as the program marks it."""

    first: int | None = None
    last: int | None = None
    key: str | None = None

    @property
    def whole(self) -> bool:
        return self == Wanted()


class Input:
    """A file to aggregate: a recording or a profile database."""

    def __init__(self, path: str, told: Told = lambda what, share: None):
        self.path, self.told = path, told
        file = Path(path)
        try:
            self.is_database = file.is_file() and store.is_database(file)
        except OSError as error:
            raise FormatError(f"{path}: cannot be read ({error.strerror}).") from error

    @cached_property
    def trace(self) -> Trace:
        """The recording. Raises FormatError; UsageError for a database, which has it no more."""
        if self.is_database:
            raise UsageError(
                f"{self.path}: is a profile database; --mode=simple and --domains need the recording it was made of."
            )
        self.told("reading", 0.0)
        return formats.load(self.path)

    def take(self) -> Trace:
        """The recording, to be used up: it is read again when it is asked for again."""
        trace = self.trace
        del self.__dict__["trace"]
        return trace


def write(source: Input, target: str, wanted: Wanted, changed: Changed | None = None) -> None:
    """Write the database of a file: whole or not at all. `changed` is done to a recording first. Raises PyProfError."""
    if changed is not None or not source.is_database:
        trace = source.take()
        build(changed(trace) if changed else trace, target, *wanted, source.told)
        return
    with store.Store(source.path) as database, store.written(target) as name:
        source.told("copying", 0.0)
        database.copy(name)
        with store.Store(name, shown=source.path) as copied, copied.sound():
            aggregate(copied, *wanted, lambda share: source.told("aggregating", share))


def matching(database: store.Store, wanted: Wanted) -> Aggregation | None:
    """The aggregation of a database that is what is wanted, if it is there."""
    found = aggregations(database)
    if not found:
        raise database.damaged("nothing in it was aggregated")
    if wanted.whole:
        return found[0]
    for one in found:
        count = database.rows(
            "select max(number) from iteration where iteration_set = ?", (one.iteration_set,)
        )[0][0]
        cut = one.iteration_set == 1 if wanted.key is None else one.key == wanted.key
        first = 0 if wanted.first is None else wanted.first
        last = count if wanted.last is None else wanted.last
        if cut and (one.first, one.last) == (first, last):
            return one
    return None


@contextmanager
def opened(
    source: Input, wanted: Wanted, worker: str | None = None, changed: Changed | None = None
) -> Iterator[Source]:
    """What reports of a file read: of a database that has the aggregation the file itself, else a temporary one."""
    if source.is_database and changed is None:
        with store.Store(source.path) as database, database.sound():
            one = matching(database, wanted)
            if one is not None:
                yield Source(database, one, _worker(database, worker))
                return
    with scratch.Folder() as folder:
        name = f"{folder}/profile.sqlite"
        write(source, name, wanted, changed)
        with store.Store(name, not source.is_database, source.path) as database, database.sound():
            one = matching(database, wanted) or aggregations(database)[-1]
            yield Source(database, one, _worker(database, worker))


def _worker(database: store.Store, name: str | None) -> int | None:
    if name is None:
        return None
    found = database.rows("select id, name from worker order by id")
    for number, known in found:
        if name in (known, str(number)):
            return int(number)
    names = ", ".join(known for _, known in found)
    raise UsageError(f"--worker {name}: there is no such worker; the recording has {names}.")


def simple(trace: Trace) -> Trace:
    """A trace in which each thread's work on the GPU is one operator. Raises FormatError if there is no such work."""
    from pyprof.marker import encode
    from pyprof.model import Call

    launches = trace.launches
    if not len(trace.gpu):
        raise FormatError(
            f"{trace.path}: has no GPU events, which are all that --mode=simple looks at; use --mode=pytorch."
        )
    threads = np.unique(launches.thread)
    code = trace.strings.code(encode(Call(mod="", op=SIMPLE, args=())))
    start = np.array([launches.start[launches.thread == t].min() for t in threads], np.int64)
    end = np.array([launches.end[launches.thread == t].max() for t in threads], np.int64)
    count = len(threads)
    ranges = dataclasses.replace(
        trace.ranges, thread=threads, start=start, end=Column(end), text=np.full(count, code, np.int32),
        operator=np.zeros(count, bool), kind=np.full(count, PUSH_POP, np.int8), seq=Column.missing(count),
        domain=np.zeros(count, np.int32),
    )  # fmt: skip
    return dataclasses.replace(trace, ranges=ranges, ops=empty_ops())


def domains(trace: Trace) -> list[str]:
    """NVTX domains of a recording; the one of ranges that name none is `default`."""
    return sorted(trace.strings[code] or DEFAULT_DOMAIN for code in np.unique(trace.ranges.domain).tolist())


def of_domain(name: str) -> Changed:
    """A trace with the ranges of one domain alone. Raises UsageError if the recording has no such domain."""

    def changed(trace: Trace) -> Trace:
        known = domains(trace)
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "it has no NVTX ranges"
            raise UsageError(f"--domains={name}: {trace.path} has no such NVTX domain; {there}.")
        code = trace.strings.code("" if name == DEFAULT_DOMAIN else name)
        kept = np.flatnonzero(trace.ranges.domain == code)
        taken: dict[str, Any] = {}
        for field in dataclasses.fields(trace.ranges):
            column = getattr(trace.ranges, field.name)
            taken[field.name] = column.take(kept) if isinstance(column, Column) else column[kept]
        return dataclasses.replace(trace, ranges=dataclasses.replace(trace.ranges, **taken))

    return changed

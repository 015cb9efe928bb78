# SPDX-License-Identifier: Apache-2.0
"""Rules that tell which recordings of a folder can be one run.

Two facts that exclude each other separate two workers; a fact that one of them lacks does not. The facts are a table in
docs/runs.md. Files of one worker are its spans and stay together, whatever is in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from pyprof.parse.heads import QUARTER_NS, Head

_APART_NS = 3600 * 10**9
_UNITS = (
    ("year", 365.25 * 86400e9), ("month", 30.44 * 86400e9), ("day", 86400e9), ("hour", 3600e9),
)  # fmt: skip
_RANK_IN_NAME = re.compile(r"(?i)((?:rank|worker)[_-]?)[0-9]+")
_MAX_NAMED = 3


class Worker(NamedTuple):
    """Recordings of one process: its name, the rank in it, the heads of its files. `alone`: an archive of several
    recordings, which is a run by itself unless the folder is one run."""

    name: str
    rank_in_name: int | None
    heads: Sequence[Head]
    alone: bool = False


class Separation(NamedTuple):
    """Numbers of the workers of each run, the reasons why they are several, without a number of files, and the kinds of
    facts that these are about."""

    runs: list[list[int]]
    reasons: list[str]
    kinds: tuple[str, ...] = ()


class _Facts(NamedTuple):
    """Facts of a worker. `stem`: its name without the rank; `period`: number of its stretch of time, None: unknown."""

    name: str
    distributed: bool | None
    rank: int | None
    world_size: int | None
    process: tuple[str, int] | None
    host: str | None
    gpus: frozenset[str]
    program: str | None
    times: tuple[Head, ...]
    alone: bool
    stem: str
    period: int | None = None


def separate(workers: Sequence[Worker]) -> Separation:
    """Return the runs of a folder's workers. Each worker joins the run that it fits best: of the same name but for the
    rank, else the nearest in time, else the last."""
    all_facts = _with_periods([_facts(worker) for worker in workers])
    runs = _split([one._replace(alone=False) for one in all_facts])
    if len(runs) == 1:
        return Separation(runs, [])
    runs = _split(all_facts)
    kinds = _separating(all_facts, runs)
    return Separation(runs, [_WORDS[kind](all_facts) for kind in kinds], kinds)


def _split(workers: list[_Facts]) -> list[list[int]]:
    order = sorted(range(len(workers)), key=lambda i: (_start(workers[i]) is None, _start(workers[i]) or 0, i))
    runs: list[list[int]] = []
    for index in order:
        one = workers[index]
        fitting = [
            (any(workers[i].stem == one.stem for i in run), -_distance(one, workers[run[-1]]), number)
            for number, run in enumerate(runs)
            if not any(any(_conflicts(one, workers[i])) for i in run)
        ]
        if fitting:
            runs[max(fitting)[2]].append(index)
        else:
            runs.append([index])
    return sorted(sorted(run) for run in runs)


def _facts(worker: Worker) -> _Facts:
    heads = worker.heads
    rank = next((head.rank for head in heads if head.rank is not None), worker.rank_in_name)
    answers = [head.distributed for head in heads]
    distributed = True if True in answers else False if answers and None not in answers and rank is None else None
    host, pid = _first(heads, "host"), _first(heads, "pid")
    if host is None and pid is not None and worker.name.endswith(f"_{pid}"):
        host = worker.name.removesuffix(f"_{pid}")
    return _Facts(
        worker.name, distributed, rank, _first(heads, "world_size"),
        None if host is None or pid is None else (host, pid), host,
        frozenset().union(*(head.gpus for head in heads)), _first(heads, "program"),
        tuple(head for head in heads if head.start is not None), worker.alone,
        _RANK_IN_NAME.sub(r"\1", worker.name),
    )  # fmt: skip


def _first(heads: Sequence[Head], name: str) -> Any:
    return next((value for head in heads if (value := getattr(head, name)) is not None), None)


def _start(facts: _Facts) -> int | None:
    starts = ((head.start or 0) % (QUARTER_NS if head.cyclic else 1 << 63) for head in facts.times)
    return min(starts, default=None)


# --- time


def gap(a: Head, b: Head) -> int:
    """Return the ns between two recordings, 0 if they overlap; a lower bound if one has a cyclic time.

    >>> gap(Head(start=5, end=9), Head(start=20, end=30)), gap(Head(start=5, end=25), Head(start=20, end=30))
    (11, 0)
    >>> gap(Head(start=3, end=3, cyclic=True), Head(start=QUARTER_NS * 200 - 2, end=QUARTER_NS * 200 + 1))
    2
    """
    first, second, first_end, second_end = a.start or 0, b.start or 0, a.end or 0, b.end or 0
    if not (a.cyclic or b.cyclic):
        return max(0, second - first_end, first - second_end)
    return (
        max(0, min((second - first_end) % QUARTER_NS, (first - second_end) % QUARTER_NS))
        if ((second - first) % QUARTER_NS > first_end - first and (first - second) % QUARTER_NS > second_end - second)
        else 0
    )


def _distance(a: _Facts, b: _Facts) -> float:
    return min((gap(x, y) for x in a.times for y in b.times), default=float("inf"))


def _with_periods(workers: list[_Facts]) -> list[_Facts]:
    """Number the stretches of time: a worker belongs to that of another if they are at most an hour apart."""
    period = list(range(len(workers)))

    def root(index: int) -> int:
        while period[index] != index:
            period[index] = period[period[index]]
            index = period[index]
        return index

    timed = [index for index, one in enumerate(workers) if one.times]
    for a, b in combinations(timed, 2):
        if root(a) != root(b) and _distance(workers[a], workers[b]) <= _APART_NS:
            period[root(b)] = root(a)
    return [one._replace(period=root(index) if one.times else None) for index, one in enumerate(workers)]


# --- what excludes what


def _conflicts(a: _Facts, b: _Facts) -> Iterator[str]:
    """Yield the kinds of facts by which two workers cannot be of one run."""
    if a.alone or b.alone:
        yield "archive"
    if _differ(a.period, b.period):
        yield "time"
    if f"{a.name}.".startswith(f"{b.name}.") or f"{b.name}.".startswith(f"{a.name}."):
        return  # `net` started `net.rank0`
    if a.rank is not None and a.rank == b.rank:
        yield "rank"
    if a.process is not None and a.process == b.process and (a.rank is None or b.rank is None):
        yield "process"
    if _differ(a.world_size, b.world_size):
        yield "world size"
    if _differ(a.distributed, b.distributed):
        yield "distributed"
    if (a.distributed and b.distributed) or _differ(a.rank, b.rank):
        return
    if _differ(a.program, b.program):
        yield "program"
    if _differ(a.host, b.host) and a.gpus and b.gpus and not a.gpus & b.gpus:
        yield "machine"


def _differ(a: object, b: object) -> bool:
    return a is not None and b is not None and a != b


# --- in words


def _separating(workers: list[_Facts], runs: list[list[int]]) -> tuple[str, ...]:
    run = {index: number for number, members in enumerate(runs) for index in members}
    kinds = {
        kind
        for a, b in combinations(range(len(workers)), 2)
        if run[a] != run[b]
        for kind in _conflicts(workers[a], workers[b])
    }
    return tuple(kind for kind in _WORDS if kind in kinds)


def _say_ranks(workers: list[_Facts]) -> str:
    rank, count = Counter(one.rank for one in workers if one.rank is not None).most_common(1)[0]
    return f"rank {rank} is in {count} of them"


def _say_processes(workers: list[_Facts]) -> str:
    (host, pid), count = Counter(one.process for one in workers if one.process).most_common(1)[0]
    return f"process {pid} of {host} is in {count} of them"


def _say_times(workers: list[_Facts]) -> str:
    heads = [min(one.times, key=lambda head: head.start or 0) for one in workers if one.times]
    longest, cyclic = max((gap(a, b), a.cyclic or b.cyclic) for a, b in combinations(heads, 2))
    return f"recordings are {'at least' if cyclic else 'up to'} {_span(longest)} apart"


def _span(ns: int) -> str:
    name, unit = next((name, unit) for name, unit in _UNITS if ns >= unit or name == "hour")
    count = int(ns / unit)
    return f"{count} {name}{'s' if count != 1 else ''}"


def _say_sizes(workers: list[_Facts]) -> str:
    return f"world sizes are {_listed(sorted({one.world_size for one in workers if one.world_size is not None}))}"


def _say_distributed(workers: list[_Facts]) -> str:
    count = sum(one.distributed is True for one in workers)
    rest = sum(one.distributed is False for one in workers)
    return f"{count} belong{'s' if count == 1 else ''} to a process group and {rest} do{'es' if rest == 1 else ''} not"


def _say_programs(workers: list[_Facts]) -> str:
    return f"programs are {_listed(sorted({one.program for one in workers if one.program}))}"


def _say_machines(workers: list[_Facts]) -> str:
    names = sorted({gpu for one in workers for gpu in one.gpus})
    return f"hosts differ, and so do their GPUs ({_listed(names)})"


def _say_archives(workers: list[_Facts]) -> str:
    return "an archive of several recordings is a run by itself"


_WORDS: dict[str, Callable[[list[_Facts]], str]] = {
    "rank": _say_ranks, "process": _say_processes, "time": _say_times, "world size": _say_sizes,
    "distributed": _say_distributed, "program": _say_programs, "machine": _say_machines, "archive": _say_archives,
}  # fmt: skip


def _listed(values: Sequence[object]) -> str:
    """Return values as text.

    >>> _listed([1, 2, 8]), _listed([1, 2, 3, 4, 5])
    ('1, 2 and 8', '1, 2, 3 and 2 more')
    """
    texts = [str(value) for value in values[:_MAX_NAMED]]
    if len(values) > _MAX_NAMED:
        texts.append(f"{len(values) - _MAX_NAMED} more")
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)

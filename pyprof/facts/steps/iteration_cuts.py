# SPDX-License-Identifier: Apache-2.0
"""Iterations: the ways to cut a run, and the choice among them when the user names none.

The automatic cut is the first of these that the recording has: steps that the program marked (`p.step()`,
ProfilerStep), steps of a server of language models, ranges of the user that are named like steps, the turns of a
training loop (`step_ends`), the starts of a DataLoader's waits, an outermost range that repeats, passes over a network
(`repetition`). Else there are no steps. A key operator cuts as DLProf does: iteration 0 begins with the recording, each
iteration ends where an execution of the key ends, and the remainder after the last one is one more iteration, a partial
one.

Bounds are those of the program on the host: an event belongs to the iteration in which it was launched. How long an
iteration lasts follows from these events (`device_bounds`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.core.errors import UsageError
from pyprof.core.model import Ints
from pyprof.core.serving import step_of
from pyprof.facts.host.host_log import HostLog
from pyprof.facts.steps import repetition, step_bounds
from pyprof.facts.steps.step_ends import optimizer_ends
from pyprof.store.files import Store
from pyprof.store.ids import first_id, worker_of
from pyprof.store.kinds import HAS_LENGTH

_STEP_NAME = re.compile(r"\d+")


class Iterations(NamedTuple):
    """A cut: per iteration its worker, number from 0, start and end in ns, and whether it is partial."""

    method: str
    key: str | None
    note: str
    worker: Ints
    number: Ints
    start: Ints
    end: Ints
    partial: Ints


def automatic(store: Store) -> Iterations:
    """Return the first cut that fits, or one iteration for everything if none does."""
    return _without_pauses(store, _automatic(store))


def _automatic(store: Store) -> Iterations:
    methods: tuple[Callable[[Store], Iterations | None], ...] = (
        _marks, _profiler_steps, _serving, _user_ranges, _optimizer, _data_loader, _outermost_range, _passes,
    )  # fmt: skip
    for method in methods:
        cut = method(store)
        if cut is not None:
            return cut
    return whole(store)


class Cut(NamedTuple):
    """A way to cut a recording, as in the table `iteration_set`."""

    method: str
    key: str | None
    note: str


_METHODS = (
    "marks",
    "ranges",
    "optimizer",
    "dataloader",
    "range",
    "operator",
    "none",
)  # in the order of `_automatic`
_PROFILER, _SERVER, _OPTIMIZER, _LOADER = (
    "ranges ProfilerStep#", "a server's steps", "updates by an optimizer", "starts of the DataLoader's waits",
)  # fmt: skip
_OF_RUN = {
    "optimizer": _OPTIMIZER,
    "dataloader": _LOADER,
}  # cuts that need two ends in the run, not on each rank


def single(store: Store) -> list[str]:
    """Return the methods that do not cut this recording, but would cut a run of two such."""
    methods = {"optimizer": _optimizer, "dataloader": _data_loader}
    return [name for name, cut in methods.items() if cut(store) is None and cut(store, 1) is not None]


def common(cuts: Sequence[Cut], singles: Sequence[Sequence[str]]) -> Cut:
    """Return the cut of a run whose recordings, in the order of their ranks, are cut so on their own: the first method
    that any has, by the most frequent range, or by the operator of the first rank. `singles`: as of `single`.

    >>> common([Cut("none", None, ""), Cut("marks", None, "marks")], [[], []]).method
    'marks'
    >>> common([Cut("none", None, "")] * 2, [["optimizer"], ["optimizer"]]).method
    'optimizer'
    """
    also = [Cut(name, None, note) for name, note in _OF_RUN.items() if sum(name in one for one in singles) > 1]

    def place(cut: Cut) -> tuple[int, int, int]:
        of_user = cut.method == "ranges" and cut.note not in (_PROFILER, _SERVER)
        frequent = cuts.count(cut) if of_user else 0
        return _METHODS.index(cut.method), of_user + (cut.note == _SERVER), -frequent

    return min([*cuts, *also], key=place)


def like(store: Store, cut: Cut) -> Iterations | None:
    """Return the iterations of one recording of a run that is cut so; None if it has nothing that cuts it so."""
    if cut.method == "key":
        return by_key(store, cut.key or "")
    if cut.method == "marks":
        out = _marks(store)
    elif cut.note == _PROFILER:
        out = _profiler_steps(store)
    elif cut.note == _SERVER:
        out = _serving(store)
    elif cut.method == "ranges":
        out = _user_ranges(store, cut.note)
    elif cut.method == "dataloader":
        out = _data_loader(store, 1)
    elif cut.method == "none":
        out = whole(store)
    else:
        out = _turns(store, cut.method, cut.note, _FINDERS[cut.method], 1)
    return _without_pauses(store, out) if out else None


def whole(store: Store) -> Iterations:
    """Return the recording as one iteration."""
    spans = _spans(store)
    return _cut(
        "none",
        None,
        "no steps were found",
        {w: (np.array([a]), np.array([b])) for w, (a, b) in spans.items()},
    )


def by_key(store: Store, key: str) -> Iterations:
    """Cut at the ends of a key operator, given by its name, id, or last part of the name. Raises UsageError."""
    operators = _operators(store, key)
    ends = store.columns(f"select id, end_ns from op where operator in ({','.join(map(str, operators))}) order by id")
    return _without_pauses(
        store,
        _by_ends("key", key, f"ends of {key}", store, worker_of(ends["id"].values), ends["end_ns"].values),
    )


def _without_pauses(store: Store, cut: Iterations) -> Iterations:
    """Take pauses of the recording out of the iterations.

    An iteration that begins with a pause starts after it; one that ends with a pause stops before it. An iteration
    with a pause between its operators is partial, because its length without the pause is unknown, and so is one in
    which a stretch has no operators.
    """
    start, end, partial = cut.start.copy(), cut.end.copy(), cut.partial.copy()
    pauses = store.rows("select worker, start_ns, end_ns, waited from pause order by worker, start_ns")
    for worker in dict.fromkeys(row[0] for row in pauses):
        columns = store.columns(
            f"select start_ns from op where id >= {first_id(worker)} and id < {first_id(worker + 1)} order by start_ns"
        )
        ops = columns["start_ns"].values
        for _, begin, stop, waited in (row for row in pauses if row[0] == worker):
            for i in np.flatnonzero((cut.worker == worker) & (start < stop) & (end > begin)).tolist():
                first, last, paused, resumed = np.searchsorted(ops, (start[i], end[i], begin, stop)).tolist()
                if waited and paused <= first and stop < end[i]:
                    start[i] = stop
                elif waited and resumed >= last and begin > start[i]:
                    end[i] = begin
                elif cut.method != "none":
                    partial[i] = 1
    return cut._replace(start=start, end=end, partial=partial)


def _operators(store: Store, key: str) -> list[int]:
    """Return the forward operators that a key names, else those of any direction."""
    rows = store.rows("select id, op_id, name, type, direction from operator")
    for place in (2, 1, 3):
        matches = [row for row in rows if row[place] == key]
        forward = [row[0] for row in matches if row[4] == 0]
        if matches:
            return forward or [row[0] for row in matches]
    names = list(dict.fromkeys([row[2] for row in rows] + [row[1] for row in rows]))
    near = difflib.get_close_matches(key, names, 5, 0)
    raise UsageError(f"key operator {key!r} was not found; the nearest names are {', '.join(map(repr, near))}.")


def _marks(store: Store) -> Iterations | None:
    rows = store.rows("select worker, start_ns, end_ns from step order by worker, start_ns")
    return _from_starts("marks", "steps marked by the program", rows)


def _profiler_steps(store: Store) -> Iterations | None:
    rows = store.rows(
        """select range.id >> 40, start_ns, start_ns + duration_ns
           from range join string on string.id = range.text
           where string.text like 'ProfilerStep#%'
           order by range.id"""
    )
    return _from_starts("ranges", _PROFILER, _distinct(rows))


def _serving(store: Store) -> Iterations | None:
    """Cut at the steps of a server, which vLLM and SGLang announce. Such a range ends before its work on the GPU does,
    so the last step takes the remainder."""
    cut = _from_starts("ranges", _SERVER, [row[:3] for row in server_steps(store)])
    return _to_the_end(store, cut) if cut else None


def server_steps(store: Store) -> list[tuple[int, int, int, str]]:
    """Return worker, start, end and text of a server's steps, in order; of nested ones only the outer."""
    names = {number: text for number, text in store.rows("select id, text from string") if step_of(text)}
    rows = store.rows(
        f"""select id >> 40, start_ns, start_ns + duration_ns, text from range
            where text in ({",".join(map(str, names))}) and {HAS_LENGTH} order by id"""
    )
    return [(worker, start, end, names[text]) for worker, start, end, text in _distinct(rows)]


def _user_ranges(store: Store, note: str | None = None) -> Iterations | None:
    """Cut at ranges named like steps; of several names the most frequent, or that of a note, of nested ranges the outer
    ones."""
    from pyprof.parse.paths import is_step

    texts = store.rows("select id, text from string")
    names: dict[str, list[int]] = {}
    for number, text in texts:
        if is_step(text) and not text.startswith("ProfilerStep#"):
            names.setdefault(_STEP_NAME.sub("#", text), []).append(number)
    if note is not None:
        names = {name: ids for name, ids in names.items() if note == f"ranges {name!r}"}
    best: tuple[int, int, str, list[tuple[int, ...]]] | None = None
    for name, ids in names.items():
        rows = store.rows(
            f"""select id >> 40, start_ns, start_ns + duration_ns from range
                where text in ({",".join(map(str, ids))}) and {HAS_LENGTH} order by id"""
        )
        length = sum(end - start for _, start, end in rows)
        if len(rows) > (note is None) and (best is None or (len(rows), length) > best[:2]):
            best = len(rows), length, name, rows
    return _from_starts("ranges", f"ranges {best[2]!r}", _distinct(best[3])) if best else None


def _distinct(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return ranges, by worker, start and end, without those inside another: a step may be announced twice."""
    out: list[tuple[int, ...]] = []
    for row in rows:
        worker, start, _ = row[:3]
        if not out or out[-1][0] != worker or start >= out[-1][2]:
            out.append(row)
    return out


def _from_starts(method: str, note: str, rows: Sequence[tuple[int, ...]]) -> Iterations | None:
    """Cut from each start to the next. The last iteration ends where its mark ends."""
    if not rows:
        return None
    bounds = {}
    table = np.array(rows, np.int64)
    for worker in np.unique(table[:, 0]).tolist():
        own = table[table[:, 0] == worker]
        bounds[worker] = own[:, 1], np.r_[own[1:, 1], max(own[-1, 2], own[-1, 1])]
    return _cut(method, None, note, bounds)


def _optimizer(store: Store, at_least: int = 2) -> Iterations | None:
    return _turns(store, "optimizer", _OPTIMIZER, _FINDERS["optimizer"], at_least)


def _outermost_range(store: Store) -> Iterations | None:
    return _turns(store, "range", "range {!r}, which repeats", _FINDERS["range"])


def _passes(store: Store) -> Iterations | None:
    return _turns(store, "operator", "passes that begin with {}", _FINDERS["operator"])


_Finder = Callable[[HostLog], repetition.Turns | None]
_FINDERS: dict[str, _Finder] = {
    "optimizer": lambda log: repetition.Turns(None, optimizer_ends(log)),
    "range": repetition.range_ends,
    "operator": repetition.pass_ends,
}


def _turns(store: Store, method: str, note: str, find: _Finder, at_least: int = 2) -> Iterations | None:
    """Cut where `find` says that turns of a loop end, with a name of what repeats, if all workers together have enough
    of them. A worker without any is one."""
    spans = _spans(store)
    logs = {worker: HostLog(store, worker) for worker in spans}
    turns = {worker: of_worker for worker, log in logs.items() if (of_worker := find(log)) and len(of_worker.ends)}
    if sum(len(of_worker.ends) for of_worker in turns.values()) < at_least:
        return None
    bounds, incomplete = {}, set()
    for worker, (first, last) in spans.items():
        bounds[worker] = np.array([first]), np.array([last])
        if worker in turns:
            _, ends, begin = turns[worker]
            steps = step_bounds.from_ends(logs[worker], np.unique(ends), last, begin)
            bounds[worker] = steps.start, steps.end
            incomplete |= {worker} if steps.incomplete else set()
    key = next(iter(turns.values())).name
    return _cut(method, key, note.format(key), bounds, incomplete)


def _data_loader(store: Store, at_least: int = 2) -> Iterations | None:
    """Cut at the starts of waits for the data loader. A wait that no operator follows found the loader at its end."""
    bounds = {}
    for worker, (_, last) in _spans(store).items():
        log = HostLog(store, worker)
        start = log.waits.start
        if not len(start):
            continue
        stop = np.r_[start[1:], max(last, int(log.waits.end[-1]))]
        if len(log.executions.start):
            computes = log.executions.start[log.operators.computes[log.executions.key]]
            used = np.searchsorted(computes, start) < np.searchsorted(computes, stop)
            start, stop = start[used], stop[used]
        bounds[worker] = start, stop
    if sum(len(start) for start, _ in bounds.values()) < at_least:
        return None
    return _cut("dataloader", None, _LOADER, bounds)


def _to_the_end(store: Store, cut: Iterations) -> Iterations:
    """Extend the last iteration of each worker to its last event."""
    ends, end = _spans(store), cut.end.copy()
    last = np.flatnonzero(np.r_[cut.worker[1:] != cut.worker[:-1], True])
    end[last] = [max(int(end[i]), ends[int(cut.worker[i])][1]) for i in last]
    return cut._replace(end=end)


def _by_ends(method: str, key: str | None, note: str, store: Store, worker: Ints, end: Ints) -> Iterations:
    """Cut as DLProf does: from the beginning to the first end, from end to end, and the remainder."""
    bounds = {}
    for number, (first, last) in _spans(store).items():
        ends = np.unique(end[worker == number])
        stops = np.r_[ends, max(last, int(ends[-1]))] if len(ends) else np.array([last])
        starts = np.r_[first, ends]
        keep = stops > starts
        bounds[number] = starts[keep], stops[keep]
    several = {number for number, (starts, _) in bounds.items() if len(starts) > 1}
    return _cut(method, key, note, bounds, several)


def _cut(
    method: str,
    key: str | None,
    note: str,
    bounds: dict[int, tuple[Ints, Ints]],
    incomplete: Container[int] = (),
) -> Iterations:
    """Return the iterations of all workers in one table. `incomplete`: workers whose last iteration is partial."""
    columns: list[npt.NDArray[np.int64]] = []
    for worker, (start, end) in sorted(bounds.items()):
        n = len(start)
        partial = np.zeros(n, np.int64)
        partial[-1:] = worker in incomplete
        columns.append(np.column_stack([np.full(n, worker), np.arange(n), start, end, partial]).astype(np.int64))
    table = np.concatenate(columns) if columns else np.empty((0, 5), np.int64)
    return Iterations(method, key, note, *table.T)


def _spans(store: Store) -> dict[int, tuple[int, int]]:
    """Return the times of the first and last event of each worker."""
    return {w: (a, b) for w, a, b in store.rows("select id, start_ns, end_ns from worker")}

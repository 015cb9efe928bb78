# SPDX-License-Identifier: Apache-2.0
"""Work of the CPU that the GPU waits for: where in the program it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from pyprof.core.marker import COLLECTION, SAVING
from pyprof.core.model import Bools, Ints
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.host_work import HostWork, main_thread
from pyprof.facts.host.places import is_users, place_texts, user_line
from pyprof.facts.path.what_if import Edit
from pyprof.rules import Finding, Rows, rule
from pyprof.rules.context import LAUNCHES_IF_ANY, Run, unions
from pyprof.rules.thresholds import limit
from pyprof.store import reads
from pyprof.store.moments import first_from

_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
# Names of a collection, PyProf's and torch.profiler's (record_python_gc_info), and of a call of it.
_COLLECTIONS = (f"{COLLECTION}%", "<built-in function collect>")
_OWN = (f"{COLLECTION} (%", f"{SAVING} (%")  # ranges of PyProf's capture, which have a line
_SAVES = re.compile(r"torch[/\\]serialization\.py|torch\.save|save_checkpoint")
_SAVING = ("%serialization.py%", "%torch.save%", "%save\\_checkpoint%")  # the same in SQL
_ENGINE = ("%run\\_backward%",)  # torch's engine, whose threads do the work
COLLECTIVES = ("gloo:%", "mpi:%")  # that run on the CPU
_USUAL = 0.25  # part of the waits in one place that are at most as long as its work, if interruptions lengthen others
_SLEEPS = re.compile(r"built-in function sleep")


def host_stretches(run: Run) -> pd.DataFrame:
    """Return the stretches of the steady steps in which a GPU waited for a launch, or without a GPU the program, while
    the CPU was in one place outside of operators for long: the worker, the place with its line, time in ns, whether
    Python collected garbage then, and what the CPU did there from `begin` to `finish`, also while the GPU still worked.
    """
    parts = [_stretches(run, excerpt) for excerpt in run.excerpts]
    columns = {"worker": np.int64, "place": object, "known": bool, "waited": np.int64, "collects": bool}
    columns |= {"begin": np.int64, "finish": np.int64}
    empty = pd.DataFrame({name: np.empty(0, kind) for name, kind in columns.items()})
    return pd.concat([empty, *parts], ignore_index=True)


def sums_by_place(run: Run, collects: bool) -> pd.DataFrame:
    """Return the places of such stretches, the longest first: `place`, `known`, `waits`, `time` in ns of the window,
    and `few`. The time is the mean over the workers; where few of them are in a place, these are named, and it is what
    they take more than the median worker, since the others wait for them. A place is left out unless a worker is in it
    in half of the steps, and where it is not known, a worker's stretches count as their lower quartile: the rest may be
    noise."""
    own = run.once(host_stretches)
    own = own[own["collects"] == collects]
    names = dict(run.store.rows("select id, name from worker"))
    rows = []
    for place, stretches in own.groupby("place", sort=False):
        known = bool(stretches["known"].all())
        by_worker = stretches.groupby("worker")["waited"]
        if 2 * by_worker.size().max() < run.steps:
            continue
        sums = by_worker.sum()
        if not known:
            sums = (by_worker.size() * by_worker.quantile(_USUAL)).clip(upper=sums)
        times = sums.reindex(sorted({row[0] for row in run.ids}), fill_value=0)
        most, middle = times.max(), times.sort_values().iloc[(len(times) - 1) // 2]
        few = 2 * middle < most
        at = f", on {', '.join(names[n] for n in times.index[2 * times >= most])}" if few else ""
        time = int(most - middle if few else times.mean())
        rows.append((f"{place}{at}", known, len(stretches), time, place, few))
    table = pd.DataFrame(rows, columns=["place", "known", "waits", "time", "name", "few"])
    return table.sort_values("time", ascending=False, kind="stable")


def places_to_report(run: Run) -> pd.DataFrame:
    """Return the places that R49 is about: those with enough of the time."""
    table = sums_by_place(run, collects=False)
    shares = table["time"].map(run.share)
    return table[(shares > limit("R49.share")) & (table["known"] | (shares > limit("R49.unknown")))]


def edits_of(run: Run, stretches: pd.DataFrame) -> dict[int, Edit]:
    """Return what is to be taken out of each worker for it to be in no such place. Where that is in a call that saves,
    it is all of such calls, with their copies."""
    out = {}
    saving = {code for code, text in texts_like(run, _SAVING).items() if _SAVES.search(text)}
    for worker, host in unions(stretches).items():
        saves = run.host_work(worker).calls_of(saving) if saving else NOTHING
        out[worker] = Edit(host.with_(saves) if saves.covers(host.start, host.end).any() else host)
    return out


def _stretches(run: Run, excerpt: Excerpt) -> pd.DataFrame:
    work = run.host_work(excerpt.worker)
    thread, start, end = _without_operators(run, excerpt, work) if run.on_cpu else _late(run, excerpt)
    times = work.times(thread, start, end)
    low, waited = (times[name].to_numpy(np.int64) for name in ("low", "time"))
    waited = waited - excerpt.paused.within(low, low + waited)
    apart = (excerpt.dataloader, ranges_of(run, excerpt, COLLECTIVES))
    of_others = np.maximum(*(one.within(low, low + waited) for one in apart))
    engine = np.isin(times["function"], list(texts_like(run, _ENGINE)))
    owner = thread[times["stretch"].to_numpy(np.int64)]
    called = (times["operator"] >= 0) & work.in_function(owner, low)
    outside = ((times["operator"] < 0) | called) & (waited >= limit("R49.length")) & ~engine
    keep = np.flatnonzero(outside & (2 * of_others <= waited))
    functions = reads.texts_of(run.store, times["function"].to_numpy(np.int64)[keep])
    where = zip(work.stacks(owner[keep], low[keep]), times["function"].to_numpy(np.int64)[keep].tolist())
    users = [_is_users(functions.get(code, ""), work.stack(number).frames) for number, code in where]
    keep = keep[~called[keep].to_numpy() | np.array(users, bool)]
    low, waited, finish = low[keep], waited[keep], (low + times["time"].to_numpy(np.int64))[keep]
    stretch, text, function = times.iloc[keep][["stretch", "text", "function"]].to_numpy(np.int64).T
    begun, thread = low == start[stretch], thread[stretch]
    own = np.isin(text, list(texts_like(run, _OWN)))
    known = (function >= 0) | own
    host = np.where((function >= 0) & ~own, function, text)
    return pd.DataFrame({
        "worker": excerpt.worker, "place": _names(run, work, thread, low, host, known),
        "known": known, "waited": waited, "collects": 2 * collections(run, excerpt).within(low, low + waited) > waited,
        "begin": np.where(begun, _since(excerpt, work, thread, low), low), "finish": finish,
    })  # fmt: skip


def _names(run: Run, work: HostWork, thread: Ints, time: Ints, host: Ints, known: Bools) -> list[str]:
    """Return where threads are, `host` the text of the range or function."""
    stacks = work.stacks(thread, time)
    texts = place_texts(run.store, work.stack, pd.DataFrame({
        "call": -1, "host": host, "where": 1, "operator": work.following(thread, time), "stack": stacks,
    }))  # fmt: skip
    around = ((stacks >= 0) | known).tolist()
    return [named(*row) for row in zip(texts["host"], texts["operator"], texts["stack"], around)]


def _is_users(function: str, frames: Sequence[str]) -> bool:
    """Return whether a Python function is the user's, or a built-in one that a line of the user calls."""
    match = _FRAME.match(function)
    return is_users(match["file"]) if match else bool(frames) and is_users(frames[-1])


def _since(excerpt: Excerpt, work: HostWork, thread: Ints, time: Ints) -> Ints:
    """Return since when threads were in a place, also before the GPU waited for it, after any thread's last call."""
    calls = excerpt.of_calls("start_ns").values + excerpt.of_calls("duration_ns").values
    ended = np.r_[-1, np.sort(calls)]
    before = np.maximum(work.since(thread, time), ended[np.searchsorted(ended, time, side="right") - 1])
    return np.where(before >= 0, before, time)


def _late(run: Run, excerpt: Excerpt) -> tuple[Ints, Ints, Ints]:
    """Return the stretches, by thread, in which the GPU waited for a launch, as far as they may be long enough."""
    gaps, _ = run.late_gaps(excerpt)
    gaps = gaps.take(gaps.until - gaps.since >= limit("R49.length"))
    return gaps.thread, gaps.since, gaps.until


def _without_operators(run: Run, excerpt: Excerpt, work: HostWork) -> tuple[Ints, Ints, Ints]:
    """Return the stretches in which the main thread is in no operator; none where no operator was recorded."""
    thread = main_thread(run.store, excerpt.worker)
    busy = work.busy(thread).with_(excerpt.paused)
    start = np.clip(np.r_[excerpt.window[0], busy.end], *excerpt.window)
    end = np.clip(np.r_[busy.start, excerpt.window[1]], *excerpt.window)
    long = (end - start >= limit("R49.length")) & (thread >= 0)
    return np.full(int(long.sum()), thread), start[long], end[long]


def named(host: str | None, operator: str | None, lines: str | None, around: bool) -> str:
    """Return where the CPU is: a name, its line, and the line of the user's program that it was called from. `around`:
    whether the lines are those around it, not those of the operator that follows.

    >>> named("torch/serialization.py(940): save", None, "train.py:60\\ntorch/serialization.py:940", True)
    'in save (torch/serialization.py:940), called from train.py:60'
    >>> named(None, "embedding", "train.py:9\\nnet.py:30", False)
    'outside of operators, before embedding (net.py:30)'
    """
    line = (lines or "").rpartition("\n")[2]
    if host is None or not around:
        follows = f", before {operator}{f' ({line})' if line else ''}" if operator else ""
        return (f"in {host}" if host else "outside of operators") + follows
    if host.startswith((f"{COLLECTION} (", f"{SAVING} (")):
        return f"in {host}"
    match = _FRAME.match(host)
    name, own = (match["function"], f"{match['file']}:{match['line']}") if match else (host, line)
    caller = user_line(lines)
    called = f", called from {caller}" if caller and caller != own else ""
    return f"in {name}{f' ({own})' if own else ''}{called}"


def collections(run: Run, excerpt: Excerpt) -> Union:
    """Return the garbage collections of an excerpt."""
    return ranges_of(run, excerpt, _COLLECTIONS)


def ranges_of(run: Run, excerpt: Excerpt, patterns: tuple[str, ...]) -> Union:
    """Return the time of an excerpt in ranges whose texts match an SQL pattern."""
    ranges = ranges_with(run, texts_like(run, patterns), excerpt.worker, *excerpt.window)
    return Union(ranges["start_ns"], ranges["start_ns"] + ranges["duration_ns"])


def texts_like(run: Run, patterns: tuple[str, ...]) -> dict[int, str]:
    """Return texts of ranges that match an SQL pattern, by their ids."""
    out: dict[int, str] = {}
    for pattern in patterns:
        out |= dict(run.store.rows("select id, text from string where text like ? escape '\\'", (pattern,)))
    return out


def ranges_with(run: Run, codes: dict[int, str], worker: int, start: int, end: int) -> dict[str, Ints]:
    """Return ranges with these texts that begin in [start, end): text, start_ns, duration_ns, by start."""
    names = ("text", "start_ns", "duration_ns")
    columns: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in names]
    if codes:
        ids = (first_from(run.store, "range", worker, time) for time in (start, end))
        for part in run.store.parts("range", names, *ids):
            own = np.isin(part["text"].values, list(codes))
            for column, name in zip(columns, names):
                column.append(part[name].values[own])
    return {name: np.concatenate(column) for name, column in zip(names, columns)}


@rule("R49", "host_work", LAUNCHES_IF_ANY, rows=Rows("idle", "Idle time", without_gpu=Rows("step_time", "Step Time")))
def host_work(run: Run) -> Finding | None:
    """The CPU is in one place of the program that launches nothing, Python code, a file, another library, and the GPU
    waits for it; without a GPU, the program is there, outside of operators. Shorter waits than 0.2 ms are those of any
    launch (R05). Garbage collection is R33, waits for the DataLoader R08. The saving is that of the first place. What
    is in no recorded Python function has to be more.

    Fires: 400 us in a function between the operators of each step of 1 ms, the GPU idle.
    Silent: the same while kernels run; 20 us; the same time in an operator.
    """
    table = places_to_report(run)
    if not len(table):
        return None
    place, known, _, time, name, few = next(table.itertuples(index=False))
    if few:
        run.late_ranks.add("R49")
    stretches = run.once(host_stretches)
    first = stretches["place"].eq(name) & ~stretches["collects"]
    saving = run.without("R49", edits_of(run, stretches[first]), time)
    if not known:  # the rest of its time may be noise
        saving = min(saving, time)
    times = f"{run.cost(time)},"
    who = f"The program spends {times}" if run.on_cpu else f"The GPU waits for {times} while the CPU is"
    more = "" if known else (
        " To know the line, record with torch.profiler(with_stack=True), or with pyprof run --sample cpu and look at "
        "the samples in the timeline."
    )  # fmt: skip
    return run.finding(
        f"{who} {place}.",
        _advice(place, run.on_cpu) + more,
        saving,
        run.top(table, "time", "place waits time_ns=time"),
        "A step gets shorter, and the report idle no longer has the place.",
    )


def _advice(place: str, on_cpu: bool) -> str:
    if _SLEEPS.search(place):
        return "Remove the sleep, or wait for the event itself in another thread."
    if _SAVES.search(place):
        return (
            "Save every N steps; or copy the state and write it in another thread or process "
            "(torch.distributed.checkpoint.async_save)."
        )
    after = "" if on_cpu else " What has to stay can run after the launches of the step, while the GPU works."
    return (
        "Move it out of the step: into workers of the DataLoader, another thread, or before the loop; or do it every "
        f"N steps.{after}"
    )

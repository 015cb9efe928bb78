# SPDX-License-Identifier: Apache-2.0
"""Rules about the input: waits for the DataLoader."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from pyprof.analysis.host_work import HostWork
from pyprof.analysis.what_if import Edit
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit
from pyprof.store import reads
from pyprof.units import percent

# Names of torch.utils.data's iterators in its ranges: without workers, with workers.
_SINGLE, _SEVERAL = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


_WAITS = Rows(
    "idle", "Idle time, waits for the data loader", ("cause:data loader",), Rows("step_time", "Step time")
)


@rule("R08", "dataloader_bound", rows=_WAITS)
def dataloader_bound(run: Run) -> Finding | None:
    """The loop waits for its DataLoader while the GPU does nothing, although the loader has workers (without workers:
    R09).

    Fires: 15 ms of each step of 100 ms in the DataLoader's next, the GPU idle, 4 workers.
    Silent: the same wait while kernels still run; 5 ms of 100 ms; a loader without workers.
    """
    waits = _waits(run)
    if waits is None or _workers(run) == {"0"}:
        return None
    part, who = _loading(run)
    if run.share(part) <= limit("R08.share"):
        return None
    settings = _settings(run)
    advice = ["Load more in parallel: raise num_workers"]
    if "persistent_workers" not in settings or settings["persistent_workers"] != "yes":
        advice.append("keep workers between epochs with persistent_workers=True")
    advice.append("raise prefetch_factor if the waits are uneven")
    return run.finding(
        f"The loop waits for its DataLoader {percent(run.share(part))} of the time{_idle(run)}, "
        f"{run.time(part)}{_mostly(waits)}{who}.",
        ", ".join(advice)
        + ". Make the transforms cheaper: decode and resize once ahead of time, or on the GPU.",
        _saving(run, "R08", part),
        [
            *({"loader": text} for text in [", ".join(f"{k}={v}" for k, v in settings.items())] if text),
            *waits,
        ],
        "The waits for the data loader fall (report step_time, categories=phase).",
    )


def _idle(run: Run) -> str:
    """Say what the GPU does meanwhile, if there is one."""
    return " while the GPU does nothing" if run.source.gpu else ""


@rule("R09", "workers_zero", rows=_WAITS)
def workers_zero(run: Run) -> Finding | None:
    """The DataLoader has no workers: the training loop loads each batch itself, while the GPU does nothing. With
    workers, a step takes as long as the longer of the rest and of loading, divided by their number.

    Fires: num_workers=0 and 5 % of the time in the DataLoader.
    Silent: num_workers=4; loading that takes 1 % of the time; a machine with one usable CPU.
    """
    waits = _waits(run)
    if waits is None:
        return None
    workers = _workers(run)
    if not workers:
        raise NeedsFacts(
            "needs num_workers of the DataLoader, which this recording lacks; record with pyprof"
        )
    usable = run.facts.get("cpu.usable", "")
    part, who = _loading(run)
    if workers != {"0"} or usable == "1" or run.share(part) <= limit("R09.share"):
        return None
    count = min(4, int(usable) - 1) if usable.isdigit() else 4
    return run.finding(
        f"The DataLoader has num_workers=0: the loop loads its batches itself for {percent(run.share(part))} of the "
        f"time, {run.time(part)}{_mostly(waits)}{who}.",
        f"DataLoader(..., num_workers={count}, persistent_workers=True): batches are prepared while the step runs. The "
        f"dataset must be picklable where processes are spawned.",
        min(_saving(run, "R09", part), max(run.wall - _longest(run) // count, 0)),
        waits,
        "The waits for the data loader fall (report step_time, categories=phase); more workers than needed cost "
        "memory only.",
    )


def _loading(run: Run) -> tuple[int, str]:
    """Return the time that a worker waits, mean over those that do, and their names, if these are not most of them."""
    loading = {
        sample.worker: len(run.source.activity(sample.worker).dataloader.cut(sample.start, sample.end))
        for sample in run.samples
    }
    most, names = max(loading.values(), default=0), reads.worker_names(run.store)
    few = [names[worker] for worker, time in loading.items() if 2 * time >= most]
    if 2 * len(few) >= len(loading):
        return run.loading, ""
    run.late_ranks.add("R09" if _workers(run) == {"0"} else "R08")
    return run.loading * len(loading) // len(few), f", on {', '.join(few)}"


def _longest(run: Run) -> int:
    """Return the time that a worker is in its loader in the window, of the one that is there longest."""
    times = [
        len(run.source.activity(sample.worker).dataloader.cut(sample.start, sample.end))
        for sample in run.samples
    ]
    return run.scaled(max(times, default=0) * run.workers)


def _saving(run: Run, rule: str, waited: int) -> int:
    """Return what a loader that has its batches ready would save."""
    workers = [sample.worker for sample in run.samples]
    return run.without(rule, {one: Edit(run.source.activity(one).dataloader) for one in workers}, waited)


def _waits(run: Run) -> list[dict[str, Any]] | None:
    """Return the longest waits of the window; None if there are none. Raises NeedsFacts if they are unknown."""
    ours = run.facts.get("format") == "capture" and "operators" in run.facts.get("layers", "operators")
    if not ours and not run.store.rows("select 1 from dataloader limit 1"):
        raise NeedsFacts(
            "needs the ranges around a DataLoader's next; record with pyprof, or with torch.autograd.profiler.emit_nvtx"
        )
    rows: list[tuple[int, int, int, int]] = []
    for worker, start, end, *_ in run.ids:
        rows += run.store.rows(
            """select t.worker, t.id, d.start_ns, d.duration_ns from dataloader d join thread t on t.id = d.thread
               where t.worker = ? and d.start_ns >= ? and d.start_ns < ? order by d.duration_ns desc limit 4""",
            (worker, start, end),
        )
    rows.sort(key=lambda row: -row[3])
    return [
        {
            "worker": worker,
            "start_ns": start,
            "wait_ns": length,
            "source": _line(run, worker, thread, start, length),
        }
        for worker, thread, start, length in rows[:4]
    ] or None


def _line(run: Run, worker: int, thread: int, start: int, length: int) -> str | None:
    """Return the source line of most of a wait: of the innermost Python function, or of the operator."""
    work = HostWork(run.source.activity(worker), (start, start + length))
    place = work.places(*(np.array([value]) for value in (thread, start, start + length)))
    frames = work.stack(int(place.stack[0])).frames
    if frames:
        return frames[-1]
    operator = int(place.operator[0])
    return run.operators["source"].get(operator) if operator >= 0 else None


def _mostly(waits: list[dict[str, Any]]) -> str:
    """Return the line that most of the waits' time was in, if that of at least half of it is known.

    >>> waits = [{"wait_ns": 9, "source": None}, {"wait_ns": 8, "source": "a.py:1"}, {"wait_ns": 7, "source": "b.py:2"}]
    >>> _mostly(waits), _mostly(waits[:2])
    (', above all in a.py:1', '')
    """
    times = Counter[str | None]()
    for wait in waits:
        times[wait["source"]] += wait["wait_ns"]
    known = {line: time for line, time in times.items() if line is not None}
    return (
        f", above all in {max(known, key=known.__getitem__)}"
        if known and sum(known.values()) >= times[None]
        else ""
    )


def _settings(run: Run) -> dict[str, str]:
    """Return the settings of the first loader."""
    names = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "batch_size")
    settings = {name: run.facts.get(f"loader.0.{name}") for name in names}
    return {name: text for name, text in settings.items() if text is not None}


def _workers(run: Run) -> set[str]:
    """Return the numbers of workers of all loaders; "some" for one that is only known from the name of its iterator."""
    numbers = {
        text for key, text in run.facts.items() if key.startswith("loader.") and key.endswith(".num_workers")
    }
    if numbers:
        return numbers
    names = run.store.rows("select text from string where text like 'enumerate(DataLoader)#%'")
    kinds = {"0" if _SINGLE in name else "some" if _SEVERAL in name else None for (name,) in names}
    return set() if None in kinds else {kind for kind in kinds if kind}

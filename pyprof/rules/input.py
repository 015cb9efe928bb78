# SPDX-License-Identifier: Apache-2.0
"""Rules about the input: waits for the DataLoader."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any, NamedTuple

import numpy as np

from pyprof.core.units import duration, percent
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host import loader_work
from pyprof.facts.host.host_work import HostWork
from pyprof.facts.host.loader_work import Enough, Work
from pyprof.facts.path.what_if import Edit
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit
from pyprof.store import reads

# Names of torch.utils.data's iterators in its ranges: without workers, with workers.
_SINGLE, _SEVERAL = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


_WAITS = Rows("idle", "Idle time, waits for the data loader", ("cause:data loader",), Rows("step_time", "Step time"))


@rule("R08", "dataloader_bound", rows=_WAITS)
def dataloader_bound(run: Run) -> Finding | None:
    """The loop waits for its DataLoader while the GPU does nothing, although the loader has workers (without workers:
    R09). Where the work of its workers was recorded: their time for a batch by stage, and the number of workers with
    which batches would be ready, which is their work for the batches of a step, divided by the step without its waits.
    No more are advised than the processors carry: a step cannot be shorter than the CPU time of that work and of the
    loop itself on all processors. The saving is then what the step would be shorter with that number.

    Fires: 15 ms of each step of 100 ms in the DataLoader's next, the GPU idle, 4 workers.
    Silent: the same wait while kernels still run; 5 ms of 100 ms; a loader without workers.
    """
    waits = _waits(run)
    if waits is None or _workers(run) == {"0"}:
        return None
    part, who = _loading(run)
    if run.share(part) <= limit("R08.share"):
        return None
    settings, idle = _settings(run), " while the GPU does nothing" if run.source.gpu else ""
    known = _workers_work(run)
    advice = [_more_workers(known)]
    if settings.get("persistent_workers") != "yes":
        advice.append("keep workers between epochs with persistent_workers=True")
    advice.append("raise prefetch_factor if the waits are uneven")
    what = "Make the transforms" if known is None else f"Or make {known.stages[0].source}"
    cheaper = f"{what} cheaper: decode and resize once ahead of time, or on the GPU."
    if known is None and any(key.endswith(".workers_recorded") and text == "no" for key, text in run.facts.items()):
        cheaper += " Call pyprof.init() before the loader starts its workers: then their work is recorded."
    saving = _saving(run, "R08", part)
    if known is not None and known.raises:
        saving = min(saving, max(run.wall - known.enough.time_ns, 0))
    return run.finding(
        f"The loop waits for its DataLoader {percent(run.share(part))} of the time{idle}, "
        f"{run.time(part)}{_mostly(waits)}{who}.{_told(known)}",
        ", ".join(advice) + ". " + cheaper,
        saving,
        [
            *({"loader": text} for text in [", ".join(f"{k}={v}" for k, v in settings.items())] if text),
            *(stage._asdict() for stage in (known.stages if known is not None else ())),
            *waits,
        ],
        "The waits for the data loader fall (report step_time, categories=phase; by stage: categories=loader).",
    )


class _Stage(NamedTuple):
    """A stage of the work for a batch: its function or name, and its time."""

    source: str
    batch_ns: int


class _Workers(NamedTuple):
    """Work of the workers of the loader that the loop waits for longest."""

    work: Work
    workers: int
    stages: list[_Stage]  # longest first
    enough: Enough

    @property
    def raises(self) -> bool:
        """Flag for workers that are too few."""
        return self.enough.workers > self.workers


def _workers_work(run: Run) -> _Workers | None:
    """Return the work of the loader's workers; None if it was not recorded."""
    if not loader_work.has_batches(run.store):
        return None
    works = loader_work.work(run.store, [(worker, start, end) for worker, start, end, *_ in run.ids])
    workers = run.facts.get(f"loader_workers.{works[0].loader}.workers", "") if works else ""
    if not workers.isdigit():
        return None
    work = works[0]
    names = [run.facts.get(f"loader_workers.{work.loader}.{name}", name) for name in ("samples", "collate_fn")]
    times = (work.samples_ns, work.collate_ns, work.sending_ns, work.pin_ns)
    stages = [
        _Stage(name, time // work.batches)
        for name, time in zip((*names, "sending to the main process", "pinning memory"), times)
        if time
    ]
    stages.sort(key=lambda stage: -stage.batch_ns)
    usable = run.facts.get("cpu.usable", "")
    hosts = [row[0] for row in run.store.rows("select host from worker")]
    processors = int(usable) / max(Counter(hosts).values()) if usable.isdigit() else inf
    threads = run.facts.get("threads.intraop", "") if run.on_cpu else ""
    enough = loader_work.enough(
        work.total_ns // run.workers,
        work.cpu_ns // run.workers,
        run.wall - run.loading,
        processors,
        int(threads) if threads.isdigit() else 1,
    )
    if enough.time_ns >= run.wall:  # the processors are busy already
        enough = enough._replace(workers=int(workers))
    return _Workers(work, int(workers), stages, enough)


def _told(known: _Workers | None) -> str:
    """Say what the workers do for a batch."""
    if known is None:
        return ""
    work = known.work
    stages = ", ".join(f"{duration(stage.batch_ns)} in {stage.source}" for stage in known.stages[:2])
    sample = f"{duration(work.samples_ns / max(work.samples, 1))} for a sample"
    if work.slowest_ns is not None:
        sample += f", at most {duration(work.slowest_ns)}"
        sample += f" (number {work.slowest} of the dataset)" if work.slowest is not None else ""
    each = "Its worker takes" if known.workers == 1 else f"Each of its {known.workers} workers takes"
    return f" {each} {duration(work.total_ns / work.batches)} for a batch: {stages}; {sample}."


def _more_workers(known: _Workers | None) -> str:
    """Advise a number of workers."""
    if known is None:
        return "Load more in parallel: raise num_workers"
    enough = known.enough
    busy = " (the processors allow no more)" if enough.by_cpu else ""
    if known.raises:
        return f"Load more in parallel: num_workers={enough.workers} would do{busy}"
    if enough.by_cpu:
        return "More workers would not help, since the processors are busy with their work"
    return f"Of {known.workers} workers {enough.workers} would do on average: do not raise num_workers"


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
        raise NeedsFacts("needs num_workers of the DataLoader, which this recording lacks; record with pyprof")
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
        min(_saving(run, "R09", part), max(run.wall - max(_in_loader(run).values(), default=0) // count, 0)),
        waits,
        "The waits for the data loader fall (report step_time, categories=phase); more workers than needed cost "
        "memory only.",
    )


def _loading(run: Run) -> tuple[int, str]:
    """Return the time that a worker waits, mean over those that do, and their names, if these are not most of them."""
    loading = _in_loader(run)
    most, names = max(loading.values(), default=0), reads.worker_names(run.store)
    few = [names[worker] for worker, time in loading.items() if 2 * time >= most]
    if 2 * len(few) >= len(loading):
        return run.loading, ""
    run.late_ranks.add("R09" if _workers(run) == {"0"} else "R08")
    return run.loading * len(loading) // len(few), f", on {', '.join(few)}"


def _in_loader(run: Run) -> Counter[int]:
    """Return the time that each worker is in its loader in the window."""
    times = Counter[int]()
    for one in run.excerpts:
        times[one.worker] += len(one.dataloader.cut(*one.window))
    return times


def _saving(run: Run, rule: str, waited: int) -> int:
    """Return what a loader that has its batches ready would save."""
    return run.without(rule, run.edit(lambda one: Edit(one.dataloader)), waited)


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
    work = HostWork(Excerpt(run.store, worker, (start, start + length)))
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
    if not known or sum(known.values()) < times[None]:
        return ""
    return f", above all in {max(known, key=known.__getitem__)}"


def _settings(run: Run) -> dict[str, str]:
    """Return the settings of the first loader."""
    names = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "batch_size")
    return {name: text for name in names if (text := run.facts.get(f"loader.0.{name}")) is not None}


def _workers(run: Run) -> set[str]:
    """Return the numbers of workers of all loaders; "some" for one that is only known from the name of its iterator."""
    numbers = {text for key, text in run.facts.items() if key.startswith("loader.") and key.endswith(".num_workers")}
    if numbers:
        return numbers
    names = run.store.rows("select text from string where text like 'enumerate(DataLoader)#%'")
    kinds = {"0" if _SINGLE in name else "some" if _SEVERAL in name else None for (name,) in names}
    return set() if None in kinds else {kind for kind in kinds if kind}

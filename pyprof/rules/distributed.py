# SPDX-License-Identifier: Apache-2.0
"""Rules about training on several GPUs: division of the work, communication backend, stragglers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.units import duration
from pyprof.costs.kernels import COMMUNICATION
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.path.root_causes import NAMES, root_causes
from pyprof.facts.path.what_if import Edit, together
from pyprof.facts.ranks.collective_groups import collectives
from pyprof.facts.ranks.delay_causes import explain_delays
from pyprof.facts.ranks.stragglers import arrivals, computation
from pyprof.facts.steps.source import Source
from pyprof.rules import RULES, Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.evaluation import judge
from pyprof.rules.host_places import ranges_with, texts_like
from pyprof.rules.slow_operators import slow_operators
from pyprof.rules.thresholds import limit
from pyprof.store import reads

_LEAST = 3  # steps
_OF_HOSTS = ("R08", "R09", "R33", "R49")  # what makes a host slow and has a finding of its own
_DP, _DDP = "DataParallel.forward", "DistributedDataParallel.forward"
_NO_RANGES = (
    "needs torch's own ranges, which this recording lacks; record with pyprof, torch.profiler, or under "
    "torch.autograd.profiler.emit_nvtx"
)


def _ranges(run: Run, pattern: str) -> list[tuple[str, int, int]]:
    """Return ranges of the steady iterations whose text matches an SQL pattern: text, count, total ns."""
    texts = texts_like(run, (pattern,))
    parts = [pd.DataFrame(ranges_with(run, texts, *row[:3])) for row in run.ids]
    sums = pd.concat(parts).groupby("text")["duration_ns"].agg(["size", "sum"])
    sums = sums.sort_values("sum", ascending=False, kind="stable")
    return [(texts[code], count, time) for code, count, time in sums.itertuples()]


def _need_ranges(run: Run) -> None:
    if not run.store.rows("select 1 from range limit 1"):
        raise NeedsFacts(_NO_RANGES)


@rule("R41", "data_parallel", GPU)
def data_parallel(run: Run) -> Finding | None:
    """torch.nn.DataParallel drives several GPUs from one process: it copies the model in every step, and its threads
    wait for each other in Python.

    Fires: DataParallel.forward in the steps, kernels on two GPUs of one process.
    Silent: DistributedDataParallel.forward; DataParallel on one GPU.
    """
    devices: dict[int, set[int]] = {}
    for device in run.used:
        devices.setdefault(device.worker, set()).add(device.number)
    most = max(devices.values(), key=len)
    if len(most) < 2:
        return None
    _need_ranges(run)
    ranges = _ranges(run, _DP)
    if not ranges:
        return None
    ((_, count, time),) = ranges
    return run.finding(
        f"torch.nn.DataParallel runs the model on {len(most)} GPUs of one process, {count} times for {duration(time)}.",
        "Use torch.nn.parallel.DistributedDataParallel with one process per GPU (torchrun --nproc-per-node): no "
        "copy of the model in each step, no threads that wait for one interpreter, and gradients are exchanged "
        "while the backward pass runs.",
        None,
        [{"range": _DP, "calls": count, "time_ns": time, "gpus": ", ".join(map(str, sorted(most)))}],
        "No range DataParallel.forward; one worker per GPU.",
    )


@rule("R42", "ddp_without_nccl", GPU)
def ddp_without_nccl(run: Run) -> Finding | None:
    """Ranks on GPUs exchange gradients through the host (gloo, mpi) instead of NCCL.

    Fires: DistributedDataParallel on GPUs with the backend gloo.
    Silent: backend nccl; kernels of collectives on the GPU; gloo in a run without DistributedDataParallel.
    """
    if run.kernels["what"].isin(COMMUNICATION).any():
        return None
    _need_ranges(run)
    ranges = _ranges(run, _DDP)
    if not ranges:
        return None
    over_host = _ranges(run, "gloo:%") + _ranges(run, "mpi:%")
    backend = run.facts.get("distributed.backend")
    if backend is None and not over_host:
        raise NeedsFacts("needs the backend of torch.distributed, which this recording lacks; record with pyprof")
    if backend is not None and "nccl" in backend.lower():
        return None
    world = run.facts.get("distributed.world_size")
    if world == "1":
        return None
    _, count, time = ranges[0]
    by = backend if backend else over_host[0][0].partition(":")[0]
    return run.finding(
        f"DistributedDataParallel runs on GPUs, {count} forward passes, and exchanges gradients over {by}: no kernel "
        "of a collective runs on the GPUs.",
        "torch.distributed.init_process_group('nccl'): gradients go from GPU to GPU, while the backward pass runs.",
        None,
        [
            {"range": _DDP, "calls": count, "time_ns": time},
            *({"range": text, "calls": count, "time_ns": time} for text, count, time in over_host[:4]),
        ],
        "Kernels of collectives in the report communication.",
    )


@rule("R30", "straggler", rows=Rows("root_cause", "Root causes", without_gpu=Rows("detail", "Operators")))
def straggler(run: Run) -> Finding | None:
    """In most steps all ranks wait for the same one, for a cause that the report root_cause names. The saving is that
    of the report: by how much the steps would be shorter, in a replay of all ranks without the rank's largest delay.
    Only lateness of its own counts: not what is from before the first collective of the recording, and not what it
    carries over because it was late to the previous collective. Of kernels that run together, the shortest is that of
    the rank that came last. Where the delay explains much less, the hosts are compared: one that needs longer for a
    step than the others, without its waits for the device, holds up all. Without a GPU it is an operator that one rank
    spends more than twice the median rank's time in, and the saving is that difference.

    Fires: two of three ranks wait 120 us of each step of 1 ms for the third; under gloo, one rank whitens its input.
    Silent: they wait 110 us, and not for the first collective; each rank is late in turn; only one step.
    """
    if run.on_cpu:
        return slow_operators(run)
    run.need_gpu()
    if not run.kernels["what"].isin(COMMUNICATION).any():
        return None
    names = reads.worker_names(run.store)
    late_rows = explain_delays(Source(run.store, run.source.aggregation), _arrivals(run))
    if len(names) < 2:
        raise NeedsFacts("needs the recordings of several processes: the ranks here are GPUs of one")
    late_rows["alone"] = late_rows["alone"].clip(upper=late_rows["own"].clip(lower=0))
    run.need_steps()
    steps = int(late_rows["step"].nunique())
    if steps < _LEAST:
        raise NeedsFacts(f"needs at least {_LEAST} steps with collectives of all ranks, there are {steps}; record more")
    late_rows["rank"] = list(zip(late_rows["worker"], late_rows["device"]))
    by_step = late_rows.groupby(["step", "rank"])["alone"].sum()
    late = by_step[by_step > 0]
    last = late.loc[late.groupby(level="step").idxmax()] if len(late) else late
    if not len(last):
        return _slow_host(run, names)
    times = last.groupby(level="rank").agg(["size", "sum"]).sort_values(["size", "sum"], ascending=False)
    worst, count = times.index[0], int(times["size"].iloc[0])
    if count < limit("R30.steps") * steps:
        return _slow_host(run, names)
    causes = root_causes(run.source, _spans(run, run.source.aggregation.first, run.source.aggregation.last))
    rows = causes.rows[causes.rows["saving"].notna()]
    rows = rows[(rows["worker"] == worst[0]) & (rows["device"] == worst[1])]
    saving = int(rows["saving"].iloc[0]) / causes.steps if len(rows) else 0  # of a step
    host = _slow_host(run, names)
    if host is not None and host.saving is not None and host.saving > limit("R30.host") * saving * run.steps:
        return host
    if saving <= limit("R30.share") * causes.step:
        return None
    run.late_ranks.add("R30")
    return run.finding(
        f"In {count} of {steps} steps all ranks wait for {names[worst[0]]} (GPU {worst[1]}), mostly for more time "
        f"{_place(rows.iloc[0])}: a step takes {duration(causes.step)}, without that {duration(causes.step - saving)}.",
        "The report root_cause has the operator, module and source line. More in kernels means uneven data (lengths, "
        "padding, experts) or a slower GPU (clocks, temperature); more on the host means a late process: data loading, "
        "logging, checkpoints, a slow or shared host.",
        round(saving * run.steps),
        _ranks(run, late_rows, times, names),
        "In the report root_cause, the rank is not named any more.",
    )


def _slow_host(run: Run, names: dict[int, str]) -> Finding | None:
    """Return a finding about the rank whose host needs longer for a step than the median rank's, if that costs enough.
    The saving is a replay in which it needs as long as that, in each moment the same share of its time less."""
    own = _host_times(run)
    if len(own) < 2 or own.shape[1] < _LEAST:
        return None
    sums = own.sum(axis=1).sort_values(kind="stable")
    worst, middle = int(sums.index[-1]), sums.index[(len(sums) - 1) // 2]
    count = int((own.idxmax() == worst).sum())
    most, usual = int(sums.iloc[-1]), int(sums.loc[middle])
    if count < limit("R30.steps") * own.shape[1] or most <= usual:
        return None
    share = (most - usual) / most
    slower = together(Edit(launching=_slower(run, one, share)) for one in run.of_worker(worst))
    saving = run.without("R30", {worst: slower}, 0)
    if run.share(saving) <= limit("R30.share"):
        return None
    step, each = run.wall / run.steps, own.shape[1]
    run.late_ranks.add("R30")
    return run.finding(
        f"In {count} of {each} steps the CPU of {names[worst]} needs longest, {duration(most / each)} where the median "
        f"rank's needs {duration(usual / each)}, and all ranks wait for it: a step takes {duration(step)}, without "
        f"that {duration(step - saving / run.steps)}.",
        "Compare what the hosts run: other processes, threads and their processors (taskset, numactl), clocks and "
        "power, the file system; and what only this rank does, such as logging, evaluation or checkpoints.",
        saving,
        [
            {"rank": names[worker], "host_ns": time, "steps": each}
            for worker, time in zip(sums.index[::-1].tolist(), sums[::-1].astype(int).tolist())
        ],
        "The hosts need about as long as each other.",
    )


def _host_times(run: Run) -> pd.DataFrame:
    """Return, by worker and number of the step, how long its main thread needed for the step, in ns, without waits for
    the device and what has a finding of its own; of the steps that all have."""
    columns = {}
    causes = [rule for rule in _OF_HOSTS if judge(RULES[rule], run).finding is not None]
    for worker in sorted({row[0] for row in run.ids}):
        rows = run.steady_iterations[run.steady_iterations["worker"] == worker]
        number, start, end = rows[["number", "host_start_ns", "host_end_ns"]].to_numpy(np.int64).T
        apart = run.waits(worker)
        for rule_ in causes:
            apart = apart.with_(run.edits.get(rule_, {}).get(worker, Edit()).host)
        columns[worker] = pd.Series(end - start - apart.within(start, end), number)
    return pd.DataFrame(columns).T.dropna(axis=1)


def _slower(run: Run, excerpt: Excerpt, share: float) -> Union:
    """Return a share of a rank's host time: of each stretch from the beginning of a call to the next, without those in
    which it waits for the device."""
    waits = run.waits(excerpt.worker)
    calls = excerpt.of_calls("start_ns").values
    edges = np.unique(np.clip(np.r_[excerpt.window, calls, waits.end], *excerpt.window))
    start, end = edges[:-1], edges[1:]
    free = ~waits.covers(start, start + 1)
    start, end = start[free], end[free]
    return Union(start, start + ((end - start) * share).astype(np.int64))


def _place(cause: pd.Series[Any]) -> str:
    """Return a part of a rank's work, and where in it, as text."""
    part = NAMES[cause["part"]]
    texts = [str(cause[key]) for key in ("kernel", "call", "host", "line") if not pd.isna(cause[key])]
    where = f" ({', '.join(dict.fromkeys(texts))})" if texts else ""
    return f"{part if part.startswith('outside') else f'in {part}'}{where}"


def _spans(run: Run, first: int, last: int) -> list[tuple[int, int]]:
    """Return the ids of the events of these iterations, of all workers."""
    return run.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? group by worker order by worker""",
        (run.source.aggregation.iteration_set, first, last),
    )


def _arrivals(run: Run) -> pd.DataFrame:
    """Return arrivals at collectives of the steady iterations, of all workers. Raises NeedsFacts without any."""
    rows = arrivals(Source(run.store, run.source.aggregation), _spans(run, *run.steady))
    if not len(rows):
        reasons = collectives(run.store)["how"].value_counts().index
        raise NeedsFacts(
            f"needs collectives that are matched across ranks ({reasons[0] if len(reasons) else 'none recorded'}); "
            "record all ranks, with torch 2.5 or later for sequence numbers"
        )
    return rows


def _ranks(run: Run, late_rows: pd.DataFrame, times: pd.DataFrame, names: dict[int, str]) -> list[dict[str, object]]:
    late_rows["before"] = computation(Source(run.store, run.source.aggregation), late_rows)
    rows = late_rows.groupby("rank").agg(late=("alone", "sum"), before=("before", "sum"))
    rows["last"] = times["size"].reindex(rows.index).fillna(0).astype(int)
    rows = rows.sort_values("late", ascending=False, kind="stable")
    return [
        {
            "rank": names[rank[0]], "gpu": rank[1], "steps_last": last, "late_alone_ns": late,
            "computation_before_ns": before,
        }
        for rank, last, late, before in zip(
            rows.index, rows["last"].tolist(), rows["late"].tolist(), rows["before"].tolist()
        )
    ]  # fmt: skip

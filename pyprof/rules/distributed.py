# SPDX-License-Identifier: Apache-2.0
"""Rules about training on several GPUs: how the work is divided, over what ranks exchange, who comes last."""

from __future__ import annotations

import pandas as pd

from pyprof.analysis.collective_groups import collectives
from pyprof.analysis.delay_causes import explain_delays
from pyprof.analysis.source import Source
from pyprof.analysis.stragglers import arrivals, computation
from pyprof.prof.kernels import COMMUNICATION
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.premises import GPU
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import length, percent

_LEAST = 3  # steps
_DP, _DDP = "DataParallel.forward", "DistributedDataParallel.forward"
_NO_RANGES = (
    "needs torch's own ranges, which this recording lacks; record with pyprof, torch.profiler, or under "
    "torch.autograd.profiler.emit_nvtx"
)


def _ranges(run: Run, pattern: str) -> list[tuple[str, int, int]]:
    """Ranges of the steady iterations whose text is like a pattern of SQL: text, how many, ns of all."""
    counts: dict[str, tuple[int, int]] = {}
    codes = dict(run.store.rows("select id, text from string where text like ?", (pattern,)))
    chosen = ", ".join(map(str, codes))
    for worker, start, end, *_ in run.ids if codes else ():
        rows = run.store.rows(
            f"""select text, count(*), sum(dur) from range
                where id >= ? and id < ? and start >= ? and start < ? and text in ({chosen}) group by text""",
            (worker << 40, (worker + 1) << 40, start, end),
        )
        for code, count, time in rows:
            before = counts.get(codes[code], (0, 0))
            counts[codes[code]] = before[0] + count, before[1] + (time or 0)
    return [(text, *counts[text]) for text in sorted(counts, key=lambda text: -counts[text][1])]


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
    found = _ranges(run, _DP)
    if not found:
        return None
    ((_, count, time),) = found
    return run.finding(
        f"torch.nn.DataParallel runs the model on {len(most)} GPUs of one process, {count} times for {length(time)}.",
        "Use torch.nn.parallel.DistributedDataParallel with one process per GPU (torchrun --nproc-per-node): no "
        "copy of the model in each step, no threads that wait for one interpreter, and gradients are exchanged "
        "while the backward pass runs.",
        None,
        [{"range": _DP, "calls": count, "time_ns": time, "gpus": ", ".join(map(str, sorted(most)))}],
        "No range DataParallel.forward; one worker per GPU.",
    )


@rule("R42", "ddp_without_nccl", GPU)
def ddp_without_nccl(run: Run) -> Finding | None:
    """Ranks on GPUs exchange gradients over the host (gloo, mpi) in place of NCCL.

    Fires: DistributedDataParallel on GPUs with the backend gloo.
    Silent: backend nccl; kernels of collectives on the GPU; gloo in a run without DistributedDataParallel.
    """
    if run.kernels["what"].isin(COMMUNICATION).any():
        return None
    _need_ranges(run)
    found = _ranges(run, _DDP)
    if not found:
        return None
    over_host = _ranges(run, "gloo:%") + _ranges(run, "mpi:%")
    backend = run.facts.get("distributed.backend")
    if backend is None and not over_host:
        raise NeedsFacts(
            "needs the backend of torch.distributed, which this recording lacks; record with pyprof"
        )
    if backend is not None and "nccl" in backend.lower():
        return None
    world = run.facts.get("distributed.world_size")
    if world == "1":
        return None
    _, count, time = found[0]
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


@rule("R30", "straggler", GPU, rows=Rows("stragglers", "Stragglers"))
def straggler(run: Run) -> Finding | None:
    """In most steps all ranks wait for the same one. Counted is the time by which it comes later to a collective than
    every other rank: what all would save if it came with the next to last, as far as collectives run without other
    kernels; no more than it is late by its own (report stragglers): not what was before the recording, and not what it
    is late because it had come late to the collective before. Of kernels that run together the shortest is that of the
    rank that came last.

    Fires: two of three ranks wait 20 ms of each step of 100 ms for the third.
    Silent: they wait 9 ms; each rank is late in its turn; one step only.
    """
    if not run.kernels["what"].isin(COMMUNICATION).any():
        return None
    found = explain_delays(Source(run.store, run.source.aggregation), _arrivals(run))
    found["alone"] = found["alone"].clip(upper=found["own"].clip(lower=0))
    run.need_steps()
    steps = int(found["step"].nunique())
    if steps < _LEAST:
        raise NeedsFacts(
            f"needs at least {_LEAST} steps with collectives of all ranks, there are {steps}; record more"
        )
    found["rank"] = list(zip(found["worker"], found["device"]))
    by_step = found.groupby(["step", "rank"])["alone"].sum()
    late = by_step[by_step > 0]
    last = late.loc[late.groupby(level="step").idxmax()] if len(late) else late
    if not len(last):
        return None
    times = last.groupby(level="rank").agg(["size", "sum"]).sort_values(["size", "sum"], ascending=False)
    worst, count = times.index[0], int(times["size"].iloc[0])
    alone = int(by_step.xs(worst, level="rank").sum())
    if count < limit("R30.steps") * steps or run.share(alone) <= limit("R30.share"):
        return None
    names = dict(run.store.rows("select id, name from worker"))
    return run.finding(
        f"In {count} of {steps} steps all ranks wait for {names[worst[0]]} (GPU {worst[1]}), "
        f"{percent(run.share(alone))} of "
        "the time for it alone.",
        "Compare what it does before the collectives (the evidence): more computation than others means uneven data "
        "(lengths, padding, experts) or a slower GPU (clocks, temperature); as much means that its process is late: "
        "data loading, logging, checkpoints, a slow or shared host.",
        min(alone, run.mean("exposed_communication")),
        _ranks(run, found, times, names),
        "The report stragglers spreads over the ranks.",
    )


def _arrivals(run: Run) -> pd.DataFrame:
    """Arrivals at collectives of the steady iterations, of all workers. Raises NeedsFacts where none are aligned."""
    whole = Source(run.store, run.source.aggregation)
    first, last = run.steady
    spans = run.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? group by worker order by worker""",
        (whole.aggregation.iteration_set, first, last),
    )
    found = arrivals(whole, spans)
    if not len(found):
        why = collectives(run.store)["how"].value_counts().index
        raise NeedsFacts(
            f"needs collectives whose kernels on several ranks are known ({why[0] if len(why) else 'none recorded'}); "
            "record all ranks, with torch 2.5 or later for sequence numbers"
        )
    return found


def _ranks(
    run: Run, found: pd.DataFrame, times: pd.DataFrame, names: dict[int, str]
) -> list[dict[str, object]]:
    found["before"] = computation(Source(run.store, run.source.aggregation), found)
    rows = found.groupby("rank").agg(late=("alone", "sum"), before=("before", "sum"))
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

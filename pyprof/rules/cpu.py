# SPDX-License-Identifier: Apache-2.0
"""Rules about programs that run on a CPU alone: types, threads, short operators."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyprof.analysis.categories import of_operator
from pyprof.prof.hardware import cpus
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which
from pyprof.units import duration, percent


def _operators(run: Run) -> pd.DataFrame | None:
    """Return the sums per operator of a program that uses no GPU; None if it uses one."""
    if run.used:
        return None
    ops = run.ops
    return ops[(ops["unassociated"] == 0) & (ops["cpu_ns"] > 0)]


def _per_worker(run: Run, ops: pd.DataFrame) -> int:
    return min(int(ops["cpu_ns"].sum()) // max(len(run.ids), 1), run.wall)


def _top(run: Run, ops: pd.DataFrame) -> list[dict[str, Any]]:
    return run.top(
        ops, "cpu_ns", operator="name", source="source", dtype="dtype", calls="calls", time_ns="cpu_ns"
    )


_PRODUCTS = ("gemm", "convolution", "attention")  # categories


def _products(run: Run) -> pd.DataFrame:
    """Return the own time of operator events that are products, in calls in float32, by path of the call. The copies
    around a product in the same call are not part of it."""
    events = run.operator_events
    product = which(events["kernel"], lambda name: of_operator("aten", name) in _PRODUCTS)
    single = events[product & (events["dtype"] == "float32")]
    return single.groupby("path", as_index=False, sort=False).agg(
        source=("source", "first"), calls=("calls", "sum"), gpu_ns=("gpu_ns", "sum")
    )


@rule("R44", "cpu_float32", rows=Rows("categories", "Categories of work"))
def cpu_float32(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and matrix products and convolutions compute in float32 on a CPU with instructions that
    multiply bfloat16 at a higher rate (AMX, AVX512_BF16, BF16 of Arm). Their time is that of the products themselves,
    as in the categories of work, without the copies around them. The saving is what the ratio of the two peaks leaves
    of it: an upper bound, since memory or the conversions may limit them; unknown without steps, where the time has the
    warm-up in it.

    Fires: half of the time in linear layers of float32 on a Sapphire Rapids or Zen 4, autocast off.
    Silent: the same under autocast; a CPU without such instructions; a fifth of the time; a recording with a GPU.
    """
    if run.used:
        return None
    single = _products(run)
    time = min(int(single["gpu_ns"].sum()) // max(len(run.ids), 1), run.wall)
    if run.share(time) <= limit("R44.share"):
        return None
    cpu = cpus.of(run.facts)
    if isinstance(cpu, str):
        raise NeedsFacts(f"needs the peaks of the CPU, but {cpu}; record with pyprof")
    if run.need_fact("autocast.cpu.seen", "whether autocast was on for the CPU") != "no":
        return None
    narrow, wide = cpu.matrix.get("bfloat16"), cpu.peak("float32", True)
    if not narrow or not wide or narrow <= wide:
        return None
    once = (
        ""
        if run.cut
        else " Record several steps to learn what it saves: this recording is one pass, with its warm-up."
    )
    return run.finding(
        f"Matrix products and convolutions in float32 take {run.time(time)}, {percent(run.share(time))} of the time. "
        f"In bfloat16 the peak of the CPU ({cpu.name}) is {narrow / wide:.3g} times as high, which leaves at least "
        f"{percent(wide / narrow)} of that: memory and the conversions may leave more.",
        "Run the forward pass and the loss under torch.autocast('cpu', dtype=torch.bfloat16); weights stay float32. "
        f"Check that the loss still goes down as before.{once}",
        time * (1 - wide / narrow) if run.cut else None,
        run.top(single, "gpu_ns", operator="path", source="source", calls="calls", time_ns="gpu_ns"),
        "The same operators take less time, and their kernels name bfloat16.",
    )


@rule("R45", "cpu_threads")
def cpu_threads(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and operators use far fewer threads than the process has cores, or more threads than it
    has processors. The saving of more threads is unknown: it depends on how well the operators scale.

    Fires: torch.get_num_threads() is 1 and the process may use 8 cores; 16 threads in a container with 4 processors.
    Silent: as many threads as cores; half of them; operators that take less than half of the time.
    """
    ops = _operators(run)
    if ops is None or run.share(time := _per_worker(run, ops)) <= limit("R45.share"):
        return None
    count, usable, cores = (
        int(run.need_fact(name, what))
        for name, what in (
            ("threads.intraop", "the number of threads of an operator"),
            ("cpu.usable", "the number of processors that the process may use"),
            ("cpu.cores", "the number of cores"),
        )
    )
    own = max(min(usable, cores) // max(len(run.ids), 1), 1)
    many = count > usable
    if not many and count >= limit("R45.cores") * own:
        return None
    share = f"Operators take {percent(run.share(time))} of the time"
    return run.finding(
        f"{share} with {count} threads, but the process may use only {usable} processors: threads wait for each other."
        if many
        else f"{share} with {count} thread{'s' if count > 1 else ''}, and the process may use {own} cores.",
        f"Set torch.set_num_threads({usable if many else own}) or OMP_NUM_THREADS before the first operator runs. "
        "Workers of a DataLoader need processors of their own.",
        None,
        _top(run, ops),
        "The step takes less time with the other number of threads.",
    )


@rule("R46", "cpu_short_operators", rows=Rows("detail", "Operators"))
def cpu_short_operators(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and much of the time goes to operators so short that calling them costs as much as their
    work: some 5 us for the dispatcher, the output's memory and autograd.

    Fires: 1,000 calls a step that take 15 us each, half of the time.
    Silent: the same work in calls of 200 us; a fifth of the time in short calls.
    """
    ops = _operators(run)
    if ops is None:
        return None
    short = ops[ops["cpu_ns"] < limit("R46.length") * ops["calls"]]
    time, calls = _per_worker(run, short), int(short["calls"].sum()) // max(len(run.ids), 1)
    per_step = calls / max(run.steps, 1)
    if run.share(time) <= limit("R46.share") or per_step < limit("R46.calls"):
        return None
    return run.finding(
        f"{per_step:,.0f} calls{run.per_step} of short operators take {run.time(time)}, "
        f"{percent(run.share(time))} of the time: {duration(time / calls)} each, much of it for the call itself.",
        "Compile the model with torch.compile, which merges elementwise operators; use larger batches; replace loops "
        "over slices by one operator over the whole tensor.",
        None,
        _top(run, short),
        "The calls of a step become fewer, and longer.",
    )

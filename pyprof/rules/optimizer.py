# SPDX-License-Identifier: Apache-2.0
"""Rules about the optimizer's step and the gradients' reset."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.intervals import at_places
from pyprof.core.model import OPTIMIZER
from pyprof.core.units import percent
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.host_work import HostWork, main_thread
from pyprof.facts.path.what_if import Edit
from pyprof.rules import Finding, NeedsFacts, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.host_places import ranges_of, texts_like
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import located, which


def _optimizer(run: Run, work: str) -> pd.DataFrame:
    """Return sums of the optimizer's operators of a name, `step` or `zero_grad`; in a trace of torch.profiler, where
    these are other operators in a range, of its ranges. Raises NeedsFacts if the program trains and has neither."""
    ops = run.ops[run.ops["phase"] == OPTIMIZER]
    if not len(ops) and run.trains:
        raise NeedsFacts(
            "needs the ranges of Optimizer.step; record with pyprof, or with emit_nvtx and torch 1.8 or later"
        )
    operators = ops[which(ops["type"], lambda name: name.endswith(f".{work}"))]
    return operators if len(operators) else _of_ranges(run, f"Optimizer.{work}#")


def _of_ranges(run: Run, prefix: str) -> pd.DataFrame:
    """Return sums of torch's ranges `Optimizer.step#SGD.step`, with the columns of operators."""
    if not texts_like(run, (f"{prefix}%",)) or not len(ranges := run.ranges):
        return run.ops.iloc[:0]
    own = ranges["path"].str.rpartition("/")[2]
    ranges = ranges.assign(name=own)[own.str.startswith(prefix)]
    sums = ranges.groupby("name", as_index=False).agg(
        calls=("host", "size"), kernels=("kernels", "sum"), cpu_ns=("host", "sum"), gpu_ns=("busy", "sum")
    )
    return sums.assign(name=sums["name"].str.removeprefix(prefix), source=None)


@rule("R21", "unfused_optimizer")
def unfused_optimizer(run: Run) -> Finding | None:
    """The optimizer launches kernels for each parameter separately. The saving is what a step would be shorter with one
    kernel for each parameter tensor and no launches in between; where that is not known, the CPU time of its step
    beyond its GPU time, as far as the GPU waits for launches at all. Without a GPU it is the time of all operators but
    one for each tensor.

    Fires: Adam(foreach=False), 12 launches for each of 160 parameter tensors.
    Silent: fused=True; foreach, which has a few launches for all of them.
    """
    steps = _optimizer(run, "step")
    if not len(steps):
        return None
    calls = int(steps["calls"].sum())
    launches = int(steps["kernels"].sum()) / max(calls, 1)
    cpu, gpu = int(steps["cpu_ns"].sum()) // run.workers, run.per_device(steps["gpu_ns"].sum())
    share = run.share(max(cpu, gpu))
    if "yes" in _values(run, "fused"):
        return None
    tensors = sum(int(text) for text in _values(run, "parameter_tensors") if text.isdigit())
    per_parameter = launches / tensors if tensors else 0.0
    if run.on_cpu:
        return _on_cpu(run, steps, tensors, launches)
    run.need_gpu()
    per_tensor = per_parameter > limit("R21.per_parameter") and share > limit("worth")
    many = launches > limit("R21.launches") and share > limit("R21.share")
    if not per_tensor and not many:
        return None
    of = f", {per_parameter:.1f} for each of its {tensors} parameter tensors" if tensors else ""
    other = "" if "yes" in _values(run, "foreach") else ", else foreach=True"
    names = _values(run, "class") or [name.removesuffix(".step") for name in steps["name"] if "." in name]
    classes = " or ".join(sorted(set(names))) or "the optimizer"
    line = steps["source"].dropna().iloc[0] if steps["source"].notna().any() else _line(run)
    steps = steps.assign(source=steps["source"].where(steps["source"].notna(), line))
    saving = min(run.late, cpu - gpu) if cpu > gpu else None
    fused = {one: _fused(run, one, tensors) for one in run.excerpts}
    if all(fused.values()):
        saving = run.without("R21", run.edit(lambda one: fused[one] or Edit()), saving or 0)
    return run.finding(
        f"Optimizer.step of {located(classes, line)} launches {launches:.0f} kernels{of}; it takes "
        f"{run.time(max(cpu, gpu))}, {percent(share)} of the time.",
        f"{classes}(..., fused=True), where it has that option (Adam, AdamW, SGD, Adagrad){other}.",
        saving,
        run.top(steps, "cpu_ns", "operator=name source steps=calls launches=kernels cpu_ns gpu_ns"),
        "The optimizer's operator has few kernels in the report of operators.",
    )


def _on_cpu(run: Run, steps: pd.DataFrame, tensors: int, operators: float) -> Finding | None:
    each, time = operators / max(tensors, 1), min(int(steps["cpu_ns"].sum()) // run.workers, run.wall)
    if not tensors or each <= limit("R21.per_parameter") or run.share(time) <= limit("R21.share"):
        return None
    names = " or ".join(sorted(set(_values(run, "class")))) or "the optimizer"
    line = steps["source"].dropna().iloc[0] if steps["source"].notna().any() else None
    return run.finding(
        f"Optimizer.step of {located(names, line)} runs {operators:,.0f} operators, {each:.1f} for each of its "
        f"{tensors} parameter tensors; it takes {run.cost(time)}.",
        f"{names}(..., fused=True), where it has that option on a CPU (Adam, AdamW, SGD, Adagrad; torch 2.4 or later): "
        "one operator for all tensors.",
        int(time * (1 - 1 / each)),
        run.top(steps, "cpu_ns", "operator=name source steps=calls operators=kernels cpu_ns"),
        "The optimizer's step takes less time in the report of operators.",
    )


def _intervals(run: Run, excerpt: Excerpt) -> Union:
    """Return the time of an excerpt in the optimizer's step."""
    kinds = run.operators[run.operators["type"].str.endswith(".step") & (run.operators["phase"] == OPTIMIZER)]
    ops = run.store.table("op", ("operator", "start_ns", "end_ns"), *excerpt.ids("op"))
    own = np.isin(ops["operator"].values, kinds.index)
    return ranges_of(run, excerpt, ("Optimizer.step#%",)).with_(
        Union(ops["start_ns"].values[own], ops["end_ns"].values[own])
    )


def _fused(run: Run, excerpt: Excerpt, tensors: int) -> Edit | None:
    """Return what would be removed if the optimizer had one kernel for each of its tensors, which it is told by its
    operators if by nothing else: most run once for each. None if it has no more kernels now."""
    steps = _intervals(run, excerpt)
    launch = at_places(excerpt.of_calls("start_ns").values, excerpt.launch)
    own = np.flatnonzero(excerpt.launched & steps.covers(launch, launch + 1))
    if not len(own):
        return None
    if not tensors:
        times, kinds = np.unique(
            np.unique(excerpt.of_events("operator").values[own], return_counts=True)[1], return_counts=True
        )
        tensors = int(times[kinds == kinds.max()].max() / max(len(steps.start), 1))
    each = len(own) / max(len(steps.start) * tensors, 1)
    if each <= limit("R21.per_parameter"):
        return None
    number = np.arange(len(own)) / each
    first = np.r_[True, np.floor(number[1:]) > np.floor(number[:-1])]
    return Edit(launching=steps, removed=excerpt.id[own[~first]])


def _line(run: Run) -> str | None:
    """Return the line in which an optimizer's step spends most of its time, of its Python functions."""
    for one in run.excerpts:
        steps = _intervals(run, one)
        if len(steps.start):
            before = Excerpt(run.store, one.worker, (one.span[0], int(steps.end[0])))
            work, thread = HostWork(before), np.array([main_thread(run.store, one.worker)])
            place = work.places(thread, steps.start[:1], steps.end[:1])
            frames = work.stack(int(place.stack[0])).frames
            return frames[-1] if frames else None
    return None


@rule("R22", "zero_grad_memset", GPU)
def zero_grad_memset(run: Run) -> Finding | None:
    """Gradients are filled with zeros instead of dropped. The time is that of the GPU or that of the launches,
    whichever is longer.

    Fires: optimizer.zero_grad(set_to_none=False), 2 % of the time.
    Silent: zero_grad(), which drops them and launches nothing.
    """
    ops = _optimizer(run, "zero_grad")
    cpu, gpu = int(ops["cpu_ns"].sum()) // run.workers, run.per_device(ops["gpu_ns"].sum())
    if not gpu or run.share(max(cpu, gpu)) <= limit("R22.share"):
        return None
    where = "on the GPU" if gpu >= cpu else "on the CPU, which launches"
    return run.finding(
        f"Setting gradients to zero takes {run.time(max(cpu, gpu))} {where}, {percent(run.share(max(cpu, gpu)))} of "
        "the time.",
        "optimizer.zero_grad(set_to_none=True), the default since torch 2.0: the next backward writes instead of adds.",
        max(gpu, min(run.late, cpu)),
        run.top(ops, "gpu_ns", "operator=name source calls kernels gpu_ns"),
        "zero_grad no longer launches kernels and sets.",
    )


def _values(run: Run, name: str) -> list[str]:
    """Return a fact of all optimizers."""
    return [v for k, v in run.facts.items() if k.startswith("optimizer.") and k.endswith(f".{name}")]

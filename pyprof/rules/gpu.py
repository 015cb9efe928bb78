# SPDX-License-Identifier: Apache-2.0
"""Rules about GPUs that are idle most of the time, or never used."""

from __future__ import annotations

from pyprof.core.units import duration, percent
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.thresholds import limit

_WAITS = {
    "queued": "it is between kernels that were launched in time",
    "data loader": "it waits for the DataLoader",
    "synchronization": "nothing was queued, because the program had waited for the GPU",
    "host copy": "nothing was queued, because the program had waited for a copy",
    "launch-bound": "it waits for launches",
    "not recorded": "the recording does not show what it waits for",
}
# What the CPU does while the GPU waits for launches, by part of the wall time.
_MEANWHILE = {
    "io": "The program reads or writes files meanwhile: do so in workers of the DataLoader, or ahead of time.",
    "cpu": "Operators and CUDA calls run on the CPU meanwhile: see the longest calls in the evidence.",
    "other": "Neither operators nor CUDA calls run on the CPU meanwhile: Python code, other libraries or other "
    "processes; record with --sample cpu to see which lines.",
}
_ADVICE = {
    "queued": "Fewer, larger kernels: torch.compile, or a CUDA graph.",
    "data loader": "Load batches in the background (num_workers), or make each sample cheaper to prepare.",
    "synchronization": "Keep values on the GPU: .item(), .cpu() and printing a tensor wait for it.",
    "host copy": "Copy from pinned memory with non_blocking=True.",
}


@rule("R03", "gpu_underused", GPU, rows=Rows("step_time", "Step time"))
def gpu_underused(run: Run) -> Finding | None:
    """The GPU is idle most of the time; names the main cause. Other rules count the time of each
    cause.

    Fires: kernels and copies for 30 ms of 100 ms.
    Silent: for 60 ms of 100 ms.
    """
    busy = run.share(run.mean("busy_ns"))
    if busy >= limit("R03.busy") or not run.idle:
        return None
    causes = sorted(run.idle.items(), key=lambda item: -item[1])
    cause, time = causes[0]
    parts = {name: run.part(name) for name in _MEANWHILE}
    meanwhile = _MEANWHILE[max(parts, key=lambda name: parts[name])]
    steps = max(run.steps, 1)
    start = f", of which {duration(run.before)} pass before its first event" if run.before else ""
    return run.finding(
        f"The GPU is busy only {percent(busy)} of {run.time(run.wall)}{start}. For "
        f"{duration(time / steps)} of the rest {_WAITS[cause]}.",
        _ADVICE.get(cause, meanwhile),
        None,
        [{"cause": name, "time_ns": length} for name, length in causes[:2]] + _calls(run),
        "The summary's GPU utilization rises.",
    )


def _calls(run: Run) -> list[dict[str, object]]:
    """Return the CUDA API calls with the most time, by name and operator."""
    sums = {"calls": ("duration_ns", "size"), "time_ns": ("duration_ns", "sum")}
    rows = run.by_operator(run.calls(), "time_ns", "call", **sums)
    return [{"call": row.pop("call"), **row} for row in rows]


@rule("R04", "gpu_unused", GPU, rows=Rows("gpu", "GPUs"))
def gpu_unused(run: Run) -> Finding | None:
    """A GPU that the program could see had no work in the recording.

    Fires: two visible GPUs, all events on one of them.
    Silent: every recorded GPU has events; one rank of several, where other ranks use the others.
    """
    rows = run.store.rows(
        "select number, max(name), sum(events), max(memory_bytes) from device group by number order by number"
    )
    if not any(name or memory for _, name, _, memory in rows):
        raise NeedsFacts("needs the list of GPUs, which this recording lacks; record with pyprof")
    idle = [row for row in rows if not row[2]]
    if not idle:
        return None
    ranks = run.facts.get("distributed.world_size", "1")
    if ranks.isdigit() and int(ranks) > len(run.store.rows("select id from worker")):
        raise NeedsFacts(f"needs the recordings of all {ranks} ranks: each may use a GPU of its own")
    names = ", ".join(f"{number} ({name})" if name else str(number) for number, name, *_ in idle)
    return run.finding(
        f"Nothing in the recorded program ran on GPU {names}.",
        "If the program is meant to use it: one process per GPU with DistributedDataParallel (torchrun "
        "--nproc-per-node). If not: hide it with CUDA_VISIBLE_DEVICES.",
        None,
        [{"gpu": number, "name": name, "events": events} for number, name, events, _ in idle],
        "Every GPU in the device report has events.",
    )

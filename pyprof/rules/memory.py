# SPDX-License-Identifier: Apache-2.0
"""Rules about the GPU's memory."""

from __future__ import annotations

from typing import NamedTuple

from pyprof.core.units import percent, size
from pyprof.facts.path.what_if import Edit
from pyprof.rules import RULES, Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, LAUNCHES, STEPS, Run, unions
from pyprof.rules.evaluation import judge
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which
from pyprof.store.ids import first_id

_NO_PEAK = (
    "needs the peak of allocated memory, which this recording lacks; record with pyprof on a GPU, or with "
    "torch.profiler(profile_memory=True)"
)

_OF_PROGRAM = "torch's counter since the start of the program"
_OF_RECORDING = "the allocator's count in the recording"


class _Peak(NamedTuple):
    """The peak of allocated bytes on a GPU, the size of its memory, and what counted the peak."""

    gpu: int
    peak: int
    total: int
    counted: str

    @property
    def share(self) -> float:
        return self.peak / self.total

    @property
    def row(self) -> dict[str, object]:
        return {
            "gpu": self.gpu, "peak_bytes": self.peak, "memory_bytes": self.total, "counted": self.counted,
        }  # fmt: skip


def _peaks(run: Run) -> list[_Peak]:
    """Return the peak of each GPU that was used, by worker.

    It comes from the run's facts, else it is the largest total in the allocator's events; without either there is
    none.
    """
    out = []
    for number in sorted({device.number for device in run.used}):
        peak, total = (run.facts.get(f"gpu.{number}.{name}", "") for name in ("peak_allocated_bytes", "memory_bytes"))
        if peak.isdigit() and total.isdigit() and int(total):
            out.append(_Peak(number, int(peak), int(total), _OF_PROGRAM))
    if out:
        return out
    for worker in run.window.workers:
        out += _of_allocator(run, worker.number)
    return out


def _of_allocator(run: Run, worker: int) -> list[_Peak]:
    """Return the peaks of the GPUs of a worker from its allocator's events."""
    totals = run.store.rows(
        """select device, max(allocated_bytes) from memory where id >= ? and id < ? and device is not null group by 1
           having count(*) = count(allocated_bytes)""",
        (first_id(worker), first_id(worker + 1)),
    )
    used = dict(run.store.rows("select number, memory_bytes from device where worker = ? and events > 0", (worker,)))
    if len(totals) == len(used) == 1:  # an allocator counts visible GPUs, a recording may count all
        totals = [(next(iter(used)), totals[0][1])]
    return [_Peak(number, peak, used[number], _OF_RECORDING) for number, peak in totals if used.get(number)]


@rule("R43", "memory_full", GPU, rows=Rows("memory", "Memory"))
def memory_full(run: Run) -> Finding | None:
    """Nearly all memory of a GPU is allocated: a larger input or batch, or fragmentation, would end the run.

    Fires: a peak of 15 of 16 GB.
    Silent: 14 of 16 GB; a GPU on which nothing ran.
    """
    peaks = _peaks(run)
    if not peaks:
        raise NeedsFacts(_NO_PEAK)
    full = [peak for peak in peaks if peak.share > limit("R43.memory")]
    if not full:
        return None
    most = max(full, key=lambda peak: peak.share)
    return run.finding(
        f"The peak of allocated memory on GPU {most.gpu} is {size(most.peak)} of {size(most.total)}, "
        f"{percent(most.share)}, by {most.counted}.",
        "Free memory with torch.utils.checkpoint, mixed precision, optimizer.zero_grad(set_to_none=True), a smaller "
        "batch with accumulated gradients, sharding (FSDP); PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True reduces "
        "fragmentation. Nothing to do if a server fills the memory with its cache on purpose.",
        None,
        [peak.row for peak in sorted(full, key=lambda peak: -peak.share)],
        "The peak of the report of memory falls.",
    )


@rule("R31", "memory_underused", GPU)
def memory_underused(run: Run) -> Finding | None:
    """Much memory of the GPU is free, and a larger batch would help: the run is bound by launches (R05), or kernels do
    not fill the GPU (R26).

    Fires: a peak of 4 of 16 GB, and R05 fires.
    Silent: 4 of 16 GB, and neither R05 nor R26 fires; 10 of 16 GB.
    """
    peaks = _peaks(run)
    if not peaks:
        raise NeedsFacts(_NO_PEAK)
    most = max(peaks, key=lambda peak: peak.share)
    if most.share >= limit("R31.memory"):
        return None
    reasons, missing = [], []
    for rule_id, name in (("R05", "the GPU waits for launches"), ("R26", "kernels are too small to fill it")):
        verdict = judge(RULES[rule_id], run)
        if verdict.needs is not None:
            missing.append(verdict.needs)
        elif verdict.finding is not None:
            reasons.append(name)
    if not reasons:
        if missing:
            raise NeedsFacts(missing[0])
        return None
    return run.finding(
        f"At most {size(most.peak)} of {size(most.total)} of the GPU's memory were allocated, "
        f"{percent(most.share)}, by {most.counted}, and {' and '.join(reasons)}.",
        "A larger batch makes kernels longer and their launches fewer for the same data. Adapt the learning rate.",
        None,
        [peak.row for peak in peaks],
        "Samples per second rise.",
    )


@rule("R32", "alloc_churn", LAUNCHES, STEPS, rows=Rows("memory", "Memory"))
def alloc_churn(run: Run) -> Finding | None:
    """The GPU's memory is allocated or freed in steady iterations: each cudaMalloc and cudaFree waits for the device.
    Memory of the host is ignored.

    Fires: two cudaMalloc in each step.
    Silent: allocations in the first steps only; cudaMallocAsync.
    """
    calls = run.calls("malloc", "free")
    calls = calls[~which(calls["call"], lambda name: "Async" in name or "Host" in name)]
    per_step, time = run.rate(len(calls)), run.per_worker(calls["duration_ns"].sum())
    if per_step < limit("R32.per_step") and run.share(time) <= limit("R32.share"):
        return None
    calls = calls.assign(begin=calls["start_ns"], finish=calls["start_ns"] + calls["duration_ns"])
    edits = {worker: Edit(union) for worker, union in unions(calls).items()}
    return run.finding(
        f"GPU memory is allocated or freed {per_step:.1f} times a step, which takes {percent(run.share(time))} of the "
        "time.",
        "Sizes that change from step to step make the allocator request more memory: PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True, padded or bucketed sizes, no torch.cuda.empty_cache() in the loop, less memory "
        "in use.",
        run.without("R32", edits, time),
        run.by_operator(calls, "time_ns", "call", calls=("duration_ns", "size"), time_ns=("duration_ns", "sum")),
        "No cudaMalloc and cudaFree in the iterations after the first.",
    )

# SPDX-License-Identifier: Apache-2.0
"""Rules about the GPU's memory."""

from __future__ import annotations

from pyprof.rules import Finding, NeedsFacts, rule
from pyprof.rules.kernels import low_occupancy
from pyprof.rules.launch import launch_bound
from pyprof.rules.limits import limit
from pyprof.rules.run import Run
from pyprof.rules.wording import percent, size, which


@rule("R31", "memory_underused")
def memory_underused(run: Run) -> Finding | None:
    """Much memory of the GPU is free, and a larger batch would help: the run is bound by launches (R05), or kernels do
    not fill the GPU (R26).

    Fires: 4 of 16 GB used at most, and R05 speaks.
    Silent: 4 of 16 GB used, and neither R05 nor R26 speaks; 10 of 16 GB.
    """
    run.need_gpu()
    shares: dict[int, tuple[int, int]] = {}
    for number in sorted({device.number for device in run.used}):
        peak, total = (
            run.facts.get(f"gpu.{number}.{name}", "") for name in ("peak_allocated_bytes", "memory_bytes")
        )
        if peak.isdigit() and total.isdigit() and int(total):
            shares[number] = int(peak), int(total)
    if not shares:
        raise NeedsFacts(
            "needs the peak of allocated memory, which this recording lacks; record with pyprof on a GPU"
        )
    most = max(shares.values(), key=lambda pair: pair[0] / pair[1])
    if most[0] >= limit("R31.memory") * most[1]:
        return None
    why, missing = [], []
    for each, name in (
        (launch_bound, "launches bound the run (R05)"),
        (low_occupancy, "kernels are small (R26)"),
    ):
        try:
            found = each(run)
        except NeedsFacts as needs:
            missing.append(str(needs))
            continue
        if found is not None and (found.saving is None or found.saving >= limit("worth") * run.wall):
            why.append(name)
    if not why:
        if missing:
            raise NeedsFacts(missing[0])
        return None
    return run.finding(
        f"At most {size(most[0])} of {size(most[1])} of the GPU's memory were allocated, "
        f"{percent(most[0] / most[1])}, and {' and '.join(why)}.",
        "A larger batch makes kernels longer and their launches fewer for the same data. Adapt the learning rate.",
        None,
        [{"gpu": number, "peak_bytes": a, "memory_bytes": b} for number, (a, b) in shares.items()],
        "Samples per second rise.",
    )


@rule("R32", "alloc_churn")
def alloc_churn(run: Run) -> Finding | None:
    """The GPU's memory is allocated or freed in steady iterations: each cudaMalloc and cudaFree waits for the device.
    Memory of the host is not looked at.

    Fires: two cudaMalloc in each step.
    Silent: allocations in the first steps only; cudaMallocAsync.
    """
    run.need_launches()
    run.need_steps()
    found = run.calls(("malloc", "free"))
    found = found[~which(found["call"], lambda name: "Async" in name or "Host" in name)]
    per_step = len(found) / max(run.sampled_steps * max(len(run.samples), 1), 1e-9)
    time = run.scaled(int(found["dur"].sum()))
    if per_step < limit("R32.per_step") and run.share(time) <= limit("R32.share"):
        return None
    grouped = found.groupby(["operator", "call"], as_index=False).agg(
        calls=("dur", "size"), time=("dur", "sum")
    )
    grouped = grouped.join(run.operators[["name", "source"]], on="operator")
    return run.finding(
        f"Memory of the GPU is allocated or freed {per_step:.1f} times a step, for {percent(run.share(time))} of the "
        "time.",
        "Sizes that change from step to step make the allocator ask for more: PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True, padded or bucketed sizes, no torch.cuda.empty_cache() in the loop, less memory "
        "in use.",
        time,
        run.top(
            grouped, "time", operator="name", source="source", call="call", calls="calls", time_ns="time"
        ),
        "No cudaMalloc and cudaFree in the iterations after the first.",
    )

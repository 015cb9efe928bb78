# SPDX-License-Identifier: Apache-2.0
"""Rules about copies between host and device, and within a device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import MEMCPY
from pyprof.core.units import percent, size
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, STEPS, Run
from pyprof.rules.thresholds import limit

_PAGEABLE, _PINNED, _DEVICE = 0, 1, 2  # kinds of memory, as Nsight numbers them
_HOST = (_PAGEABLE, _PINNED)


def _copies(run: Run) -> pd.DataFrame:
    """Return copies between known kinds of memory. Raises NeedsFacts."""
    columns = ("id", "operator", "duration_ns", "copied_bytes", "copy_from", "copy_to")
    table = run.events(columns, lambda one: one.event["kind"].values == MEMCPY)
    known = (table["copy_from"] >= 0) & (table["copy_to"] >= 0)
    if len(table) and not known.any():
        raise NeedsFacts(
            "needs the kinds of memory of copies, which this recording lacks; record with pyprof on a GPU, or with nsys"
        )
    table["copied_bytes"] = table["copied_bytes"].clip(lower=0)
    return table[known].reset_index(drop=True)


@rule("R10", "pageable_copy", GPU, rows=Rows("memory_copies", "Copies"))
def pageable_copy(run: Run) -> Finding | None:
    """Copies between the GPU and pageable memory: the driver copies them twice, and the program waits meanwhile. The
    saving is known if the run also has copies of pinned memory in the same direction, from their speed.

    Fires: a batch of 20 MB a step from pageable memory.
    Silent: the same with pin_memory=True; four bytes a step, as of `loss.item()`.
    """
    copies = _copies(run)
    if not len(copies):
        return None
    copies["direction"] = np.where(copies["copy_to"] == _DEVICE, "to the GPU", "to the host")
    other = np.where(copies["copy_to"] == _DEVICE, copies["copy_from"], copies["copy_to"])
    crossing = (copies["copy_to"] == _DEVICE) ^ (copies["copy_from"] == _DEVICE)
    slow, fast = copies[crossing & (other == _PAGEABLE)], copies[crossing & (other == _PINNED)]
    if not len(slow):
        return None
    per_step, time = run.rate(slow["copied_bytes"].sum()), run.per_device(slow["duration_ns"].sum())
    if per_step <= limit("R10.bytes") and run.share(time) <= limit("R10.share"):
        return None
    saving = _by_speed(slow, fast)
    rows = run.by_operator(
        slow, "bytes", "direction", copies=("duration_ns", "size"), bytes=("copied_bytes", "sum"),
        time_ns=("duration_ns", "sum"),
    )  # fmt: skip
    pinned = {text for key, text in run.facts.items() if key.startswith("loader.") and key.endswith("pin_memory")}
    first = "" if pinned == {"yes"} else "DataLoader(..., pin_memory=True) and "
    also = "The DataLoader pins its batches already: these are other tensors. " if pinned == {"yes"} else ""
    return run.finding(
        f"{size(per_step)}{run.per_step} are copied between the GPU and pageable memory, {percent(run.share(time))} of "
        "the time.",
        f"{also}{first}tensor.to(device, non_blocking=True), or torch.empty(..., pin_memory=True) for buffers that are "
        "used again.",
        None if saving is None else run.per_device(saving),
        [{**row, "gb_per_s": round(row["bytes"] / max(row["time_ns"], 1), 2)} for row in rows],
        "The copies' memory is pinned in the next recording, and their GB/s higher.",
    )


def _by_speed(slow: pd.DataFrame, fast: pd.DataFrame) -> int | None:
    """Return the time saved at the speed of the pinned copies in the same direction; None without any."""
    sums = [table.groupby("direction")[["copied_bytes", "duration_ns"]].sum() for table in (slow, fast)]
    both = sums[0].join(sums[1][(sums[1] > 0).all(axis=1)].add_suffix("_pinned"), how="inner")
    pinned = both["copied_bytes"] * both["duration_ns_pinned"] / both["copied_bytes_pinned"]
    return int((both["duration_ns"] - pinned).clip(lower=0).sum()) if len(both) else None


@rule("R11", "exposed_memcpy", GPU, rows=Rows("memory_copies", "Copies"))
def exposed_memcpy(run: Run) -> Finding | None:
    """Copies or sets run while no kernel and no communication does: the GPU computes nothing meanwhile. Copies between
    devices are communication (R28). If most are copies to the GPU, which can run ahead, the saving is the part that can
    overlap with kernels; otherwise it is all of their time, as if they were gone.

    Fires: 10 ms of copies in a step of 100 ms, before its first kernel.
    Silent: the same copies on another stream while kernels run.
    """
    exposed, kernels = run.mean("exposed_memory_ns"), run.mean("kernel_busy_ns")
    if run.share(exposed) <= limit("R11.share"):
        return None
    columns = ("name", "operator", "duration_ns", "copied_bytes")
    copies = run.events(columns, lambda one: ~one.kernel & ~one.communication)
    copies["copied_bytes"] = copies["copied_bytes"].clip(lower=0)
    copies["kind"] = copies["name"].map(run.kernel_names["kernel"])
    kinds = copies.groupby("kind")["duration_ns"].sum().sort_values(ascending=False)
    most = str(kinds.index[0]) if len(kinds) else ""
    advice = {
        "memcpy HtoD": "Copy ahead: copy the next input to the GPU on a separate stream while kernels run"
        f"{_pinning(run)}; keep data that does not change on the GPU.",
        "memcpy DtoH": "Keep results on the GPU until they are needed, gather them and copy once, with "
        "non_blocking=True into pinned memory.",
        "memset": "Avoid zeroing: torch.empty where everything is overwritten, zero_grad(set_to_none=True).",
    }.get(
        most,
        "Avoid copies within the device: contiguous(), clone(), cat and copy_() where a view or an out= would do.",
    )
    return run.finding(
        f"Copies and sets run for {run.cost(exposed)}, while no kernel runs; most of their time is "
        f"{most or 'unknown'}. At most {run.time(min(exposed, kernels), False)} of it could overlap with kernels.",
        advice,
        min(exposed, kernels) if most == "memcpy HtoD" else exposed,
        run.by_operator(
            copies, "time_ns", "kind", count=("duration_ns", "size"), bytes=("copied_bytes", "sum"),
            time_ns=("duration_ns", "sum"),
        ),
        "Copies and sets of the report overlap fall.",
    )  # fmt: skip


def _pinning(run: Run) -> str:
    """Return the further advice for copying ahead, if not all copies to the GPU are from pinned memory already."""
    copies = run.events(("copy_from", "copy_to"), lambda one: one.event["kind"].values == MEMCPY)
    host = copies["copy_from"][(copies["copy_to"] == _DEVICE) & (copies["copy_from"] != _DEVICE)]
    pinned = len(host) <= 2 * (host == _PINNED).sum()
    return "" if pinned else ", from pinned memory with non_blocking=True"


@rule("R40", "cpu_gpu_bounce", GPU, STEPS, rows=Rows("memory_copies", "Copies"))
def cpu_gpu_bounce(run: Run) -> Finding | None:
    """Within one step a block goes to the host and later one of the same size comes back: work on the CPU between work
    on the GPU. Equal sizes are a hint, not proof; the saving is at most the time of these copies.

    Fires: 1 MB to the host and 1 MB back, twice a step.
    Silent: a batch that only goes to the GPU; single numbers.
    """
    copies = _copies(run)
    if not len(copies):
        return None
    copies = copies[copies["copied_bytes"] >= limit("R40.bytes")]
    to_host = copies[(copies["copy_from"] == _DEVICE) & copies["copy_to"].isin(_HOST)]
    to_gpu = copies[copies["copy_from"].isin(_HOST) & (copies["copy_to"] == _DEVICE)]
    if not len(to_host) or not len(to_gpu):
        return None
    pairs = _pairs(run, to_host, to_gpu)
    per_step = run.rate(len(pairs))
    if per_step <= limit("R40.per_step"):
        return None
    table = pd.DataFrame(pairs, columns=["to_host", "to_gpu", "bytes", "time"])
    grouped = table.groupby(["to_host", "to_gpu", "bytes"], as_index=False).agg(
        pairs=("time", "size"), time_ns=("time", "sum")
    )
    for column in ("to_host", "to_gpu"):
        grouped[f"{column}_source"] = grouped[column].map(run.operators["source"])
        grouped[column] = grouped[column].map(run.operators["name"])
    return run.finding(
        f"{per_step:.1f} times a step a block is copied to the host and one of the same size back to the GPU.",
        "Keep the work between the two on the GPU or, if it must run on the CPU, keep all of it there. Look for "
        ".cpu(), .numpy() and .to(device) in the step.",
        run.per_device(table["time"].sum()),
        run.top(grouped, "time_ns", "to_host to_host_source to_gpu to_gpu_source bytes pairs time_ns"),
        "The copies are gone from the report of kernels.",
    )


def _pairs(run: Run, to_host: pd.DataFrame, to_gpu: pd.DataFrame) -> list[tuple[int, int, int, int]]:
    """Pair each copy to the host with the next one of its size back in the same iteration: operators, bytes, time."""
    both = pd.concat([to_host.assign(back=False), to_gpu.assign(back=True)]).sort_values("id")  # that of the launches
    out = []
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    columns = ("back", "worker", "copied_bytes", "operator", "duration_ns")
    steps = run.step_of(both["id"].to_numpy()).tolist()
    for step, back, worker, count, operator, length in zip(steps, *(both[name].tolist() for name in columns)):
        earlier = waiting.setdefault((worker, step, count), [])
        if not back:
            earlier.append((operator, length))
        elif earlier:
            first, time = earlier.pop(0)
            out.append((first, operator, count, time + length))
    return out

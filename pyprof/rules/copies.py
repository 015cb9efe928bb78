# SPDX-License-Identifier: Apache-2.0
"""Rules about copies between host and device, and within a device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import KERNELS
from pyprof.core.units import percent, size
from pyprof.facts.device.communication import names
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.premises import GPU, STEPS
from pyprof.rules.thresholds import limit

_PAGEABLE, _PINNED, _DEVICE = 0, 1, 2  # kinds of memory, as Nsight numbers them
_HOST = (_PAGEABLE, _PINNED)


def _copies(run: Run) -> pd.DataFrame:
    """Return copies in the sample, by launch: worker, operator, copied_bytes, duration_ns, kinds of memory.

    Raises NeedsFacts.
    """
    frames = []
    for sample in run.samples:
        index = sample.copies
        known = sample.event["copy_from"].mask()[index] & sample.event["copy_to"].mask()[index]
        columns = {
            name: sample.of(name)[index]
            for name in ("name", "operator", "duration_ns", "copied_bytes", "copy_from", "copy_to")
        }
        launch = np.where(sample.event["launch_ns"].mask(), sample.of("launch_ns"), sample.of("start_ns"))[
            index
        ]
        frames.append(pd.DataFrame({**columns, "worker": sample.worker, "launch": launch, "known": known}))
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"known": np.empty(0, bool)})
    if len(table) and not table["known"].any():
        raise NeedsFacts(
            "needs the kinds of memory of copies, which this recording lacks; record with pyprof on a GPU, or with nsys"
        )
    return table[table["known"]].reset_index(drop=True)


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
    per_step = float(slow["copied_bytes"].sum()) / max(run.sampled_steps * len(run.samples), 1e-9)
    time = run.on_device(int(slow["duration_ns"].sum()))
    if per_step <= limit("R10.bytes") and run.share(time) <= limit("R10.share"):
        return None
    saving = _by_speed(slow, fast)
    grouped = slow.groupby(["operator", "direction"], as_index=False).agg(
        copies=("duration_ns", "size"), bytes=("copied_bytes", "sum"), time=("duration_ns", "sum")
    )
    grouped["gbs"] = (grouped["bytes"] / grouped["time"].clip(lower=1)).round(2)
    grouped = grouped.join(run.operators[["name", "source"]], on="operator")
    pinned = {
        text for key, text in run.facts.items() if key.startswith("loader.") and key.endswith("pin_memory")
    }
    first = "" if pinned == {"yes"} else "DataLoader(..., pin_memory=True) and "
    also = "The DataLoader pins its batches already: these are other tensors. " if pinned == {"yes"} else ""
    return run.finding(
        f"{size(per_step)}{run.per_step} are copied between the GPU and pageable memory, {percent(run.share(time))} "
        "of the "
        "time.",
        f"{also}{first}tensor.to(device, non_blocking=True), or torch.empty(..., pin_memory=True) for buffers that are "
        "used again.",
        None if saving is None else run.on_device(saving),
        run.top(
            grouped, "bytes", operator="name", source="source", direction="direction", copies="copies", bytes="bytes",
            time_ns="time", gb_per_s="gbs",
        ),
        "The copies' memory is pinned in the next recording, and their GB/s higher.",
    )  # fmt: skip


def _by_speed(slow: pd.DataFrame, fast: pd.DataFrame) -> int | None:
    """Return the time saved at the speed of the pinned copies in the same direction; None without any."""
    saved, has_peers = 0.0, False
    for direction, copies in slow.groupby("direction"):
        peers = fast[fast["direction"] == direction]
        if len(peers) and peers["copied_bytes"].sum() and peers["duration_ns"].sum():
            has_peers = True
            rate = float(peers["copied_bytes"].sum()) / float(peers["duration_ns"].sum())
            saved += max(float(copies["duration_ns"].sum()) - float(copies["copied_bytes"].sum()) / rate, 0.0)
    return int(saved) if has_peers else None


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
    copies = run.events(
        ("name", "operator", "duration_ns", "copied_bytes"),
        lambda sample: np.flatnonzero(
            ~np.isin(sample.of("kind"), KERNELS) & ~names(run.store)[sample.of("name")]
        ),
    )
    copies = copies.groupby(["name", "operator"], as_index=False).agg(
        count=("duration_ns", "size"), bytes=("copied_bytes", "sum"), time=("duration_ns", "sum")
    )
    copies = copies.join(run.kernel_names["kernel"], on="name").join(run.operators.rename(columns={"name": "path"})[
        ["path", "source"]], on="operator")  # fmt: skip
    kinds = copies.groupby("kernel")["time"].sum().sort_values(ascending=False)
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
        f"Copies and sets run for {run.time(exposed)}, {percent(run.share(exposed))} of the time, while no kernel "
        f"runs; most of their time is {most or 'unknown'}. At most {run.time(min(exposed, kernels), False)} of it "
        "could overlap with kernels.",
        advice,
        min(exposed, kernels) if most == "memcpy HtoD" else exposed,
        run.top(
            copies,
            "time",
            operator="path",
            source="source",
            kind="kernel",
            count="count",
            bytes="bytes",
            time_ns="time",
        ),
        "Copies and sets of the report overlap fall.",
    )


def _pinning(run: Run) -> str:
    """Return the further advice for copying ahead, if not all copies to the GPU are from pinned memory already."""
    for sample in run.samples:
        index = sample.copies[sample.of("copy_to")[sample.copies] == _DEVICE]
        host = sample.of("copy_from")[index][sample.of("copy_from")[index] != _DEVICE]
        if len(host) and 2 * int((host == _PINNED).sum()) < len(host):
            return ", from pinned memory with non_blocking=True"
    return ""


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
    per_step = len(pairs) / max(run.sampled_steps * len(run.samples), 1e-9)
    if per_step <= limit("R40.per_step"):
        return None
    table = pd.DataFrame(pairs, columns=["to_host", "to_gpu", "bytes", "time"])
    grouped = table.groupby(["to_host", "to_gpu", "bytes"], as_index=False).agg(
        pairs=("time", "size"), time=("time", "sum")
    )
    names, sources = run.operators["name"], run.operators["source"]
    for column in ("to_host", "to_gpu"):
        grouped[f"{column}_source"] = [sources[number] for number in grouped[column].tolist()]
        grouped[column] = [names[number] for number in grouped[column].tolist()]
    return run.finding(
        f"{per_step:.1f} times a step a block is copied to the host and one of the same size back to the GPU.",
        "Keep the work between the two on the GPU or, if it must run on the CPU, keep all of it there. Look for "
        ".cpu(), .numpy() and .to(device) in the step.",
        run.on_device(int(table["time"].sum())),
        run.top(
            grouped, "time", to_host="to_host", to_host_source="to_host_source", to_gpu="to_gpu",
            to_gpu_source="to_gpu_source", bytes="bytes", pairs="pairs", time_ns="time",
        ),
        "The copies are gone from the report of kernels.",
    )  # fmt: skip


def _pairs(run: Run, to_host: pd.DataFrame, to_gpu: pd.DataFrame) -> list[tuple[int, int, int, int]]:
    """Pair each copy to the host with the next one of its size back in the same iteration: operators, bytes, time."""
    number = run.source.aggregation.iteration_set
    out = []
    for worker in to_host["worker"].unique().tolist():
        starts = np.array(
            run.store.rows(
                "select host_start_ns from iteration where iteration_set = ? and worker = ? order by number",
                (number, worker),
            )
        ).ravel()
        both = pd.concat([to_host.assign(back=False), to_gpu.assign(back=True)])
        both = both[both["worker"] == worker].sort_values("launch", kind="stable")
        waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
        steps = np.searchsorted(starts, both["launch"].to_numpy(np.int64), side="right")
        columns = ("back", "copied_bytes", "operator", "duration_ns")
        for step, is_back, count, operator, dur in zip(
            steps.tolist(), *(both[name].tolist() for name in columns)
        ):
            if not is_back:
                waiting.setdefault((step, count), []).append((operator, dur))
            elif waiting.get((step, count)):
                first, time = waiting[step, count].pop(0)
                out.append((first, operator, count, time + dur))
    return out

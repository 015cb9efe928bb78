# SPDX-License-Identifier: Apache-2.0
"""Rules about kernels: chains that could be one, launches that do not fill the GPU, work far from the roofline."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import KERNEL, OPTIMIZER
from pyprof.core.occupancy import Chip, of_capability, resident
from pyprof.core.units import percent
from pyprof.costs.kernels import COMMUNICATION
from pyprof.facts.device import launch_stats
from pyprof.facts.device.timeline import Excerpt
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, KINDS, Run, known
from pyprof.rules.peaks import only_gpu, roof
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which


@rule("R23", "unfused_pointwise", GPU, rows=Rows("kernel_summary", "Kernels"))
def unfused_pointwise(run: Run) -> Finding | None:
    """Elementwise kernels of one size follow each other on a stream: each reads and writes all data again. Of n such
    kernels a fused one saves at most (n - 1) / n. The optimizer (R21) and kernels that a compiler has fused are left
    out.

    Fires: add, mul, tanh on the same large tensor, 15 % of the kernels' time.
    Silent: chains of two; kernels of one block, whose cost is the launch (R06).
    """
    chains = pd.concat([_chains(run, excerpt) for excerpt in run.excerpts])
    part = float(chains["time"].sum()) / max(run.kernel_time, 1)
    if part <= limit("R23.share"):
        return None
    saved = float((chains["time"] * (1 - 1 / chains["kernels"])).sum())
    grouped = chains.groupby("operator", as_index=False).agg(
        last=("last", "first"), chains=("time", "size"), kernels=("kernels", "max"), time_ns=("time", "sum")
    )
    grouped = run.named(grouped.assign(last=grouped["last"].map(run.operators["name"]))).rename(
        columns={"operator": "first"}
    )
    compiled = run.facts.get("compile.regions", "0") != "0"
    many = f"of {int(limit('R23.chain'))} or more elementwise kernels of one size"
    who = f"1 chain {many} takes" if len(chains) == 1 else f"{len(chains)} chains {many} take"
    return run.finding(
        f"{who} {percent(part)} of the kernels' time; each kernel reads and writes the data again.",
        ("These are outside the compiled regions: move them inside" if compiled else
         "torch.compile fuses them (compiling the function with the chain is enough)")
        + ", or use one operator for them (F.gelu, F.silu, addcmul, in-place forms).",
        run.per_device(saved),
        run.top(grouped, "time_ns", "first last source chains kernels time_ns"),
        "Fewer elementwise kernels in the report of kernels, and a shorter step.",
    )  # fmt: skip


def _chains(run: Run, excerpt: Excerpt) -> pd.DataFrame:
    """Return chains: first operator and last, kernels, time."""
    names = run.kernel_names
    fusable = names.index[
        (names["what"] == "pointwise") & ~which(names["kernel"], lambda name: name.startswith("triton_"))
    ].to_numpy(np.int64)
    learns = run.operators.index[run.operators["phase"] == OPTIMIZER].to_numpy(np.int64)
    device, stream = (excerpt.of_events(name).values for name in ("device", "stream"))
    order = np.lexsort((excerpt.start, stream, device))
    order = order[excerpt.event["kind"].values[order] == KERNEL]
    name, operator, geometry = (known(excerpt.of_events(name).take(order)) for name in ("name", "operator", "geometry"))
    shapes = launch_stats.shapes(run.store)
    parts = [device[order], stream[order], shapes.blocks[geometry], shapes.threads[geometry]]
    fits = np.isin(name, fusable) & ~np.isin(operator, learns) & (parts[2] > 1)
    same = np.zeros(len(order), bool)
    same[1:] = fits[1:] & fits[:-1] & np.logical_and.reduce([part[1:] == part[:-1] for part in parts])
    time = (excerpt.end - excerpt.start)[order]
    frame = pd.DataFrame({"chain": np.cumsum(~same), "operator": operator, "time": time})[fits]
    chains = frame.groupby("chain").agg(
        operator=("operator", "first"),
        last=("operator", "last"),
        kernels=("time", "size"),
        time=("time", "sum"),
    )
    return pd.DataFrame(chains[chains["kernels"] >= limit("R23.chain")])


def _shapes(run: Run) -> pd.DataFrame:
    """Return kernels by operator, name and geometry: blocks, threads, registers, shared memory, count, time.

    Collectives are left out; they take few blocks on purpose.
    """
    keys = ["operator", "name", "geometry"]
    kernels = run.events((*keys, "duration_ns"), lambda one: one.event["kind"].values == KERNEL)
    kernels = kernels.groupby(keys, as_index=False).agg(count=("duration_ns", "size"), time=("duration_ns", "sum"))
    shapes = launch_stats.shapes(run.store)
    columns = dict(zip(("blocks", "threads", "registers", "shared"), shapes))
    kernels = kernels.assign(**{name: column[kernels["geometry"]] for name, column in columns.items()})
    kernels = run.named(kernels.join(run.kernel_names[["short_name", "what"]], on="name"))
    kernels = kernels.rename(columns={"short_name": "kernel"})
    return kernels[(kernels["blocks"] > 0) & (kernels["threads"] > 0) & ~kernels["what"].isin(COMMUNICATION)]


def _chip(run: Run) -> Chip:
    """Return the chip of the lowest compute capability used, with the most multiprocessors. Raises NeedsFacts."""
    counts = [device.sm_count for device in run.devices.values()]
    if None in counts:
        raise NeedsFacts("needs the GPU's number of multiprocessors, which this recording lacks; record with pyprof")
    major, minor = divmod(round(run.capability * 10), 10)
    chip = of_capability(major, minor, max(count for count in counts if count is not None))
    if chip is None:
        raise NeedsFacts(f"needs the limits of compute capability {major}.{minor}, which PyProf does not know")
    return chip


@rule("R26", "low_occupancy", GPU, KINDS, rows=Rows("kernel_summary", "Kernels"))
def low_occupancy(run: Run) -> Finding | None:
    """Kernels with fewer blocks than the GPU has multiprocessors, and few threads in them: most of the GPU is idle
    while they run. The saving is at most what spreading the same blocks over all multiprocessors could save.

    Fires: kernels of 20 blocks on 80 multiprocessors hold 30 % of the kernels' time.
    Silent: kernels of 100 blocks; such kernels shorter than 5 us, which are launches, not work.
    """
    chip = _chip(run)
    count = chip.multiprocessors
    kernels = _shapes(run)
    total = int(kernels["time"].sum())
    if not total:
        return None
    kernels["occupancy"] = (kernels["blocks"] * kernels["threads"] / (count * chip.threads)).clip(upper=1.0).round(4)
    few = kernels[
        (kernels["blocks"] < count)
        & (kernels["occupancy"] < limit("R26.occupancy"))
        & (kernels["time"] / kernels["count"] >= limit("R26.length"))
    ]
    part = float(few["time"].sum()) / total
    if part <= limit("R26.share"):
        return None
    saved = float((few["time"] * (1 - few["blocks"] / count)).sum())
    return run.finding(
        f"Kernels with fewer blocks than the {count} multiprocessors, and less than {percent(limit('R26.occupancy'))} "
        f"of the threads, take {percent(part)} of the time of kernels other than collectives.",
        "Give each kernel more work at once: a larger batch, several small tensors in one call, or two independent "
        "parts on two streams. Split a reduction or a product over a long dimension.",
        run.per_device(saved),
        run.top(few, "time", "operator source kernel blocks threads occupancy count time_ns=time"),
        "These kernels have more blocks, or the step is shorter.",
    )


@rule("R27", "tail_wave", GPU, KINDS, rows=Rows("kernel_summary", "Kernels"))
def tail_wave(run: Run) -> Finding | None:
    """Kernels whose blocks fill the GPU once or twice and a little more: the last few blocks take as long as a full
    wave. A wave is the number of blocks that fit at once, by threads, blocks, registers and shared memory.

    Fires: 90 blocks on 80 multiprocessors that hold one each, 10 % of the kernels' time.
    Silent: 80 blocks; 150 blocks; 90 blocks of a kernel of which two fit.
    """
    chip = _chip(run)
    count = chip.multiprocessors
    kernels = _shapes(run)
    total = int(kernels["time"].sum())
    if not total:
        return None
    kernels = kernels[(kernels["registers"] >= 0) & (kernels["shared"] >= 0)].copy()
    if not len(kernels):
        raise NeedsFacts("needs registers and shared memory of kernels, which this recording lacks")
    held = resident(chip, *(kernels[name].to_numpy(np.int64) for name in ("threads", "registers", "shared")))
    kernels["waves"] = (kernels["blocks"] / (count * held)).round(3)
    over = kernels["waves"] - np.floor(kernels["waves"])
    past_first = (kernels["waves"] > 1) & (kernels["waves"] <= 1 + limit("R27.over"))
    past_second = (kernels["waves"] > 2) & (kernels["waves"] <= 2 + limit("R27.over_two"))
    tails = kernels[(past_first | past_second) & (over > 0)]
    part = float(tails["time"].sum()) / total
    if part <= limit("R27.share"):
        return None
    full = np.ceil(tails["waves"])
    saved = float((tails["time"] * (full - tails["waves"]) / full).sum())
    return run.finding(
        f"Kernels whose last wave of blocks is nearly empty take {percent(part)} of the time of kernels other than "
        "collectives.",
        "Change what sets the number of blocks (batch, sequence length, tile) so that it is just below a whole number "
        "of waves; the evidence has waves and blocks.",
        run.per_device(saved),
        run.top(tails, "time", "operator source kernel blocks waves count time_ns=time"),
        "A step with the other size takes less time per element.",
    )


@rule("R36", "far_from_roofline", GPU, rows=Rows("detail", "Operators"))
def far_from_roofline(run: Run) -> Finding | None:
    """Operators take much longer than their FLOPs and bytes need on this GPU. The saving is counted up to the
    efficiency that good kernels reach.

    Fires: an operator at 20 % of the roofline that takes 10 % of the time.
    Silent: one at 60 %; short kernels, whose time is the launch; collectives.
    """
    if only_gpu(run) is None:
        raise NeedsFacts("needs the peaks of the GPU (docs/gpus.md has those that are known)")
    kernels = run.kernels.copy()
    kernels["roof"] = roof(run, kernels)
    kernels = kernels[kernels["roof"].notna() & (kernels["gpu_ns"] >= limit("R36.length") * kernels["calls"])]
    kernels = kernels[~kernels["what"].isin(COMMUNICATION)]  # waits for other ranks are not work
    grouped = run.named(kernels.groupby("operator", as_index=False).agg(
        time=("gpu_ns", "sum"), roof=("roof", "sum"), flops=("flops", "sum"), bytes=("bytes", "sum"),
        params=("params", "first"), kernel=("short_name", "first"),
    ))  # fmt: skip
    grouped["efficiency"] = (grouped["roof"] / grouped["time"].clip(lower=1)).round(3)
    lost = (grouped["time"] - grouped["roof"]) / max(len(run.used), 1) / max(run.wall, 1)
    far = grouped[(grouped["efficiency"] < limit("R36.efficiency")) & (lost > limit("R36.share"))].copy()
    if not len(far):
        return None
    far["lost"] = far["time"] - far["roof"] / limit("R36.reachable")
    who, at = ("1 operator takes", "is at") if len(far) == 1 else (f"{len(far)} operators take", "are at")
    return run.finding(
        f"{who} {run.time(run.per_device(far['time'].sum()))} and {at} "
        f"{percent(far['roof'].sum() / far['time'].sum())} of the roofline.",
        "Products: another type, size or layout, a newer library. All else is limited by memory: make fewer passes "
        "over the data (fuse, in-place), contiguous tensors, a smaller type.",
        run.per_device(far["lost"].sum()),
        run.top(far, "lost", "operator source params kernel time_ns=time efficiency flops bytes"),
        "Roofline efficiency of these operators rises.",
    )

# SPDX-License-Identifier: Apache-2.0
"""Rules about communication: collectives, copies between devices."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.analysis.bandwidth import sizes
from pyprof.analysis.collective_groups import collectives
from pyprof.analysis.communication import names
from pyprof.model import KERNEL
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.premises import GPU, KINDS
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import length, percent, size


def _communication(run: Run) -> pd.DataFrame:
    """Communication in the sample: kind, operator, dur, bytes (missing: unknown) as nccl-tests counts them where the
    recording tells what was sent and received, else those of the call; of a copy between devices what it moved."""
    between = names(run.store)
    found = run.events(
        ("id", "kind", "operator", "dur", "bytes", "sized", "copied"),
        lambda sample: np.flatnonzero(between[sample.of("name")]),
    )
    told = collectives(run.store).set_index("event")
    known = found["bytes"].astype("Int64").where(found.pop("sized").astype(bool))
    copied = found.pop("copied").astype("Int64").where(found["kind"] != KERNEL)
    return found.assign(bytes=found["id"].map(sizes(told)).astype("Int64").fillna(copied).fillna(known))


def _grouped(run: Run, found: pd.DataFrame) -> pd.DataFrame:
    """Sums by operator; bytes are missing if those of one collective are."""
    grouped = found.groupby("operator", as_index=False).agg(
        count=("dur", "size"), bytes=("bytes", "sum"), sized=("bytes", "count"), time=("dur", "sum")
    )
    grouped["bytes"] = grouped["bytes"].where(grouped["sized"] == grouped["count"]).astype(object)
    grouped["bytes"] = grouped["bytes"].where(grouped["bytes"].notna(), None)
    return grouped.join(run.operators[["name", "source"]], on="operator")


@rule("R28", "comm_exposed", GPU, KINDS, rows=Rows("communication", "Collectives"))
def comm_exposed(run: Run) -> Finding | None:
    """Collectives and copies between devices run while no other kernel does.

    Fires: an all-reduce of 20 ms at the end of a step of 100 ms.
    Silent: the same while the backward pass still computes.
    """
    exposed, total = run.mean("exposed_communication"), run.mean("communication")
    if run.share(exposed) <= limit("R28.share"):
        return None
    found = _communication(run)
    grouped = _grouped(run, found)
    copied = found.loc[found["kind"] != KERNEL, "dur"].sum()
    what = "Collectives" if not copied else "Collectives and copies between GPUs"
    return run.finding(
        f"{what} run {length(total)}, {length(exposed)} of it, {percent(run.share(exposed))} of the time, without "
        "any other kernel: waiting for a slower rank counts as well.",
        "DistributedDataParallel: gradient_as_bucket_view=True, another bucket_cap_mb, model.no_sync() while "
        "gradients accumulate; FSDP: prefetch the next layer's weights (limit_all_gathers, forward_prefetch).",
        exposed,
        run.top(
            grouped, "time", operator="name", source="source", count="count", bytes="bytes", time_ns="time"
        ),
        "Communication overlap of the summary rises.",
    )


@rule("R29", "small_collectives", GPU, rows=Rows("communication", "Collectives"))
def small_collectives(run: Run) -> Finding | None:
    """Many small collectives a step: each costs its latency, whatever its size.

    Fires: 40 all-reduces of 100 kB a step.
    Silent: 10 a step; 40 of 20 MB.
    """
    found = _communication(run)
    found = found[found["kind"] == KERNEL]
    if not len(found):
        return None
    run.need_steps()
    if not found["bytes"].notna().any():
        raise NeedsFacts("needs the sizes of collectives, which this recording lacks; record with pyprof")
    small = found[found["bytes"].notna() & (found["bytes"] < limit("R29.bytes")).fillna(False)]
    per_step = len(small) / max(run.sampled_steps * len(run.samples), 1e-9)
    if per_step < limit("R29.per_step"):
        return None
    grouped = small.groupby("operator", as_index=False).agg(
        count=("dur", "size"), bytes=("bytes", "mean"), time=("dur", "sum")
    )
    grouped = grouped.join(run.operators[["name", "source"]], on="operator")
    return run.finding(
        f"{per_step:.0f} collectives a step move less than {size(limit('R29.bytes'))} each, for "
        f"{percent(run.share(run.on_device(int(small['dur'].sum()))))} of the time.",
        "Send one flat tensor for many: larger buckets of DistributedDataParallel (bucket_cap_mb), one all_reduce of "
        "stacked metrics, every N steps.",
        None,
        run.top(
            grouped,
            "time",
            operator="name",
            source="source",
            count="count",
            mean_bytes="bytes",
            time_ns="time",
        ),
        "Fewer kernels of collectives a step in the report of kernels.",
    )

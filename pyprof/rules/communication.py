# SPDX-License-Identifier: Apache-2.0
"""Rules about communication: collectives, copies between devices."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyprof.core.model import KERNEL, KERNELS
from pyprof.core.units import percent, size
from pyprof.facts.device.bandwidth import sizes
from pyprof.facts.ranks.collective_groups import collectives
from pyprof.rules import RULES, Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, KINDS, Run
from pyprof.rules.evaluation import judge
from pyprof.rules.thresholds import limit

_NOTICED = 0.01  # of the time of collectives: a wait for a rank that is worth a word
_LATE = ("R08", "R09", "R30", "R33", "R49")  # what may hold up one of the ranks


def _communication(run: Run) -> pd.DataFrame:
    """Return communication: kind, operator, duration_ns, bytes and transfer, which is missing where the collective
    could not be matched on all ranks (missing: unknown).

    Bytes are as nccl-tests counts them if the recording has what was sent and received, else those of the call; for
    a copy between devices, the bytes copied.
    """
    columns = ("id", "kind", "operator", "stream", "duration_ns", "bytes", "copied_bytes")
    table = run.events(columns, lambda one: one.communication)
    described = collectives(run.store).set_index("event")
    of_call = table["bytes"].astype("Int64").where(table["bytes"] >= 0)
    copied = table.pop("copied_bytes").astype("Int64").where(~table["kind"].isin(KERNELS))
    copied = copied.where(copied >= 0)
    return table.assign(
        bytes=table["id"].map(sizes(described)).astype("Int64").fillna(copied).fillna(of_call),
        transfer=table["id"].map(described["transfer"]),
        name=table["id"].map(described["name"]),
    )


def _on_stream_of_kernels(run: Run, table: pd.DataFrame) -> str:
    """Return the stream on which most of the other kernels run, if collectives run there for most of their time; else
    an empty text."""
    own = table[table["kind"] == KERNEL].groupby("stream")["duration_ns"].sum()
    kernels = run.events(("stream", "duration_ns"), lambda one: one.kernel & ~one.communication)
    if not len(own) or not len(kernels):
        return ""
    stream = kernels.groupby("stream")["duration_ns"].sum().idxmax()
    return f"stream {stream}" if 2 * own.get(stream, 0) > own.sum() else ""


def _of_all(bytes_: pd.Series[Any]) -> int | None:
    """Return the sum of the bytes of collectives, None if those of one are unknown."""
    return None if bytes_.isna().any() else int(bytes_.sum())


@rule("R28", "comm_exposed", GPU, KINDS, rows=Rows("overlap", "Overlap of communication"))
def comm_exposed(run: Run) -> Finding | None:
    """Collectives and copies between devices run while no other kernel does. Where they can be matched on all ranks,
    the finding says how much of their time is a wait for the rank that came last. That is no part of the saving where
    another finding says what holds up that rank (R08, R09, R30, R33, R49).

    Collectives that run on the stream of the other kernels cannot overlap with them, which it says too.

    Fires: an all-reduce of 20 ms at the end of a step of 100 ms.
    Silent: the same while the backward pass still computes.
    """
    exposed, total = run.mean("exposed_communication_ns"), run.mean("communication_ns")
    if run.share(exposed) <= limit("R28.share"):
        return None
    table = _communication(run)
    copied = table.loc[~table["kind"].isin(KERNELS), "duration_ns"].sum()
    of_kind = table["name"].dropna().value_counts().index.tolist()
    listed = f" ({', '.join(of_kind[:2])}{' ...' if len(of_kind) > 2 else ''})" if of_kind else ""
    what = f"Collectives{listed}" if not copied else f"Collectives{listed} and copies between GPUs"
    matched = table[table["transfer"].notna()]
    waiting = 1 - float(matched["transfer"].sum()) / max(float(matched["duration_ns"].sum()), 1)
    if not len(matched):
        waits = "Waits for a slower rank are included."
    else:
        every = len(matched) == len(table)
        of = "their time" if every else "the time of those that were matched on all ranks"
        waits = (
            f"For {percent(waiting)} of {of} they wait for the rank that comes last."
            if waiting >= _NOTICED
            else f"Waits for a late rank are less than {percent(_NOTICED)} of it."
        )
    evenly = "Remove what delays the late ranks (reports root_cause, stragglers): the others only wait."
    faster = (
        "DistributedDataParallel: gradient_as_bucket_view=True, another bucket_cap_mb, model.no_sync() while gradients "
        "accumulate; FSDP: prefetch the next layer's weights (limit_all_gathers, forward_prefetch)."
    )
    if not len(matched):
        advice = f"If one rank comes late: {evenly[0].lower()}{evenly[1:]} Otherwise {faster}"
    else:
        advice = evenly if waiting > limit("R28.waiting") else faster
    if alone := _on_stream_of_kernels(run, table):
        waits += f" They run on the stream of the other kernels ({alone}), so nothing can overlap with them."
        advice = (
            "Start them early with async_op=True and call wait() where the result is needed, or use a stream of their "
            f"own: since torch 2.8 a collective with async_op=False runs on the current stream. {advice}"
        )
    late = [one for one in _LATE if judge(RULES[one], run).finding is not None and one in run.late_ranks]
    own = exposed
    if len(matched) and late:
        own = int(exposed * (1 - waiting))
        if waiting >= _NOTICED:
            waits += f" What holds that rank up is in {' and '.join(late)}."
    return run.finding(
        f"{what} run for {run.time(total)}; {run.time(exposed, False)} of it, {percent(run.share(exposed))} of the "
        f"time, while no other kernel runs. {waits}",
        advice,
        own,
        run.by_operator(
            table,
            "time_ns",
            count=("duration_ns", "size"),
            bytes=("bytes", _of_all),
            time_ns=("duration_ns", "sum"),
        ),
        "The exposed time of the report overlap falls.",
    )


@rule("R29", "small_collectives", GPU, rows=Rows("communication", "Collectives"))
def small_collectives(run: Run) -> Finding | None:
    """Many small collectives a step: each costs its latency regardless of its size.

    Fires: 40 all-reduces of 100 kB a step.
    Silent: 10 a step; 40 of 20 MB.
    """
    table = _communication(run)
    table = table[table["kind"] == KERNEL]
    if not len(table):
        return None
    run.need_steps()
    if not table["bytes"].notna().any():
        raise NeedsFacts("needs the sizes of collectives, which this recording lacks; record with pyprof")
    small = table[table["bytes"].notna() & (table["bytes"] < limit("R29.bytes")).fillna(False)]
    per_step = run.rate(len(small))
    if per_step < limit("R29.per_step"):
        return None
    return run.finding(
        f"{per_step:.0f} collectives a step move less than {size(limit('R29.bytes'))} each, for "
        f"{percent(run.share(run.per_device(small['duration_ns'].sum())))} of the time.",
        "Send one flat tensor instead of many: larger buckets of DistributedDataParallel (bucket_cap_mb), one "
        "all_reduce of stacked metrics, every N steps.",
        None,
        run.by_operator(
            small, "time_ns", count=("duration_ns", "size"), mean_bytes=("bytes", "mean"),
            time_ns=("duration_ns", "sum"),
        ),
        "Fewer kernels of collectives a step in the report of kernels.",
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Time of the steps by cause, from the device's peak downwards: each nanosecond has one cause and one place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import MEMCPY, RECOMPUTE, Bools, Floats, Ints
from pyprof.facts.device import launch_stats
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host import gaps
from pyprof.facts.host.places import PLACE_COLUMNS
from pyprof.facts.ranks.collective_groups import MUTUAL, collectives
from pyprof.facts.steps.device_steps import Steps, activities, used_steps
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import frame
from pyprof.reports import Column, Option, View, report
from pyprof.reports.host_account import CAUSES, LOADING, host_account
from pyprof.reports.idle import IDLE, idle_sums
from pyprof.reports.step_time import WORKER
from pyprof.rules.context import Run
from pyprof.rules.host_places import named

USEFUL, RECOMPUTED, WAITING = "useful", "recomputation", "waiting for a rank"
_OF_KERNELS = (
    USEFUL, "precision", "memory-bound", "unfilled waves", "below the roofline", "roofline unknown", RECOMPUTED,
)  # fmt: skip
_OTHERS = ("memory copies", "memory sets", WAITING, "exposed communication")
_PLACE = tuple(name for name in PLACE_COLUMNS if name not in ("where", "stack"))
_PS = 1e12
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device; empty without a GPU."),
    Column("cause", "Cause", "", "As described above; idle time has the causes of the report idle.", str),
    Column("operator", "Operator", "", "Of device time its operator, of idle time that of the host.", str),
    Column("module", "Module", "", "Path of its module.", str),
    Column("line", "Source Line", "", "Last line of the stack trace.", str),
    Column("call", "API Call", "", "For waits of the host: the call in which it waited.", str),
    Column("host", "Host", "", "Range or Python function in which the host was while the device was idle.", str),
    Column("total_ns", "Total (ns)", "ns", "Time of the cause in the steady steps."),
    Column("step_ns", "Per Step (ns)", "ns", "Mean of a step.", float),
    Column(
        "share",
        "Share (%)",
        "%",
        "Of the time of the steps: that of useful is the MFU, and those of the others are the points that it lacks.",
        float,
    ),
)


@report(
    "account",
    "Account of the Step",
    _COLUMNS,
    options=(
        Option(
            "by",
            "What each row covers besides the cause: nothing, the source line, or the place.",
            {
                "cause": _PLACE,
                "line": tuple(name for name in _PLACE if name != "line"),
                "place": (),
            },
        ),
    ),
    view=View("Time", sums="total_ns"),
)
def account(source: Source, by: str) -> pd.DataFrame:
    """One row per worker, device and cause, and with --by its place; the rows add up to the steady steps.
    Where several things ran, the time belongs to the first of this order, and of equal ones to the first to begin:
    kernels, copies, sets, communication. The time of a kernel is divided: useful is what the FLOPs that the model
    needs take at the peak of the device's 16 bit matrix units, so that its share is the model FLOPs utilization
    (MFU) as it is published; precision is what they take more at the peak of the type and units that were used;
    memory-bound what the bytes take more than that at the memory's bandwidth; unfilled waves is the share of the
    multiprocessors that have no block while the last ones run, of kernels that compute is the limit of: 96 blocks
    on 80 multiprocessors fill 96 of 160 places in two waves; below the roofline is the rest, with unfilled tiles.
    roofline unknown: the rest of a kernel whose FLOPs, bytes or peak are not known, or that computes by Winograd or
    FFT. Kernels that compute something again are recomputation. waiting for a rank: of a collective that was
    recorded on all ranks, the time until the last one arrived; exposed communication is the
    rest. Idle time has the causes and places of the report idle. Without a GPU the rows are those of the main
    thread: phases of its operators, waits for the data loader, collectives that run on the host (communication),
    garbage collection, saving, and what is outside of operators, by function or line where these were recorded,
    else by the operator that follows."""
    keys = {"cause": (), "line": ("line",), "place": _PLACE}[by]
    peaks = {
        device: max(gpu.peak(name, True) or 0.0 for name in ("bfloat16", "float16"))
        for device, gpu in Run(source).gpus.items()
    }
    rows = []
    operators = _operators(source)
    for activity, every in activities(source):
        steps = used_steps(source, every)
        length = int(steps.length(activity).sum())
        for device in activity.devices if source.gpu else [None]:
            if device is None:
                parts = host_account(source, activity, steps, operators)
            else:
                peak = peaks.get(device, 0.0)
                parts = _parts(source, activity, steps, device, peak, operators)
            table = pd.concat([pd.DataFrame({"cause": [], "total_ns": []}), *parts])
            table = table.reindex(columns=["cause", *_PLACE, "total_ns"])
            sums = table.groupby(["cause", *keys], dropna=False, sort=False)["total_ns"].sum().reset_index()
            sums = sums[sums["total_ns"] > 0].assign(worker=activity.name, device=device)
            sums["step_ns"] = sums["total_ns"] / max(len(steps.start), 1)
            sums["share"] = 100 * sums["total_ns"] / max(length, 1)
            order = sums["cause"].map(_order) if not keys else -sums["total_ns"]
            rows.append(sums.iloc[np.argsort(order, kind="stable")])
    names = [column.key for column in _COLUMNS if column.key not in _PLACE or column.key in keys]
    if not rows:
        return pd.DataFrame(columns=names, dtype=object)
    table = pd.concat(rows, ignore_index=True)[names].astype(object)
    return table.where(table.notna(), None)


def _order(cause: str) -> int:
    causes = (*_OF_KERNELS, *_OTHERS, *CAUSES)
    return causes.index(cause) if cause in causes else len(causes)


def waits(source: Source, activity: Activity, steps: Steps, device: int | None) -> pd.Series[int]:
    """Return the time of waits and of what is outside of operators in steps, in ns by the text of cause and place."""
    if device is None:
        parts = list(host_account(source, activity, steps, _operators(source)))
        parts = [part[part["operator"].isna() | (part["cause"] == LOADING)] for part in parts]
    else:
        parts = list(_idle(activity, steps, device))
    table = pd.concat([pd.DataFrame({"cause": [], "total_ns": []}), *parts]).reindex(
        columns=["cause", *_PLACE, "total_ns"]
    )
    rows = table.astype(object).where(table.notna(), None)
    names = [f"{cause}{_location(*place)}" for cause, *place in rows[["cause", *_PLACE]].itertuples(index=False)]
    return rows["total_ns"].astype(np.int64).groupby(pd.Index(names)).sum()


def _location(call: str | None, host: str | None, operator: str | None, module: str | None, line: str | None) -> str:
    """Return the text of a place, to follow its cause."""
    what = call or host or operator
    text = named(what, None, line, True).removeprefix("in ") if what else line or ""
    return f", {text}" if text else ""


class _Group(NamedTuple):
    """Device events whose time has one cause, and what of it counts: from `start` to `end`, in ns."""

    cause: str
    events: Ints
    start: Ints
    end: Ints


def _operators(source: Source) -> pd.DataFrame:
    """Return name, module, line and phase of the operators, by their numbers."""
    table = frame(
        source,
        """select o.id, case when o.unassociated = 1 then null else o.name end as operator, o.module, k.frames as line,
                  o.phase from operator o left join stack k on k.id = o.stack""",
    ).set_index("id")
    line = table["line"].astype(object).str.rpartition("\n")[2]
    return table.assign(line=line.replace("", None)).astype(object).where(table.notna(), None)


def _parts(
    source: Source, activity: Activity, steps: Steps, device: int, peak: float, operators: pd.DataFrame
) -> Iterator[pd.DataFrame]:
    """Yield the time of causes with the columns of their places."""
    covered = activity.paused
    number = activity.event["operator"]
    for group in _groups(source, activity, device):
        length = _owned(group, steps, covered)
        covered = covered.with_(Union(group.start, group.end))
        counted = np.flatnonzero(length)
        events, length = group.events[counted], length[counted]
        amounts = _divided(source, activity, events, length, peak) if group.cause == "kernel" else {group.cause: length}
        own = np.where(number.mask()[events], number.values[events], -1)
        for cause, amount in amounts.items():
            sums = pd.Series(amount).groupby(own).sum()
            yield operators.reindex(sums.index).assign(cause=cause, total_ns=sums)
    yield from _idle(activity, steps, device)


def _idle(activity: Activity, steps: Steps, device: int) -> Iterator[pd.DataFrame]:
    """Yield the idle time of a device by cause and place."""
    for low, high in steps.windows:
        idle = idle_sums(activity, device, low, high)
        yield idle.assign(cause=[IDLE + gaps.CAUSES[code] for code in idle["cause"]])


def _groups(source: Source, activity: Activity, device: int) -> Iterator[_Group]:
    """Yield the events of a device by kind, those first whose time counts first."""
    on, kind, apart = activity.on(device), activity.event["kind"].values, activity.communication
    ends = activity.end

    def group(cause: str, mask: Bools, end: Ints = ends) -> _Group:
        events = np.flatnonzero(on & mask)
        return _Group(cause, events, activity.start[events], end[events])

    yield group("kernel", activity.kernel & ~apart)
    yield group("memory copies", (kind == MEMCPY) & ~apart)
    yield group("memory sets", ~activity.kernel & (kind != MEMCPY))
    rows = collectives(source.store)
    rows = rows[(rows["instance"] >= 0) & rows["name"].isin(MUTUAL)]
    wait = rows["duration_ns"] - rows.groupby("instance")["duration_ns"].transform("min")
    own = rows["worker"] == activity.worker
    waited = np.zeros(len(activity.id), np.int64)
    waited[np.searchsorted(activity.id, rows.loc[own, "event"])] = wait[own]
    yield group(WAITING, apart & (waited > 0), activity.start + waited)
    yield group("exposed communication", apart)


def _owned(group: _Group, steps: Steps, covered: Union) -> Ints:
    """Return how much of the steps each event has, in ns: what none before it of its group has, nor `covered`."""
    order = np.argsort(group.start, kind="stable")
    start, end = group.start[order], group.end[order]
    reached = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, end])[:-1]
    begin = np.minimum(np.maximum(start, reached), end)
    inside = Union(steps.start, steps.end)
    length: Ints = np.empty_like(start)
    length[order] = inside.within(begin, end) - inside.both(covered).within(begin, end)
    return length


def _divided(source: Source, activity: Activity, events: Ints, length: Ints, peak: float) -> dict[str, Ints]:
    """Return the parts of the time that kernels have, by cause; of each they add up to its `length`."""
    work = {name: column.take(events) for name, column in activity.work().items()}
    time, roofline, model = (work[name].values for name in ("duration_ns", "roofline_ns", "model_ps"))
    again = activity.event_phases()[events] == RECOMPUTE
    # The peak at which a kernel's FLOPs were timed, against that of the 16 bit matrix units.
    at_peak = np.where(work["hardware_ps"].mask(), work["hardware_ps"].values, model)
    flops = np.where(work["flops"].mask(), work["flops"].values, 0)
    has_model = work["model_ps"].mask() & (peak > 0) & ~again
    known = has_model & work["roofline_ns"].mask() & work["hardware_ps"].mask()
    own = flops * _PS / np.maximum(at_peak, 1)
    useful = np.where(own < peak, model * own / max(peak, 1.0), model) / 1000
    computes = known & (at_peak / 1000 >= roofline - 1)  # not the bandwidth, which few multiprocessors can use up
    unfilled = np.where(computes, time * _unfilled(source, activity, events), 0)
    levels = [np.zeros(len(time)), useful, model / 1000, roofline, roofline + unfilled, time.astype(float)]
    scale = length / np.maximum(time, 1)
    ends = [np.rint(np.minimum(level, time) * scale) for level in np.maximum.accumulate(levels)]
    parts: dict[str, Ints] = {
        cause: np.where(has_model if cause == USEFUL else known, after - before, 0).astype(np.int64)
        for cause, (before, after) in zip(_OF_KERNELS, pairwise(ends))
    }
    return parts | {
        "roofline unknown": np.where(known | again, 0, length - parts[USEFUL]),
        RECOMPUTED: np.where(again, length, 0),
    }


def _unfilled(source: Source, activity: Activity, events: Ints) -> Floats:
    """Return the share of the places for blocks that the waves of each kernel leave empty, a place of each
    multiprocessor in each wave; 0 where the grid or the device is not known."""
    geometry, device = (activity.event[name] for name in ("geometry", "device"))
    blocks = launch_stats.shapes(source.store).blocks[np.where(geometry.mask(), geometry.values, -1)[events]]
    query = "select number, sm_count from device where worker = ? and sm_count > 0"
    counts = dict(source.store.rows(query, (activity.worker,)))
    places = np.array([counts.get(number, 0) for number in device.values[events].tolist()], np.int64)
    known = (blocks > 0) & (places > 0)
    blocks, places = np.maximum(blocks, 1), np.maximum(places, 1)
    return np.where(known, 1 - blocks / (places * -(-blocks // places)), 0.0)

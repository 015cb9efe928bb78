# SPDX-License-Identifier: Apache-2.0
"""From the launch of work to its start on the device: how long it takes, and how much is waiting meanwhile.

A unit is an API call and what it launched: the kernels of a graph's replay are launched once. Work waits from the start
of the call that launches it to its start on the device; the queue of a stream is what waits for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.device_steps import Steps, activities
from pyprof.analysis.partition import Union
from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import distinct, distribution, spans
from pyprof.reports.step_time import WORKER

FULL = 1024  # launches that a stream takes before a call waits; source: HTA's max_queue_length
_STREAMS = ("worker", "device", "queue_mean", "queue_p95", "queue_max", "empty_ns", "empty", "full_ns")
_DELAYS = ["launches", "delay_total_ns", "delay_mean_ns", "delay_median_ns", "delay_p95_ns", "delay_max_ns"]


@report(
    "launch_delay",
    "Launch Delay",
    (
        WORKER,
        Column("device", "Device", "", "Number of the device."),
        Column("stream", "Stream", "", "Number of the stream."),
        Column("kernel", "Kernel", "", "Whole name of the kernel.", str),
        Column("operator", "Operator", "", "Innermost operator that launched it; empty if none did.", str),
        Column(
            "launches", "Launches", "count",
            "Calls that launched kernels; of a device or stream copies and sets too. A graph's replay is one launch, "
            "of its first kernel.",
        ),
        Column("unknown", "Unknown", "count", "Kernels whose launch is not recorded: they are in no other column."),
        Column(
            "delay_total_ns", "Total Delay (ns)", "ns",
            "From the end of the call to the start on the device, 0 if that is before: added up.",
        ),
        Column("delay_mean_ns", "Mean Delay (ns)", "ns", "Total delay divided by launches.", float),
        Column("delay_median_ns", "Median Delay (ns)", "ns", "The middle one, of two the mean.", float),
        Column("delay_p95_ns", "95th Percentile (ns)", "ns", "The shortest that 95 % of the launches do not exceed."),
        Column("delay_max_ns", "Max Delay (ns)", "ns", "The longest."),
        Column(
            "queue_mean", "Mean Queue", "count",
            "Other launches whose work had not begun when a call started: the mean of all calls.", float,
        ),
        Column("queue_p95", "95th Percentile of the Queue", "count", "The least that 95 % of the calls do not exceed."),
        Column("queue_max", "Longest Queue", "count", "The most."),
        Column(
            "empty_ns", "Queue Empty (ns)", "ns",
            "Time in the window, from the start of the first aggregated step to the end of the last as in step_time, "
            "in which nothing waited: what the CPU launches then starts at once.",
        ),
        Column("empty", "Queue Empty (%)", "%", "As a share of the window.", float),
        Column(
            "full_ns", "Blocked (ns)", "ns",
            f"Time of the calls that started when {FULL} launches or more were waiting: they wait for room.",
        ),
    ),
    options=(
        Option(
            "group_by",
            "What a row is of: kernels of one name, of one operator, a stream, or a device.",
            {
                "kernel": (*_STREAMS, "stream", "operator"), "operator": (*_STREAMS, "stream", "kernel"),
                "stream": ("kernel", "operator"), "device": ("kernel", "operator", "stream"),
            },
        ),
    ),
    needs="launches of kernels on a GPU",
    view=View("Kernels", sort="-delay_total_ns", bar="delay_total_ns"),
)  # fmt: skip
def launch_delay(source: Source, group_by: str) -> pd.DataFrame:
    """One row per name of a kernel launched in the aggregated iterations, by total delay; with --group-by=operator per
    operator, with --group-by=stream and --group-by=device per worker and stream or device with the length of its queue.
    A long delay with a long queue is the device at work; a short one with an empty queue is a device that waits for
    launches. Rows of kernels and operators are sums over workers. None in a recording without a GPU."""
    if group_by in ("kernel", "operator"):
        return _by_name(source, group_by)
    rows = [
        row for activity, steps in activities(source) for row in _queues(source, activity, steps, group_by)
    ]
    columns = ["worker", "device", "stream", *_DELAYS, "unknown", *_STREAMS[2:]]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["worker", "device", "stream"], kind="stable", ignore_index=True)


class _Units(NamedTuple):
    """Calls with what they launched in each of some groups. `first`: place of the event that starts first; `call`:
    place of the call; `delay`: ns from its end to that start."""

    first: Ints
    call: Ints
    delay: Ints


def _units(activity: Activity, events: Ints, group: Ints) -> _Units:
    """One unit per call and group of the events, which all have a launch; `group` has a number below 2**20 of each."""
    call = activity.launch[events]
    order = np.lexsort((activity.start[events], group, call))
    key = (call.astype(np.int64) << 20) + group
    first = events[order[np.r_[True, key[order][1:] != key[order][:-1]][: len(order)]]]
    call = activity.launch[first]
    end = activity.call["start"].values + activity.call["dur"].values
    return _Units(first, call, np.maximum(activity.start[first] - end[call], 0))


def _by_name(source: Source, group_by: str) -> pd.DataFrame:
    """Distributions over the kernels of one name or operator."""
    if group_by == "kernel":
        said, code = distinct(source.store.rows("select id, name from kernel_name"), (None,))
    else:
        said, code = distinct(source.store.rows("select id, op from site"), (None,))
    names, delays, unknown = [], [], np.zeros(len(said), np.int64)
    for low, high in spans(source):
        activity = source.activity(low >> 40)
        name = activity.event["name"].values if group_by == "kernel" else _site(activity)
        mine = np.arange(*np.searchsorted(activity.id, [low, high]))
        kernels = mine[activity.kernel[mine]]
        known = activity.launched[kernels]
        unknown += np.bincount(code[name[kernels[~known]]], minlength=len(said))
        units = _units(activity, kernels[known], np.zeros(int(known.sum()), np.int64))
        names.append(code[name[units.first]])
        delays.append(units.delay)
    nothing = [np.empty(0, np.int64)]
    found = _delays(np.concatenate(names or nothing), np.concatenate(delays or nothing), len(said))
    found = found.assign(unknown=unknown, **{group_by: [row[0] for row in said]})
    found = found[(found["launches"] > 0) | (found["unknown"] > 0)]
    return found.sort_values(
        ["delay_total_ns", "launches"], ascending=False, kind="stable", ignore_index=True
    )


def _site(activity: Activity) -> Ints:
    found = activity.store.columns(
        f"""select coalesce(site, -1) as site from event
            where id >= {activity.worker << 40} and id < {(activity.worker + 1) << 40} and kind < 3 order by id"""
    )
    return found["site"].values


def _delays(group: Ints, delay: Ints, groups: int) -> pd.DataFrame:
    """The distribution of each group's delays, under the names of the columns; without launches nothing is known."""
    found = distribution(group, delay, groups).drop(columns="min")
    names = {name: f"delay_{name}_ns" for name in found if name != "calls"}
    found["total"] = found["total"].astype("Int64").where(found["calls"] > 0)
    return found.rename(columns={"calls": "launches", **names})


def _queues(source: Source, activity: Activity, steps: Steps, group_by: str) -> list[dict[str, Any]]:
    """A row per device or stream of a worker on which something was launched in the aggregated iterations."""
    device = _plain(activity, "device")
    stream = _stream(activity) if group_by == "stream" else np.zeros(len(device), np.int64)
    pairs, group = np.unique(np.stack([device, stream]), axis=1, return_inverse=True)
    group = np.asarray(group).reshape(-1)
    mine = np.zeros(len(device), bool)
    for low, high in spans(source):
        if low >> 40 == activity.worker:
            mine[slice(*np.searchsorted(activity.id, [low, high]))] = True
    events = np.flatnonzero(activity.launched)
    units = _units(activity, events, group[events])
    rows = []
    for number, (on, which) in enumerate(pairs.T.tolist()):
        here = np.flatnonzero(group[units.first] == number)
        row = _queue(activity, steps, _Units(*(part[here] for part in units)), mine)
        unknown = int((mine & ~activity.launched & activity.kernel & (group == number)).sum())
        if row["launches"] or unknown:
            shown = which if group_by == "stream" and which >= 0 else None
            rows.append(row | {
                "worker": activity.name, "device": on if on >= 0 else None, "stream": shown, "unknown": unknown
            })  # fmt: skip
    return rows


def _queue(activity: Activity, steps: Steps, units: _Units, mine: Bools) -> dict[str, Any]:
    """What the units of one queue, in any order, say; those whose first event is `mine` are counted."""
    call = {name: activity.call[name].values[units.call] for name in ("start", "dur")}
    begin = np.maximum(activity.start[units.first], call["start"])
    chosen = np.flatnonzero(mine[units.first])
    low, high = steps.window
    waits = Union(call["start"], begin)
    waiting = int(waits.within(np.array([low]), np.array([high]))[0])
    delays = _delays(np.zeros(len(chosen), np.int64), units.delay[chosen], 1)
    out: dict[str, Any] = {str(name): delays[name][0] for name in delays}
    time = call["start"][chosen]
    length = (
        np.searchsorted(np.sort(call["start"]), time, side="right")
        - np.searchsorted(np.sort(begin), time, side="right")
        - (begin[chosen] > time)
    )
    found = distribution(np.zeros(len(chosen), np.int64), length, 1).iloc[0]
    out |= {f"queue_{name}": found[name] for name in ("mean", "p95", "max")}
    out["empty_ns"] = high - low - waiting
    out["empty"] = 100 * (high - low - waiting) / (high - low) if high > low else None
    out["full_ns"] = int(call["dur"][chosen][length >= FULL].sum())
    return {name: None if pd.isna(value) else value for name, value in out.items()}


def _plain(activity: Activity, name: str) -> Ints:
    column = activity.event[name]
    return np.where(column.mask(), column.values, -1)


def _stream(activity: Activity) -> Ints:
    found = activity.store.columns(
        f"""select coalesce(stream, -1) as stream from event
            where id >= {activity.worker << 40} and id < {(activity.worker + 1) << 40} and kind < 3 order by id"""
    )
    return found["stream"].values

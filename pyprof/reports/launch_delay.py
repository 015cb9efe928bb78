# SPDX-License-Identifier: Apache-2.0
"""Launch delay: time from the launch of work to its start on the device, and the length of the queue meanwhile.

A unit is an API call and the work that it launched: the kernels of a graph's replay are launched once. Work waits
from the start of its launching call to its start on the device; the queue of a stream is the work that waits for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.device_steps import Steps, activities
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import distinct, distribution, spans
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store.ids import first_id, worker_of
from pyprof.store.kinds import ON_GPU

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
        Column("kernel", "Kernel", "", "Full name of the kernel.", str),
        Column("operator", "Operator", "", "Innermost operator that launched it; empty if none did.", str),
        Column(
            "launches", "Launches", "count",
            "Calls that launched kernels; for a device or stream also copies and sets. A graph replay is one launch, "
            "of its first kernel.",
        ),
        Column("unknown", "Unknown", "count", "Kernels without a recorded launch; no other column includes them."),
        Column(
            "delay_total_ns", "Total Delay (ns)", "ns",
            "Sum of the times from the end of the call to the start on the device, 0 if that is earlier.",
        ),
        Column("delay_mean_ns", "Mean Delay (ns)", "ns", "Total delay divided by launches.", float),
        Column("delay_median_ns", "Median Delay (ns)", "ns", "Median; of two middle values their mean.", float),
        Column("delay_p95_ns", "95th Percentile (ns)", "ns", "Shortest delay that 95 % of the launches do not exceed."),
        Column("delay_max_ns", "Max Delay (ns)", "ns", "Longest."),
        Column(
            "queue_mean", "Mean Queue", "count",
            "Number of other launches whose work had not begun when a call started: mean over all calls.", float,
        ),
        Column(
            "queue_p95", "95th Percentile of the Queue", "count",
            "Least number that 95 % of the calls do not exceed.",
        ),
        Column("queue_max", "Longest Queue", "count", "Largest number."),
        Column(
            "empty_ns", "Queue Empty (ns)", "ns",
            "Time in the window, from the start of the first aggregated step to the end of the last as in step_time, "
            "in which nothing waited, so that new work starts at once.",
        ),
        Column("empty", "Queue Empty (%)", "%", "Queue empty as a share of the window.", float),
        Column(
            "full_ns", "Blocked (ns)", "ns",
            f"Time of the calls that started when {FULL} launches or more were waiting, and thus wait for space.",
        ),
    ),
    options=(
        Option(
            "by",
            "What each row covers: kernels of one name, of one operator, a stream, or a device.",
            {
                "kernel": (*_STREAMS, "stream", "operator"), "operator": (*_STREAMS, "stream", "kernel"),
                "stream": ("kernel", "operator"), "device": ("kernel", "operator", "stream"),
            },
        ),
    ),
    needs="launches of kernels on a GPU",
    view=View("Kernels", sort="-delay_total_ns", sums="launches unknown delay_total_ns"),
)  # fmt: skip
def launch_delay(source: Source, by: str) -> pd.DataFrame:
    """One row per name of a kernel launched in the aggregated iterations, sorted by total delay; with
    --by=operator, one per operator; with --by=stream or --by=device, one per worker and stream or
    device, with the length of its queue. A long delay with a long queue means that the device is busy; a short delay
    with an empty queue means that it waits for launches. Rows of kernels and operators sum over workers. A recording
    without a GPU has no rows."""
    if by in ("kernel", "operator"):
        return _by_name(source, by)
    rows = [row for activity, steps in activities(source) for row in _queues(source, activity, steps, by)]
    columns = ["worker", "device", "stream", *_DELAYS, "unknown", *_STREAMS[2:]]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["worker", "device", "stream"], kind="stable", ignore_index=True)


class _Units(NamedTuple):
    """Calls with the work that they launched, by group. `first`: index of the event that starts first; `call`: index of
    the call; `delay`: ns from the end of the call to that start."""

    first: Ints
    call: Ints
    delay: Ints


def _units(activity: Activity, events: Ints, group: Ints) -> _Units:
    """Return one unit per call and group of launched events; `group` is a number below 2**20 for each event."""
    call = activity.launch[events]
    order = np.lexsort((activity.start[events], group, call))
    key = (call.astype(np.int64) << 20) + group
    first = events[order[np.r_[True, key[order][1:] != key[order][:-1]][: len(order)]]]
    call = activity.launch[first]
    end = activity.call["start_ns"].values + activity.call["duration_ns"].values
    return _Units(first, call, np.maximum(activity.start[first] - end[call], 0))


def _by_name(source: Source, by: str) -> pd.DataFrame:
    """Return delay distributions over the kernels of each name or operator."""
    if by == "kernel":
        names_of, code = distinct(source.store.rows("select id, name from kernel_name"), (None,))
    else:
        names_of, code = distinct(source.store.rows("select id, op from site"), (None,))
    names, delays, unknown = [], [], np.zeros(len(names_of), np.int64)
    for low, high in spans(source):
        activity = source.activity(worker_of(low))
        name = activity.event["name"].values if by == "kernel" else _site(activity)
        events = np.arange(*np.searchsorted(activity.id, [low, high]))
        kernels = events[activity.kernel[events]]
        has_launch = activity.launched[kernels]
        unknown += np.bincount(code[name[kernels[~has_launch]]], minlength=len(names_of))
        units = _units(activity, kernels[has_launch], np.zeros(int(has_launch.sum()), np.int64))
        names.append(code[name[units.first]])
        delays.append(units.delay)
    empty = [np.empty(0, np.int64)]
    table = _delays(np.concatenate(names or empty), np.concatenate(delays or empty), len(names_of))
    table = table.assign(unknown=unknown, **{by: [row[0] for row in names_of]})
    table = table[(table["launches"] > 0) | (table["unknown"] > 0)]
    return table.sort_values(["delay_total_ns", "launches"], ascending=False, kind="stable", ignore_index=True)


def _site(activity: Activity) -> Ints:
    """Return the site of each event of a worker, -1 for none."""
    columns = activity.store.columns(
        f"""select coalesce(site, -1) as site from event
            where id >= {first_id(activity.worker)} and id < {first_id(activity.worker + 1)} and {ON_GPU} order by id"""
    )
    return columns["site"].values


def _delays(group: Ints, delay: Ints, groups: int) -> pd.DataFrame:
    """Return the distribution of each group's delays, under the names of the columns; missing for groups without
    launches."""
    table = distribution(group, delay, groups).drop(columns="min")
    names = {name: f"delay_{name}_ns" for name in table if name != "calls"}
    table["total"] = table["total"].astype("Int64").where(table["calls"] > 0)
    return table.rename(columns={"calls": "launches", **names})


def _queues(source: Source, activity: Activity, steps: Steps, by: str) -> list[dict[str, Any]]:
    """Return one row per device or stream on which a worker launched something in the aggregated iterations."""
    device = _codes(activity, "device")
    stream = _stream(activity) if by == "stream" else np.zeros(len(device), np.int64)
    pairs, group = np.unique(np.stack([device, stream]), axis=1, return_inverse=True)
    group = np.asarray(group).reshape(-1)
    in_iterations = np.zeros(len(device), bool)
    for low, high in spans(source):
        if worker_of(low) == activity.worker:
            in_iterations[slice(*np.searchsorted(activity.id, [low, high]))] = True
    events = np.flatnonzero(activity.launched)
    units = _units(activity, events, group[events])
    rows = []
    for number, (device_id, stream_id) in enumerate(pairs.T.tolist()):
        own = np.flatnonzero(group[units.first] == number)
        row = _queue(activity, steps, _Units(*(part[own] for part in units)), in_iterations)
        unknown = int((in_iterations & ~activity.launched & activity.kernel & (group == number)).sum())
        if row["launches"] or unknown:
            label = stream_id if by == "stream" and stream_id >= 0 else None
            rows.append(row | {
                "worker": activity.name, "device": device_id if device_id >= 0 else None, "stream": label,
                "unknown": unknown,
            })  # fmt: skip
    return rows


def _queue(activity: Activity, steps: Steps, units: _Units, in_iterations: Bools) -> dict[str, Any]:
    """Return the figures of one queue. Units with a first event `in_iterations` count; they may be in any order."""
    call = {name: activity.call[name].values[units.call] for name in ("start_ns", "duration_ns")}
    begin = np.maximum(activity.start[units.first], call["start_ns"])
    counted = np.flatnonzero(in_iterations[units.first])
    low, high = steps.window
    waits = Union(call["start_ns"], begin)
    waiting = int(waits.within(np.array([low]), np.array([high]))[0])
    delays = _delays(np.zeros(len(counted), np.int64), units.delay[counted], 1)
    out: dict[str, Any] = {str(name): delays[name][0] for name in delays}
    time = call["start_ns"][counted]
    length = (
        np.searchsorted(np.sort(call["start_ns"]), time, side="right")
        - np.searchsorted(np.sort(begin), time, side="right")
        - (begin[counted] > time)
    )
    stats = distribution(np.zeros(len(counted), np.int64), length, 1).iloc[0]
    out |= {f"queue_{name}": stats[name] for name in ("mean", "p95", "max")}
    out["empty_ns"] = high - low - waiting
    out["empty"] = 100 * (high - low - waiting) / (high - low) if high > low else None
    out["full_ns"] = int(call["duration_ns"][counted][length >= FULL].sum())
    return {name: None if pd.isna(value) else value for name, value in out.items()}


def _codes(activity: Activity, name: str) -> Ints:
    """Return a column of the events, -1 where missing."""
    column = activity.event[name]
    return np.where(column.mask(), column.values, -1)


def _stream(activity: Activity) -> Ints:
    """Return the stream of each event of a worker, -1 for none."""
    columns = activity.store.columns(
        f"""select coalesce(stream, -1) as stream from event
            where id >= {first_id(activity.worker)} and id < {first_id(activity.worker + 1)} and {ON_GPU} order by id"""
    )
    return columns["stream"].values

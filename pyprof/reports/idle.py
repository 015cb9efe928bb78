# SPDX-License-Identifier: Apache-2.0
"""Idle time of devices, by cause."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.device_steps import activities
from pyprof.analysis.source import API_KINDS, Source
from pyprof.analysis.timeline import Activity
from pyprof.api_names import without_version
from pyprof.model import Bools, Ints
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads

# In the order of their priority.
CAUSES = ("queued", "dataloader", "synchronization", "host_copy", "launch_bound", "nothing_recorded")
_QUEUED, _DATALOADER, _SYNC, _COPY, _LAUNCH, _NOTHING = range(len(CAUSES))
_SITE = "For synchronization and host_copy: "
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("cause", "Cause", "", f"One of {', '.join(CAUSES)}, as described above.", str),
    Column("call", "API Call", "", f"{_SITE}the API call in which the CPU waited.", str),
    Column("operator", "Operator", "", f"{_SITE}path of the operator that called it; empty if none did.", str),
    Column("module", "Module", "", f"{_SITE}path of the module that called it.", str),
    Column("stack", "Stack Trace", "", f"{_SITE}source lines of the call, one per line, outermost first.", str),
    Column("count", "Count", "count", "Gaps that lie in the window or extend into it."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the gaps, clipped to the window."),
    Column("share", "Share (%)", "%", "Total as a share of the window: all steps, as in step_time.", float),
    Column("longest_ns", "Longest (ns)", "ns", "Longest of the gaps, clipped to the window."),
)  # fmt: skip
_NONE = -1


@report(
    "idle", "Idle Time", _COLUMNS, needs="a GPU", view=View("Time", sort="-total_ns", sums="count total_ns")
)
def idle(source: Source) -> pd.DataFrame:
    """One row per worker, device, cause and place of the wait, sorted by total time, for gaps in which no kernel, copy
    or set ran on the device. A gap has one cause, the first of these that holds. queued: the launch of the event
    after the gap had returned before the gap began, so the device waited for other work of its own. dataloader: the
    CPU waited for its data loader for at least half of the time from the start of the gap to the end of that launch.
    synchronization, host_copy: when the gap began, the launching thread was in a call that waits for the device, or
    in a copy call that returned only after the copy had ended, so nothing could be queued. launch_bound: the launch
    came too late for another reason. nothing_recorded: no event follows, or its launch was not recorded; waits of
    any thread then count. For a gap that extends beyond the recording of its process, the cause is that of the
    recorded part. All gaps and the time in which the device worked add up to the window, without pauses in which the
    recording was read. A recording without a GPU has no rows."""
    rows: list[pd.DataFrame] = []
    for activity, steps in activities(source):
        low, high = steps.window
        waits = _Waits(activity) if activity.devices else None
        for device in activity.devices:
            assert waits is not None
            begin, end, cause, call = _within(activity, device, low, high, waits)
            length = end - begin - activity.paused.within(begin, np.maximum(end, begin))
            nonempty = np.flatnonzero(length > 0)
            frame = pd.DataFrame({"cause": cause, "call": call, "length": length}).iloc[nonempty]
            sites = _call_sites(source, activity, frame["call"].to_numpy())
            whole = np.array([low]), np.array([high])
            window = high - low - int(activity.paused.within(*whole)[0])
            rows.append(_sums(frame.assign(**sites), activity.name, device, window))
    if not rows:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    return pd.concat([table.astype(object) for table in rows], ignore_index=True)


def gaps(activity: Activity, device: int, low: int, high: int) -> dict[str, tuple[Ints, Ints]]:
    """Return the starts and ends of the gaps of a device in [low, high), by their cause."""
    begin, end, cause, _ = _within(activity, device, low, high, _Waits(activity))
    nonempty = end > begin
    return {
        name: (begin[mask], end[mask])
        for code, name in enumerate(CAUSES)
        if (mask := nonempty & (cause == code)).any()
    }


def _within(
    activity: Activity, device: int, low: int, high: int, waits: _Waits
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the start and end of each gap, clipped to [low, high), its cause, and the call in which the CPU waited."""
    idle_times = _gaps(activity, device, min(activity.span[0], low), max(activity.span[1], high))
    # A step may begin before the recording. Causes depend only on the recorded part, whichever steps are selected.
    recorded = idle_times._replace(
        start=np.clip(idle_times.start, *activity.span), end=np.clip(idle_times.end, *activity.span)
    )
    cause, call = _causes(activity, recorded, waits)
    return np.maximum(idle_times.start, low), np.minimum(idle_times.end, high), cause, call


class _Gaps(NamedTuple):
    """Times in which a device was idle, and the index of the event that ended each, -1 for none."""

    start: Ints
    end: Ints
    event: Ints


def _gaps(activity: Activity, device: int, low: int, high: int) -> _Gaps:
    """Return the gaps of a device in [low, high)."""
    on = np.flatnonzero(activity.on(device))
    on = on[np.argsort(activity.start[on], kind="stable")]
    busy = activity.union(activity.on(device))
    start, end = np.r_[low, busy.end], np.r_[busy.start, high]
    event = np.r_[on[np.searchsorted(activity.start[on], busy.start)], _NONE]
    nonempty = end > start
    return _Gaps(start[nonempty], end[nonempty], event[nonempty])


class _Waits:
    """Calls in which a thread waited for the device, without nested ones, by thread and start."""

    def __init__(self, activity: Activity):
        call = activity.call
        start = call["start"].values
        end = start + call["dur"].values
        sync = call["kind"].values == API_KINDS.index("sync")
        waiting = np.flatnonzero(sync | self._blocking(activity, end))
        self._threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        thread = call["thread"].values[waiting]
        for number in np.unique(thread).tolist():
            calls = waiting[thread == number]
            reached = np.maximum.accumulate(end[calls])
            calls = calls[np.r_[True, end[calls][1:] > reached[:-1]]]
            self._threads[number] = start[calls], end[calls], calls

    @staticmethod
    def _blocking(activity: Activity, end: Ints) -> Bools:
        """Return a mask of copy calls that returned only after one of their copies had ended."""
        out = np.zeros(len(end), bool)
        launched = np.flatnonzero(activity.launched)
        place = activity.launch[launched]
        out[place[activity.end[launched] <= end[place]]] = True
        copies: Bools = activity.call["kind"].values == API_KINDS.index("memcpy")
        return out & copies

    def at(self, time: Ints, thread: Ints) -> Ints:
        """Return the call that ran at each time on a thread, -1 for none; thread -1 matches any thread."""
        out = np.full(len(time), _NONE, np.int64)
        for number, (start, end, place) in self._threads.items():
            pending = np.flatnonzero(((thread == number) | (thread == _NONE)) & (out == _NONE))
            last = np.searchsorted(start, time[pending], side="right") - 1
            runs = (last >= 0) & (end[np.maximum(last, 0)] > time[pending])
            out[pending[runs]] = place[last[runs]]
        return out


def _causes(activity: Activity, gaps: _Gaps, waits: _Waits) -> tuple[Ints, Ints]:
    """Return the cause of each gap, and the call in which the CPU waited, -1 for none."""
    call = activity.call
    launch = np.r_[activity.launch, _NONE][gaps.event]
    has_launch = launch >= 0
    returned = np.r_[call["start"].values + call["dur"].values, 0][launch]
    thread = np.where(has_launch, np.r_[call["thread"].values, 0][launch], _NONE)
    until = np.where(has_launch, np.minimum(returned, gaps.end), gaps.end)
    queued = has_launch & (returned <= gaps.start)
    until = np.maximum(until, gaps.start)
    loading = activity.dataloader.within(gaps.start, until)
    wait = waits.at(gaps.start, thread)
    kind = np.r_[call["kind"].values, _NONE][wait]
    cause = np.select(
        [
            queued, (loading > 0) & (2 * loading >= until - gaps.start), kind == API_KINDS.index("sync"), wait >= 0,
            has_launch,
        ],
        [_QUEUED, _DATALOADER, _SYNC, _COPY, _LAUNCH],
        _NOTHING,
    )  # fmt: skip
    return cause, np.where((cause == _SYNC) | (cause == _COPY), wait, _NONE)


def _call_sites(source: Source, activity: Activity, call: Ints) -> dict[str, Any]:
    """Return the call sites of calls: name, operator, module and stack; None for -1."""
    names = reads.texts(source.store)
    operators = {
        number: cells
        for number, *cells in source.store.rows(
            """select o.id, case when o.unassociated = 1 then null else o.name end, o.module, nullif(k.frames, '')
               from operator o left join stack k on k.id = o.stack"""
        )
    }
    distinct, code = np.unique(call, return_inverse=True)
    rows: list[list[str | None]] = []
    for index in distinct.tolist():
        if index < 0:
            rows.append([None] * 4)
            continue
        name = without_version(names[int(activity.call["name"].values[index])])
        op = int(activity.call["op"].values[index])
        match = source.store.rows("select operator from op where id = ?", (op,))
        rows.append([name, *(operators[match[0][0]] if match else [None] * 3)])
    keys = ("name", "operator", "module", "stack")
    return {key: [rows[i][place] for i in code.tolist()] for place, key in enumerate(keys)}


def _sums(gaps: pd.DataFrame, worker: str, device: int, window: int) -> pd.DataFrame:
    """Return count, total and longest gap by cause and call site, sorted by total."""
    keys = ["cause", "name", "operator", "module", "stack"]
    table = gaps.groupby(keys, sort=True, dropna=False)["length"].agg(["size", "sum", "max"]).reset_index()
    table = table.sort_values("sum", ascending=False, kind="stable", ignore_index=True)
    return table.assign(
        worker=worker, device=device, cause=[CAUSES[number] for number in table["cause"]],
        share=100 * table["sum"] / window,
    ).rename(columns={"name": "call", "size": "count", "sum": "total_ns", "max": "longest_ns"})  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Why devices had nothing to do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.device_steps import activities
from pyprof.analysis.source import API_KINDS, Source
from pyprof.analysis.timeline import Activity
from pyprof.model import Bools, Ints
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER

# In the order of their priority.
CAUSES = ("queued", "dataloader", "synchronization", "host_copy", "launch_bound", "nothing_recorded")
_QUEUED, _DATALOADER, _SYNC, _COPY, _LAUNCH, _NOTHING = range(len(CAUSES))
_SITE = "Of synchronization and host_copy: "
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("cause", "Cause", "", f"One of {', '.join(CAUSES)}: see above.", str),
    Column("call", "API Call", "", f"{_SITE}the API call in which the CPU waited.", str),
    Column("operator", "Operator", "", f"{_SITE}path of the operator that called it; empty if none did.", str),
    Column("module", "Module", "", f"{_SITE}path of the module that called it.", str),
    Column("stack", "Stack Trace", "", f"{_SITE}source lines of the call, one a line, outermost first.", str),
    Column("count", "Count", "count", "Gaps that lie in the window or reach into it."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the gaps, as far as they lie in the window."),
    Column("share", "Share (%)", "%", "Total as a share of the window: all steps, as in step_time.", float),
    Column("longest_ns", "Longest (ns)", "ns", "The longest of them, as far as it lies in the window."),
)  # fmt: skip
_NONE = -1


@report("idle", "Idle Time", _COLUMNS, needs="a GPU", view=View("Time", sort="-total_ns", bar="total_ns"))
def idle(source: Source) -> pd.DataFrame:
    """One row per worker, device, cause and place of the wait, by total: gaps in which no kernel, copy or set ran on
    the device. A gap has one cause, the first of these that holds. queued: the launch of the event after it had
    returned before the gap began, so the device waited for other work of its own. dataloader: the CPU waited for its
    data loader at least half of the time from the gap's begin to the end of that launch. synchronization, host_copy:
    when the gap began, the launching thread was in a call that waits for the device, or in a copy's call that returned
    only after the copy had ended: nothing could be queued meanwhile. launch_bound: the launch came too late for another
    reason. nothing_recorded: no event follows, or its launch was not recorded; waits are then those of any thread. Of a
    gap that reaches beyond the recording of its process, the part in it has the cause. All gaps and the time in which
    the device worked add up to the window, without pauses in which the recording was read. None in a recording without
    a GPU."""
    rows: list[pd.DataFrame] = []
    for activity, steps in activities(source):
        low, high = steps.window
        waits = _Waits(activity) if activity.devices else None
        for device in activity.devices:
            assert waits is not None
            begin, end, cause, call = _within(activity, device, low, high, waits)
            length = end - begin - activity.paused.within(begin, np.maximum(end, begin))
            kept = np.flatnonzero(length > 0)
            frame = pd.DataFrame({"cause": cause, "call": call, "length": length}).iloc[kept]
            said = _places(source, activity, frame["call"].to_numpy())
            whole = np.array([low]), np.array([high])
            window = high - low - int(activity.paused.within(*whole)[0])
            rows.append(_added(frame.assign(**said), activity.name, device, window))
    if not rows:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    return pd.concat([one.astype(object) for one in rows], ignore_index=True)


def gaps(activity: Activity, device: int, low: int, high: int) -> dict[str, tuple[Ints, Ints]]:
    """Starts and ends of the gaps of a device in [low, high), by their cause."""
    begin, end, cause, _ = _within(activity, device, low, high, _Waits(activity))
    kept = end > begin
    return {
        name: (begin[chosen], end[chosen])
        for code, name in enumerate(CAUSES)
        if (chosen := kept & (cause == code)).any()
    }


def _within(
    activity: Activity, device: int, low: int, high: int, waits: _Waits
) -> tuple[Ints, Ints, Ints, Ints]:
    """Start and end of each gap as far as it lies in [low, high), its cause, and the call in which the CPU waited."""
    found = _gaps(activity, device, min(activity.span[0], low), max(activity.span[1], high))
    # A step may begin before anything was recorded: a cause is of what was, whichever steps are looked at.
    recorded = found._replace(
        start=np.clip(found.start, *activity.span), end=np.clip(found.end, *activity.span)
    )
    cause, call = _causes(activity, recorded, waits)
    return np.maximum(found.start, low), np.minimum(found.end, high), cause, call


class _Gaps(NamedTuple):
    """Time in which a device did nothing, and the place of the event that ended it, -1 for none."""

    start: Ints
    end: Ints
    event: Ints


def _gaps(activity: Activity, device: int, low: int, high: int) -> _Gaps:
    on = np.flatnonzero(activity.on(device))
    on = on[np.argsort(activity.start[on], kind="stable")]
    busy = activity.union(activity.on(device))
    start, end = np.r_[low, busy.end], np.r_[busy.start, high]
    event = np.r_[on[np.searchsorted(activity.start[on], busy.start)], _NONE]
    kept = end > start
    return _Gaps(start[kept], end[kept], event[kept])


class _Waits:
    """Calls in which a thread waited for the device, not those inside another, by thread and start."""

    def __init__(self, activity: Activity):
        call = activity.call
        start = call["start"].values
        end = start + call["dur"].values
        sync = call["kind"].values == API_KINDS.index("sync")
        found = np.flatnonzero(sync | self._blocking(activity, end))
        self._threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        thread = call["thread"].values[found]
        for one in np.unique(thread).tolist():
            mine = found[thread == one]
            reached = np.maximum.accumulate(end[mine])
            mine = mine[np.r_[True, end[mine][1:] > reached[:-1]]]
            self._threads[one] = start[mine], end[mine], mine

    @staticmethod
    def _blocking(activity: Activity, end: Ints) -> Bools:
        """Calls of copies that returned only after one of their copies had ended."""
        out = np.zeros(len(end), bool)
        some = np.flatnonzero(activity.launched)
        place = activity.launch[some]
        out[place[activity.end[some] <= end[place]]] = True
        copies: Bools = activity.call["kind"].values == API_KINDS.index("memcpy")
        return out & copies

    def at(self, time: Ints, thread: Ints) -> Ints:
        """The call that ran at each time on a thread, -1 for none; a thread of -1 is any."""
        out = np.full(len(time), _NONE, np.int64)
        for one, (start, end, place) in self._threads.items():
            asked = np.flatnonzero(((thread == one) | (thread == _NONE)) & (out == _NONE))
            last = np.searchsorted(start, time[asked], side="right") - 1
            runs = (last >= 0) & (end[np.maximum(last, 0)] > time[asked])
            out[asked[runs]] = place[last[runs]]
        return out


def _causes(activity: Activity, gaps: _Gaps, waits: _Waits) -> tuple[Ints, Ints]:
    """Cause of each gap, and the call in which the CPU waited, -1 for none."""
    call = activity.call
    launch = np.r_[activity.launch, _NONE][gaps.event]
    known = launch >= 0
    done = np.r_[call["start"].values + call["dur"].values, 0][launch]
    thread = np.where(known, np.r_[call["thread"].values, 0][launch], _NONE)
    until = np.where(known, np.minimum(done, gaps.end), gaps.end)
    queued = known & (done <= gaps.start)
    until = np.maximum(until, gaps.start)
    loading = activity.dataloader.within(gaps.start, until)
    waited = waits.at(gaps.start, thread)
    kind = np.r_[call["kind"].values, _NONE][waited]
    cause = np.select(
        [
            queued, (loading > 0) & (2 * loading >= until - gaps.start), kind == API_KINDS.index("sync"), waited >= 0,
            known,
        ],
        [_QUEUED, _DATALOADER, _SYNC, _COPY, _LAUNCH],
        _NOTHING,
    )  # fmt: skip
    return cause, np.where((cause == _SYNC) | (cause == _COPY), waited, _NONE)


def _places(source: Source, activity: Activity, call: Ints) -> dict[str, Any]:
    """Where calls come from: name, operator, module and stack; nothing for -1."""
    names = dict(source.store.rows("select id, text from string"))
    operators = {
        number: said
        for number, *said in source.store.rows(
            """select o.id, case when o.unassociated = 1 then null else o.name end, o.module, nullif(k.frames, '')
               from operator o left join stack k on k.id = o.stack"""
        )
    }
    distinct, code = np.unique(call, return_inverse=True)
    rows: list[list[str | None]] = []
    for one in distinct.tolist():
        if one < 0:
            rows.append([None] * 4)
            continue
        name = names[int(activity.call["name"].values[one])].partition("_v")[0]
        op = int(activity.call["op"].values[one])
        found = source.store.rows("select operator from op where id = ?", (op,))
        rows.append([name, *(operators[found[0][0]] if found else [None] * 3)])
    keys = ("name", "operator", "module", "stack")
    return {key: [rows[i][place] for i in code.tolist()] for place, key in enumerate(keys)}


def _added(gaps: pd.DataFrame, worker: str, device: int, window: int) -> pd.DataFrame:
    keys = ["cause", "name", "operator", "module", "stack"]
    found = gaps.groupby(keys, sort=True, dropna=False)["length"].agg(["size", "sum", "max"]).reset_index()
    found = found.sort_values("sum", ascending=False, kind="stable", ignore_index=True)
    return found.assign(
        worker=worker, device=device, cause=[CAUSES[one] for one in found["cause"]],
        share=100 * found["sum"] / window,
    ).rename(columns={"name": "call", "size": "count", "sum": "total_ns", "max": "longest_ns"})  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Idle time of devices, by cause."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.gaps import CAUSES, describe_places, gaps_within
from pyprof.facts.host.places import PLACE_COLUMNS
from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER

IDLE = "idle: "  # before a cause, in the name of a part of a step
ADVICE = {
    "queued": "The work was launched in time: the GPU needs a few microseconds between kernels. Fewer, larger kernels "
    "help: fuse with torch.compile, or replay a CUDA graph.",
    "data loader": "The loop waits for data: raise num_workers, keep workers alive (persistent_workers), and move "
    "preparation of samples out of the loop.",
    "synchronization": "Avoid the call, or make it rarer or later: .item(), .cpu(), printing a tensor, and tests of "
    "its value wait for the GPU.",
    "host copy": "Copy from pinned memory with non_blocking=True: pin_memory=True of the data loader, or "
    "tensor.pin_memory().",
    "launch-bound": "The CPU is too slow here: launch fewer kernels (torch.compile, CUDA graphs, fused optimizers), do "
    "less in Python, or use larger batches.",
    "not recorded": "The recording does not show what the GPU waited for: it worked on launches from before the "
    "recording, nothing follows until the end, or calls were not recorded (record API calls and operators too).",
}
# Where in the program a thread was.
IN_PROGRAM = (
    Column("operator", "Operator", "", "Path of the operator.", str),
    Column("module", "Module", "", "Path of its module, or of the one around the Python function.", str),
    Column("line", "Source Line", "", "Last line of the stack trace.", str),
    Column(
        "stack", "Stack Trace", "",
        "Source lines, one per line, outermost first: of the Python functions around the thread's place where the "
        "recording has them, else of the operator's call.", str,
    ),
)  # fmt: skip
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("cause", "Cause", "", f"One of {', '.join(CAUSES)}, as described above.", str),
    Column("call", "API Call", "", "For synchronization and host copy: the call in which the CPU waited.", str),
    Column(
        "host", "Host", "",
        "Innermost range or Python function in which the launching thread was for most of the gap; empty for queued.",
        str,
    ),
    Column(
        "where", "Where", "",
        "in: the thread was in the operator; before: it was in none, and this is the next; kernel of: queued, and the "
        "operator launched the kernel after the gap. Empty where no operator was recorded.", str,
    ),
    *IN_PROGRAM,
    Column("count", "Count", "count", "Gaps that lie in the window or extend into it."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the gaps, clipped to the window."),
    Column("share", "Share (%)", "%", "Total as a share of the window: all steps, as in step_time.", float),
    Column("longest_ns", "Longest (ns)", "ns", "Longest of the gaps, clipped to the window."),
    Column("advice", "What To Do", "", "What usually helps against this cause.", str),
)  # fmt: skip
_PLACE = PLACE_COLUMNS[:-2]
_KEYS = {"place": PLACE_COLUMNS, "line": ("line",), "cause": ()}


@report(
    "idle",
    "Idle Time",
    _COLUMNS,
    needs="a GPU",
    options=(
        Option(
            "by",
            "What each row covers besides the cause: the place of the host, its source line, or nothing.",
            {"place": (), "line": (*_PLACE, "stack"), "cause": (*_PLACE, "line", "stack")},
        ),
    ),
    view=View("Time", sort="-total_ns", sums="count total_ns"),
)
def idle(source: Source, by: str) -> pd.DataFrame:
    """One row per worker, device, cause and place of the host, sorted by total time, for gaps in which no kernel,
    copy or set ran on the device. A gap has one cause, the first of these that holds. queued: the launch of the event
    after the gap had returned before the gap began, so the device waited for other work of its own. data loader: the
    CPU waited for it for at least half of the time from the start of the gap to the end of that launch.
    synchronization, host copy: when the gap began, the launching thread was in a call that waits for the device, or
    in a copy call that returned only after the copy had ended, so nothing could be queued. launch-bound: the launch
    came too late for another reason. not recorded: no event follows, or its launch was not recorded; waits of any
    thread then count. So is a gap at the start of the recording in which the launch had returned before half of it:
    the device worked on what was launched before. For a gap that extends beyond the recording of its process, the
    cause is that of the recorded part. All gaps and the time in which the device worked add up to the window, without
    pauses in which the recording was read. The place of the host is that of most of the time from the start of the
    gap to the end of that launch, on the launching thread; without a launch, on the thread with the most launches. A
    recording without a GPU has no rows."""
    rows: list[pd.DataFrame] = []
    for activity, steps in activities(source):
        if not activity.devices:
            continue
        low, high = steps.window
        window = high - low - int(activity.paused.within(np.array([low]), np.array([high]))[0])
        for device in activity.devices:
            table = idle_sums(activity, device, low, high)
            rows.append(_sums(table, ["cause", *_KEYS[by]], activity.name, device, window))
    if not rows:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    return pd.concat([table.astype(object) for table in rows], ignore_index=True)


def idle_sums(activity: Activity, device: int, low: int, high: int) -> pd.DataFrame:
    """Return sums of the gaps of a device in [low, high) by cause and place."""
    gaps, length = gaps_within(activity, device, low, high)
    table = pd.DataFrame({"cause": gaps.cause, "place": gaps.place, "length": length})
    lengths = {"count": ("length", "size"), "total_ns": ("length", "sum"), "longest_ns": ("length", "max")}
    sums = table.groupby(["cause", "place"]).agg(**lengths).reset_index()
    return sums.join(describe_places(activity.store, sums["place"].to_numpy(np.int64)))


def _sums(table: pd.DataFrame, keys: list[str], worker: str, device: int, window: int) -> pd.DataFrame:
    """Return count, total and longest gap by the keys, sorted by total."""
    table = table.groupby(keys, sort=True, dropna=False).agg(
        count=("count", "sum"), total_ns=("total_ns", "sum"), longest_ns=("longest_ns", "max")
    )
    table = table.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    cause = [CAUSES[number] for number in table["cause"]]
    return table.assign(
        worker=worker, device=device, cause=cause, share=100 * table["total_ns"] / window,
        advice=[ADVICE[name] for name in cause],
    )  # fmt: skip

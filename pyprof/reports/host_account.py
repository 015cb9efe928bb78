# SPDX-License-Identifier: Apache-2.0
"""The account of steps that ran on a CPU: each nanosecond of the main thread has one cause and one place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from pyprof.core.marker import COLLECTION, SAVING
from pyprof.core.model import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.device.timeline import Activity, Excerpt
from pyprof.facts.host.host_work import HostWork, main_thread
from pyprof.facts.host.operator_tree import operator_name
from pyprof.facts.steps.device_steps import Steps
from pyprof.facts.steps.source import Source
from pyprof.store import reads

_AT_ONCE = 1 << 18  # executions of operators
_PHASES = {
    FORWARD: "forward",
    BACKWARD: "backward",
    OPTIMIZER: "optimizer",
    RECOMPUTE: "recomputation",
}
LOADING, OUTSIDE, OPERATORS = "data loader", "outside of operators", "other operators"
COLLECTIVES = "communication"
_ON_HOST = ("gloo:", "mpi:")
_RANGES = {COLLECTION: "garbage collection", SAVING: "saving"}
CAUSES = (*_PHASES.values(), OPERATORS, LOADING, COLLECTIVES, *_RANGES.values(), OUTSIDE)


def host_account(source: Source, activity: Activity, steps: Steps, operators: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield sums of time by cause and place, for some of the steps each. `operators`: the columns operator, module and
    line by their numbers."""
    thread = main_thread(source.store, activity.worker)
    for first, last in _batches(source, activity, steps):
        low, high = int(steps.start[first]), int(steps.end[last - 1])
        inside = Union(steps.start[first:last], steps.end[first:last]).both(_without(activity.paused, low, high))
        loading = inside.both(activity.dataloader)
        work = HostWork(Excerpt(source.store, activity.worker, (low, high)))
        rest = inside.both(_without(loading, low, high))
        collects = _collectives(source, work)
        apart = (loading, LOADING, LOADING), (rest.both(collects), "", COLLECTIVES)
        for time, inside_of, outside in (*apart, (rest.both(_without(collects, low, high)), "", OUTSIDE)):
            if len(time):
                yield _sums(source, work, thread, time, operators, inside_of, outside)


def _collectives(source: Source, work: HostWork) -> Union:
    """Return the time of collectives that run on the host, on any thread."""
    ranges = work.ranges()
    texts = reads.texts_of(source.store, np.unique(ranges.value))
    numbers = [number for number, text in texts.items() if text.startswith(_ON_HOST)]
    own = ranges.take(np.isin(ranges.value, np.array(numbers, np.int64)))
    return Union(own.start, own.start + own.length)


def _batches(source: Source, activity: Activity, steps: Steps) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of batches of steps, each with not too many executions."""
    count = source.store.rows(f"select count(*) from op where {activity.own('id')}")[0][0]
    size = max(_AT_ONCE * len(steps.start) // max(count, 1), 1)
    for first in range(0, len(steps.start), size):
        yield first, min(first + size, len(steps.start))


def _without(union: Union, low: int, high: int) -> Union:
    """Return [low, high) without a union."""
    part = union.cut(low, high)
    start, end = np.r_[low, part.end], np.r_[part.start, high]
    nonempty = end > start
    return Union(start[nonempty], end[nonempty]) if nonempty.any() else NOTHING


def _sums(
    source: Source, work: HostWork, thread: int, time: Union, operators: pd.DataFrame, inside: str, outside: str
) -> pd.DataFrame:
    """Return the time of a thread by cause and place. `inside`: the cause of operators, if it is not their phase;
    `outside`: that of what is in none."""
    owner = np.full(len(time.start), thread)
    table = work.times(owner, time.start, time.end)
    low = table["low"].to_numpy(np.int64)
    owner = np.full(len(low), thread)
    operator, text, function = (table[name].to_numpy(np.int64) for name in ("operator", "text", "function"))
    host = np.where(function >= 0, function, text)
    names = reads.texts_of(source.store, np.unique(np.r_[host, text]))
    stacks = work.stacks(owner, low)
    following = np.where(operator >= 0, -1, work.following(owner, low))
    rows = pd.DataFrame({
        "operator": operator, "text": text, "host": host, "stack": stacks, "next": following, "total_ns": table["time"],
    })  # fmt: skip
    rows = rows.groupby(["operator", "text", "host", "stack", "next"], sort=False)["total_ns"].sum().reset_index()
    places = [_labels(names, work, operators, *key) for *key, _ in rows.itertuples(index=False)]
    table = pd.DataFrame(places, columns=["cause", "operator", "module", "line", "host"], dtype=object)
    table["cause"] = table["cause"].where(table["operator"].isna(), inside or table["cause"])
    return table.assign(cause=table["cause"].replace(OUTSIDE, outside), total_ns=rows["total_ns"].to_numpy(np.int64))


def _labels(
    names: dict[int, str], work: HostWork, operators: pd.DataFrame, operator: int, text: int, host: int, stack: int,
    following: int,
) -> tuple[object, ...]:  # fmt: skip
    """Return cause, operator, module, line and host of a place."""
    around = work.stack(stack)
    line = around.frames[-1] if around.frames else None
    if operator >= 0:
        row = dict(operators.loc[operator])
        return _PHASES.get(row["phase"], OPERATORS), row["operator"], row["module"], row["line"], None
    if text >= 0 and names[text].startswith(tuple(f"{name} (" for name in _RANGES)):
        cause = next(cause for name, cause in _RANGES.items() if names[text].startswith(name))
        return cause, None, around.module, line, names[text]
    if host >= 0:
        return OUTSIDE, None, around.module, line, operator_name(names[host])
    if following >= 0:
        row = dict(operators.loc[following])
        return OUTSIDE, None, row["module"], row["line"], f"before {row['operator']}"
    return OUTSIDE, None, None, None, None

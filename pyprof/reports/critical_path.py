# SPDX-License-Identifier: Apache-2.0
"""Critical path of steps: what a step waited for at each moment."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.facts.host.places import PLACE_COLUMNS, place_texts
from pyprof.facts.path.critical_path import PARTS, Paths, Rank, numbered
from pyprof.facts.path.path_walk import paths
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, Option, View, report
from pyprof.reports.idle import IN_PROGRAM
from pyprof.reports.step_time import STEP
from pyprof.store import reads

_COLUMNS = (
    STEP,
    Column("ends_on", "Ends On", "", "Worker whose step the path is of, on whose clock its times are.", str),
    Column("worker", "Worker", "", "Worker on which this part of the path is.", str),
    Column("part", "Part", "", f"One of {', '.join(PARTS)}, as described above.", str),
    Column("kernel", "Kernel", "", "Kernel or copy that ran, was launched, or was waited for.", str),
    Column("call", "API Call", "", "API call that the host was in, or that launched the kernel.", str),
    Column("host", "Host", "", "Innermost range or Python function in which the host's thread was.", str),
    Column(
        "where",
        "Where",
        "",
        "in: the thread was in the operator; before: it was in none, and this is the next; kernel of: the operator "
        "launched the kernel. Empty where no operator was recorded.",
        str,
    ),
    *IN_PROGRAM,
    Column("count", "Count", "count", "Segments of the path."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the segments. All rows add up to the lengths of the steps."),
    Column("share", "Share (%)", "%", "Total as a share of all rows; with --by=step, of those of the step.", float),
    Column("longest_ns", "Longest (ns)", "ns", "Longest of the segments."),
    Column("step_ns", "Step (ns)", "ns", "Length of the step's path: the sum of its rows."),
)
_PLACE = ("kernel", *PLACE_COLUMNS)
_STEP = ("step", "ends_on")
_OF_STEPS = (*_STEP, "step_ns")
_KEYS = {
    "place": ("worker", "part", *_PLACE), "line": ("part", "line"), "operator": ("part", "operator", "module"),
    "part": ("worker", "part"), "step": (*_OF_STEPS, "worker", "part"),
}  # fmt: skip
_NUMBERS = ("call", "host", "where", "operator", "stack", "kernel")  # of a place
_AT_ONCE = 1 << 19  # rows of steps that are kept before they are added up
_ALL_KEYS = (*_OF_STEPS, "worker", "part", *_PLACE)
_SUMS = ("count", "total_ns", "longest_ns")


@report(
    "critical_path",
    "Critical Path",
    _COLUMNS,
    options=(
        Option(
            "by",
            "What each row covers besides the part: the place, the source line, the operator, nothing, or the step.",
            {name: tuple(key for key in _ALL_KEYS if key not in keys) for name, keys in _KEYS.items()},
        ),
        Option(
            "ranks",
            "all: one path per step, of the rank that ends it last, which goes on to the ranks it waited for; own: one "
            "path per rank and step, which stays there.",
            {"all": (), "own": ()},
        ),
    ),
    view=View("Time", sort="-total_ns", sums="count total_ns", wholes={"total_ns": "step_ns"}),
)
def critical_path(source: Source, by: str, ranks: str) -> pd.DataFrame:
    """One row per part of the critical path and place, sorted by total time. The path of a step goes back from its end
    (device bounds, as in step_time) to its beginning, always to what had to happen last, so that its parts add up to
    the step. kernel, copy or set, communication: the path is on a device. launch: in the API call that launched what
    comes next. queued: until that begins, from the return of the call or from the end of the work that it followed.
    host, api call, data loader: on the thread that launched it, back to the last call that waited for a device.
    synchronization: from the end of that device's work to the return of the call. wait for ranks: with --ranks=own, the
    part of a collective before the last rank arrived; with --ranks=all the path goes on with that rank instead. not
    recorded: before the recording of the rank that the path came to, which began later than the step; or before work
    without a launch record. What an event on one stream waited for on another is not recorded and is inferred
    (docs/causes.md). If the program marked no steps, iterations are steps; without those, the whole recording is
    one."""
    keys = [key for key in _KEYS[by] if key != "step_ns"]
    known: dict[int, Rank] = {}
    numbers = [] if by in ("part", "step") else list(_NUMBERS)
    of_steps = list(_STEP) if by == "step" else []
    tables: list[pd.DataFrame] = []
    of_row = ["worker", "part", *of_steps, *numbers]
    for group in paths(source, ranks == "all", known):
        tables.append(_sums(group, known, numbers, of_steps))
        if sum(map(len, tables)) > _AT_ONCE:
            tables = [_added(pd.concat(tables), of_row)]
    if not tables:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    table = _named(source, _added(pd.concat(tables), of_row), known, numbers)
    sums = _added(table, keys)
    sums["whole"] = sums.groupby(of_steps)["total_ns"].transform("sum") if of_steps else sums["total_ns"].sum()
    order = ["step", "total_ns"] if by == "step" else ["total_ns"]
    out = sums.sort_values(order, ascending=[key == "step" for key in order], kind="stable", ignore_index=True)
    out["share"] = 100 * out["total_ns"] / out["whole"].where(out["whole"] > 0)
    out["step_ns"] = out["whole"] if of_steps else None
    return out.assign(**{key: None for key in _ALL_KEYS if key not in (*keys, "step_ns")})


def _added(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the sums of rows with equal keys."""
    return (
        table.groupby(keys, sort=True, dropna=False)
        .agg(count=("count", "sum"), total_ns=("total_ns", "sum"), longest_ns=("longest_ns", "max"))
        .reset_index()
    )


def _sums(group: Paths, ranks: dict[int, Rank], numbers: list[str], of_steps: list[str]) -> pd.DataFrame:
    """Return the sums of segments by the numbers of worker, part, step and place."""
    tables = [pd.DataFrame(columns=["worker", "part", *of_steps, *numbers, *_SUMS], dtype=np.int64)]
    every = group.segments
    if of_steps:
        path = every["path"].to_numpy()
        number, worker = (np.array([step[i] for step in group.steps], np.int64)[path] for i in range(2))
        every = every.assign(step=number, ends_on=worker)
    for worker in every["worker"].unique().tolist():
        segments = every[every["worker"] == worker]
        if numbers:
            segments = numbered(ranks[worker], segments)
        sums = segments.groupby(["worker", "part", *of_steps, *numbers], sort=False).agg(
            count=("length", "size"), total_ns=("length", "sum"), longest_ns=("length", "max")
        )
        tables.append(sums.reset_index())
    return pd.concat(tables, ignore_index=True)


def _named(source: Source, table: pd.DataFrame, ranks: dict[int, Rank], numbers: list[str]) -> pd.DataFrame:
    """Return a table with texts instead of numbers."""
    names = reads.worker_names(source.store)
    if numbers:
        kernels = dict(source.store.rows("select id, short_name from kernel_name"))
        parts = []
        for worker in table["worker"].unique().tolist():
            own = table[table["worker"] == worker].reset_index(drop=True)
            texts = place_texts(source.store, ranks[worker].host.work.stack, own)
            texts["kernel"] = own["kernel"].map(kernels).astype(object)
            parts.append(own.drop(columns=numbers).join(texts))
        table = pd.concat(parts, ignore_index=True)
    table["part"] = [PARTS[part] for part in table["part"]]
    for name in table.columns.intersection(["worker", "ends_on"]):
        table[name] = table[name].map(names)
    return table

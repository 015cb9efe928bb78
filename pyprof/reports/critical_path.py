# SPDX-License-Identifier: Apache-2.0
"""Critical path of steps: what a step waited for at each moment."""

from __future__ import annotations

import pandas as pd

from pyprof.analysis.critical_path import PARTS, Path, Rank, numbered, paths
from pyprof.analysis.places import PLACE_COLUMNS, place_texts
from pyprof.analysis.source import Source
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
        "where", "Where", "",
        "in: the thread was in the operator; before: it was in none, and this is the next; kernel of: the operator "
        "launched the kernel. Empty where no operator was recorded.", str,
    ),
    *IN_PROGRAM,
    Column("count", "Count", "count", "Segments of the path."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the segments. All rows add up to the lengths of the steps."),
    Column("share", "Share (%)", "%", "Total as a share of all rows.", float),
    Column("longest_ns", "Longest (ns)", "ns", "Longest of the segments."),
)  # fmt: skip
_PLACE = ("kernel", *PLACE_COLUMNS)
_STEP = ("step", "ends_on")
_KEYS = {
    "place": ("worker", "part", *_PLACE), "line": ("part", "line"), "operator": ("part", "operator", "module"),
    "part": ("worker", "part"), "step": (*_STEP, "worker", "part"),
}  # fmt: skip
_ALL_KEYS = (*_STEP, "worker", "part", *_PLACE)


@report(
    "critical_path",
    "Critical Path",
    _COLUMNS,
    options=(
        Option(
            "group_by",
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
    view=View("Time", sort="-total_ns", sums="count total_ns"),
)
def critical_path(source: Source, group_by: str, ranks: str) -> pd.DataFrame:
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
    keys = list(_KEYS[group_by])
    known: dict[int, Rank] = {}
    tables = [
        _rows(source, path, known, group_by not in ("part", "step"))
        for path in paths(source, ranks == "all", known)
    ]
    if not tables:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    table = pd.concat(tables, ignore_index=True)
    total = int(table["total_ns"].sum())
    sums = table.groupby(keys, sort=True, dropna=False).agg(
        count=("count", "sum"), total_ns=("total_ns", "sum"), longest_ns=("longest_ns", "max")
    )
    order = ["step", "total_ns"] if group_by == "step" else ["total_ns"]
    out = sums.reset_index().sort_values(
        order, ascending=[key == "step" for key in order], kind="stable", ignore_index=True
    )
    out["share"] = 100 * out["total_ns"] / total if total else None
    return out.assign(**{key: None for key in _ALL_KEYS if key not in keys})


def _rows(source: Source, path: Path, ranks: dict[int, Rank], with_places: bool) -> pd.DataFrame:
    """Return the sums of a path's segments by worker, part and place."""
    names = reads.worker_names(source.store)
    keys = ["call", "host", "where", "operator", "stack", "kernel"] if with_places else []
    tables = []
    for worker in path.segments["worker"].unique().tolist():
        rank, segments = ranks[worker], path.segments[path.segments["worker"] == worker]
        if with_places:
            segments = numbered(rank, segments)
        sums = segments.groupby(["part", *keys], sort=False).agg(
            count=("length", "size"), total_ns=("length", "sum"), longest_ns=("length", "max")
        )
        table = sums.reset_index()
        if with_places:
            texts = place_texts(source.store, rank.host.work.stack, table)
            kernels = dict(source.store.rows("select id, short_name from kernel_name"))
            texts["kernel"] = table["kernel"].map(kernels).astype(object)
            table = table.drop(columns=keys).join(texts)
        table["part"] = [PARTS[part] for part in table["part"]]
        tables.append(
            table.assign(worker=names[rank.activity.worker], step=path.number, ends_on=names[path.worker])
        )
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

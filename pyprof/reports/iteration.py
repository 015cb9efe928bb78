# SPDX-License-Identifier: Apache-2.0
"""The iteration report: one row per event launched in the aggregated iterations, in batches, since there can be
millions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import KERNELS, KINDS, OPERATOR, Column, Ints
from pyprof.facts.steps.dataframes import category, integer, steps_of
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import direction
from pyprof.reports import Column as ReportColumn
from pyprof.reports import View, report
from pyprof.reports.detail import DIRECTION, NAME, OP_ID, TYPE
from pyprof.reports.kernel import KIND
from pyprof.store import reads
from pyprof.store.ids import worker_of

BATCH = 1 << 17  # ids of events in a batch
_AXES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def _axis(key: str) -> ReportColumn:
    """Return the column of an axis of the launch grid or block."""
    kind, _, axis = key.partition("_")
    text = "Blocks of the grid" if kind == "grid" else "Threads of a block"
    return ReportColumn(key, f"{kind.title()} {axis.upper()}", "", f"{text}, in {axis}.")


@report(
    "iteration",
    "Iteration Report",
    (
        ReportColumn("iteration", "Iteration", "", "Number of the iteration in which the event was launched, from 0."),
        OP_ID,
        NAME,
        DIRECTION,
        TYPE,
        ReportColumn("kernel", "Kernel Name", "", "Name without arguments and template parameters.", str),
        ReportColumn("device", "Device ID", "", "Number of the device; empty for an event on the CPU."),
        ReportColumn(
            "start",
            "GPU Start Time (ns)",
            "ns",
            "Start on the device, since the first event of the recording.",
        ),
        ReportColumn("dur", "GPU Duration (ns)", "ns", "Time on the device; an operator event's own time."),
        ReportColumn("launch", "API Call Start (ns)", "ns", "Start of the launching API call."),
        ReportColumn("launch_dur", "API Call Time (ns)", "ns", "Time of the launching API call."),
        ReportColumn(
            "uses_tc",
            "Uses TC",
            "",
            "Whether it used tensor cores; empty if the name does not show it.",
            bool,
        ),
        *map(_axis, _AXES),
        ReportColumn("dtype", "Data Types", "", "Type of the operator's operands.", str),
        ReportColumn("shapes", "Input Shapes", "", "Shapes of the tensors of the operator's call.", str),
        ReportColumn("params", "Parameters", "", "Arguments of the operator's call, as in docs/columns.md.", str),
        ReportColumn("outputs", "Output Shapes", "", "Always empty: recordings do not contain them.", str),
        ReportColumn("long_name", "Long Kernel Name", "", "Full name.", str),
        KIND,
        ReportColumn("worker", "Worker", "", "Process that launched it.", str, True),
        ReportColumn("stream", "Stream", "", "Stream; for an operator event, its thread.", int, True),
    ),
    view=View("Time", sums="dur"),
)
def iteration(source: Source) -> Iterator[pd.DataFrame]:
    """One row per kernel, memcpy and memset launched in the aggregated iterations, sorted by worker and launch. Without
    a GPU, one row per operator event."""
    lookups = _Lookups(source)
    spans = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (source.aggregation.iteration_set, source.aggregation.first, source.aggregation.last, source.worker,
         source.worker),
    )  # fmt: skip
    any_rows = False
    for first, last in spans:
        for low in range(first, last, BATCH):
            any_rows = True
            yield _batch(source, low, min(low + BATCH, last), lookups)
    if not any_rows:  # the heading of an empty report
        yield _batch(source, 0, 0, lookups)


class _Lookups:
    """Lookup tables for the codes in events."""

    def __init__(self, source: Source):
        store = source.store
        self.operators = store.rows(
            "select op_id, name, direction, type, dtype, shapes, params from operator order by id"
        )
        self.names = store.rows("select short_name, name from kernel_name order by id")
        self.workers = reads.worker_names(store)
        axes = store.columns(f"select {', '.join(_AXES)} from geometry order by id")
        self.launch_axes = {axis: np.r_[axes[axis].values, 0] for axis in _AXES}
        self.directions = direction(row[2] for row in self.operators)


def _batch(source: Source, low: int, high: int, lookups: _Lookups) -> pd.DataFrame:
    """Return the rows of the events low <= id < high."""
    events = source.store.columns(
        f"""select e.id, e.kind, e.device, e.stream, e.name, e.operator, e.start_ns as start,
                   e.duration_ns as dur, e.geometry, e.tc, a.start_ns as launch, a.duration_ns as launch_dur
            from event e left join api a on a.id = e.api where e.id >= {low} and e.id < {high} order by e.id"""
    )
    ids, operator = events["id"].values, events["operator"].values
    geometry = events["geometry"]
    out: dict[str, Any] = {"iteration": steps_of(source.store, source.aggregation, ids)}
    for number, key in enumerate(("op_id", "name", "direction", "type", "dtype", "shapes", "params")):
        cells = lookups.directions if key == "direction" else [row[number] for row in lookups.operators]
        out[key] = category(operator, dict(enumerate(cells)))
    for key, number in (("kernel", 0), ("long_name", 1)):
        out[key] = category(events["name"].values, {i: row[number] for i, row in enumerate(lookups.names)})
    for key in ("device", "start", "dur", "launch", "launch_dur", "stream"):
        out[key] = integer(events[key])
    out["uses_tc"] = _tensor_core_use(events["tc"], events["kind"].values)
    place = np.where(geometry.mask(), geometry.values, -1)
    for axis in _AXES:
        out[axis] = integer(Column(lookups.launch_axes[axis][place], geometry.mask()))
    out["outputs"] = category(np.zeros(len(ids), np.int64), {0: None})
    out["kind"] = category(events["kind"].values, dict(enumerate(KINDS)))
    out["worker"] = category(worker_of(ids), lookups.workers)
    return pd.DataFrame(out)


def _tensor_core_use(tc: Column, kind: Ints) -> Any:
    """Return whether each event used tensor cores, as nullable booleans."""
    kernel = np.isin(kind, KERNELS)
    unknown = (kind == OPERATOR) | (kernel & ~tc.mask())
    return pd.arrays.BooleanArray(kernel & (tc.values == 1), unknown)

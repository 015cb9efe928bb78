# SPDX-License-Identifier: Apache-2.0
"""Every event of every iteration: millions of rows, made and written in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.dataframes import category, integer, steps_of
from pyprof.analysis.source import Source
from pyprof.model import KERNEL, KINDS, OPERATOR, Column, Ints
from pyprof.reports import Column as Shown
from pyprof.reports import View, report
from pyprof.reports.detail import DIRECTION, NAME, OP_ID, TYPE
from pyprof.reports.kernel import KIND
from pyprof.reports.operator_queries import direction

PART = 1 << 17  # rows made at a time
_AXES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def _axis(key: str) -> Shown:
    what, _, axis = key.partition("_")
    text = "Blocks of the grid" if what == "grid" else "Threads of a block"
    return Shown(key, f"{what.title()} {axis.upper()}", "", f"{text}, in {axis}.")


@report(
    "iteration",
    "Iteration Report",
    (
        Shown(
            "iteration", "Iteration", "", "Number of the iteration in which the event was launched, from 0."
        ),
        OP_ID,
        NAME,
        DIRECTION,
        TYPE,
        Shown("kernel", "Kernel Name", "", "Name without arguments and template parameters.", str),
        Shown("device", "Device ID", "", "Number of the device; empty for an event on the CPU."),
        Shown("start", "GPU Start Time (ns)", "ns", "Start on the device, from the recording's first event."),
        Shown("dur", "GPU Duration (ns)", "ns", "Time on the device; an operator event's own time."),
        Shown("launch", "API Call Start (ns)", "ns", "Start of the launching API call."),
        Shown("launch_dur", "API Call Time (ns)", "ns", "Time of the launching API call."),
        Shown(
            "uses_tc", "Uses TC", "", "Whether it used tensor cores; empty if its name does not tell.", bool
        ),
        *map(_axis, _AXES),
        Shown("dtype", "Data Types", "", "Type of the operator's operands.", str),
        Shown("shapes", "Input Shapes", "", "Shapes of the tensors of the operator's call.", str),
        Shown("params", "Parameters", "", "Arguments of the operator's call, as in docs/columns.md.", str),
        Shown("outputs", "Output Shapes", "", "Empty: recordings do not say them.", str),
        Shown("long_name", "Long Kernel Name", "", "Whole name.", str),
        KIND,
        Shown("worker", "Worker", "", "Process that launched it.", str, True),
        Shown("stream", "Stream", "", "Stream; of an operator event its thread.", int, True),
    ),
    view=View("Time"),
)
def iteration(source: Source) -> Iterator[pd.DataFrame]:
    """One row per kernel, copy and set that was launched in the aggregated iterations, by worker and launch. Without a
    GPU one row per operator event."""
    texts = _Texts(source)
    spans = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (source.aggregation.iteration_set, source.aggregation.first, source.aggregation.last, source.worker,
         source.worker),
    )  # fmt: skip
    made = False
    for first, last in spans:
        for low in range(first, last, PART):
            made = True
            yield _part(source, low, min(low + PART, last), texts)
    if not made:
        yield _part(source, 0, 0, texts)


class _Texts:
    """What codes in events stand for."""

    def __init__(self, source: Source):
        store = source.store
        self.operators = store.rows(
            "select op_id, name, direction, type, dtype, shapes, params from operator order by id"
        )
        self.names = store.rows("select short_name, name from kernel_name order by id")
        self.workers = dict(store.rows("select id, name from worker"))
        shapes = store.columns(f"select {', '.join(_AXES)} from geometry order by id")
        self.shapes = {axis: np.r_[shapes[axis].values, 0] for axis in _AXES}
        self.directions = direction(row[2] for row in self.operators)


def _part(source: Source, low: int, high: int, texts: _Texts) -> pd.DataFrame:
    """Rows of the events low <= id < high."""
    found = source.store.columns(
        f"""select e.id, e.kind, e.device, e.stream, e.name, e.operator, e.start, e.dur, e.geometry, e.tc,
                   a.start as launch, a.dur as launch_dur
            from event e left join api a on a.id = e.api where e.id >= {low} and e.id < {high} order by e.id"""
    )
    ids, operator = found["id"].values, found["operator"].values
    shaped = found["geometry"]
    out: dict[str, Any] = {"iteration": steps_of(source.store, source.aggregation, ids)}
    for which, key in enumerate(("op_id", "name", "direction", "type", "dtype", "shapes", "params")):
        cells = texts.directions if key == "direction" else [row[which] for row in texts.operators]
        out[key] = category(operator, dict(enumerate(cells)))
    for key, which in (("kernel", 0), ("long_name", 1)):
        out[key] = category(found["name"].values, {i: row[which] for i, row in enumerate(texts.names)})
    for key in ("device", "start", "dur", "launch", "launch_dur", "stream"):
        out[key] = integer(found[key])
    out["uses_tc"] = _uses(found["tc"], found["kind"].values)
    place = np.where(shaped.mask(), shaped.values, -1)
    for axis in _AXES:
        out[axis] = integer(Column(texts.shapes[axis][place], shaped.mask()))
    out["outputs"] = category(np.zeros(len(ids), np.int64), {0: None})
    out["kind"] = category(found["kind"].values, dict(enumerate(KINDS)))
    out["worker"] = category(ids >> 40, texts.workers)
    return pd.DataFrame(out)


def _uses(tc: Column, kind: Ints) -> Any:
    unknown = (kind == OPERATOR) | ((kind == KERNEL) & ~tc.mask())
    return pd.arrays.BooleanArray((kind == KERNEL) & (tc.values == 1), unknown)

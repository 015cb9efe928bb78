# SPDX-License-Identifier: Apache-2.0
"""Sums over a range of ids of executions or events, by their keys: of the columns, in pieces of a bounded size.

A range of iterations of a worker is a range of ids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core.model import Bools, Column, Ints
from pyprof.store.files import Store
from pyprof.store.write.columns import table


class Shape(NamedTuple):
    """Sums over a table: its keys, the columns that add up, and the times with a minimum and a maximum, without _ns."""

    table: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    extremes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order of the tables `op_stat` and `op_kernel_stat`."""
        ends = (f"{name}_{end}_ns" for end in ("min", "max") for name in self.extremes)
        return (*self.keys, *self.sums, *ends)


OPS = Shape(
    "op",
    ("operator",),
    ("calls", "timed", "kernels", "tc_kernels", "kernel_ns", "tc_ns", "cpu_ns", "gpu_ns", "overhead_ns", "idle_ns"),
    ("cpu", "gpu", "overhead", "idle"),
)
EVENTS = Shape(
    "event", ("operator", "name", "kind", "tc", "verdict"),
    ("calls", "gpu_ns", "api_ns", "launched", "flops", "dense_flops", "bytes", "flops_unknown_ns", "bytes_unknown_ns",
     "roofline_ns", "roofline_unknown_ns", "hardware_ps", "hardware_unknown_ns", "model_ps"),
    ("gpu", "api"),
)  # fmt: skip
_OF_OPS = (
    "operator", "kernels", "tc_kernels", "kernel_ns", "tc_ns", "cpu_ns", "api_ns", "gpu_ns", "idle_ns",
)  # fmt: skip
_OF_EVENTS = (
    "operator", "name", "kind", "tc", "verdict", "api", "duration_ns", "flops", "dense_flops", "bytes",
    "roofline_ns", "hardware_ps", "model_ps",
)  # fmt: skip
_UNKNOWN_TIME = {  # sums of the time of those that other sums leave out
    "flops_unknown_ns": "flops",
    "bytes_unknown_ns": "bytes",
    "roofline_unknown_ns": "roofline_ns",
    "hardware_unknown_ns": "hardware_ps",
}
_TC_UNKNOWN = 3
_Columns = dict[str, Column | Ints | Bools]


def between(store: Store, shape: Shape, first: int, last: int) -> pa.Table:
    """Return sums over the rows with first <= id < last, all of one worker, in the order of the keys. A minimum and a
    maximum of unknown values is NULL, a sum 0."""
    names, values = (_OF_OPS, _of_op) if shape is OPS else (_OF_EVENTS, _of_event)
    parts = [_added(values(store, part), shape) for part in store.parts(shape.table, names, first, last)]
    empty = pa.schema([(name, pa.int64()) for name in shape.columns]).empty_table()
    return _added(pa.concat_tables([empty, *parts]), shape).sort_by([(key, "ascending") for key in shape.keys])


def _of_op(store: Store, op: dict[str, Column]) -> pa.Table:
    timed = op["cpu_ns"].mask()
    overhead = np.maximum(op["cpu_ns"].values - op.pop("api_ns").values, 0)
    calls = np.ones(len(timed), np.int64)
    return _with_extremes({**op, "calls": calls, "timed": timed, "overhead_ns": Column(overhead, timed)}, OPS)


def _of_event(store: Store, event: dict[str, Column]) -> pa.Table:
    api, duration, tc = event.pop("api"), event.pop("duration_ns").values, event["tc"]
    columns: _Columns = {
        **event, **{key: event[key].values for key in EVENTS.keys},
        "tc": np.where(tc.mask(), tc.values, _TC_UNKNOWN), "calls": np.ones(len(duration), np.int64),
        "gpu_ns": duration, "api_ns": _launch_times(store, api), "launched": api.mask(),
    }  # fmt: skip
    for name, of in _UNKNOWN_TIME.items():
        columns[name] = np.where(event[of].mask(), 0, duration)
    return _with_extremes(columns, EVENTS)


def _launch_times(store: Store, api: Column) -> Column:
    """Return the lengths of API calls. Their ids have no gaps."""
    known = api.values[api.mask()]
    lengths = np.zeros(len(api.values), np.int64)
    if len(known):
        first = int(known.min())
        calls = store.table("api", ("duration_ns",), first, int(known.max()) + 1)["duration_ns"].values
        lengths[api.mask()] = calls[known - first]
    return Column(lengths, api.mask())


def _with_extremes(columns: _Columns, shape: Shape) -> pa.Table:
    ends = {f"{name}_{end}_ns": columns[f"{name}_ns"] for name in shape.extremes for end in ("min", "max")}
    return table(**columns, **ends).select(shape.columns)


def _added(rows: pa.Table, shape: Shape) -> pa.Table:
    how: list[tuple[str, str, pc.FunctionOptions | None]] = [
        (name, "min", None) if name.endswith("_min_ns") else (name, "max", None) if name.endswith("_max_ns")
        else (name, "sum", pc.ScalarAggregateOptions(min_count=0))
        for name in shape.columns[len(shape.keys):]
    ]  # fmt: skip
    added = rows.group_by(list(shape.keys), use_threads=False).aggregate(how)
    names = [*shape.keys, *(f"{name}_{function}" for name, function, _ in how)]
    return added.select(names).rename_columns(shape.columns)

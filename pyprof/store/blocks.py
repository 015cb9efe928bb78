# SPDX-License-Identifier: Apache-2.0
"""Sums over blocks of 65,536 consecutive ids, so that a sum over any range of ids costs its blocks and two edges.

A range of iterations is a range of ids. Sums, minima and maxima of its whole blocks come from the tables `op_block`
and `event_block`, those of the remainder at both ends from the rows themselves. 10 M events have some hundred
thousand rows in these tables; without them every new aggregation would read all events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.core.model import Bools, Column, Ints
from pyprof.store.files import Store

SHIFT = 16


class Shape(NamedTuple):
    """A table of sums: its keys, the columns that add up, and the times with a minimum and a maximum, without _ns."""

    table: str
    block: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    extremes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns except the keys, in the order of the tables."""
        least = tuple(f"{name}_min_ns" for name in self.extremes)
        return (*self.sums, *least, *(f"{name}_max_ns" for name in self.extremes))


OPS = Shape(
    "op", "op_block", ("operator",),
    ("calls", "timed", "kernels", "tc_kernels", "kernel_ns", "tc_ns", "cpu_ns", "gpu_ns", "overhead_ns", "idle_ns"),
    ("cpu", "gpu", "overhead", "idle"),
)  # fmt: skip
EVENTS = Shape(
    "event", "event_block", ("operator", "name", "kind", "tc", "verdict"),
    ("calls", "gpu_ns", "api_ns", "launched", "flops", "dense_flops", "bytes", "flops_unknown_ns", "bytes_unknown_ns",
     "roofline_ns", "roofline_unknown_ns", "hardware_ps", "hardware_unknown_ns", "model_ps"),
    ("gpu", "api"),
)  # fmt: skip
_UNKNOWN_TIME = {  # sums with the time of those that they leave out
    "flops": "flops_unknown_ns", "bytes": "bytes_unknown_ns", "roofline_ns": "roofline_unknown_ns",
    "hardware_ps": "hardware_unknown_ns",
}  # fmt: skip
_LARGE, _SMALL = np.iinfo(np.int64).max, np.iinfo(np.int64).min
Sums = dict[str, Ints]


def of_ops(columns: Mapping[str, Column | Ints]) -> Sums:
    """Return the columns that the sums need of rows of `op`."""
    plain = {
        name: _values(columns[name])
        for name in ("kernels", "tc_kernels", "kernel_ns", "tc_ns", "cpu_ns", "gpu_ns", "idle_ns")
    }
    timed = _mask(columns["cpu_ns"])
    plain["cpu_ns"] = np.where(timed, plain["cpu_ns"], 0)
    overhead = np.where(timed, np.maximum(plain["cpu_ns"] - _values(columns["api_ns"]), 0), 0)
    calls = np.ones(len(overhead), np.int64)
    out = {**plain, "calls": calls, "timed": timed.astype(np.int64), "overhead_ns": overhead}
    return _without(_extremes(out, OPS), ("cpu", "overhead"), timed)


def of_events(columns: Mapping[str, Column | Ints]) -> Sums:
    """Return the columns that the sums need of rows of `event`; `launch_duration_ns` is the length of the launch."""
    dur = _values(columns["duration_ns"])
    out = {"calls": np.ones(len(dur), np.int64), "gpu_ns": dur}
    for name in ("flops", "dense_flops", "bytes", "roofline_ns", "hardware_ps", "model_ps"):
        column = columns[name]
        present = _mask(column)
        out[name] = np.where(present, _values(column), 0)
        if name in _UNKNOWN_TIME:
            out[_UNKNOWN_TIME[name]] = np.where(present, 0, dur)
    launch = columns["launch_duration_ns"]
    launched = _mask(launch)
    out["api_ns"], out["launched"] = np.where(launched, _values(launch), 0), launched.astype(np.int64)
    return _without(_extremes(out, EVENTS), ("api",), launched)


def _extremes(sums: Sums, shape: Shape) -> Sums:
    ends = {f"{name}_{end}_ns": sums[f"{name}_ns"] for name in shape.extremes for end in ("min", "max")}
    return sums | ends


def _without(sums: Sums, names: Sequence[str], present: Bools) -> Sums:
    """Exclude unknown values from minima and maxima."""
    for name in names:
        sums[f"{name}_min_ns"] = np.where(present, sums[f"{name}_ns"], _LARGE)
        sums[f"{name}_max_ns"] = np.where(present, sums[f"{name}_ns"], _SMALL)
    return sums


def _mask(column: Column | Ints) -> Bools:
    return column.mask() if isinstance(column, Column) else np.ones(len(column), bool)


def _values(column: Column | Ints) -> Ints:
    return column.values if isinstance(column, Column) else column


def reduce(keys: Sequence[Ints], values: Sums, shape: Shape) -> tuple[list[Ints], Sums]:
    """Add up rows of equal keys; return the keys that occur, in ascending order, and their sums."""
    if not len(keys[0]):
        return list(keys), {name: np.empty(0, np.int64) for name in shape.columns}
    order = np.lexsort(tuple(reversed(keys)))
    change = np.zeros(len(order), bool)
    change[0] = True
    for key in keys:
        ordered = key[order]
        change[1:] |= ordered[1:] != ordered[:-1]
    first = np.flatnonzero(change)
    out: Sums = {}
    for name in shape.columns:
        how = np.minimum if name.endswith("_min_ns") else np.maximum if name.endswith("_max_ns") else np.add
        out[name] = how.reduceat(values[name][order].astype(np.int64), first)
    return [key[order][first] for key in keys], out


def between(store: Store, shape: Shape, first: int, last: int) -> tuple[list[Ints], Sums]:
    """Return sums over the rows with first <= id < last, all of one worker, by the keys."""
    low, high = -(-first >> SHIFT), last >> SHIFT  # whole blocks: low <= block < high
    names = ", ".join((*shape.keys, *shape.columns))
    if low >= high:
        edges, whole = [(first, last)], None
    else:
        edges = [(first, low << SHIFT), (high << SHIFT, last)]
        whole = store.columns(f"select {names} from {shape.block} where block >= {low} and block < {high}")
    parts = [rows(store, shape, a, b) for a, b in edges if a < b]
    if whole is not None:
        parts.append({name: column.values for name, column in whole.items()})
    if not parts:
        return [np.empty(0, np.int64) for _ in shape.keys], {n: np.empty(0, np.int64) for n in shape.columns}
    joined = {name: np.concatenate([part[name] for part in parts]) for name in (*shape.keys, *shape.columns)}
    return reduce([joined[name] for name in shape.keys], joined, shape)


def rows(store: Store, shape: Shape, first: int, last: int) -> Sums:
    """Return keys and values of the rows with first <= id < last, for `reduce`."""
    if shape is OPS:
        columns = store.columns(
            f"""select operator, kernels, tc_kernels, kernel_ns, tc_ns, cpu_ns, api_ns, gpu_ns, idle_ns
                from op where id >= {first} and id < {last}"""
        )
        return {"operator": columns["operator"].values, **of_ops(columns)}
    columns = store.columns(
        f"""select event.operator, event.name, event.kind, coalesce(event.tc, 3) as tc, event.verdict,
                   event.duration_ns, event.flops, event.dense_flops, event.bytes, event.roofline_ns,
                   event.hardware_ps, event.model_ps,
                   api.duration_ns as launch_duration_ns
            from event left join api on api.id = event.api where event.id >= {first} and event.id < {last}"""
    )
    return {**{name: columns[name].values for name in shape.keys}, **of_events(columns)}

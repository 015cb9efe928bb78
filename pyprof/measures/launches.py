# SPDX-License-Identifier: Apache-2.0
"""Sums over the events of devices in the steps that are used, by any keys.

An event is a kernel, a copy or a set; without a GPU, an operator event. `KEYS` are what events can be grouped by: each
is decided by one column of `event`. So events are added up by these columns first, in parts of a bounded size, and
texts are looked up for the few rows that are left. Sums of whole numbers are exact, whatever the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.model import DIRECTIONS, Ints
from pyprof.core.model import Column as Values
from pyprof.facts.steps.source import Source
from pyprof.measures.columns import Column
from pyprof.measures.queries import codes, spans
from pyprof.store.ids import worker_of
from pyprof.store.reads import worker_names
from pyprof.store.write.operators import product


def eligible(name: str | None) -> bool | None:
    """Return whether tensor cores could do an operator of a recording, by its name; None without a name."""
    if name is None:
        return None
    mod, _, op = name.rpartition(".") if "::" not in name else ("aten", "", name)
    return bool(product(mod, op))


def _axes(*axes: int | None) -> str | None:
    """Return sizes along axes as a text, None if one is unknown."""
    return None if None in axes else ", ".join(map(str, axes))


def _same(cell: Any) -> Any:
    return cell


class Key(NamedTuple):
    """Property that events can be grouped by. `of`: the column of `event`, or of _OF_ID, that decides it; `query`: its
    values and what `convert` makes the cells of; empty if the value itself is the cell."""

    column: Column
    of: str
    query: str = ""
    convert: Callable[..., Any] = _same


def _key(key: str, heading: str, text: str, of: str, query: str = "", kind: type = str, unit: str = "",
         convert: Callable[..., Any] = _same) -> Key:  # fmt: skip
    return Key(Column(key, heading, unit, text, kind), of, query, convert)


_IN_SITE = "the call that launched it, of a backward kernel that of its forward; empty if none did."
KEYS = {
    key.column.key: key
    for key in (
        _key("name", "Name", "Full name of the kernel.", "name", "select id, name from kernel_name"),
        _key("operator", "Operator", f"Operator of {_IN_SITE}", "site", "select id, op from site"),
        _key("module", "Module", f"Path of the module that made {_IN_SITE}", "site", "select id, module from site"),
        _key(
            "line", "Source Line", f"Innermost source line of {_IN_SITE}", "site",
            "select s.id, k.frames from site s left join stack k on k.id = s.stack",
            convert=lambda frames: frames.rpartition("\n")[2] or None if frames else None,
        ),
        _key(
            "direction", "Direction", "fprop or bprop; empty if neither.", "site", "select id, direction from site",
            convert=lambda code: None if DIRECTIONS[code] == "na" else DIRECTIONS[code],
        ),
        _key(
            "type", "Op Type", "Kind of operation, independent of how the call spells it.", "operator",
            "select id, type from operator",
        ),
        _key(
            "shapes", "Input Shapes", "Shapes of the tensors of the operator in the tree; empty if not recorded.",
            "operator", "select id, shapes from operator",
        ),
        _key(
            "grid", "Grid", "Blocks of the grid, in x, y and z.", "geometry",
            "select id, grid_x, grid_y, grid_z from geometry", convert=_axes,
        ),
        _key(
            "block", "Block", "Threads of a block, in x, y and z.", "geometry",
            "select id, block_x, block_y, block_z from geometry", convert=_axes,
        ),
        _key(
            "registers", "Registers Per Thread", "Registers of a thread.", "geometry",
            "select id, registers from geometry", int, "count",
        ),
        _key(
            "shared_memory", "Shared Memory (B)", "Shared memory of a block.", "geometry",
            "select id, shared_memory_bytes from geometry", int, "B",
        ),
        _key("worker", "Worker", "Process that launched it.", "worker", "worker"),
        _key("step", "Step", "Number of the step in which it was launched.", "step", kind=int),
        _key("device", "Device", "Number of the device.", "device", kind=int),
        _key("stream", "Stream", "Number of the stream.", "stream", kind=int),
        _key(
            "tc_eligible", "Op Tensor Cores Eligible",
            "Whether tensor cores could do the operator, by its name; empty without an operator.", "site",
            "select id, op from site", bool, convert=eligible,
        ),
    )
}  # fmt: skip

# Sums over events of equal keys, with the names of op_kernel_stat, and what no sum may mix.
# `_AMOUNTS`: columns that may be missing, and the sum of the times of events without them.
_AMOUNTS = {
    "flops": "flops_unknown_ns", "bytes": "bytes_unknown_ns", "roofline_ns": "roofline_unknown_ns",
    "hardware_ps": "hardware_unknown_ns", "model_ps": "",
}  # fmt: skip
SUMS = ("calls", "gpu_ns", *_AMOUNTS, *filter(None, _AMOUNTS.values()))
APART = ("operator", "tc", "verdict")
NEEDED = (*APART, "duration_ns", *_AMOUNTS)
UNKNOWN = 3  # use of tensor cores, in op_kernel_stat
_OF_ID = ("worker", "step")  # what the id of an event tells
_NONE = -1  # a missing key


def added(keys: Mapping[str, Ints], event: Mapping[str, Values]) -> pa.Table:
    """Return SUMS, shortest and longest of events of equal keys and APART. `event`: columns NEEDED."""
    time = event["duration_ns"].values
    columns: dict[str, Any] = {
        **keys,
        "operator": event["operator"].values,
        "verdict": event["verdict"].values,
    }
    columns["tc"] = np.where(event["tc"].mask(), event["tc"].values, UNKNOWN)
    columns |= {"calls": np.ones(len(time), np.int64), "gpu_ns": time, "gpu_min_ns": time, "gpu_max_ns": time}
    for name, unknown in _AMOUNTS.items():
        values, present = event[name].values, event[name].present
        columns[name] = values if present is None else np.where(present, values, 0)
        if unknown:
            missing = np.zeros(1, np.int64) if present is None else np.where(present, 0, time)
            columns[unknown] = np.broadcast_to(missing, len(time))
    for name in ("flops", "bytes"):  # of many kernels more than 63 bits
        columns[name] = columns[name].astype(float)
    return _merged(pa.table(columns), [*keys, *APART])


def _merged(table: pa.Table, by: list[str]) -> pa.Table:
    how = [*((name, "sum") for name in SUMS), ("gpu_min_ns", "min"), ("gpu_max_ns", "max")]
    groups = table.group_by(by, use_threads=False).aggregate(how)
    ends = {"gpu_min_ns_min": "gpu_min_ns", "gpu_max_ns_max": "gpu_max_ns"}
    return groups.rename_columns([ends.get(name, name.removesuffix("_sum")) for name in groups.column_names])


def rows(source: Source, columns: Iterable[str], kinds: Iterable[int]) -> pd.DataFrame:
    """Return SUMS, gpu_min_ns and gpu_max_ns of the events of some kinds by columns of `event` or _OF_ID, and APART, in
    the order of these."""
    own = [name for name in dict.fromkeys(columns) if name not in APART]
    read = tuple(dict.fromkeys(("id", "kind", *(name for name in own if name not in _OF_ID), *NEEDED)))
    step, begin = _steps(source) if "step" in own else (np.empty(0, np.int64), np.empty(0, np.int64))
    parts = []
    for first, last in spans(source):
        for event in source.store.parts("event", read, first, last):
            id_ = event["id"].values
            keys = {name: codes(event[name]) for name in own if name not in _OF_ID}
            if "worker" in own:
                keys["worker"] = worker_of(id_)
            if "step" in own:
                keys["step"] = step[np.searchsorted(begin, id_, side="right") - 1]
            parts.append(added({"kind": event["kind"].values, **keys}, event))
    by = ["kind", *own, *APART]
    if not parts:
        return pd.DataFrame(columns=[*by[1:], *SUMS, "gpu_min_ns", "gpu_max_ns"], dtype=np.int64)
    table: pd.DataFrame = _merged(pa.concat_tables(parts), by).to_pandas()
    return table[table.pop("kind").isin(list(kinds))].sort_values(by[1:], ignore_index=True)


def _steps(source: Source) -> tuple[Ints, Ints]:
    """Return the numbers of the aggregated steps of all workers, and the ids of their first events, ascending."""
    used = source.aggregation
    rows = source.store.rows(
        """select number, first_event from iteration where iteration_set = ? and number between ? and ?
           order by first_event, number""",
        (used.iteration_set, used.first, used.last),
    )
    number, first = np.array(rows, np.int64).reshape(-1, 2).T
    return number, first


def grouped(source: Source, sums: pd.DataFrame, by: Sequence[str]) -> tuple[Ints, pd.DataFrame]:
    """Return the number of each row's group, of equal keys, and the keys of each group."""
    cells = pd.DataFrame({name: _cells(source, KEYS[name], sums) for name in by}, dtype=object)
    group = cells.groupby(list(by), sort=False, dropna=False).ngroup().to_numpy(np.int64)
    _, first = np.unique(group, return_index=True)
    return group, cells.iloc[first].reset_index(drop=True)


def _cells(source: Source, key: Key, sums: pd.DataFrame) -> list[Any]:
    if not key.query:
        return [None if number == _NONE else number for number in sums[key.of].tolist()]
    texts = (
        worker_names(source.store)
        if key.of == "worker"
        else {number: key.convert(*cells) for number, *cells in source.store.rows(key.query)}
    )
    return [texts.get(number) for number in sums[key.of].tolist()]

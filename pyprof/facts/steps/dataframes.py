# SPDX-License-Identifier: Apache-2.0
"""The database as data frames: events, executions of operators, iterations, devices, coverage.

Integers are nullable (Int64); times are in ns from the recording's first event; repeated texts are categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof import metrics
from pyprof.core.marker import caller
from pyprof.core.model import BASES, DIRECTIONS, KINDS, OPERATOR, PHASES, Column, Ints
from pyprof.facts.steps.aggregation import Aggregation, frame
from pyprof.facts.steps.coverage import ledger
from pyprof.facts.steps.source import Source
from pyprof.store.files import Store
from pyprof.store.ids import worker_of

_CPU = "cpu"


def kernels(store: Store, aggregation: Aggregation) -> pd.DataFrame:
    """Return one row per event, by start, device, stream, id. `step`: the iteration of the aggregation's cut."""
    columns = store.columns(
        """select e.id, e.kind, e.name, e.start_ns, e.duration_ns, coalesce(e.total_ns, e.duration_ns) as total_ns,
                  e.device, e.stream, e.operator, e.op, e.site, e.tc, e.flops, e.dense_flops, e.bytes, e.basis,
                  e.copied_bytes, e.geometry, e.roofline_ns, a.start_ns as launch_ns,
                  a.duration_ns as launch_duration_ns, op.seq
           from event e left join api a on a.id = e.api left join op on op.id = e.op"""
    )
    start, device = columns["start_ns"].values, columns["device"]
    order = np.lexsort((columns["id"].values, columns["stream"].values, device.values, start))
    columns = {name: column.take(order) for name, column in columns.items()}
    kind = columns["kind"].values
    names = store.rows("select name, short_name from kernel_name order by id")
    operators = store.rows("select type, mod, name, op_id, params from operator order by id")
    stacks = dict(store.rows("select id, frames from stack"))
    sites = store.rows("select direction, phase, module, stack from site order by id")
    operator, site = columns["operator"].values, columns["site"].values
    tc = columns["tc"]
    out: dict[str, Any] = {
        **worker_columns(store, columns["id"].values),
        "kind": category(kind, {i: "cpu" if name == "operator" else name for i, name in enumerate(KINDS)}),
        "name": category(columns["name"].values, {i: row[1] for i, row in enumerate(names)}),
        "start_ns": columns["start_ns"].values,
        "end_ns": columns["start_ns"].values + columns["total_ns"].values,
        "duration_ns": columns["duration_ns"].values,
        "device": device_names(columns["device"], kind),
        "stream": integer(columns["stream"]),
        "op": category(operator, {i: row[0] for i, row in enumerate(operators)}),
        "mod": category(operator, {i: row[1] for i, row in enumerate(operators)}),
        "op_name": category(operator, {i: row[2] for i, row in enumerate(operators)}),
        "op_id": category(operator, {i: row[3] for i, row in enumerate(operators)}),
        "params": category(operator, {i: row[4] for i, row in enumerate(operators)}),
        "direction": category(site, {i: DIRECTIONS[row[0]] for i, row in enumerate(sites)}),
        "phase": category(site, {i: PHASES[row[1]] for i, row in enumerate(sites)}),
        "module": category(site, {i: row[2] for i, row in enumerate(sites)}),
        "source": category(site, {i: _last(stacks.get(row[3])) for i, row in enumerate(sites)}),
        "seq": integer(columns["seq"]),
        "step": steps_of(store, aggregation, columns["id"].values),
        "flops": integer(columns["flops"]),
        "dense_flops": integer(columns["dense_flops"]),
        "bytes": integer(columns["bytes"]),
        "roofline_ns": integer(columns["roofline_ns"]),
        "basis": category(columns["basis"].values, dict(enumerate(BASES))),
        "tc": integer(Column(tc.values, tc.mask() & (tc.values < 2))),
        "copied_bytes": integer(columns["copied_bytes"]),
        "launch_ns": integer(columns["launch_ns"]),
        "launch_duration_ns": integer(columns["launch_duration_ns"]),
        "full_name": category(columns["name"].values, {i: row[0] for i, row in enumerate(names)}),
        "caller": category(site, {i: _caller(stacks.get(row[3])) for i, row in enumerate(sites)}),
    }
    return pd.DataFrame(out, index=pd.Index(columns["id"].values, name="id"))


def ops(store: Store, aggregation: Aggregation) -> pd.DataFrame:
    """Return one row per execution of an operator, by worker and start."""
    columns = store.columns(
        """select id, thread, operator, start_ns, end_ns, cpu_ns, api_ns, gpu_ns, idle_ns, kernel_ns, tc_ns, kernels,
                  tc_kernels, seq, forward from op order by id"""
    )
    operators = store.rows(
        "select op_id, name, type, direction, phase, module, dtype, shapes, stack from operator order by id"
    )
    stacks = dict(store.rows("select id, frames from stack"))
    operator = columns["operator"].values
    keys = ("op_id", "name", "type", "direction", "phase", "module", "dtype", "shapes")
    texts: dict[str, Any] = {}
    for place, key in enumerate(keys):
        table: dict[int, str | None] = {i: row[place] for i, row in enumerate(operators)}
        if key == "direction":
            table = {i: DIRECTIONS[row[place]] for i, row in enumerate(operators)}
        elif key == "phase":
            table = {i: PHASES[row[place]] for i, row in enumerate(operators)}
        texts[key] = category(operator, table)
    timed = columns["cpu_ns"].mask()  # others are of graph replays: they have an order, and no length
    times: dict[str, Any] = {
        "start_ns": columns["start_ns"].values,
        "end_ns": integer(Column(columns["end_ns"].values, timed)),
        "cpu_ns": integer(columns["cpu_ns"]),
        "api_ns": columns["api_ns"].values,
    }
    overhead: Any = integer(Column(np.maximum(columns["cpu_ns"].values - columns["api_ns"].values, 0), timed))
    extra = ("gpu_ns", "idle_ns", "kernel_ns", "tc_ns", "kernels", "tc_kernels", "seq", "forward")
    if not Source(store, aggregation).gpu:  # what API calls and gaps on a device are said of
        missing = pd.array([pd.NA] * len(overhead), dtype="Int64")
        times["api_ns"], overhead = missing, missing
        columns["idle_ns"], columns["tc_ns"], columns["tc_kernels"] = (Column.missing(len(operator)) for _ in range(3))
    return pd.DataFrame(
        {
            **worker_columns(store, columns["id"].values), "thread": integer(columns["thread"]), **texts, **times,
            "overhead_ns": overhead,
            **{name: integer(columns[name]) for name in extra},
            "step": steps_of(store, aggregation, columns["id"].values, "op"),
            "source": category(operator, {i: _last(stacks.get(row[8])) for i, row in enumerate(operators)}),
            "caller": category(operator, {i: _caller(stacks.get(row[8])) for i, row in enumerate(operators)}),
        },
        index=pd.Index(columns["id"].values, name="id"),
    )  # fmt: skip


def steps(store: Store, aggregation: Aggregation) -> pd.DataFrame:
    """Return one row per worker and iteration: bounds, length, parts, kernels, whether it is aggregated."""
    parts = ", ".join(f"p.{part}_ns" for part in metrics.PARTS)
    return frame(
        store,
        f"""select w.name as worker, w.span, i.number as step, i.start_ns, i.end_ns, i.host_start_ns, i.host_end_ns,
                   i.end_ns - i.start_ns - i.paused_ns as duration_ns, {parts},
                   (select sum(d.kernels) from iteration_device d where d.iteration_set = i.iteration_set
                    and d.worker = i.worker and d.number = i.number) as kernels,
                   i.partial = 1 as partial, i.number between ? and ? as aggregated
            from iteration i
            join iteration_part p using (iteration_set, worker, number)
            join worker w on w.id = i.worker
            where i.iteration_set = ? order by i.worker, i.number""",
        (aggregation.first, aggregation.last, aggregation.iteration_set),
    ).astype({"partial": bool, "aggregated": bool, "kernels": "Int64"})


def devices(store: Store, aggregation: Aggregation) -> pd.DataFrame:
    """Return one row per worker and recorded device: its properties, and its utilization in the aggregation."""
    source = Source(store, aggregation)
    shares = {
        (device.worker, device.number): metrics.share(device.sums.get("busy_ns", 0), device.wall)
        for device in source.window.devices
    }
    table = frame(
        store,
        """select d.worker as worker_id, w.name as worker, w.span, d.number as device, d.name, d.compute_capability,
                  d.sm_count, d.memory_bytes, d.clock_hz, d.bandwidth_bytes_per_s, d.events
           from device d join worker w on w.id = d.worker order by d.worker, d.number""",
    )
    pairs = zip(table.pop("worker_id").tolist(), table["device"].tolist())
    table["utilization"] = [shares.get(pair) for pair in pairs]
    whole = ["sm_count", "memory_bytes", "clock_hz", "bandwidth_bytes_per_s", "events"]
    return table.astype(dict.fromkeys(whole, "Int64"))


def findings(items: Sequence[Any]) -> pd.DataFrame:
    """Return one row per finding."""
    keys = {"rule": "rule", "problem": "problem", "advice": "advice", "saving_ns": "saving", "verify": "verify",
            "evidence": "evidence"}  # fmt: skip
    rows = [{name: getattr(finding, key) for name, key in keys.items()} for finding in items]
    return pd.DataFrame(rows, columns=list(keys)).astype({"saving_ns": "Int64"})


def coverage(store: Store) -> pd.DataFrame:
    """Return one row per line of the ledger and part, with its time, events and share, of all workers. The parts of a
    line add up to everything. Lines of dropped events have only a count."""
    table = ledger(store, by_worker=False).drop(columns="worker")
    return table.rename(columns={"time": "time_ns"})


def worker_columns(store: Store, ids: Ints) -> dict[str, Any]:
    """Return the worker of each id, and the number of its recording (`span`)."""
    rows = store.rows("select id, name, span from worker order by id")
    spans = np.ones(max((row[0] for row in rows), default=0) + 1, np.int64)
    for number, _, span in rows:
        spans[number] = span
    worker = worker_of(ids)
    return {"worker": category(worker, {row[0]: row[1] for row in rows}), "span": spans[worker]}


def steps_of(store: Store, aggregation: Aggregation, ids: Ints, what: str = "event") -> Any:
    """Return the iteration of each id, missing outside of all iterations."""
    columns = store.columns(
        f"""select number, first_{what} as low, last_{what} as high from iteration
            where iteration_set = {aggregation.iteration_set} order by worker, number"""
    )
    low, high, number = (columns[name].values for name in ("low", "high", "number"))
    if not len(low):
        return pd.array([pd.NA] * len(ids), dtype="Int64")
    # Iterations without events share a bound with the next: the last that begins there is meant.
    place = np.searchsorted(low, ids, side="right") - 1
    inside = (place >= 0) & (ids < high[np.maximum(place, 0)])
    return pd.arrays.IntegerArray(number[np.maximum(place, 0)].astype(np.int64), ~inside)


def integer(column: Column) -> Any:
    """Return a column as a nullable integer array."""
    return pd.arrays.IntegerArray(column.values.astype(np.int64), ~column.mask())


def category(codes: Ints, table: Mapping[int, str | None]) -> Any:
    """Return texts by code as a categorical array; None is missing."""
    categories = list(dict.fromkeys(text for text in table.values() if text is not None))
    place = {text: i for i, text in enumerate(categories)}
    lookup = np.full(max(table, default=0) + 1, -1, np.int64)
    for code, text in table.items():
        lookup[code] = -1 if text is None else place[text]
    return pd.Categorical.from_codes(lookup[codes], categories=pd.Index(categories, dtype=object))


def device_names(column: Column, kind: Ints) -> Any:
    """Return the device of each event as text; "cpu" for operator events."""
    codes, distinct = pd.factorize(np.where(column.mask(), column.values, np.where(kind == OPERATOR, -1, -2)))
    names = {i: _CPU if n == -1 else None if n == -2 else str(n) for i, n in enumerate(distinct.tolist())}
    return category(codes, names)


def _last(frames: str | None) -> str | None:
    return frames.rpartition("\n")[2] or None if frames else None


def _caller(frames: str | None) -> str | None:
    return caller(tuple(frames.split("\n"))) if frames else None

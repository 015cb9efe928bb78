# SPDX-License-Identifier: Apache-2.0
"""Counters of the timeline: which a device has, and their values in a stretch of time.

A stretch with few events is read as it is. Of more, a child process makes buckets of the whole recording once, and an
answer joins them. Memory is a step function, which a child keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof.core.model import KERNELS, MEMCPY, Floats, Ints
from pyprof.facts.allocations import Allocations, allocations
from pyprof.facts.steps.source import Source
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import ON_GPU
from pyprof.timeline import counters, stored
from pyprof.timeline.counters import Buckets
from pyprof.views.models import Counter, Counters, CounterValues

_FEW = 100_000  # events that a request reads
_FINEST = 1 << 16  # buckets of the recording
_UNKNOWN = "unknown "


class _Kind(NamedTuple):
    title: str
    unit: str
    text: str


KINDS = {
    "tensor": _Kind("tensor cores", "%", "Share of the time in which a kernel ran that used tensor cores."),
    "sm": _Kind(
        "SM efficiency",
        "%",
        "Share of the multiprocessors that had a block: at each moment the sum of blocks / multiprocessors of the "
        "running kernels, at most 1.",
    ),
    "hfu": _Kind(
        "HFU",
        "%",
        "The time that the device needs at its dense peaks for the FLOPs that kernels execute, as a share of the time.",
    ),
    "mfu": _Kind("MFU", "%", "HFU with the FLOPs that the model needs, without recomputation."),
    "copies": _Kind("copies", "B/s", "Bytes of copies, each spread evenly over its time."),
    "allocated": _Kind("memory allocated", "B", "The most bytes that were in use."),
    "reserved": _Kind("memory reserved", "B", "The most bytes that the allocator held."),
}
_MEMORY = ("allocated", "reserved")
_CHANGE = _Kind(
    "memory allocated since the start",
    "B",
    "The most bytes that were in use, less those from before the recording, which it does not tell.",
)
_FIRST = "select 1 from memory where id >= ? and id < ? and device = ? and {} limit 1"


def available(store: Store) -> list[Counter]:
    """Return the counters of devices of which the recording knows something."""
    out = []
    for worker, device in store.rows("select worker, device from track where kind = 'idle' order by worker, device"):
        values = (first_id(worker), first_id(worker + 1), device)
        known = _work_known(store, worker)
        known["sm"] &= bool(
            store.rows("select 1 from device where worker = ? and number = ? and sm_count > 0", (worker, device))
        )
        kinds = dict(KINDS)
        for key in _MEMORY:
            known[key] = bool(store.rows(_FIRST.format(f"{key}_bytes is not null"), values))
        if not known["allocated"] and store.rows(_FIRST.format("bytes is not null"), values):
            known["allocated"], kinds["allocated"] = True, _CHANGE
        out += [
            Counter(worker=worker, device=device, key=key, title=kind.title, unit=kind.unit, text=kind.text)
            for key, kind in kinds.items()
            if known[key]
        ]
    return out


def _work_known(store: Store, worker: int) -> dict[str, bool]:
    """Return of which counters the events of a worker tell anything."""
    names = ("kind", "tc", "hardware_ps", "model_ps")
    event = store.table("event", names, first_id(worker), first_id(worker + 1))
    kind = event["kind"].values
    tensor = (np.isin(kind, KERNELS) & event["tc"].mask()).any()
    hardware, model = (event[name].values[event[name].mask()].any() for name in names[2:])
    copies = (kind == MEMCPY).any()
    shapes = store.rows("select 1 from geometry where grid_x is not null limit 1")
    return {
        "tensor": bool(tensor), "hfu": bool(hardware), "mfu": bool(model), "copies": bool(copies),
        "sm": bool(shapes),
    }  # fmt: skip


def near(store: Store, worker: int, device: int, start: int, end: int, most: int) -> Buckets | None:
    """Return at most so many buckets of [start, end), or None where it has too many events for one request."""
    tracks = [one for one in stored.places(store, worker, ("stream",)) if one.device == device]
    if stored.count(store, tracks, start, end) > _FEW:
        return None
    parts = [records.id for track in tracks for records in stored.events(store, track, start - 1, end + 1)]
    ids: Ints = np.concatenate([np.empty(0, np.int64), *parts])
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
    if high - low > 4 * _FEW:
        return None
    names = ["device", *counters.COLUMNS.split(", ")]
    rows = store.rows(
        f"select {', '.join(names)} from event where id between ? and ? and device = ?", (low, high, device)
    )
    table = np.array(rows, float).reshape(-1, len(names)).T
    events = counters.work(store, worker, device, dict(zip(names, table)))
    width = max(-(-(end - start) // most), 1)
    return counters.buckets(events, start, width, -(-(end - start) // width))


def table(store: Store, worker: int, device: int) -> tuple[dict[str, int], pa.Table]:
    """Return the buckets of a device's whole recording, as a task of a child."""
    low, high = store.rows("select start_ns, end_ns from worker where id = ?", (worker,))[0]
    columns = store.columns(
        f"""select {counters.COLUMNS} from event where id >= {first_id(worker)} and id < {first_id(worker + 1)}
            and {ON_GPU} and device = {device} order by id"""
    )
    events = counters.work(
        store, worker, device,
        {
            key: column.values.astype(float) if column.present is None
            else np.where(column.present, column.values, np.nan)
            for key, column in columns.items()
        },
    )  # fmt: skip
    width = 1
    while (high - low) // width >= _FINEST:
        width *= 2
    all_ = counters.buckets(events, low, width, (high - low) // width + 1)
    values = {**all_.sums, **{_UNKNOWN + key: one for key, one in all_.unknown.items()}}
    return {"low": low, "width": width}, pa.table(values)


def of_table(answer: tuple[dict[str, int], pa.Table]) -> Buckets:
    """Return the buckets of the task's answer."""
    head, columns = answer
    values = {name: columns.column(name).to_numpy() for name in columns.column_names}
    return Buckets(
        head["low"],
        head["width"],
        {key: one for key, one in values.items() if not key.startswith(_UNKNOWN)},
        {key.removeprefix(_UNKNOWN): one for key, one in values.items() if key.startswith(_UNKNOWN)},
    )


def memory(
    source: Source, worker: int, device: int, start: int, width: int, count: int
) -> dict[str, list[float | None]]:
    """Return the most memory in use in each bucket, None where it is unknown."""
    curves: list[Allocations] = source.store.cached("allocations", lambda: list(allocations(source)))
    for one in curves:
        if (one.worker, one.device) == (worker, device):
            reserved = np.where(one.reserved.mask(), one.reserved.values, np.nan)
            steps = {"allocated": one.allocated.astype(float), "reserved": reserved}
            return {key: _cells(counters.steps(one.time, values, start, width, count)) for key, values in steps.items()}
    return {}


def answer(
    store: Store,
    worker: int,
    device: int,
    sums: Buckets,
    in_use: Mapping[str, list[float | None]],
    keys: list[str],
) -> Counters:
    """Return the values of counters. Shares and rates are of the part of a bucket in the recording; outside of it, and
    where only zeros are known and not everything is, they are unknown."""
    span = store.rows("select start_ns, end_ns from worker where id = ?", (worker,))[0]
    edges = sums.low + sums.width * np.arange(sums.number + 1, dtype=np.int64)
    time = np.diff(np.clip(edges, *span)).astype(float)
    time[time == 0] = np.nan
    out = []
    for key in keys:
        nothing: list[float | None] = [None] * sums.number
        if key in _MEMORY:
            out.append(CounterValues(key=key, values=in_use.get(key, nothing), unknown=nothing))
            continue
        amount, missing = sums.sums[key], sums.unknown[key]
        factor = 1e9 if KINDS[key].unit == "B/s" else 100
        values = np.where((amount == 0) & (missing > 0), np.nan, factor * amount / time)
        out.append(CounterValues(key=key, values=_cells(values), unknown=_cells(100 * missing / time)))
    return Counters(worker=worker, device=device, start=sums.low, width=sums.width, counters=out)


def _cells(values: Floats) -> list[float | None]:
    """Return numbers with six digits, None for NaN."""
    rounded: Any = [None if value != value else float(f"{value:.6g}") for value in values.tolist()]
    out: list[float | None] = rounded
    return out

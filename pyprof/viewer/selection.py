# SPDX-License-Identifier: Apache-2.0
"""Sums over a stretch of the timeline, from the tiles of every event.

Times are clipped to the stretch; where ranks are aligned, that of each worker is moved by its shift. Of a device: busy,
the union of its events, and idle, by cause, add up to its part of the recording. The tables have sums over streams, so
that their total is at least what is busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pyprof.analysis.partition import Union
from pyprof.model import Column, Ints
from pyprof.store.files import Store
from pyprof.store.kinds import IS_KERNEL
from pyprof.timeline import stored
from pyprof.timeline.records import Records
from pyprof.viewer.models import (
    Flame,
    FlameRow,
    IdleCause,
    SelectedDevice,
    SelectedRow,
    SelectedTable,
    SelectedWork,
    Selection,
)
from pyprof.viewer.problems import Trouble

_MOST = 3_000_000  # events: about a second
_ROWS = 12
_NODES = 5000
Key = Literal["type", "operator", "module", "kernel", "kind"]
_TABLES: tuple[tuple[Key, str, str, str], ...] = (
    ("type", "Type", "op", "select id, type from operator"),
    ("operator", "Operator", "op", "select id, coalesce(name, op_id) from operator"),
    ("module", "Module", "op", "select id, module from operator"),
    ("kernel", "Kernel", "kernel", "select id, coalesce(short_name, name) from kernel_name"),
    ("kind", "Kind", "kernel", "select id, kind from kernel_name"),
)


class _Part(NamedTuple):
    """The events of a track in the stretch, clipped to it."""

    kind: str
    worker: int
    device: int | None
    id: Ints
    start: Ints
    end: Ints
    name: Ints
    operator: Ints


def selection(
    store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int], work: bool = False
) -> Selection:
    """Return the sums, with the work of kernels if it is asked for. Raises Trouble for a stretch that is empty or has
    too many events."""
    parts = _parts(store, start, end, worker, shifts, ("stream", "idle"))
    names = dict(store.rows("select id, name from worker"))
    devices = []
    for key in sorted(
        {(part.worker, part.device) for part in parts if part.device is not None and part.device >= 0}
    ):
        own = [part for part in parts if (part.worker, part.device) == key]
        devices.append(_device(store, names[key[0]], *key, own, work))
    streams = [part for part in parts if part.kind == "stream"]
    return Selection(
        start=start,
        end=end,
        devices=devices,
        tables=[_table(store, streams, *table) for table in _TABLES],
    )


def _parts(
    store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int], kinds: Sequence[str]
) -> list[_Part]:
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    tracks = stored.within(stored.places(store, worker, kinds), start, end, shifts)
    total = stored.count(store, tracks)
    if total > _MOST:
        raise Trouble(
            "parameter", f"end: the stretch has {total:,} events; choose one with at most {_MOST:,}.", "end"
        )
    return [part for one in tracks if (part := _read(store, *one))]


def flame(store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int]) -> Flame:
    """Return the time of the events of devices in a stretch as a tree of the paths of their operators. Raises Trouble
    as for the sums."""
    paths = {
        number: tuple((name or "").split("/")) for number, name in store.rows("select id, name from operator")
    }
    sums: dict[tuple[str, ...], list[int]] = {}  # of each node: total, its own, and events
    for part in _parts(store, start, end, worker, shifts, ("stream",)):
        distinct, place, count = np.unique(part.operator - 1, return_inverse=True, return_counts=True)
        times = np.zeros(len(distinct), np.int64)
        np.add.at(times, place, part.end - part.start)
        for number, time, events in zip(distinct.tolist(), times.tolist(), count.tolist()):
            path = paths.get(number, ("",))
            for depth in range(len(path)):
                node = sums.setdefault(path[: depth + 1], [0, 0, 0])
                node[0] += time
                node[1] += time if depth == len(path) - 1 else 0
                node[2] += events
    inside: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in sorted(sums, key=lambda path: (sums[path][0], path)):
        inside.setdefault(path[:-1], []).append(path)
    rows: list[FlameRow] = []
    waiting = list(inside.get((), ()))
    while waiting:
        path = waiting.pop()
        total, own, events = sums[path]
        rows.append(FlameRow(module="/".join(path), depth=len(path) - 1, total=total, self=own, count=events))
        waiting += inside.get(path, ())
    return Flame(
        total=sum(sums[path][0] for path in inside.get((), ())),
        rows=rows[:_NODES],
        left_out=max(len(rows) - _NODES, 0),
    )


def _read(store: Store, track: stored.Place, start: int, end: int) -> _Part | None:
    records = list(stored.events(store, track, start, end))
    if not records:
        return None
    joined = Records(*(np.concatenate(columns) for columns in zip(*records)))
    return _Part(
        track.kind,
        track.worker,
        track.device,
        joined.id,
        np.maximum(joined.start, start),
        np.minimum(joined.end, end),
        joined.name,
        joined.operator,
    )


def _device(
    store: Store, worker_name: str, worker: int, device: int, parts: list[_Part], work: bool
) -> SelectedDevice:
    streams = [part for part in parts if part.kind == "stream"]
    empty = np.empty(0, np.int64)
    busy = len(
        Union(
            np.concatenate([part.start for part in streams] or [empty]),
            np.concatenate([part.end for part in streams] or [empty]),
        )
    )
    causes: list[IdleCause] = []
    for part in parts:
        if part.kind == "idle":
            labels = dict(store.rows("select id, text from label"))
            for code in np.unique(part.name).tolist():
                mask = part.name == code
                time = int((part.end - part.start)[mask].sum())
                causes.append(IdleCause(cause=labels[code], time=time, count=int(mask.sum())))
    causes.sort(key=lambda one: -one.time)
    idle = sum(one.time for one in causes)
    return SelectedDevice(
        worker=worker,
        worker_name=worker_name,
        device=device,
        length=busy + idle,
        busy=busy,
        idle=idle,
        causes=causes,
        work=_work(store, device, streams, busy + idle) if work else None,
    )


def _work(store: Store, device: int, streams: list[_Part], length: int) -> SelectedWork:
    """Return the work of kernels, each spread evenly over its time."""
    empty = np.empty(0, np.int64)
    ids = np.concatenate([part.id for part in streams] or [empty])
    order = np.argsort(ids)
    ids = ids[order]
    time = np.concatenate([part.end - part.start for part in streams] or [empty])[order]
    low, high = (int(ids[0]), int(ids[-1])) if len(ids) else (0, -1)
    columns = store.columns(
        f"""select id, duration_ns, flops, bytes, hardware_ps from event
            where id between ? and ? and device = ? and {IS_KERNEL}""",
        (low, high, device),
    )
    id_ = columns["id"].values
    place = np.minimum(np.searchsorted(ids, id_), max(len(ids) - 1, 0))
    inside = ids[place] == id_ if len(ids) else np.zeros(len(id_), bool)
    duration = columns["duration_ns"].values[inside]
    share = np.where(duration > 0, time[place[inside]] / np.maximum(duration, 1), 1.0)

    def total(column: Column) -> tuple[float | None, int]:
        known = column.mask()[inside]
        amount = float((column.values[inside] * share)[known].sum())
        unknown = int((~known).sum())
        return (None if unknown and unknown == len(share) else amount), unknown

    flops, flops_unknown = total(columns["flops"])
    bytes_, bytes_unknown = total(columns["bytes"])
    hardware, hfu_unknown = total(columns["hardware_ps"])
    return SelectedWork(
        kernels=len(share), flops=flops, flops_unknown=flops_unknown, bytes=bytes_, bytes_unknown=bytes_unknown,
        hfu=hardware / 10 / length if hardware is not None and length else None, hfu_unknown=hfu_unknown,
    )  # fmt: skip


def _table(store: Store, parts: list[_Part], key: Key, title: str, of: str, query: str) -> SelectedTable:
    """Return sums by the text that a query gives for each operator or kernel name, the longest first."""
    labels: dict[int, str] = {number: label or f"no {title.lower()}" for number, label in store.rows(query)}
    empty = np.empty(0, np.int64)
    code = np.concatenate([part.operator - 1 if of == "op" else part.name for part in parts] or [empty])
    time = np.concatenate([part.end - part.start for part in parts] or [empty])
    distinct, place, count = np.unique(code, return_inverse=True, return_counts=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, place, time)
    rows: dict[str, SelectedRow] = {}
    for number, total, events in zip(distinct.tolist(), sums.tolist(), count.tolist()):
        label = labels.get(number, "no operator")
        row = rows.setdefault(label, SelectedRow(id=None, label=label, time=0, count=0))
        single = f"{of}:{number}" if number >= 0 and not row.count else None
        rows[label] = SelectedRow(id=single, label=label, time=row.time + total, count=row.count + events)
    order = sorted(rows.values(), key=lambda row: (-row.time, row.label))
    return SelectedTable(
        key=key, title=title, rows=order[:_ROWS], total=int(time.sum()), events=len(time),
        left_out=max(len(order) - _ROWS, 0),
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Sums over a stretch of the timeline, from the tiles of every event.

Times are clipped to the stretch; where ranks are aligned, that of each worker is moved by its shift. Of a device: busy,
the union of its events, and idle, by cause, add up to its part of the recording. The tables have sums over streams, so
that their total is at least what is busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from pyprof.analysis.partition import Union
from pyprof.model import NO_MODULE
from pyprof.store.files import Store
from pyprof.viewer.event_sums import COUNT, TIME, Part, Sums, parts_of, sums_of, values_of, work_of
from pyprof.viewer.models import (
    Flame,
    FlameRow,
    IdleCause,
    SelectedDevice,
    SelectedRow,
    SelectedTable,
    Selection,
)

_ROWS = 12
_NODES = 5000
_Node = tuple[tuple[str, ...], str | None]  # a path of operators; a kernel below it, if it is one
Key = Literal["type", "operator", "module", "kernel", "kind"]
_TABLES: tuple[tuple[Key, str, str, str], ...] = (
    ("type", "Type", "op", "select id, type from operator"),
    ("operator", "Operator", "op", "select id, coalesce(name, op_id) from operator"),
    ("module", "Module", "op", "select id, module from operator"),
    ("kernel", "Kernel", "kernel", "select id, coalesce(short_name, name) from kernel_name"),
    ("kind", "Kind", "kernel", "select id, kind from kernel_name"),
)


def selection(
    store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int], work: bool = False
) -> Selection:
    """Return the sums, with the work of kernels if it is asked for. Raises Trouble for a stretch that is empty or has
    too many events."""
    parts = parts_of(store, start, end, worker, shifts, ("stream", "idle"))
    sums = sums_of(store, [part for part in parts if part.kind == "stream"], work)
    names = dict(store.rows("select id, name from worker"))
    devices = []
    for key in sorted(
        {(part.worker, part.device) for part in parts if part.device is not None and part.device >= 0}
    ):
        own = [part for part in parts if (part.worker, part.device) == key]
        own_sums = [one for one in sums if (one.worker, one.device) == key]
        devices.append(_device(store, names[key[0]], *key, own, own_sums, work))
    return Selection(
        start=start,
        end=end,
        devices=devices,
        tables=[_table(store, sums, work, *table) for table in _TABLES],
    )


def flame(
    store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int], work: bool = False
) -> Flame:
    """Return the time of the events of devices in a stretch as a tree of the paths of their operators; with work, also
    the work of each node, and kernels below their operators. Raises Trouble as for the sums."""
    paths = {
        number: tuple((name or "").split("/")) for number, name in store.rows("select id, name from operator")
    }
    kernels = {
        number: name or ""
        for number, name in store.rows("select id, coalesce(short_name, name) from kernel_name")
    }
    groups = sums_of(store, parts_of(store, start, end, worker, shifts, ("stream",)), work)
    values = values_of(groups, work)
    own: list[tuple[str, ...]] = []
    places: dict[_Node, list[int]] = {}  # the rows of `values` inside each
    for operator, name in [pair for one in groups for pair in zip(one.operator.tolist(), one.name.tolist())]:
        path = paths.get(operator, ("",))
        nodes: list[_Node] = [(path[: depth + 1], None) for depth in range(len(path))]
        for node in [*nodes, *([(path, kernels.get(name, ""))] if work else [])]:
            places.setdefault(node, []).append(len(own))
        own.append(path)
    sums = {node: values[rows].sum(axis=0) for node, rows in places.items()}
    inside: dict[tuple[str, ...], list[_Node]] = {}
    for node in sorted(sums, key=lambda node: (sums[node][TIME], node[0], node[1] or "")):
        inside.setdefault(node[0][:-1] if node[1] is None else node[0], []).append(node)
    rows: list[FlameRow] = []
    waiting = list(inside.get((), ()))
    while waiting:
        path, kernel = node = waiting.pop()
        rows.append(
            FlameRow(
                module="/".join(path),
                kernel=kernel,
                depth=len(path) - (kernel is None),
                total=int(sums[node][TIME]),
                self=int(sum(values[place, TIME] for place in places[node] if own[place] == path)),
                count=int(sums[node][COUNT]),
                work=work_of(sums[node]),
            )
        )
        waiting += inside.get(path, ()) if kernel is None else ()
    return Flame(total=int(values[:, TIME].sum()), rows=rows[:_NODES], left_out=max(len(rows) - _NODES, 0))


def _device(
    store: Store, worker_name: str, worker: int, device: int, parts: list[Part], sums: list[Sums], work: bool
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
        work=work_of(values_of(sums, work).sum(axis=0), busy + idle),
    )


def _table(
    store: Store, sums: list[Sums], work: bool, key: Key, title: str, of: str, query: str
) -> SelectedTable:
    """Return sums by the text that a query gives for each operator or kernel name, the longest first."""
    nameless = NO_MODULE if key == "module" else f"no {title.lower()}"
    labels: dict[int, str] = {number: label or nameless for number, label in store.rows(query)}
    codes = [number for one in sums for number in (one.operator if of == "op" else one.name).tolist()]
    inside: dict[str, list[int]] = {}
    for place, number in enumerate(codes):
        inside.setdefault(labels.get(number, "no operator"), []).append(place)
    values = values_of(sums, work)
    total = values.sum(axis=0)
    rows = []
    for label, places in inside.items():
        own, numbers = values[places].sum(axis=0), {codes[place] for place in places}
        id = f"{of}:{min(numbers)}" if len(numbers) == 1 and min(numbers) >= 0 else None
        rows.append(
            SelectedRow(id=id, label=label, time=int(own[TIME]), count=int(own[COUNT]), work=work_of(own))
        )
    rows.sort(key=lambda row: (-row.time, row.label))
    return SelectedTable(
        key=key, title=title, rows=rows[:_ROWS], total=int(total[TIME]), events=int(total[COUNT]),
        work=work_of(total), left_out=max(len(rows) - _ROWS, 0),
    )  # fmt: skip

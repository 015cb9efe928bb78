# SPDX-License-Identifier: Apache-2.0
"""Sums over a stretch of the timeline, from the tiles of every event.

Times are clipped to the stretch. Of a device: busy, the union of its events, and idle, by cause, add up to its part of
the recording. The tables have sums over streams, so that their total is at least what is busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pyprof.core.model import NO_MODULE
from pyprof.facts.device.partition import Union
from pyprof.store.files import Store
from pyprof.views.event_sums import COUNT, TIME, Part, Sums, parts_of, sums_of, values_of, work_of
from pyprof.views.models import (
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


class Grouping(NamedTuple):
    """Grouping of a table: rows are the texts that a query gives for operators or kernel names."""

    key: Key
    title: str
    of: Literal["op", "kernel"]
    query: str


GROUPINGS = (
    Grouping("type", "Type", "op", "select id, type from operator"),
    Grouping("operator", "Operator", "op", "select id, coalesce(name, op_id) from operator"),
    # The innermost module around each operator: what runs in modules inside it is theirs.
    Grouping("module", "Module", "op", "select id, module from operator"),
    Grouping("kernel", "Kernel", "kernel", "select id, coalesce(short_name, name) from kernel_name"),
    Grouping("kind", "Kind", "kernel", "select id, kind from kernel_name"),
)


def selection(
    store: Store,
    start: int,
    end: int,
    worker: int | None,
    work: bool = False,
    sort: str = "-time",
) -> Selection:
    """Return the sums, with the work of kernels if it is asked for. `sort`: of the rows, by time, count, name or a kind
    of work, with - the largest first. Raises Trouble for a stretch that is empty or has too many events."""
    parts = parts_of(store, start, end, worker, ("stream", "idle"))
    sums = sums_of(store, [part for part in parts if part.kind == "stream"], work)
    return Selection(
        start=start,
        end=end,
        devices=[_device(store, key, parts, sums, work) for key in _devices(parts)],
        tables=[_table(store, sums, work, grouping, sort) for grouping in GROUPINGS],
    )


def flame(store: Store, start: int, end: int, worker: int | None, work: bool = False) -> Flame:
    """Return the time of the events of devices in a stretch as a tree of the paths of their operators; with work, also
    the work of each node, and kernels below their operators. Raises Trouble as for the sums."""
    paths = {number: tuple((name or "").split("/")) for number, name in store.rows("select id, name from operator")}
    kernels = {
        number: name or "" for number, name in store.rows("select id, coalesce(short_name, name) from kernel_name")
    }
    groups = sums_of(store, parts_of(store, start, end, worker, ("stream",)), work)
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


def _devices(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Return the worker and number of each device that has some of the parts."""
    return sorted({(part.worker, part.device) for part in parts if part.device is not None and part.device >= 0})


def _device(
    store: Store, key: tuple[int, int], all_parts: Sequence[Part], all_sums: Sequence[Sums], work: bool
) -> SelectedDevice:
    """Return what was busy and idle on one of the devices."""
    parts = [part for part in all_parts if (part.worker, part.device) == key]
    sums = [one for one in all_sums if (one.worker, one.device) == key]
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
                places = np.flatnonzero(part.name == code)
                length = (part.end - part.start)[places]
                longest = int(length.argmax())
                causes.append(
                    IdleCause(
                        cause=labels[code],
                        time=int(length.sum()),
                        count=len(places),
                        gap=f"{part.worker}.{part.device}.{part.id[places[longest]]}",
                        longest=int(length[longest]),
                    )
                )
    causes.sort(key=lambda one: -one.time)
    idle = sum(one.time for one in causes)
    worker, device = key
    return SelectedDevice(
        worker=worker,
        worker_name=store.rows("select name from worker where id = ?", (worker,))[0][0],
        device=device,
        length=busy + idle,
        busy=busy,
        idle=idle,
        causes=causes,
        work=work_of(values_of(sums, work).sum(axis=0), busy + idle),
    )


def _table(store: Store, sums: Sequence[Sums], work: bool, grouping: Grouping, sort: str) -> SelectedTable:
    """Return sums by group."""
    values = values_of(sums, work)
    total = values.sum(axis=0)
    nameless = NO_MODULE if grouping.key == "module" else f"no {grouping.title.lower()}"
    labels: dict[int, str] = {number: label or nameless for number, label in store.rows(grouping.query)}
    numbers = [n for one in sums for n in (one.operator if grouping.of == "op" else one.name).tolist()]
    groups: dict[str, list[int]] = {}  # the rows of `values` in each
    for place, number in enumerate(numbers):
        groups.setdefault(labels.get(number, "no operator"), []).append(place)
    rows = []
    for label, places in groups.items():
        own = values[places].sum(axis=0)
        inside = {numbers[place] for place in places}
        id = f"{grouping.of}:{min(inside)}" if len(inside) == 1 and min(inside) >= 0 else None
        rows.append(SelectedRow(id=id, label=label, time=int(own[TIME]), count=int(own[COUNT]), work=work_of(own)))
    rows.sort(key=lambda row: (-row.time, row.label))
    key, down = sort.removeprefix("-"), sort.startswith("-")
    if key == "name":
        rows.sort(key=lambda row: row.label.casefold(), reverse=down)
    else:
        # What is unknown comes last in both directions.
        known = [row for row in rows if _value(row, key) is not None]
        known.sort(key=lambda row: _value(row, key) or 0, reverse=down)
        rows = known + [row for row in rows if _value(row, key) is None]
    return SelectedTable(
        key=grouping.key, title=grouping.title, rows=rows[:_ROWS], total=int(total[TIME]),
        events=int(total[COUNT]), work=work_of(total), left_out=max(len(rows) - _ROWS, 0),
    )  # fmt: skip


def _value(row: SelectedRow, key: str) -> float | None:
    if key in ("time", "count"):
        return float(getattr(row, key))
    value: float | None = getattr(row.work, key) if row.work is not None and row.work.kernels else None
    return value

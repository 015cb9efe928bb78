# SPDX-License-Identifier: Apache-2.0
"""GPU events (or operator events of the CPU) by worker and launch, in pieces: the table `event` and its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof import intervals
from pyprof.model import OPERATOR, Collective, Column, Ints, Rows
from pyprof.parse.rows import Linked
from pyprof.prof.attribution.attribute import TC_UNKNOWN, Costs
from pyprof.store import blocks
from pyprof.store.write import collectives, dimensions
from pyprof.store.write.columns import WORKER_SHIFT, pieces, plain, table, take
from pyprof.store.write.executions import Executions
from pyprof.store.write.peaks import Peaks


def tables(
    linked: Linked, costs: Costs, peaks: Peaks, worker: Ints, done: Executions, call_id: Ints,
    described: dict[int, Collective], replayed: dict[int, int],
) -> Iterator[tuple[str, pa.Table]]:  # fmt: skip
    """The events, the collectives among them (`described`, by row), those of replays (`replayed`: range of each, by
    GPU event) and the launch geometries. `worker` by row; `call_id`: id of each API call, the last of "none"."""
    rows = linked.rows
    order = _order(rows, worker)
    geometry, shapes = dimensions.geometry(rows, linked.occupancy)
    cpu = rows.kind == OPERATOR
    ordered = worker[order]
    is_collective = np.zeros(len(rows), bool)
    is_collective[list(described)] = True
    for piece in pieces(ordered):
        some = order[piece]
        first = int(np.searchsorted(ordered, ordered[piece.start]))
        identity = (int(ordered[piece.start]) << WORKER_SHIFT) + np.arange(
            piece.start - first, piece.stop - first
        )
        op, call = done.of_row[some], call_id[linked.row_launch[some]]
        tc = costs.tensor_cores[some]
        parts: dict[str, Any] = {
            name: take(column, some) for name, column in _plain(rows, costs, peaks).items()
        }
        parts |= peaks.of(some) | {
            "operator": done.operator[op], "op": done.id[op], "api": Column(call, call >= 0),
            "total": Column((rows.end - rows.start)[some] if cpu.any() else parts["dur"], cpu[some]),
            "geometry": Column(geometry[some], rows.grid.mask()[some]), "tc": Column(tc, tc != TC_UNKNOWN),
            "copied": linked.copied.take(some), "copy_from": linked.copied_from.take(some),
            "copy_to": linked.copied_to.take(some),
        }  # fmt: skip
        yield "event", table(id=identity, **parts)
        if replayed:
            at = [replayed.get(event, -1) for event in linked.row_gpu[some].tolist()]
            known = np.flatnonzero(np.array(at) >= 0)
            yield "replayed", table(event=identity[known], range=np.array(at)[known])
        told = np.flatnonzero(is_collective[some])
        if len(told):
            yield "collective", collectives.table(described, some[told], identity[told])
        launched = rows.launch_start.mask()[some] & ~cpu[some]
        parts["launch"] = Column(rows.launch_end.values[some] - rows.launch_start.values[some], launched)
        keys = [identity >> blocks.SHIFT, *(parts[name] for name in ("operator", "name", "kind")), tc]
        found, sums = blocks.reduce(keys, blocks.of_events(parts), blocks.EVENTS)
        yield "event_block", table(**dict(zip(("block", *blocks.EVENTS.keys), found)), **sums)
    yield "geometry", shapes


def _plain(rows: Rows, costs: Costs, peaks: Peaks) -> dict[str, Column | Ints]:
    """Columns that are as they are."""
    return {
        "kind": rows.kind, "device": rows.device, "stream": rows.stream, "name": rows.name, "site": rows.site,
        "start": rows.start, "dur": rows.duration, "flops": costs.flops, "dense": peaks.dense, "bytes": costs.bytes,
        "basis": costs.basis, "graph": rows.graph,
    }  # fmt: skip


def _order(rows: Rows, worker: Ints) -> Ints:
    """By worker, then launch (without a launch: start), start, device, stream, correlation, end, name."""
    launch = np.where(rows.launch_start.mask(), rows.launch_start.values, rows.start)
    order = intervals.order_by(
        launch, rows.start, lambda some: plain(rows.device.take(some)), lambda some: plain(rows.stream.take(some)),
        lambda some: plain(rows.correlation.take(some)), rows.end, rows.name,
    )  # fmt: skip
    return order[np.argsort(worker[order], kind="stable")].astype(np.int32)

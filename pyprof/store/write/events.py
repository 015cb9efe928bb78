# SPDX-License-Identifier: Apache-2.0
"""GPU events (or operator events of the CPU) by worker and launch, in pieces: the table `event`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.core import intervals
from pyprof.core.model import OPERATOR, Collective, Column, Ints, Rows
from pyprof.costs.attribution.attribute import TC_UNKNOWN, Costs
from pyprof.parse.rows import Linked
from pyprof.store.write import collectives, dimensions
from pyprof.store.write.columns import WORKER_SHIFT, pieces, plain, table, take
from pyprof.store.write.executions import Executions, launch_times
from pyprof.store.write.peaks import Peaks


def tables(
    linked: Linked, costs: Costs, peaks: Peaks, worker: Ints, executions: Executions, call_id: Ints,
    described: dict[int, Collective], replayed: dict[int, int],
) -> Iterator[tuple[str, pa.Table]]:  # fmt: skip
    """Yield the events, the collectives among them, those of replays, the launch geometries, and what limits events.

    `described`: collectives by row. `replayed`: the range of each replayed GPU event. `worker` by row. `call_id`: id
    of each API call; the last is for "none".
    """
    rows = linked.rows
    order = _order(rows, worker)
    geometry, shapes = dimensions.geometry(rows, linked.occupancy)
    cpu = rows.kind == OPERATOR
    ordered = worker[order]
    is_collective = np.zeros(len(rows), bool)
    is_collective[list(described)] = True
    for piece in pieces(ordered):
        index = order[piece]
        first = int(np.searchsorted(ordered, ordered[piece.start]))
        identity = (int(ordered[piece.start]) << WORKER_SHIFT) + np.arange(piece.start - first, piece.stop - first)
        op, call = executions.of_row[index], call_id[linked.row_launch[index]]
        tc = costs.tensor_cores[index]
        parts: dict[str, Any] = {
            name: take(column, index) for name, column in _copied_columns(rows, costs, peaks).items()
        }
        parts |= peaks.of(index) | {
            "operator": executions.operator[op], "op": executions.id[op], "api": Column(call, call >= 0),
            "total_ns": Column((rows.end - rows.start)[index] if cpu.any() else parts["duration_ns"], cpu[index]),
            "geometry": Column(geometry[index], rows.grid.mask()[index]), "tc": Column(tc, tc != TC_UNKNOWN),
            "copied_bytes": linked.copied.take(index), "copy_from": linked.copied_from.take(index),
            "copy_to": linked.copied_to.take(index),
        }  # fmt: skip
        yield "event", table(id=identity, **parts)
        if replayed:
            at = [replayed.get(event, -1) for event in linked.row_gpu[index].tolist()]
            in_operator = np.flatnonzero(np.array(at) >= 0)
            yield "replayed", table(event=identity[in_operator], range=np.array(at)[in_operator])
        collective_places = np.flatnonzero(is_collective[index])
        if len(collective_places):
            yield (
                "collective",
                collectives.table(described, index[collective_places], identity[collective_places]),
            )
    yield "geometry", shapes
    yield "verdict", peaks.verdicts()


def _copied_columns(rows: Rows, costs: Costs, peaks: Peaks) -> dict[str, Column | Ints]:
    """Return the columns that are stored unchanged."""
    return {
        "kind": rows.kind, "device": rows.device, "stream": rows.stream, "name": rows.name, "site": rows.site,
        "start_ns": rows.start, "duration_ns": rows.duration, "flops": costs.flops, "dense_flops": peaks.dense,
        "bytes": costs.bytes, "basis": costs.basis, "graph": rows.graph,
    }  # fmt: skip


def _order(rows: Rows, worker: Ints) -> Ints:
    """Return the order of events: by worker, then launch (`launch_times`), start, device, stream, correlation, end,
    name."""
    order = intervals.order_by(
        launch_times(rows, worker),
        rows.start,
        lambda index: plain(rows.device.take(index)),
        lambda index: plain(rows.stream.take(index)),
        lambda index: plain(rows.correlation.take(index)),
        rows.end,
        rows.name,
    )
    return order[np.argsort(worker[order], kind="stable")].astype(np.int32)

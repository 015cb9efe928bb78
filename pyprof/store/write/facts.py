# SPDX-License-Identifier: Apache-2.0
"""Turn a recording into the tables of facts, one after the other; data that is no longer needed is freed at once.

At 10 M kernels the ranges, their nesting, the rows and the tables do not fit in memory together: the order of the
steps below follows from their needs. Ids are worker << 40 | number; numbers follow the start (of events the launch),
so that a stretch of time is a range of ids. See schema.sql for the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.core.marker import is_backward
from pyprof.core.model import Device, Ints, Rows, Trace
from pyprof.costs.attribution.attribute import USED
from pyprof.costs.columns import View
from pyprof.costs.hardware.machine import Hardware, recorded
from pyprof.parse.backward_links import pair
from pyprof.parse.instances import instances
from pyprof.parse.join import nest_spans
from pyprof.parse.rows import linked
from pyprof.parse.trace_builder import empty_ops, take
from pyprof.store.moments import BEFORE
from pyprof.store.write import collectives, columns, dimensions, events, host_events
from pyprof.store.write.columns import NONE, Stacks
from pyprof.store.write.executions import ApiCalls, Executions
from pyprof.store.write.peaks import Peaks


def tables(trace: Trace, on_gpu: bool = False) -> Iterator[tuple[str, pa.Table]]:
    """Yield every table of facts, large ones in pieces. Empties the trace on the way, so the caller must not use it
    again.

    `on_gpu`: other recordings of the run have GPU events, so that events are those of GPUs, even if this one has none.
    Raises FormatError if the trace has neither kernels nor operators, unless `on_gpu`.
    """
    workers = _workers(trace)
    thread_worker: Ints = np.r_[workers[[t.process for t in trace.threads]], NONE].astype(np.int32)
    stacks, replayed = Stacks(), dict[int, int]()
    yield from host_events.ranges_of(trace, thread_worker, stacks, replayed)
    yield from host_events.tables(trace, thread_worker)
    yield "step", host_events.steps(trace, workers)
    yield "pause", host_events.pauses(trace, workers)
    yield "loader_batch", host_events.loader_batches(trace, workers)
    nested = nest_spans(trace, empties=True)
    forward = pair(trace, nested)
    executed_instances = instances(trace, nested, forward)
    joined = linked(trace, nested, forward, on_gpu)
    described = collectives.of_rows(trace, joined)
    del nested, forward
    trace.ops, trace.gpu = empty_ops(), take(trace.gpu, np.empty(0, np.int64))
    rows, launches = joined.rows, trace.launches
    row_process: Ints = np.where(rows.process < 0, len(trace.processes), rows.process)
    calls = ApiCalls(launches, thread_worker)
    executions = Executions(
        executed_instances, joined, calls, launches, trace.strings, workers, thread_worker, row_process
    )
    del executed_instances
    for table in calls.tables(trace.strings, executions.id[executions.of_call]):
        yield "api", table
    costs = View(rows).costs
    for table in executions.tables(rows, costs.tensor_cores == USED):
        yield "op", table
    row_worker = workers[row_process]
    yield from _dimension_tables(trace, rows, executions, row_worker, workers, stacks)
    peaks = Peaks(rows, costs, *_hardware(trace, row_process))
    call_id = calls.id
    del calls, launches
    trace.launches = take(trace.launches, np.empty(0, np.int64))
    executions.keep_operators()
    rows.keep_events()
    joined = joined.without_calls()
    yield from events.tables(joined, costs, peaks, row_worker, executions, call_id, described, replayed)


def _dimension_tables(
    trace: Trace, rows: Rows, executions: Executions, row_worker: Ints, workers: Ints, stacks: Stacks
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the dimension tables."""
    texts = [(number, file, text) for number, (file, text) in enumerate(sorted(trace.sources.items()))]
    yield "source", columns.rows({"id": int, "file": str, "text": str}, texts)
    yield "operator", dimensions.operators(executions.operators, stacks, trace)
    yield "kernel_name", dimensions.kernel_names(rows)
    yield "site", dimensions.sites(rows.sites, stacks)
    frames: list[tuple[Any, ...]] = [(i, "\n".join(stack)) for i, stack in enumerate(stacks.rows)]
    yield "stack", columns.rows({"id": int, "frames": str}, frames)
    extents = {}
    for worker in workers[workers >= 0].tolist():
        own = (executions.worker == worker) & (executions.start > BEFORE)
        events_ = row_worker == worker
        starts = [int(part.min()) for part in (executions.start[own], rows.start[events_]) if len(part)]
        ends = [int(part.max()) for part in (executions.end[own], rows.end[events_]) if len(part)]
        extents[worker] = min(starts, default=0), max(ends, default=0)
    yield "worker", dimensions.workers(trace, workers, extents)
    yield "device", dimensions.devices(trace, rows, row_worker, workers)
    yield "lost", columns.rows({"reason": str, "count": int}, rows.lost.items())


def _workers(trace: Trace) -> Ints:
    """Return the worker of each process, -1 for one without operators and GPU events; the last is for events without a
    process."""
    process = np.array([thread.process for thread in trace.threads] or [0], np.int64)
    is_worker = np.zeros(len(trace.processes) + 1, bool)
    is_worker[trace.gpu.process] = True  # -1, unknown, is the last
    is_worker[process[trace.ops.thread]] = True
    is_worker[process[trace.ranges.thread[trace.ranges.operator]]] = True
    # A call, or a node of autograd without a number, is an operator by its name.
    named = np.array([text.startswith("{") or is_backward(text) for text in trace.strings.texts] or [False], bool)
    is_worker[process[trace.ranges.thread[named[trace.ranges.text]]]] = True
    out: Ints = np.where(is_worker, np.cumsum(is_worker) - 1, NONE)
    return out


def _hardware(trace: Trace, row_process: Ints) -> tuple[list[Hardware], Ints]:
    """Return the distinct sets of devices of processes, usually one, and the number of the set of each row."""
    sets: dict[tuple[Device, ...], int] = {}
    of_process = []
    for process in range(len(trace.processes) + 1):
        own = tuple(d._replace(process=None) for d in trace.devices if d.process in (None, process))
        of_process.append(sets.setdefault(own, len(sets)))
    hardware = [recorded(devices, trace.meta) for devices in sets]
    return hardware, np.array(of_process, np.int32)[row_process]

# SPDX-License-Identifier: Apache-2.0
"""From a recording to the tables of facts, one after the other; what is no longer needed is let go at once.

At 10 M kernels the ranges, their nesting, the rows and the tables do not fit side by side: the order of the steps below
is that of what they need. Ids are worker << 40 | number; numbers follow the start (of events the launch), so that a
stretch of time is a range of ids. See schema.sql for the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.marker import is_backward
from pyprof.model import START_END, Device, Ints, Rows, Trace
from pyprof.parse.backward_links import pair
from pyprof.parse.instances import instances
from pyprof.parse.join import nest_spans
from pyprof.parse.rows import linked
from pyprof.parse.trace_builder import empty_ops, take
from pyprof.prof.attribution.attribute import USED
from pyprof.prof.columns import View
from pyprof.prof.hardware.machine import Hardware, recorded
from pyprof.store.write import collectives, columns, dimensions, events, host_events
from pyprof.store.write.columns import NONE, Stacks
from pyprof.store.write.executions import ApiCalls, Executions
from pyprof.store.write.peaks import Peaks


def tables(trace: Trace) -> Iterator[tuple[str, pa.Table]]:
    """Every table of facts, large ones in pieces. Empties the trace on the way: it is the caller's to lose. Raises
    FormatError if it has neither kernels nor operators."""
    workers = _workers(trace)
    thread_worker: Ints = np.r_[workers[[t.process for t in trace.threads]], NONE].astype(np.int32)
    stacks, replayed = Stacks(), dict[int, int]()
    yield from host_events.ranges_of(trace, thread_worker, stacks, replayed)
    yield from host_events.tables(trace, thread_worker)
    yield "step", host_events.steps(trace, workers)
    yield "pause", host_events.pauses(trace, workers)
    found = nest_spans(trace)
    trace.ranges = take(trace.ranges, np.flatnonzero(trace.ranges.kind == START_END))
    forward = pair(trace, found)
    executed = instances(trace, found, forward)
    joined = linked(trace, found, forward)
    described = collectives.of_rows(trace, joined)
    del found, forward
    trace.ops, trace.gpu = empty_ops(), take(trace.gpu, np.empty(0, np.int64))
    rows, launches = joined.rows, trace.launches
    row_process: Ints = np.where(rows.process < 0, len(trace.processes), rows.process)
    calls = ApiCalls(launches, thread_worker)
    done = Executions(executed, joined, calls, launches, trace.strings, workers, thread_worker, row_process)
    del executed
    for table in calls.tables(trace.strings, done.id[done.of_call]):
        yield "api", table
    costs = View(rows).costs
    yield from done.tables(rows, costs.tensor_cores == USED)
    row_worker = workers[row_process]
    yield from _last(trace, rows, done, row_worker, workers, stacks)
    peaks = Peaks(rows, costs, *_hardware(trace, row_process))
    yield from events.tables(joined, costs, peaks, row_worker, done, calls.id, described, replayed)


def _last(
    trace: Trace, rows: Rows, done: Executions, row_worker: Ints, workers: Ints, stacks: Stacks
) -> Iterator[tuple[str, pa.Table]]:
    """The dimensions."""
    texts = [(number, file, text) for number, (file, text) in enumerate(sorted(trace.sources.items()))]
    yield "source", columns.rows({"id": int, "file": str, "text": str}, texts)
    yield "operator", dimensions.operators(done.operators.rows, stacks, trace)
    yield "kernel_name", dimensions.kernel_names(rows)
    yield "site", dimensions.sites(rows.sites, stacks)
    frames: list[tuple[Any, ...]] = [(i, "\n".join(stack)) for i, stack in enumerate(stacks.rows)]
    yield "stack", columns.rows({"id": int, "frames": str}, frames)
    extents = {}
    for worker in workers[workers >= 0].tolist():
        mine, events_ = done.worker == worker, row_worker == worker
        starts = [int(part.min()) for part in (done.start[mine], rows.start[events_]) if len(part)]
        ends = [int(part.max()) for part in (done.end[mine], rows.end[events_]) if len(part)]
        extents[worker] = min(starts, default=0), max(ends, default=0)
    yield "worker", dimensions.workers(trace, workers, extents)
    yield "device", dimensions.devices(trace, rows, row_worker, workers)
    yield "lost", columns.rows({"reason": str, "count": int}, rows.lost.items())


def _workers(trace: Trace) -> Ints:
    """Worker of each process, -1 for one without operators and GPU events; the last is of events of no process."""
    process = np.array([thread.process for thread in trace.threads] or [0], np.int64)
    found = np.zeros(len(trace.processes) + 1, bool)
    found[trace.gpu.process] = True  # -1, unknown, is the last
    found[process[trace.ops.thread]] = True
    found[process[trace.ranges.thread[trace.ranges.operator]]] = True
    # A call, or a node of autograd without a number: they are operators by their names.
    named = np.array(
        [text.startswith("{") or is_backward(text) for text in trace.strings.texts] or [False], bool
    )
    found[process[trace.ranges.thread[named[trace.ranges.text]]]] = True
    out: Ints = np.where(found, np.cumsum(found) - 1, NONE)
    return out


def _hardware(trace: Trace, row_process: Ints) -> tuple[list[Hardware], Ints]:
    """The sets of devices that processes have, as a rule one, and which of them is that of each row."""
    sets: dict[tuple[Device, ...], int] = {}
    of_process = []
    for process in range(len(trace.processes) + 1):
        mine = tuple(d._replace(process=None) for d in trace.devices if d.process in (None, process))
        of_process.append(sets.setdefault(mine, len(sets)))
    found = [recorded(devices, trace.meta) for devices in sets]
    return found, np.array(of_process, np.int32)[row_process]

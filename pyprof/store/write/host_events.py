# SPDX-License-Identifier: Apache-2.0
"""Tables of events on the CPU other than operators: ranges, waits for the data loader, file I/O, memory, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core import intervals
from pyprof.core.marker import user_frames
from pyprof.core.model import Column, Ints, Trace
from pyprof.store.kinds import OPERATOR_EVENT, PYTHON_FUNCTION
from pyprof.store.write.columns import Stacks, ids, plain, rows, table

# torch's names of the range around the next of a DataLoader, of a DataPipe.
_WAITS = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
# Calls that work on a file, as Nsight's OSRT trace names them. Waits (poll, futex) and sockets are not included.
_FILE_CALLS = re.compile(
    r"(?:p?read|p?write)v?2?(?:64)?|f(?:read|write)(?:_unlocked)?|fgets|getline|(?:f?open|openat)(?:64)?|f?close|fsync"
    r"|fdatasync|fflush|sendfile(?:64)?|mmap(?:64)?|munmap|f?stat(?:64)?|lseek(?:64)?"
)


def tables(trace: Trace, thread_worker: Ints) -> Iterator[tuple[str, pa.Table]]:
    """Yield all tables except the ranges; `thread_worker`: worker of each thread, -1 to drop its events."""
    yield "io", _io(trace, thread_worker)
    yield "memory", _memory(trace, thread_worker)
    yield "string", _strings(trace)
    cells = (
        (number, int(thread_worker[number]), thread.tid, None)
        for number, thread in enumerate(trace.threads)
        if thread_worker[number] >= 0
    )
    yield "thread", rows({"id": int, "worker": int, "tid": int, "name": str}, cells)


def ranges_of(
    trace: Trace, thread_worker: Ints, stacks: Stacks, replayed: dict[int, int]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the ranges, and the data loader's waits among them.

    Fills `replayed`: for each GPU event, by its row, that a graph's replay assigned to an operator event, the id of
    that event.
    """
    ranges, ops, calls = trace.ranges, trace.ops, trace.functions
    n = len(ranges) + len(ops) + len(calls)
    end = ranges.end.values
    if not ranges.end.mask().all():
        end = np.where(ranges.end.mask(), end, ranges.start)
    thread, start, text = (
        _joined(ranges.thread, ops.thread, calls.thread),
        _joined(ranges.start, ops.start, calls.start),
        _joined(ranges.text, ops.name, calls.name),
    )
    length = _joined(end, ops.end, calls.end) - start
    kind = _joined(
        ranges.kind, np.full(len(ops), OPERATOR_EVENT, np.int8), np.full(len(calls), PYTHON_FUNCTION, np.int8)
    )
    worker = thread_worker[thread]
    order = intervals.order_by(start, thread, lambda index: -length[index], lambda index: _nesting_order(trace, index))
    if (worker[1:] != worker[:-1]).any() or (len(worker) and worker[0] < 0):
        order = order[np.argsort(worker[order], kind="stable")]
        order = order[worker[order] >= 0]
    columns = {"seq": ranges.seq, "args": Column.missing(n), "stack": Column.missing(n)}
    if n > len(ranges):
        described = np.array([name.startswith("{") for name in trace.strings.texts], bool)[ops.text]
        stack_codes = np.array([stacks.code(user_frames(stack.frames)) for stack in trace.stacks] or [0], np.int64)
        columns = {
            "seq": _of_middle(len(ranges), ops.seq, len(calls), ranges.seq),
            "args": _of_middle(len(ranges), Column(ops.text, described), len(calls)),
            "stack": _of_middle(len(ranges), Column(stack_codes[ops.stack], ops.stack >= 0), len(calls)),
        }
    identity = ids(worker[order])
    yield "range", table(
        id=identity, thread=thread[order], kind=kind[order], start_ns=start[order],
        duration_ns=length[order], text=text[order], **{name: column.take(order) for name, column in columns.items()},
    )  # fmt: skip
    waits = np.array([name.startswith(_WAITS) for name in trace.strings.texts] or [False], bool)
    index = order[waits[text[order]]]
    yield (
        "dataloader",
        table(id=np.arange(len(index)), thread=thread[index], start_ns=start[index], duration_ns=length[index]),
    )
    placed = np.flatnonzero(trace.gpu.op >= 0)
    if len(placed):
        of_row = np.full(len(text), -1, np.int64)
        of_row[order] = identity
        replayed.update(zip(placed.tolist(), of_row[len(ranges) + trace.gpu.op[placed]].tolist()))


def _joined(first: Ints, second: Ints, third: Ints) -> Ints:
    """Concatenate columns of three tables, of which the last two are empty in large recordings."""
    return np.r_[first, second, third] if len(second) or len(third) else first


def _nesting_order(trace: Trace, index: Ints) -> Ints:
    """Return the order of nesting for equal times: a range is around a function, which is around operators, which are
    in the order in which they began."""
    if not len(trace.ops) and not len(trace.functions):
        return np.zeros(len(index), np.int8)
    parts = np.full(len(trace.ranges), -2), plain(trace.ops.order), np.full(len(trace.functions), -1)
    return np.concatenate(parts)[index]


def _of_middle(before: int, middle: Column, after: int, first: Column | None = None) -> Column:
    """Return a column that only the second of three tables has, and perhaps the first."""
    missing = np.zeros(after, np.int64)
    head = Column.missing(before) if first is None else first
    return Column(np.r_[head.values, middle.values, missing], np.r_[head.mask(), middle.mask(), missing.astype(bool)])


def _io(trace: Trace, thread_worker: Ints) -> pa.Table:
    """Return file calls. PyProf's own capture records only these, under its own names."""
    io, ours = trace.io, trace.format == "capture"
    files = np.array(
        [ours or _FILE_CALLS.fullmatch(name) is not None for name in trace.strings.texts] or [False], bool
    )[io.name]
    index = np.flatnonzero(files & (thread_worker[io.thread] >= 0))
    index = index[np.argsort(io.start[index], kind="stable")]
    return table(
        id=np.arange(len(index)), thread=io.thread[index], name=io.name[index], start_ns=io.start[index],
        duration_ns=io.end[index] - io.start[index],
    )  # fmt: skip


def _memory(trace: Trace, thread_worker: Ints) -> pa.Table:
    events = trace.memory
    index = np.flatnonzero(thread_worker[events.thread] >= 0)
    order = index[intervals.order_by(events.time[index], events.thread[index])]
    order = order[np.argsort(thread_worker[events.thread[order]], kind="stable")]
    columns = {"device": events.device, "address": events.address, "allocated_bytes": events.allocated,
               "reserved_bytes": events.reserved}  # fmt: skip
    return table(
        id=ids(thread_worker[events.thread[order]]), thread=events.thread[order], time_ns=events.time[order],
        bytes=events.bytes[order], **{name: column.take(order) for name, column in columns.items()},
    )  # fmt: skip


def _strings(trace: Trace) -> pa.Table:
    used = np.zeros(len(trace.strings), bool)
    named = (
        trace.ranges.text,
        trace.ops.name,
        trace.ops.text,
        trace.launches.name,
        trace.io.name,
        trace.functions.name,
    )
    for codes in named:
        used[codes] = True
    # Many belong to dropped events; keep them all then, because a reader takes gaps for damage.
    if used.sum() * 2 < len(used):
        used[:] = True
    return rows({"id": int, "text": str}, ((i, trace.strings[i]) for i in np.flatnonzero(used).tolist()))


def pauses(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """Return time that is not the program's, or has no operators."""
    records = trace.pauses
    worker = worker_of_process[records.process]
    keep = np.flatnonzero(worker >= 0)
    return table(
        worker=worker[keep],
        start_ns=records.start[keep],
        end_ns=records.end[keep],
        waited=records.waited[keep].astype(np.int64),
    )


def loader_batches(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """Return the batches that workers of a data loader made."""
    batches = trace.loader_batches
    worker = worker_of_process[batches.process]
    index = np.flatnonzero(worker >= 0)
    index = index[np.argsort(batches.start[index], kind="stable")]

    def columns(*names: str, unit: str = "") -> dict[str, Any]:
        values = ((name, getattr(batches, name)) for name in names)
        return {name + unit: value.take(index) if isinstance(value, Column) else value[index] for name, value in values}

    return table(
        id=np.arange(len(index)),
        worker=worker[index],
        **columns("loader", "pid", "number", "samples", "slowest_sample"),
        **columns(
            "start", "collate_start", "collate_end", "send_end", "pin_start", "pin_end", "wait_start", "wait_end",
            "cpu", "send_cpu", "slowest", unit="_ns",
        ),
    )  # fmt: skip


def steps(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """Return the program's step marks; of two with one number the first."""
    marks = trace.steps
    worker = worker_of_process[marks.process]
    keep = np.flatnonzero(worker >= 0)
    keep = keep[~pd.DataFrame({"w": worker[keep], "n": marks.number[keep]}).duplicated().to_numpy()]
    return table(worker=worker[keep], number=marks.number[keep], start_ns=marks.start[keep], end_ns=marks.end[keep])

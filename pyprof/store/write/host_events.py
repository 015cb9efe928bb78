# SPDX-License-Identifier: Apache-2.0
"""Tables of what happened on the CPU beside operators: ranges, waits for the data loader, file I/O, memory, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof import intervals
from pyprof.marker import user_frames
from pyprof.model import Column, Ints, Trace
from pyprof.store.write.columns import Stacks, ids, plain, rows, table

# What torch calls the range around the next of a DataLoader, of a DataPipe.
_WAITS = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
_OPERATOR_EVENT, _FUNCTION = 3, 4
# Calls that work on a file, as Nsight's OSRT trace names them. Waits (poll, futex) and sockets are none.
_FILE_CALLS = re.compile(
    r"(?:p?read|p?write)v?2?(?:64)?|f(?:read|write)(?:_unlocked)?|fgets|getline|(?:f?open|openat)(?:64)?|f?close|fsync"
    r"|fdatasync|fflush|sendfile(?:64)?|mmap(?:64)?|munmap|f?stat(?:64)?|lseek(?:64)?"
)


def tables(trace: Trace, thread_worker: Ints) -> Iterator[tuple[str, pa.Table]]:
    """All but the ranges; `thread_worker`: worker of each thread, -1 for one whose events are not kept."""
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
    """Ranges, and the data loader's waits among them. Fills `replayed` with the id of the operator event of each GPU
    event, by its row, that a graph's replay told of one."""
    ranges, ops, calls = trace.ranges, trace.ops, trace.functions
    n = len(ranges) + len(ops) + len(calls)
    end = ranges.end.values
    if not ranges.end.mask().all():
        end = np.where(ranges.end.mask(), end, ranges.start)
    thread, start, text = (_joined(ranges.thread, ops.thread, calls.thread),
                           _joined(ranges.start, ops.start, calls.start),
                           _joined(ranges.text, ops.name, calls.name))  # fmt: skip
    length = _joined(end, ops.end, calls.end) - start
    kind = _joined(
        ranges.kind, np.full(len(ops), _OPERATOR_EVENT, np.int8), np.full(len(calls), _FUNCTION, np.int8)
    )
    worker = thread_worker[thread]
    order = intervals.order_by(start, thread, lambda some: -length[some], lambda some: _turns(trace, some))
    if (worker[1:] != worker[:-1]).any() or (len(worker) and worker[0] < 0):
        order = order[np.argsort(worker[order], kind="stable")]
        order = order[worker[order] >= 0]
    columns = {"seq": ranges.seq, "args": Column.missing(n), "stack": Column.missing(n)}
    if n > len(ranges):
        described = np.array([name.startswith("{") for name in trace.strings.texts], bool)[ops.text]
        found = np.array([stacks.code(user_frames(one.frames)) for one in trace.stacks] or [0], np.int64)
        columns = {
            "seq": _of_middle(len(ranges), ops.seq, len(calls), ranges.seq),
            "args": _of_middle(len(ranges), Column(ops.text, described), len(calls)),
            "stack": _of_middle(len(ranges), Column(found[ops.stack], ops.stack >= 0), len(calls)),
        }
    identity = ids(worker[order])
    yield "range", table(
        id=identity, thread=thread[order], kind=kind[order], start=start[order],
        dur=length[order], text=text[order], **{name: column.take(order) for name, column in columns.items()},
    )  # fmt: skip
    waits = np.array([name.startswith(_WAITS) for name in trace.strings.texts] or [False], bool)
    some = order[waits[text[order]]]
    yield (
        "dataloader",
        table(id=np.arange(len(some)), thread=thread[some], start=start[some], dur=length[some]),
    )
    placed = np.flatnonzero(trace.gpu.op >= 0)
    if len(placed):
        of_row = np.full(len(text), -1, np.int64)
        of_row[order] = identity
        replayed.update(zip(placed.tolist(), of_row[len(ranges) + trace.gpu.op[placed]].tolist()))


def _joined(first: Ints, second: Ints, third: Ints) -> Ints:
    """Columns of three tables one after the other, of which the last two are empty in large recordings."""
    return np.r_[first, second, third] if len(second) or len(third) else first


def _turns(trace: Trace, some: Ints) -> Ints:
    """Of equal times a range is around a function, that around operators, these in the order in which they began."""
    if not len(trace.ops) and not len(trace.functions):
        return np.zeros(len(some), np.int8)
    parts = np.full(len(trace.ranges), -2), plain(trace.ops.order), np.full(len(trace.functions), -1)
    return np.concatenate(parts)[some]


def _of_middle(before: int, middle: Column, after: int, first: Column | None = None) -> Column:
    """A column that the second of three tables has, and the first may have."""
    missing = np.zeros(after, np.int64)
    head = Column.missing(before) if first is None else first
    return Column(
        np.r_[head.values, middle.values, missing], np.r_[head.mask(), middle.mask(), missing.astype(bool)]
    )


def _io(trace: Trace, thread_worker: Ints) -> pa.Table:
    """File calls. Our own capture records nothing else, under its own names."""
    io, ours = trace.io, trace.format == "capture"
    files = np.array(
        [ours or _FILE_CALLS.fullmatch(name) is not None for name in trace.strings.texts] or [False], bool
    )[io.name]
    mine = np.flatnonzero(files & (thread_worker[io.thread] >= 0))
    mine = mine[np.argsort(io.start[mine], kind="stable")]
    return table(
        id=np.arange(len(mine)), thread=io.thread[mine], name=io.name[mine], start=io.start[mine],
        dur=io.end[mine] - io.start[mine],
    )  # fmt: skip


def _memory(trace: Trace, thread_worker: Ints) -> pa.Table:
    found = trace.memory
    mine = np.flatnonzero(thread_worker[found.thread] >= 0)
    order = mine[intervals.order_by(found.time[mine], found.thread[mine])]
    order = order[np.argsort(thread_worker[found.thread[order]], kind="stable")]
    columns = ("device", "address", "allocated", "reserved")
    return table(
        id=ids(thread_worker[found.thread[order]]), thread=found.thread[order], time=found.time[order],
        bytes=found.bytes[order], **{name: getattr(found, name).take(order) for name in columns},
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
    # Many are of events that were left out: a reader takes gaps for damage.
    if used.sum() * 2 < len(used):
        used[:] = True
    return rows({"id": int, "text": str}, ((i, trace.strings[i]) for i in np.flatnonzero(used).tolist()))


def pauses(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """Time that is not the program's, or has no operators."""
    found = trace.pauses
    worker = worker_of_process[found.process]
    keep = np.flatnonzero(worker >= 0)
    return table(
        worker=worker[keep],
        start=found.start[keep],
        end=found.end[keep],
        waited=found.waited[keep].astype(np.int64),
    )


def steps(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """The program's marks; of two with one number the first."""
    found = trace.steps
    worker = worker_of_process[found.process]
    keep = np.flatnonzero(worker >= 0)
    keep = keep[~pd.DataFrame({"w": worker[keep], "n": found.number[keep]}).duplicated().to_numpy()]
    return table(worker=worker[keep], number=found.number[keep], start=found.start[keep], end=found.end[keep])

# SPDX-License-Identifier: Apache-2.0
"""Tables of what happened on the CPU beside operators: ranges, waits for the data loader, file I/O, memory, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof import intervals
from pyprof.db.columns import ids, rows, table
from pyprof.model import Column, Ints, Trace

_WAIT = "enumerate(DataLoader)#"  # what torch calls the range around a DataLoader's next
_OPERATOR_EVENT, _FUNCTION = 3, 4
# Calls that work on a file, as Nsight's OSRT trace names them. Waits (poll, futex) and sockets are none.
_FILE_CALLS = re.compile(
    r"(?:p?read|p?write)v?2?(?:64)?|f(?:read|write)(?:_unlocked)?|fgets|getline|(?:f?open|openat)(?:64)?|f?close|fsync"
    r"|fdatasync|fflush|sendfile(?:64)?|mmap(?:64)?|munmap|f?stat(?:64)?|lseek(?:64)?"
)


def tables(trace: Trace, thread_worker: Ints) -> Iterator[tuple[str, pa.Table]]:
    """All of them; `thread_worker`: worker of each thread, -1 for one whose events are not kept."""
    yield from _ranges(trace, thread_worker)
    yield "io", _io(trace, thread_worker)
    yield "memory", _memory(trace, thread_worker)
    yield "string", _strings(trace)
    cells = (
        (number, int(thread_worker[number]), thread.tid, None)
        for number, thread in enumerate(trace.threads)
        if thread_worker[number] >= 0
    )
    yield "thread", rows({"id": int, "worker": int, "tid": int, "name": str}, cells)


def _ranges(trace: Trace, thread_worker: Ints) -> Iterator[tuple[str, pa.Table]]:
    ranges, ops, calls = trace.ranges, trace.ops, trace.functions
    end = np.where(ranges.end.mask(), ranges.end.values, ranges.start)
    thread, start, text, kind, seq = ranges.thread, ranges.start, ranges.text, ranges.kind, ranges.seq
    if len(ops):
        thread, start, end = np.r_[thread, ops.thread], np.r_[start, ops.start], np.r_[end, ops.end]
        text, kind = np.r_[text, ops.name], np.r_[kind, np.full(len(ops), _OPERATOR_EVENT)]
        seq = Column(np.r_[seq.values, ops.seq.values], np.r_[seq.mask(), ops.seq.mask()])
    if len(calls):
        thread, start, end = np.r_[thread, calls.thread], np.r_[start, calls.start], np.r_[end, calls.end]
        text, kind = np.r_[text, calls.name], np.r_[kind, np.full(len(calls), _FUNCTION)]
        seq = Column(np.r_[seq.values, calls.start], np.r_[seq.mask(), np.zeros(len(calls), bool)])
    described = np.array([name.startswith("{") for name in trace.strings.texts] or [False], bool)[ops.text]
    first = len(ranges)
    args, has = np.zeros(len(text), np.int64), np.zeros(len(text), bool)
    args[first : first + len(ops)], has[first : first + len(ops)] = ops.text, described
    length, worker = end - start, thread_worker[thread]
    order = intervals.order_by(start, thread, lambda some: -length[some])
    if (worker[1:] != worker[:-1]).any():
        order = order[np.argsort(worker[order], kind="stable")]
        order = order[worker[order] >= 0]
    yield "range", table(
        id=ids(worker[order]), thread=thread[order], kind=kind[order], start=start[order], dur=length[order],
        text=text[order], seq=seq.take(order), args=Column(args, has).take(order),
    )  # fmt: skip
    waits = np.array([name.startswith(_WAIT) for name in trace.strings.texts] or [False], bool)
    some = order[waits[text[order]]]
    yield (
        "dataloader",
        table(id=np.arange(len(some)), thread=thread[some], start=start[some], dur=length[some]),
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
    return rows({"id": int, "text": str}, ((i, trace.strings[i]) for i in np.flatnonzero(used).tolist()))


def steps(trace: Trace, worker_of_process: Ints) -> pa.Table:
    """The program's marks; of two with one number the first."""
    found = trace.steps
    worker = worker_of_process[found.process]
    keep = np.flatnonzero(worker >= 0)
    keep = keep[~pd.DataFrame({"w": worker[keep], "n": found.number[keep]}).duplicated().to_numpy()]
    return table(worker=worker[keep], number=found.number[keep], start=found.start[keep], end=found.end[keep])

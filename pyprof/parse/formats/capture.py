# SPDX-License-Identifier: Apache-2.0
"""Files of PyProf's own capture: the tables of an Nsight Systems export plus PYPROF_*.

PYPROF_OP has torch's RecordFunction events, PYPROF_STEP the marks of the training loop, PYPROF_META facts of the
run, PYPROF_LOST what the capture had to drop, PYPROF_KERNEL attributes of kernels that the export's table has no
column for. The texts of calls have numbers of stacks, PYPROF_CALL_STACK, which are put back when they are read.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.core.errors import WHERE, FormatError, install
from pyprof.core.marker import REFERENCE, with_stack
from pyprof.core.model import (
    KERNEL,
    READING,
    Column,
    LoaderBatches,
    Memory,
    Ops,
    Pauses,
    Steps,
    Trace,
    no_loader_batches,
)
from pyprof.core.sqlite_file import Database, concat, is_sqlite, required, tables
from pyprof.parse.formats import FORMATS
from pyprof.parse.formats.nsys import TIMED, Reader
from pyprof.parse.heads import Head, of_export
from pyprof.parse.trace_builder import count, take

VERSION, VERSIONS = "2", ("1", "2")  # 1 has no PYPROF_CALL_STACK
MOST_STACKS = 1 << 29  # characters of all stacks of calls, put back into the texts
_MOST_LOST = 1 << 53  # of a reason; else its number is not known, and not 0
LARGEST_SOURCE = 2 << 20  # characters of a file
# Calls read the system's clock. Operators have the processor's ticks, which torch converts by that clock's readings at
# both ends: up to 80 ns off in 150 recordings on a busy machine. From the beginning of a call to that of its first
# operator it takes 550 ns and more, so that no order of beginnings changes within this limit.
CLOCKS_NS = 500


@FORMATS.register("capture")
class Capture:
    @staticmethod
    def sniff(path: Path) -> bool:
        return is_sqlite(path) and "PYPROF_META" in tables(path)

    @staticmethod
    def head(path: Path) -> Head:
        return of_export(path, ("PYPROF_OP", *TIMED))

    @staticmethod
    def load(path: Path) -> Trace:
        with Database(path) as database:
            reader = _Reader(database)
            facts = {str(name): str(value) for name, value in database.rows("PYPROF_META", ("name", "value"))}
            version = facts.get("format_version", VERSION)
            if version not in VERSIONS:
                raise FormatError(
                    f"{path} was written in format {version}, this PyProf reads {VERSION}. "
                    f"Upgrade: {install()} {WHERE} of a later version."
                )
            ops, steps = _ops(reader), _steps(reader)
            trace = reader.trace("capture", ops, steps, _memory(reader), _pauses(reader))
            trace.slack = CLOCKS_NS
            trace.loader_batches = _loader_batches(reader, trace)
            _shared_memory(database, trace)
            trace.meta.update(facts)
            trace.sources = _sources(database, trace)
            for reason, number in database.rows("PYPROF_LOST", ("reason", "count")):
                is_known = type(number) is int and 0 <= number < _MOST_LOST
                trace.drop(str(reason), number if is_known else 1)
        if not len(trace.ops) and not len(trace.gpu):
            raise FormatError(
                f"{path}: {len(trace.ranges)} calls but no operators and no kernels were recorded "
                f"({facts.get('layers', 'sites only')}){trace.losses()}. Record without another profiler running."
            )
        return trace


class _Reader(Reader):
    io_table = "PYPROF_IO"

    def __init__(self, database: Database):
        super().__init__(database)
        rows = database.rows("PYPROF_CALL_STACK", ("id", "text"))
        self._stacks = {row[0]: row[1] for row in rows if type(row[0]) is int and isinstance(row[1], str)}
        if self._stacks:
            self.names.replace(REFERENCE + "$", self._restored)

    def _restored(self, texts: list[str]) -> list[str]:
        """Return texts of calls with their stacks. Texts are cut short, and counted, beyond a limit."""
        out, size = [], 0
        for text in texts:
            whole = with_stack(text, self._stacks)
            size += len(whole)
            out.append(whole if size <= MOST_STACKS else text)
        left_out = sum(map(str.__eq__, out, texts))
        count(self.lost, "stacks of calls that the file lacks, or that are too long in all", left_out)
        return out


def _ops(reader: Reader) -> Ops:
    columns = ("start", "end", "globalTid", "nameId", "scope", "textId", "seq", "forwardGlobalTid")
    batches = list(reader.database.read("PYPROF_OP", columns))
    column = {name: concat([batch.column(name) for batch in batches]) for name in columns}
    forward = column["forwardGlobalTid"]
    present = forward.mask()
    forward_thread = np.zeros(len(forward.values), np.int32)
    forward_thread[present] = reader.threads.index(forward.values[present])
    start, end, thread = column["start"], column["end"], column["globalTid"]
    ops = Ops(
        thread=reader.threads.index(required(thread)),
        start=start.values,
        end=np.maximum(end.values, start.values),
        scope=required(column["scope"]),
        name=reader.names.codes(column["nameId"]),
        text=reader.names.codes(column["textId"]),
        seq=column["seq"],
        forward_thread=Column(forward_thread, present),
        stack=np.broadcast_to(np.int32(-1), len(start.values)),
        order=Column.missing(len(start.values)),
    )
    complete = start.mask() & end.mask() & thread.mask()
    if complete.all():
        return ops
    count(reader.lost, "operators without a start, an end or a thread", int(np.count_nonzero(~complete)))
    return take(ops, np.flatnonzero(complete))


def _sources(database: Database, trace: Trace) -> dict[str, str]:
    """Return the texts of the program's source files by their paths."""
    texts = dict(database.rows("PYPROF_SOURCE_TEXT", ("sha256", "text")))
    out = {}
    for path, sha256 in database.rows("PYPROF_SOURCE", ("path", "sha256")):
        text = texts.get(sha256)
        if isinstance(path, str) and isinstance(text, str) and len(text) <= LARGEST_SOURCE:
            out[path] = text
    missing = database.count("PYPROF_SOURCE") - len(out)
    trace.drop(f"source files without a text of up to {LARGEST_SOURCE >> 20} MiB", missing)
    return out


def _shared_memory(database: Database, trace: Trace) -> None:
    """Fill in the shared memory of kernels, where the recording has only the sum of static and dynamic memory."""
    column = trace.gpu.shared_memory
    kernels = np.flatnonzero(trace.gpu.kind == KERNEL)
    if column.mask()[kernels].all() or len(kernels) != database.count("CUPTI_ACTIVITY_KIND_KERNEL"):
        return
    batches = list(database.read("PYPROF_KERNEL", ("kernelId", "sharedMemory")))
    number, size = (concat([batch.column(name) for batch in batches]) for name in ("kernelId", "sharedMemory"))
    valid = number.mask() & size.mask() & (number.values > 0) & (number.values <= len(kernels))
    values, present = column.values.copy(), column.mask().copy()
    index = kernels[number.values[valid] - 1]
    fresh = ~present[index]
    values[index[fresh]], present[index[fresh]] = size.values[valid][fresh], True
    trace.gpu.shared_memory = Column(values, present)


def _memory(reader: Reader) -> Memory:
    """Read events of allocators. Those of the processor's have no device."""
    numbers = ("time", "globalTid", "address", "bytes", "allocated", "reserved", "deviceId")
    batches = list(reader.database.read("PYPROF_MEMORY", numbers, ("device",)))
    column = {name: concat([batch.column(name) for batch in batches]) for name in numbers}
    on_cpu = np.array([name == "cpu" for batch in batches for name in batch.text("device").to_pylist()], bool)
    time, size, device = column["time"], column["bytes"], column["deviceId"]
    complete = time.mask() & size.mask() & column["globalTid"].mask()
    count(reader.lost, "allocator events without a time, a size or a thread", int((~complete).sum()))
    keep = np.flatnonzero(complete)
    return Memory(
        thread=reader.threads.index(column["globalTid"].values[keep]),
        time=time.values[keep],
        bytes=size.values[keep],
        device=Column(device.values, device.mask() & ~on_cpu).take(keep),
        **{name: column[name].take(keep) for name in ("address", "allocated", "reserved")},
    )


# Columns of PYPROF_LOADER_BATCH by those of the model; in order of time, the first four are.
_BATCH_TIMES = {
    "start": "start", "collate_start": "collateStart", "collate_end": "collateEnd", "send_end": "sendEnd",
    "pin_start": "pinStart", "pin_end": "pinEnd", "wait_start": "waitStart", "wait_end": "waitEnd",
}  # fmt: skip
_BATCH_NUMBERS = {
    "loader": "loader", "pid": "pid", "number": "number", "samples": "samples", "cpu": "cpu", "send_cpu": "sendCpu",
    "slowest": "slowest", "slowest_sample": "slowestSample",
}  # fmt: skip
_LONGEST = 1 << 60  # ns


def _loader_batches(reader: Reader, trace: Trace) -> LoaderBatches:
    """Read the batches of the workers of data loaders, all of the recorded process."""
    names = _BATCH_TIMES | _BATCH_NUMBERS
    batches = list(reader.database.read("PYPROF_LOADER_BATCH", (*names.values(),)))
    columns = {key: concat([batch.column(name) for batch in batches]) for key, name in names.items()}
    empty = no_loader_batches()
    whole = [key for key in names if not isinstance(getattr(empty, key), Column)]
    times = [columns[key].values for key in (*_BATCH_TIMES,)[:4]]
    valid = np.logical_and.reduce(
        [
            *(columns[key].mask() for key in whole),
            *(abs(columns[key].values) < _LONGEST for key in (*_BATCH_TIMES, "cpu", "send_cpu", "slowest")),
            *(first <= second for first, second in pairwise(times)),
        ]
    )
    count(reader.lost, "batches of loader workers with missing or impossible times", int((~valid).sum()))
    rows: dict[str, Any] = {key: column.take(valid) for key, column in columns.items()}
    for key in _BATCH_TIMES:
        rows[key] = Column(rows[key].values - trace.t0, rows[key].present)
    rows |= {key: rows[key].values for key in whole}
    return LoaderBatches(process=np.zeros(int(valid.sum()), np.int64), **rows)


def _pauses(reader: Reader) -> Pauses:
    """Read the pauses. A file from before PyProf 4.1 has no such table; its pauses are a sum among the facts."""
    rows = [
        row
        for row in reader.database.rows("PYPROF_PAUSE", ("globalTid", "start", "end", "what"))
        if all(type(cell) is int for cell in row[1:3]) and row[1] <= row[2]
    ]
    tid = np.array([row[0] if type(row[0]) is int else 0 for row in rows], np.int64)
    return Pauses(
        reader.threads.process(tid),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] == READING for row in rows], bool),
    )


def _steps(reader: Reader) -> Steps:
    columns = ("globalTid", "number", "start", "end")
    rows = sorted(row for row in reader.database.rows("PYPROF_STEP", columns) if all(type(cell) is int for cell in row))
    table = np.array(rows, np.int64).reshape(-1, 4)
    return Steps(reader.threads.process(table[:, 0]), table[:, 1], table[:, 2], table[:, 3])

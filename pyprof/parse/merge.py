# SPDX-License-Identifier: Apache-2.0
"""Several recordings of one run as one: workers side by side, on one clock.

Processes of two files are different ones, even if their pids are equal. Facts that all files share stay facts of the
run; the others become facts of their file, `worker.net.rank3.overhead.sites_ns`. Losses are added up.

Times within a file keep their distances. Files whose absolute time is known (unix time, or a session start in it)
are placed by it; if it is unknown for one of them, all begin at their own zero, which `run.clock` and the losses
record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyprof.core.model import Call, Column, Device, Gpu, Ints, Ops, Process, Stack, Strings, Thread, Trace

# 2001 as ns of the unix epoch. Clocks that count from the start of a session or of the machine are far below.
_EPOCH = 10**18
UNALIGNED = "files without an absolute time (each begins at its own zero, kept)"
_START = "session_start_unix_ns"

_PLAIN, _TEXT, _THREAD, _PROCESS, _TIME, _GPU, _STACK, _OP = range(8)
# Meaning of a column's numbers, by its name.
MEANING = {
    **dict.fromkeys(("text", "name", "domain", "kernel"), _TEXT),
    **dict.fromkeys(("thread", "forward_thread"), _THREAD),
    **dict.fromkeys(("process",), _PROCESS),
    **dict.fromkeys(
        ("start", "end", "time", "collate_start", "collate_end", "send_end", "pin_start", "pin_end", "wait_start",
         "wait_end"), _TIME),
    **dict.fromkeys(("gpu",), _GPU),
    **dict.fromkeys(("stack",), _STACK),
    **dict.fromkeys(("op",), _OP),
    **dict.fromkeys(
        ("operator", "kind", "seq", "scope", "correlation", "device", "context", "stream", "grid", "block",
         "registers", "shared_memory", "bytes", "graph_node", "occupancy", "source_kind", "target_kind", "number",
         "address", "allocated", "reserved", "order", "node", "waited", "loader", "pid", "samples", "cpu", "send_cpu",
         "slowest", "slowest_sample"), _PLAIN),
}  # fmt: skip


def processes(trace: Trace) -> list[Process]:
    """Return the processes of a recording, with the rank and the host from its facts."""
    text = trace.meta.get("rank", trace.meta.get("distributed.rank", ""))
    rank = int(text) if len(trace.processes) == 1 and text.isascii() and text.isdigit() else None
    host = trace.meta.get("host")
    return [
        process._replace(rank=rank if process.rank is None else process.rank, host=process.host or host)
        for process in trace.processes
    ]


def unix_start(t0: int, meta: Mapping[str, str]) -> int | None:
    """Return the unix time of a recording's zero in ns; None if it is unknown."""
    if t0 >= _EPOCH:
        return t0
    text = meta.get(_START, "")
    return int(text) + t0 if text.isascii() and text.isdigit() and "run.clock" not in meta else None


class Clock(NamedTuple):
    """The clock of a run: its zero, in ns of the unix epoch, 0 if each recording begins at its own; ns to add to the
    times of each recording; how many have no absolute time, which is why."""

    zero: int
    shifts: list[int]
    unknown: int


def common_clock(starts: Sequence[int | None]) -> Clock:
    """Return the clock of recordings whose zeros are at these unix times.

    >>> common_clock([70, 50]), common_clock([70, None])
    (Clock(zero=50, shifts=[20, 0], unknown=0), Clock(zero=0, shifts=[0, 0], unknown=1))
    """
    absolute = [start for start in starts if start is not None]
    if len(absolute) < len(starts):
        return Clock(0, [0] * len(starts), len(starts) - len(absolute))
    zero = min(absolute)
    return Clock(zero, [start - zero for start in absolute], 0)


class Described(Protocol):
    """A recording as far as its facts go."""

    @property
    def meta(self) -> dict[str, str]: ...
    @property
    def processes(self) -> list[Process]: ...


def run_facts(recordings: Sequence[Described], clock: Clock) -> dict[str, str]:
    """Return the facts of a run of several recordings."""
    how = "own zero" if clock.unknown else "unix"
    return _facts(recordings) | {"run.files": str(len(recordings)), "run.clock": how}


def merge(traces: list[Trace], path: str) -> Trace:
    """Merge several recordings into one, in their order. Consumes them."""
    if len(traces) == 1:
        return dataclasses.replace(traces[0], path=path)
    clock = common_clock([unix_start(trace.t0, trace.meta) for trace in traces])
    parts = [_Part(trace, shift) for trace, shift in zip(traces, clock.shifts)]
    strings, threads, processes_ = Strings(), list[Thread](), list[Process]()
    devices: list[Device] = []
    stacks: list[Stack] = []
    calls: dict[int, Call] = {}
    for part in parts:
        part.enter(strings, threads, processes_, devices, stacks, calls)
    formats = {trace.format for trace in traces}
    tables = {
        field.name: _concatenate_tables([getattr(trace, field.name) for trace in traces], parts)
        for field in dataclasses.fields(Trace)
        if dataclasses.is_dataclass(getattr(traces[0], field.name))
    }
    out = Trace(
        path=path, format=formats.pop() if len(formats) == 1 else "mixed", strings=strings, processes=processes_,
        threads=threads, devices=devices, meta=run_facts(traces, clock), t0=clock.zero, stacks=stacks, calls=calls,
        sources=dict(item for trace in reversed(traces) for item in trace.sources.items()),  # the first has it
        slack=max(trace.slack for trace in traces), **tables,
    )  # fmt: skip
    for trace in traces:
        for reason, count in trace.lost.items():
            out.drop(reason, count)
    out.repair(UNALIGNED, clock.unknown)
    return out


def unknown_process(known: Sequence[Process]) -> Process:
    """Return the process of GPU events of one of several recordings that do not have it: no process of another file."""
    like = known[0] if known else Process(0)
    return Process(-1, None, None, like.host, like.label, like.span)


class _Part:
    """The offsets of one recording's numbers in the merged recording."""

    def __init__(self, trace: Trace, shift: int):
        self._trace, self._shift = trace, shift
        self._gpu = self._op = 0

    def enter(
        self,
        strings: Strings,
        threads: list[Thread],
        processes_: list[Process],
        devices: list[Device],
        stacks: list[Stack],
        calls: dict[int, Call],
    ) -> None:
        """Add this recording's texts, threads, processes, devices, call stacks and calls."""
        trace = self._trace
        self._text = np.array([strings.code(text) for text in trace.strings.texts] or [0], np.int32)
        self._thread, self._process, self._stack = len(threads), len(processes_), len(stacks)
        stacks += trace.stacks
        calls |= {int(self._text[code]): call for code, call in trace.calls.items()}
        own = processes(trace)
        if (trace.gpu.process < 0).any():  # unknown, but not those of another file
            own.append(unknown_process(own))
        self._unknown = len(own) - 1
        threads += [Thread(self._process + thread.process, thread.tid) for thread in trace.threads]
        processes_ += own
        for device in trace.devices:
            owners = range(len(own)) if device.process is None else (device.process,)
            devices += [device._replace(process=self._process + owner) for owner in owners]

    def after(self, table: Gpu | Ops, rows: int) -> None:
        """Set the number of GPU events, or operators, before this recording's."""
        if isinstance(table, Gpu):
            self._gpu = rows
        else:
            self._op = rows

    def moved(self, values: Ints, meaning: int) -> Ints:
        """Translate the numbers of a column to the merged recording's numbering."""
        if meaning == _TEXT:
            return np.asarray(self._text[values])
        if meaning == _THREAD:
            return values + np.int32(self._thread)
        if meaning == _PROCESS:
            return np.where(values < 0, self._unknown, values) + np.int32(self._process)
        if meaning == _GPU:
            return np.where(values < 0, values, values + self._gpu)
        if meaning == _OP:
            return np.where(values < 0, values, values + self._op)
        if meaning == _STACK:
            return np.where(values < 0, values, values + np.int32(self._stack))
        return values + self._shift if meaning == _TIME and self._shift else values


_Moves = list[Callable[[Ints], Ints]]


def _concatenate_tables(tables: list[Any], parts: list[_Part]) -> Any:
    """Concatenate the rows of one table. Each column is released once it is merged."""
    out: dict[str, Any] = {}
    lengths = [len(table) for table in tables]
    before = np.cumsum([0, *lengths]).tolist()
    if isinstance(tables[0], (Gpu, Ops)):
        for part, rows in zip(parts, before):
            part.after(tables[0], rows)
    for field in dataclasses.fields(tables[0]):
        columns = [getattr(table, field.name) for table in tables]
        if isinstance(columns[0], list):
            out[field.name] = [item for column in columns for item in column]
            continue
        meaning = MEANING[field.name]
        moves: _Moves = [partial(part.moved, meaning=meaning) for part in parts]
        join = _concatenate_columns if isinstance(columns[0], Column) else _concatenate_values
        out[field.name] = join(columns, moves, lengths)
        for table in tables:
            setattr(table, field.name, None)
    return type(tables[0])(**out)


def _concatenate_values(columns: list[Ints], moves: _Moves, lengths: list[int]) -> Ints:
    return np.concatenate([move(column) for column, move in zip(columns, moves)])


def _concatenate_columns(columns: list[Column], moves: _Moves, lengths: list[int]) -> Column:
    """Concatenate columns. A column that no recording has takes no memory; where only some have it, the others are
    filled with 0."""
    total = sum(lengths)
    present = [column.present is None or bool(column.present.any()) for column in columns]
    present = [bool(is_present and length) for is_present, length in zip(present, lengths)]
    axes = max((column.values.shape[1:] for column in columns), key=len)
    if not any(present):
        nothing: Any = np.broadcast_to(np.int64(0), (total, *axes))
        return Column(nothing, np.broadcast_to(np.False_, total))
    dtype = np.result_type(*(column.values.dtype for column, is_present in zip(columns, present) if is_present))
    values = np.concatenate(
        [
            move(column.values) if is_present else np.zeros((length, *axes), dtype)
            for column, move, is_present, length in zip(columns, moves, present, lengths)
        ]
    )
    if all(column.present is None for column, length in zip(columns, lengths) if length):
        return Column(values)
    return Column(values, np.concatenate([
        column.mask() if is_present else np.zeros(length, bool)
        for column, is_present, length in zip(columns, present, lengths)
    ]))  # fmt: skip


def _facts(traces: Sequence[Described]) -> dict[str, str]:
    """Return the facts that all recordings share, and those of each worker under its name."""
    shared = set(traces[0].meta.items()).intersection(*(trace.meta.items() for trace in traces[1:]))
    out = dict(sorted(shared))
    for number, trace in enumerate(traces, start=1):
        process = trace.processes[0] if trace.processes else Process(-1)
        name = (process.label or f"file{number}") + (f" span {process.span}" if process.span > 1 else "")
        for key, value in trace.meta.items():
            if (key, value) not in shared:
                out[f"worker.{name}.{key}"] = value
    starts = [trace.meta.get(_START, "") for trace in traces]
    if _START not in out and all(text.isascii() and text.isdigit() for text in starts):
        out[_START] = str(min(map(int, starts)))
    return out

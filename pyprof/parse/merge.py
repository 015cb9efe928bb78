# SPDX-License-Identifier: Apache-2.0
"""Several recordings of one run as one: workers side by side, on one clock.

Processes of two files are different ones, whatever their pids. Facts that all files share stay facts of the run; the
others become facts of their file, `worker.net.rank3.overhead.sites_ns`. What was lost is added up.

Times: what is relative within a file stays exactly that. Files whose absolute time is known (unix time, or a session
start in it) are placed by it; if that of one is not known, all begin at their own zero, and `run.clock` and what was
lost say so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from pyprof.model import Call, Column, Device, Gpu, Ints, Ops, Process, Stack, Strings, Thread, Trace

# 2001 as ns of the unix epoch. Clocks that count from the start of a session or of the machine are far below.
_EPOCH = 10**18
_UNALIGNED = "files without an absolute time (each begins at its own zero)"
_START = "session_start_unix_ns"

_PLAIN, _TEXT, _THREAD, _PROCESS, _TIME, _GPU, _STACK, _OP = range(8)
# What the numbers of a column mean, by its name.
MEANING = {
    **dict.fromkeys(("text", "name", "domain", "kernel"), _TEXT),
    **dict.fromkeys(("thread", "forward_thread"), _THREAD),
    **dict.fromkeys(("process",), _PROCESS),
    **dict.fromkeys(("start", "end", "time"), _TIME),
    **dict.fromkeys(("gpu",), _GPU),
    **dict.fromkeys(("stack",), _STACK),
    **dict.fromkeys(("op",), _OP),
    **dict.fromkeys(
        ("operator", "kind", "seq", "scope", "correlation", "device", "context", "stream", "grid", "block",
         "registers", "shared_memory", "bytes", "graph_node", "occupancy", "source_kind", "target_kind", "number",
         "address", "allocated", "reserved", "order", "node", "waited"), _PLAIN),
}  # fmt: skip


def processes(trace: Trace) -> list[Process]:
    """The processes of a recording, with the rank and the host that its facts name."""
    text = trace.meta.get("rank", trace.meta.get("distributed.rank", ""))
    rank = int(text) if len(trace.processes) == 1 and text.isascii() and text.isdigit() else None
    host = trace.meta.get("host")
    return [
        one._replace(rank=rank if one.rank is None else one.rank, host=one.host or host)
        for one in trace.processes
    ]


def unix_start(t0: int, meta: Mapping[str, str]) -> int | None:
    """Unix time of a recording's zero, ns; None if it does not say."""
    if t0 >= _EPOCH:
        return t0
    text = meta.get(_START, "")
    return int(text) + t0 if text.isascii() and text.isdigit() and "run.clock" not in meta else None


def merge(traces: list[Trace], path: str) -> Trace:
    """One recording of several, in their order. Uses them up."""
    if len(traces) == 1:
        return dataclasses.replace(traces[0], path=path)
    starts = [unix_start(trace.t0, trace.meta) for trace in traces]
    known = [start for start in starts if start is not None]
    aligned = len(known) == len(starts)
    zero = min(known) if aligned else 0
    parts = [
        _Part(trace, start - zero if aligned and start is not None else 0)
        for trace, start in zip(traces, starts)
    ]
    strings, threads, found = Strings(), list[Thread](), list[Process]()
    devices: list[Device] = []
    stacks: list[Stack] = []
    calls: dict[int, Call] = {}
    for part in parts:
        part.enter(strings, threads, found, devices, stacks, calls)
    formats = {trace.format for trace in traces}
    tables = {
        field.name: _joined([getattr(trace, field.name) for trace in traces], parts)
        for field in dataclasses.fields(Trace)
        if dataclasses.is_dataclass(getattr(traces[0], field.name))
    }
    meta = _facts(traces) | {"run.files": str(len(traces)), "run.clock": "unix" if aligned else "own zero"}
    out = Trace(
        path=path, format=formats.pop() if len(formats) == 1 else "mixed", strings=strings, processes=found,
        threads=threads, devices=devices, meta=meta, t0=zero, stacks=stacks, calls=calls,
        sources=dict(item for trace in reversed(traces) for item in trace.sources.items()),  # the first has it
        slack=max(trace.slack for trace in traces), **tables,
    )  # fmt: skip
    for trace in traces:
        for reason, count in trace.lost.items():
            out.drop(reason, count)
    out.drop(_UNALIGNED, 0 if aligned else len(starts) - len(known))
    return out


class _Part:
    """Where the numbers of one recording are in the whole."""

    def __init__(self, trace: Trace, shift: int):
        self._trace, self._shift = trace, shift
        self._gpu = self._op = 0

    def enter(
        self,
        strings: Strings,
        threads: list[Thread],
        found: list[Process],
        devices: list[Device],
        stacks: list[Stack],
        calls: dict[int, Call],
    ) -> None:
        """Add this recording's texts, threads, processes, devices, call stacks and calls."""
        trace = self._trace
        self._text = np.array([strings.code(text) for text in trace.strings.texts] or [0], np.int32)
        self._thread, self._process, self._stack = len(threads), len(found), len(stacks)
        stacks += trace.stacks
        calls |= {int(self._text[code]): call for code, call in trace.calls.items()}
        mine = processes(trace)
        if (trace.gpu.process < 0).any():  # unknown, but not those of another file
            like = mine[0] if mine else Process(0)
            mine.append(Process(-1, None, None, like.host, like.label, like.span))
        self._unknown = len(mine) - 1
        threads += [Thread(self._process + thread.process, thread.tid) for thread in trace.threads]
        found += mine
        for device in trace.devices:
            owners = range(len(mine)) if device.process is None else (device.process,)
            devices += [device._replace(process=self._process + one) for one in owners]

    def after(self, table: Gpu | Ops, rows: int) -> None:
        """Say how many GPU events, or operators, stand before this recording's."""
        if isinstance(table, Gpu):
            self._gpu = rows
        else:
            self._op = rows

    def moved(self, values: Ints, meaning: int) -> Ints:
        """Numbers of a column in the whole's counting."""
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


def _joined(tables: list[Any], parts: list[_Part]) -> Any:
    """The rows of one table, one recording after the other; each column is let go when it is joined."""
    out: dict[str, Any] = {}
    lengths = [len(table) for table in tables]
    before = np.cumsum([0, *lengths]).tolist()
    if isinstance(tables[0], (Gpu, Ops)):
        for part, rows in zip(parts, before):
            part.after(tables[0], rows)
    for field in dataclasses.fields(tables[0]):
        columns = [getattr(table, field.name) for table in tables]
        if isinstance(columns[0], list):
            out[field.name] = [one for column in columns for one in column]
            continue
        meaning = MEANING[field.name]
        moves: _Moves = [partial(part.moved, meaning=meaning) for part in parts]
        join = _column if isinstance(columns[0], Column) else _values
        out[field.name] = join(columns, moves, lengths)
        for table in tables:
            setattr(table, field.name, None)
    return type(tables[0])(**out)


def _values(columns: list[Ints], moves: _Moves, lengths: list[int]) -> Ints:
    return np.concatenate([move(column) for column, move in zip(columns, moves)])


def _column(columns: list[Column], moves: _Moves, lengths: list[int]) -> Column:
    """A column that no recording has takes no memory; one that some have is filled with 0 in the others."""
    total = sum(lengths)
    there = [column.present is None or bool(column.present.any()) for column in columns]
    there = [bool(known and length) for known, length in zip(there, lengths)]
    axes = max((column.values.shape[1:] for column in columns), key=len)
    if not any(there):
        nothing: Any = np.broadcast_to(np.int64(0), (total, *axes))
        return Column(nothing, np.broadcast_to(np.False_, total))
    dtype = np.result_type(*(column.values.dtype for column, known in zip(columns, there) if known))
    values = np.concatenate([
        move(column.values) if known else np.zeros((length, *axes), dtype)
        for column, move, known, length in zip(columns, moves, there, lengths)
    ])  # fmt: skip
    if all(column.present is None for column, length in zip(columns, lengths) if length):
        return Column(values)
    return Column(values, np.concatenate([
        column.mask() if known else np.zeros(length, bool)
        for column, known, length in zip(columns, there, lengths)
    ]))  # fmt: skip


def _facts(traces: list[Trace]) -> dict[str, str]:
    """Facts that all share, and those of each worker under its name."""
    shared = set(traces[0].meta.items()).intersection(*(trace.meta.items() for trace in traces[1:]))
    out = dict(sorted(shared))
    for number, trace in enumerate(traces, start=1):
        one = trace.processes[0] if trace.processes else Process(-1)
        name = (one.label or f"file{number}") + (f" span {one.span}" if one.span > 1 else "")
        for key, value in trace.meta.items():
            if (key, value) not in shared:
                out[f"worker.{name}.{key}"] = value
    starts = [trace.meta.get(_START, "") for trace in traces]
    if _START not in out and all(text.isascii() and text.isdigit() for text in starts):
        out[_START] = str(min(map(int, starts)))
    return out

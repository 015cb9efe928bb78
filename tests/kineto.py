# SPDX-License-Identifier: Apache-2.0
"""Traces as torch.profiler writes them, from a few events. Times are integer ns; a file has them in us.

>>> op("aten::mm", 1000, 2500, seq=3)["ts"], op("aten::mm", 1000, 2500)["dur"]
(1.0, 1.5)
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PID, TID = 100, 101
Event = dict[str, Any]


def us(ns: int) -> float | int:
    """Microseconds whose decimal text is exact: a double prints the 15 digits that it was made of."""
    return ns / 1000


def event(cat: str, name: str, start: int, end: int, pid: Any, tid: Any, **args: Any) -> Event:
    """A complete event."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(start), "dur": us(end - start),
        "args": args,
    }  # fmt: skip


def op(
    name: str,
    start: int,
    end: int,
    seq: int | None = None,
    forward: int = 0,
    tid: Any = TID,
    pid: Any = PID,
    cat: str = "cpu_op",
    **args: Any,
) -> Event:
    """An operator. `forward`: torch's number of the thread that ran the forward, of a backward."""
    numbers = {} if seq is None else {"Sequence number": seq, "Fwd thread id": forward}
    return event(cat, name, start, end, pid, tid, **numbers, **args)


def annotation(name: str, start: int, end: int, tid: Any = TID, pid: Any = PID) -> Event:
    return event("user_annotation", name, start, end, pid, tid)


def function(name: str, start: int, end: int, tid: Any = TID, pid: Any = PID) -> Event:
    return event("python_function", name, start, end, pid, tid)


def launch(start: int, end: int, correlation: int, tid: Any = TID, name: str = "cudaLaunchKernel") -> Event:
    return event("cuda_runtime", name, start, end, PID, tid, correlation=correlation)


def kernel(name: str, start: int, end: int, correlation: int, stream: int = 7, device: int = 0) -> Event:
    return event(
        "kernel", name, start, end, device, stream, correlation=correlation, stream=stream, device=device, context=1,
        grid=[1, 1, 1], block=[32, 1, 1],
    )  # fmt: skip


def document(events: Iterable[Event], **facts: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **facts, "traceEvents": [*events], "traceName": "trace.json"}


def write(path: Path, events: Iterable[Event], **facts: Any) -> Path:
    """A file of events; compressed if its name ends in .gz."""
    return write_text(path, json.dumps(document(events, **facts)))


def write_text(path: Path, text: str | bytes) -> Path:
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return path


class Nested:
    """Events that nest, from lines: each takes 100 ns, what is indented under it happens inside.

    A line is `[seq=N] [fwd=N] NAME` for an operator, `# NAME` for a range of the user, `py NAME` for a Python function,
    `> NAME` for a launch and the kernel it starts.

    >>> [(e["name"], e["ts"], e["dur"]) for e in Nested('''
    ... seq=3 aten::linear
    ...     > gemm
    ... ''').events]
    [('aten::linear', 0.1, 0.3), ('cudaLaunchKernel', 0.2, 0.1), ('gemm', 10.2, 1.0)]
    """

    def __init__(self, text: str, tid: Any = TID):
        self.events: list[Event] = []
        self._tid, self._clock = tid, 0
        self._open: list[tuple[int, Event]] = []
        for line in text.splitlines():
            if line.strip():
                self._line(len(line) - len(line.lstrip()), line.split())
        self._close(0)

    def _tick(self) -> int:
        self._clock += 100
        return self._clock

    def _close(self, indent: int) -> None:
        while self._open and self._open[-1][0] >= indent:
            made = self._open.pop()[1]
            made["dur"] = us(self._tick() - round(made["ts"] * 1000))

    def _line(self, indent: int, words: list[str]) -> None:
        self._close(indent)
        start = self._tick()
        if words[0] == ">":
            number = start // 100
            self.events.append(launch(start, self._tick(), number, self._tid))
            self.events.append(kernel(" ".join(words[1:]), start + 10_000, start + 11_000, number))
            return
        numbers = {"seq": None, "fwd": 0}
        while words[0].partition("=")[0] in numbers:
            key, _, value = words.pop(0).partition("=")
            numbers[key] = int(value)
        if words[0] == "#":
            made = annotation(" ".join(words[1:]), start, start, self._tid)
        elif words[0] == "py":
            made = function(" ".join(words[1:]), start, start, self._tid)
        else:
            made = op(" ".join(words), start, start, numbers["seq"], numbers["fwd"], self._tid)
        self.events.append(made)
        self._open.append((indent, made))


def training() -> list[Event]:
    """A step of a program with a bit of everything: threads, a backward, a collective, a copy, memory, functions."""
    shapes = {"Input Dims": [[8, 4], [4, 5]], "Input type": ["float", "float"], "Input Strides": [[4, 1], [1, 4]],
              "Concrete Inputs": ["", ""]}  # fmt: skip
    comms = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 20, "Out msg nelems": 20,
             "Group size": 2, "Process Group Name": "0", "Seq": 1}  # fmt: skip
    out = [
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "tid": TID, "ts": 0, "args": {"name": "no pid"}},
        event("Trace", "PyTorch Profiler (0)", 0, 90_000, "Spans", "PyTorch Profiler"),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 95.0},
        annotation("ProfilerStep#3", 1_000, 60_000),
        function("train.py(3): main", 500, 70_000), function("nn.Module: Net_0", 2_000, 30_000),
        op("aten::linear", 2_000, 9_000, seq=4, **{"External id": 1, "Ev Idx": 1}),
        op("aten::addmm", 2_000, 8_000, seq=4, **{"External id": 2, "Ev Idx": 2}, **shapes),
        op("aten::cos", 9_000, 9_000, **{"External id": 3, "Ev Idx": 3}),
        op("aten::copy_", 10_000, 12_000, **{"External id": 4, "Ev Idx": 4}),
        op("autograd::engine::evaluate_function: AddmmBackward0", 31_000, 39_000, tid=TID + 1, **{"Ev Idx": 5}),
        op("AddmmBackward0", 31_500, 38_000, seq=4, forward=1, tid=TID + 1, **{"Ev Idx": 6}),
        op("aten::mm", 32_000, 37_000, tid=TID + 1, **{"Ev Idx": 7}, **shapes),
        op("record_param_comms", 40_000, 44_000, tid=TID + 1, **{"Ev Idx": 8}, **comms),
        launch(3_000, 4_000, 11), launch(10_500, 11_000, 12, name="cudaMemcpyAsync"),
        launch(33_000, 34_000, 13, TID + 1), launch(41_000, 42_000, 14, TID + 1),
        launch(50_000, 58_000, 15, name="cudaDeviceSynchronize"),
        kernel("gemm", 5_000, 12_000, 11), kernel("dgrad", 35_000, 45_000, 13),
        kernel("ncclDevKernel_AllReduce", 45_000, 55_000, 14, stream=9), kernel("stray", 56_000, 57_000, 99),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 12_500, 14_000, 0, 7, correlation=12, bytes=640),
        event("gpu_user_annotation", "ProfilerStep#3", 5_000, 57_000, 0, 7),
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": TID, "ts": 2.0},
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "tid": TID + 1, "ts": 31.5, "bp": "e"},
        *(
            {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID, "tid": TID,
             "ts": us(time), "args": {"Addr": address, "Bytes": size, "Device Type": 1, "Device Id": 0,
                                      "Total Allocated": 64, "Total Reserved": 128}}
            for time, address, size in ((3_000, 7, 64), (3_000, 8, 32), (20_000, 7, -64))
        ),
    ]  # fmt: skip
    next(made for made in out if made["name"] == "ncclDevKernel_AllReduce")["args"] |= comms | {"Seq": 2}
    return out

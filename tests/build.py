# SPDX-License-Identifier: Apache-2.0
"""Small recordings from a few lines of text, written as files of Nsight Systems, nvprof or PyProf's own capture.

A line is a range, what is indented under it happens inside. Other lines:

    thread 2 process 200        what follows runs there (default: thread 1, process 100)
    > 40 stream=8 volta_sgemm   a launch, and the kernel that it starts: 40 ns long
    + 7 reduce_kernel           one more kernel of the same launch (a graph replay)
    op seq=3 aten::mm           a RecordFunction event: capture files only; `forward=1` is the forward's thread
    open TEXT / mark TEXT / between TEXT      a range never closed, an instant, a start/end range around its lines
    wait 30                     time goes by
    api 30 cudaDeviceSynchronize_v3020        an API call that starts nothing, 30 ns long
    file 30 read                a call into the operating system, 30 ns long

Options of a kernel: stream, device, process, context, grid, block, registers, static, dynamic, graph, correlation
(`none`: no launch record), skew (ns from the start of the launch to the start of the kernel).

>>> r = recording('''
... aten::linear, seq = 3
...     aten::addmm, seq = 3
...         > 40 grid=2,1,1 volta_sgemm
... ''')
>>> [(x.text, x.start, x.end) for x in r.ranges], [(k.name, k.start, k.end, k.grid) for k in r.kernels]
([('aten::linear, seq = 3', 10, 50), ('aten::addmm, seq = 3', 20, 40)], [('volta_sgemm', 45, 85, (2, 1, 1))])
"""

from __future__ import annotations

import ast
import os
import random
import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings

from pyprof.core import netdict
from pyprof.core.marker import CallMarker, decode, encode, encode_classic, is_backward
from pyprof.core.model import Arg, Call, Tensor
from pyprof.costs.columns import COLUMNS, View
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.prof.table import lines, select

LONG = os.environ.get("PYPROF_LONG", "") not in ("", "0")
PARTS = 8 if LONG else 1  # of a test whose long form takes minutes: several processes share it


def examples(count: int) -> settings:
    """Settings of a property test: how many examples with PYPROF_LONG=1; a third of them without."""
    return settings(max_examples=count if LONG else max(count // 3, 3))


PROCESS, VM = 100, 1 << 48
PUSH_POP, START_END, MARK = 59, 60, 34
TICK = 10


@dataclass
class Range:
    text: str
    start: int
    end: int | None
    thread: int = 1
    process: int = PROCESS
    kind: int = PUSH_POP


@dataclass
class Launch:
    start: int
    end: int
    correlation: int
    thread: int = 1
    process: int = PROCESS
    driver: bool = False
    name: str | None = None


@dataclass
class File:
    """A call into the operating system that works on a file."""

    name: str
    start: int
    end: int
    thread: int = 1
    process: int = PROCESS


@dataclass
class Kernel:
    """`size` is the bytes of a copy (copy_kind) or set; a kernel has none."""

    name: str
    start: int
    end: int
    correlation: int | None = None
    process: int = PROCESS
    device: int = 0
    stream: int = 7
    context: int = 1
    grid: tuple[int, ...] = (1, 1, 1)
    block: tuple[int, ...] = (32, 1, 1)
    registers: int = 16
    static: int = 0
    dynamic: int = 0
    graph: int | None = None
    size: int | None = None
    copy_kind: int | None = None


@dataclass
class Op:
    text: str
    start: int
    end: int
    thread: int = 1
    process: int = PROCESS
    seq: int | None = None
    forward: int | None = None

    @property
    def name(self) -> str:
        marker = decode(self.text)
        return marker.call.op if isinstance(marker, CallMarker) else self.text


@dataclass
class Recording:
    ranges: list[Range] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)  # number, start, end
    files: list[File] = field(default_factory=list)


def _call(name: str, args: Sequence[Any], keywords: dict[str, Any]) -> Call:
    def value(x: Any) -> Any:
        if isinstance(x, tuple) and not isinstance(x, Tensor):
            return Tensor(x, "float32")
        return tuple(map(value, x)) if isinstance(x, list) else x

    mod, _, op = name.rpartition(".") if "::" not in name else ("aten", "", name)
    if is_backward(name):
        mod = "autograd"
    positional = [Arg("", value(x)) for x in args]
    return Call(mod, op, tuple(positional + [Arg(k, value(x)) for k, x in keywords.items()]))


def call(
    name: str,
    *args: Any,
    trace: Iterable[str] = (),
    layer: str = "",
    module: str | None = None,
    **keywords: Any,
) -> str:
    """Our own marker. A tuple stands for a float32 tensor of that shape, a list for a list.

    >>> decode(call("torch.relu", (2, 3), inplace=True)).call.args
    (Arg(name='', value=Tensor(shape=(2, 3), dtype='float32', stride=None)), Arg(name='inplace', value=True))
    """
    return encode(_call(name, args, keywords), layer, trace, module)


def classic(name: str, *args: Any, **keywords: Any) -> str:
    """The argument marker of the original PyProf."""
    return encode_classic(_call(name, args, keywords), ())[-1]


def stack(*frames: str) -> str:
    """The trace marker of the original PyProf."""
    return str({"traceMarker": list(frames)})


def recording(text: str) -> Recording:
    """Read the lines of a recording; the module's docstring has their grammar."""
    return _Builder().read(text)


class _Builder:
    def __init__(self) -> None:
        self.out = Recording()
        self.clock = 0
        self.thread, self.process = 1, PROCESS
        self.correlation = 0
        self.free: dict[tuple[int, int], int] = {}  # when each stream is idle again
        self.stack: list[tuple[int, Range | Op]] = []

    def read(self, text: str) -> Recording:
        for line in text.splitlines():
            if line.strip():
                self._close(len(line) - len(line.lstrip()))
                self._line(line.strip(), len(line) - len(line.lstrip()))
        self._close(0)
        return self.out

    def _tick(self) -> int:
        self.clock += TICK
        return self.clock

    def _close(self, indent: int) -> None:
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()[1].end = self._tick()

    def _line(self, line: str, indent: int) -> None:
        word, _, rest = line.partition(" ")
        here = dict(thread=self.thread, process=self.process)
        if word == "thread":
            words = rest.split()
            self.thread = int(words[0])
            self.process = int(words[2]) if len(words) > 2 else self.process
        elif word == "wait":
            self.clock += int(rest)
        elif word in ("api", "file"):
            length, _, name = rest.partition(" ")
            start = self._tick()
            self.clock += int(length)
            if word == "file":
                self.out.files.append(File(name, start, self.clock, **here))
            else:
                self.correlation += 1
                self.out.launches.append(Launch(start, self.clock, self.correlation, **here, name=name))
        elif word in (">", "+"):
            self._kernel(rest, launched=word == ">")
        elif word == "open":
            self.out.ranges.append(Range(rest, self._tick(), None, **here))
        elif word == "mark":
            self.out.ranges.append(Range(rest, self._tick(), None, **here, kind=MARK))
        elif word == "op":
            options, text = _options(rest)
            if not text.startswith("{"):
                text = call(text)
            event = Op(text, self._tick(), 0, **here, **{k: int(v) for k, v in options.items()})
            self.out.ops.append(event)
            self.stack.append((indent, event))
        else:
            between = word == "between"
            item = Range(rest if between else line, self._tick(), 0, **here, kind=START_END if between else PUSH_POP)
            self.out.ranges.append(item)
            self.stack.append((indent, item))

    def _kernel(self, rest: str, launched: bool) -> None:
        duration, _, rest = rest.partition(" ")
        options, name = _options(rest)
        values: dict[str, Any] = {k: v for k, v in options.items() if k not in ("skew", "correlation")}
        for key in values:
            parts = tuple(map(int, values[key].split(",")))
            values[key] = parts if key in ("grid", "block") else parts[0]
        process = values.pop("process", self.process)
        linked = options.get("correlation") != "none"
        if launched:
            start = self._tick()
            self.launch = start, start + 4
            if linked:
                self.correlation += 1
                self.out.launches.append(Launch(*self.launch, self.correlation, self.thread, process))
        stream = values.get("device", 0), values.get("stream", 7)
        start = max(self.launch[1] + TICK + 1, self.free.get(stream, 0))
        if "skew" in options:
            start = self.launch[0] + int(options["skew"])
        end = self.free[stream] = start + int(duration)
        correlation = self.correlation if linked else None
        self.out.kernels.append(Kernel(name, start, end, correlation, process, **values))


def _options(text: str) -> tuple[dict[str, str], str]:
    """Leading k=v words, and the rest."""
    out: dict[str, str] = {}
    while True:
        word, _, rest = text.partition(" ")
        key, sign, value = word.partition("=")
        if not sign or not key.isidentifier():
            return out, text
        out[key], text = value, rest


# Columns as the tools write them. An export has more tables; the readers look at none of those.
NSYS = {
    "StringIds": "id value",
    "META_DATA_EXPORT": "name value",
    "PROCESSES": "globalPid pid name",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_GPU": "vmId id name busLocation smCount totalMemory computeMajor computeMinor cuDevice",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId "
    "uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId greenContextId streamId correlationId globalPid "
    "demangledName shortName mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY "
    "blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId "
    "sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig graphId clusterX clusterY clusterZ",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId greenContextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId greenContextId streamId correlationId globalPid "
    "value bytes graphNodeId memKind",
    "OSRT_API": "start end eventClass globalTid correlationId nameId returnValue nestingLevel callchainId",
}
CAPTURE = {
    **NSYS,
    "PYPROF_OP": "start end globalTid nameId scope textId seq forwardGlobalTid",
    "PYPROF_STEP": "number start end globalTid",
    "PYPROF_IO": "start end globalTid nameId",
    "PYPROF_META": "name value",
    "PYPROF_LOST": "reason count",
}
NVPROF = {
    "StringTable": "_id_ value",
    "Version": "version",
    "CUPTI_ACTIVITY_KIND_DEVICE": "_id_ id name numMultiprocessors computeCapabilityMajor computeCapabilityMinor "
    "globalMemorySize",
    "CUPTI_ACTIVITY_KIND_MARKER": "_id_ flags timestamp id objectKind objectId name domain",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "_id_ cbid start end processId threadId correlationId returnValue",
    "CUPTI_ACTIVITY_KIND_DRIVER": "_id_ cbid start end processId threadId correlationId returnValue",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": "_id_ cacheConfig sharedMemoryConfig registersPerThread start end "
    "completed deviceId contextId streamId gridX gridY gridZ blockX blockY blockZ staticSharedMemory "
    "dynamicSharedMemory localMemoryPerThread localMemoryTotal correlationId gridId name",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "_id_ copyKind srcKind dstKind flags bytes start end deviceId contextId streamId "
    "correlationId runtimeCorrelationId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "_id_ value bytes start end deviceId contextId streamId correlationId memoryKind",
}
_TEXT = {"value", "text", "name", "jsonText", "utcTime", "localTime", "busLocation", "reason"}
Row = dict[str, Any]


class _Tables:
    """Rows by table, and the ids of names."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.ids: dict[str, int] = {}

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def id(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 1)

    def write(self, path: Path, columns: dict[str, str], lean: bool, tables: Sequence[str]) -> Path:
        connection = sqlite3.connect(path)
        for table in columns:
            rows = self.rows.get(table, [])
            names = columns[table].split()
            if lean:
                names = [name for name in names if any(row.get(name) is not None for row in rows)]
            if not rows and table not in tables:
                continue  # as the tools do: a table is there if something was recorded
            names = names or columns[table].split()
            kinds = [f'"{name}" {"text" if name in _TEXT and table[:5] != "CUPTI" else "integer"}' for name in names]
            connection.execute(f'create table "{table}" ({", ".join(kinds)})')
            marks = ", ".join("?" * len(names))
            connection.executemany(
                f'insert into "{table}" values ({marks})', [[row.get(name) for name in names] for row in rows]
            )
        connection.commit()
        connection.close()
        return path


def _global(process: int, thread: int = 0) -> int:
    return VM | process << 24 | thread


def write_nsys(path: Path, what: Recording, registered: bool = False, lean: bool = False) -> Path:
    """An export of Nsight Systems. `registered`: texts in StringIds; `lean`: only columns that hold something."""
    tables = _nsys_tables(what, registered, lean)
    tables.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.16.1")
    return tables.write(path, NSYS, lean, ("StringIds", "NVTX_EVENTS"))


def write_capture(path: Path, what: Recording, lean: bool = False, version: str = "1") -> Path:
    """A file of PyProf's own capture, with operators and steps."""
    tables = _nsys_tables(what, True, lean)
    tables.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="PyProf")
    tables.add("PYPROF_META", name="format_version", value=version)
    for op in what.ops:
        forward = None if op.forward is None else _global(op.process, op.forward)
        tables.add(
            "PYPROF_OP", start=op.start, end=op.end, globalTid=_global(op.process, op.thread),
            nameId=tables.id(op.name), scope=int(is_backward(op.name) and not op.name.startswith("autograd::engine")),
            textId=tables.id(op.text), seq=op.seq, forwardGlobalTid=forward,
        )  # fmt: skip
    if what.files:
        tables.rows["PYPROF_IO"] = tables.rows.pop("OSRT_API")
    for number, start, end in what.steps:
        tables.add("PYPROF_STEP", number=number, start=start, end=end, globalTid=_global(PROCESS, 1))
    tables.rows["StringIds"] = [dict(id=number, value=text) for text, number in tables.ids.items()]
    return tables.write(path, CAPTURE, lean, ("StringIds", "NVTX_EVENTS", "PYPROF_OP", "PYPROF_STEP", "PYPROF_LOST"))


def _nsys_tables(what: Recording, registered: bool, lean: bool) -> _Tables:
    tables = _Tables()
    for item in what.ranges:
        where = {"textId": tables.id(item.text)} if registered else {"text": item.text}
        extra = {} if lean else dict(category=3, color=0xFF00FF, domainId=0, uint64Value=77)
        tables.add(
            "NVTX_EVENTS", start=item.start, end=item.end, eventType=item.kind,
            globalTid=_global(item.process, item.thread), **where, **extra,
        )  # fmt: skip
    for launch in what.launches:
        tables.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=launch.start, end=launch.end, eventClass=0, returnValue=0,
            globalTid=_global(launch.process, launch.thread), correlationId=launch.correlation,
            nameId=tables.id(launch.name or ("cuLaunchKernel" if launch.driver else "cudaLaunchKernel_v7000")),
        )  # fmt: skip
    for file in what.files:
        tables.add(
            "OSRT_API", start=file.start, end=file.end, eventClass=27, returnValue=0, nestingLevel=0,
            globalTid=_global(file.process, file.thread), nameId=tables.id(file.name),
        )  # fmt: skip
    for kernel in what.kernels:
        common = dict(
            start=kernel.start, end=kernel.end, deviceId=kernel.device, contextId=kernel.context,
            streamId=kernel.stream, correlationId=kernel.correlation, globalPid=_global(kernel.process),
            graphNodeId=kernel.graph,
        )  # fmt: skip
        if kernel.size is not None:
            if kernel.copy_kind is None:
                tables.add("CUPTI_ACTIVITY_KIND_MEMSET", **common, bytes=kernel.size, value=0)
            else:
                tables.add("CUPTI_ACTIVITY_KIND_MEMCPY", **common, bytes=kernel.size, copyKind=kernel.copy_kind)
            continue
        extra = (
            {} if lean else dict(shortName=tables.id(kernel.name.partition("<")[0]), launchType=1, gridId=9, clusterX=1)
        )
        tables.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", **common, **extra, **_shape(kernel), demangledName=tables.id(kernel.name),
            registersPerThread=kernel.registers, staticSharedMemory=kernel.static, dynamicSharedMemory=kernel.dynamic,
        )  # fmt: skip
    if not lean:
        for process in sorted({k.process for k in what.kernels} | {PROCESS}):
            tables.add("PROCESSES", globalPid=_global(process), pid=process, name="python")
        tables.add(
            "TARGET_INFO_GPU",
            vmId=VM,
            id=0,
            name="GPU",
            smCount=80,
            computeMajor=7,
            computeMinor=0,
            cuDevice=0,
        )
        tables.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    tables.rows["StringIds"] = [dict(id=number, value=text) for text, number in tables.ids.items()]
    return tables


def _shape(kernel: Kernel) -> dict[str, int]:
    return dict(zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), (*kernel.grid, *kernel.block)))


def write_nvprof(path: Path, what: Recording, lean: bool = False) -> Path:
    """A database of nvprof. A range that was never closed has no end marker."""
    tables = _Tables()
    for number, item in enumerate(what.ranges, 1):
        place = dict(objectKind=2, objectId=struct.pack("<iqxxxx", item.process, item.thread))
        name = tables.id(item.text)
        flag = 1 if item.kind == MARK else 2
        tables.add("CUPTI_ACTIVITY_KIND_MARKER", flags=flag, timestamp=item.start, id=number, name=name, **place)
        if item.end is not None and item.kind != MARK:
            tables.add("CUPTI_ACTIVITY_KIND_MARKER", flags=4, timestamp=item.end, id=number, name=0, **place)
    for launch in what.launches:
        tables.add(
            f"CUPTI_ACTIVITY_KIND_{'DRIVER' if launch.driver else 'RUNTIME'}", start=launch.start, end=launch.end,
            cbid=211, processId=launch.process, threadId=launch.thread, correlationId=launch.correlation,
        )  # fmt: skip
    for kernel in what.kernels:
        common = dict(
            start=kernel.start, end=kernel.end, deviceId=kernel.device, contextId=kernel.context,
            streamId=kernel.stream, correlationId=kernel.correlation or 0,
        )  # fmt: skip
        if kernel.size is None:
            tables.add(
                "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", **common, **_shape(kernel), name=tables.id(kernel.name),
                registersPerThread=kernel.registers, staticSharedMemory=kernel.static,
                dynamicSharedMemory=kernel.dynamic,
            )  # fmt: skip
        elif kernel.copy_kind is None:
            tables.add("CUPTI_ACTIVITY_KIND_MEMSET", **common, bytes=kernel.size)
        else:
            tables.add("CUPTI_ACTIVITY_KIND_MEMCPY", **common, bytes=kernel.size, copyKind=kernel.copy_kind)
    if not lean:
        tables.add("CUPTI_ACTIVITY_KIND_DEVICE", id=0, name=tables.id("GPU"), numMultiprocessors=80)
    tables.rows["StringTable"] = [dict(_id_=number, value=text) for text, number in tables.ids.items()]
    return tables.write(path, NVPROF, lean, ("StringTable",))


# How one recording can be written: the same rows have to come out of each.
WRITERS = {
    "nsys": write_nsys,
    "nsys-ids": lambda path, what: write_nsys(path, what, registered=True),
    "nsys-lean": lambda path, what: write_nsys(path, what, lean=True),
    "nvprof": write_nvprof,
    "capture": write_capture,
}


Changes = dict[str, dict[str, str]]


def rewrite(source: Path, target: Path, changes: Changes | None = None, seed: int | None = None) -> Path:
    """Copy a database, its rows in another order if there is a `seed`.

    `changes` says by table what stands for some of its columns: an SQL expression, "" for nothing, "as NAME" for a new
    name. A table of which no column is left is left out.
    """
    out = sqlite3.connect(target, uri=True)
    out.execute("pragma journal_mode = off")
    out.execute("attach ? as source", [f"{source.resolve().as_uri()}?mode=ro"])
    out.create_function("place", 1, lambda row: random.Random(f"{seed} {row}").random())
    names = out.execute("select name from source.sqlite_master where type = 'table' and name not like 'sqlite_%'")
    for (name,) in names.fetchall():
        fields = []
        for column in [row[1] for row in out.execute(f'pragma source.table_info("{name}")')]:
            expression = (changes or {}).get(name, {}).get(column, f'"{column}"')
            if expression.startswith("as "):
                fields.append(f'"{column}" as "{expression[3:]}"')
            elif expression:
                fields.append(f'{expression} as "{column}"')
        if fields:
            order = "order by place(rowid)" if seed is not None else ""
            out.execute(f'create table "{name}" as select {", ".join(fields)} from source."{name}" {order}')
    out.commit()
    out.close()
    return target


def read(path: Path, memory: bool = False) -> list[dict[str, Any]]:
    """The lines of net.dict, as dictionaries."""
    return [ast.literal_eval(line) for line in netdict.lines(rows(loader.load(path), memory))]


def table(path: Path, columns: str = "") -> str:
    """What `prof.py --csv` prints of a recording; all columns if none are named."""
    view = View(rows(loader.load(path)))
    return "".join(f"{line}\n" for line in lines(view, select(columns or ",".join(COLUMNS)), "csv"))


def scratch() -> str:
    """A new empty folder, gone when the test run ends: property tests need one per example."""
    return tempfile.mkdtemp(dir=_FOLDER.name)


_FOLDER = tempfile.TemporaryDirectory(prefix="pyprof-test-")

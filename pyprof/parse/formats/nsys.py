# SPDX-License-Identifier: Apache-2.0
"""Exports of Nsight Systems (`nsys export --type=sqlite`), schema 2 and 3.

Tables exist only if something was recorded, and columns vary between versions: everything but the times is optional.
A text is in `text` or, as `textId`, in StringIds. globalTid packs machine, process and thread (pid in bits 24-47,
tid in bits 0-23), globalPid is the same with tid 0. Source:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite Schema Reference".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.core.errors import FormatError
from pyprof.core.model import (
    GRAPH,
    KERNEL,
    MARK,
    MEMCPY,
    MEMSET,
    PUSH_POP,
    START_END,
    Column,
    Device,
    Gpu,
    Ints,
    Io,
    Launches,
    Memory,
    Ops,
    Pauses,
    Ranges,
    Steps,
    Trace,
    no_memory,
    no_pauses,
)
from pyprof.core.sqlite_file import Batch, Database, is_sqlite, required, tables
from pyprof.parse import range_texts
from pyprof.parse.formats import FORMATS
from pyprof.parse.heads import Head, of_export
from pyprof.parse.trace_builder import (
    Clock,
    Names,
    Threads,
    count,
    empty_ops,
    gpu_table,
    io_table,
    launch_table,
    range_table,
)

# eventType of NVTX_EVENTS; 70 and 71 are ranges imported from another process. Source: ENUM_NSYS_EVENT_TYPE.
_RANGE_KINDS = {34: MARK, 59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
_MAX_DOMAINS = 1 << 16  # more than any process creates
_DOMAIN = 75  # eventType of the creation of a domain: its number and name
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_NAMES = ("demangledName", "shortName", "mangledName")
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES, _SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NAME = "graph "
_WHOLE = (
    "replays of CUDA graphs recorded as a whole: their kernels and operators are unknown; record with "
    "--cuda-graph-trace=node (kept)"
)
# Tables with device and stream that are no work of a device: waits and events of the host, the profiler's own time.
_NO_WORK = ("SYNCHRONIZATION", "CUDA_EVENT", "OVERHEAD")
_LAUNCHES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_MARKS = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    _KERNELS,
    _GRAPHS,
)


TIMED = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", _KERNELS, _GRAPHS)  # for the time of a file
_DIAGNOSTICS = "nsys.diagnostics"  # problems that nsys reported while recording
_WARNING_OR_ERROR = (2, 3)  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL


@FORMATS.register("nsys")
class Nsys:
    @staticmethod
    def sniff(path: Path) -> bool:
        if not is_sqlite(path):
            return False
        present = tables(path)
        return "StringIds" in present and any(name in present for name in _MARKS) and "PYPROF_META" not in present

    @staticmethod
    def head(path: Path) -> Head:
        return of_export(path, TIMED)

    @staticmethod
    def load(path: Path) -> Trace:
        steps = Steps(*(np.empty(0, np.int64) for _ in range(4)))
        with Database(path) as database:
            trace = Reader(database).trace("nsys", empty_ops(), steps, no_memory(), no_pauses())
        if not len(trace.gpu):
            diagnostics = trace.meta.get(_DIAGNOSTICS)
            raise FormatError(
                f"{path}: no kernels found, {len(trace.ranges)} NVTX ranges{trace.losses()}. "
                + (
                    f"Nsight Systems reported: {diagnostics}"
                    if diagnostics
                    else 'Record with "nsys profile -t cuda,nvtx".'
                )
            )
        return trace


class Reader:
    """State shared by all tables: names, threads, clock, and the count of losses."""

    io_table = "OSRT_API"

    def __init__(self, database: Database):
        self.database = database
        self.names = Names(database, "StringIds", "id", "value")
        self.threads = Threads()
        self.clock = Clock()
        self.lost: dict[str, int] = {}

    def trace(self, format_: str, ops: Ops, steps: Steps, memory: Memory, pauses: Pauses) -> Trace:
        """Read all tables of the export, with those that only PyProf's own files have."""
        ranges = self._ranges()
        launches = self._launches()
        gpu = self._gpu(launches)
        io = self._io()
        pids = dict(self.database.rows("PROCESSES", ("globalPid", "name")))
        threads, processes = self.threads.finish(
            {_process(key): name for key, name in pids.items() if type(key) is int}
        )
        trace = Trace(
            path=str(self.database.path), format=format_, strings=self.names.strings, processes=processes,
            threads=threads, ranges=ranges, ops=ops, launches=launches, gpu=gpu, io=io, steps=steps,
            devices=self._devices(), meta=self._meta(), memory=memory, pauses=pauses, lost=self.lost,
        )  # fmt: skip
        self.clock.start_at_zero(trace)
        return trace

    def _ranges(self) -> Ranges:
        self._domains: dict[tuple[int, int], str] = {}
        numbers: dict[tuple[int, int], int] = {}  # of process and domain
        table = range_table(self._range_parts(numbers), self.database.count("NVTX_EVENTS"), self.lost)
        codes = [self.names.strings.code(self._domain(key)) for key in numbers]
        return dataclasses.replace(table, domain=np.array(codes or [0], np.int32)[table.domain])

    def _domain(self, key: tuple[int, int]) -> str:
        """Return the name of a domain. The default domain, 0, has none."""
        return self._domains.get(key, f"domain {key[1]}" if key[1] else "")

    def _range_parts(
        self, domains: dict[tuple[int, int], int]
    ) -> Iterator[tuple[Ints, Ints, Column, range_texts.SplitTexts, Ints, Ints]]:
        """Yield batches of ranges. Their domains are numbered in `domains`, because the names may come later than the
        ranges."""
        numbers = ("start", "end", "eventType", "globalTid", "textId", "domainId")
        for batch in self.database.read("NVTX_EVENTS", numbers, ("text",)):
            event, start = required(batch.column("eventType"), 59), batch.column("start")
            kind = np.full(batch.rows, -1, np.int8)
            for number, meaning in _RANGE_KINDS.items():
                kind[event == number] = meaning
            kind[~start.mask()] = -1
            tid, text = required(batch.column("globalTid")), self._text(batch)
            process, domain_id = tid >> 24, required(batch.column("domainId"))
            for row in np.flatnonzero(event == _DOMAIN).tolist():
                name = self.names.strings[text.code[row]]
                self._domains[int(process[row]), int(domain_id[row])] = name
            distinct, code = np.unique(process * _MAX_DOMAINS + domain_id, return_inverse=True)
            indices = [domains.setdefault(divmod(key, _MAX_DOMAINS), len(domains)) for key in distinct.tolist()]
            domain = np.array(indices, np.int32)[code]
            yield self.threads.index(tid), start.values, batch.column("end"), text, kind, domain

    def _text(self, batch: Batch) -> range_texts.SplitTexts:
        """Return the text of each range: its own, otherwise the registered one."""
        own = range_texts.split(batch.text("text"), self.names.strings)
        ids = batch.column("textId")
        registered = ids.mask() & (own.code == self.names.strings.code(""))
        if not registered.any():
            return own
        split = self.names.split_texts().take(self.names.place(ids.values))
        return range_texts.SplitTexts(
            np.where(registered, split.code, own.code),
            Column(
                np.where(registered, split.seq.values, own.seq.values),
                np.where(registered, split.seq.mask(), own.seq.mask()),
            ),
            np.where(registered, split.operator, own.operator),
        )

    def _launches(self) -> Launches:
        return launch_table(self._launch_parts(), self.database.count(*_LAUNCHES))

    def _launch_parts(self) -> Iterator[tuple[Ints, Batch, Ints]]:
        for table in _LAUNCHES:
            for batch in self.database.read(table, ("start", "end", "globalTid", "correlationId", "nameId")):
                thread = self.threads.index(required(batch.column("globalTid")))
                yield thread, batch, self.names.codes(batch.column("nameId"))

    def _gpu(self, launches: Launches) -> Gpu:
        tables = (_KERNELS, _COPIES, _SETS, _GRAPHS)
        count(self.lost, _WHOLE, self.database.count(_GRAPHS))
        for name, columns in sorted(self.database.tables.items()):
            if {"start", "end", "deviceId", "streamId"} <= columns and not name.endswith((*tables, *_NO_WORK)):
                count(
                    self.lost,
                    f"work of a device in the table {name} (not read: its time looks idle)",
                    self.database.count(name),
                )
        return gpu_table(self._gpu_parts(launches), self.database.count(*tables), self.lost)

    def _gpu_parts(self, launches: Launches) -> Iterator[tuple[Batch, Ints, int, Ints]]:
        common = (
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
        )
        kernel = (_NAMES, "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread",
                  "staticSharedMemory", "dynamicSharedMemory")  # fmt: skip
        for batch in self.database.read(_KERNELS, common + kernel):
            name = self.names.codes(batch.column(_NAMES[0]))
            yield batch, name, KERNEL, self._process(batch, launches)
        for batch in self.database.read(_COPIES, (*common, "bytes", "copyKind", "srcKind", "dstKind")):
            yield batch, copy_names(self.names, batch), MEMCPY, self._process(batch, launches)
        for batch in self.database.read(_SETS, (*common, "bytes")):
            code = self.names.strings.code("memset")
            yield batch, np.full(batch.rows, code, np.int32), MEMSET, self._process(batch, launches)
        for batch in self.database.read(_GRAPHS, (*common, "graphId", "graphExecId")):
            yield batch, self._graph_names(batch), GRAPH, self._process(batch, launches)

    def _graph_names(self, batch: Batch) -> Ints:
        """Return a name for each replay by the number of its graph."""
        graph, executable = batch.column("graphId"), batch.column("graphExecId")
        number = np.where(graph.mask(), graph.values, np.where(executable.mask(), executable.values, -1))
        distinct, code = np.unique(number, return_inverse=True)
        texts = [f"{GRAPH_NAME}{one}" if one >= 0 else "graph" for one in distinct.tolist()]
        return self.names.strings.codes(texts)[code.reshape(-1)]

    def _process(self, batch: Batch, launches: Launches) -> Ints:
        """Return the process of each GPU event; -1 where the file does not say and several are possible."""
        key = batch.column("globalPid")
        out = np.full(batch.rows, -1, np.int32)
        present = key.mask()
        out[present] = self.threads.process(key.values[present])
        if not present.all():
            owner = self.threads.process_of_correlation(launches, batch.column("correlationId"))
            out[~present] = owner[~present]
        return out

    def _io(self) -> Io:
        return io_table(self._io_parts(), self.database.count(self.io_table), self.lost)

    def _io_parts(self) -> Iterator[tuple[Ints, Batch, Ints]]:
        for batch in self.database.read(self.io_table, ("start", "end", "globalTid", "nameId")):
            thread = self.threads.index(required(batch.column("globalTid")))
            yield thread, batch, self.names.codes(batch.column("nameId"))

    def _devices(self) -> list[Device]:
        columns = (
            "id",
            "name",
            "smCount",
            "numMultiprocessors",
            "computeMajor",
            "computeMinor",
            "totalMemory",
            "cuDevice",
            "clockRate",
            "memoryBandwidth",
        )
        out = []
        for index, name, sms, sms2, major, minor, memory, cuda, clock, bandwidth in self.database.rows(
            "TARGET_INFO_GPU", columns
        ):
            number = cuda if isinstance(cuda, int) else index
            capability = f"{major}.{minor}" if major is not None and minor is not None else None
            if isinstance(number, int):
                units = _int(sms) or _int(sms2)
                sizes = _int(memory), _int(clock), _int(bandwidth)
                out.append(Device(number, str(name), units, capability, *sizes))
        return sorted(out)

    def _meta(self) -> dict[str, str]:
        meta: dict[str, Any] = {}
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
            meta.update(self.database.rows(table, ("name", "value")))
        start = self.database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
        if start and start[0][0] is not None:
            meta["session_start_unix_ns"] = start[0][0]
        diagnostics = self.database.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        texts = dict.fromkeys(
            str(text).strip()[:300] for severity, text in diagnostics if severity in _WARNING_OR_ERROR
        )
        if texts:
            meta[_DIAGNOSTICS] = " | ".join(list(texts)[:5])
        return {str(name): str(value) for name, value in sorted(meta.items(), key=str)}


def copy_names(names: Names, batch: Batch) -> Ints:
    """Return a name for each copy by its copyKind."""
    out = np.full(batch.rows, names.strings.code("memcpy"), np.int32)
    kind = batch.column("copyKind")
    for number, label in COPY_KINDS.items():
        out[kind.mask() & (kind.values == number)] = names.strings.code(f"memcpy {label}")
    return out


def _process(global_pid: int) -> int:
    return global_pid >> 24


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None

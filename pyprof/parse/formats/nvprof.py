# SPDX-License-Identifier: Apache-2.0
"""Databases of nvprof (`nvprof -o net.sql`), up to CUDA 11.

Kernels are in CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, or in CUPTI_ACTIVITY_KIND_KERNEL when nvprof collected metrics.
A range is two rows of the marker table with one id, flags 2 where it starts and 4 where it ends; its thread is a
binary value: process (4 bytes) and thread (8 bytes), little-endian. Launch records hold the low 32 bits of the
thread. Source: cupti_activity.h (CUpti_ActivityMarker2, CUpti_ActivityObjectKindId).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyprof.core import arrow
from pyprof.core.api_names import api_name
from pyprof.core.errors import FormatError
from pyprof.core.model import (
    KERNEL,
    MARK,
    MEMCPY,
    MEMSET,
    PUSH_POP,
    Column,
    Device,
    Gpu,
    Ints,
    Launches,
    Ranges,
    Steps,
    Trace,
)
from pyprof.core.sqlite_file import Batch, Database, is_sqlite, required, tables
from pyprof.parse.formats import FORMATS
from pyprof.parse.formats.nsys import copy_names
from pyprof.parse.heads import Head, of_export
from pyprof.parse.trace_builder import (
    Clock,
    Names,
    Threads,
    empty_ops,
    gpu_table,
    io_table,
    launch_table,
    range_table,
)

_MARKER = "CUPTI_ACTIVITY_KIND_MARKER"
_COPIES, _SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_INSTANT, _START, _END = 1, 2, 4  # flags of a marker
_TID = 0xFFFFFFFF


@FORMATS.register("nvprof")
class Nvprof:
    @staticmethod
    def sniff(path: Path) -> bool:
        return is_sqlite(path) and "StringTable" in tables(path)

    @staticmethod
    def head(path: Path) -> Head:
        return of_export(path, _KERNELS)

    @staticmethod
    def load(path: Path) -> Trace:
        with Database(path) as database:
            trace = _Reader(database).trace()
        if not len(trace.gpu):
            raise FormatError(
                f'{path}: no kernels found{trace.losses()}. Record with "nvprof -f -o net.sql -- python SCRIPT".'
            )
        return trace


class _Reader:
    def __init__(self, database: Database):
        self.database = database
        self.names = Names(database, "StringTable", "_id_", "value")
        self.threads = Threads(tid_bits=32, pid_bits=31)
        self.lost: dict[str, int] = {}

    def trace(self) -> Trace:
        ranges, launches = self._ranges(), self._launches()
        gpu = self._gpu(launches)
        threads, processes = self.threads.finish({})
        trace = Trace(
            path=str(self.database.path), format="nvprof", strings=self.names.strings, processes=processes,
            threads=threads, ranges=ranges, ops=empty_ops(), launches=launches, gpu=gpu, io=io_table([], 0, self.lost),
            steps=Steps(*(np.empty(0, np.int64) for _ in range(4))), devices=self._devices(), lost=self.lost,
        )  # fmt: skip
        Clock().start_at_zero(trace)
        return trace

    def _ranges(self) -> Ranges:
        """Read ranges: starts and ends joined on the id. An id may be used again once its range has ended."""
        keys, columns = [], []
        for batch in self.database.read(_MARKER, ("flags", "timestamp", "id", "name", "domain"), (), ("objectId",)):
            keys.append(self._thread(batch.text("objectId")))
            numbers = ("flags", "timestamp", "id", "name", "domain")
            columns.append([required(batch.column(name)) for name in numbers])
        if not columns:
            return range_table([], 0, self.lost)
        flags, time, number, name, domain = (np.concatenate(parts) for parts in zip(*columns))
        thread = self.threads.index(np.concatenate(keys))
        order = np.lexsort((flags, time, number))
        order = order[np.isin(flags[order], (_INSTANT, _START, _END))]
        flag = flags[order]
        is_start = np.flatnonzero(flag != _END)
        after = np.minimum(is_start + 1, len(order) - 1)
        closes = (is_start + 1 < len(order)) & (flag[after] == _END) & (number[order[after]] == number[order[is_start]])
        start = order[is_start]
        mark = flag[is_start] == _INSTANT
        end = Column(np.where(mark, time[start], time[order[after]]), closes | mark)
        self.lost.update(
            {"markers that end a range that never began": n} if (n := int((flag == _END).sum() - closes.sum())) else {}
        )
        split = self.names.split_texts().take(self.names.place(name[start]))
        kind = np.where(mark, MARK, PUSH_POP).astype(np.int8)
        domains = self.names.codes(Column(domain[start]))
        return range_table([(thread[start], time[start], end, split, kind, domains)], len(start), self.lost)

    @staticmethod
    def _thread(object_ids: pa.Array) -> Ints:
        """Return thread keys of hexadecimal object ids."""
        encoded = object_ids.dictionary_encode()
        keys = []
        for text in encoded.dictionary.to_pylist():
            raw = bytes.fromhex(text)
            pid, tid = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:12], "little")
            keys.append((pid & 0x7FFFFFFF) << 32 | tid & _TID)
        return np.array(keys, np.int64)[arrow.numbers(encoded.indices)]

    def _launches(self) -> Launches:
        parts = []
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
            for batch in self.database.read(table, ("start", "end", "processId", "threadId", "correlationId", "cbid")):
                pid, tid = required(batch.column("processId")), required(batch.column("threadId"))
                parts.append(
                    (
                        self.threads.index((pid & 0x7FFFFFFF) << 32 | tid & _TID),
                        batch,
                        self._api(table, batch),
                    )
                )
        return launch_table(parts, sum(batch.rows for _, batch, _ in parts))

    def _api(self, table: str, batch: Batch) -> Ints:
        """Return names of API calls. The file has CUPTI's numbers, which differ between runtime and driver."""
        cbid = batch.column("cbid")
        code, distinct = arrow.factorize(np.where(cbid.mask(), cbid.values, 0))
        library = table.rpartition("_")[2].lower()
        texts = [api_name(library, number) for number in distinct.tolist()]
        return np.array([self.names.strings.code(text) for text in texts] or [0], np.int32)[code]

    def _gpu(self, launches: Launches) -> Gpu:
        gpu = gpu_table(self._gpu_parts(launches), self.database.count(*_KERNELS, _COPIES, _SETS), self.lost)
        gpu.source_kind, gpu.target_kind = _memory_kind(gpu.source_kind), _memory_kind(gpu.target_kind)
        return gpu

    def _gpu_parts(self, launches: Launches) -> Iterator[tuple[Batch, Ints, int, Ints]]:
        """Yield batches of both kernel tables, copies and sets. nvprof records one process: the one that launched."""
        common = ("start", "end", "deviceId", "contextId", "streamId", "correlationId")
        kernel = ("name", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread",
                  "staticSharedMemory", "dynamicSharedMemory")  # fmt: skip
        for table in _KERNELS:
            for batch in self.database.read(table, common + kernel):
                yield batch, self.names.codes(batch.column("name")), KERNEL, self._owner(batch, launches)
        for batch in self.database.read(_COPIES, (*common, "bytes", "copyKind", "srcKind", "dstKind")):
            yield batch, copy_names(self.names, batch), MEMCPY, self._owner(batch, launches)
        for batch in self.database.read(_SETS, (*common, "bytes")):
            code = np.full(batch.rows, self.names.strings.code("memset"), np.int32)
            yield batch, code, MEMSET, self._owner(batch, launches)

    def _owner(self, batch: Batch, launches: Launches) -> Ints:
        return self.threads.process_of_correlation(launches, batch.column("correlationId"))

    def _devices(self) -> list[Device]:
        columns = (
            "id",
            "name",
            "numMultiprocessors",
            "computeCapabilityMajor",
            "computeCapabilityMinor",
            "globalMemorySize",
            "coreClockRate",
            "globalMemoryBandwidth",
        )
        out = []
        for index, name, sms, major, minor, memory, khz, kbytes in self.database.rows(
            "CUPTI_ACTIVITY_KIND_DEVICE", columns
        ):
            if type(index) is int and type(name) is int:
                code = self.names.codes(Column(np.array([name], np.int64)))[0]
                rates = (1000 * value if isinstance(value, int) else None for value in (khz, kbytes))
                out.append(Device(index, self.names.strings[code], sms, f"{major}.{minor}", memory, *rates))
        return out


def _memory_kind(column: Column) -> Column:
    """Convert kinds of memory: CUPTI counts them from 1, with 0 for unknown, Nsight from 0."""
    return Column(column.values - 1, column.mask() & (column.values > 0))

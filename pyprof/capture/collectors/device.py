# SPDX-License-Identifier: Apache-2.0
"""Device events as columns: the output of both device collectors, and the contents of the capture file.

A table has the name and the columns that an export of Nsight Systems gives it, so that one reader serves both. Every
column is an int64 array; `MISSING` marks a value that the source does not provide, and a column that is absent is
missing in every row. Times are ns of the epoch, `globalTid` is the system's thread id until the file is written,
names are indices into `Records.names`.

Constants: documentation of CUPTI (`CUpti_ActivityMemoryKind`, `CUpti_ActivityMemcpyKind`,
`CUpti_ActivityLaunchType`, `CUpti_ActivitySynchronizationType`) and the ENUM tables of an export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Columns = dict[str, Array]

MISSING = -(2**63)

KERNEL, LAUNCH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
COPY, SET, SYNC = (
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)
MORE = "PYPROF_KERNEL"  # columns of a kernel that no table of an export has

_WHERE = (
    "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
)  # fmt: skip
# Schema 3.16.1 (2024.6), and the columns for graphs and clusters that later ones have.
TABLES: dict[str, tuple[str, ...]] = {
    KERNEL: (
        *_WHERE, "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
        "localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId",
        "sharedMemoryLimitConfig", "graphId", "clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy",
        "maxPotentialClusterSize", "maxActiveClusters",
    ),
    LAUNCH: (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId",
    ),
    COPY: (
        *_WHERE, "bytes", "copyKind", "deprecatedSrcId", "srcKind", "dstKind", "srcDeviceId", "srcContextId",
        "dstDeviceId", "dstContextId", "migrationCause", "graphNodeId", "virtualAddress",
    ),
    SET: (*_WHERE, "value", "bytes", "graphNodeId", "memKind"),
    SYNC: (*_WHERE, "syncType", "eventId"),
}  # fmt: skip
MORE_COLUMNS = ("sharedMemory", "occupancy")  # bytes per block, static and dynamic; 0.01 %
NAMES = ("demangledName", "shortName", "mangledName", "nameId")  # columns that hold names

# id, name, label, as an export has them.
ENUMS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_CUDA_MEMCPY_OPER": (
        (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"), (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
        (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"), (3, "CUDA_MEMCPY_KIND_HTOA", "Host-to-Array"),
        (4, "CUDA_MEMCPY_KIND_ATOH", "Array-to-Host"), (5, "CUDA_MEMCPY_KIND_ATOA", "Array-to-Array"),
        (6, "CUDA_MEMCPY_KIND_ATOD", "Array-to-Device"), (7, "CUDA_MEMCPY_KIND_DTOA", "Device-to-Array"),
        (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"), (9, "CUDA_MEMCPY_KIND_HTOH", "Host-to-Host"),
        (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
    ),
    "ENUM_CUDA_MEM_KIND": (
        (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"), (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
        (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"), (3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array"),
        (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"),
        (5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", "Device Static"),
        (6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC", "Managed Static"),
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": (
        (0, "CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN", "Unknown"), (1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular"),
        (2, "CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"),
        (3, "CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"),
    ),
    "ENUM_CUPTI_SYNC_TYPE": (
        (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"),
    ),
    "ENUM_NSYS_EVENT_CLASS": (
        (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
    ),
}  # fmt: skip
RUNTIME, DRIVER = 0, 1  # eventClass


class Records:
    """Device events of the windows so far."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.lost: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._parts: dict[str, list[Columns]] = {}

    def __len__(self) -> int:
        return sum(len(part["start"]) for parts in self._parts.values() for part in parts)

    def name(self, text: str) -> int:
        """Return the index of a name."""
        code = self._codes.setdefault(text, len(self.names))
        if code == len(self.names):
            self.names.append(text)
        return code

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Add rows to a table. Raises KeyError for a column that it does not have."""
        allowed = (*TABLES[table], *(MORE_COLUMNS if table == KERNEL else ()))
        for name in columns:
            if name not in allowed:
                raise KeyError(f"{table}.{name}")
        if len(columns["start"]):
            part = {name: np.asarray(column, np.int64) for name, column in columns.items()}
            self._parts.setdefault(table, []).append(part)

    def drop(self, reason: str, count: int) -> None:
        """Count events that could not be recorded."""
        if count:
            self.lost[reason] = self.lost.get(reason, 0) + count

    def count(self, *tables: str) -> int:
        """Return the number of rows of the given tables."""
        return sum(len(part["start"]) for table in tables for part in self._parts.get(table, ()))

    def parts(self, table: str) -> list[Columns]:
        """Return the rows of a table, in the pieces in which they were added."""
        return self._parts.get(table, [])

    def column(self, table: str, name: str) -> Array:
        """Return one column of a table."""
        columns = [part.get(name, np.full(len(part["start"]), MISSING, np.int64)) for part in self.parts(table)]
        return np.concatenate(columns) if columns else np.empty(0, np.int64)

    def extend(self, other: Records) -> None:
        """Add the rows and losses of another window."""
        codes = np.array([self.name(text) for text in other.names] or [0], np.int64)
        for table, parts in other._parts.items():
            for part in parts:
                names = {name: _take(codes, part[name]) for name in NAMES if name in part}
                self.add(table, {**part, **names})
        for reason, count in other.lost.items():
            self.drop(reason, count)

    def before(self, limit: int) -> Records:
        """Return the records launched before a time; the caller counts the rest in `lost`."""
        out = Records()
        out.names, out._codes, out.lost = self.names, self._codes, self.lost
        late = self.column(LAUNCH, "start") >= limit
        dropped = np.unique(self.column(LAUNCH, "correlationId")[late])
        for table, parts in self._parts.items():
            for part in parts:
                keep = part["start"] < limit if table == LAUNCH else ~np.isin(part["correlationId"], dropped)
                out.add(table, {name: column[keep] for name, column in part.items()})
        return out

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]


def _take(codes: Array, column: Array) -> Array:
    valid = column != MISSING
    return np.where(valid, codes[np.where(valid, column, 0)], MISSING)


def column(values: Iterable[int | None]) -> Array:
    """Return a column of numbers; None becomes MISSING."""
    return np.array([MISSING if value is None else value for value in values], np.int64)

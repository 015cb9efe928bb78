# SPDX-License-Identifier: Apache-2.0
"""Decode CUPTI's buffers of activity records into the tables and columns of `collectors/device.py`.

A buffer is walked once in Python, record by record, only to find the offsets of the records of each kind. numpy then
copies the records of a kind as a whole and converts their fields, a column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.capture.collectors import device
from pyprof.capture.collectors.cupti import records
from pyprof.capture.collectors.cupti.records import DRIVER, KERNEL, MEMCPY, MEMSET, PEER_COPY, RUNTIME, SYNC
from pyprof.capture.collectors.device import MISSING, Array, Records
from pyprof.core.errors import CaptureError
from pyprof.core.symbols import demangle

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.void]
# Asks the library for the end of a record: buffer, valid bytes, offset of the record -> offset of the next, or None.
NextRecord = Callable[[Bytes, int, int], int | None]

_INVALID = 0xFFFFFFFF  # CUPTI_SYNCHRONIZATION_INVALID_VALUE


class Buffer(NamedTuple):
    """One buffer that CUPTI has filled."""

    data: Bytes
    valid: int  # bytes


class Names(NamedTuple):
    """Functions that return the names of kernels and API calls, to which a record only refers."""

    kernel: Callable[[int], str]  # address of a C string -> mangled name
    call: Callable[[bool, int], str]  # whether of the driver (else of the runtime), number -> name of the function


class Walk:
    """A walk over the records of buffers, which finds their offsets and counts in `lost` what it could not read.

    `sizes`: bytes of a record by kind, as in the headers of CUPTI. A library of another version may use other sizes:
    with `next_record` it is asked once per kind, and its answer is used.
    """

    def __init__(self, sizes: dict[int, int], next_record: NextRecord | None = None):
        self.lost: dict[str, int] = {}
        self._table = sizes
        self._next_record = next_record
        self._steps: dict[int, int] = (  # size of a record by kind, in units of four bytes
            {} if next_record is not None else {k: size // 4 for k, size in sizes.items()}
        )

    def places(self, buffer: Buffer) -> dict[int, list[int]]:
        """Return the offsets of the records by kind, in units of four bytes. Raises CaptureError for a record that is
        too short."""
        data: Any = buffer.data
        kinds = memoryview(data)[: buffer.valid // 4 * 4].cast("i")
        end, at, steps = len(kinds), 0, self._steps
        out: dict[int, list[int]] = {}
        while at < end:
            kind = kinds[at]
            step = steps.get(kind) or self._first_step(kind, buffer, at)
            if not step:
                self._drop("bytes of activity records of an unknown kind", 4 * (end - at))
                break
            if at + step > end:
                self._drop("activity records cut off at the end of a buffer")
                break
            try:  # the fastest way in Python, for millions of records
                out[kind].append(at)
            except KeyError:
                out[kind] = [at]
            at += step
        return out

    def size(self, kind: int) -> int:
        """Return the size of a record, in bytes."""
        return 4 * self._steps[kind] if kind in self._steps else self._table[kind]

    def _first_step(self, kind: int, buffer: Buffer, at: int) -> int:
        """Return the size in units of four bytes of a kind of record met for the first time, 0 if it is unknown."""
        following = self._next_record(buffer.data, buffer.valid, 4 * at) if self._next_record else None
        if following is None:  # the last of its buffer: use the table, and ask again in the next buffer
            return self._table.get(kind, 0) // 4
        size = following - 4 * at
        if size <= 0 or size % 8 or (kind in records.NAMES and size < records.required(kind)):
            raise CaptureError(
                f"CUPTI's record {records.NAMES.get(kind, kind)} has {size} bytes, at least "
                f"{records.required(kind) if kind in records.NAMES else 8} were expected: this version of CUPTI cannot "
                "be read. Use the collector kineto."
            )
        self._steps[kind] = size // 4
        return size // 4

    def _drop(self, reason: str, count: int = 1) -> None:
        self.lost[reason] = self.lost.get(reason, 0) + count


def decode(
    buffers: Iterable[Buffer],
    sizes: dict[int, int],
    names: Names,
    clock: Callable[[Array], Array] = lambda times: times,
    next_record: NextRecord | None = None,
) -> Records:
    """Decode all records of the buffers. `clock` converts CUPTI's times to ns of the Unix epoch.

    What could not be read is counted in `Records.lost`. Raises CaptureError for a record that is too short.
    """
    walk = Walk(sizes, next_record)
    rows: dict[int, list[Rows]] = {kind: [] for kind in records.NAMES}
    for buffer in buffers:
        for kind, places in walk.places(buffer).items():
            if kind in rows:
                rows[kind].append(_gather(buffer, records.dtype(kind, walk.size(kind)), places))
    out = Records()
    for reason, count in walk.lost.items():
        out.drop(reason, count)
    for kind, table, read in _READERS:
        for part in rows[kind]:
            out.add(table, read(_timed(part, out), out, names, clock))
    _calls(rows, out, names, clock)
    return out


def _gather(buffer: Buffer, dtype: np.dtype[np.void], places: list[int]) -> Rows:
    """Return the records at the given offsets as one array. Records are aligned to eight bytes."""
    count = (len(buffer.data) - dtype.itemsize) // 8 + 1
    opaque = np.dtype((np.void, dtype.itemsize))  # copied whole: field by field takes 14 times as long
    aligned: Rows = np.ndarray((count,), opaque, buffer.data, strides=(8,))
    return aligned[np.array(places, np.int64) // 2].view(dtype)


def _timed(part: Rows, out: Records) -> Rows:
    """Return the rows that have both times. CUPTI writes 0 for a missing time, and running work has no end."""
    started, ended = part["start"] != 0, part["end"] != 0
    out.drop("device events without times", int(np.count_nonzero(~started)))
    out.drop("device events that had not ended when the window was closed", int(np.count_nonzero(started & ~ended)))
    return part if (started & ended).all() else part[started & ended]


def _common(part: Rows, clock: Callable[[Array], Array]) -> dict[str, Array]:
    """Return the columns that kernels, copies and sets have in common: when, and where."""
    return {
        "start": clock(part["start"].astype(np.int64)), "end": clock(part["end"].astype(np.int64)),
        "deviceId": _ints(part["device_id"]), "contextId": _ints(part["context_id"]),
        "streamId": _ints(part["stream_id"]), "correlationId": _ints(part["correlation_id"]),
        "graphNodeId": _not_zero(part["graph_node_id"]),
    }  # fmt: skip


# Columns of a kernel that are copied from the record unchanged.
_COPIED_COLUMNS = {
    "registersPerThread": "registers_per_thread", "gridX": "grid_x", "gridY": "grid_y", "gridZ": "grid_z",
    "blockX": "block_x", "blockY": "block_y", "blockZ": "block_z", "staticSharedMemory": "static_shared_memory",
    "dynamicSharedMemory": "dynamic_shared_memory", "localMemoryPerThread": "local_memory_per_thread",
    "localMemoryTotal": "local_memory_total_v2", "gridId": "grid_id",
    "sharedMemoryExecuted": "shared_memory_executed", "clusterX": "cluster_x", "clusterY": "cluster_y",
    "clusterZ": "cluster_z", "clusterSchedulingPolicy": "cluster_scheduling_policy",
    "maxPotentialClusterSize": "max_potential_cluster_size", "maxActiveClusters": "max_active_clusters",
}  # fmt: skip


def _kernels(part: Rows, out: Records, names: Names, clock: Callable[[Array], Array]) -> dict[str, Array]:
    pointers, inverse = np.unique(part["name"], return_inverse=True)
    mangled = [names.kernel(int(pointer)) for pointer in pointers]
    mangled_id = np.array([out.name(name) for name in mangled] or [0], np.int64)[inverse]
    demangled_id = np.array([out.name(demangle(name)) for name in mangled] or [0], np.int64)[inverse]
    return {
        **_common(part, clock),
        "demangledName": demangled_id,
        "mangledName": mangled_id,
        "launchType": part["launch_type"].astype(np.int64) + 1,  # CUPTI counts from regular, an export from unknown
        "graphId": _not_zero(part["graph_id"]),
        **{column: _ints(part[name]) for column, name in _COPIED_COLUMNS.items()},
    }


def _copies(part: Rows, out: Records, names: Names, clock: Callable[[Array], Array]) -> dict[str, Array]:
    columns = {
        **_common(part, clock), "bytes": _ints(part["bytes"]), "copyKind": _ints(part["copy_kind"]),
        "srcKind": _memory_kind(part["src_kind"]), "dstKind": _memory_kind(part["dst_kind"]),
    }  # fmt: skip
    if "src_device_id" in (part.dtype.names or ()):
        for side in ("src", "dst"):
            columns[f"{side}DeviceId"] = _ints(part[f"{side}_device_id"])
            columns[f"{side}ContextId"] = _ints(part[f"{side}_context_id"])
    return columns


def _sets(part: Rows, out: Records, names: Names, clock: Callable[[Array], Array]) -> dict[str, Array]:
    return {
        **_common(part, clock),
        "bytes": _ints(part["bytes"]),
        "value": _ints(part["value"]),
        "memKind": _memory_kind(part["memory_kind"]),
    }


def _syncs(part: Rows, out: Records, names: Names, clock: Callable[[Array], Array]) -> dict[str, Array]:
    return {
        "start": clock(part["start"].astype(np.int64)), "end": clock(part["end"].astype(np.int64)),
        "contextId": _ints(part["context_id"]), "correlationId": _ints(part["correlation_id"]),
        "streamId": _valid(part["stream_id"]), "syncType": _ints(part["type"]),
        "eventId": _valid(part["cuda_event_id"]),
    }  # fmt: skip


# Kind of record, its table, the function that returns the table's columns.
_READERS = (
    (KERNEL, device.KERNEL, _kernels), (MEMCPY, device.COPY, _copies), (PEER_COPY, device.COPY, _copies),
    (MEMSET, device.SET, _sets), (SYNC, device.SYNC, _syncs),
)  # fmt: skip


def _calls(rows: dict[int, list[Rows]], out: Records, names: Names, clock: Callable[[Array], Array]) -> None:
    """Add the runtime calls, and the driver calls that launched work without a runtime call.

    A runtime call and the driver call inside it have the same correlation id; the runtime call is the launch.
    """
    tables = (device.KERNEL, device.COPY, device.SET, device.SYNC)
    launched = np.concatenate([out.column(table, "correlationId") for table in tables])
    without_runtime = np.setdiff1d(
        launched, np.concatenate([launched[:0], *(part["correlation_id"] for part in rows[RUNTIME])])
    )
    for part in _api_parts(rows, out, without_runtime):
        driver = int(part["kind"][0]) == DRIVER
        numbers, inverse = np.unique(part["cbid"], return_inverse=True)
        name_ids = np.array([out.name(names.call(driver, int(number))) for number in numbers], np.int64)
        out.add(
            device.LAUNCH,
            {
                "start": clock(part["start"].astype(np.int64)), "end": clock(part["end"].astype(np.int64)),
                "eventClass": np.full(len(part), device.DRIVER if driver else device.RUNTIME, np.int64),
                "globalTid": _ints(part["thread_id"]), "correlationId": _ints(part["correlation_id"]),
                "nameId": name_ids[inverse], "returnValue": _ints(part["return_value"]),
            },
        )  # fmt: skip


def _api_parts(rows: dict[int, list[Rows]], out: Records, without_runtime: Array) -> Iterator[Rows]:
    """Yield the runtime calls, then the driver calls with a correlation id in `without_runtime`."""
    for part in rows[RUNTIME]:
        yield _timed(part, out)
    for part in rows[DRIVER]:
        part = part[np.isin(part["correlation_id"], without_runtime)]
        if len(part):
            yield _timed(part, out)


def _ints(column: Any) -> Array:
    out: Array = column.astype(np.int64)
    return out


def _not_zero(column: Any) -> Array:
    return np.where(column == 0, MISSING, column.astype(np.int64))


def _valid(column: Any) -> Array:
    return np.where(column == _INVALID, MISSING, column.astype(np.int64))


def _memory_kind(column: Any) -> Array:
    """Convert a memory kind: CUPTI's 0 is unknown and its 1 pageable; in an export 0 is pageable."""
    return np.where(column == 0, MISSING, column.astype(np.int64) - 1)

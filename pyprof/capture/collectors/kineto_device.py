# SPDX-License-Identifier: Apache-2.0
"""Device events in the memory of torch's profiler (Kineto), as the tables of `device.py`.

Kineto gives the kind of an event and its other fields as a fragment of JSON, the metadata: grid, block, registers,
shared memory (static and dynamic together), bytes, graph node. Torch 2.13 returns both (`trace_activities`); an
older one writes them only to a trace file, which is exported to a temporary file, read and removed. `decode` itself
does not depend on torch.

Source of the metadata's keys: libkineto/src/CuptiActivity.cpp and CudaMetadataFields.h of pytorch/kineto.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from pyprof.capture.collectors.device import (
    COPY,
    DRIVER,
    ENUMS,
    KERNEL,
    LAUNCH,
    RUNTIME,
    SET,
    SYNC,
    Records,
    column,
)

# Kinds of event that become rows; Kineto's other kinds are operators, or internal to it.
KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync")
_COPY = re.compile(r"Memcpy (\w+) \(([\w ]+) -> ([\w ]+)\)")
_SET = re.compile(r"Memset \(([\w ]+)\)")
_COPY_KINDS = {name[-4] + "to" + name[-1]: number for number, name, _ in ENUMS["ENUM_CUDA_MEMCPY_OPER"][1:]}
_MEMORY_KINDS = {label: number for number, _, label in ENUMS["ENUM_CUDA_MEM_KIND"]}
_SYNC_KINDS = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
_NO_STREAM = (-1, 0xFFFFFFFF)  # a synchronization without a stream


class DeviceEvent(NamedTuple):
    """One event of Kineto. Times are ns of the epoch; `resource` is the stream, or the thread of a call."""

    kind: str
    name: str
    start: int
    end: int
    device: int
    resource: int
    correlation: int
    metadata: dict[str, Any]


def decode(events: Iterable[DeviceEvent]) -> Records:
    """Convert events to rows. An event that ends before it starts is kept as it is; unknown kinds are dropped."""
    out = Records()
    rows: dict[str, list[dict[str, int | None]]] = {}
    for event in events:
        table, read = _READ[event.kind]
        rows.setdefault(table, []).append(read(event, out))
    for table, records in rows.items():
        names = {name: None for row in records for name in row}
        out.add(table, {name: column(row.get(name) for row in records) for name in names})
    return out


def _where(event: DeviceEvent) -> dict[str, int | None]:
    of = event.metadata.get
    stream = _number(of("stream"), event.resource)
    return {
        "start": event.start, "end": event.end, "deviceId": _number(of("device"), event.device),
        "contextId": _number(of("context")), "streamId": None if stream in _NO_STREAM else stream,
        "correlationId": _number(of("correlation"), event.correlation),
    }  # fmt: skip


def _kernel(event: DeviceEvent, out: Records) -> dict[str, int | None]:
    of = event.metadata.get
    grid, block = (_triple(of(key)) for key in ("grid", "block"))
    occupancy = _number(of("est. achieved occupancy %"))
    return {
        **_where(event), "demangledName": out.name(event.name),
        "registersPerThread": _number(of("registers per thread")),
        "gridX": grid[0], "gridY": grid[1], "gridZ": grid[2], "blockX": block[0], "blockY": block[1],
        "blockZ": block[2], "graphNodeId": _number(of("graph node id")) or None,
        "graphId": _number(of("graph id")) or None, "sharedMemory": _number(of("shared memory")),
        # Kineto estimates 0 for a kernel that uses more shared memory than a block has by default; no kernel that
        # ran has an occupancy of 0, and one below half a percent is rounded to it.
        "occupancy": occupancy * 100 if occupancy else None,
    }  # fmt: skip


def _copy(event: DeviceEvent, out: Records) -> dict[str, int | None]:
    of = event.metadata.get
    kind, source, destination = match.groups() if (match := _COPY.match(event.name)) else ("", "", "")
    row = {
        **_where(event), "bytes": _number(of("bytes")), "copyKind": _COPY_KINDS.get(kind, 0),
        "srcKind": _MEMORY_KINDS.get(source), "dstKind": _MEMORY_KINDS.get(destination),
        "graphNodeId": _number(of("graph node id")) or None,
    }  # fmt: skip
    if "fromDevice" in event.metadata:  # between two devices
        row |= {
            "deviceId": _number(of("inDevice"), event.device), "contextId": _number(of("inContext")),
            "srcDeviceId": _number(of("fromDevice")), "srcContextId": _number(of("fromContext")),
            "dstDeviceId": _number(of("toDevice")), "dstContextId": _number(of("toContext")),
        }  # fmt: skip
    return row


def _set(event: DeviceEvent, out: Records) -> dict[str, int | None]:
    of = event.metadata.get
    match = _SET.match(event.name)
    return {
        **_where(event),
        "bytes": _number(of("bytes")),
        "graphNodeId": _number(of("graph node id")) or None,
        "memKind": _MEMORY_KINDS.get(match[1]) if match else None,
    }


def _sync(event: DeviceEvent, out: Records) -> dict[str, int | None]:
    of = event.metadata.get
    return {
        **_where(event),
        "syncType": _SYNC_KINDS.get(of("cuda_sync_kind", event.name)),
        "eventId": _number(of("wait_on_cuda_event_id", of("event_id"))),
    }


def _call(event: DeviceEvent, out: Records) -> dict[str, int | None]:
    return {
        "start": event.start,
        "end": event.end,
        "eventClass": DRIVER if event.kind == "cuda_driver" else RUNTIME,
        "globalTid": event.resource,
        "correlationId": _number(event.metadata.get("correlation"), event.correlation),
        "nameId": out.name(event.name),
    }


_READ: dict[str, tuple[str, Callable[[DeviceEvent, Records], dict[str, int | None]]]] = {
    "kernel": (KERNEL, _kernel), "gpu_memcpy": (COPY, _copy), "gpu_memset": (SET, _set), "cuda_sync": (SYNC, _sync),
    "cuda_runtime": (LAUNCH, _call), "cuda_driver": (LAUNCH, _call),
}  # fmt: skip


def _number(value: Any, otherwise: int | None = None) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return otherwise
    return int(value)


def _int(value: Any) -> int:
    return _number(value) or 0


def _triple(value: Any) -> tuple[int | None, int | None, int | None]:
    if isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value):
        return value[0], value[1], value[2]
    return None, None, None


def events(result: Any) -> Iterator[DeviceEvent]:
    """Yield the device events of a finished torch profile."""
    if not hasattr(result, "trace_activities"):
        yield from exported(_export(result))
        return
    for activity in result.trace_activities():
        kind = activity.type()
        if kind in KINDS:
            start = activity.timestamp()
            yield DeviceEvent(
                kind, activity.name(), start, start + max(activity.duration(), 0), activity.device_id(),
                activity.resource_id(), activity.correlation_id(), metadata(activity.metadata_json()),
            )  # fmt: skip


def metadata(fragment: str) -> dict[str, Any]:
    """Parse the members of a JSON object, given without its braces; empty if the text is something else.

    >>> metadata('"stream": 7, "grid": [2, 1, 1]'), metadata('"stream": ')
    ({'stream': 7, 'grid': [2, 1, 1]}, {})
    """
    try:
        members = json.loads("{" + fragment + "}")
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}


def _export(result: Any) -> bytes:
    handle, path = tempfile.mkstemp(suffix=".json", prefix="pyprof-")
    os.close(handle)
    try:
        result.save(path)
        with open(path, "rb") as file:
            return file.read()
    finally:
        os.unlink(path)


class _Event(msgspec.Struct):
    """One event of a trace. The arguments of most, which are of operators, are never needed; nor is what else an event
    of another kind has."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    ts: Any = 0.0
    dur: Any = 0.0
    pid: Any = 0
    tid: Any = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]
    baseTimeNanoseconds: int = 0


_TRACE, _ARGUMENTS = msgspec.json.Decoder(_Trace), msgspec.json.Decoder(dict[str, Any] | None)


def exported(text: bytes) -> Iterator[DeviceEvent]:
    """Yield the device events of an exported trace. Its times are µs after `baseTimeNanoseconds`, or of the epoch.
    Raises ValueError if it is not JSON."""
    try:
        trace = _TRACE.decode(text)
    except ValueError:  # torch writes names as they are, with characters that JSON does not allow
        lax = json.loads(text.decode("utf-8", "replace"), strict=False)
        trace = _TRACE.decode(json.dumps(lax).encode())
    for event in trace.traceEvents:
        if event.ph == "X" and event.cat in KINDS:
            details = _ARGUMENTS.decode(event.args) or {}
            start = trace.baseTimeNanoseconds + round(event.ts * 1000)
            yield DeviceEvent(
                event.cat, event.name, start, start + round((event.dur or 0) * 1000),
                _int(event.pid), _int(event.tid), _int(details.get("correlation")), details,
            )  # fmt: skip

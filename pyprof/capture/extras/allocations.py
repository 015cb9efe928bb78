# SPDX-License-Identifier: Apache-2.0
"""`memory=True`: allocations and frees of torch's allocators, from the same profiler as the operators.

One row per event, in table PYPROF_MEMORY: bytes above 0 are an allocation, below 0 a free of the block at that
address. The CPU allocator reports the requested size; a caching allocator of a device reports the size of its block,
and the total that it holds in `reserved`. CPU blocks from before the window are freed without an event.

torch 2.13 reports no memory while it records all threads (pytorch issue 192290), so with this option operators and
memory are those of the thread that opens the window and of its backward (`collectors/kineto.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.output.capture_file import Recording, Table
from pyprof.capture.output.merge_calls import Innermost

_CREATE = """
-- One event of an allocator. bytes: above 0 allocated, below 0 freed, at that address. allocated and reserved: bytes of
-- that device after it; reserved is null where the allocator keeps none. call is the number of the recorded call it
-- happened in (uint64Value of NVTX_EVENTS), opNameId the innermost operator; null: outside of any.
create table PYPROF_MEMORY (
    time integer, globalTid integer, address integer, bytes integer, allocated integer, reserved integer,
    device text, deviceId integer, call integer, opNameId integer)
"""
_INSERT = "insert into PYPROF_MEMORY values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ALLOCATION = look_up("torch._C._profiler._EventType.Allocation", "memory")
_FIELDS = 7  # time, thread, address, bytes, allocated, reserved, device


class Allocations:
    """Allocator events so far."""

    def __init__(self, options: object, max_events: int, stacks: object):
        self._max_events = max_events
        self.clear()

    def __len__(self) -> int:
        return len(self._events) // _FIELDS

    def read(self, result: Any) -> None:
        """Keep the allocator events of one torch profile."""
        # The tree numbers threads from 1; the resource of an event is its system thread id.
        tids = {event.start_thread_id(): event.device_resource_id() for event in result.events()}
        allocations = []
        nodes = list(result.experimental_event_tree())
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children)
            if node.tag == _ALLOCATION:
                allocations.append(node)
        for node in sorted(allocations, key=_start):
            self._add(node, tids.get(node.start_tid, 0))

    def _add(self, node: Any, tid: int) -> None:
        if len(self) >= self._max_events:
            self.lost[self._reason] += 1
            return
        fields = node.extra_fields
        device = self._devices.setdefault((fields.device.type, fields.device.index), len(self._devices))
        # Unknown sizes are -1, read as an unsigned number.
        allocated, reserved = (
            value if 0 <= value < 1 << 62 else -1 for value in (fields.total_allocated, fields.total_reserved)
        )
        address = fields.ptr or 0
        self._events.extend((node.start_time_ns, tid, _signed(address), fields.alloc_size, allocated, reserved, device))

    def start(self, registry: Registry) -> None:
        """Do nothing: the session starts torch's profiler."""

    def stop(self) -> None:
        """Do nothing: the session stops torch's profiler."""

    def take(self, recorder: Recorder) -> None:
        """Do nothing: calls are looked up when the file is written."""

    def clear(self) -> None:
        self._events = array("q")
        self._devices: dict[tuple[str, int | None], int] = {}
        self._reason = f"memory events after the first {self._max_events}"
        self.lost: dict[str, int] = {self._reason: 0}

    def facts(self) -> dict[str, str]:
        return {"memory.events": str(len(self))}

    def tables(self) -> list[Table]:
        return [Table(_CREATE, _INSERT, self._rows)]

    def _rows(self, recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
        calls = _by_thread(recording.calls)
        operators = _by_thread(recording.operators)
        devices = list(self._devices)
        nowhere = Innermost(())
        columns = [self._events[index::_FIELDS] for index in range(_FIELDS)]
        for time, tid, address, count, allocated, reserved, device in zip(*columns):
            kind, number = devices[device]
            call, operator = (where.get(tid, nowhere).at(time) for where in (calls, operators))
            yield (
                time - recording.start, process | tid, address, count, allocated if allocated >= 0 else None,
                # The CPU allocator keeps no reserve, and reports 0.
                reserved if reserved >= 0 and kind != "cpu" else None, kind, number,
                call - 1 if call else None, code(recording.operators[operator - 1].call.op) if operator else None,
            )  # fmt: skip


def _by_thread(rows: Iterable[Any]) -> dict[int, Innermost]:
    """Return per thread a lookup of the innermost row at an instant: the number of the row, from 1."""
    intervals: dict[int, list[tuple[int, int, int]]] = {}
    for number, row in enumerate(rows, 1):
        intervals.setdefault(row.tid, []).append((row.start, row.end, number))
    return {tid: Innermost(spans) for tid, spans in intervals.items()}


def _start(node: Any) -> int:
    return int(node.start_time_ns)


def _signed(address: int) -> int:
    """Convert an address to a signed integer, as SQLite stores it.

    >>> _signed((1 << 64) - 1)
    -1
    """
    return address - (1 << 64) if address >> 63 else address

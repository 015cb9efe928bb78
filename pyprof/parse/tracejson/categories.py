# SPDX-License-Identifier: Apache-2.0
"""Events without a category, whose process says what they are.

torch_npu (trace_view.json): the process "Ascend Hardware" has what ran on the device, on one stream per thread, and
"CANN" the calls that started it, on the threads of "Python"; both have a `connection_id`. Its other processes repeat
these in other words, or have no work.

`EventList.export_chrome_trace`, of torch up to 1.7 and of `torch.autograd.profiler` since: "CPU functions" are
operators and ranges, "CUDA functions" kernels on a device per thread; an arrow begins at the operator and ends at the
kernel. torch 2 writes neither kernels nor the arrows' ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pyprof.core.marker import is_backward, is_qualified
from pyprof.parse.tracejson.events import FAULTS, Event
from pyprof.parse.tracejson.numeric import number_of

_DEVICE = re.compile(r"(?:CUDA|HIP|XPU|PrivateUse1|[A-Z]+) functions|Ascend Hardware", re.IGNORECASE)
_LEGACY, _CALLS, _CALLERS = "CPU functions", "CANN", "Python"
ARROWS = "cpu_to_"
# Of tasks of a device: they wait or mark, and do nothing.
_IDLE = re.compile(r"EVENT_|NOTIFY_|STARS_|PLACE_HOLDER|CAPTURE_")
_COPIES = re.compile(r"MEMCPY|SDMA")


def named(events: Sequence[Event], process_names: Mapping[Any, str]) -> list[Event]:
    """Return events with the categories that their processes imply; the others stay without one."""
    names = {event.pid: process_names.get(event.pid, str(event.pid)) for event in events}
    devices = {pid: number for number, pid in enumerate(pid for pid, name in names.items() if _is_device(name))}
    callers = [pid for pid, name in process_names.items() if name == _CALLERS]
    operators, launched = _arrows(events)
    out = []
    for event in events:
        name = names[event.pid]
        if event.ph != "X":
            continue
        if event.pid in devices:
            arrow = launched.get((event.pid, event.tid, event.ts))
            device = number_of(event.tid) if "functions" in name else devices[event.pid]
            out.append(_on_device(event, device, arrow))
        elif name == _LEGACY:
            number = operators.get((event.tid, event.ts, event.name))
            out.append(_copy(event, _of_operator(event.name), pid=0, args=_with(event, "External id", number)))
        elif name == _CALLS:
            pid = callers[0] if callers else event.pid
            out.append(_copy(event, "privateuse1_runtime", pid=pid, args=_with(event, "correlation", None)))
        else:
            out.append(event)
    return out


def without_kernels(events: Sequence[Event]) -> int:
    """Return the number of arrows to kernels that are not among the events."""
    ends = {event.id for event in events if event.ph == "f"}
    return sum(event.ph == "s" and event.id not in ends for event in events)


def _is_device(name: str) -> bool:
    return name != _LEGACY and _DEVICE.fullmatch(name) is not None


def _of_operator(name: str) -> str:
    return "cpu_op" if is_qualified(name) or is_backward(name) or name.isidentifier() else "user_annotation"


def _arrows(events: Iterable[Event]) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return a number per operator at which arrows begin, by thread, time and name, and that of its operator per kernel
    at which one ends, by process, thread and time."""
    operators: dict[Any, int] = {}
    begun: dict[Any, int] = {}
    for event in events:
        if event.ph == "s":
            begun[event.id] = operators.setdefault((event.tid, event.ts, event.name), len(operators) + 1)
    ends = {
        (event.pid, event.tid, event.ts): begun[event.id] for event in events if event.ph == "f" and event.id in begun
    }
    return operators, ends


def _on_device(event: Event, device: int, arrow: int | None) -> Event:
    args = _decoded(event)
    task = str(args.get("Task Type", ""))
    category = "trace" if _IDLE.match(task) else "gpu_memcpy" if _COPIES.match(task) else "kernel"
    args |= {"device": device} | ({} if arrow is None else {"External id": arrow})
    for ours, theirs in (("stream", "Stream Id"), ("correlation", "connection_id")):
        args |= {ours: args[theirs]} if theirs in args else {}
    return _copy(event, category, pid=device, args=msgspec.Raw(msgspec.json.encode(args)))


def _with(event: Event, key: str, number: int | None) -> msgspec.Raw:
    """Return the arguments of an event with a number, by default its connection's."""
    args = _decoded(event)
    number = args.get("connection_id") if number is None else number
    return msgspec.Raw(msgspec.json.encode(args if number is None else args | {key: number}))


def _decoded(event: Event) -> dict[str, Any]:
    try:
        return dict(msgspec.json.decode(event.args)) if len(event.args) else {}
    except (*FAULTS, TypeError, ValueError):
        return {}


def _copy(event: Event, category: str, pid: Any, args: msgspec.Raw) -> Event:
    return Event(event.ph, category, event.name, pid, event.tid, event.ts, event.dur, event.id, args)

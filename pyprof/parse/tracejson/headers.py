# SPDX-License-Identifier: Apache-2.0
"""The head of a trace of torch.profiler: the fields before its events, the first times, and the end of a plain file."""

from __future__ import annotations

import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

from pyprof.parse.heads import EPOCH_NS, QUARTER_NS, Head, number
from pyprof.parse.tracejson import facts
from pyprof.parse.tracejson import text as texts

_EVENTS, _TIME = re.compile(r'"traceEvents"\s*:'), re.compile(r'"ts"\s*:\s*"?([0-9]{1,16})(?![0-9])')
_OPERATOR = re.compile(r'"cat"\s*:\s*"(?:cpu_op|Operator)"[^{}]*?"pid"\s*:\s*"?([0-9]{1,9})\b')
_TAIL = 1 << 16
_DAY_NS = 86400 * 10**9  # earlier times may count from the start of the recording


def read(path: Path) -> Head:
    """Return the head of a trace. Raises OSError."""
    head, _, events = _parts(texts.head(path).decode("utf-8", "replace"))
    packed = texts.is_gzip(path)
    tail = "" if packed else _tail(path)
    header = {key: _value(key, head, tail) for key in ("distributedInfo", "deviceProperties", "host_name")}
    group, host = header["distributedInfo"], header["host_name"]
    is_member = isinstance(group, dict)
    base = _value("baseTimeNanoseconds", head, tail)
    start, cyclic = _start(events, base if type(base) is int and abs(base) < 1 << 62 else None, packed)
    process = _OPERATOR.search(events)
    return Head(
        distributed=True if is_member else False if "schemaVersion" in head else None, rank=facts.rank(header),
        world_size=number(group.get("world_size")) if isinstance(group, dict) else None,
        host=host if isinstance(host, str) and host else None, pid=int(process[1]) if process else None,
        gpus=frozenset(device.name for device in facts.devices(header["deviceProperties"]) if device.name),
        start=start, end=start, cyclic=cyclic,
    )  # fmt: skip


def _parts(text: str) -> tuple[str, str, str]:
    """Split a text before the list of events. Without one, all is events."""
    match = _EVENTS.search(text)
    return (text[: match.start()], match[0], text[match.end() :]) if match else ("", "", text)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        text = file.read().decode("utf-8", "replace")
    return text[text.rfind("}\n  ]") + 1 :] if "}\n  ]" in text else text


def _value(key: str, *parts: str) -> Any:
    """Return the first value of a key that is JSON; None without one."""
    for part in parts:
        for match in re.finditer(rf'"{key}"\s*:\s*', part):
            try:
                return json.JSONDecoder().raw_decode(part, match.end())[0]
            except (ValueError, RecursionError):
                continue
    return None


def _start(events: str, base: int | None, packed: bool) -> tuple[int | None, bool]:
    """Return a time of the beginning, and whether multiples of QUARTER_NS are missing from it."""
    times = [time for text in _TIME.findall(events) if (time := int(text))]
    if not times:
        return None, False
    time = statistics.median_low(times) * 1000 + (base or 0)  # whole us of events that are hardly in order
    if time >= EPOCH_NS:
        return time, False
    cyclic = base is None and packed and _DAY_NS < time < QUARTER_NS
    return (time, True) if cyclic else (None, False)

# SPDX-License-Identifier: Apache-2.0
"""`pyprof info FILE`: the contents of a recording, before any analysis.

Counts, span, devices, facts of the run, cost of recording and losses, as text or with --json as one object. The text
groups what many ranks have in common; the object lists all. Data that the recording lacks is absent: a file of nsys
has no facts of torch, and no overhead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import GRAPH, KERNEL, MARK, MEMCPY, MEMSET, Device, Trace
from pyprof.core.terminal import visible
from pyprof.core.units import duration

_LISTED = 8  # processes, devices and facts of workers with a line each; beyond that similar ones share a line
# Entries of the head, not listed among the facts.
_HEAD = ("EXPORT_", "format_version", "session_start_unix_ns", "overhead.")


def summary(trace: Trace) -> dict[str, Any]:
    """Return the content of the page; every time is in ns, unknown values are left out."""
    meta = trace.meta
    start, end = _span(trace)
    out: dict[str, Any] = {
        "file": trace.path,
        "format": trace.format,
        "format_version": meta.get("format_version") or meta.get("EXPORT_SCHEMA_VERSION"),
        "written_by": _product(meta),
        "started_unix_ns": _integer(meta.get("session_start_unix_ns")),
        "span_ns": end - start if end >= start else None,
        "processes": [process._asdict() for process in trace.processes],
        "threads": len(trace.threads),
        "devices": [_device_facts(device) for device in trace.devices] or _devices(meta),
        "counts": counts(trace),
        "facts": {name: value for name, value in meta.items() if not _in_head(name)},
        "overhead": {
            name.removeprefix("overhead."): _integer(value)
            for name, value in meta.items()
            if name.startswith("overhead.")
        },
        "lost": trace.lost,
    }
    for process in out["processes"]:
        for name in [name for name, value in process.items() if value is None]:
            del process[name]
    return {name: value for name, value in out.items() if value is not None}


def _in_head(name: str) -> bool:
    """Return whether a fact belongs to the head; in a run of several files also one of a single file."""
    return name.startswith(_HEAD) or (name.startswith("worker.") and any(f".{prefix}" in name for prefix in _HEAD))


def _device_facts(device: Device) -> dict[str, Any]:
    facts = device._asdict()
    if device.process is None:
        del facts["process"]
    return facts


def counts(trace: Trace) -> dict[str, int]:
    """Return the number of rows of each kind. A call is a range that PyProf wrote, including classic ones."""
    ranges = trace.ranges
    per_text = np.bincount(ranges.text, minlength=len(trace.strings)) if len(ranges) else np.zeros(0, np.int64)
    texts = np.flatnonzero(per_text)
    calls = sum(int(per_text[code]) for code in texts if _is_call(trace.strings[int(code)]))
    marks = int(np.count_nonzero(ranges.kind == MARK))
    kinds = {name: int(np.count_nonzero(trace.gpu.kind == kind)) for name, kind in _GPU.items()}
    if not kinds["graphs"]:
        del kinds["graphs"]  # no recorder but nsys has them
    return {
        **kinds,
        "launches": len(trace.launches),
        "operators": len(trace.ops),
        "calls": calls,
        "ranges": len(ranges) - calls - marks,
        "marks": marks,
        "io": len(trace.io),
        "steps": len(trace.steps),
    }


_GPU = {"kernels": KERNEL, "graphs": GRAPH, "copies": MEMCPY, "sets": MEMSET}


def _is_call(text: str) -> bool:
    return text.startswith("{") and isinstance(decode(text), CallMarker)


def _span(trace: Trace) -> tuple[int, int]:
    """Return the first start and the last end of all events; (0, -1) without any."""
    starts: list[int] = []
    ends: list[int] = []
    for table in (trace.ops, trace.gpu, trace.launches, trace.ranges, trace.steps, trace.io):
        if not len(table):
            continue
        end = table.end
        last = end if isinstance(end, np.ndarray) else end.values[end.mask()]
        starts.append(int(table.start.min()))
        ends += [int(table.start.max()), *([int(last.max())] if len(last) else [])]
    return (min(starts), max(ends)) if starts else (0, -1)


def _product(meta: Mapping[str, str]) -> str | None:
    version = meta.get("EXPORT_PRODUCT_VERSION")
    name = meta.get("EXPORT_PRODUCT_NAME", "Nsight Systems" if version else None)
    return " ".join(part for part in (name, version) if part) or None


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _devices(meta: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the devices named by the facts: GPUs, or else the processor."""
    out: list[dict[str, Any]] = []
    for number in range(_integer(meta.get("gpu.count")) or 0):
        name = meta.get(f"gpu.{number}.name")
        if name is not None:
            memory = _integer(meta.get(f"gpu.{number}.memory_bytes"))
            out.append({"number": number, "name": name, "memory_bytes": memory})
    if not out and "cpu.name" in meta:
        out.append({"name": meta["cpu.name"]})
    return out


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary as text: a section per part, aligned."""
    yield visible(content["file"])
    head: list[tuple[str, str]] = [
        ("format", " ".join(part for part in (content["format"], content.get("format_version")) if part))
    ]
    if "written_by" in content:
        head.append(("written by", content["written_by"]))
    if "started_unix_ns" in content:
        started = datetime.fromtimestamp(content["started_unix_ns"] / 1e9, UTC)
        head.append(("started", f"{started:%Y-%m-%d %H:%M:%S} UTC"))
    head.append(("span", duration(content["span_ns"]) if "span_ns" in content else "na"))
    head += [("process", text) for text in _processes(content["processes"])]
    head.append(("threads", str(content["threads"])))
    head += [("device", text) for text in _all_devices(content["devices"])]
    yield from _aligned(head)
    yield ""
    yield "counts"
    yield from _aligned((name, f"{count:,}") for name, count in content["counts"].items())
    if content["facts"]:
        yield ""
        yield "facts"
        yield from _aligned(_facts(content["facts"], content["processes"]))
    if content["overhead"]:
        yield ""
        yield "cost of recording"
        yield from _aligned(_overhead(content["overhead"]))
    yield ""
    yield "lost"
    yield from _aligned((reason, f"{count:,}") for reason, count in sorted(content["lost"].items()))
    if not content["lost"]:
        yield "  nothing"


def _overhead(costs: Mapping[str, int | None]) -> Iterator[tuple[str, str]]:
    for name, value in costs.items():
        if value is not None:
            yield name.removesuffix("_ns"), duration(value) if name.endswith("_ns") else f"{value:,}"
    window = costs.get("window_ns")
    for name, label in (
        ("sites_ns", "calls, share of window, estimated"),
        ("paused_ns", "pauses, share of window"),
    ):
        if (cost := costs.get(name)) is not None and window:
            yield label, f"{100 * cost / window:.1f} %"
    yield "torch's own profiler", "not measured"


def _aligned(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    rows = [(visible(str(name)), visible(str(value))) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield f"  {name:{width}}  {value}".rstrip()


def _process(process: Mapping[str, Any]) -> str:
    words = [str(process["pid"]), process.get("name") or ""]
    words += [f"{name} {process[name]}" for name in ("rank", "host", "label") if name in process]
    words += [f"span {process['span']}"] if process.get("span", 1) > 1 else []
    return " ".join(word for word in words if word)


def _device(device: Mapping[str, Any]) -> str:
    return f"{device.get('number', 'cpu')} {_chip(device)}"


def _chip(device: Mapping[str, Any]) -> str:
    memory = device.get("memory_bytes")
    return str(device["name"]) + (f", {memory / 2**30:.1f} GiB" if memory else "")


def _processes(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line per process, or per group of similar ranks if there are many."""
    if len(processes) <= _LISTED:
        return [_process(process) for process in processes]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for place, process in enumerate(processes):
        alike = tuple(process.get(name) for name in ("name", "host", "span"))
        groups.setdefault(alike if "rank" in process else (place,), []).append(process)
    out = []
    for group in groups.values():
        if len(group) == 1:
            out.append(_process(group[0]))
            continue
        words = [
            group[0].get("name") or "",
            *(f"host {member['host']}" for member in group[:1] if "host" in member),
        ]
        words += [f"span {group[0]['span']}"] if group[0].get("span", 1) > 1 else []
        details = " ".join(word for word in words if word)
        out.append(
            f"{len(group)} ranks {_numbers(member['rank'] for member in group)}" + (f": {details}" if details else "")
        )
    return out


def _all_devices(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line per device, or per kind of device if there are many: each rank lists the devices it sees."""
    if len(devices) <= _LISTED:
        return [_device(device) for device in devices]
    kinds: dict[str, list[int]] = {}
    for device in devices:
        kinds.setdefault(_chip(device), []).append(device.get("number", 0))
    return [f"{len(numbers)} listed, {_numbers(numbers)}: {chip}" for chip, numbers in kinds.items()]


def _facts(facts: Mapping[str, str], processes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the facts; a fact of many workers takes one line."""
    labels = [process["label"] for process in processes if "label" in process]
    of_workers: dict[str, list[str]] = {}
    keys = {f"worker.{label}.": None for label in labels} if len(labels) > _LISTED else {}
    worker_facts: dict[str, str] = {}
    for name in facts:
        parts = name.split(".")
        ends = (".".join(parts[:i]) + "." for i in range(2, len(parts)))
        prefix = (
            next((candidate for candidate in ends if candidate in keys), None) if name.startswith("worker.") else None
        )
        if prefix is not None:
            worker_facts[name] = name[len(prefix) :]
            of_workers.setdefault(worker_facts[name], []).append(facts[name])
    printed = set()
    for name, value in facts.items():
        key = worker_facts.get(name)
        if key is None or len(of_workers[key]) <= _LISTED:
            yield name, value
        elif key not in printed:
            printed.add(key)
            yield f"worker.*.{key}", _values(of_workers[key])


def _values(values: Sequence[str]) -> str:
    """Summarize the values of many workers.

    >>> _values(["0", "1", "2", "5"]), _values(["a", "a"]), _values(["a", "b", "a"])
    ('0-2, 5 (4 workers)', 'a (2 workers)', '2 values (3 workers)')
    """
    distinct = set(values)
    if len(distinct) == 1:
        text = values[0]
    elif all(value.isascii() and value.isdigit() and len(value) < 10 for value in distinct):
        text = _numbers(map(int, distinct))
    else:
        text = f"{len(distinct)} values"
    return f"{text} ({len(values)} workers)"


def _numbers(numbers: Iterable[int]) -> str:
    """Format numbers as ranges.

    >>> _numbers([3, 0, 1, 2, 7, 9, 8, 8, 12])
    '0-3, 7-9, 12'
    """
    out: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if out and out[-1][1] == number - 1:
            out[-1] = out[-1][0], number
        else:
            out.append((number, number))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in out)

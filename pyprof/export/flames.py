# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: time by source line, module, operator and kernel, as collapsed stacks and for speedscope.

A stack is, outermost first: the worker if there are several, the source lines, the modules, the operator (followed by
"(backward)" if it runs for gradients), the kernel. GPU time is that of kernels, copies and sets; without a GPU it is
the own time of operator events. CPU time is that of operators without nested ones, with API calls separate. In a
window, everything in progress counts in full.

collapsed   GPU time: a stack and its ns per line, frames separated by semicolons, as read by flamegraph.pl
speedscope  both as profiles of one file. Source: speedscope.app/file-format-schema.json
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from typing import Any

import pyprof
from pyprof.core.model import BPROP
from pyprof.export import Window, exporter
from pyprof.store import reads
from pyprof.store.files import Store

_LEVEL = 5  # of gzip
_IN_RANGE = 2  # of operator.unassociated
_LINE = re.compile(r"(.+):(\d{1,9})", re.S)
_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")  # line ends and terminal control characters
_API = "(API calls)"
Stacks = dict[tuple[str, ...], int]


def gpu_time(store: Store, window: Window) -> Stacks:
    """Return ns of GPU events by stack; without any, those of operator events."""
    on_gpu = reads.has_gpu(store)
    rows = store.rows(
        f"""select id >> 40, coalesce(site, -1), name, operator, sum(duration_ns) from event
            where kind {"<" if on_gpu else "="} 3 and {window.sql("start_ns", "coalesce(total_ns, duration_ns)")}
            group by 1, 2, 3, 4"""
    )
    sites = store.rows(
        """select s.id, s.module, s.op, s.direction, k.frames from site s left join stack k on k.id = s.stack"""
    )
    places = {number: _place(frames, module, op, direction) for number, module, op, direction, frames in sites}
    names = dict(store.rows("select id, name from kernel_name"))
    ranges = dict(store.rows("select id, name from operator where unassociated = ?", (_IN_RANGE,)))
    stacks: Counter[tuple[str, ...]] = Counter()
    for worker, site, name, operator, time in rows:
        place = places.get(site, ())
        if operator in ranges:  # not launched by an operator: the user's ranges; the last part is the call
            place = tuple(ranges[operator].split("/")[:-1])
        place = (*_worker(store, worker), *place)
        stacks[place if place[-1:] == (names[name],) else (*place, names[name])] += time  # an operator is its event
    return _positive(stacks)


def cpu_time(store: Store, window: Window) -> Stacks:
    """Return ns of executions of operators by stack, without nested ones, and of API calls in them."""
    rows = store.rows(
        f"""select id >> 40, operator, sum(max(cpu_ns - api_ns, 0)), sum(min(api_ns, cpu_ns)) from op
            where cpu_ns is not null and {window.sql("start_ns", "(end_ns - start_ns)")} group by 1, 2"""
    )
    operators = store.rows(
        """select o.id, o.module, o.type, o.direction, k.frames, o.name, o.unassociated from operator o
           left join stack k on k.id = o.stack"""
    )
    places = {
        number: tuple(name.split("/")) if outside else _place(frames, module, op, direction)
        for number, module, op, direction, frames, name, outside in operators
    }
    stacks: Counter[tuple[str, ...]] = Counter()
    for worker, operator, own, api in rows:
        place = (*_worker(store, worker), *places[operator])
        stacks[place] += own
        stacks[(*place, _API)] += api
    return _positive(stacks)


def _worker(store: Store, worker: int) -> tuple[str, ...]:
    """Return the name of a worker if there are several."""
    names: dict[int, str] = store.cached("flames", lambda: reads.worker_names(store))
    return (names[worker],) if len(names) > 1 else ()


def _place(frames: str | None, module: str | None, op: str | None, direction: int) -> tuple[str, ...]:
    r"""Return the frames above a kernel.

    >>> _place("run.py:9\nnet.py:1", "net.first", "linear", BPROP)
    ('run.py:9', 'net.py:1', 'net', 'first', 'linear (backward)')
    """
    out = [*(frames.split("\n") if frames else []), *(module.split(".") if module else [])]
    return (*out, f"{op} (backward)" if direction == BPROP else op) if op else tuple(out)


def _positive(times: Counter[tuple[str, ...]]) -> Stacks:
    """Return stacks with a positive time, sorted."""
    return {stack: time for stack, time in sorted(times.items()) if time > 0}


@exporter("collapsed")
def collapsed(store: Store, window: Window, path: str, compress: bool) -> None:
    """Write GPU time as collapsed stacks."""
    _write(path, compress, _lines(gpu_time(store, window)))


def _lines(stacks: Stacks) -> str:
    """Return one line per stack; stacks with equal texts are merged."""
    times: Counter[str] = Counter()
    for stack, time in stacks.items():
        times[";".join(map(_frame, stack))] += time
    return "".join(f"{stack} {time}\n" for stack, time in times.items())


def _frame(name: str) -> str:
    """Return a valid frame name, without semicolons and line ends.

    >>> _frame("void f<a; b>\\n"), _frame("")
    ('void f<a, b>', '(unnamed)')
    """
    return _BAD.sub(" ", name).replace(";", ",").strip() or "(unnamed)"


@exporter("speedscope")
def speedscope(store: Store, window: Window, path: str, compress: bool) -> None:
    """Write GPU time and CPU time for speedscope."""
    numbers: dict[str, int] = {}
    profiles = [
        _profile(title, stacks, numbers)
        for title, stacks in (("GPU time", gpu_time(store, window)), ("CPU time", cpu_time(store, window)))
        if stacks
    ]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"pyprof@{pyprof.__version__}",
        "name": store.meta.get("source", ""),
        "activeProfileIndex": 0,
        "shared": {"frames": [_describe(name) for name in numbers]},
        "profiles": profiles,
    }
    _write(path, compress, json.dumps(document))


def _profile(title: str, stacks: Stacks, numbers: dict[str, int]) -> dict[str, Any]:
    """Return a profile of weighted samples; add frames to `numbers`."""
    samples = [[numbers.setdefault(name, len(numbers)) for name in stack] for stack in stacks]
    weights = list(stacks.values())
    return {
        "type": "sampled", "name": title, "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights),
        "samples": samples, "weights": weights,
    }  # fmt: skip


def _describe(name: str) -> dict[str, Any]:
    """Return a frame; for a source line with file and line.

    >>> _describe("net.py:12"), _describe("aten::mm")
    ({'name': 'net.py:12', 'file': 'net.py', 'line': 12}, {'name': 'aten::mm'})
    """
    match = _LINE.fullmatch(name)
    if match is None or match[1].endswith(":"):
        return {"name": name}
    return {"name": name, "file": match[1], "line": int(match[2])}


def _write(path: str, compress: bool, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    with open(path, "wb") as file:
        file.write(gzip.compress(data, _LEVEL, mtime=0) if compress else data)

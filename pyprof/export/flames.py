# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: time by source line, module, operator and kernel, as collapsed stacks and for speedscope.

A stack is, outermost first: the worker if there are several, the source lines, the modules, the operator ("(backward)"
behind one that runs for gradients), the kernel. GPU time is that of kernels, copies and sets; without a GPU it is the
own time of operator events. CPU time is that of operators without those inside them, and API calls apart. In a window
everything that is going on in it counts whole.

collapsed, collapsed-cpu  a stack and its ns per line, frames between semicolons, as flamegraph.pl reads them
speedscope                both as profiles of one file. Source: speedscope.app/file-format-schema.json
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from typing import Any

import pyprof
from pyprof.export import Window, exporter
from pyprof.model import BPROP
from pyprof.store.files import Store

_LEVEL = 5  # of gzip
_IN_RANGE = 2  # of operator.unassociated
_LINE = re.compile(r"(.+):(\d{1,9})", re.S)
_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")  # ends a line, or is obeyed by a terminal
_API = "(API calls)"
Stacks = dict[tuple[str, ...], int]


def gpu_time(store: Store, window: Window) -> Stacks:
    """ns of GPU events by stack; without any those of operator events."""
    on_gpu = bool(store.rows("select 1 from event_block where kind < 3 limit 1"))
    rows = store.rows(
        f"""select id >> 40, coalesce(site, -1), name, operator, sum(dur) from event
            where kind {"<" if on_gpu else "="} 3 and {window.sql("start", "coalesce(total, dur)")}
            group by 1, 2, 3, 4"""
    )
    sites = store.rows(
        """select s.id, s.module, s.op, s.direction, k.frames from site s left join stack k on k.id = s.stack"""
    )
    places = {
        number: _place(frames, module, op, direction) for number, module, op, direction, frames in sites
    }
    names = dict(store.rows("select id, name from kernel_name"))
    ranges = dict(store.rows("select id, name from operator where unassociated = ?", (_IN_RANGE,)))
    found: Counter[tuple[str, ...]] = Counter()
    for worker, site, name, operator, time in rows:
        place = places.get(site, ())
        if operator in ranges:  # no operator launched it: the user's ranges, the last part is the call
            place = tuple(ranges[operator].split("/")[:-1])
        place = (*_worker(store, worker), *place)
        found[place if place[-1:] == (names[name],) else (*place, names[name])] += (
            time  # an operator is its event
        )
    return _some(found)


def cpu_time(store: Store, window: Window) -> Stacks:
    """ns of executions of operators by stack, less that of those inside, and of API calls in them."""
    rows = store.rows(
        f"""select id >> 40, operator, sum(max(cpu - api, 0)), sum(min(api, cpu)) from op
            where cpu is not null and {window.sql("start", '("end" - start)')} group by 1, 2"""
    )
    operators = store.rows(
        """select o.id, o.module, o.type, o.direction, k.frames, o.name, o.unassociated from operator o
           left join stack k on k.id = o.stack"""
    )
    places = {
        number: tuple(name.split("/")) if outside else _place(frames, module, op, direction)
        for number, module, op, direction, frames, name, outside in operators
    }
    found: Counter[tuple[str, ...]] = Counter()
    for worker, operator, own, api in rows:
        place = (*_worker(store, worker), *places[operator])
        found[place] += own
        found[(*place, _API)] += api
    return _some(found)


def _worker(store: Store, worker: int) -> tuple[str, ...]:
    """The name of a worker, where there are several."""
    names: dict[int, str] = store.cached("flames", lambda: dict(store.rows("select id, name from worker")))
    return (names[worker],) if len(names) > 1 else ()


def _place(frames: str | None, module: str | None, op: str | None, direction: int) -> tuple[str, ...]:
    """The frames above a kernel.

    >>> _place("run.py:9\\nnet.py:1", "net.first", "linear", BPROP)
    ('run.py:9', 'net.py:1', 'net', 'first', 'linear (backward)')
    """
    out = [*(frames.split("\n") if frames else []), *(module.split(".") if module else [])]
    return (*out, f"{op} (backward)" if direction == BPROP else op) if op else tuple(out)


def _some(found: Counter[tuple[str, ...]]) -> Stacks:
    """What takes time, in the order of the stacks."""
    return {stack: time for stack, time in sorted(found.items()) if time > 0}


@exporter("collapsed")
def collapsed(store: Store, window: Window, path: str, compress: bool) -> None:
    """GPU time as collapsed stacks."""
    _write(path, compress, _lines(gpu_time(store, window)))


@exporter("collapsed-cpu")
def collapsed_cpu(store: Store, window: Window, path: str, compress: bool) -> None:
    """CPU time as collapsed stacks."""
    _write(path, compress, _lines(cpu_time(store, window)))


def _lines(stacks: Stacks) -> str:
    """A line per stack; two that are written alike are added up."""
    found: Counter[str] = Counter()
    for stack, time in stacks.items():
        found[";".join(map(_frame, stack))] += time
    return "".join(f"{stack} {time}\n" for stack, time in found.items())


def _frame(name: str) -> str:
    """A frame that is one: no semicolon, no end of a line.

    >>> _frame("void f<a; b>\\n"), _frame("")
    ('void f<a, b>', '(unnamed)')
    """
    return _BAD.sub(" ", name).replace(";", ",").strip() or "(unnamed)"


@exporter("speedscope")
def speedscope(store: Store, window: Window, path: str, compress: bool) -> None:
    """GPU time and CPU time for speedscope."""
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
        "shared": {"frames": [_described(name) for name in numbers]},
        "profiles": profiles,
    }
    _write(path, compress, json.dumps(document))


def _profile(title: str, stacks: Stacks, numbers: dict[str, int]) -> dict[str, Any]:
    """A profile of weighted samples; `numbers` gets those of frames."""
    samples = [[numbers.setdefault(name, len(numbers)) for name in stack] for stack in stacks]
    weights = list(stacks.values())
    return {
        "type": "sampled", "name": title, "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights),
        "samples": samples, "weights": weights,
    }  # fmt: skip


def _described(name: str) -> dict[str, Any]:
    """A frame; of a source line with file and line.

    >>> _described("net.py:12"), _described("aten::mm")
    ({'name': 'net.py:12', 'file': 'net.py', 'line': 12}, {'name': 'aten::mm'})
    """
    found = _LINE.fullmatch(name)
    if found is None or found[1].endswith(":"):
        return {"name": name}
    return {"name": name, "file": found[1], "line": int(found[2])}


def _write(path: str, compress: bool, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    with open(path, "wb") as file:
        file.write(gzip.compress(data, _LEVEL, mtime=0) if compress else data)

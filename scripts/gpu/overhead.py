#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording costs a step on a GPU, by collector: wall time of a step, and of closing.

python scripts/gpu/overhead.py ROUNDS     prints one line of JSON per program

Every round runs the same steps in each mode, in another order, and waits for the device before and after. A figure is
the median over rounds of (mode less nothing) of the same round.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing as closing_of
from contextlib import contextmanager, nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from programs import DEVICE, Language, _training

import pyprof

ROOT = Path(__file__).resolve().parents[2]
if "POOL" in os.environ:
    import own_buffers

    own_buffers.install()

spec = importlib.util.spec_from_file_location("bench_capture", ROOT / "benchmarks/capture.py")
assert spec is not None
assert spec.loader is not None
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)

closing: dict[str, list[float]] = {}
pauses: dict[str, list[float]] = {}
paused = [0.0]  # seconds of the window that was closed last, since
since = [0]  # this time, ns of the epoch


@contextmanager
def window(mode: str, **options: Any) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        path = os.path.join(folder, "a.sqlite")
        with pyprof.profile(path, **options):
            yield
            begin = time.perf_counter()
        closing.setdefault(mode, []).append(time.perf_counter() - begin)
        with closing_of(sqlite3.connect(path)) as database:
            zero = "(select utcEpochNs from TARGET_INFO_SESSION_START_TIME)"
            query = f"select sum(end - start) from PYPROF_PAUSE where start + {zero} >= ?"
            (total,) = database.execute(query, (since[0],)).fetchone()
        paused[0] = (total or 0) / 1e9


@contextmanager
def of_torch(mode: str, **options: Any) -> Iterator[None]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=activities, **options)
    profiler.start()
    yield
    begin = time.perf_counter()
    profiler.stop()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(os.path.join(folder, "a.json"))
    closing.setdefault(mode, []).append(time.perf_counter() - begin)


MODES: dict[str, Callable[[], Any]] = {
    "nothing": nullcontext,
    "init": bench.idle,
    "calls and operators": lambda: window("calls and operators", collector="none"),
    "kineto": lambda: window("kineto", collector="kineto"),
    "kineto, sync": lambda: window("kineto, sync", collector="kineto", sync=True),
    "cupti": lambda: window("cupti", collector="cupti"),
    "torch.profiler": lambda: of_torch("torch.profiler"),
    "torch.profiler, shapes": lambda: of_torch("torch.profiler, shapes", record_shapes=True),
    "torch.profiler, shapes, stacks": lambda: of_torch(
        "torch.profiler, shapes, stacks", record_shapes=True, with_stack=True
    ),
    "original's method": bench.original,
}


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(mode: str, step: Callable[[], Any], steps: int) -> float:
    """Seconds of a step, without pauses: they are no part of a step in PyProf's reports."""
    paused[0] = 0.0
    with MODES[mode]():
        step()
        synchronize()
        since[0] = time.time_ns()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        spent = time.perf_counter() - begin
    pauses.setdefault(mode, []).append(paused[0])
    return (spent - paused[0]) / steps


def compare(name: str, step: Callable[[], Any], steps: int, rounds: int) -> dict[str, Any]:
    closing.clear()
    for _ in range(3):
        step()
    for mode in MODES:
        measure(mode, step, 1)
    closing.clear()
    pauses.clear()
    modes = list(MODES)
    spent: dict[str, list[float]] = {mode: [] for mode in modes}
    for number in range(rounds):
        for place in range(len(modes)):
            mode = modes[(place + number) % len(modes)]
            spent[mode].append(measure(mode, step, steps))
    base = median(spent["nothing"])
    return {
        "program": name, "steps": steps, "rounds": rounds, "step ms": round(1e3 * base, 3),
        "ratio": {m: round(median(a / b for a, b in zip(spent[m], spent["nothing"])), 3) for m in modes},
        "spread": {m: [round(min(spent[m]) / base, 3), round(max(spent[m]) / base, 3)] for m in modes},
        "pauses s": {m: round(sum(pauses[m]), 2) for m in modes if any(pauses[m])},
        "closing ms per step": {m: round(1e3 * median(closing[m]) / (steps + 1), 3) for m in closing},
    }  # fmt: skip


def language(layers: int, width: int, batch: int, length: int) -> Callable[[], Any]:
    model = Language(8192, width, max(width // 64, 1), layers, length).to(DEVICE)
    return _training(model, torch.optim.AdamW(model.parameters(), fused=DEVICE == "cuda"), batch, length, 8192)


if __name__ == "__main__":
    rounds = int(sys.argv[1])
    small = DEVICE == "cpu"
    print(json.dumps(compare("launch-bound", language(4, 128, 2, 64), 5, rounds)), flush=True)
    print(json.dumps(compare("GPU-bound", language(*((2, 128, 2, 64) if small else (12, 1024, 16, 1024))), 3, rounds)))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What traces that are deep or wide cost: CPU seconds and peak memory of the commands that read them.

    python benchmarks/hostile.py --count 100000

A trace of each family has `count` events: nested in each other, or of as many devices, processes or threads. Peak is
that of the process above what the same command takes for a trace of one event, beside the size of the trace (of the
text, where it is compressed).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

AIM = 12
SECONDS = 120
Event = dict[str, Any]


def event(cat: str, name: str, ts: int, dur: int, pid: int = 1, tid: int = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def nested(cat: str, name: str) -> Callable[[int], Iterator[Event]]:
    return lambda count: (event(cat, name, 10 + i, 2 * (count - i)) for i in range(count))


def layers(count: int) -> Iterator[Event]:
    return (event("user_annotation", f"layer: {i}", 10 + i, 2 * (count - i)) for i in range(count))


def devices(count: int) -> Iterator[Event]:
    for i in range(count):
        yield event("cuda_runtime", "cudaLaunchKernel", 10 * i, 5, correlation=i)
        yield event("kernel", "gemm", 10 * i + 5, 5, pid=i, tid=7, device=i, stream=7, correlation=i)


def threads(count: int) -> Iterator[Event]:
    return (event("cpu_op", "aten::mm", 10 * i, 5, tid=i) for i in range(count))


def processes(count: int) -> Iterator[Event]:
    return (event("cpu_op", "aten::mm", 10 * i, 5, pid=i, tid=i) for i in range(count))


def largest_id(count: int) -> Iterator[Event]:
    for i in range(count):
        correlation = (1 << 31) - 1 - i
        yield event("cuda_runtime", "cudaLaunchKernel", 10 * i, 5, correlation=correlation)
        yield event("kernel", "gemm", 10 * i + 5, 5, pid=0, tid=7, device=0, stream=7, correlation=correlation)


def ordinary(count: int) -> Iterator[Event]:
    return (event("cpu_op", "aten::mm", 10 * i, 5) for i in range(count))


FAMILIES: dict[str, Callable[[int], Iterator[Event]]] = {
    "ordinary operators": ordinary,
    "nested operators": nested("cpu_op", "aten::mm"),
    "nested functions": nested("python_function", "train.py(12): main"),
    "nested layers": layers,
    "nested modules": nested("python_function", "nn.Module: Linear_0"),
    "devices": devices,
    "threads": threads,
    "processes": processes,
    "large correlations": largest_id,
}
COMMANDS = ("parse", "report", "save", "export")


def write(path: Path, events: Iterator[Event]) -> int:
    """Write a trace, with an operator of its own; return the size of its text."""
    rows = [event("cpu_op", "aten::relu", 1, 3), *events]
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows}).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return len(text)


def run(command: str, path: Path, folder: Path) -> tuple[str, float, int]:
    """Run a command; return how it ended, CPU seconds and peak memory in bytes."""
    extra = {
        "save": ["-f", "-o", str(folder / "out_dldb.sqlite")],
        "export": ["-f", "-o", str(folder / "out.json")],
        "report": [],
        "parse": [],
    }
    with (folder / "err").open("wb") as err, open(os.devnull, "wb") as out:
        argv = [sys.executable, "-m", "pyprof", command, *extra[command], str(path)]
        child = subprocess.Popen(["timeout", "-s", "KILL", str(SECONDS), *argv], stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    lines = (folder / "err").read_text(errors="replace").splitlines() or [""]
    ended = "ok" if not child.returncode else f"{child.returncode}: {lines[-1][-80:]}"
    return ended, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    """Print a line for each family and command."""
    parser = argparse.ArgumentParser(description="Example: hostile.py --count 100000")
    parser.add_argument("--count", type=int, default=100_000, help="events of a trace; default: %(default)s")
    parser.add_argument("--only", help="families whose name has this text")
    parser.add_argument("--command", choices=COMMANDS, help="this command alone")
    arguments = parser.parse_args()
    print(f"{'family':22}{'MB':>7}  {'command':8}{'CPU-s':>7}{'peak MB':>9}{'x size':>8}  ended")
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as name:
        folder = Path(name)
        path = folder / "trace.json"
        commands = [arguments.command] if arguments.command else COMMANDS
        write(path, ordinary(1))
        base = {command: run(command, path, folder)[2] for command in commands}
        for family, events in FAMILIES.items():
            if arguments.only and arguments.only not in family:
                continue
            size = write(path, events(arguments.count))
            for command in commands:
                ended, seconds, peak = run(command, path, folder)
                peak -= base[command]
                mark = "  over" if peak > AIM * size else ""
                print(
                    f"{family:22}{size / 1e6:7.1f}  {command:8}{seconds:7.1f}{peak / 1e6:9.0f}"
                    f"{peak / size:8.1f}  {ended}{mark}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

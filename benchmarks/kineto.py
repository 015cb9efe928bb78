#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a trace of torch.profiler costs, in units of `json.loads` of the same bytes in the same run.

    python benchmarks/kineto.py trace.json.gz [more traces] --events 1000000,5000000 --workers 8

Each measurement is a process of its own: CPU-seconds (user and system) from after its imports, and peak resident memory
above what was resident then; ours reads the same unpacked bytes. `load + link` reads the file and links every
kernel; `load + reports` writes the profile database and makes every report. --events repeats the first trace one after
the other; --workers copies it, as ranks of one run. The figures of one line were measured in turns, best of --rounds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

AIMS = {"load": (1.0, 0.8), "reports": (1.7, 1.0)}  # CPU-seconds and memory, times those of json.loads
TINY = {
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9, "args": {}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1,
         "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 4, "dur": 3,
         "args": {"correlation": 7, "device": 0, "stream": 7}},
    ]
}  # fmt: skip


class Figure(NamedTuple):
    """CPU-seconds, bytes above the resident ones at the beginning, wall seconds."""

    seconds: float
    peak: int
    wall: float


def text_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def do_json(path: Path) -> None:
    json.loads(text_of(path))


def do_load(path: Path) -> None:
    from pyprof.parse import loader
    from pyprof.parse.rows import rows

    rows(loader.load(path))


def do_reports(path: Path) -> None:
    import pyprof
    from pyprof.reports import every

    profile = pyprof.load(path)
    source = profile.source()
    for report in every():
        for _ in report.chunks(source):
            pass


def do_run(path: Path) -> None:
    import pyprof

    profile = pyprof.load(path)
    profile.database  # noqa: B018


DO: dict[str, Callable[[Path], None]] = {
    "json": do_json,
    "load": do_load,
    "reports": do_reports,
    "run": do_run,
}


def child(what: str, path: Path) -> None:
    """Measure in this process."""
    if what != "json":
        with tempfile.TemporaryDirectory() as folder:  # imports what is imported late
            tiny = Path(folder) / "tiny.json"
            tiny.write_text(json.dumps(TINY))
            DO["reports" if what == "run" else what](tiny)
    held = text_of(path) if what == "json" else b""  # its bytes are there already
    before = _status("VmRSS") - len(held)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    begin, clock = _cpu(), time.perf_counter()
    if what == "json":
        json.loads(held)
    else:
        DO[what](path)
    wall = time.perf_counter() - clock
    print(json.dumps([_cpu() - begin, _status("VmHWM") - before, wall]))


def _cpu() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}; this benchmark needs Linux")


def measure(what: str, path: Path) -> Figure:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Figure(*json.loads(done.stdout))


def compare(path: Path, rounds: int) -> None:
    """One line for each of ours."""
    best: dict[str, Figure] = {}
    for _ in range(rounds):
        for what in ("json", *AIMS):
            found = measure(what, path)
            best[what] = min(best.get(what, found), found)
    unit = best["json"]
    print(f"{path.name}: json.loads {unit.seconds:.2f} CPU-s, {unit.peak / 1e6:.0f} MB")
    for what, (time_aim, memory_aim) in AIMS.items():
        found = best[what]
        name = f"load + {'link' if what == 'load' else what}"
        print(
            f"  {name:15} {found.seconds:6.2f} CPU-s {found.seconds / unit.seconds:5.2f}x (aim {time_aim})"
            f" {found.peak / 1e6:6.0f} MB {found.peak / unit.peak:5.2f}x (aim {memory_aim})"
        )


def repeated(path: Path, events: int, folder: Path) -> Path:
    """The trace again and again, each copy after the one before, to about so many events."""
    found: dict[str, Any] = json.loads(text_of(path))
    timed = [e for e in found["traceEvents"] if isinstance(e.get("ts"), (int, float))]
    first = min(e["ts"] for e in timed)
    length = int(max(e["ts"] + e.get("dur", 0) for e in timed) - first) + 1000
    copies = max(events // len(timed), 1)
    out = folder / f"{events}.json"
    head = {key: value for key, value in found.items() if key != "traceEvents"}
    with out.open("w") as file:
        file.write(json.dumps(head)[:-1] + (", " if head else "") + '"traceEvents": [')
        for copy in range(copies):
            for place, event in enumerate(timed):
                args = event.get("args")
                moved = event | {"ts": round(event["ts"] - first + copy * length, 3)}
                if isinstance(args, dict):
                    # Numbers that tie events together differ from copy to copy.
                    shifted = {
                        key: args[key] + copy * 10_000_000
                        for key in ("correlation", "External id", "Ev Idx", "Sequence number")
                        if isinstance(args.get(key), int)
                    }
                    moved["args"] = args | shifted
                if isinstance(event.get("id"), int):
                    moved["id"] = event["id"] + copy * 10_000_000
                file.write((",\n" if copy or place else "\n") + json.dumps(moved))
        file.write("\n]}\n")
    return out


def ranks(path: Path, workers: int, folder: Path) -> Path:
    """A run of so many ranks, each with the same trace."""
    run = folder / "run"
    run.mkdir()
    found = json.loads(text_of(path))
    for rank in range(workers):
        found["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": workers}
        (run / f"rank{rank}.1700000000000.pt.trace.json").write_text(json.dumps(found))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--events", default="", help="sizes of repeated traces, comma-separated")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=DO, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        child(given.measure, given.traces[0])
        return
    print(f"load average at the beginning: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in given.traces:
            plain = folder / path.name.removesuffix(".gz")
            plain.write_bytes(text_of(path))
            compare(plain, given.rounds)
            plain.unlink()
        for size in filter(None, given.events.split(",")):
            path = repeated(given.traces[0], int(size), folder)
            for what in ("load", "run"):
                found = measure(what, path)
                each = found.seconds / int(size) * 1e6
                print(
                    f"{size} events: load + {'link' if what == 'load' else 'database'} {found.seconds:.1f} CPU-s, "
                    f"{each:.2f} us an event, {found.peak / 1e6:.0f} MB"
                )
            path.unlink()
        if given.workers:
            path = ranks(given.traces[0], given.workers, folder)
            found = measure("run", path)
            print(
                f"{given.workers} workers: load + database {found.seconds:.1f} CPU-s in {found.wall:.1f} s: "
                f"{found.seconds / found.wall:.2f} cores"
            )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet on one and on two workers: docs/fleet.md.

    python benchmarks/fleet.py trace.json.gz                  # 8 and 64 recordings, 1 and 2 workers
    python benchmarks/fleet.py trace.json.gz --recordings 8 --rounds 1

The recordings are copies of one trace of torch.profiler with other ranks and clocks. Each line is a fleet of its own
store, on a cluster whose workers have read one recording before. The numbers of workers take turns, so that the speedup
is of one run; it is that of the sum of the wall times of all rounds. Other work on the machine lowers it: `bound` is
what it is at most, by CPU-seconds: (tasks + this process) / (tasks / workers + this process), where this process is
the coordinator, and the scheduler as well. Memory of the coordinator is the highest resident memory of this process
above that before, in a process of its own for each line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

_SHIFT_NS = 137_001  # between the clocks of two ranks
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')


def copies(trace: Path, folder: Path, count: int) -> None:
    """Write copies of a trace, as recordings of ranks of one run whose clocks differ."""
    content = trace.read_bytes()
    text = gzip.decompress(content) if trace.suffix == ".gz" else content
    base, first = _BASE.search(text), text.index(b"{") + 1
    for rank in range(count):
        facts: dict[str, Any] = {"distributedInfo": {"rank": rank, "world_size": count, "backend": "nccl"}}
        copy = text
        if base is not None:
            shifted = str(int(base[1]) + rank * _SHIFT_NS).encode()
            copy = text[: base.start(1)] + shifted + text[base.end(1) :]
        else:
            facts["baseTimeNanoseconds"] = rank * _SHIFT_NS
        head = json.dumps(facts).encode()[1:-1] + b", "
        name = f"rank{rank}.1700000000000.pt.trace.json.gz"
        (folder / name).write_bytes(gzip.compress(copy[:first] + head + copy[first:], 1))


def resident() -> int:
    """Resident memory of this process in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]


def measure(folder: Path, workers: int) -> dict[str, float]:
    """Open a fleet; return wall seconds, CPU-seconds of the tasks, and bytes by which this process grew."""
    from distributed import Client, LocalCluster, Security

    from pyprof import fleet

    with (
        LocalCluster(workers, threads_per_worker=1, dashboard_address=None, security=Security.temporary()) as one,  # type: ignore[no-untyped-call]
        Client(one) as client,  # type: ignore[no-untyped-call]
        tempfile.TemporaryDirectory() as top,
    ):
        # Imports, once in each worker.
        first = next(folder.iterdir())
        for one in client.scheduler_info(n_workers=-1)["workers"]:
            client.submit(_warm, str(first), f"{top}/{hash(one)}", workers=[one], pure=False).result()
        fleet.open([str(first)], client, f"{top}/first")
        before, peak, over = resident(), 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.wait(0.1):
                peak = max(peak, resident())

        watching = threading.Thread(target=watch)
        watching.start()
        start, own = time.perf_counter(), time.process_time()
        opened = fleet.open(folder, client, f"{top}/store")
        wall, own = time.perf_counter() - start, time.process_time() - own
        over.set()
        watching.join()
        ranks = opened.ranks
        return {
            "wall": wall, "own": own, "cpu": float(ranks["cpu_s"].sum()), "grown": float(max(peak - before, 0)),
            "summary": float(ranks["summary_bytes"].mean()), "database": float(ranks["database_bytes"].mean()),
            "joined": float((Path(top) / "store" / fleet.SUMMARY).stat().st_size),
        }  # fmt: skip


def _warm(url: str, store: str) -> None:
    from pyprof.fleet import tasks
    from pyprof.parse.folder import Input

    tasks.work(tasks.Task(url, store, Input(Path(Path(url).name), "warm"), True))


def child(folder: Path, workers: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, str(folder), "--measure", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Example: python benchmarks/fleet.py trace.json.gz")
    parser.add_argument("trace", type=Path, help="trace of torch.profiler to copy")
    parser.add_argument("--recordings", default="8,64", help="numbers of recordings; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="times that each line is measured")
    parser.add_argument("--measure", type=int, metavar="WORKERS", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        print(json.dumps(measure(arguments.trace, arguments.measure)))
        return
    print(
        "| recordings | workers | wall s | speedup | bound | CPU-s per rank | of them coordinator "
        "| summary per rank, kB | coordinator grew, MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count in map(int, arguments.recordings.split(",")):
        with tempfile.TemporaryDirectory() as name:
            copies(arguments.trace, Path(name), count)
            rounds = [[child(Path(name), workers) for workers in (1, 2)] for _ in range(arguments.rounds)]
        alone = sum(one["wall"] for one, _ in rounds)
        for place, workers in enumerate((1, 2)):
            lines = [one[place] for one in rounds]
            wall = sum(line["wall"] for line in lines)
            mean = {key: sum(line[key] for line in lines) / len(lines) for key in lines[0]}
            bound = (mean["cpu"] + mean["own"]) / (mean["cpu"] / workers + mean["own"])
            print(
                f"| {count} | {workers} | {wall / len(lines):.1f} | {alone / wall:.2f} | {bound:.2f} "
                f"| {(mean['cpu'] + mean['own']) / count:.3f} | {mean['own'] / count:.3f} "
                f"| {mean['summary'] / 1e3:.0f} | {max(line['grown'] for line in lines) / 1e6:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the viewer's server costs: to start, to answer, to keep running.

    python benchmarks/viewer.py --kernels 1000000
    python benchmarks/viewer.py --database net_dldb.sqlite

A recording is generated (gen_nsys.py) and made a database in a temporary folder, unless one is named. The server is a
process of its own, as `pyprof view` starts it; a question is asked over loopback. First: the first answer, with nothing
kept; again: the median and the 95th percentile of more, with other pages, sortings and filters each time. Memory is the
largest resident set of the server process, and of the processes that it starts for reports.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
MEBI = 1 << 20
KEPT = 2_000_000  # events: of more, reports that look at each are the business of database.py
START, TABLE, EVENTS, MEMORY = 1.5, 0.150, 2.0, 400 * MEBI  # aims: s, s, s, bytes
CHANGES: tuple[dict[str, Any], ...] = tuple(
    {"sort": sort, "offset": offset, "search": search}
    for sort in ("-gpu", "name", "cpu")
    for offset in (0, 100)
    for search in ("", "mm", "12")
)
EVENTS_ASKED: tuple[dict[str, Any], ...] = (
    {}, {"sort": "-id"}, {"sort": "-dur"}, {"sort": "start"}, {"filter": "kernel:gemm"}, {"search": "softmax"},
    {"filter": "kernel:gemm", "sort": "-dur"}, {"filter": "dur:>50us"}, {"search": "no such text"},
)  # fmt: skip


def make(folder: Path, kernels: int) -> Path:
    """The database of a generated recording."""
    recording, database = folder / "net.sqlite", folder / "net_dldb.sqlite"
    run = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, HERE / "gen_nsys.py", recording, "--kernels", str(kernels)], **run)
    subprocess.run(
        [sys.executable, "-m", "pyprof", "save", recording, "-o", database], cwd=HERE.parent, **run
    )
    recording.unlink()
    return database


@contextmanager
def viewer(database: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The server, its URL, and the seconds until it answered."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "pyprof", "view", "-p", "0", "--no-token", "--no-browser", str(database)], text=True,
        stdout=subprocess.PIPE, cwd=HERE.parent, env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        httpx.get(f"{url}api/profile", trust_env=False, timeout=60).raise_for_status()
        yield process, url, time.perf_counter() - begin
    finally:
        process.terminate()
        process.wait()


def largest(pid: int) -> int:
    """Bytes of the largest resident set of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def timed(client: httpx.Client, path: str, **parameters: Any) -> float:
    begin = time.perf_counter()
    client.get(f"/api/{path}", params=parameters).raise_for_status()
    return time.perf_counter() - begin


def line(name: str, times: list[float], aim: float | None) -> None:
    """A row of the table: the first, the median and the 95th percentile of the others."""
    rest = sorted(times[1:]) or times
    high = rest[min(int(len(rest) * 0.95), len(rest) - 1)]
    verdict = "" if aim is None else "ok" if high <= aim else f"aim {1000 * aim:.0f}"
    print(
        f"{name:28}{1000 * times[0]:>10.0f}{1000 * statistics.median(rest):>10.1f}{1000 * high:>10.1f}  {verdict}"
    )


def ask(client: httpx.Client) -> None:
    """Every question."""
    print(f"{'ms':28}{'first':>10}{'median':>10}{'p95':>10}")
    profile = client.get("/api/profile").json()
    steps = profile["aggregations"][0]["total"]
    for path in ("profile", "overview", "iterations", "key_operators", "roofline"):
        line(path, [timed(client, path) for _ in range(10)], TABLE)
    for name in ("detail", "op_type", "kernel", "group_node"):
        sorts = {"detail": CHANGES, "op_type": CHANGES[:1], "group_node": CHANGES[:1], "kernel": CHANGES[:1]}[
            name
        ]
        line(
            f"reports/{name}",
            [timed(client, f"reports/{name}", **change) for change in (*sorts, *sorts)],
            TABLE,
        )
    if profile["counts"]["gpu_events"] <= KEPT:
        for name in ("kernel_summary", "operator", "module", "step_time"):
            line(f"reports/{name}", [timed(client, f"reports/{name}") for _ in range(5)], TABLE)
        for path in ("insights", "ledger", "step_time"):
            line(path, [timed(client, path) for _ in range(5)], None)
    line(
        "launches of an iteration",
        [timed(client, "launches", iteration=(i // 3 + 1) % steps, sort="-dur") for i in range(12)],
        TABLE,
    )
    for one in EVENTS_ASKED:
        name = "all launches " + " ".join(f"{key}={value}" for key, value in one.items())
        line(name[:27], [timed(client, "launches", **one) for _ in range(4)], EVENTS)
        line(
            "  count",
            [
                timed(client, "launches/count", **{k: v for k, v in one.items() if k != "sort"})
                for _ in range(4)
            ],
            None,
        )
    event = client.get("/api/launches").json()["ids"][7]
    line("details of a launch", [timed(client, f"details/launch/{event + i}") for i in range(20)], TABLE)
    row = client.get("/api/reports/detail").json()["rows"][0]
    line("details of an operator", [timed(client, f"details/op/{row[0]}") for _ in range(10)], TABLE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Example: python benchmarks/viewer.py --kernels 1000000")
    parser.add_argument(
        "--kernels", type=int, default=1_000_000, help="kernels of the recording; default: %(default)s"
    )
    parser.add_argument("--database", type=Path, help="a profile database, in place of a generated one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyprof-") as name:
        folder = Path(name)
        database = arguments.database or make(folder, arguments.kernels)
        print(f"{database.stat().st_size / MEBI:,.0f} MiB")
        starts = []
        for _ in range(3):
            with viewer(database, folder) as (_, _, seconds):
                starts.append(seconds)
        start = statistics.median(starts)
        print(f"up after {start:.2f} s  {'ok' if start <= START else f'aim {START}'}")
        with (
            viewer(database, folder) as (process, url, _),
            httpx.Client(base_url=url, timeout=300, trust_env=False) as client,
        ):
            ask(client)
            own = largest(process.pid)
            others = [largest(pid) for pid in children(process.pid)]
            print(f"memory: server {own / MEBI:.0f} MiB {'ok' if own <= MEMORY else 'aim 400'}, "
                  f"its processes {', '.join(f'{one / MEBI:.0f}' for one in others)} MiB")  # fmt: skip


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the viewer costs: its server to start, to answer, to keep running; its page to be painted, and each click in it.

    python benchmarks/viewer.py --kernels 1000000
    python benchmarks/viewer.py --kernels 10000000 --views
    python benchmarks/viewer.py --database net_dldb.sqlite

A recording is generated (gen_nsys.py) and made a database in a temporary folder, unless one is named. The server is a
process of its own, as `pyprof view` starts it; a question is asked over loopback. First: the first answer, with nothing
kept; again: the median and the 95th percentile of more, with other pages, sortings and filters each time. Memory is the
largest resident set of the server process, and of the processes that it starts for reports. Then the same in Chromium,
where there is one (viewer_page.py): every interaction on tables, on a tree of 50,000 nodes (a recording in which every
call has a shape of its own), and on all launches. With --views instead: each view opened in a browser that knows
nothing, of a server that has answered nothing; the largest sum of the resident sets of the server and its processes,
and questions that were asked twice.
"""

from __future__ import annotations

import argparse
import math
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
import viewer_page

HERE = Path(__file__).resolve().parent
MEBI = 1 << 20
KEPT = 2_000_000  # events: of more, reports that look at each are the business of database.py
START, TABLE, EVENTS, MEMORY = 1.5, 0.150, 2.0, 400 * MEBI  # aims: s, s, s, bytes
PAINT, FIRST = 1.0, 300_000  # aims: s, bytes over the wire
NODES = 60_000  # kernels of the recording with 50,000 nodes
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


def make(folder: Path, kernels: int, name: str = "net", *options: str) -> Path:
    """The database of a generated recording."""
    recording, database = folder / f"{name}.sqlite", folder / f"{name}_dldb.sqlite"
    run = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, HERE / "gen_nsys.py", recording, "--kernels", str(kernels), *options], **run)
    subprocess.run([sys.executable, "-m", "pyprof", "save", recording, "-o", database], cwd=HERE.parent, **run)
    recording.unlink()
    return database


@contextmanager
def viewer(database: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The server, its URL, and the seconds until it answered."""
    client = httpx.Client(trust_env=False, timeout=60)
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "pyprof", "view", "-p", "0", "--no-token", "--no-browser", str(database)], text=True,
        stdout=subprocess.PIPE, cwd=HERE.parent, env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        client.get(f"{url}api/profile").raise_for_status()
        yield process, url, time.perf_counter() - begin
    finally:
        client.close()
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
    print(f"{name:28}{1000 * times[0]:>10.0f}{1000 * statistics.median(rest):>10.1f}{1000 * high:>10.1f}  {verdict}")


def ask(client: httpx.Client) -> None:
    """Every question."""
    print(f"{'ms':28}{'first':>10}{'median':>10}{'p95':>10}")
    profile = client.get("/api/profile").json()
    steps = profile["aggregations"][0]["total"]
    for path in ("profile", "overview", "iterations", "iterations/bars", "key_operators", "roofline"):
        line(path, [timed(client, path) for _ in range(30)], TABLE)
    for name in ("detail", "op_type", "kernel", "group_node"):
        sorts = {"detail": CHANGES, "op_type": CHANGES[:1], "group_node": CHANGES[:1], "kernel": CHANGES[:1]}[name]
        line(
            f"reports/{name}",
            [timed(client, f"reports/{name}", **change) for change in (*sorts, *sorts)],
            TABLE,
        )
    if client.get("/api/launches").json()["total"] <= KEPT:
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
    event = client.get("/api/launches").json()["ids"][7]
    line("details of a launch", [timed(client, f"details/launch/{event + i}") for i in range(20)], TABLE)
    row = client.get("/api/reports/detail").json()["rows"][0]
    line("details of an operator", [timed(client, f"details/op/{row[0]}") for _ in range(10)], TABLE)


def views(database: Path, folder: Path, only: str) -> None:
    """Open every view, each of a fresh server."""
    print(f"{'view':28}{'drawn s':>9}{'there s':>9}{'CPU s':>8}{'GB':>7}{'asked':>7}")
    with viewer_page.browser() as one:
        for name in viewer_page.EVERY_VIEW:
            if not name.startswith(only):
                continue
            with viewer(database, folder) as (process, url, _):
                time.sleep(1)  # the first child starts
                view = viewer_page.opened(one, url, process.pid, name)
            figures = f"{view.drawn:>9.2f}{view.there:>9.2f}{view.cpu:>8.2f}{view.peak / 1e9:>7.2f}"
            print(f"{name:28}{figures}{view.requests:>7}  {' '.join(view.twice)}", flush=True)


def look(database: Path, folder: Path, rounds: int) -> None:
    """Everything that is done in a browser."""
    if viewer_page.CHROMIUM is None:
        print("the page: no Chromium here")
        return
    with viewer_page.browser() as one:
        with viewer(database, folder) as (process, url, _):
            views = [viewer_page.first_view(one, url) for _ in range(6)]
            verdict("first paint, first visit", views[0][0] / 1000, PAINT, "s")
            verdict(
                "first paint, median of later ones",
                statistics.median(v[0] for v in views[1:]) / 1000,
                PAINT,
                "s",
            )
            verdict("first view over the wire", max(v[1] for v in views) / 1000, FIRST / 1000, "kB")
            page = viewer_page.Tables(one, url)
            viewer_page.materialised(page, rounds)
            tell(page, TABLE)
            page = viewer_page.Tables(one, url)
            viewer_page.launches(page)
            tell(page, EVENTS)
            memory(process)
        tree = make(folder, NODES, "tree", "--distinct-shapes")
        with viewer(tree, folder) as (_, url, _):
            page = viewer_page.Tables(one, url)
            page.go("overview")
            begin = time.perf_counter()
            page.go("operators?by=group")
            verdict(f"tree: open, {page.tab.inner_text('[data-table=groups] [data-showing]')}",
                    time.perf_counter() - begin, EVENTS, "s")  # fmt: skip
            viewer_page.trees(page, rounds)
            tell(page, TABLE)


def tell(page: viewer_page.Tables, aim: float) -> None:
    """The times of a tab; `word`: the latest that a word said that it takes a while."""
    print(f"{'in the browser, ms':28}{'n':>6}{'median':>9}{'p95':>8}{'largest':>9}{'word':>7}")
    every: list[float] = []
    for kind, times in page.times.items():
        every += times
        row(kind, times, aim, max(page.words[kind]))
    row("all", every, aim, 0)
    for missed in page.missed:
        print(f"  not seen: {missed}")
    print(f"  load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def row(kind: str, times: list[float], aim: float, word: float) -> None:
    high = sorted(times)[min(int(len(times) * 0.95), len(times) - 1)]
    said = "ok" if high <= 1000 * aim else f"aim {1000 * aim:.0f}"
    print(f"{kind:28}{len(times):>6}{statistics.median(times):>9.0f}{high:>8.0f}{max(times):>9.0f}"
          f"{word or math.nan:>7.0f}  {said}")  # fmt: skip


def verdict(name: str, value: float, aim: float, unit: str) -> None:
    print(f"{name}: {value:.2f} {unit}  {'ok' if value <= aim else f'aim {aim:g}'}")


def memory(process: subprocess.Popen[str]) -> None:
    """The largest resident sets."""
    own = largest(process.pid)
    others = [largest(pid) for pid in children(process.pid)]
    print(f"memory: server {own / MEBI:.0f} MiB {'ok' if own <= MEMORY else 'aim 400'}, "
          f"its processes {', '.join(f'{one / MEBI:.0f}' for one in others)} MiB")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Example: python benchmarks/viewer.py --kernels 1000000")
    parser.add_argument("--kernels", type=int, default=1_000_000, help="kernels of the recording; default: %(default)s")
    parser.add_argument("--database", type=Path, help="a profile database, in place of a generated one")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often each thing is done in the browser; default: %(default)s",
    )
    parser.add_argument("--views", nargs="?", const="", metavar="PREFIX", help="only open all views, or some")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyprof-") as name:
        folder = Path(name)
        database = arguments.database or make(folder, arguments.kernels)
        print(f"{database.stat().st_size / MEBI:,.0f} MiB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if arguments.views is not None:
            views(database, folder, arguments.views)
            return
        starts = []
        for _ in range(3):
            with viewer(database, folder) as (_, _, seconds):
                starts.append(seconds)
        verdict("server up, median of 3", statistics.median(starts), START, "s")
        with (
            viewer(database, folder) as (process, url, _),
            httpx.Client(base_url=url, timeout=300, trust_env=False) as client,
        ):
            ask(client)
            memory(process)
        look(database, folder, arguments.rounds)


if __name__ == "__main__":
    main()

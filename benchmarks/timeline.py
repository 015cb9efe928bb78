#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the timeline costs: to make, in the file, to serve, to search, to draw.

    python benchmarks/timeline.py --kernels 1000000,10000000
    python benchmarks/timeline.py --kernels 640000 --ranks 64

Recordings are generated (gen_nsys.py), the kernels shared out among the ranks, and loaded. CPU-seconds are those of the
process; of a question to the server, those of its child processes too, one question after the other: the first counters
start a child. A view is of as many tracks as are in sight. The page is moved by a script: 120 frames each of a pan over
the whole run, a zoom to 1/10,000 of it, pans at 1/10,000, 1/1,000, 1 % and 10 %, the zoom back, and a scroll through
all lanes. A frame is the time of its JavaScript. Needs Chromium for that. Aims are those of docs/measurements.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
from viewer import children, viewer

from pyprof.facts.build import build as build_database
from pyprof.facts.build import of_trace
from pyprof.parse import loader
from pyprof.timeline import build

HERE = Path(__file__).resolve().parent
FRAMES = 120
VIEWS = 40  # windows that the server is asked for
IN_SIGHT = 60  # lanes
FOLDED = 8  # lanes of a track
SEARCHES = ("no such name", "gemm", "=launch-bound", "dur:>200us", "name:mm")
_MOVES = """async ([frames, moves]) => {
    const { scene } = window.timeline;
    const out = {};
    const wait = () => new Promise((done) => requestAnimationFrame(done));
    const run = window.timeline.picture.timeline;
    const span = run.end - run.start;
    const { layout } = window.timeline.picture;
    for (const [name, from, to, scrolls] of moves) {
        const times = [], between = [];
        let last = performance.now();
        for (let frame = 0; frame < frames; frame++) {
            const part = frame / (frames - 1);
            const size = span * Math.exp(Math.log(from) + (Math.log(to) - Math.log(from)) * part);
            const middle = run.start + span * (from === to ? 0.3 + 0.2 * part * Math.min(1, 4 * from) : 0.4);
            const own = { from: middle - size / 2, to: middle + size / 2 };
            const scroll = scrolls ? part * Math.max(layout.height - 400, 0) : 0;
            const picture = { ...window.timeline.picture, moving: true, window: own, scroll };
            const begin = performance.now();
            scene.draw(picture);
            times.push(performance.now() - begin);
            await wait();
            between.push(performance.now() - last);
            last = performance.now();
        }
        out[name] = [times, between];
    }
    return out;
}"""


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def made(folder: Path, kernels: int, ranks: int) -> Path:
    """Load generated recordings, and add the timeline to their database; print what that costs."""
    recording, database = folder / "run", folder / "net_dldb.sqlite"
    recording.mkdir()
    for rank in range(ranks):
        file = recording / f"net.rank{rank}.sqlite"
        generator = [HERE / "gen_nsys.py", file, "--kernels", str(kernels // ranks), "--seed", str(rank)]
        subprocess.run([sys.executable, *generator], check=True, stdout=subprocess.DEVNULL)
    begin = time.process_time()
    trace = loader.load(recording)
    build_database(of_trace(trace), str(database))
    load, size = time.process_time() - begin, database.stat().st_size
    begin = time.process_time()
    build.add(str(database), str(recording))
    cost = time.process_time() - begin
    with closing(sqlite3.connect(database)) as connection:
        events, lanes = connection.execute("select sum(events), sum(lanes) from track").fetchone()
        tiles, stored = connection.execute("select count(*), sum(length(data)) from tile").fetchone()
    grown = database.stat().st_size - size
    print(f"load               {load:8.1f} CPU-s")
    print(f"timeline           {cost:8.1f} CPU-s, {1e6 * cost / kernels:.2f} per million kernels")
    print(f"memory of both     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:8.2f} GB at most")
    print(f"events             {events:8,}, in {tiles:,} tiles of {lanes:,} lanes")
    print(f"file               {grown / events:8.1f} B an event, {stored / events:.1f} of tiles")
    return database


def served(client: httpx.Client, server: int) -> None:
    """Ask for windows of the whole run down to 1/10,000, and print bytes and the server's CPU time."""
    timeline = client.get("api/timeline").json()
    span = timeline["end"] - timeline["start"]
    room = IN_SIGHT
    shown = [track for track in timeline["tracks"] if (room := room - min(track["lanes"], FOLDED)) >= 0]
    raw, wire, cpu = [], [], []
    for number in range(VIEWS):
        share = 10 ** (-4 * number / (VIEWS - 1))
        low = timeline["start"] + int(span * (1 - share) * 0.4)
        high, pixel = low + int(span * share), span * share / 3000
        parts = []
        for track in shown:
            level, shift = [one for one in track["levels"] if not one[0] or 2 ** one[0] <= pixel][-1]
            first, last = (max(low, track["start"]) >> shift, min(high, track["end"]) >> shift)
            if first <= last:
                parts.append(f"{level}:{first}-{last}:{track['id']}")
        before = ticks(server)
        with client.stream(
            "GET", "api/timeline/tiles", params={"q": ";".join(parts)}, headers={"accept-encoding": "zstd"}
        ) as answer:
            wire.append(len(b"".join(answer.iter_raw())))
        cpu.append(ticks(server) - before)
        plain = client.get("api/timeline/tiles", params={"q": ";".join(parts)}, headers={"accept-encoding": "identity"})
        raw.append(len(plain.content))
    print(f"a view, inflated   {statistics.median(raw) / 2**20:8.2f} MiB, at most {max(raw) / 2**20:.2f}")
    print(f"a view, sent       {statistics.median(wire) / 2**20:8.2f} MiB, at most {max(wire) / 2**20:.2f}")
    print(f"a view, server     {1000 * statistics.mean(cpu):8.1f} CPU-ms on average")
    low = timeline["start"] + int(span * 0.4)
    whole = {"start": timeline["start"], "end": timeline["end"]}
    for share in (0.01, 0.1):
        window = {"start": low, "end": low + int(span * share)}
        question(client, server, f"sums of {100 * share:3.0f} %", "timeline/selection", **window)
        question(client, server, "with their work", "timeline/selection", work=True, **window)
        question(client, server, "as a tree", "timeline/flame", work=True, **window)
    for find in SEARCHES:
        question(client, server, f"search {find}", "timeline/search", find=find, **whole)
    question(client, server, f"its hits {find}", "timeline/hits", find=find, offset=10_000)
    own = {key: timeline["counters"][0][key] for key in ("worker", "device")}
    question(client, server, "counters of   1 %", "timeline/counters", start=low, end=low + span // 100, **own)
    question(client, server, "counters of 100 %", "timeline/counters", **whole, **own)
    question(client, server, "again", "timeline/counters", **whole, **own)
    question(client, server, "roofline", "timeline/roofline", worker=0)
    gaps = next(track["events"] for track in timeline["tracks"] if track["kind"] == "idle")
    for name, number in (("the first gap", gaps // 2), ("another gap", gaps // 3), ("a third", 1)):
        question(client, server, name, f"details/gap/{own['worker']}.{own['device']}.{number}")


def question(client: httpx.Client, server: int, name: str, path: str, **parameters: Any) -> None:
    """Ask once, and print the CPU time of the server and of its children, and how long the answer took."""
    before, begin = everywhere(server), time.perf_counter()
    answer = client.get(f"api/{path}", params=parameters)
    seconds = time.perf_counter() - begin
    note = "" if answer.is_success else answer.json()["detail"]
    print(
        f"{name:20} {1000 * (everywhere(server) - before):8.0f} CPU-ms, {1000 * seconds:.0f} ms until the answer {note}"
    )


def everywhere(process: int) -> float:
    """The CPU-seconds of a process and its children, those that ended too."""
    return ticks(process, ended=True) + sum(ticks(child) for child in children(process))


def ticks(process: int, ended: bool = False) -> float:
    """The CPU-seconds of a process; `ended`: with those of its children that ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if ended else 13]) / os.sysconf("SC_CLK_TCK")


def drawn(url: str) -> None:
    """Open the page, move it, and print the times of frames."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("PYPROF_CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        first: list[float] = []
        for _ in range(5):
            page = browser.new_page(viewport={"width": 1500, "height": 840})
            page.goto(f"{url}?test=1#/help")
            page.wait_for_selector("main h1")
            begin = time.perf_counter()
            page.evaluate("location.hash = '#/timeline'")
            # Not wait_for_function: the page's policy forbids it.
            while not page.evaluate(
                "window.timeline?.picture && window.timeline.scene?.levels.size && !window.timeline.underway"
            ):
                page.wait_for_timeout(5)
            first.append(time.perf_counter() - begin)
        print(f"first picture      {statistics.median(first):8.2f} s, the median of {len(first)}")
        moves: list[Any] = [
            ("pan, whole run", 1, 1), ("zoom in", 1, 1e-4), ("pan, 1/10,000", 1e-4, 1e-4),
            ("pan, 1/1,000", 1e-3, 1e-3), ("pan, 1 %", 1e-2, 1e-2), ("pan, 10 %", 0.1, 0.1), ("zoom out", 1e-4, 1),
            ("scroll", 0.1, 0.1, True),
        ]  # fmt: skip
        _move(page, moves)
        print(f"page               {renderer() / 1e6:8.0f} MB resident")
        browser.close()


def _move(page: Any, moves: list[Any]) -> None:
    for name, (times, between) in page.evaluate(_MOVES, [FRAMES, moves]).items():
        print(
            f"{name:18} {percentile(times, 0.5):8.2f} ms of JavaScript, 95 %: {percentile(times, 0.95):.2f}; "
            f"frame to frame {percentile(between, 0.5):.1f}, 95 %: {percentile(between, 0.95):.1f}, "
            f"longest {max(between):.1f}"
        )


def renderer() -> int:
    """Return the resident bytes of the largest process of the browser that renders a page."""
    return max(
        process.memory_info().rss
        for process in psutil.Process().children(recursive=True)
        if "--type=renderer" in process.cmdline()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="1000000", help="sizes, one after the other; 10000000 takes 12 GB of disk")
    parser.add_argument("--ranks", default="1", help="numbers of ranks, one run after the other; default: %(default)s")
    parser.add_argument("--database", type=Path, help="one that has a timeline, instead of a generated one")
    arguments = parser.parse_args()
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    if arguments.database:
        _run(arguments.database, 0, 0)
        return
    for kernels in map(int, arguments.kernels.split(",")):
        for ranks in map(int, arguments.ranks.split(",")):
            print(f"kernels            {kernels:8}, ranks {ranks}")
            _run(None, kernels, ranks)


def _run(database: Path | None, kernels: int, ranks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = database or made(Path(folder), kernels, ranks)
        with viewer(database, Path(folder) / "cache") as (process, url, _):
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                served(client, process.pid)
            drawn(url)


if __name__ == "__main__":
    main()

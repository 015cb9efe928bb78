#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who gets CUPTI's records? One scenario in one process: kernels counted by each collector, against what was launched.

python scripts/gpu/order.py SCENARIO FOLDER      prints one line of JSON

The work of a window launches a known number of kernels: an elementwise kernel per addition. A collector that counts
another number of them has lost or doubled some.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

import pyprof

if "POOL" in os.environ:
    import own_buffers

    own_buffers.install()

ADDITIONS, PRODUCTS = 1000, 20
SCENARIOS: dict[str, Callable[[], None]] = {}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
counts: list[dict[str, Any]] = []
x = torch.randn(256, 256, device=DEVICE)


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def work(times: int = 1) -> None:
    for _ in range(ADDITIONS * times):
        x + 1
    for _ in range(PRODUCTS):
        x @ x
    x.cpu()


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def ours(label: str, collector: str, body: Callable[[Any], None] = lambda window: work(), **options: Any) -> None:
    """A window of PyProf around work."""
    path = FOLDER / f"{len(counts)}.sqlite"
    begin = time.perf_counter()
    with pyprof.profile(str(path), collector=collector, **options) as window:
        body(window)
        inside = time.perf_counter() - begin
    whole = time.perf_counter() - begin
    found: dict[str, Any] = {
        "window": label,
        "seconds": round(inside, 3),
        "closing": round(whole - inside, 3),
    }
    with sqlite3.connect(path) as database:

        def one(query: str) -> Any:
            try:
                return database.execute(query).fetchall()
            except sqlite3.Error as error:
                return str(error)

        found["kernels"] = one("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL")
        found["additions"] = one(
            "select count(*), sum(k.end - k.start), min(k.end - k.start) from CUPTI_ACTIVITY_KIND_KERNEL k "
            "join StringIds s on s.id = k.demangledName where s.value like '%elementwise%'"
        )
        found["before their launch"] = one(
            "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join CUPTI_ACTIVITY_KIND_RUNTIME r "
            "using (correlationId) where k.start < r.start"
        )
        found["launches"] = one("select count(*) from CUPTI_ACTIVITY_KIND_RUNTIME")
        found["names of calls"] = one(
            "select s.value, count(*) from CUPTI_ACTIVITY_KIND_RUNTIME r join StringIds s on s.id = r.nameId "
            "group by 1 order by 2 desc limit 12"
        )
        found["unlinked"] = one(
            "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL where correlationId not in "
            "(select correlationId from CUPTI_ACTIVITY_KIND_RUNTIME)"
        )
        found["lost"] = one("select * from PYPROF_LOST")
        found["meta"] = one("select * from PYPROF_META where name like 'collector%' or name like '%pause%'")
    counts.append(found)


def of_torch(label: str, body: Callable[[], None] = work) -> None:
    """A plain torch.profiler around work."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        body()
        synchronize()
    path = FOLDER / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    counts.append({
        "torch.profiler": label, "kernels": len(kernels),
        "additions": [sum("elementwise" in e["name"] for e in kernels), sum(e["dur"] for e in kernels)],
        "launches": sum(event.get("cat") in ("cuda_runtime", "cuda_driver") for event in events),
    })  # fmt: skip


@scenario
def torch_alone() -> None:
    for n in range(2):
        of_torch(f"window {n}")


@scenario
def kineto() -> None:
    ours("1", "kineto")
    ours("2", "kineto", sync=True)
    of_torch("after")
    ours("3", "kineto")
    ours("memory", "kineto", memory=True)


@scenario
def cupti_first() -> None:
    for n in range(3):
        ours(str(n), "cupti")
    ours("sync", "cupti", sync=True)


@scenario
def cupti_after_torch() -> None:
    of_torch("before")
    ours("1", "cupti")
    of_torch("after")
    ours("2", "cupti")
    ours("kineto", "kineto")
    ours("3", "cupti")


@scenario
def torch_after_cupti() -> None:
    ours("1", "cupti")
    of_torch("after")


@scenario
def none_then_torch() -> None:
    ours("none", "none")
    of_torch("after none")
    ours("kineto", "kineto")


@scenario
def torch_inside() -> None:
    """The program's own profiler inside a window, with each collector."""
    for collector in ("kineto", "cupti"):

        def body(window: Any) -> None:
            work()
            of_torch("inside")
            work()

        ours("around", collector, body)


@scenario
def pauses() -> None:
    """Windows whose records are read between, because of their number."""
    from pyprof.capture.session import Session  # noqa: F401

    for collector in ("kineto", "cupti"):

        def body(window: Any) -> None:
            for _ in range(12):
                work(5)
                window.step()

        ours("12 steps of 5,020", collector, body)


@scenario
def threads() -> None:
    """Two threads launch while buffers fill: 100,000 kernels."""
    for collector in ("kineto", "cupti"):

        def body(window: Any) -> None:
            both = [threading.Thread(target=work, args=(50,)) for _ in range(2)]
            [one.start() for one in both]
            [one.join() for one in both]

        ours("2 x 50,020", collector, body)


def main() -> None:
    pyprof.init()
    for _ in range(3):
        work()
    synchronize()
    SCENARIOS[sys.argv[1]]()
    pyprof.shutdown()
    if "RAW" in os.environ:
        own_buffers.save(Path(os.environ["RAW"]), torch=torch.__version__)
    for one in counts:
        print(json.dumps({"scenario": sys.argv[1], **one}))


if __name__ == "__main__":
    main()

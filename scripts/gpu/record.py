#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record a program of programs.py twice in one process: as a trace of torch.profiler, and as a file of PyProf.

python scripts/gpu/record.py NAME FOLDER [cold | memory]

`cold`: PyProf's window holds the first two steps. `memory`: with allocations, synchronizations, files and samples. Of
both there is no trace of torch. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from programs import DEVICE, PROGRAMS

import pyprof


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def kernels(path: Path) -> dict[str, int]:
    """Rows of the tables of device events of a file of PyProf."""
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where name like 'CUPTI%KIND%'")]
        out = {name[20:].lower(): database.execute(f"select count(*) from {name}").fetchone()[0] for name in names}
        return out | dict(database.execute("select reason, count from PYPROF_LOST").fetchall())


def of_torch(path: Path) -> dict[str, int]:
    """Events of each category of the device in a trace of torch.profiler."""
    import gzip
    from collections import Counter

    with gzip.open(path) as file:
        categories = Counter(str(event.get("cat")) for event in json.load(file)["traceEvents"])
    return {name: categories[name] for name in categories if name.startswith(("kernel", "gpu", "cuda"))}


def main(name: str, folder: Path, how: str) -> dict[str, Any]:
    torch.manual_seed(0)
    pyprof.init()
    step = PROGRAMS[name]()
    out: dict[str, Any] = {"name": name, "how": how, "device": DEVICE, "torch": torch.__version__}
    if how != "cold":
        for _ in range(3):
            step()
        synchronize()
    if not how:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if DEVICE == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True) as profiler:
            for _ in range(2):
                step()
            synchronize()
        trace = folder / f"{name}.pt.trace.json.gz"
        profiler.export_chrome_trace(str(trace))
        out["trace"] = of_torch(trace)
    path = folder / f"{name}{how and '_'}{how}.sqlite"
    options: dict[str, Any] = {"memory": True, "sync": True, "io": True, "sample": "cpu"} if how == "memory" else {}
    with pyprof.profile(str(path), **options) as window:
        for _ in range(2):
            step()
            window.step()
    pyprof.shutdown()
    return {**out, "capture": kernels(path)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:]))))

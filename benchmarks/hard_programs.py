#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording does to programs that are hard to record: memory, equal steps, modules that are made in `forward`.

    python benchmarks/hard_programs.py

memory: peak of a process (MB) that records 400,000 calls, operators that no call of ours comes with (imported names,
TorchScript, a backward), at a bound of 100,000 events, and a million operators.
steps: twelve equal steps of 3,000 calls; the longest by the median, as the report `step_time` has them.
modules: CPU time of a step in a window by that without, for a model that makes 20 modules a step, by its size.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import add, nn

import pyprof

PROGRAMS = {
    "400,000 calls": 100_000, "imported name, 60,000 turns": 100_000, "TorchScript, 60,000 turns": 100_000,
    "backward of 30,000 additions": 100_000, "a million operators": 10_000_000,
}  # fmt: skip


@torch.jit.script
def scripted(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = torch.add(x, 1)
    return x


def record(name: str, path: str) -> int:
    """Run a program in a window; returns the peak of the process in MB."""
    x, chain = torch.ones(4), torch.ones(4, requires_grad=True)
    scripted(x, 9), scripted(x, 9)
    if name.startswith("backward"):
        for _ in range(30_000):
            chain = chain + 1
    with pyprof.profile(path, max_events=PROGRAMS[name]):
        if name.startswith("imported"):
            for _ in range(60_000):
                add(x, 1)
        elif name.startswith("TorchScript"):
            scripted(x, 60_000)
        elif name.startswith("backward"):
            chain.sum().backward()  # type: ignore[no-untyped-call]
        else:
            for _ in range(400_000 if name.startswith("400,000") else 200_000):
                torch.add(x, 1)
        torch.add(x, 2)
    status = Path("/proc/self/status").read_text()  # getrusage has the peak of the parent as well
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) // 1024


class Block(nn.Module):
    """Makes a module at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        softmax: torch.Tensor = nn.Softmax(dim=-1)(self.linear(x))
        return softmax


class Model(nn.Module):
    """Runs twenty of its blocks."""

    def __init__(self, blocks: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in list(self.blocks)[:20]:
            x = block(x)
        return x


def modules(blocks: int, folder: str) -> float:
    model, x = Model(blocks), torch.ones(4, 8)

    def step() -> float:
        begin = process_time()
        with torch.no_grad():
            model(x)
        return process_time() - begin

    step()
    off = median(step() for _ in range(30))
    with pyprof.profile(os.path.join(folder, "modules.sqlite")):
        step()
        on = median(step() for _ in range(30))
    return on / off


def steps(folder: str) -> float:
    path, x = os.path.join(folder, "steps.sqlite"), torch.ones(4)
    with pyprof.profile(path) as window:
        for _ in range(12):
            for _ in range(3000):
                torch.add(x, 1)
            window.step()
    lengths = pyprof.load(path).report("step_time")["total_ns"].tolist()
    return float(max(lengths) / median(lengths))


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
        for name in PROGRAMS:
            command = [sys.executable, __file__, name, os.path.join(folder, "net.sqlite")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"memory: {name:32}{int(done.stdout):8,} MB")
        with contextlib.redirect_stderr(io.StringIO()):
            longest, ratios = steps(folder), {blocks: modules(blocks, folder) for blocks in (20, 500, 5000)}
        print(f"steps: the longest by the median  {longest:8.2f}")
        for blocks, ratio in ratios.items():
            print(f"modules: a model of {2 * blocks + 1:6,} modules    {ratio:8.2f} times")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(record(sys.argv[1], sys.argv[2]))
    else:
        main()

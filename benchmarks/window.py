#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a window of 5 steps costs the other 195 of a training run, and what stays in memory.

    python benchmarks/window.py --rounds 7

A round is two processes in turn, each training a small transformer on one thread for the same steps: one as it is, one
with `pyprof.profile(wait=..., active=5)` in the middle. Compared are the medians of the CPU time of the steps before
the window and after it, with and without, and the growth of the resident memory from soon after the window to the end.
A ratio is that of one round; printed are the median and the extremes over the rounds. A process more, in which blocks
of steps with and without PyProf take turns, is less at the mercy of a machine's other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

ACTIVE = 5  # steps in the window
SETTLE = 10  # steps at the start, and after the window, that are in no figure


def _resident() -> int:
    """Bytes of memory that the process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _step() -> Callable[[], float]:
    """A training step of a small transformer; returns its loss."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(100, 64),
        torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        torch.nn.Linear(64, 100),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(100, (8, 33))

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def child(recorded: bool, steps: int) -> dict[str, Any]:
    """One run. Times in ns of CPU, memory in bytes."""
    step, wait = _step(), steps // 2
    times: list[int] = []
    after, loss = 0, 0.0
    if recorded:
        import pyprof

        profile: Any = pyprof.profile("net.sqlite", wait=wait, active=ACTIVE)
        profile.__enter__()
    for number in range(steps):
        begin = process_time_ns()
        loss = step()
        if recorded:
            profile.step()
        times.append(process_time_ns() - begin)
        if number == wait + ACTIVE + SETTLE:
            after = _resident()
    end = _resident()
    if recorded:
        profile.__exit__(None, None, None)
        assert os.path.exists("net.sqlite")
    return {
        "before": median(times[SETTLE:wait]),
        "window": sum(times[wait - 1 : wait + ACTIVE]) - (ACTIVE + 1) * median(times[SETTLE:wait]),
        "after": median(times[wait + ACTIVE + SETTLE :]),
        "resident": after,
        "grown": end - after,
        "loss": loss,
    }


def blocks(count: int) -> dict[str, list[float]]:
    """Ratios of neighbouring blocks of 10 steps in one process, waiting for a window or without PyProf."""
    import pyprof

    step = _step()

    def block(waiting: bool) -> int:
        profile: Any = pyprof.profile("idle.sqlite", wait=10**9)
        if waiting:
            profile.__enter__()
        step()
        begin = process_time_ns()
        for _ in range(10):
            step()
            if waiting:
                profile.step()
        spent = process_time_ns() - begin
        if waiting:
            profile.__exit__(None, None, None)
        pyprof.shutdown()
        return spent

    def ratios() -> list[float]:
        found = []
        for number in range(count):
            order = (False, True) if number % 2 else (True, False)
            spent = {waiting: block(waiting) for waiting in order}
            found.append(spent[True] / spent[False])
        return found

    for _ in range(SETTLE):
        step()
    before = ratios()
    with pyprof.profile("net.sqlite", active=ACTIVE) as p:
        for _ in range(ACTIVE):
            step()
            p.step()
    return {"before": before, "after": ratios()}


def _run(what: str, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
        command = [sys.executable, os.path.abspath(__file__), "--steps", str(steps), "--child"]
        done = subprocess.run(
            [*command, what],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(rounds: int, steps: int) -> str:
    """The table."""
    pairs = []
    for number in range(rounds):
        order = (False, True) if number % 2 else (True, False)
        found = {recorded: _run("recorded" if recorded else "plain", steps) for recorded in order}
        assert found[True]["loss"] == found[False]["loss"]
        pairs.append((found[False], found[True]))

    def row(name: str, values: Sequence[float], unit: str = "") -> str:
        return f"  {name:44}{median(values):10.3f}{min(values):10.3f}{max(values):10.3f}  {unit}".rstrip()

    plain = median(pair[0]["before"] for pair in pairs)
    lines = [f"{steps} steps of {plain / 1e6:.2f} ms CPU, window of {ACTIVE} after {steps // 2}, {rounds} rounds"]
    lines.append(f"  {'':44}{'median':>10}{'least':>10}{'most':>10}")
    for part in ("before", "after"):
        ratios = [recorded[part] / alone[part] for alone, recorded in pairs]
        lines.append(row(f"step {part} the window, with / without PyProf", ratios, "ratio"))
    ratios = [
        (recorded["after"] / recorded["before"]) / (alone["after"] / alone["before"]) for alone, recorded in pairs
    ]
    lines.append(row("step after / before, with / without", ratios, "ratio"))
    lines.append(row("window, its opening and its file", [r["window"] / plain for _, r in pairs], "steps"))
    for name, index in (("without", 0), ("with", 1)):
        grown = [pair[index]["grown"] / 2**20 for pair in pairs]
        lines.append(row(f"resident memory from after the window on, {name}", grown, "MiB"))
    lines.append(
        row(
            "resident after the window, with - without",
            [(b["resident"] - a["resident"]) / 2**20 for a, b in pairs],
            "MiB",
        )
    )
    lines.append(f"in one process, {steps // 4} pairs of blocks of 10 steps")
    for part, ratios in _run("blocks", steps // 4).items():
        middle = sorted(ratios)[len(ratios) // 4 : -len(ratios) // 4 or None]
        lines.append(row(f"{part} a window, waiting / without, middle half", middle, "ratio"))
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Example: window.py --rounds 7")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs; default: %(default)s")
    parser.add_argument("--steps", type=int, default=200, help="steps of a run; default: %(default)s")
    parser.add_argument("--child", choices=("plain", "recorded", "blocks"), help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.child:
        run = (
            blocks(arguments.steps)
            if arguments.child == "blocks"
            else child(arguments.child == "recorded", arguments.steps)
        )
        print(json.dumps(run))
        return 0
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, one thread")
    print(compare(arguments.rounds, arguments.steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a flight record adds to a training step, beside nothing and beside torch.profiler.

    python benchmarks/flight.py --rounds 15

Every round takes so many steps in each mode, in turn, on one thread. A figure is the median over the rounds of the mode
divided by nothing in the same round; CPU time of the process, with what the mode does at the end of its steps, but
neither opening nor closing it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

import torch
from capture import shapes_and_stacks, transformer

import pyprof

AIM = 1.03


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def flight() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
        with pyprof.flight(steps=20, output=str(Path(folder, "flight.sqlite")), on_signal=None):
            yield
        pyprof.shutdown()


MODES: dict[str, Callable[[], Any]] = {
    "nothing": nothing,
    "flight, 20 steps": flight,
    "torch.profiler, shapes and stacks": shapes_and_stacks,
}


def measure(mode: str, step: Callable[[], Any], steps: int) -> float:
    """ns of a step; the first ones warm up."""
    gc.collect()
    with MODES[mode]():
        for _ in range(5):
            step()
        begin = process_time_ns()
        for _ in range(steps):
            step()
        return (process_time_ns() - begin) / steps


def main() -> int:
    """Print a line for each model and mode."""
    parser = argparse.ArgumentParser(description="Example: flight.py --rounds 15")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each mode; default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="steps of a run; default: %(default)s")
    arguments = parser.parse_args()
    rounds, steps = arguments.rounds, arguments.steps
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, step, aim in (
        ("transformer, 4 layers of 64", transformer(64, 32), None),
        ("transformer, 4 layers of 128", transformer(128, 128), AIM),
    ):
        spent: dict[str, list[float]] = {mode: [] for mode in MODES}
        for _ in range(rounds):
            for mode in MODES:
                spent[mode].append(measure(mode, step, steps))
        print(f"{name}: {median(spent['nothing']) / 1e6:.2f} ms per step")
        for mode, times in spent.items():
            if mode != "nothing":
                ratio = median(a / b for a, b in zip(times, spent["nothing"]))
                met = "" if aim is None or mode.startswith("torch") else f", aim {aim}"
                print(f"  {mode:36}{ratio:.3f} times{met}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

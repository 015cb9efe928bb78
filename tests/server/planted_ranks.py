# SPDX-License-Identifier: Apache-2.0
"""Ranks on four hosts with planted clocks and delays, in ns, so that a test knows which were planted.

Rank r's clock is CLOCK[r] ahead. In each step of STEPS all ranks begin DELAY[r] after the step and come to the
collective ARRIVAL[r] after it; its kernels end together. Rank 3 marks the first step alone, and takes part in the first
collective alone.
"""

from __future__ import annotations

from pathlib import Path

from tests.reports.ranks import K, trace

RANKS = 4
CLOCK = (5_000_003, 0, 1_234_567, 9_000_001)
DELAY = (10_001, 0, 20_002, 5_005)
ARRIVAL = (300_001, 250_000, 420_007, 260_013)
STEPS = (0, 1_000_000)  # their beginnings, were all clocks the same
FIRST = 7  # number of the first step
END = 700_000  # of the collective of a step, after its beginning
GEMM = "volta_sgemm_128x64_nn"


def members(step: int) -> list[int]:
    """Ranks of a step's collective, and those that mark it."""
    return [rank for rank in range(RANKS) if rank < 3 or step == 0]


def write(folder: Path) -> Path:
    """A folder of traces of torch.profiler."""
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        own = [step for step in range(len(STEPS)) if rank in members(step)]
        kernels = []
        for step in range(len(STEPS)):
            at = STEPS[step] + CLOCK[rank]
            kernels.append(_kernel(GEMM, at + 100_000 + DELAY[rank], at + 120_000 + DELAY[rank]))
            if step in own:
                kernels.append(_kernel("all_reduce", at + ARRIVAL[rank], at + END, step))
        steps = [tuple(_us(STEPS[step] + CLOCK[rank] + time) for time in (DELAY[rank], END + 50_000)) for step in own]
        text = trace(rank, kernels, steps, f"host{rank}", RANKS, FIRST)  # type: ignore[arg-type]
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_text(text, encoding="utf-8")
    return folder


def _us(ns: int) -> float:
    return ns / 1000


def _kernel(name: str, start: int, end: int, step: int | None = None) -> K:
    times = _us(start), _us(end - start)
    if step is None:
        return K(name, *times)  # type: ignore[arg-type]
    group = "all" if step == 0 else "three"
    return K(name, *times, group=group, seq=step, elements=(1000, 1000), size=len(members(step)))  # type: ignore[arg-type]


def busy(rank: int, start: int, end: int) -> int:
    """ns of [start, end) of the clock in which a kernel ran on a rank."""
    kernels = [(at + 100_000 + DELAY[rank], at + 120_000 + DELAY[rank]) for at in STEPS]
    kernels += [(STEPS[step] + ARRIVAL[rank], STEPS[step] + END) for step in range(len(STEPS)) if rank in members(step)]
    return sum(max(min(stop + CLOCK[rank], end) - max(begin + CLOCK[rank], start), 0) for begin, stop in kernels)


def median(values: list[int]) -> int:
    """The one in the middle, the earlier of two."""
    return sorted(values)[(len(values) - 1) // 2]

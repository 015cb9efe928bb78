# SPDX-License-Identifier: Apache-2.0
"""Thresholds of the rules: what a recording must reach for a rule to fire. Starting values, not calibrated.

Shares are of the window's wall time unless the text names another base.

>>> limit("R03.busy")
0.5
"""

from __future__ import annotations

from typing import NamedTuple

from pyprof.facts.steps.steady_state import MOST_SPREAD


class Limit(NamedTuple):
    """A threshold, with its unit: "" for a share or ratio."""

    value: float
    unit: str
    text: str


LIMITS = {
    "worth": Limit(0.01, "", "share that a finding must save, where its saving is known"),
    "known": Limit(0.90, "", "share of the kernels' time for which the kind must be known, for rules that need it"),
    "R02.spread": Limit(MOST_SPREAD, "", "standard deviation of the iterations' lengths, divided by their mean"),
    "R03.busy": Limit(0.50, "", "share in which the GPU is busy, below"),
    "R05.late": Limit(0.05, "", "share in which the GPU waits for a launch"),
    "R05.median": Limit(15_000, "ns", "median length of a kernel, below which fusing them is advised"),
    "R05.operator": Limit(0.20, "", "share of the waits before kernels of one operator, from which it is named"),
    "R05.kernels": Limit(10, "kernels per step", "from which fusing them is advised"),
    "R06.short": Limit(5_000, "ns", "length of a short kernel, below"),
    "R06.launches": Limit(0.50, "", "share of short kernels among all launches"),
    "R06.time": Limit(0.15, "", "share of short kernels in the time of all kernels, below"),
    "R07.share": Limit(0.03, "", "share in which the GPU is idle after the program waited for it"),
    "R07.per_step": Limit(1, "waits per step", "waits of the program after which the GPU is idle"),
    "R08.share": Limit(0.05, "", "share in which the loop waits for data and the GPU does nothing"),
    "R09.share": Limit(0.02, "", "the same share, where the loader has no workers"),
    "R10.bytes": Limit(1_000_000, "bytes per step", "copied from or to pageable memory"),
    "R10.share": Limit(0.02, "", "share of such copies"),
    "R11.share": Limit(0.05, "", "share in which copies or sets run and no kernel"),
    "R12.share": Limit(0.10, "", "share of products in float32 on plain lanes"),
    "R13.share": Limit(0.05, "", "share of products in float32 on plain lanes"),
    "R14.share": Limit(0.03, "", "share of 16 bit or narrower products on plain lanes"),
    "R15.share": Limit(0.02, "", "share of products with sizes that do not fit"),
    "R15.efficiency": Limit(0.60, "", "roofline efficiency of such a product, below"),
    "R16.share": Limit(0.05, "", "share of conversions in the time of all kernels"),
    "R17.share": Limit(0.05, "", "share of changes of layout in the time of all kernels"),
    "R18.share": Limit(0.20, "", "share of convolutions in the time of all kernels"),
    "R19.share": Limit(0.10, "", "share of convolutions"),
    "R19.shapes": Limit(8, "shapes", "different shapes of one convolution, at most"),
    "R20.algorithms": Limit(3, "algorithms", "different convolution algorithms in one call"),
    "R21.per_parameter": Limit(1.5, "launches", "launches of an optimizer's step per parameter tensor, more than"),
    "R21.launches": Limit(50, "launches", "launches of an optimizer's step, more than"),
    "R21.share": Limit(0.03, "", "share of the optimizer's step, with so many launches"),
    "R22.share": Limit(0.01, "", "share of setting gradients to zero"),
    "R23.chain": Limit(3, "kernels", "elementwise kernels of one size in a row"),
    "R23.share": Limit(0.10, "", "share of such rows in the time of all kernels"),
    "R24.share": Limit(0.05, "", "share of the kernels between the products of attention"),
    "R26.occupancy": Limit(0.25, "", "share of the GPU's threads that a kernel's blocks fill, below"),
    "R26.length": Limit(5_000, "ns", "length of a kernel that counts: shorter ones are launches, not work"),
    "R26.share": Limit(0.10, "", "share of such kernels in the time of all but collectives"),
    "R27.over": Limit(0.20, "", "share of the GPU that the blocks beyond one full wave fill, at most"),
    "R27.over_two": Limit(0.10, "", "the same beyond two full waves"),
    "R27.share": Limit(0.05, "", "share of such kernels in the time of all but collectives"),
    "R28.share": Limit(0.10, "", "share in which collectives run and no other kernel"),
    "R28.waiting": Limit(0.5, "", "share of the time of collectives in which they wait for the last rank"),
    "R29.bytes": Limit(1_000_000, "bytes", "size of a small collective, below"),
    "R29.per_step": Limit(20, "per step", "small collectives"),
    "R30.share": Limit(0.10, "", "share that the steps would be shorter without the rank's largest delay"),
    "R30.host": Limit(1.5, "", "saving with an even host, as a multiple of that without the delay, more than"),
    "R30.steps": Limit(0.60, "", "share of the steps in which it is that rank"),
    "R31.memory": Limit(0.50, "", "share of the GPU's memory that the run used at most, below"),
    "R32.per_step": Limit(1, "calls per step", "calls that allocate or free memory of the GPU"),
    "R32.share": Limit(0.01, "", "share of such calls"),
    "R33.gc": Limit(0.01, "", "share of Python's garbage collection while the GPU does nothing"),
    "R33.operator": Limit(0.10, "", "share of one operator that uses no GPU, while the GPU does nothing"),
    "R35.compiles": Limit(2, "compilations", "of torch.compile after the first iteration"),
    "R35.breaks": Limit(1, "graph breaks per step", "functions that resume after one"),
    "R36.length": Limit(10_000, "ns", "mean length of a kernel that counts"),
    "R36.efficiency": Limit(0.40, "", "roofline efficiency of an operator, below"),
    "R36.share": Limit(0.05, "", "share of the time beyond the roofline, of one operator"),
    "R36.reachable": Limit(0.70, "", "roofline efficiency that good kernels reach: the saving is counted up to it"),
    "R38.share": Limit(0.10, "", "share of the CPU's time in operators that recording took"),
    "R38.launches": Limit(0.01, "", "share of launches whose work is missing, at least"),
    "R38.lost": Limit(0.01, "", "share of what is missing among all events, calls and ranges"),
    "R40.bytes": Limit(4_096, "bytes", "size of a copy that counts"),
    "R40.per_step": Limit(1, "pairs per step", "copies to the host and back of one size, more than"),
    "R43.memory": Limit(0.90, "", "share of the GPU's memory that was allocated at most, more than"),
    "R44.share": Limit(0.20, "", "share of products in float32 on a CPU"),
    "R44.intensity": Limit(8, "FLOPs per byte", "of a product, at least: that of 16 rows, which a tile of AMX has"),
    "R45.share": Limit(0.50, "", "share of operators on a CPU"),
    "R45.cores": Limit(0.50, "", "threads of an operator per core of the process, below"),
    "R46.length": Limit(20_000, "ns", "mean length of a short operator's calls, below"),
    "R46.event": Limit(5_000, "ns", "mean length of the operators within a call, below"),
    "R46.share": Limit(0.30, "", "share of such operators"),
    "R46.rows": Limit(16, "rows", "of matrix products, fewer: up to there they take as long as reading the weights"),
    "R46.products": Limit(0.90, "", "share of the products' time that have at most so many rows"),
    "R46.calls": Limit(20, "calls per step", "of such operators, at least"),
    "R47.times": Limit(5, "", "a slow call's time, as a multiple of the median of equal calls, more than"),
    "R47.length": Limit(1_000_000, "ns", "a slow call's time beyond that median, at least"),
    "R47.equal": Limit(4, "calls", "that are equal, in a recording of several steps, at least"),
    "R47.few": Limit(0.10, "", "share of slow calls among all calls that have equals, at most"),
    "R47.share": Limit(0.10, "", "share of the slow calls' time beyond those medians"),
    "R49.length": Limit(200_000, "ns", "time of the CPU in one place, while the GPU waits, that counts, at least"),
    "R49.share": Limit(0.03, "", "share of such waits, of one place"),
    "R49.unknown": Limit(0.10, "", "the same share, where no Python function is recorded"),
    "R50.share": Limit(0.10, "", "share of operators in float64"),
    "R51.rows": Limit(0.10, "", "share of an embedding's rows that a step looks up, at most"),
    "R51.share": Limit(0.02, "", "share of the gradient's other rows, and of the optimizer for them"),
    "R52.share": Limit(0.03, "", "share of computations forward that no backward follows"),
    "R53.share": Limit(0.03, "", "share of what is computed again"),
    "R56.turns": Limit(16, "turns", "of a Python loop in a step, at least"),
    "R56.share": Limit(0.05, "", "share that a Python loop's turns beyond one cost"),
    "R55.bytes": Limit(100_000, "bytes per step", "that stay in use, at least: 10 GB in 100,000 steps"),
    "R55.steps": Limit(8, "steps", "in a row, at least: the first half is compared with the end"),
    "R54.share": Limit(0.05, "", "share of operators that copy tensors"),
}


def limit(name: str) -> float:
    """Return a threshold by its name."""
    return LIMITS[name].value

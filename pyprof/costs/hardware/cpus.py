# SPDX-License-Identifier: Apache-2.0
"""Peaks of a processor, derived from the facts of a recording: operations per second, bytes per second.

    peak = cores · clock · operations per clock and core (cpu_table.py)

The cores are those that can work on one operator: torch's intra-op threads, at most the physical cores that the
process may use. The clock is the maximum if the system reports it, otherwise the nominal one, which turbo exceeds.
Bandwidth is the sockets' with every channel in use; a few cores cannot draw all of it, so that it has a range: from
the share of the cores to the whole. Unknown is None.

>>> facts = {"cpu.id": "AuthenticAMD 25 1 1", "cpu.isa": "avx2,fma", "cpu.mhz": "3500", "cpu.mhz.is": "maximum",
...          "cpu.cores": "64", "cpu.sockets": "1", "threads.intraop": "32"}
>>> cpu = of(facts)  # 32 cores · 3.5e9 · 32; 8 channels · 3200e6 · 8 B, and half of it for half of the cores
>>> cpu.peak("float32", True), cpu.bandwidth, cpu.least_bandwidth
(3584000000000.0, 204800000000.0, 102400000000.0)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyprof.costs.hardware.cpu_table import CORES, Core, Rates


@dataclass(frozen=True)
class Cpu:
    """Peaks in operations per second by type, bandwidth in bytes per second, and their derivation."""

    name: str
    vector: dict[str, float] = field(default_factory=dict)
    matrix: dict[str, float] = field(default_factory=dict)
    bandwidth: float | None = None
    least_bandwidth: float | None = None
    source: str = ""

    def peak(self, math: str, product: bool) -> float | None:
        """Return operations per second in a type. 16 bit types without instructions of their own are multiplied as
        float32.

        >>> cpu = Cpu("x", {"float32": 2.0, "float64": 1.0}, {"bfloat16": 4.0})
        >>> cpu.peak("bfloat16", True), cpu.peak("float16", True), cpu.peak("float64", False), cpu.peak("int8", True)
        (4.0, 2.0, 1.0, None)
        """
        if product and math in self.matrix:
            return self.matrix[math]
        return self.vector.get("float32" if math in ("float16", "bfloat16") else math)


def of(facts: Mapping[str, str]) -> Cpu | str:
    """Return the processor of a recording, or the reason why its peaks are unknown."""
    if not facts.get("cpu.id"):
        return "the input does not say which processor ran"
    missing = [name for name in ("cpu.isa", "cpu.mhz", "cpu.cores", "threads.intraop") if not facts.get(name)]
    if missing:
        return f"the recording lacks {', '.join(missing)}"
    core = next((core for core in CORES if re.match(core.id, facts["cpu.id"])), None)
    if core is None:
        return f"processor {facts['cpu.id']} is not in the table of processors"
    instructions = facts["cpu.isa"].split(",")
    float32 = _rate(core.float32, instructions)
    numbers = [_number(facts, name) for name in ("cpu.cores", "threads.intraop", "cpu.mhz")]
    if float32 is None or 0 in numbers:
        return f"processor {core.name} without the instructions, cores or clock that its peak follows from"
    if core.half and float32 == core.float32.get("avx512f") and re.search(core.half, facts.get("cpu.name", "")):
        float32 //= 2
    cores = min(numbers[:2])
    rate = cores * numbers[2] * 1e6
    matrix = {
        math: operations
        for math, rates in core.matrix.items()
        if (operations := _rate(rates, instructions)) is not None
    }
    most, least = _bandwidth(core, cores, _number(facts, "cpu.sockets") or 1)
    kind = facts.get("cpu.mhz.is", "nominal")
    return Cpu(
        core.name,
        {"float32": rate * float32, "float64": rate * float32 / 2},
        {math: rate * operations for math, operations in matrix.items()},
        most,
        least,
        f"derived: {core.name}, {cores} core{'s' if cores > 1 else ''} at {numbers[2]} MHz ({kind} clock)"
        + (", of a virtual machine" if facts.get("cpu.virtual") == "yes" else ""),
    )


def _rate(rates: Rates, instructions: list[str]) -> int | None:
    """Return the operations per clock with the first instructions that the processor has."""
    return next((rate for name, rate in rates.items() if name in instructions), None)


def _bandwidth(core: Core, cores: int, sockets: int) -> tuple[float | None, float | None]:
    """Return the bandwidth of all channels, and the part that as many cores of a full socket would get."""
    if core.channels is None or core.mts is None or core.most_cores is None:
        return None, None
    peak = sockets * core.channels * core.mts * 8e6
    return peak, peak * min(1.0, cores / (sockets * core.most_cores))


def _number(facts: Mapping[str, str], name: str) -> int:
    text = facts.get(name, "")
    return int(text) if text.isdigit() else 0

# SPDX-License-Identifier: Apache-2.0
"""The GPUs and the processor on which the rows ran, and other facts of the recording that limit their speed.

A net.dict names no GPU: `--gpu` does. A recording read directly names its own, and its processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyprof.core.errors import UsageError
from pyprof.core.model import Device
from pyprof.costs.hardware import cpus, gpus
from pyprof.costs.hardware.cpus import Cpu
from pyprof.costs.hardware.gpu_table import PRODUCTS
from pyprof.costs.hardware.gpus import Gpu


@dataclass(frozen=True)
class Hardware:
    """The GPU behind each device number, the processor, and facts of the run (`matmul.tf32`, `cudnn`, ...)."""

    devices: Mapping[int, Gpu] = field(default_factory=dict)
    every: Gpu | None = None  # named by the user: it stands for all devices
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ("the input does not say which GPU ran; name it with --gpu, as in --gpu 'H100 SXM'",)

    @cached_property
    def cpu(self) -> Cpu | None:
        """Return the processor that the facts describe; None if its peaks are unknown."""
        cpu = cpus.of(self.facts)
        return cpu if isinstance(cpu, Cpu) else None

    @property
    def cpu_notes(self) -> tuple[str, ...]:
        """Return the derivation of the processor's peaks, or the reason why they are unknown."""
        cpu = cpus.of(self.facts)
        return (cpu.source if isinstance(cpu, Cpu) else cpu,)

    def gpu(self, number: int | None) -> Gpu | None:
        """Return the GPU of a row; None if it is unknown, or not a GPU."""
        if number is None:
            return None
        return self.every or self.devices.get(number)


NOTHING = Hardware()
_NOT_IN_TABLE = "device {0.number}, {0.name}, is not in the table of GPUs"


def named(name: str, facts: Mapping[str, str] | None = None) -> Hardware:
    """Return hardware named by the user. Raises UsageError for a GPU that is not in the table."""
    gpu = gpus.find(name)
    if gpu is None:
        names = ", ".join(product.name for product in PRODUCTS)
        raise UsageError(f"--gpu {name!r} is not in the table of GPUs; choose one of: {names}.")
    return Hardware(every=gpu, facts=facts or {}, notes=())


def recorded(devices: Sequence[Device], facts: Mapping[str, str]) -> Hardware:
    """Return hardware from a recording's table of devices or from its facts."""
    gpus_by_number, notes = {}, []
    for device in devices or _devices_in_facts(facts):
        gpu = gpus.of(device)
        if gpu is None:
            notes.append(f"{_NOT_IN_TABLE.format(device)}: the recording lacks its clock; name one with --gpu")
            continue
        gpus_by_number[device.number] = gpu
        if gpu.derived:
            bandwidth = "" if gpu.bandwidth else "; its bandwidth is unknown"
            notes.append(f"{_NOT_IN_TABLE.format(device)}; {gpu.source}{bandwidth}")
    return Hardware(gpus_by_number, None, facts, tuple(notes) if gpus_by_number or notes else NOTHING.notes)


def _devices_in_facts(facts: Mapping[str, str]) -> list[Device]:
    out = []
    for key, name in facts.items():
        parts = key.split(".")
        if len(parts) == 3 and parts[0] == "gpu" and parts[1].isdigit() and parts[2] == "name":
            number, units = int(parts[1]), facts.get(f"gpu.{parts[1]}.sm_count", "")
            capability = facts.get(f"gpu.{parts[1]}.compute_capability")
            out.append(Device(number, name, int(units) if units.isdigit() else None, capability))
    return out

# SPDX-License-Identifier: Apache-2.0
"""Peaks of a GPU: operations per second by type, bytes per second.

The figures come from gpu_table.py. A GPU that is not in the table is derived from its properties in the recording
(multiprocessors, clock, compute capability, bandwidth) and marked as derived. Unknown is None.

>>> gpu = find("NVIDIA H100 80GB HBM3")
>>> gpu.name, gpu.matrix["bfloat16"], gpu.bandwidth
('H100 SXM', 989500000000000.0, 3350000000000.0)
>>> find("Tesla V100-SXM2-16GB").matrix, find("NVIDIA Unheard-of 9000")
({'float16': 125000000000000.0}, None)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from pyprof.core.model import Device
from pyprof.costs.hardware.gpu_table import HALF_ON_GEFORCE, PER_CLOCK, PRODUCTS, Product


@dataclass(frozen=True)
class Gpu:
    """Peaks in operations per second (dense, a fused multiply-add is 2), bandwidth in bytes per second."""

    name: str
    architecture: str | None  # CUDA compute capability "9.0", or LLVM's name of an AMD processor "gfx942"
    vector: dict[str, float] = field(default_factory=dict)  # by type, on plain lanes
    matrix: dict[str, float] = field(default_factory=dict)  # by type, on tensor or matrix cores
    bandwidth: float | None = None
    source: str = ""
    derived: bool = False
    l2: int | None = None  # bytes

    @property
    def capability(self) -> float | None:
        """Return the compute capability; None for GPUs without one.

        >>> find("A100").capability, find("AMD Instinct MI300X").capability
        (8.0, None)
        """
        text = self.architecture or ""
        return float(text) if re.fullmatch(r"\d+\.\d+", text) else None

    def peak(self, math: str, product: bool) -> float | None:
        """Return operations per second in a type. Types without matrix units run on plain lanes, 16 bit ones as fp32.

        >>> a100, v100 = find("A100"), find("V100 SXM2")
        >>> a100.peak("tf32", True), a100.peak("float32", True), a100.peak("float64", True), a100.peak("float64", False)
        (156000000000000.0, 19500000000000.0, 19500000000000.0, 9700000000000.0)
        >>> v100.peak("bfloat16", True), v100.peak("int8", True)
        (15700000000000.0, None)
        """
        if product and math in self.matrix:
            return self.matrix[math]
        if math in ("float16", "bfloat16") and not (product and self.supports(math)):
            return self.vector.get("float32")
        return self.vector.get(math)

    def supports(self, math: str) -> bool | None:
        """Return whether it has matrix units for a type; None if that is unknown."""
        if math in self.matrix:
            return True
        since = SINCE.get(math)
        if since is None:
            return False
        if self.capability is None:
            return False if self.matrix and self.architecture else None
        return self.capability >= since and bool(self.matrix or self.capability not in _MAYBE_WITHOUT)


# First compute capability with tensor cores for a type. Source: CUDA C++ Programming Guide, PTX ISA (mma).
SINCE = {
    "float16": 7.0, "int8": 7.2, "bfloat16": 8.0, "tf32": 8.0, "float64": 8.0, "float8": 8.9, "float4": 10.0,
}  # fmt: skip
_MAYBE_WITHOUT = {7.5}  # GeForce GTX 16 is Turing without tensor cores


def normal(name: str) -> str:
    """Normalize a GPU's name.

    >>> normal("NVIDIA A100-SXM4-40GB"), normal("Tesla_V100")
    ('nvidia a100 sxm4 40gb', 'tesla v100')
    """
    return " ".join(name.lower().replace("-", " ").replace("_", " ").split())


# Slices (MIG, vGPU: "A100-10C", "GRID T4-16Q") and laptops' GPUs contain the names of full GPUs.
_VARIANTS = re.compile(r"\bmig\b|\bgrid\b|\b\d+[abcq]$|laptop|mobile|with max q")
_TOLERANCE = 0.12  # of the memory: a part is reserved


@cache
def find(name: str, units: int | None = None, memory: int | None = None) -> Gpu | None:
    """Return the GPU with this name, as the driver, a person or a data sheet writes it; None if it is not in the table.

    Multiprocessors (compute units) and bytes of memory, if known, must be the product's. A slice of a GPU (MIG) is not
    that GPU.

    >>> find("NVIDIA GeForce RTX 3080", 70, 12 << 30), find("NVIDIA GeForce RTX 3080", 68, 10 << 30).name
    (None, 'GeForce RTX 3080')
    """
    text = normal(name)
    if _VARIANTS.search(text):
        return None
    matches = (product for product in PRODUCTS if _is(product, text, units, memory))
    return next(map(_gpu, matches), None)


def _is(product: Product, text: str, units: int | None, memory: int | None) -> bool:
    if text == normal(product.name):
        return units in (None, product.units)
    if product.units is not None and units not in ((product.units,) if product.by_units else (None, product.units)):
        return False
    if memory is not None and product.gib and abs(memory / (product.gib << 30) - 1) > _TOLERANCE:
        return False
    return re.search(product.pattern, text) is not None


def _gpu(product: Product) -> Gpu:
    return Gpu(
        product.name,
        product.architecture,
        {math: tflops * 1e12 for math, tflops in product.vector.items()},
        {math: tflops * 1e12 for math, tflops in product.matrix.items()},
        product.gbs * 1e9,
        product.source,
        l2=None if product.l2 is None else round(product.l2 * (1 << 20)),
    )


def derive(device: Device) -> Gpu | None:
    """Derive a GPU that is not in the table from its properties in the recording; None if they are not enough.

    >>> other = Device(0, "NVIDIA GeForce RTX 2070 SUPER", 40, "7.5", clock_hz=1785000000, bandwidth=448064000000)
    >>> gpu = derive(other)  # 40 · 128 · 1.785e9; on GeForce half of 40 · 1024 · 1.785e9
    >>> gpu.vector["float32"], gpu.matrix["float16"], gpu.bandwidth
    (9139200000000.0, 36556800000000.0, 448064000000.0)
    """
    if "amd" in normal(device.name).split():  # ROCm uses the same field for its architectures
        return None
    capability = {"10.1": "10.0", "12.1": "12.0"}.get(device.compute_capability or "", device.compute_capability)
    if capability not in PER_CLOCK or not device.sm_count or not device.clock_hz:
        return None
    vector, matrix = PER_CLOCK[capability]
    text = normal(device.name)
    if "gtx" in text:  # GeForce GTX 16: Turing without tensor cores
        matrix = {}
    rate = float(device.sm_count * device.clock_hz)
    geforce = "geforce" in text
    return Gpu(
        device.name,
        capability,
        {math: rate * per_clock for math, per_clock in vector.items()},
        {
            math: rate * per_clock / (2 if geforce and math in HALF_ON_GEFORCE else 1)
            for math, per_clock in matrix.items()
        },
        float(device.bandwidth) if device.bandwidth else None,
        f"derived: {device.sm_count} multiprocessors at {device.clock_hz / 1e6:.0f} MHz, "
        f"compute capability {capability}",
        derived=True,
    )


def of(device: Device) -> Gpu | None:
    """Return the GPU of a recording: from the table, otherwise derived."""
    return find(device.name, device.sm_count, device.memory_bytes) or derive(device)

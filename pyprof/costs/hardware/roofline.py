# SPDX-License-Identifier: Apache-2.0
"""The roofline of every row: the minimum time of its work on its GPU, and the limiting resource.

    compute time = FLOPs / peak of the type of its arithmetic        roofline time = the longer of the two
    memory time  = bytes / bandwidth                                 efficiency    = roofline time / time on the device

Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52 (2009). Peaks are dense ones of data sheets.

The type of the arithmetic. A product (GEMM, convolution, attention): the type in the kernel's name (autocast changes
the operands after the call was recorded), otherwise the operands' type. fp32 operands on tensor cores are TF32, on
plain lanes fp32: TF32 is another result, not a faster way to the same. 16 bit products are measured against tensor
cores even if the kernel used none. Everything else computes in fp32 for types up to 32 bits (ATen/OpMathType.h) and
in fp64 above. Integer arithmetic has no peak in data sheets: unknown.

Operator events on the CPU have a bound if it is certain, and no roofline time: the clock at which they ran, the
number of working threads and the bandwidth that these can draw are known only within a factor.

>>> import numpy as np
>>> times(np.array([312e9, 1e6]), np.array([1e6, 2039e6]), np.array([312e12, 19.5e12]), np.array([2039e9, 2039e9]))[2]
array([1000000., 1000000.])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyprof.core.model import KERNEL, OPERATOR, Call, Ints, Rows, Tensor
from pyprof.costs import kernels
from pyprof.costs.alignment import records_strides
from pyprof.costs.attribution.attribute import NOT_APPLICABLE, NOT_USED, USED, Costs, family
from pyprof.costs.eligible import normal
from pyprof.costs.hardware.cpus import Cpu
from pyprof.costs.hardware.gpus import Gpu
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.params import dtype

Floats = npt.NDArray[np.float64]
_NS = 1e9
_OPMATH = {
    "float16": "float32", "bfloat16": "float32", "float8": "float32", "float32": "float32", "float64": "float64",
    "complex32": "float32", "complex64": "float32", "complex128": "float64",
}  # fmt: skip


BOUNDS: list[str | None] = ["compute", "memory", "-", None]
_COMPUTE, _MEMORY, _IDLE, _UNCERTAIN = range(4)
_MARGIN = 2.0  # uncertainty of a processor's clock and of the bandwidth it reaches
_PRODUCTS = frozenset({"gemm", "conv", "attention", "rnn", "fusedlinear", "grouped", "contraction"})


class Case(NamedTuple):
    """The common properties of rows: kernel, call, tensor cores, GPU. Every verdict on them depends only on these."""

    name: str
    call: Call | None
    tensor_cores: int
    gpu: Gpu | None
    on_cpu: bool = False
    strides: bool = False  # the recording has strides: tensors without are contiguous


class Cases(NamedTuple):
    """The case number of each row; -1 for a row that is neither kernel nor operator event."""

    codes: Ints
    cases: list[Case]


class Roofline(NamedTuple):
    """Values per row; nan and None are unknown. Times in ns."""

    compute: Floats
    memory: Floats
    time: Floats
    maths: list[str | None]  # by case: the type whose peak applies
    peak: Floats  # FLOP/s of that type
    bound: Ints  # index in BOUNDS


def cases(rows: Rows, costs: Costs, hardware: Hardware) -> Cases:
    """Return the distinct cases; 10 million rows have a few hundred."""
    codes = np.full(len(rows), -1, np.int64)
    index = np.flatnonzero((rows.kind == KERNEL) | (rows.kind == OPERATOR))
    if not len(index):
        return Cases(codes, [])
    numbers = np.where(rows.device.mask(), rows.device.values, -1)[index]
    device, devices = pd.factorize(numbers)
    key = ((costs.call[index].astype(np.int64) + 1) * len(rows.names) + rows.name[index]) * 4
    key = ((key + costs.tensor_cores[index]) * len(devices) + device) * 2 + (rows.kind[index] == OPERATOR)
    codes[index], keys = pd.factorize(key)
    gpus = [hardware.gpu(None if number < 0 else int(number)) for number in devices.tolist()]
    strides = records_strides(call for site in rows.sites for call in site.calls)
    out = []
    for value in keys.tolist():
        remaining, on_cpu = divmod(value, 2)
        remaining, device_code = divmod(remaining, len(devices))
        remaining, tensor_cores = divmod(remaining, 4)
        call, name = divmod(remaining, len(rows.names))
        owner = costs.calls[call - 1] if call else None
        out.append(
            Case(
                rows.names[name],
                owner,
                tensor_cores,
                None if on_cpu else gpus[device_code],
                bool(on_cpu),
                strides,
            )
        )
    return Cases(codes, out)


def roofline(rows: Rows, costs: Costs, distinct: Cases, hardware: Hardware) -> Roofline:
    """Return the roofline of every row. Rows on the CPU, copies and rows with unknown FLOPs, bytes or GPU have no
    times."""
    maths = [math(case, hardware) for case in distinct.cases]
    peak, bandwidth = limits(distinct, maths)
    flops = np.where(costs.flops.mask(), costs.flops.values, np.nan)
    size = np.where(costs.bytes.mask(), costs.bytes.values, np.nan)
    peaks = peak[distinct.codes]
    compute, memory, time = times(flops, size, peaks, bandwidth[distinct.codes])
    bound = bounds(compute, memory, time)
    cpu = rows.kind == OPERATOR
    if cpu.any() and hardware.cpu is not None:
        rates = cpu_peaks(distinct, maths, hardware.cpu)[distinct.codes]
        bound[cpu] = cpu_bounds(flops, size, rates, hardware.cpu)[cpu]
    return Roofline(compute, memory, time, maths, peaks, bound)


def limits(distinct: Cases, maths: list[str | None]) -> tuple[Floats, Floats]:
    """Return the peak FLOP/s and bytes/s of each case's GPU; the last entry is that of a row without a case."""
    peak, bandwidth = [], []
    for case, name in zip(distinct.cases, maths):
        product = case.tensor_cores != NOT_APPLICABLE
        rate = case.gpu.peak(name, product) if case.gpu is not None and name is not None else None
        peak.append(rate or np.nan)
        bandwidth.append((case.gpu.bandwidth if case.gpu is not None else None) or np.nan)
    return np.array([*peak, np.nan]), np.array([*bandwidth, np.nan])


def bounds(compute: Floats, memory: Floats, time: Floats) -> Ints:
    """Return the limit of rows on a GPU, as an index in BOUNDS."""
    bound = np.where(compute > memory, _COMPUTE, _MEMORY)
    return np.where(time == 0, _IDLE, np.where(np.isnan(time), _UNCERTAIN, bound))


def cpu_peaks(distinct: Cases, maths: list[str | None], cpu: Cpu) -> Floats:
    """Return the processor's peak FLOP/s for each case; the last entry is that of a row without a case."""
    peak = [
        np.nan if name is None else cpu.peak(name, _multiplies(case)) or np.nan
        for case, name in zip(distinct.cases, maths)
    ]
    return np.array([*peak, np.nan])


def cpu_bounds(flops: Floats, size: Floats, peaks: Floats, cpu: Cpu) -> Ints:
    """Return the limit of operator events where it is certain, as an index in BOUNDS: the two times differ by more
    than a factor of two at any bandwidth that the cores may reach."""
    bandwidth, least_bandwidth = cpu.bandwidth or np.nan, cpu.least_bandwidth or np.nan
    compute, shortest, _ = times(flops, size, peaks, np.full(len(flops), bandwidth))
    longest = size / least_bandwidth * _NS
    bound = np.full(len(flops), _UNCERTAIN)
    bound[shortest > _MARGIN * compute] = _MEMORY
    bound[compute > _MARGIN * longest] = _COMPUTE
    bound[(flops == 0) & (size > 0)] = _MEMORY
    bound[(flops == 0) & (size == 0)] = _IDLE
    return bound


def times(flops: Floats, size: Floats, peak: Floats, bandwidth: Floats) -> tuple[Floats, Floats, Floats]:
    """Return compute time, memory time and the longer of them, ns. Without FLOPs the peak does not matter.

    >>> [float(t[0]) for t in times(*(np.array([x]) for x in (0.0, 900.0, np.nan, 900e9)))]
    [0.0, 1.0, 1.0]
    """
    memory = size / bandwidth * _NS
    compute = np.where((flops == 0) & ~np.isnan(bandwidth), 0.0, flops / peak * _NS)
    return compute, memory, np.maximum(compute, memory)


def math(case: Case, hardware: Hardware) -> str | None:
    """Return the type of a row's arithmetic; None if that is unknown."""
    if case.on_cpu:
        return normal(dtype(case.call)) if _multiplies(case) and case.call is not None else _widest(case.call)
    if case.tensor_cores == NOT_APPLICABLE:
        return _widest(case.call)
    operands = operands_of(case)
    if operands is not None and operands.startswith("complex"):
        return _OPMATH.get(operands)
    if operands != "float32" or case.tensor_cores == NOT_USED:
        return operands
    if case.tensor_cores == USED:
        has_own = case.gpu is not None and "float32" in case.gpu.matrix  # AMD's matrix cores multiply fp32 natively
        return "float32" if has_own else "tf32"
    return None if tf32(case, hardware) is not False else "float32"


def _multiplies(case: Case) -> bool:
    """Return whether an operator event is a product, by its own name; its call may hold other events."""
    return family(Call("aten", case.name)) in _PRODUCTS


def operands_of(case: Case) -> str | None:
    """Return the type of a product's operands: from the kernel's name, otherwise from the call. FFTs multiply complex
    numbers."""
    name_type = kernels.describe(case.name).math
    call_type = normal(dtype(case.call)) if case.call is not None else None
    return call_type if name_type is None or (name_type == "complex64" and call_type is not None) else name_type


def tf32(case: Case, hardware: Hardware) -> bool | None:
    """Return whether TF32 is allowed for a product of fp32 and the GPU has it; None if that is unknown."""
    if case.gpu is not None and case.gpu.supports("tf32") is False:
        return False
    kind = family(case.call) or kernels.kind(case.name)
    fact = hardware.facts.get("cudnn.tf32" if kind in ("conv", "rnn") else "matmul.tf32")
    return {"yes": True, "no": False}.get(fact or "")


def _widest(call: Call | None) -> str | None:
    """Return the type in which elementwise arithmetic of a call is done: that of its widest floating operand."""
    types = set()
    for arg in call.args if call is not None else ():
        values = arg.value if isinstance(arg.value, tuple) and not isinstance(arg.value, Tensor) else (arg.value,)
        types |= {_OPMATH.get(normal(v.dtype) or "") for v in values if isinstance(v, Tensor)}
    return "float64" if "float64" in types else "float32" if "float32" in types else None

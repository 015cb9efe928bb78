# SPDX-License-Identifier: Apache-2.0
"""Peaks of the GPU: roofline times of sums of kernels, and of the same work in another type.

Definitions are those of `costs/hardware/roofline.py`. The estimate for another type keeps the efficiency: time · new
roofline / present roofline, but not above what good kernels reach: Winograd in float32 is beyond its roofline, and
tensor cores do not run it.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd

from pyprof.core.model import KERNEL, Arg, Call, Tensor
from pyprof.costs import alignment
from pyprof.costs import kernels as names
from pyprof.costs.attribution.attribute import NOT_APPLICABLE
from pyprof.costs.cost import find as find_cost
from pyprof.costs.hardware import roofline
from pyprof.costs.hardware.gpus import Gpu
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which

HALF = frozenset({"float16", "bfloat16"})
NARROW = HALF | {"int8", "float8", "float4"}
_VECTOR = re.compile("gemv|dot_kernel")
PRODUCTS = sorted(names.PRODUCTS)


def only_gpu(run: Run) -> Gpu | None:
    """Return the GPU, if all that were used are of one known kind: sums do not say on which device they ran."""
    known = list(run.gpus.values())
    if len(known) < len(run.devices) or len({gpu.name for gpu in known}) != 1:
        return None
    return known[0]


def cases(kernels: pd.DataFrame, gpu: Gpu | None) -> list[roofline.Case]:
    """Return rows of `run.kernels` as cases of the roofline; of the call, only name and type matter."""
    out = []
    for kernel, type_, mod, op, tc in kernels[["kernel", "dtype", "mod", "type", "tc"]].itertuples(index=False):
        known = isinstance(type_, str)
        call = Call(mod or "", op, (Arg("", Tensor((1,), type_)),)) if known else None
        out.append(roofline.Case(kernel, call, int(tc), gpu))
    return out


@cache
def _may_be_product(mod: str, name: str) -> bool:
    """Return whether an operator may be a product: it is one, or nothing is known about it.

    >>> _may_be_product("aten", "cudnn_convolution"), _may_be_product("aten", "compiledfunction")
    (True, True)
    >>> _may_be_product("torch.linalg", "inv")
    False
    """
    match = find_cost(mod, f"aten::{name}" if mod == "aten" else name)
    kinds = names.FITS.get(match[0].family, frozenset()) if match else names.PRODUCTS
    return bool(kinds) and kinds <= names.PRODUCTS


def products(run: Run) -> pd.DataFrame:
    """Return kernels of products of operators that tensor cores support, or about which nothing is known (backward
    functions, code that torch.compile generated).

    `math`: the type of the operands by the kernel's name, else by the call; None if neither gives it. `named`: the
    name gives it.
    """
    kernels = run.kernels
    may_be = [
        not outside and _may_be_product(mod or "", name)
        for outside, mod, name in zip(kernels["unassociated"], kernels["mod"], kernels["type"])
    ]
    kernels = kernels[kernels["what"].isin(PRODUCTS) & ((kernels["eligible"] == 1) | np.array(may_be, bool))].copy()
    kernels["named"] = which(kernels["kernel"], lambda name: names.describe(name).math is not None)
    maths = [roofline.operands_of(case) for case in cases(kernels, None)]
    kernels["math"] = pd.Series(maths, index=kernels.index, dtype=object)
    return kernels


def roof(run: Run, kernels: pd.DataFrame) -> pd.Series[float]:
    """Return the roofline time of each row of `run.kernels` in ns; nan if FLOPs, bytes or the peak are unknown."""
    gpu = only_gpu(run)
    if gpu is None or not len(kernels):
        return pd.Series(np.full(len(kernels), np.nan), index=kernels.index)
    peaks = []
    for case in cases(kernels, gpu):
        math = roofline.math(case, run.hardware)
        peaks.append((gpu.peak(math, case.tensor_cores != NOT_APPLICABLE) if math else None) or np.nan)
    return pd.Series(_roofline_times(kernels, np.array(peaks, float), gpu, 1.0), index=kernels.index)


def _roofline_times(kernels: pd.DataFrame, peak: roofline.Floats, gpu: Gpu, part: float) -> roofline.Floats:
    known = (kernels["flops_unknown_ns"] == 0) & (kernels["bytes_unknown_ns"] == 0) & (kernels["kind"] == KERNEL)
    flops = np.where(known, kernels["flops"].to_numpy(float), np.nan)
    moved = np.where(known, kernels["bytes"].to_numpy(float) * part, np.nan)
    bandwidth = np.full(len(kernels), gpu.bandwidth or np.nan)
    return roofline.times(flops, moved, peak, bandwidth)[2]


def faster(run: Run, kernels: pd.DataFrame, new: str, part: float) -> int | None:
    """Return what rows of fp32 on plain lanes would save in the type `new`, which moves `part` of the bytes.

    None if that is known of less than half of their time.
    """
    gpu = only_gpu(run)
    if gpu is None or not len(kernels) or not gpu.supports(new):
        return None
    before = _roofline_times(kernels, np.full(len(kernels), gpu.peak("float32", False) or np.nan), gpu, 1.0)
    after = _roofline_times(kernels, np.full(len(kernels), gpu.peak(new, True) or np.nan), gpu, part)
    with np.errstate(invalid="ignore", divide="ignore"):
        time = kernels["gpu_ns"].to_numpy(float)
        saved = np.clip(time - np.maximum(time * after / before, after / limit("R36.reachable")), 0, None)
    known = ~np.isnan(saved)
    if 2 * kernels["gpu_ns"].to_numpy(float)[known].sum() < kernels["gpu_ns"].sum():
        return None  # what is known of a small part says nothing of the rest
    return run.per_device(float(saved[known].sum()))


@cache
def sizes(params: object) -> dict[str, int]:
    """Return the sizes of a product by their letters, of a convolution per group.

    Anything but a text has none: in a joined table nan stands for None.

    >>> sizes("M=64,N=10,K=1024,float16"), sizes(float("nan"))
    ({'M': 64, 'N': 10, 'K': 1024}, {})
    """
    return alignment.sizes(params) if isinstance(params, str) else {}


def with_vector(kernel: str, params: object) -> bool:
    """Return whether it is a product with a vector, or of one channel: tensor cores do not help."""
    letters = sizes(params)
    return bool(_VECTOR.search(kernel)) or 1 in (letters.get("M"), letters.get("N"), letters.get("C/g"))

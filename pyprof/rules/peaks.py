# SPDX-License-Identifier: Apache-2.0
"""What the GPU could do: roofline times of sums of kernels, and of the same work in another type.

Definitions are those of `prof/hardware/roofline.py`. A saving by another type keeps the efficiency:
time · (1 − new roofline / present roofline).
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd

from pyprof.model import Arg, Call, Tensor
from pyprof.prof import alignment
from pyprof.prof import kernels as names
from pyprof.prof.attribution.attribute import NOT_APPLICABLE
from pyprof.prof.cost import find as find_cost
from pyprof.prof.hardware import roofline
from pyprof.prof.hardware.gpus import Gpu
from pyprof.rules.context import Run
from pyprof.rules.wording import which

HALF = frozenset({"float16", "bfloat16"})
NARROW = HALF | {"int8", "float8", "float4"}
_VECTOR = re.compile("gemv|dot_kernel")
PRODUCTS = sorted(names.PRODUCTS)


def only_gpu(run: Run) -> Gpu | None:
    """The GPU, if all that were used are of one known kind: sums do not say on which device they ran."""
    known = list(run.gpus.values())
    if len(known) < len(run.devices) or len({gpu.name for gpu in known}) != 1:
        return None
    return known[0]


def cases(found: pd.DataFrame, gpu: Gpu | None) -> list[roofline.Case]:
    """Rows of `run.kernels` as the roofline takes them; of the call only name and type matter."""
    out = []
    for kernel, type_, mod, op, tc in found[["kernel", "dtype", "mod", "type", "tc"]].itertuples(index=False):
        known = isinstance(type_, str)
        call = Call(mod or "", op, (Arg("", Tensor((1,), type_)),)) if known else None
        out.append(roofline.Case(kernel, call, int(tc), gpu))
    return out


@cache
def _could(mod: str, name: str) -> bool:
    """Whether an operator may be a product: it is one, or nothing is known of it.

    >>> _could("aten", "cudnn_convolution"), _could("aten", "compiledfunction"), _could("torch.linalg", "inv")
    (True, True, False)
    """
    found = find_cost(mod, f"aten::{name}" if mod == "aten" else name)
    kinds = names.FITS.get(found[0].family, frozenset()) if found else names.PRODUCTS
    return bool(kinds) and kinds <= names.PRODUCTS


def products(run: Run) -> pd.DataFrame:
    """Kernels of products of operators that tensor cores could do, or of which nothing is known (backward functions,
    what torch.compile made), with `math`: the type of the operands by the kernel's name, else by the call; None if
    neither tells. `named`: the name tells it."""
    found = run.kernels
    could = [
        not outside and _could(mod or "", name)
        for outside, mod, name in zip(found["unassociated"], found["mod"], found["type"])
    ]
    found = found[found["what"].isin(PRODUCTS) & ((found["eligible"] == 1) | np.array(could, bool))].copy()
    found["named"] = which(found["kernel"], lambda name: names.describe(name).math is not None)
    maths = [roofline.operands_of(one) for one in cases(found, None)]
    found["math"] = pd.Series(maths, index=found.index, dtype=object)
    return found


def roof(run: Run, found: pd.DataFrame) -> pd.Series[float]:
    """Roofline time of each row of `run.kernels`, ns; nan if FLOPs, bytes or the peak are unknown."""
    gpu = only_gpu(run)
    if gpu is None or not len(found):
        return pd.Series(np.full(len(found), np.nan), index=found.index)
    peaks = []
    for one in cases(found, gpu):
        math = roofline.math(one, run.hardware)
        peaks.append((gpu.peak(math, one.tensor_cores != NOT_APPLICABLE) if math else None) or np.nan)
    return pd.Series(_longer(found, np.array(peaks, float), gpu, 1.0), index=found.index)


def _longer(found: pd.DataFrame, peak: roofline.Floats, gpu: Gpu, part: float) -> roofline.Floats:
    known = (found["flops_unknown"] == 0) & (found["bytes_unknown"] == 0) & (found["kind"] == 0)
    flops = np.where(known, found["flops"].to_numpy(float), np.nan)
    moved = np.where(known, found["bytes"].to_numpy(float) * part, np.nan)
    bandwidth = np.full(len(found), gpu.bandwidth or np.nan)
    return roofline.times(flops, moved, peak, bandwidth)[2]


def faster(run: Run, found: pd.DataFrame, new: str, part: float) -> int | None:
    """What rows of fp32 on plain lanes would save in the type `new`, which moves `part` of the bytes; None if that is
    known of less than half of their time."""
    gpu = only_gpu(run)
    if gpu is None or not len(found) or not gpu.supports(new):
        return None
    before = _longer(found, np.full(len(found), gpu.peak("float32", False) or np.nan), gpu, 1.0)
    after = _longer(found, np.full(len(found), gpu.peak(new, True) or np.nan), gpu, part)
    with np.errstate(invalid="ignore", divide="ignore"):
        saved = found["gpu"].to_numpy(float) * np.clip(1 - after / before, 0, 1)
    known = ~np.isnan(saved)
    if 2 * found["gpu"].to_numpy(float)[known].sum() < found["gpu"].sum():
        return None  # what is known of a small part says nothing of the rest
    return run.per_device(float(saved[known].sum()))


@cache
def sizes(params: object) -> dict[str, int]:
    """The sizes of a product by their letters, of a convolution per group; none of anything but a text: in a table that
    was joined nan stands for None.

    >>> sizes("M=64,N=10,K=1024,float16"), sizes(float("nan"))
    ({'M': 64, 'N': 10, 'K': 1024}, {})
    """
    return alignment.sizes(params) if isinstance(params, str) else {}


def with_vector(kernel: str, params: object) -> bool:
    """Whether it is a product with a vector, or of one channel: nothing for tensor cores."""
    found = sizes(params)
    return bool(_VECTOR.search(kernel)) or 1 in (found.get("M"), found.get("N"), found.get("C/g"))

# SPDX-License-Identifier: Apache-2.0
"""Rules about types: mixed precision, TF32, tensor cores that are unused or badly fed, conversions."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from pyprof.core.units import percent
from pyprof.costs.alignment import MULTIPLE, always_contiguous
from pyprof.costs.attribution.attribute import NOT_USED, TC_UNKNOWN, USED
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.peaks import HALF, NARROW, faster, products, roof, sizes, with_vector
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which

_CAST = re.compile(r"copy\w*.*(?:Load|Store)WithCast|(?:b?float(?:16|8)|half)\w*_copy_kernel", re.DOTALL)
_CUDNN = re.compile("conv|rnn|lstm|gru")
_CASTS = ("half", "bfloat16", "float", "double")  # methods of a tensor that only convert
_ASSUMED = " The saving assumes that they come as close to the roofline of tensor cores as to that of float32."
_MOVES = ("copy", "pointwise", "memory")


def _single(run: Run, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return products of float32 on plain lanes.

    A kernel name without a type counts only if autocast was off: the call's operands are those before autocast. If
    the call has no type, the kernel's name is enough.
    """
    off = run.facts.get("autocast.cuda.seen") == "no"
    plain = kernels["math"].isin(["float32", "complex64"]) & (kernels["named"] | off)
    typed = (kernels["dtype"] == "float32") | (kernels["named"] & kernels["dtype"].isna())
    return kernels[plain & typed & (kernels["tc"] == NOT_USED)]


@rule("R12", "no_amp", rows=Rows("categories", "Categories of work"))
def no_amp(run: Run) -> Finding | None:
    """Matrix products and convolutions compute in float32 without tensor cores: mixed precision is not used, or only
    for others. Their time is that of kernels of the kinds gemm, conv and attention, which the report categories has by
    kind, without helpers as splitting into tiles. The saving keeps each product's part of the roofline, up to what good
    kernels reach.

    Fires: 40 % of the time in linear layers of float32 on a V100 or A100, alone or beside products of 16 bits.
    Silent: the same in less than a tenth of the time; kernels that are 16 bit; tensors of unknown type; a GPU without
    tensor cores.
    """
    if run.capability < 7.0 or any(not gpu.matrix for gpu in run.gpus.values()):
        return None
    kernels = products(run)
    single = _single(run, kernels)
    time = run.per_device(single["gpu_ns"].sum())
    if run.share(time) <= limit("R12.share"):
        return None
    new = "bfloat16" if run.capability >= 8.0 else "float16"
    scaler = " and torch.amp.GradScaler for the backward pass" if new == "float16" and run.trains else ""
    seen = run.facts.get("autocast.cuda.seen")
    narrow = bool((kernels["math"].isin(list(NARROW)) | kernels["dtype"].isin(list(HALF))).any())
    how = ", beside others in 16 bits" if narrow else ", although autocast was on" if seen == "yes" else ""
    how = how or (", and mixed precision is off" if seen == "no" else "")
    mixed = f"torch.autocast('cuda', dtype=torch.{new}){scaler}"
    advice = (
        "They run outside autocast, or their operator keeps float32: the evidence has their lines. Extend "
        f"{mixed} over those that may be less exact."
        if narrow or seen == "yes"
        else f"Run the forward pass and the loss under {mixed}; weights stay float32."
    )
    saving = faster(run, single, new, 0.5)
    return run.finding(
        f"Matrix products in float32 without tensor cores take {run.cost(time)}{how}.",
        f"{advice} Check that the loss still goes down as before.{_ASSUMED if saving is not None else ''}",
        saving,
        run.of_kernels(single),
        "The report on tensor cores names these operators as using them.",
    )


@rule("R13", "no_tf32", rows=Rows("categories", "Categories of work"))
def no_tf32(run: Run) -> Finding | None:
    """Products of float32 on a GPU that has TF32, which is switched off.

    Fires: torch.backends.cuda.matmul.allow_tf32 is off and 10 % of the time are fp32 GEMMs on an A100.
    Silent: the switch is on; a V100, which has no TF32; products of float64.
    """
    if run.capability < 8.0:
        return None
    switches = {name: run.facts.get(f"{name}.tf32") for name in ("matmul", "cudnn")}
    if None in switches.values():
        raise NeedsFacts("needs the switches of TF32, which this recording lacks; record with pyprof")
    single = _single(run, products(run))
    conv = which(single["type"], lambda name: bool(_CUDNN.search(name))) | (single["what"] == "conv")
    single = single[(conv & (switches["cudnn"] == "no")) | (~conv & (switches["matmul"] == "no"))]
    time = run.per_device(single["gpu_ns"].sum())
    if run.share(time) <= limit("R13.share"):
        return None
    forced = run.facts.get("switch.NVIDIA_TF32_OVERRIDE") == "0"
    advice = []
    if switches["matmul"] == "no" and not conv.all():
        advice.append("torch.set_float32_matmul_precision('high')")
    if switches["cudnn"] == "no" and conv.any():
        advice.append("torch.backends.cudnn.allow_tf32 = True")
    if forced:
        advice.append("without NVIDIA_TF32_OVERRIDE=0 in the environment")
    saving = faster(run, single, "tf32", 1.0)
    return run.finding(
        f"Matrix products in float32 take {run.cost(time)}, and TF32 is off for them.",
        ", ".join(advice) + ". TF32 multiplies with 10 bits of mantissa instead of 23 and adds in float32: enough for "
        f"most networks, not for solvers.{_ASSUMED if saving is not None else ''}",
        saving,
        run.of_kernels(single),
        "The report on tensor cores names these operators as using them.",
    )


@rule("R14", "tc_missed", rows=Rows("categories", "Categories of work"))
def tc_missed(run: Run) -> Finding | None:
    """Products of 16 bit or narrower types that the GPU's tensor cores support, computed without them. Products with a
    vector are left out: tensor cores do not help them.

    Fires: a convolution in float16 whose kernel does not use tensor cores, 5 % of the time.
    Silent: the same with a tensor-core kernel; float32; a matrix times a vector.
    """
    capability = run.capability
    kernels = products(run)
    if not len(kernels):
        return None
    supported = [_takes(run, capability, math) for math in kernels["math"].tolist()]
    vector = [with_vector(*row) for row in zip(kernels["kernel"].tolist(), kernels["params"].tolist())]
    kernels = kernels[np.array(supported, bool) & ~np.array(vector, bool)]
    missed, unknown = kernels[kernels["tc"] == NOT_USED], kernels[kernels["tc"] == TC_UNKNOWN]
    time, dark = run.per_device(missed["gpu_ns"].sum()), run.per_device(unknown["gpu_ns"].sum())
    if run.share(time) <= limit("R14.share"):
        if run.share(time + dark) > limit("R14.share"):
            name = unknown.sort_values("gpu_ns")["short_name"].iloc[-1]
            raise NeedsFacts(
                f"needs to know whether kernels like {name!r} use tensor cores, {percent(run.share(dark))} of the time"
            )
        return None
    return run.finding(
        f"Matrix products in {', '.join(sorted(set(missed['math'])))} run without tensor cores for {run.cost(time)}.",
        "Make the innermost sizes (channels, features, head size) multiples of 8, of 16 for 8 bit types, tensors "
        "contiguous and aligned, convolutions channels_last; otherwise the library has no tensor-core kernel for "
        "these sizes.",
        _from_lanes(run, missed),
        run.of_kernels(missed),
        "The report on tensor cores names these operators as using them.",
    )


def _takes(run: Run, capability: float, math: str | None) -> bool:
    if math not in NARROW:
        return False
    since = {"float16": 7.0, "int8": 7.2, "bfloat16": 8.0, "float8": 8.9, "float4": 10.0}[math]
    return capability >= since and all(gpu.supports(math) for gpu in run.gpus.values())


def _from_lanes(run: Run, missed: pd.DataFrame) -> int | None:
    """Return the saving of the part in each type, from lanes (16 bit as fp32) to tensor cores; None if nothing is
    known."""
    parts = [faster(run, missed[missed["math"] == math], str(math), 1.0) for math in missed["math"].unique()]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


@rule("R15", "dims_not_8", rows=Rows("detail", "Operators that used tensor cores", ("using_tc:1",)))
def dims_not_8(run: Run) -> Finding | None:
    """Products on tensor cores, in 16 bit or narrower, with contiguous dimensions that are not multiples of 16 bytes,
    far from the roofline. Tensor cores work with any size, but such sizes take smaller loads. Only dimensions that are
    contiguous in any layout count: N and K of a linear layer, N of other matrix products, channels. The saving is
    counted up to the efficiency below which this rule fires.

    Fires: a vocabulary of 50257 in bfloat16 at 40 % of the roofline, 10 % of the time.
    Silent: 50304; 50257 at 70 % of the roofline; float32; an odd number of rows (batch, sequence).
    """
    _ = run.capability
    kernels = products(run)
    kernels = kernels[kernels["math"].isin(list(NARROW)) & (kernels["tc"] == USED)].copy()
    if not len(kernels):
        return None
    kernels["wrong"] = [_wrong(*row) for row in zip(kernels["math"], kernels["params"].tolist(), kernels["type"])]
    vector = [with_vector(*row) for row in zip(kernels["kernel"].tolist(), kernels["params"].tolist())]
    kernels = kernels[(kernels["wrong"] != "") & ~np.array(vector, bool)].copy()
    kernels["roof"] = roof(run, kernels)
    if run.share(run.per_device(kernels["gpu_ns"].sum())) <= limit("R15.share"):
        return None
    if kernels["roof"].isna().all():
        raise NeedsFacts("needs the peaks of the GPU, and FLOPs and bytes of these products; see docs/gpus.md")
    kernels = kernels[kernels["roof"] / kernels["gpu_ns"].clip(lower=1) < limit("R15.efficiency")]
    time = run.per_device(kernels["gpu_ns"].sum())
    if run.share(time) <= limit("R15.share"):
        return None
    kernels["lost"] = kernels["gpu_ns"] - kernels["roof"] / limit("R15.efficiency")
    kernels["efficiency"] = (kernels["roof"] / kernels["gpu_ns"]).round(3)
    return run.finding(
        f"Products on tensor cores with sizes that are not multiples of 16 bytes take {run.cost(time)}, at "
        f"{percent(kernels['roof'].sum() / kernels['gpu_ns'].sum())} of the roofline.",
        "Pad them to the next multiple (the evidence names it): vocabulary, hidden size, channels. Tensor cores are "
        "used already; padded sizes keep them better supplied.",
        run.per_device(kernels["lost"].sum()),
        run.top(kernels, "lost", "operator=path source sizes=wrong params kernel=short_name time_ns=gpu_ns efficiency"),
        "Roofline efficiency of these operators rises.",
    )


def _wrong(math: str, params: str | None, type_: str) -> str:
    """Return sizes that do not fit, each with the next that does: "N=50257 (50264)".

    Only dimensions that are contiguous in any layout count, because sums of calls have no strides: not the rows M of
    a linear layer, and of other products only N.
    """
    multiple, fixed = MULTIPLE[math], always_contiguous(type_)
    fixed_sizes = {letter: size for letter, size in sizes(params).items() if letter in fixed}
    return ", ".join(f"{k}={n} ({-(-n // multiple) * multiple})" for k, n in fixed_sizes.items() if n % multiple)


@rule("R16", "dtype_casts", GPU, rows=Rows("kernel_summary", "Kernels"))
def dtype_casts(run: Run) -> Finding | None:
    """Kernels that convert tensors from one type to another. The saving is at most their time: the recording does not
    show which conversions are unnecessary.

    Fires: 8 % of the kernels' time in conversions between float32 and bfloat16.
    Silent: 3 %; copies that change no type.
    """
    kernels = run.kernels
    if not len(kernels) or not run.kernel_time:
        return None
    by_name = which(kernels["kernel"], lambda name: bool(_CAST.search(name)))
    by_call = kernels["type"].isin(_CASTS) & kernels["what"].isin(_MOVES)
    casts = kernels[by_name | by_call]
    part = float(casts["gpu_ns"].sum()) / run.kernel_time
    if part <= limit("R16.share"):
        return None
    of = max(run.steps, 1) * run.workers
    count, every = (rows["calls"].sum() / of for rows in (casts, kernels))
    return run.finding(
        f"Conversions between data types take {percent(part)} of the kernels' time, "
        f"{run.time(run.per_device(casts['gpu_ns'].sum()))}: {count:.0f} of {every:.0f} kernels{run.per_step}.",
        "Convert once and keep the result; move the autocast boundary so that fewer tensors cross it; create tensors "
        "in the type they are used in.",
        run.per_device(casts["gpu_ns"].sum()),
        run.of_kernels(casts),
        "Fewer copy kernels in the report of kernels.",
    )

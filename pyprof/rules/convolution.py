# SPDX-License-Identifier: Apache-2.0
"""Rules about convolutions: layout, and the choice of algorithms."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.units import duration, percent
from pyprof.costs.attribution.attribute import USED
from pyprof.rules import Finding, Rows, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.peaks import HALF, products
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which

_LAYOUT = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|tensortransform|batched_transpose", re.I)
_CONV = ("conv", "cudnn_conv", "miopen_conv")
_FORMATS = "convolution.inputs."
_HELPERS = re.compile(r"offset|winogradgenerate|generatewinograd|im2col|splitk|addpadding|transform", re.I)


def _inputs(run: Run) -> dict[str, int]:
    """Return the number of convolutions with inputs of each layout; empty if that was not recorded."""
    counts = {k.removeprefix(_FORMATS): v for k, v in run.facts.items() if k.startswith(_FORMATS)}
    return {name: int(count) for name, count in counts.items() if count.isdigit()}


def _convolutions(run: Run) -> pd.DataFrame:
    kernels = products(run)
    return kernels[which(kernels["type"], lambda name: name.startswith(_CONV))]


@rule("R17", "layout_transposes", GPU, rows=Rows("kernel_summary", "Kernels"))
def layout_transposes(run: Run) -> Finding | None:
    """Convolutions whose library changes the layout of their tensors (NCHW to NHWC and back) around them.

    Fires: 8 % of the kernels' time in nchwToNhwc and nhwcToNchw.
    Silent: 3 %; a model whose inputs are channels_last already.
    """
    inputs = _inputs(run)
    if not len(run.kernels) or not run.kernel_time or (inputs and not inputs.get("contiguous")):
        return None
    names = which(run.kernels["kernel"], lambda name: bool(_LAYOUT.search(name)))
    changes = run.kernels[names & which(run.kernels["type"], lambda name: "conv" in name)]
    part = float(changes["gpu_ns"].sum()) / run.kernel_time
    if part <= limit("R17.share"):
        return None
    return run.finding(
        f"Changes of layout around convolutions take {percent(part)} of the kernels' time, "
        f"{run.time(run.per_device(changes['gpu_ns'].sum()))}.",
        "model.to(memory_format=torch.channels_last), and the same for the input: the library then finds the layout "
        "that its kernels need.",
        run.per_device(changes["gpu_ns"].sum()),
        run.of_kernels(changes),
        "The kernels nchwToNhwc and nhwcToNchw are gone.",
    )


@rule("R18", "channels_last", rows=Rows("detail", "Convolutions", ("type:conv",)))
def channels_last(run: Run) -> Finding | None:
    """Convolutions on tensor cores, whose kernels need NHWC, get contiguous (NCHW) inputs.

    Fires: float16 convolutions with contiguous inputs, 30 % of the kernels' time.
    Silent: inputs in channels_last; float32 without TF32.
    """
    if run.capability < 7.0 or not run.kernel_time:
        return None
    convolutions = _convolutions(run)
    convolutions = convolutions[(convolutions["tc"] == USED) | convolutions["math"].isin([*HALF, "tf32"])]
    part = float(convolutions["gpu_ns"].sum()) / run.kernel_time
    if part <= limit("R18.share"):
        return None
    inputs = _inputs(run)
    if not inputs:
        run.need_fact(_FORMATS + "contiguous", "the layout of the convolutions' inputs")
    contiguous, whole = inputs.get("contiguous", 0), sum(inputs.values())
    if 2 * contiguous <= whole:
        return None
    return run.finding(
        f"Convolutions on tensor cores take {percent(part)} of the kernels' time, and {contiguous} of {whole} "
        "had contiguous (NCHW) inputs.",
        "model.to(memory_format=torch.channels_last), and the same for the input; measure a step with and without.",
        None,
        run.of_kernels(convolutions),
        "A step is shorter; kernels have nhwc in their names.",
    )


@rule("R19", "cudnn_benchmark", GPU, rows=Rows("detail", "Convolutions", ("type:conv",)))
def cudnn_benchmark(run: Run) -> Finding | None:
    """Convolutions have few different shapes, and cuDNN does not search for the fastest algorithm.

    Fires: convolutions take 40 % of the time, torch.backends.cudnn.benchmark is off, each has one shape.
    Silent: the switch is on; input sizes change all the time.
    """
    convolutions = _convolutions(run)
    time = run.per_device(convolutions["gpu_ns"].sum())
    if run.share(time) <= limit("R19.share"):
        return None
    if run.need_fact("cudnn.benchmark", "the switch torch.backends.cudnn.benchmark") == "yes":
        return None
    forward = convolutions[convolutions["direction"] == 0]
    shapes = (forward if len(forward) else convolutions).groupby("path")["params"].nunique()
    if shapes.max() > limit("R19.shapes") or run.facts.get("cudnn.enabled") == "no":
        return None
    return run.finding(
        f"Convolutions take {run.cost(time)}, with at most {shapes.max()} "
        "different shapes each, and torch.backends.cudnn.benchmark is off.",
        "torch.backends.cudnn.benchmark = True before the first step: each new shape is tried once, later calls use "
        "the fastest. Not if shapes change all the time, or results must be the same from run to run.",
        None,
        run.of_kernels(convolutions),
        "A step is shorter after the first ones.",
    )


@rule("R20", "autotune_in_range", GPU, rows=Rows("detail", "Convolutions", ("type:conv",)))
def autotune_in_range(run: Run) -> Finding | None:
    """One call of a convolution ran several algorithms: the library was selecting one, which later calls do not do.

    Fires: the first conv2d of a recording launches kernels of Winograd, FFT and three implicit GEMMs.
    Silent: later calls, with one algorithm each; a recording that begins after the first step.
    """
    rows = _tried(run)
    if not rows:
        return None
    time = sum(row["time_ns"] for row in rows)
    return run.finding(
        f"In {len(rows)} calls of convolutions the library tried several algorithms, {duration(time)} on the GPU: "
        "these times are those of the search, not of the work.",
        "Exclude the first steps: aggregate later iterations (--iter_start), or record later (--delay, --steps).",
        None,
        rows,
        "Each convolution has kernels of one algorithm.",
    )


def _tried(run: Run) -> list[dict[Any, Any]]:
    """Return calls of forward convolutions with kernels of several algorithms, the longest first."""
    table = run.operators
    conv = table.index[which(table["type"], lambda name: name.startswith(_CONV)) & (table["direction"] == 0)]
    kernels = run.events(
        ("op", "operator", "name", "duration_ns"),
        lambda one: one.kernel & np.isin(one.of_events("operator").values, conv.to_numpy(np.int64)),
    )
    names = run.kernel_names
    algorithms = names["kernel"][names["what"] == "conv"].map(_algorithm)
    kernels["algorithm"] = kernels["name"].map(algorithms[algorithms != ""])
    calls = kernels.groupby("op").agg(
        operator=("operator", "first"),
        kernels=("op", "size"),
        algorithms=("algorithm", "nunique"),
        time_ns=("duration_ns", "sum"),
    )
    calls = run.named(calls[calls["algorithms"] >= limit("R20.algorithms")])
    calls = calls.sort_values("time_ns", ascending=False, kind="stable")
    return calls[["operator", "source", "kernels", "algorithms", "time_ns"]].to_dict("records")


def _algorithm(name: str) -> str:
    """Return a name that distinguishes the algorithms of a convolution; empty for a helper.

    >>> _algorithm("void fft2d_r2c_32x32<float>(float2 *)"), _algorithm("volta_scudnn_winograd_128x128_ldg1")
    ('fft', 'winograd')
    """
    for algorithm in ("winograd", "fft"):
        if algorithm in name.lower():
            return algorithm
    return "" if _HELPERS.search(name) else name

# SPDX-License-Identifier: Apache-2.0
"""Rules about attention."""

from __future__ import annotations

from bisect import bisect_right

import pandas as pd

from pyprof.rules import Finding, Rows, rule
from pyprof.rules.context import GPU, Run
from pyprof.rules.thresholds import limit

_PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")
_WHOLE = "multi_head_attention_forward"
_TRAFFIC = (
    "softmax",
    "pointwise",
    "rng",
    "copy",
    "reduction",
)  # kernels on the matrix of weights beside the products


@rule("R24", "attention_unfused", GPU, rows=Rows("kernel_summary", "Kernels of softmax", ("name:softmax",)))
def attention_unfused(run: Run) -> Finding | None:
    """Attention in pieces: a softmax between two products of one module, so that the matrix of weights is written and
    read repeatedly. The saving is the time of the operators between the products, forward and backward, which a fused
    kernel computes along the way.

    Fires: matmul, div, softmax, dropout, matmul; those between the products take 8 % of the time.
    Silent: F.scaled_dot_product_attention; a softmax at the end of a classifier.
    """
    pieces = _between(run) | _inside(run)
    if not pieces:
        return None
    table = pd.DataFrame({"operator": list(pieces), "time": list(pieces.values())}).join(
        run.operators[["name", "source", "params"]], on="operator"
    )
    saving = run.per_device(table["time"].sum())
    if run.share(saving) <= limit("R24.share"):
        return None
    return run.finding(
        f"Attention runs in pieces: the kernels between its products take {run.cost(saving)}.",
        "torch.nn.functional.scaled_dot_product_attention (mask or bias as attn_mask, dropout_p); "
        "nn.MultiheadAttention with need_weights=False. Not if the weights themselves are needed.",
        saving,
        run.top(table, "time", "operator=name source params time_ns=time"),
        "Kernels of attention (flash, mem_eff, cudnn) in the report of kernels instead of softmax.",
    )


def _between(run: Run) -> dict[int, int]:
    """Return the GPU time of operators between the two products around a softmax of one module, by their number."""
    table = run.operators
    forward = table[(table["direction"] == 0) & (table["unassociated"] == 0)]
    place = [name.rpartition("/")[0] for name in forward["name"].tolist()]
    keys: set[tuple[str, str | None]] = set()
    for _, group in forward.groupby(place, sort=False):
        types = group["type"].tolist()
        products = [at for at, type_ in enumerate(types) if type_ in _PRODUCTS]
        for middle, type_ in enumerate(types):
            after = bisect_right(products, middle)
            if "softmax" in type_ and "log" not in type_ and 0 < after < len(products):
                part = group.iloc[products[after - 1] + 1 : products[after]]
                keys |= set(zip(part["name"].tolist(), part["params"].tolist()))
    numbers = {n for n, key in zip(table.index, zip(table["name"].tolist(), table["params"].tolist())) if key in keys}
    times = run.ops[["operator", "gpu_ns"]].itertuples(index=False)
    return {int(operator): int(gpu) for operator, gpu in times if operator in numbers and gpu}


def _inside(run: Run) -> dict[int, int]:
    """Return the same inside one call of multi-head attention whose kernels are not fused."""
    kernels = run.kernels[run.kernels["type"] == _WHOLE]
    fused = set(kernels[kernels["what"] == "attention"]["operator"])
    soft = set(kernels[kernels["what"] == "softmax"]["operator"]) - fused
    traffic = kernels[kernels["operator"].isin(soft) & kernels["what"].isin(_TRAFFIC)]
    times = traffic.groupby("operator")["gpu_ns"].sum()
    return {int(operator): int(time) for operator, time in times.items()}  # type: ignore[call-overload]

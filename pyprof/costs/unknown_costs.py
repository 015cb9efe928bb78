# SPDX-License-Identifier: Apache-2.0
"""Rows without exact FLOPs or bytes: their operators, times and reasons.

>>> from pyprof.core.model import Arg, Tensor
>>> narrow = Arg("", Tensor((2, 3), "float3_e1m1"))
>>> why(Call("torch", "relu", (narrow,))), why(Call("torch", "relu", (Arg("", Tensor((2, 3), "float32")),)))
('the width of float3_e1m1 is unknown', None)
>>> why(Call("mine", "mine::warp", (narrow,))), why(Call("mine", "mine::lookup", (narrow,)))[:39]
('no formula', 'it may read only what its indices selec')
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.marker import is_event
from pyprof.core.model import BASES, BPROP, DTYPE_BITS, OPERATOR, Call, Cost, Rows, Site
from pyprof.costs.attribution.attribute import Costs
from pyprof.costs.attribution.work import parts
from pyprof.costs.cost import find, lookup, possible, tensors_of
from pyprof.costs.reasons import SELECTED, SPARSE, reason_of, selects


class Gap(NamedTuple):
    """An operator whose FLOPs or bytes are not exact. `time` is in ns on the device."""

    operator: str
    basis: str  # "default", "approximate", "recorded" or "unknown"; "formula" where one of both figures is exact
    lacks: str  # "FLOPs", "bytes" or "FLOPs and bytes"
    why: str
    time: int
    rows: int


def gaps(rows: Rows, costs: Costs) -> list[Gap]:
    """Return the gaps, longest first. Default and approximate costs are gaps: their figures are estimates. So are the
    bytes beside recorded FLOPs."""
    exact = (costs.basis != BASES.index("default")) & (costs.basis != BASES.index("approximate"))
    flops = costs.flops.mask() & exact
    size = costs.bytes.mask() & exact & (costs.basis != BASES.index("recorded"))
    index = np.flatnonzero(~(flops & size))
    if not len(index):  # pandas 2 cannot build an empty index
        return []
    launched = rows.launch_start.mask() | (rows.kind == OPERATOR)
    lacks = (~flops).astype(np.int64) + 2 * ~size  # bits: FLOPs, bytes
    columns = (rows.site, costs.call, costs.basis, lacks, launched)
    code, keys = pd.factorize(pd.MultiIndex.from_arrays([column[index] for column in columns]))
    time = np.bincount(code, rows.duration[index].astype(float), len(keys))
    count = np.bincount(code, minlength=len(keys))
    totals: dict[tuple[str, str, str, str], list[float]] = {}
    for (number, call, basis, bits, has_launch), ns, n in zip(keys, time.tolist(), count.tolist()):
        site = rows.sites[number]
        owner = costs.calls[call] if call >= 0 and lookup(costs.calls[call]).basis != "unknown" else None
        text = _why_row(site, owner or (site.calls[-1] if site.calls else None), bool(has_launch))
        figures = ("FLOPs", "bytes", "FLOPs and bytes")[bits - 1]
        sums = totals.setdefault((_name(site), BASES[basis], figures, text), [0, 0])
        sums[0] += ns
        sums[1] += n
    entries = [Gap(*key, time=int(ns), rows=int(n)) for key, (ns, n) in totals.items()]
    return sorted(entries, key=lambda gap: (-gap.time, gap))


def _name(site: Site) -> str:
    if not site.ops:
        return "no operator"
    return site.ops[-1] + (" backward" if site.direction == BPROP and "ackward" not in site.ops[-1] else "")


def _why_row(site: Site, call: Call | None, launched: bool) -> str:
    if not site.ops:
        return "no operator around the launch" if launched else "no launch record"
    if call is None:
        return "its arguments were not recorded"
    backward = site.direction == BPROP and not is_event(call)
    return why(call, backward) or "its formula does not determine this"


def why(call: Call, backward: bool = False) -> str | None:
    """Return why the FLOPs or bytes of a call, or those of its backward, are unknown; None if both are known."""
    call = call._replace(flops=None)
    cost = lookup(call)
    figures = parts(cost) if backward else [cost]
    if figures and all(_complete(part) for part in figures):
        return "its formula makes assumptions: docs/costs.md" if cost.basis == "approximate" else None
    tensors = [tensor for arg in call.args for tensor in tensors_of(arg.value)]
    if find(call.mod, call.op) is None:
        text = reason_of(call)
        return text or (SELECTED if selects(call.op.rpartition("::")[2], tensors) else "no formula")
    if not tensors and cost.basis == "unknown":
        return "no shapes were recorded"
    if any(tensor.is_sparse for tensor in tensors):
        return SPARSE
    if not possible(call):
        return "the recorded sizes are impossible"
    strange = [tensor.dtype for tensor in tensors if (tensor.dtype or "") not in DTYPE_BITS]
    if strange:
        return f"the width of {strange[0]} is unknown" if strange[0] else "no type was recorded"
    if cost.basis == "unknown":
        return "its recorded arguments do not fit the formula"
    return "its formula does not determine this" if figures else "no formula for its backward"


def _complete(cost: Cost) -> bool:
    return cost.flops is not None and cost.bytes is not None

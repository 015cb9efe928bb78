# SPDX-License-Identifier: Apache-2.0
"""Model FLOPs of every row: the FLOPs that the model needs, as papers count them for MFU, beside those executed.

A call's executed FLOPs exclude what its kernel skips (the upper triangle of a causal mask, the zeros of 2:4
sparsity) and include what is computed twice (the scores in the backward of a fused attention). Its dense-equivalent
FLOPs, `Cost.flops_dense`, have neither adjustment. The recomputation of a checkpoint is work that the model does not
need: its rows have 0. Everywhere else the two figures are equal, and unknown FLOPs stay unknown unless the dense
ones are known (attention with a block mask).

The rows that carry a call's FLOPs share its dense FLOPs in proportion to their own, or to their time if those are
unknown. The shares are integers and add up to the call's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.marker import is_event
from pyprof.core.model import BPROP, FPROP, OPERATOR, RECOMPUTE, Bools, Call, Column, Cost, Ints, Rows, Site
from pyprof.costs.attribution.attribute import Costs
from pyprof.costs.attribution.work import add, executions, parts, share, signature
from pyprof.costs.cost import lookup


class _Figures(NamedTuple):
    """The combined figures of the rows of a site: executed and dense FLOPs, None if unknown."""

    executed: int | None
    dense: int | None
    owner: Call
    level: int
    shared: bool  # among the rows of the call; otherwise each row carries its own event's


def model_flops(rows: Rows, costs: Costs) -> Column:
    """Return the FLOPs per row with no structure skipped, and without recomputation."""
    flops, present = costs.flops.values.copy(), costs.flops.mask().copy()
    phase = np.array([site.phase for site in rows.sites] or [0], np.int64)[rows.site]
    recomputed = phase == RECOMPUTE
    flops[recomputed], present[recomputed] = 0, True
    differs: list[tuple[_Figures | None, _Figures | None]] = [
        (_site_figures(site, cpu=False), _site_figures(site, cpu=True)) for site in rows.sites
    ]
    on = np.array([(gpu is not None, cpu is not None) for gpu, cpu in differs] or [(False, False)], bool)
    cpu = rows.kind == OPERATOR
    index = np.flatnonzero(on[rows.site, cpu.astype(np.int64)] & costs.principal & ~recomputed)
    if len(index):
        figures = [differs[site][int(on_cpu)] for site, on_cpu in zip(rows.site[index].tolist(), cpu[index].tolist())]
        flops[index], present[index] = _shares(
            rows, index, costs.flops, [entry for entry in figures if entry is not None]
        )
    return Column(flops, present)


def _site_figures(site: Site, cpu: bool) -> _Figures | None:
    """Return the figures of a site's rows, if they differ."""
    owner, level, event = signature(site, not cpu)
    shared = True
    if cpu and (owner is None or site.direction != FPROP):  # operator events carry their own cost, not the call's
        owner, level, shared = event, 0, False
    elif owner is None:
        owner, level = event, 0
    if owner is None or owner.mod == "autograd":
        return None
    cost = lookup(owner)
    if shared and site.direction == BPROP and not is_event(owner):
        executed, dense = add(parts(cost)).flops, _dense_parts(parts(cost))
    else:
        executed, dense = cost.flops, cost.flops_dense
    return None if executed == dense else _Figures(executed, dense, owner, level, shared)


def _dense_parts(costs: list[Cost]) -> int | None:
    figures = [part.flops_dense for part in costs]
    return None if None in figures else sum(figure for figure in figures if figure is not None)


def _shares(rows: Rows, index: Ints, flops: Column, figures: list[_Figures]) -> tuple[Ints, Bools]:
    """Return the dense FLOPs of the rows in `index`, and whether they are known."""
    team = _teams(rows, index, figures)
    order = np.argsort(team, kind="stable")
    index, team = index[order], team[order]
    own = np.where(flops.mask()[index], flops.values[index], 0)
    carried = np.zeros(int(team[-1]) + 1, np.int64)
    np.add.at(carried, team, own)
    total = []
    for position, number in zip(order.tolist(), team.tolist()):
        executed, dense = figures[position].executed, figures[position].dense
        if dense is None or not executed:
            total.append(-1 if dense is None else dense)
        else:  # possibly only a part of the call is present: take its share
            total.append(dense * int(carried[number]) // executed)
    weight = np.where(
        np.array([bool(figures[position].executed) for position in order.tolist()]), own, rows.duration[index]
    )
    shares = np.empty(len(order), np.int64)
    shares[order] = share(np.array(total, np.int64), team, weight)
    return shares, shares >= 0


def _teams(rows: Rows, index: Ints, figures: list[_Figures]) -> Ints:
    """Number the rows so that those of one call, direction and owner have the same number."""
    numbers: dict[Call, int] = {}
    owner = np.array([numbers.setdefault(entry.owner, len(numbers)) for entry in figures], np.int64)
    level = np.array([entry.level for entry in figures], np.int64)
    launched = np.array([is_event(entry.owner) for entry in figures], bool)
    execution = executions(rows, index, level, launched)
    execution = np.where([entry.shared for entry in figures], execution, -1 - np.arange(len(index)))
    direction = np.array([site.direction for site in rows.sites], np.int64)[rows.site[index]]
    key = (pd.factorize(execution)[0] * 4 + direction) * len(numbers) + owner
    return np.asarray(pd.factorize(key)[0])

# SPDX-License-Identifier: Apache-2.0
"""Model FLOPs of every row: what the model needs, as papers count for MFU, beside what was executed.

A call's executed FLOPs leave out what its kernel leaves out (the upper triangle of a causal mask, the zeros of 2:4
sparsity) and hold what is computed twice (the scores in the backward of a fused attention). Its dense-equivalent FLOPs,
`Cost.flops_dense`, are those without either. The recomputation of a checkpoint is work that the model does not need:
its rows have 0. Everywhere else the two figures are one, and unknown FLOPs stay unknown unless the dense ones are known
(attention with a block mask).

The rows that carry a call's FLOPs share its dense FLOPs in proportion to their own; where those are unknown, to their
time. The shares are integers and add up to the call's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.marker import is_event
from pyprof.model import BPROP, FPROP, OPERATOR, RECOMPUTE, Bools, Call, Column, Cost, Ints, Rows, Site
from pyprof.prof.attribution.attribute import Costs
from pyprof.prof.attribution.work import add, executions, parts, share, signature
from pyprof.prof.cost import lookup


class _Both(NamedTuple):
    """What the rows of a site carry together: executed and dense FLOPs, None where unknown."""

    executed: int | None
    dense: int | None
    owner: Call
    level: int
    shared: bool  # among the rows of the call; else each row carries its own event's


def model_flops(rows: Rows, costs: Costs) -> Column:
    """FLOPs per row without structure left out, and without recomputation."""
    flops, known = costs.flops.values.copy(), costs.flops.mask().copy()
    phase = np.array([site.phase for site in rows.sites] or [0], np.int64)[rows.site]
    again = phase == RECOMPUTE
    flops[again], known[again] = 0, True
    differs: list[tuple[_Both | None, _Both | None]] = [
        (_of(site, cpu=False), _of(site, cpu=True)) for site in rows.sites
    ]
    on = np.array([(gpu is not None, cpu is not None) for gpu, cpu in differs] or [(False, False)], bool)
    cpu = rows.kind == OPERATOR
    index = np.flatnonzero(on[rows.site, cpu.astype(np.int64)] & costs.principal & ~again)
    if len(index):
        both = [
            differs[site][int(on_cpu)] for site, on_cpu in zip(rows.site[index].tolist(), cpu[index].tolist())
        ]
        flops[index], known[index] = _shares(
            rows, index, costs.flops, [each for each in both if each is not None]
        )
    return Column(flops, known)


def _of(site: Site, cpu: bool) -> _Both | None:
    """The figures of a site's rows, if they differ."""
    owner, level, event = signature(site)
    shared = True
    if cpu and (
        owner is None or site.direction != FPROP
    ):  # operator events carry their own cost, not the call's
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
    return None if executed == dense else _Both(executed, dense, owner, level, shared)


def _dense_parts(found: list[Cost]) -> int | None:
    figures = [part.flops_dense for part in found]
    return None if None in figures else sum(figure for figure in figures if figure is not None)


def _shares(rows: Rows, index: Ints, flops: Column, both: list[_Both]) -> tuple[Ints, Bools]:
    """Dense FLOPs of the rows in `index`, and whether they are known."""
    team = _teams(rows, index, both)
    order = np.argsort(team, kind="stable")
    index, team = index[order], team[order]
    own = np.where(flops.mask()[index], flops.values[index], 0)
    carried = np.zeros(int(team[-1]) + 1, np.int64)
    np.add.at(carried, team, own)
    total = []
    for place, number in zip(order.tolist(), team.tolist()):
        executed, dense = both[place].executed, both[place].dense
        if dense is None or not executed:
            total.append(-1 if dense is None else dense)
        else:  # a part of the call alone may be there: the share of it that is
            total.append(dense * int(carried[number]) // executed)
    weight = np.where(
        np.array([bool(both[place].executed) for place in order.tolist()]), own, rows.duration[index]
    )
    found = np.empty(len(order), np.int64)
    found[order] = share(np.array(total, np.int64), team, weight)
    return found, found >= 0


def _teams(rows: Rows, index: Ints, both: list[_Both]) -> Ints:
    """Rows of one call, direction and owner have one number."""
    numbers: dict[Call, int] = {}
    owner = np.array([numbers.setdefault(each.owner, len(numbers)) for each in both], np.int64)
    level = np.array([each.level for each in both], np.int64)
    launched = np.array([is_event(each.owner) for each in both], bool)
    found = executions(rows, index, level, launched)
    found = np.where([each.shared for each in both], found, -1 - np.arange(len(index)))
    direction = np.array([site.direction for site in rows.sites], np.int64)[rows.site[index]]
    key = (pd.factorize(found)[0] * 4 + direction) * len(numbers) + owner
    return np.asarray(pd.factorize(key)[0])

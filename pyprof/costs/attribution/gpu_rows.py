# SPDX-License-Identifier: Apache-2.0
"""Kernels: the choice of those that carry the cost of a call. `attribute.py` has the rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.marker import is_event
from pyprof.core.model import BASES, BPROP, Bools, Call, Cost, Ints, Site
from pyprof.costs import kernels
from pyprof.costs.attribution.work import (
    ALGORITHMS,
    DEFAULT,
    FORMULA,
    RECORDED,
    Signature,
    Work,
    add,
    family,
    figures,
    groups,
    longest,
    parts,
    share,
)
from pyprof.costs.cost import UNKNOWN, lookup, lookup_or_default

# Part of a group's cost that a row carries; rows of one group and slot share it.
_HELPER, _WHOLE, _DGRAD, _WGRAD, _BOTH, _EITHER, _BGRAD, _BY_SHAPE = range(8)


def fill(work: Work, index: Ints) -> None:
    """Assign principal and helpers by the kind of kernel."""
    rows = work.rows
    site, name, duration = rows.site[index], rows.name[index], rows.duration[index]
    owners = [sign.owner or sign.event for sign in work.signatures]
    bases = [UNKNOWN.basis if owner is None else _price(owner).basis for owner in owners]
    priced = np.array([basis != "unknown" for basis in bases], bool)[site]
    group = groups(work, index, owners)
    kinds = [kernels.kind(text) for text in rows.names]
    fits = _fits(owners, kinds)[site, name]
    is_product = np.array([_is_product(s, o) for s, o in zip(rows.sites, owners)], bool)[site]
    has_bias = np.array([o is not None and lookup(o).bgrad is not None for o in owners], bool)[site]
    reduces = np.array([kind == "reduction" for kind in kinds], bool)[name]
    part = np.array([_PART[kernels.part(text)] for text in rows.names], np.int8)[name]
    slot = _slots(group, duration, fits, is_product, has_bias & (reduces | (part == _BGRAD)), part)
    evidence = [_evidence(sign, owner) for sign, owner in zip(work.signatures, owners)]
    team = _resolve_by_shape(group, slot, evidence, site)
    helper = priced & (slot == _HELPER)
    work.flops[index[helper]], work.bytes[index[helper]], work.basis[index[helper]] = 0, 0, FORMULA
    work.basis[index[helper & np.array([basis == "recorded" for basis in bases], bool)[site]]] = RECORDED
    by_default = index[helper & np.array([basis == "default" for basis in bases], bool)[site]]
    work.flops[by_default], work.basis[by_default] = -1, DEFAULT  # any of the kernels may do the computing
    work.principal[index] = slot != _HELPER
    carriers = np.flatnonzero(priced & (slot != _HELPER))
    of_name = [kernels.describe(text).algorithm or "" for text in rows.names]
    algorithm = np.array([ALGORITHMS.index(algorithm_name) for algorithm_name in of_name], np.int8)[name]
    convolves = np.array(["conv" in kernels.FITS.get(family(owner), ()) for owner in owners], bool)[site]
    work.algorithm[index] = np.where(convolves, algorithm, 0)
    _distribute(work, index, carriers, team, slot, owners)


_PART = {None: _HELPER, "dgrad": _DGRAD, "wgrad": _WGRAD, "bgrad": _BGRAD}


def _fits(owners: list[Call | None], kinds: list[str]) -> Bools:
    """Return, per site and kernel name, whether the kernel's kind fits the operator's family."""
    columns = {kind: np.array([k == kind for k in kinds], bool) for kind in set(kinds)}
    out = np.zeros((len(owners), len(kinds)), bool)
    for i, owner in enumerate(owners):
        for kind in kernels.FITS.get(family(owner), ()):
            if kind in columns:
                out[i] |= columns[kind]
    return out


def _is_product(site: Site, owner: Call | None) -> bool:
    """Return whether this is the backward of a product: an input and a weight gradient, two products of one size."""
    if site.direction != BPROP or owner is None or is_event(owner):
        return False
    cost = lookup(owner)
    return cost.dgrad is not None and cost.wgrad is not None


def _slots(group: Ints, duration: Ints, fits: Bools, is_product: Bools, of_bias: Bools, part: Ints) -> Ints:
    """Return the part that each row carries. `of_bias` marks rows that could be the gradient of the bias, if there is
    one."""
    n = int(group.max()) + 1

    def in_group(rows: Bools) -> Ints:
        return np.bincount(group, rows, n).astype(np.int64)[group]

    slot = np.zeros(len(group), np.int8)
    products = is_product & (fits | (part == _DGRAD) | (part == _WGRAD)) & (part != _BGRAD)
    named = products & (part != _HELPER)
    slot[named] = part[named]
    unnamed = products & ~named
    has_dgrad, has_wgrad = (in_group(named & (part == gradient)) > 0 for gradient in (_DGRAD, _WGRAD))
    slot[unnamed & ~has_dgrad] = _DGRAD
    slot[unnamed & ~has_wgrad] = _WGRAD
    either = unnamed & ~has_dgrad & ~has_wgrad
    slot[either] = np.where(in_group(unnamed)[either] <= 2, _EITHER, _BOTH)
    bias = longest(group, duration, is_product & ~products & of_bias)
    slot[bias] = _BGRAD
    simple = ~is_product & fits
    slot[simple] = _WHOLE
    slot[longest(group, duration, in_group(slot != _HELPER) == 0)] = _WHOLE
    return slot


class _Evidence(NamedTuple):
    """Evidence from the shapes of the operator that launched a backward kernel."""

    operator: Call
    cost: Cost
    whole: bool  # it computes the complete backward: others compute one gradient each


def _evidence(sign: Signature, owner: Call | None) -> _Evidence | None:
    """Return an operator whose FLOPs are those of one gradient, or of both together; None if it proves nothing."""
    if owner is None or owner is sign.event or sign.event is None or sign.event.mod == "autograd":
        return None
    cost, event_cost = lookup(owner), lookup(sign.event)
    if cost.dgrad is None or cost.wgrad is None or event_cost.basis != "formula" or not event_cost.flops:
        return None
    both = add([cost.dgrad, cost.wgrad])
    fused = "backward" in sign.event.op
    fitting = [part for part in (cost.dgrad, cost.wgrad) if part.flops == event_cost.flops]
    if fused and event_cost.flops == both.flops:
        return _Evidence(sign.event, both, True)
    if not fitting:
        return None
    same = len({part.bytes for part in fitting}) == 1
    return _Evidence(sign.event, Cost(event_cost.flops, fitting[0].bytes if same else None), fused)


def _resolve_by_shape(group: Ints, slot: Ints, evidence: list[_Evidence | None], site: Ints) -> Ints:
    """Assign the slot `_BY_SHAPE` to products whose gradient follows from the shapes of their operators, not from a
    name.

    One fused operator decides everything; two different operators are one gradient each. A single plain one may have
    run once or twice with the same shapes. Returns the teams that share.
    """
    numbers: dict[Call, int] = {}
    operator = np.array(
        [-1 if item is None else numbers.setdefault(item.operator, len(numbers)) for item in evidence],
        np.int64,
    )[site]
    whole = np.array([item is not None and item.whole for item in evidence], bool)[site]
    open_ = (slot == _EITHER) | (slot == _BOTH)
    if not (open_ & (operator >= 0)).any():
        return group
    n = int(group.max()) + 1
    pairs = np.unique(np.stack([group[open_], operator[open_]]), axis=1)
    distinct = np.bincount(pairs[0], minlength=n)[group]
    silent = np.bincount(group, open_ & (operator < 0), n)[group] > 0
    resolved = open_ & ~silent & np.where(whole, distinct == 1, distinct == 2)
    slot[resolved] = _BY_SHAPE
    return np.where(resolved, n + group * len(numbers) + operator, group)


def _price(owner: Call) -> Cost:
    """Return the cost of an owner. A user's call has a formula or none; the operator that launched a kernel has at
    least its tensors' bytes."""
    return lookup_or_default(owner) if is_event(owner) and owner.mod != "autograd" else lookup(owner)


def _cost_of(sign: Signature, site: Site, owner: Call, slot: int) -> Cost:
    """Return the cost of a slot of a group."""
    cost = _price(owner)
    if slot == _BY_SHAPE:
        evidence = _evidence(sign, owner)
        return UNKNOWN if evidence is None else evidence.cost
    if slot == _WHOLE:
        return add(parts(cost)) if site.direction == BPROP and not is_event(owner) else cost
    dgrad, wgrad = cost.dgrad or UNKNOWN, cost.wgrad or UNKNOWN
    if slot == _EITHER:  # one of two products of the same size; figures that differ are unknown
        same_flops, same_bytes = dgrad.flops == wgrad.flops, dgrad.bytes == wgrad.bytes
        return Cost(dgrad.flops if same_flops else None, dgrad.bytes if same_bytes else None)
    return {_DGRAD: dgrad, _WGRAD: wgrad, _BOTH: add([dgrad, wgrad]), _BGRAD: cost.bgrad or Cost(0, 0)}[slot]


def _distribute(work: Work, index: Ints, carriers: Ints, group: Ints, slot: Ints, owners: list[Call | None]) -> None:
    """Assign to every carrier its cost, or its share of it."""
    if not len(carriers):
        return
    site = work.rows.site[index]
    code, keys = pd.factorize(site[carriers] * 8 + slot[carriers])
    distinct = [
        _cost_of(work.signatures[key // 8], work.rows.sites[key // 8], owner, key % 8)
        if (owner := owners[key // 8]) is not None
        else UNKNOWN
        for key in keys.tolist()
    ]
    team = np.where(slot[carriers] == _EITHER, -1 - np.arange(len(carriers)), group[carriers] * 8 + slot[carriers])
    team_code = pd.factorize(team)[0]
    single = np.bincount(team_code)[team_code] == 1
    costs = figures(distinct)
    basis = np.array([BASES.index(c.basis) for c in distinct], np.int8)
    target = index[carriers]
    work.basis[target] = basis[code]
    work.flops[target[single]], work.bytes[target[single]] = costs[code[single]].T
    of_team = np.zeros(int(team_code.max()) + 1, np.int8)  # a team has the algorithm of any of its members
    np.maximum.at(of_team, team_code, work.algorithm[target])
    work.algorithm[target] = of_team[team_code]
    shared = np.flatnonzero(~single)
    shared = shared[np.argsort(team_code[shared], kind="stable")]
    team, weight = team_code[shared], work.rows.duration[target[shared]]
    work.flops[target[shared]] = share(costs[code[shared], 0], team, weight)
    work.bytes[target[shared]] = share(costs[code[shared], 1], team, weight)

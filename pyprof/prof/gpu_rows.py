# SPDX-License-Identifier: Apache-2.0
"""Kernels: which of a call's kernels carries its cost. `attribute.py` has the rule."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.marker import is_event
from pyprof.model import BPROP, Bools, Call, Cost, Ints, Site
from pyprof.prof import kernels
from pyprof.prof.cost import UNKNOWN, lookup, lookup_or_default
from pyprof.prof.work import (
    BASES,
    DEFAULT,
    FORMULA,
    Work,
    add,
    family,
    figures,
    groups,
    longest,
    parts,
    share,
)

# Which part of a group's cost a row carries; rows of one group and slot share it.
_HELPER, _WHOLE, _DGRAD, _WGRAD, _BOTH, _EITHER, _BGRAD = range(7)


def fill(work: Work, index: Ints) -> None:
    """Principal and helpers by the kind of kernel."""
    rows = work.rows
    site, name, duration = rows.site[index], rows.name[index], rows.duration[index]
    owners = [sign.owner or sign.event for sign in work.signatures]
    bases = [UNKNOWN.basis if owner is None else _price(owner).basis for owner in owners]
    known = np.array([basis != "unknown" for basis in bases], bool)[site]
    group = groups(work, index, owners)
    kinds = [kernels.kind(text) for text in rows.names]
    fits = _fits(owners, kinds)[site, name]
    is_product = np.array([_is_product(s, o) for s, o in zip(rows.sites, owners)], bool)[site]
    reduces = np.array([kind == "reduction" for kind in kinds], bool)[name]
    part = np.array([_PART[kernels.part(text)] for text in rows.names], np.int8)[name]
    slot = _slots(group, duration, fits, is_product, reduces, part)
    helper = known & (slot == _HELPER)
    work.flops[index[helper]], work.bytes[index[helper]], work.basis[index[helper]] = 0, 0, FORMULA
    guessed = index[helper & np.array([basis == "default" for basis in bases], bool)[site]]
    work.flops[guessed], work.basis[guessed] = -1, DEFAULT  # any of its kernels may be the one that computes
    work.principal[index] = slot != _HELPER
    carriers = np.flatnonzero(known & (slot != _HELPER))
    _share_out(work, index, carriers, group, slot, owners)


_PART = {None: _HELPER, "dgrad": _DGRAD, "wgrad": _WGRAD, "bgrad": _BGRAD}


def _fits(owners: list[Call | None], kinds: list[str]) -> Bools:
    """Per site and kernel name: whether the kernel's kind fits the operator's family."""
    columns = {kind: np.array([k == kind for k in kinds], bool) for kind in set(kinds)}
    out = np.zeros((len(owners), len(kinds)), bool)
    for i, owner in enumerate(owners):
        for kind in kernels.FITS.get(family(owner), ()):
            if kind in columns:
                out[i] |= columns[kind]
    return out


def _is_product(site: Site, owner: Call | None) -> bool:
    """Whether this is the backward of a product: an input and a weight gradient, two products of one size."""
    if site.direction != BPROP or owner is None or is_event(owner):
        return False
    cost = lookup(owner)
    return cost.dgrad is not None and cost.wgrad is not None


def _slots(group: Ints, duration: Ints, fits: Bools, is_product: Bools, reduces: Bools, part: Ints) -> Ints:
    """What each row carries."""
    n = int(group.max()) + 1

    def in_group(rows: Bools) -> Ints:
        return np.bincount(group, rows, n).astype(np.int64)[group]

    slot = np.zeros(len(group), np.int8)
    products = is_product & (fits | (part == _DGRAD) | (part == _WGRAD)) & (part != _BGRAD)
    named = products & (part != _HELPER)
    slot[named] = part[named]
    unnamed = products & ~named
    has_dgrad, has_wgrad = (in_group(named & (part == which)) > 0 for which in (_DGRAD, _WGRAD))
    slot[unnamed & ~has_dgrad] = _DGRAD
    slot[unnamed & ~has_wgrad] = _WGRAD
    either = unnamed & ~has_dgrad & ~has_wgrad
    slot[either] = np.where(in_group(unnamed)[either] <= 2, _EITHER, _BOTH)
    bias = longest(group, duration, is_product & ~products & (reduces | (part == _BGRAD)))
    slot[bias] = _BGRAD
    simple = ~is_product & fits
    slot[simple] = _WHOLE
    slot[longest(group, duration, in_group(slot != _HELPER) == 0)] = _WHOLE
    return slot


def _price(owner: Call) -> Cost:
    """A user's call has a formula or none; the operator that launched a kernel has at least its tensors' bytes."""
    return lookup_or_default(owner) if is_event(owner) and owner.mod != "autograd" else lookup(owner)


def _cost_of(site: Site, owner: Call, slot: int) -> Cost:
    """What a slot of a group costs."""
    cost = _price(owner)
    if slot == _WHOLE:
        return add(parts(cost)) if site.direction == BPROP and not is_event(owner) else cost
    dgrad, wgrad = cost.dgrad or UNKNOWN, cost.wgrad or UNKNOWN
    if slot == _EITHER:  # one of two products of one size; should they differ, what differs is unknown
        same_flops, same_bytes = dgrad.flops == wgrad.flops, dgrad.bytes == wgrad.bytes
        return Cost(dgrad.flops if same_flops else None, dgrad.bytes if same_bytes else None)
    return {_DGRAD: dgrad, _WGRAD: wgrad, _BOTH: add([dgrad, wgrad]), _BGRAD: cost.bgrad or Cost(0, 0)}[slot]


def _share_out(
    work: Work, index: Ints, carriers: Ints, group: Ints, slot: Ints, owners: list[Call | None]
) -> None:
    """Give every carrier its cost, or its share of it."""
    if not len(carriers):
        return
    site = work.rows.site[index]
    code, keys = pd.factorize(site[carriers] * 8 + slot[carriers])
    distinct = [
        _cost_of(work.rows.sites[key // 8], owner, key % 8)
        if (owner := owners[key // 8]) is not None
        else UNKNOWN
        for key in keys.tolist()
    ]
    team = np.where(
        slot[carriers] == _EITHER, -1 - np.arange(len(carriers)), group[carriers] * 8 + slot[carriers]
    )
    team_code = pd.factorize(team)[0]
    alone = np.bincount(team_code)[team_code] == 1
    costs = figures(distinct)
    basis = np.array([BASES.index(c.basis) for c in distinct], np.int8)
    target = index[carriers]
    work.basis[target] = basis[code]
    work.flops[target[alone]], work.bytes[target[alone]] = costs[code[alone]].T
    together = np.flatnonzero(~alone)
    together = together[np.argsort(team_code[together], kind="stable")]
    team, weight = team_code[together], work.rows.duration[target[together]]
    work.flops[target[together]] = share(costs[code[together], 0], team, weight)
    work.bytes[target[together]] = share(costs[code[together], 1], team, weight)

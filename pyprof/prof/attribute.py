# SPDX-License-Identifier: Apache-2.0
"""From calls to rows: which kernel carries the cost of a call.

The cost belongs to the call and is worked out once per distinct call. Among the kernels of one call and direction:

* the *principal* carries the whole cost, the others carry 0. It is the kernel whose kind fits the operator (a GEMM
  kernel for `linear`), else the longest. Several that fit share in proportion to their time; the shares are integers
  and add up to the cost.
* in the backward of a product (matrix product, convolution) the two gradients are two products: each kernel that fits
  carries one. A kernel of which only the name tells (dgrad, wgrad) carries that one. The longest reduction carries the
  bias gradient. dgrad and wgrad touch the same three operands and cost the same; more kernels than products share.
* without a GPU the rows are operator events with shapes of their own. The innermost events that account for the work
  carry: the call's cost in forward, their own cost in backward (their shapes are the evidence), and their own cost
  where the call has no formula (`multi_head_attention_forward`, an optimizer's step).

A row of an unknown operator has unknown cost; a row that stands around or beside what carries the cost has 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof import intervals
from pyprof.marker import is_event
from pyprof.model import (
    BPROP,
    FPROP,
    KERNEL,
    MEMCPY,
    MEMSET,
    NO_DIRECTION,
    OPERATOR,
    Bools,
    Call,
    Column,
    Cost,
    Ints,
    Rows,
    Site,
)
from pyprof.prof import kernels
from pyprof.prof.cost import UNKNOWN, VIEW, default, find, lookup, lookup_or_default

BASES = ("formula", "view", "default", "unknown")
_FORMULA, _VIEW, _DEFAULT, _UNKNOWN = range(4)
_PRODUCTS = ("gemm", "conv")  # families whose backward is two products of the forward's size
USED, NOT_USED, NOT_APPLICABLE, TC_UNKNOWN = 1, 0, 2, 3


class Costs(NamedTuple):
    """Per row: FLOPs, bytes, where the figures come from (index in BASES), tensor cores, and the call they belong to.

    `call` indexes `calls`, -1 for a row without arguments. `principal` marks the rows that carry a cost.
    """

    flops: Column
    bytes: Column
    basis: Ints
    tensor_cores: Ints
    call: Ints
    calls: list[Call]
    principal: Bools


class _Signature(NamedTuple):
    """What a site says about cost: the call that owns it, and the operator event."""

    owner: Call | None
    level: int  # 0: the owner is the outermost call
    event: Call | None


def signature(site: Site) -> _Signature:
    """The outermost call with a formula owns the cost."""
    event = site.calls[-1] if site.calls and is_event(site.calls[-1]) else None
    users = [call for call in site.calls if not is_event(call)]
    for i, call in enumerate(users):
        if lookup(call).basis != "unknown":
            return _Signature(call, i, event)
    return _Signature(None, 0, event)


def attribute(rows: Rows) -> Costs:
    """The cost of every row. The sum over the rows of a call and direction is the cost of the call."""
    signatures = [signature(site) for site in rows.sites]
    n = len(rows)
    work = _Work(rows, signatures)
    cpu = rows.kind == OPERATOR
    if cpu.any():
        _operators(work, np.flatnonzero(cpu))
    gpu = np.flatnonzero(rows.kind == KERNEL)
    if len(gpu):
        _kernels(work, gpu)
    work.flops[(rows.kind == MEMCPY) | (rows.kind == MEMSET)] = (
        0  # a copy computes nothing; its bytes are not in a row
    )
    return Costs(
        Column(work.flops, work.flops >= 0),
        Column(work.bytes, work.bytes >= 0),
        work.basis,
        _tensor_cores(rows, work),
        work.shown[rows.site] if n else np.empty(0, np.int64),
        work.calls,
        work.principal,
    )


class _Work:
    """The columns that are being filled. -1 is unknown."""

    def __init__(self, rows: Rows, signatures: list[_Signature]):
        n = len(rows)
        self.rows = rows
        self.signatures = signatures
        self.flops, self.bytes = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        self.basis = np.full(n, _UNKNOWN, np.int8)
        self.principal = np.zeros(n, bool)
        self.calls: list[Call] = []
        numbers: dict[Call, int] = {}
        shown = []
        for site, sign in zip(rows.sites, signatures):
            users = [call for call in site.calls if not is_event(call)]
            call = sign.owner or (sign.event if sign.event is not None else users[0] if users else None)
            if call is None:
                shown.append(-1)
                continue
            if call not in numbers:
                numbers[call] = len(self.calls)
                self.calls.append(call)
            shown.append(numbers[call])
        self.shown = np.array(shown, np.int64)
        self.direction = np.array([site.direction for site in rows.sites], np.int64)[rows.site]


def family(call: Call | None) -> str:
    """The family of a call's formula, '' if it has none."""
    found = find(call.mod, call.op) if call is not None else None
    return found[0].family if found is not None else ""


def parts(cost: Cost) -> list[Cost]:
    """The parts of a backward that the formula knows."""
    return [part for part in (cost.dgrad, cost.wgrad, cost.bgrad) if part is not None]


def add(costs: list[Cost]) -> Cost:
    """Sum of costs; unknown if one is, or if there is none.

    >>> add([Cost(1, 2), Cost(3, None)])
    Cost(flops=4, bytes=None)
    """
    if not costs:
        return UNKNOWN
    flops, size = [c.flops for c in costs], [c.bytes for c in costs]
    return Cost(
        None if None in flops else sum(f for f in flops if f is not None),
        None if None in size else sum(s for s in size if s is not None),
    )


def share(cost: Ints, team: Ints, weight: Ints) -> Ints:
    """Split costs in proportion to weights, exactly: the shares of a team add up to its cost. -1 is unknown.

    `team` numbers the teams, sorted; `cost` holds the team's cost at each member.

    >>> share(np.array([10, 10, 10, 7, 7, -1]), np.array([0, 0, 0, 1, 1, 2]), np.array([1, 1, 1, 0, 0, 5])).tolist()
    [3, 3, 4, 3, 4, -1]
    """
    if not len(team):
        return cost
    first = np.r_[True, team[1:] != team[:-1]]
    begin = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    weight = np.where(np.add.reduceat(weight, begin)[number] == 0, 1, weight)
    total = np.add.reduceat(weight, begin)[number]
    upto = np.cumsum(weight)
    upto = upto - (upto - weight)[begin][number]
    whole, rest = np.divmod(cost, total)
    if int(total.max()) < 2**31:
        done = whole * upto + rest * upto // total  # rest < total, so nothing overflows
    else:
        done = np.array(
            [c * u // t for c, u, t in zip(cost.tolist(), upto.tolist(), total.tolist())], np.int64
        )
    before = np.where(first, 0, np.r_[0, done[:-1]])
    return np.where(cost < 0, -1, done - before)


def _table(costs: list[Cost]) -> Ints:
    """FLOPs and bytes of costs, (n, 2); -1 is unknown."""
    return np.array(
        [[-1 if c.flops is None else c.flops, -1 if c.bytes is None else c.bytes] for c in costs], np.int64
    )


# Which part of a group's cost a row carries; rows of one group and slot share it.
_HELPER, _WHOLE, _DGRAD, _WGRAD, _BOTH, _EITHER, _BGRAD = range(7)


def _groups(work: _Work, index: Ints, owners: list[Call | None]) -> Ints:
    """A number per row: rows of one call, direction and owner share it; a row without a call is alone."""
    rows, site = work.rows, work.rows.site[index]
    numbers: dict[Call | None, int] = {}
    owner = np.array([numbers.setdefault(call, len(numbers)) for call in owners], np.int64)[site]
    level = np.array([sign.level for sign in work.signatures], np.int64)[site]
    call = np.where(rows.call.mask()[index], rows.call.values[index], -1 - np.arange(len(index)))
    for depth, inner in enumerate(rows.inner_calls, 1):
        call = np.where((level == depth) & inner.mask()[index], inner.values[index], call)
    code, distinct = pd.factorize(owner)
    group = pd.factorize((pd.factorize(call)[0] * 4 + work.direction[index]) * len(distinct) + code)[0]
    return np.asarray(group)


def _longest(group: Ints, duration: Ints, candidates: Bools) -> Bools:
    """The longest candidate of each group, the first of equals."""
    index = np.flatnonzero(candidates)
    order = index[np.lexsort((index, -duration[index], group[index]))]
    out = np.zeros(len(group), bool)
    if len(order):
        out[order[np.r_[True, group[order][1:] != group[order][:-1]]]] = True
    return out


def _kernels(work: _Work, index: Ints) -> None:
    """GPU rows: principal and helpers by the kind of kernel."""
    rows = work.rows
    site, name, duration = rows.site[index], rows.name[index], rows.duration[index]
    owners = [sign.owner or sign.event for sign in work.signatures]
    known = np.array([owner is not None and _price(owner).basis != "unknown" for owner in owners], bool)[site]
    group = _groups(work, index, owners)
    kinds = [kernels.kind(text) for text in rows.names]
    fits = _fits(owners, kinds)[site, name]
    is_product = np.array([_is_product(s, o) for s, o in zip(rows.sites, owners)], bool)[site]
    reduces = np.array([kind == "reduction" for kind in kinds], bool)[name]
    part = np.array([_PART[kernels.part(text)] for text in rows.names], np.int8)[name]
    slot = _slots(group, duration, fits, is_product, reduces, part)
    helper = known & (slot == _HELPER)
    work.flops[index[helper]], work.bytes[index[helper]], work.basis[index[helper]] = 0, 0, _FORMULA
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
    bias = _longest(group, duration, is_product & ~products & (reduces | (part == _BGRAD)))
    slot[bias] = _BGRAD
    simple = ~is_product & fits
    slot[simple] = _WHOLE
    slot[_longest(group, duration, in_group(slot != _HELPER) == 0)] = _WHOLE
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
    work: _Work, index: Ints, carriers: Ints, group: Ints, slot: Ints, owners: list[Call | None]
) -> None:
    """Give every carrier its cost, or its share of it."""
    if not len(carriers):
        return
    site = work.rows.site[index]
    code, keys = pd.factorize(site[carriers] * 8 + slot[carriers])
    table = [
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
    costs = _table(table)
    basis = np.array([BASES.index(c.basis) for c in table], np.int8)
    target = index[carriers]
    work.basis[target] = basis[code]
    work.flops[target[alone]], work.bytes[target[alone]] = costs[code[alone]].T
    together = np.flatnonzero(~alone)
    together = together[np.argsort(team_code[together], kind="stable")]
    team, weight = team_code[together], work.rows.duration[target[together]]
    work.flops[target[together]] = share(costs[code[together], 0], team, weight)
    work.bytes[target[together]] = share(costs[code[together], 1], team, weight)


def _operators(work: _Work, index: Ints) -> None:
    """Operator events: the innermost ones that account for the work carry it."""
    rows = work.rows
    own = [_of_event(site, sign) for site, sign in zip(rows.sites, work.signatures)]
    table = _table(own)
    bases = np.array([BASES.index(c.basis) for c in own], np.int8)
    flops, size = table[rows.site[index]].T
    basis = bases[rows.site[index]]
    tree = _Tree(rows, index)
    carries, around, covered = _carriers(tree, basis, flops, size)
    beside = ~carries & ((basis != _UNKNOWN) | around)
    work.flops[index], work.bytes[index] = np.where(beside, 0, flops), np.where(beside, 0, size)
    work.basis[index] = np.where(beside & (basis != _VIEW), _FORMULA, basis)
    work.principal[index] = carries
    _forward_calls(work, index, carries, flops, size)
    _leaves_by_default(work, index[~covered & ~tree.has_children()])


def _leaves_by_default(work: _Work, index: Ints) -> None:
    """Events that nothing explains and that contain none: the bytes of their tensors."""
    events = [sign.event for sign in work.signatures]
    costs = [default(event) if event is not None and event.mod != "autograd" else UNKNOWN for event in events]
    known = np.array([cost.basis != "unknown" for cost in costs], bool)
    bases = np.array([BASES.index(cost.basis) for cost in costs], np.int8)
    index = index[work.basis[index] == _UNKNOWN]
    index = index[known[work.rows.site[index]]]
    site = work.rows.site[index]
    work.flops[index], work.bytes[index] = _table(costs)[site].T
    work.basis[index] = bases[site]
    work.principal[index] = True


def _of_event(site: Site, sign: _Signature) -> Cost:
    """The cost of an operator event by itself. An autograd node only calls operators, which are events inside it.

    What has a call but no direction runs while torch.compile is at work, on tensors without data.
    """
    if sign.owner is not None and site.direction == NO_DIRECTION:
        return lookup(sign.owner)
    if sign.event is None:
        return UNKNOWN
    return VIEW if sign.event.mod == "autograd" else lookup(sign.event)


class _Tree:
    """Operator events inside one another, thread by thread: parent of each (-1: none) and the events of each depth."""

    def __init__(self, rows: Rows, index: Ints):
        self.parent = np.full(len(index), -1, np.int64)
        depth = np.zeros(len(index), np.int64)
        thread = pd.factorize(rows.pid.values[index] * (1 << 32) + rows.tid.values[index])[0]
        for number in np.unique(thread).tolist():
            mine = np.flatnonzero(thread == number)
            start, end = rows.start[index[mine]], rows.end[index[mine]]
            order = intervals.nesting_order(start, end, np.negative)
            nest = intervals.Nesting(start[order], intervals.clip(start[order], end[order])[0])
            place = mine[order]
            self.parent[place] = np.where(nest.parent >= 0, place[nest.parent], -1)
            depth[place] = nest.depth
        order = np.argsort(depth, kind="stable")
        self.levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])

    def has_children(self) -> Bools:
        out = np.zeros(len(self.parent), bool)
        out[self.parent[self.parent >= 0]] = True
        return out


def _carriers(tree: _Tree, basis: Ints, flops: Ints, size: Ints) -> tuple[Bools, Bools, Bools]:
    """Which events carry a cost, which have an event of known cost inside them, and which are inside a carrier.

    An event with a formula leaves its cost to the events inside it if those account for at least half of its FLOPs
    (of its bytes, if it computes nothing): `aten::relu` to `aten::clamp_min`, but `aten::addmm` not to the copy of
    its bias.
    """
    n = len(basis)
    computes = (basis == _FORMULA) | (basis == _DEFAULT)
    flops, size = np.maximum(flops, 0), np.maximum(size, 0)
    inner_flops, inner_size, inner = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, bool)
    carries, around = np.zeros(n, bool), np.zeros(n, bool)
    for members in reversed(tree.levels):
        enough = np.where(
            flops[members] > 0,
            2 * inner_flops[members] >= flops[members],
            2 * inner_size[members] >= size[members],
        )
        mine = members[computes[members] & ~(inner[members] & enough)]
        carries[mine] = True
        inner_flops[mine], inner_size[mine], inner[mine] = flops[mine], size[mine], True
        nested = members[tree.parent[members] >= 0]
        above = tree.parent[nested]
        np.add.at(inner_flops, above, inner_flops[nested])
        np.add.at(inner_size, above, inner_size[nested])
        inner[above[inner[nested]]] = True
        around[above[around[nested] | (basis[nested] != _UNKNOWN)]] = True
    covered = np.zeros(n, bool)
    for members in tree.levels:  # below a carrier nothing else carries
        nested = members[tree.parent[members] >= 0]
        above = tree.parent[nested]
        covered[nested] = covered[above] | carries[above]
    return carries & ~covered, around, covered


def _forward_calls(work: _Work, index: Ints, carries: Bools, flops: Ints, size: Ints) -> None:
    """The cost of a forward call that has a formula goes to its carriers, in proportion to their own FLOPs or bytes."""
    site = work.rows.site[index]
    owners = [sign.owner for sign in work.signatures]
    owned = np.array([owner is not None for owner in owners], bool)[site] & (work.direction[index] == FPROP)
    if not owned.any():
        return
    group = _groups(work, index, owners)
    n = int(group.max()) + 1
    lonely = owned & (np.bincount(group, owned & carries, n)[group] == 0)
    team = (owned & carries) | _longest(group, work.rows.duration[index], lonely)
    rest = owned & ~team
    work.flops[index[rest]], work.bytes[index[rest]] = 0, 0
    work.basis[index[rest & (work.basis[index] == _UNKNOWN)]] = _FORMULA
    work.principal[index[team]] = True
    members = np.flatnonzero(team)
    members = members[np.argsort(group[members], kind="stable")]
    weight, other = np.maximum(flops[members], 0), np.maximum(size[members], 0)
    computes = np.bincount(group[members], weight, n)[group[members]] > 0
    own = [lookup(owner) if owner is not None else UNKNOWN for owner in owners]
    table, who = _table(own), site[members]
    work.flops[index[members]] = share(table[who, 0], group[members], np.where(computes, weight, other))
    work.bytes[index[members]] = share(table[who, 1], group[members], np.where(computes, weight, other))
    work.basis[index[members]] = np.array([BASES.index(cost.basis) for cost in own], np.int8)[who]


def _tensor_cores(rows: Rows, work: _Work) -> Ints:
    """Used, not used though the kernel is of a kind that could, not applicable, unknown."""
    out = np.full(len(rows), TC_UNKNOWN, np.int8)
    verdicts = []
    for name in rows.names:
        used, kind = kernels.tensor_core(name), kernels.kind(name)
        could = kind in kernels.PRODUCTS
        verdicts.append(
            USED if used else (NOT_USED if used is False else TC_UNKNOWN) if could else NOT_APPLICABLE
        )
    gpu = rows.kind == KERNEL
    if gpu.any():
        out[gpu] = np.array(verdicts, np.int8)[rows.name[gpu]]
        # A kernel of no known kind may well use them if it carries a product, or if nobody knows what it does.
        nameless = [
            kernels.kind(name) == "other" and kernels.tensor_core(name) is None for name in rows.names
        ]
        families = [family(sign.owner or sign.event) for sign in work.signatures]
        product = np.array([name in (*_PRODUCTS, "attention") for name in families], bool)[rows.site]
        idle = np.array([name == "" for name in families], bool)[rows.site]
        out[gpu & np.array(nameless, bool)[rows.name] & (product & work.principal | idle)] = TC_UNKNOWN
    out[(rows.kind == MEMCPY) | (rows.kind == MEMSET)] = NOT_APPLICABLE
    return out

# SPDX-License-Identifier: Apache-2.0
"""Operator events: the choice of those, among nested ones, that carry the cost of a call. `attribute.py` has the
rule.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyprof.core import intervals
from pyprof.core.marker import STOPPED, WHOLE_BACKWARD, is_compiled
from pyprof.core.model import BASES, FPROP, NO_DIRECTION, Bools, Call, Cost, Ints, Rows, Site
from pyprof.costs.attribution.work import (
    DEFAULT,
    FORMULA,
    NOT_KNOWN,
    RECORDED,
    VIEWED,
    Signature,
    Work,
    family,
    figures,
    groups,
    longest,
    share,
)
from pyprof.costs.cost import UNKNOWN, VIEW, default, find, is_sparse, lookup
from pyprof.costs.reasons import COMPOSITE, SPARSE, reason_of


def fill(work: Work, index: Ints) -> None:
    """Assign the cost to the innermost events that account for the work."""
    rows = work.rows
    own = [_event_cost(site, sign) for site, sign in zip(rows.sites, work.signatures)]
    table = figures(own)
    bases = np.array([BASES.index(c.basis) for c in own], np.int8)
    flops, size = table[rows.site[index]].T
    basis = bases[rows.site[index]]
    tree = _Tree(rows, index)
    carries, around, covered = _carriers(tree, basis, flops, size)
    families = np.array([family(sign.event) for sign in work.signatures])[rows.site[index]]
    carries |= _with_tangents(tree, families, flops) & ~covered
    sparse = np.array([_is_sparse(sign.event) for sign in work.signatures], bool)[rows.site[index]]
    sparse &= ~tree.around(sparse)
    beside = ~carries & ((basis != NOT_KNOWN) | around) & ~sparse
    work.flops[index], work.bytes[index] = np.where(beside, 0, flops), np.where(beside, 0, size)
    work.basis[index] = np.where(beside & (basis != VIEWED), FORMULA, basis)
    work.principal[index] = carries
    _forward_calls(work, index, carries | sparse, flops, size)
    unexplained = tree.around(basis == NOT_KNOWN)
    _innermost_by_default(work, index[~covered & ~around & ~unexplained])
    compiled = np.array([is_compiled(name) for name in rows.names], bool)[rows.name[index]]
    _fused(work, index[compiled & ~tree.around(compiled)])


def _fused(work: Work, index: Ints) -> None:
    """Mark compiled regions as unknown: code written by torch.compile runs in the time of its innermost region, without
    an operator."""
    work.flops[index], work.bytes[index] = -1, -1
    work.basis[index] = NOT_KNOWN
    work.principal[index] = True


def _innermost_by_default(work: Work, index: Ints) -> None:
    """Assign the bytes of their tensors to unexplained events without an event inside that does the work."""
    events = [sign.event for sign in work.signatures]
    costs = [default(event) if event is not None and event.mod != "autograd" else UNKNOWN for event in events]
    has_default = np.array([cost.basis != "unknown" for cost in costs], bool)
    bases = np.array([BASES.index(cost.basis) for cost in costs], np.int8)
    index = index[work.basis[index] == NOT_KNOWN]
    index = index[has_default[work.rows.site[index]]]
    site = work.rows.site[index]
    work.flops[index], work.bytes[index] = figures(costs)[site].T
    work.basis[index] = bases[site]
    work.principal[index] = True


def _event_cost(site: Site, sign: Signature) -> Cost:
    """Return the cost of an operator event by itself. An autograd node or a composite only calls operators: events
    inside it.

    An event with a call but no direction runs while torch.compile is at work, on tensors without data.
    """
    if sign.owner is not None and site.direction == NO_DIRECTION:
        return lookup(sign.owner)
    if sign.event is None or sign.event.op == WHOLE_BACKWARD:
        return UNKNOWN
    if sign.event.mod == "autograd" or reason_of(sign.event) == COMPOSITE:
        return VIEW
    return lookup(sign.event)


class _Tree:
    """Nested operator events, thread by thread: parent of each (-1: none) and the events of each depth."""

    def __init__(self, rows: Rows, index: Ints):
        self.parent = np.full(len(index), -1, np.int64)
        depth = np.zeros(len(index), np.int64)
        thread = pd.factorize(rows.process[index].astype(np.int64) * (1 << 32) + rows.tid.values[index])[0]
        for _, members in intervals.groups(thread):
            start, end = rows.start[index[members]], rows.end[index[members]]
            order = intervals.nesting_order(start, end, np.negative)
            nest = intervals.Nesting(start[order], intervals.clip(start[order], end[order])[0])
            sorted_members = members[order]
            self.parent[sorted_members] = np.where(nest.parent >= 0, sorted_members[nest.parent], -1)
            depth[sorted_members] = nest.depth
        order = np.argsort(depth, kind="stable")
        self.levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])

    def around(self, marked: Bools) -> Bools:
        """Return the events that have a marked one inside them."""
        out = np.zeros(len(self.parent), bool)
        for members in reversed(self.levels):
            nested = members[self.parent[members] >= 0]
            out[self.parent[nested[(out | marked)[nested]]]] = True
        return out


def _carriers(tree: _Tree, basis: Ints, flops: Ints, size: Ints) -> tuple[Bools, Bools, Bools]:
    """Return the events that carry a cost, those with a working event inside, and those inside a carrier.

    An event with a formula leaves its cost to the events inside it if those account for at least half of its FLOPs
    (of its bytes, if it computes nothing): `aten::relu` to `aten::clamp_min`, but `aten::addmm` not to the copy of
    its bias.
    """
    n = len(basis)
    computes = (basis == FORMULA) | (basis == DEFAULT) | (basis == RECORDED)
    works = computes & ((flops != 0) | (size != 0))
    flops, size = np.maximum(flops, 0).astype(float), np.maximum(size, 0).astype(float)  # sums of any size
    inner_flops, inner_size, inner = np.zeros(n), np.zeros(n), np.zeros(n, bool)
    carries = np.zeros(n, bool)
    for members in reversed(tree.levels):
        enough = np.where(
            flops[members] > 0,
            2 * inner_flops[members] >= flops[members],
            2 * inner_size[members] >= size[members],
        )
        selected = members[computes[members] & ~(inner[members] & enough)]
        carries[selected] = True
        inner_flops[selected], inner_size[selected], inner[selected] = flops[selected], size[selected], True
        nested = members[tree.parent[members] >= 0]
        above = tree.parent[nested]
        np.add.at(inner_flops, above, inner_flops[nested])
        np.add.at(inner_size, above, inner_size[nested])
        inner[above[inner[nested]]] = True
    covered = np.zeros(n, bool)
    for members in tree.levels:  # below a carrier nothing else carries
        nested = members[tree.parent[members] >= 0]
        above = tree.parent[nested]
        covered[nested] = covered[above] | carries[above]
    return carries & ~covered, tree.around(works), covered


def _with_tangents(tree: _Tree, families: NDArray[np.str_], flops: Ints) -> Bools:
    """Return the products that compute beside the equal products inside them: those are the tangents of forward-mode
    derivatives, one for each operand. `torch.func` runs the operator inside once more, which then has three."""
    nested = np.flatnonzero(tree.parent >= 0)
    nested = nested[families[nested] == families[tree.parent[nested]]]
    inside = np.bincount(tree.parent[nested], np.maximum(flops[nested], 0), len(flops))
    return np.asarray(np.isin(families, ("gemm", "conv")) & (flops > 0) & (inside == 2 * flops.astype(float)))


def _same_work(sign: Signature) -> bool:
    """Return whether an operator does the work of the call around it, so that more FLOPs have only one explanation:
    vmap called the function once for a whole batch, which the operator sees and the call does not, or forward-mode
    derivatives repeat the operator for the tangents."""
    if sign.owner is None or sign.event is None:
        return False
    families = family(sign.owner), family(sign.event)
    same_family = families[0] == families[1] and families[0] in ("gemm", "conv", "attention")
    return same_family or find(sign.owner.mod, sign.owner.op) == find(sign.event.mod, sign.event.op)


def _is_sparse(event: Call | None) -> bool:
    """Return whether an event works on sparse tensors itself, whatever it calls for its indices."""
    if event is None or lookup(event).basis != "unknown":
        return False
    return reason_of(event) == SPARSE or (is_sparse(event) and find(event.mod, event.op) is not None)


def _is_stopped(event: Call | None) -> bool:
    return event is not None and any(arg.name == STOPPED for arg in event.args)


def _forward_calls(work: Work, index: Ints, carries: Bools, flops: Ints, size: Ints) -> None:
    """Assign the cost of a forward call that has a formula to its carriers, in proportion to their own FLOPs or bytes.

    A figure that the formula leaves open (the bytes of `to(device)`) comes from the events, and so do all figures of
    a call whose operators alone do more of its work: under vmap it sees one element of the batch, and nothing of what
    forward-mode derivatives add.
    """
    site = work.rows.site[index]
    owners = [sign.owner for sign in work.signatures]
    owned = np.array([owner is not None for owner in owners], bool)[site] & (work.direction[index] == FPROP)
    if not owned.any():
        return
    group = groups(work, index, owners)
    n = int(group.max()) + 1
    # For a stopped call only its events show what ran.
    stopped = np.array([_is_stopped(sign.event) for sign in work.signatures], bool)[site]
    owned &= np.bincount(group, owned & stopped, n)[group] == 0
    if not owned.any():
        return
    lonely = owned & (np.bincount(group, owned & carries, n)[group] == 0)
    team = (owned & carries) | longest(group, work.rows.duration[index], lonely)
    helpers = owned & ~team
    work.flops[index[helpers]], work.bytes[index[helpers]] = 0, 0
    work.basis[index[helpers & (work.basis[index] == NOT_KNOWN)]] = FORMULA
    work.principal[index[team]] = True
    members = np.flatnonzero(team)
    members = members[np.argsort(group[members], kind="stable")]
    weight, other = np.maximum(flops[members], 0), np.maximum(size[members], 0)
    computes = np.bincount(group[members], weight, n)[group[members]] > 0
    own = [lookup(owner) if owner is not None else UNKNOWN for owner in owners]
    table, member_site = figures(own), site[members]
    same = np.array([_same_work(sign) for sign in work.signatures], bool)[member_site]
    exceeds = np.bincount(group[members], weight * same, n)[group[members]] > table[member_site, 0]
    mapped = exceeds & (table[member_site, 0] > 0) & (flops[members] >= 0)
    for column, figure, event_figure in ((work.flops, 0, flops), (work.bytes, 1, size)):
        shares = share(table[member_site, figure], group[members], np.where(computes, weight, other))
        shares = np.where(mapped, event_figure[members], shares)
        column[index[members]] = np.where(table[member_site, figure] < 0, column[index[members]], shares)
    work.basis[index[members]] = np.array([BASES.index(cost.basis) for cost in own], np.int8)[member_site]

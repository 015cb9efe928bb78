# SPDX-License-Identifier: Apache-2.0
"""Common parts of the attribution to kernels and to operator events: the columns being filled, the owner of a row's
cost, the rows of one call, and shares that add up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.marker import EVALUATE, is_builtin_node, is_event
from pyprof.core.model import BASES, BPROP, Bools, Call, Cost, Ints, Rows, Site, Tensor, Value
from pyprof.costs import kernels
from pyprof.costs.cost import UNKNOWN, find, lookup, tensors_of, total

FORMULA, VIEWED, DEFAULT, NOT_KNOWN, APPROXIMATE, RECORDED = range(len(BASES))
ALGORITHMS = (
    "",
    "Winograd",
    "FFT",
)  # algorithms of kernel_table.ALGORITHMS that compute less than the definition


class Signature(NamedTuple):
    """The cost-relevant part of a site: the call that owns the cost, and the operator event."""

    owner: Call | None
    level: int  # 0: the owner is the outermost call
    event: Call | None


def signature(site: Site, launched: bool) -> Signature:
    """Return the signature of a site. The outermost call with a formula owns the cost. The operator inside owns its own
    in a backward that the formula does not have (of a view whose gradient has to be copied), and where autocast
    converts an operand of a product; the product is then one of 16 bits. That is seen only of what was launched:
    operators around others have the types of their inputs. The engine's addition of gradients belongs to no call."""
    event = site.calls[-1] if site.calls and is_event(site.calls[-1]) else None
    event = _of_expanded(site, event)
    if _adds_gradients(site):
        return Signature(None, 0, event)
    users = [call for call in site.calls if not is_event(call)]
    for i, call in enumerate(users):
        cost = lookup(call)
        if cost.basis == "unknown":
            continue
        inside = _autocast_types(call, event) if launched else set()
        lacks = site.direction == BPROP and not parts(cost) and event is not None and event.mod != "autograd"
        if lacks or len(inside) > 1:
            break
        return Signature(_with_type(call, *inside) if inside else call, i, event)
    return Signature(None, 0, event)


def _of_expanded(site: Site, event: Call | None) -> Call | None:
    """Return the event; the division in the backward of a mean with the strides of its operand, where they are not
    recorded. The gradient is expanded to the shape of the mean's input (derivatives.yaml): at least one of its elements
    is read, not all of that shape."""
    if event is None or event.op not in _DIVISIONS or site.direction != BPROP or not event.args:
        return event
    node = next((name for name, _ in reversed(site.seq_names) if is_builtin_node(name)), "")
    tensor = event.args[0].value
    if not node.startswith("MeanBackward") or not isinstance(tensor, Tensor) or tensor.stride is not None:
        return event
    operand = event.args[0]._replace(value=tensor._replace(stride=(0,) * len(tensor.shape)))
    return event._replace(args=(operand, *event.args[1:]))


_DIVISIONS = frozenset(["div", "aten::div"])


def _adds_gradients(site: Site) -> bool:
    """Return whether the autograd engine ran this operator itself: after a node it adds the gradient to that of another
    use of the same tensor, inside the node's evaluation but outside the node."""
    names = [name for name, _ in site.seq_names[-2:]]
    return len(names) == 2 and names[0].startswith(EVALUATE) and names[1] in _ADDITIONS


_ADDITIONS = frozenset(["aten::add", "aten::add_"])
_HALF, _NONE = frozenset({"float16", "bfloat16"}), frozenset[str]()


def _autocast_types(call: Call, event: Call | None) -> set[str | None]:
    """Return the types of an operator's tensors, if it is part of a product under autocast: it works on 16 bits, or
    converts to them, and the product's call has operands in float32. Else empty."""
    if event is None or event.mod == "autograd" or not kernels.FITS.get(family(call), _NONE) & kernels.PRODUCTS:
        return set()
    outside, inside = ({tensor.dtype for arg in one.args for tensor in tensors_of(arg.value)} for one in (call, event))
    return inside if "float32" in outside and inside & _HALF and (inside != outside or len(inside) > 1) else set()


def _with_type(call: Call, dtype: str | None) -> Call:
    """Return a call whose tensors in float32 have another type."""

    def cast(value: Value) -> Value:
        if isinstance(value, Tensor):
            return value._replace(dtype=dtype) if value.dtype == "float32" else value
        return tuple(map(cast, value)) if type(value) is tuple else value

    return call._replace(args=tuple(arg._replace(value=cast(arg.value)) for arg in call.args))


class Work:
    """The columns being filled. -1 is unknown."""

    def __init__(self, rows: Rows, signatures: list[Signature]):
        n = len(rows)
        self.rows = rows
        self.signatures = signatures
        self.flops, self.bytes = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        self.basis = np.full(n, NOT_KNOWN, np.int8)
        self.principal = np.zeros(n, bool)
        self.algorithm = np.zeros(n, np.int8)
        self.calls: list[Call] = []
        numbers: dict[Call, int] = {}
        codes = []
        for site, sign in zip(rows.sites, signatures):
            users = [call for call in site.calls if not is_event(call)]
            call = sign.owner or (sign.event if sign.event is not None else users[0] if users else None)
            if call is None:
                codes.append(-1)
                continue
            if call not in numbers:
                numbers[call] = len(self.calls)
                self.calls.append(call)
            codes.append(numbers[call])
        self.call_of_site = np.array(codes, np.int64)
        self.direction = np.array([site.direction for site in rows.sites], np.int64)[rows.site]


def family(call: Call | None) -> str:
    """Return the family of a call's formula, '' if it has none."""
    match = find(call.mod, call.op) if call is not None else None
    return match[0].family if match is not None else ""


def parts(cost: Cost) -> list[Cost]:
    """Return the parts of a backward that the formula has."""
    return [part for part in (cost.dgrad, cost.wgrad, cost.bgrad) if part is not None]


def add(costs: list[Cost]) -> Cost:
    """Return the sum of costs; unknown if one is unknown, or if there is none.

    >>> add([Cost(1, 2), Cost(3, None)])
    Cost(flops=4, bytes=None)
    """
    if not costs:
        return UNKNOWN
    return Cost(total(c.flops for c in costs), total(c.bytes for c in costs))


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
    whole, remainder = np.divmod(cost, total)
    if int(total.max()) < 2**31:
        assigned = whole * upto + remainder * upto // total  # rest < total, so nothing overflows
    else:
        assigned = np.array([c * u // t for c, u, t in zip(cost.tolist(), upto.tolist(), total.tolist())], np.int64)
    before = np.where(first, 0, np.r_[0, assigned[:-1]])
    return np.where(cost < 0, -1, assigned - before)


def figures(costs: list[Cost]) -> Ints:
    """Return FLOPs and bytes of costs, (n, 2); -1 is unknown."""
    pairs = [[-1 if figure is None else figure for figure in (c.flops, c.bytes)] for c in costs]
    return np.array(pairs, np.int64).reshape(-1, 2)


def groups(work: Work, index: Ints, owners: list[Call | None]) -> Ints:
    """Return a number per row: rows of one call, direction and owner share it; a row without a call has its own.

    If the owner is the operator that launched the rows, each execution of it is one group: a compiled region or a
    function of the user may run many equal ones.
    """
    rows, site = work.rows, work.rows.site[index]
    numbers: dict[Call | None, int] = {}
    owner = np.array([numbers.setdefault(call, len(numbers)) for call in owners], np.int64)[site]
    level = np.array([sign.level for sign in work.signatures], np.int64)[site]
    launched = np.array([sign.owner is None for sign in work.signatures], bool)[site]
    call = executions(rows, index, level, launched)
    code, distinct = pd.factorize(owner)
    group = pd.factorize((call * 4 + work.direction[index]) * len(distinct) + code)[0]
    return np.asarray(group)


def executions(rows: Rows, index: Ints, level: Ints, launched: Bools) -> Ints:
    """Return a number per row in `index`: rows of one execution share it, rows of none have their own.

    The execution is that of the call at `level` of those around the row, 0 for the outermost, or, where `launched`,
    that of the operator that launched the row.
    """
    call = np.where(rows.call.mask()[index], rows.call.values[index], -1 - np.arange(len(index)))
    for depth, inner in enumerate(rows.inner_calls, 1):
        call = np.where((level == depth) & inner.mask()[index], inner.values[index], call)
    launched = launched & rows.launcher.mask()[index]
    return np.asarray(pd.factorize(np.where(launched, 2 * rows.launcher.values[index] + 1, 2 * call))[0])


def longest(group: Ints, duration: Ints, candidates: Bools) -> Bools:
    """Mark the longest candidate of each group, the first of equals."""
    index = np.flatnonzero(candidates)
    order = index[np.lexsort((index, -duration[index], group[index]))]
    out = np.zeros(len(group), bool)
    if len(order):
        out[order[np.r_[True, group[order][1:] != group[order][:-1]]]] = True
    return out

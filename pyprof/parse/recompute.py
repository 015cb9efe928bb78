# SPDX-License-Identifier: Apache-2.0
"""Which operators inside a backward are a forward that runs again, in recordings without calls, which would tell.

A checkpoint runs its forward again inside a node of the backward: inside its own (`CheckpointFunctionBackward`), or
inside the first node that asks for a tensor that was not kept. Python functions tell (torch/utils/checkpoint.py runs
between the node and the operator). Without those numbers tell: an operator is announced with a number where gradients
are recorded, which a checkpoint turns on and a backward leaves off. A backward whose own gradient is wanted
(create_graph=True) records too, but then to its end, while a node that recomputes ends with work that has no number.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof import intervals
from pyprof.marker import ACCUMULATE, CHECKPOINT_BACKWARD, EVALUATE, is_builtin_node
from pyprof.model import Bools, Column, Ints, Trace
from pyprof.parse.paths import BOUNDARY, CALL, OPERATOR, OTHER, Label

_CHECKPOINT = re.compile(r"torch/utils/checkpoint\.py\(")
# Operators that never have a number, whatever is recorded: they make tensors out of nothing.
_MAKES = re.compile(r"::(?:empty|zeros|ones|full|new_|rand|arange|scalar_tensor|item|_local_scalar_dense)")
_NONE = -1


def recomputed(
    trace: Trace,
    thread: Ints,
    start: Ints,
    event: Ints,
    parent: Ints,
    levels: list[Ints],
    code: Ints,
    labels: list[Label],
    seq: Column,
) -> Bools:
    """Per span whether it is an operator directly inside a backward node, and part of a recomputation."""
    out = np.zeros(len(start), bool)
    roles = np.array([label.role for label in labels] or [OTHER], np.int8)
    if (roles == CALL).any() or not (roles == BOUNDARY).any():
        return out
    node, spans = _inside_nodes(parent, levels, roles[code])
    kind = np.array([_kind(label) for label in labels], np.int8)[code[node]]
    spans, node, kind = spans[kind != _NO_NODE], node[kind != _NO_NODE], kind[kind != _NO_NODE]
    if not len(spans):
        return out
    traced = np.isin(thread[spans], np.unique(trace.functions.thread))
    told = _told_by_functions(trace, thread[spans], start[spans], start[node])
    # Versions that print "seq = 0" for "no number" write it as text; events have none then.
    numbered = seq.mask()[spans] & ((seq.values[spans] > 0) | (event[spans] >= 0))
    guessed = _told_by_numbers(spans, node, kind, numbered, code, labels)
    out[spans] = np.where(traced, told, guessed) | (kind == _CHECKPOINTS)
    return out


_NO_NODE, _GENERATED, _OF_USER, _CHECKPOINTS = range(4)


def _kind(label: Label) -> int:
    name = label.name
    if label.role != BOUNDARY or name == ACCUMULATE or name.startswith(EVALUATE):
        return _NO_NODE
    if name == CHECKPOINT_BACKWARD:
        return _CHECKPOINTS
    return _GENERATED if is_builtin_node(name) else _OF_USER


def _inside_nodes(parent: Ints, levels: list[Ints], role: Ints) -> tuple[Ints, Ints]:
    """The operators directly inside backward nodes, whatever ranges of the user are between; and those nodes."""
    above = parent.copy()  # the nearest operator or node
    for members in levels[1:]:
        through = members[role[parent[members]] == OTHER]
        above[through] = above[parent[through]]
    spans = np.flatnonzero((role == OPERATOR) & (above >= 0))
    spans = spans[role[above[spans]] == BOUNDARY]
    return above[spans], spans


def _told_by_functions(trace: Trace, thread: Ints, start: Ints, node_start: Ints) -> Bools:
    """Whether a function of torch/utils/checkpoint.py that began inside the node is around each moment."""
    of, out = trace.functions, np.zeros(len(start), bool)
    named = np.array([_CHECKPOINT.search(text) is not None for text in trace.strings.texts] or [False])
    chosen = np.flatnonzero(named[of.name]) if len(of) else np.empty(0, np.int64)
    asked = dict(intervals.groups(thread))
    for number, places in intervals.groups(of.thread[chosen]):
        here = asked.get(number)
        if here is None:
            continue
        mine = chosen[places]
        mine = mine[intervals.order_by(of.start[mine], -of.end[mine])]
        nesting, _ = intervals.nested(of.start[mine], of.end[mine], trace.slack)
        inner = nesting.innermost(start[here])
        out[here] = (inner >= 0) & (of.start[mine][inner] >= node_start[here])
    return out


def _told_by_numbers(
    spans: Ints, node: Ints, kind: Ints, numbered: Bools, code: Ints, labels: list[Label]
) -> Bools:
    """Operators up to the last that has a number, in nodes that end with one that could have a number and has none.

    A user's autograd.Function may record gradients for reasons of its own: there the function itself runs again.
    """
    makes = np.array([_MAKES.search(label.name) is not None for label in labels], bool)[code[spans]]
    distinct, group = np.unique(node, return_inverse=True)
    first, last, final = np.full(len(distinct), 1 << 62), *(np.full(len(distinct), _NONE) for _ in range(2))
    np.minimum.at(first, group[numbered], spans[numbered])
    np.maximum.at(last, group[numbered], spans[numbered])
    plain = ~numbered & ~makes
    np.maximum.at(final, group[plain], spans[plain])
    recomputes = (last >= 0) & (final > last)
    name, index = np.unique([label.name for label in labels], return_inverse=True)
    itself = {text: place for place, text in enumerate(name.tolist())}
    function = np.array([itself.get(label.name.removesuffix("Backward"), _NONE) for label in labels])
    again = np.zeros(len(distinct), bool)
    again[group[function[code[node]] == index[code[spans]]]] = True
    inside = spans <= last[group]
    inside &= (kind != _OF_USER) | (again[group] & (spans >= first[group]))
    out: Bools = recomputes[group] & inside
    return out

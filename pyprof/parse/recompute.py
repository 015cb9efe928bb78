# SPDX-License-Identifier: Apache-2.0
"""Operators inside a backward that are a forward running again, in recordings without calls.

A checkpoint runs its forward again inside a node of the backward: inside its own (`CheckpointFunctionBackward`), or
inside the first node that asks for a tensor that was not saved. Python functions show it: torch/utils/checkpoint.py
runs between the node and the operator. Without them sequence numbers show it: an operator is announced with a number
while gradients are recorded, which a checkpoint turns on and a backward leaves off. A backward that is itself
differentiated (create_graph=True) records too, but to its end, while a node that recomputes ends with work that has
no number.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.core import intervals
from pyprof.core.marker import ACCUMULATE, CHECKPOINT_BACKWARD, EVALUATE, is_builtin_node
from pyprof.core.model import Bools, Column, Ints, Trace
from pyprof.parse.paths import BOUNDARY, CALL, OPERATOR, OTHER, Label

_CHECKPOINT = re.compile(r"torch/utils/checkpoint\.py\(")
# Operators that never have a number: they create tensors without inputs.
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
    """Return, per span, whether it is an operator directly inside a backward node and part of a recomputation."""
    out = np.zeros(len(start), bool)
    roles = np.array([label.role for label in labels] or [OTHER], np.int8)
    if (roles == CALL).any() or not (roles == BOUNDARY).any():
        return out
    node, inside = _inside_nodes(parent, levels, roles[code])
    kind = np.array([_kind(label) for label in labels], np.int8)[code[node]]
    inside, node, kind = inside[kind != _NO_NODE], node[kind != _NO_NODE], kind[kind != _NO_NODE]
    if not len(inside):
        return out
    traced = np.isin(thread[inside], np.unique(trace.functions.thread))
    by_functions = _recomputed_by_functions(trace, thread[inside], start[inside], start[node])
    # Versions that print "seq = 0" for "no number" write it as text; events have none then.
    numbered = seq.mask()[inside] & ((seq.values[inside] > 0) | (event[inside] >= 0))
    by_numbers = _recomputed_by_numbers(inside, node, kind, numbered, code, labels)
    out[inside] = np.where(traced, by_functions, by_numbers) | (kind == _CHECKPOINTS)
    return out


_NO_NODE, _GENERATED, _USER, _CHECKPOINTS = range(4)


def _kind(label: Label) -> int:
    name = label.name
    if label.role != BOUNDARY or name == ACCUMULATE or name.startswith(EVALUATE):
        return _NO_NODE
    if name == CHECKPOINT_BACKWARD:
        return _CHECKPOINTS
    return _GENERATED if is_builtin_node(name) else _USER


def _inside_nodes(parent: Ints, levels: list[Ints], role: Ints) -> tuple[Ints, Ints]:
    """Return the operators directly inside backward nodes, ignoring ranges of the user in between, and those nodes."""
    above = parent.copy()  # the nearest operator or node
    for members in levels[1:]:
        through = members[role[parent[members]] == OTHER]
        above[through] = above[parent[through]]
    spans = np.flatnonzero((role == OPERATOR) & (above >= 0))
    spans = spans[role[above[spans]] == BOUNDARY]
    return above[spans], spans


def _recomputed_by_functions(trace: Trace, thread: Ints, start: Ints, node_start: Ints) -> Bools:
    """Return whether a function of torch/utils/checkpoint.py that began inside the node encloses each moment."""
    functions, out = trace.functions, np.zeros(len(start), bool)
    named = np.array([_CHECKPOINT.search(text) is not None for text in trace.strings.texts] or [False])
    checkpoints = np.flatnonzero(named[functions.name]) if len(functions) else np.empty(0, np.int64)
    requested = dict(intervals.groups(thread))
    for number, places in intervals.groups(functions.thread[checkpoints]):
        index = requested.get(number)
        if index is None:
            continue
        rows = checkpoints[places]
        rows = rows[intervals.order_by(functions.start[rows], -functions.end[rows])]
        nesting, _ = intervals.nested(functions.start[rows], functions.end[rows], trace.slack)
        inner = nesting.innermost(start[index])
        out[index] = (inner >= 0) & (functions.start[rows][inner] >= node_start[index])
    return out


def _recomputed_by_numbers(
    spans: Ints, node: Ints, kind: Ints, numbered: Bools, code: Ints, labels: list[Label]
) -> Bools:
    """Return the operators up to the last that has a number, in nodes that end with one that could have a number but
    has none.

    A user's autograd.Function may record gradients for reasons of its own: there the function itself must run again.
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
    codes = {text: place for place, text in enumerate(name.tolist())}
    function = np.array([codes.get(label.name.removesuffix("Backward"), _NONE) for label in labels])
    reruns = np.zeros(len(distinct), bool)
    reruns[group[function[code[node]] == index[code[spans]]]] = True
    inside = spans <= last[group]
    inside &= (kind != _USER) | (reruns[group] & (spans >= first[group]))
    out: Bools = recomputes[group] & inside
    return out

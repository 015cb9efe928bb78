# SPDX-License-Identifier: Apache-2.0
"""Pair: the forward of each backward, by forward thread and sequence number, never by order or time.

Autograd numbers the nodes that a thread creates. The operator that creates node N is announced with N, the node's
backward carries N too, and the forward's thread where the recording knows it. Of several operators with one number (a
number is announced to every operator until a node takes it) the last before the backward created the node, or an
operator around that one, unless the forward is not recorded: then the last was merely the one before it. The node's
name tells which: `AddBackward0` and `SqBackward` are of `aten::add_` and `Sq`, `CppNode<...>`, a Function of C++, is
of an operator from outside torch, if of any. Without such an operator the backward has no forward and keeps its own
name. NVTX text has no forward thread. Then every thread that announced N is a candidate: a recomputation inside the
same backward comes first, else the only candidate, else the only one whose name agrees; if that leaves several, the
backward stays unpaired and is counted.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.core import arrow, intervals
from pyprof.core.marker import EVALUATE, is_backward, is_qualified
from pyprof.core.model import BPROP, Ints, Trace
from pyprof.parse.join import Spans
from pyprof.parse.paths import BOUNDARY, OPERATOR

_NONE = -1
_THREADS = 64  # which may have run a forward, where the recording does not say which did
# The end of a node's name after that of its operator: AddBackward0, MeanBackwardAutogradNestedTensor0, TBackward0_copy.
_OF_OPERATOR = re.compile(r"_?[Bb]ackward(?:Autograd[A-Za-z]+)?[0-9]*(?=$|_copy$)")
_UNDECIDED = "backward ranges whose forward could be in several threads (not paired, kept)"


def pair(trace: Trace, spans: Spans) -> Ints:
    """Return, for every backward range with a sequence number, the span of the operator that created its node; -1 for
    all other spans."""
    out = np.full(len(spans), _NONE, np.int32)
    numbered = spans.seq.mask()
    backward = np.flatnonzero((spans.role == BOUNDARY) & numbered)
    direction = np.array([place.direction for place in spans.places], np.int8)[spans.path]
    # Old versions of torch print "seq = 0" for operators that create no node inside a backward.
    creates = (spans.role == OPERATOR) & numbered & ((direction != BPROP) | (spans.seq.values > 0))
    forward = np.flatnonzero(creates)
    if not len(backward) or not len(forward):
        return out
    forward_thread = _forward_threads(trace, spans, backward)
    numbers = arrow.factorize(spans.seq.values[np.r_[forward, backward]])[0].astype(np.int64)
    owner, thread = _candidate_threads(trace, spans, numbers, forward, backward, forward_thread)
    match = _last_before(
        spans,
        np.r_[numbers[: len(forward)], numbers[len(forward) :][owner]],
        forward,
        spans.start[backward[owner]],
        thread,
    )
    match = _creators(spans, backward[owner], match)
    out[backward] = _select_candidates(trace, spans, backward, owner[match >= 0], match[match >= 0])
    return _through_backward(spans, out, direction)


def _forward_threads(trace: Trace, spans: Spans, backward: Ints) -> Ints:
    """Return the index of the thread that ran each forward, -1 where the recording does not say."""
    if not len(trace.ops):
        return np.full(len(backward), _NONE, np.int64)
    event = spans.event[backward]
    recorded = (event >= 0) & trace.ops.forward_thread.mask()[event]
    return np.where(recorded, trace.ops.forward_thread.values[event], _NONE)


def _candidate_threads(
    trace: Trace, spans: Spans, numbers: Ints, forward: Ints, backward: Ints, forward_thread: Ints
) -> tuple[Ints, Ints]:
    """Return ordered pairs of a backward and a thread that may have run its forward: the thread that the recording
    names, otherwise every thread of the process that has an operator with that number."""
    process = np.array([thread.process for thread in trace.threads], np.int64)
    width = int(numbers.max()) + 1
    keys = (process[spans.thread[forward]] * width + numbers[: len(forward)]) * len(process)
    keys += spans.thread[forward]
    keys.sort()
    keys = keys[np.r_[True, keys[1:] != keys[:-1]]]
    owners, threads = keys // len(process), keys % len(process)
    targets = process[spans.thread[backward]] * width + numbers[len(forward) :]
    first = np.searchsorted(owners, targets, side="left")
    count = np.searchsorted(owners, targets, side="right") - first
    too_many = (forward_thread < 0) & (count > _THREADS)
    trace.repair(_UNDECIDED, int(too_many.sum()))
    count[too_many] = 0
    count[forward_thread >= 0] = 1
    owner = np.repeat(np.arange(len(backward)), count)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]
    named = forward_thread[owner]
    return owner, np.where(named >= 0, named, threads[np.minimum(position, len(threads) - 1)])


def _last_before(spans: Spans, numbers: Ints, forward: Ints, time: Ints, thread: Ints) -> Ints:
    """Return the last forward that `thread` ran, that has the number and does not start after `time`; -1 if there is
    none.

    `numbers` holds the numbers of the forwards, then the requested ones. Spans are ordered by thread and start:
    within a number the requested forward is the last whose position in that order is below the position of `time`.
    """
    first, position = np.zeros(len(time), np.int64), np.zeros(len(time), np.int64)
    for number, index in intervals.groups(thread):
        if number in spans.nests:
            begin, nest = spans.nests[number]
            first[index] = begin
            position[index] = begin + nest.begun(time[index])
    n = len(spans)
    keys = np.sort(numbers[: len(forward)] * n + forward)
    base = numbers[len(forward) :] * n
    last = keys[np.searchsorted(keys, base + position) - 1]  # of none before it any: its number is larger
    match = last - base
    return np.where((match >= first) & (match < position), match, _NONE)


def _creators(spans: Spans, backward: Ints, match: Ints) -> Ints:
    """Return, per backward, the innermost of the operator `match` and the operators around it with the same number
    that can have created the node by their names; -1 if none can."""
    out, pending = np.full(len(match), _NONE, np.int64), np.flatnonzero(match >= 0)
    at = match[pending]
    number = spans.seq.values[at]
    node = spans.label_of_path[spans.path[backward[pending]]]
    while len(pending):
        pairs = node * len(spans.labels) + spans.label_of_path[spans.path[at]]
        distinct, code = np.unique(pairs, return_inverse=True)
        names = [
            tuple(spans.labels[label].name for label in divmod(pair, len(spans.labels))) for pair in distinct.tolist()
        ]
        fits = np.array([_creates(node_, operator) for node_, operator in names])[code]
        fits &= (spans.role[at] == OPERATOR) & spans.seq.mask()[at] & (spans.seq.values[at] == number)
        out[pending[fits]] = at[fits]
        at = spans.parent[at]
        higher = ~fits & (at >= 0)
        pending, at, number, node = pending[higher], at[higher], number[higher], node[higher]
    return out


def _creates(node: str, operator: str) -> bool:
    """Return whether an operator of this name can have created a node of this name.

    >>> cpp = "torch::autograd::CppNode<vision::ops::ROIAlignFunction>"
    >>> _creates("NllLossBackward0", "aten::nll_loss_forward"), _creates("SqBackward", "aten::add")
    (True, False)
    >>> _creates(cpp, "torchvision::roi_align"), _creates(cpp, "aten::contiguous")
    (True, False)
    """
    if _OF_OPERATOR.search(node):
        return node_name(node) == operator_name(operator)
    return is_qualified(operator) and not operator.startswith("aten::")


def _select_candidates(trace: Trace, spans: Spans, backward: Ints, owner: Ints, candidate: Ints) -> Ints:
    """Return one candidate per backward. `owner` is the backward that each candidate belongs to, in ascending order."""
    selection = np.full(len(backward), _NONE, np.int64)
    selection[owner] = candidate
    unpaired = 0
    for i in np.flatnonzero(np.bincount(owner, minlength=len(backward)) > 1).tolist():
        first, last = np.searchsorted(owner, (i, i + 1))
        selection[i] = _decide(spans, int(backward[i]), candidate[first:last].tolist())
        unpaired += int(selection[i] == _NONE)
    trace.repair(_UNDECIDED, unpaired)
    return selection


def _decide(spans: Spans, backward: int, candidates: list[int]) -> int:
    outer = _outer_backward(spans, backward)
    for candidate in candidates:
        same_thread = spans.thread[candidate] == spans.thread[backward]
        if outer >= 0 and same_thread and spans.start[candidate] >= spans.start[outer]:
            return candidate
    name = node_name(_name(spans, backward))
    agreeing = [c for c in candidates if operator_name(_name(spans, c)) == name]
    return agreeing[0] if len(agreeing) == 1 else _NONE


def _outer_backward(spans: Spans, span: int) -> int:
    """Return the backward range that encloses this one, not counting the engine's range around the same node."""
    own = node_name(_name(spans, span))
    above = int(spans.parent[span])
    while above >= 0:
        name = _name(spans, above)
        if is_backward(name) and node_name(name) != own:
            return above
        above = int(spans.parent[above])
    return _NONE


def _name(spans: Spans, span: int) -> str:
    return spans.labels[int(spans.label_of_path[spans.path[span]])].name


def node_name(name: str) -> str:
    """Normalize the name of a node: `autograd::engine::evaluate_function: NativeLayerNormBackward0` ->
    `nativelayernorm`."""
    name = _OF_OPERATOR.sub("", name.removeprefix(EVALUATE))
    return name.replace("_", "").lower().removesuffix("forward")


def operator_name(name: str) -> str:
    """Normalize the name of an operator for comparison with `node_name`: `aten::native_layer_norm` ->
    `nativelayernorm`, `aten::nll_loss_forward` -> `nllloss`, which torch names NllLossBackward0."""
    return name.rpartition("::")[2].replace("_", "").lower().removesuffix("forward")


def _through_backward(spans: Spans, out: Ints, direction: Ints) -> Ints:
    """Assign a node that was created inside a backward (double backward) to the forward of that backward."""
    for _ in range(8):  # each round climbs one order of differentiation
        inner = np.flatnonzero(out >= 0)
        inner = inner[direction[out[inner]] == BPROP]
        if not len(inner):
            break
        boundary = spans.boundary[out[inner]]
        climbed = np.where(boundary >= 0, out[boundary], _NONE)
        out[inner] = np.where(boundary == inner, _NONE, climbed)
    return out

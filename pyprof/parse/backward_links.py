# SPDX-License-Identifier: Apache-2.0
"""Pair: the forward of each backward, by forward thread and sequence number, never by order or time.

Autograd numbers the nodes that a thread creates. The operator that creates node N is announced with N, the node's
backward carries N too, and the forward's thread where the recording knows it. Of several operators with one number
(a number is announced to every operator until a node takes it) the last before the backward created the node.
NVTX text has no forward thread. Then every thread that announced N is a candidate: a recomputation inside the same
backward comes first, else the only candidate, else the only one whose name agrees; if that leaves several, the
backward stays unpaired and is counted.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof import arrow, intervals
from pyprof.marker import EVALUATE, is_backward
from pyprof.model import BPROP, Ints, Trace
from pyprof.parse.join import Spans
from pyprof.parse.paths import BOUNDARY, OPERATOR

_NONE = -1
_THREADS = 64  # which may have run a forward, where the recording does not say which did
_UNDECIDED = "backward ranges whose forward could be in several threads (not paired)"


def pair(trace: Trace, found: Spans) -> Ints:
    """For every backward range with a number the span of the operator that created its node; -1 for all else."""
    out = np.full(len(found), _NONE, np.int32)
    numbered = found.seq.mask()
    backward = np.flatnonzero((found.role == BOUNDARY) & numbered)
    direction = np.array([place.direction for place in found.places], np.int8)[found.path]
    # Old versions of torch print "seq = 0" for operators that create no node inside a backward.
    creates = (found.role == OPERATOR) & numbered & ((direction != BPROP) | (found.seq.values > 0))
    forward = np.flatnonzero(creates)
    if not len(backward) or not len(forward):
        return out
    forward_thread = _forward_threads(trace, found, backward)
    numbers = arrow.factorize(found.seq.values[np.r_[forward, backward]])[0].astype(np.int64)
    of, thread = _candidate_threads(trace, found, numbers, forward, backward, forward_thread)
    match = _last_before(
        found,
        np.r_[numbers[: len(forward)], numbers[len(forward) :][of]],
        forward,
        found.start[backward[of]],
        thread,
    )
    out[backward] = _choose(trace, found, backward, of[match >= 0], match[match >= 0])
    return _through_backward(found, out, direction)


def _forward_threads(trace: Trace, found: Spans, backward: Ints) -> Ints:
    """Index of the thread that ran the forward, -1 where the recording does not say."""
    if not len(trace.ops):
        return np.full(len(backward), _NONE, np.int64)
    event = found.event[backward]
    known = (event >= 0) & trace.ops.forward_thread.mask()[event]
    return np.where(known, trace.ops.forward_thread.values[event], _NONE)


def _candidate_threads(
    trace: Trace, found: Spans, numbers: Ints, forward: Ints, backward: Ints, forward_thread: Ints
) -> tuple[Ints, Ints]:
    """Pairs of a backward and a thread that may have run its forward, ordered so: the thread that the recording names,
    else every one of the process that has an operator of that number."""
    process = np.array([thread.process for thread in trace.threads], np.int64)
    width = int(numbers.max()) + 1
    keys = (process[found.thread[forward]] * width + numbers[: len(forward)]) * len(process)
    keys += found.thread[forward]
    keys.sort()
    keys = keys[np.r_[True, keys[1:] != keys[:-1]]]
    owners, threads = keys // len(process), keys % len(process)
    wanted = process[found.thread[backward]] * width + numbers[len(forward) :]
    first = np.searchsorted(owners, wanted, side="left")
    count = np.searchsorted(owners, wanted, side="right") - first
    several = (forward_thread < 0) & (count > _THREADS)
    trace.drop(_UNDECIDED, int(several.sum()))
    count[several] = 0
    count[forward_thread >= 0] = 1
    of = np.repeat(np.arange(len(backward)), count)
    place = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
    named = forward_thread[of]
    return of, np.where(named >= 0, named, threads[np.minimum(place, len(threads) - 1)])


def _last_before(found: Spans, numbers: Ints, forward: Ints, time: Ints, thread: Ints) -> Ints:
    """The last forward that `thread` ran, has the number and does not start after `time`; -1 where there is none.

    `numbers` are those of the forwards, then those asked for. Spans are ordered by thread and start: within a number
    the forward asked for is the last whose place in that order is below the one that `time` has there.
    """
    first, place = np.zeros(len(time), np.int64), np.zeros(len(time), np.int64)
    for number, here in intervals.groups(thread):
        if number in found.nests:
            begin, nest = found.nests[number]
            first[here] = begin
            place[here] = begin + nest.begun(time[here])
    n = len(found)
    keys = np.sort(numbers[: len(forward)] * n + forward)
    least = numbers[len(forward) :] * n
    last = keys[np.searchsorted(keys, least + place) - 1]  # of none before it any: its number is larger
    match = last - least
    return np.where((match >= first) & (match < place), match, _NONE)


def _choose(trace: Trace, found: Spans, backward: Ints, of: Ints, candidate: Ints) -> Ints:
    """One candidate per backward; `of` is the backward that each is a candidate of, ascending."""
    chosen = np.full(len(backward), _NONE, np.int64)
    chosen[of] = candidate
    unpaired = 0
    for i in np.flatnonzero(np.bincount(of, minlength=len(backward)) > 1).tolist():
        first, last = np.searchsorted(of, (i, i + 1))
        chosen[i] = _decide(found, int(backward[i]), candidate[first:last].tolist())
        unpaired += int(chosen[i] == _NONE)
    trace.drop(_UNDECIDED, unpaired)
    return chosen


def _decide(found: Spans, backward: int, candidates: list[int]) -> int:
    outer = _outer_backward(found, backward)
    for candidate in candidates:
        same_thread = found.thread[candidate] == found.thread[backward]
        if outer >= 0 and same_thread and found.start[candidate] >= found.start[outer]:
            return candidate
    name = node_name(_name(found, backward))
    agreeing = [c for c in candidates if operator_name(_name(found, c)) == name]
    return agreeing[0] if len(agreeing) == 1 else _NONE


def _outer_backward(found: Spans, span: int) -> int:
    """The backward range that encloses this one, not counting the engine's range around the same node."""
    own = node_name(_name(found, span))
    above = int(found.parent[span])
    while above >= 0:
        name = _name(found, above)
        if is_backward(name) and node_name(name) != own:
            return above
        above = int(found.parent[above])
    return _NONE


def _name(found: Spans, span: int) -> str:
    return found.labels[int(found.label_of_path[found.path[span]])].name


def node_name(name: str) -> str:
    """`autograd::engine::evaluate_function: NativeLayerNormBackward0` -> `nativelayernorm`."""
    return re.sub(r"_?[Bb]ackward[0-9]*$", "", name.removeprefix(EVALUATE)).replace("_", "").lower()


def operator_name(name: str) -> str:
    """`aten::native_layer_norm` -> `nativelayernorm`, comparable with `node_name`."""
    return name.rpartition("::")[2].replace("_", "").lower()


def _through_backward(found: Spans, out: Ints, direction: Ints) -> Ints:
    """A node created inside a backward (double backward) belongs to the forward of that backward."""
    for _ in range(8):  # each round climbs one order of differentiation
        inner = np.flatnonzero(out >= 0)
        inner = inner[direction[out[inner]] == BPROP]
        if not len(inner):
            break
        boundary = found.boundary[out[inner]]
        climbed = np.where(boundary >= 0, out[boundary], _NONE)
        out[inner] = np.where(boundary == inner, _NONE, climbed)
    return out

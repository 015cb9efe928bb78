# SPDX-License-Identifier: Apache-2.0
"""Device bounds of iterations: an iteration lasts until the work that it launched has ended, as in the TensorBoard
plugin of torch.profiler.

Iteration i is [max(end of the one before, its start on the host), max(its end on the host, the last end on a device
of what it launched)]. The first one starts no earlier than the last end of events that no iteration launched and that
ended when its own first event began, or before, unless it is the whole recording (`aggregation`); events without length
end nothing. Iterations touch: their sum is the window. Where none launched anything, the bounds are those of the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import Bools, Ints

_CUT_OFF = 0.8  # of the events of the iteration before: a last one with fewer is a part of one


class Bounds(NamedTuple):
    """Device bounds of the iterations of a worker, ns, and which are cut off; `known`: whether any launched work."""

    start: Ints
    end: Ints
    cut_off: Bools
    known: bool


class Work(NamedTuple):
    """Events on the devices of a worker, by launch: times in ns, and whether their launch was recorded."""

    start: Ints
    end: Ints
    launched: Bools


def bounds(start: Ints, end: Ints, low: Ints, high: Ints, work: Work) -> Bounds:
    """Return the device bounds of the iterations of a worker. `start`, `end`: on the host, ns. `low`, `high`: places of
    the work that each launched, low <= place < high."""
    high = np.minimum(high, np.r_[low[1:], len(work.start)])
    launched = np.r_[0, np.cumsum(work.launched)]
    count = np.where(high > low, launched[high] - launched[low], 0)
    if not count.any():
        return Bounds(start, end, np.zeros(len(start), bool), False)
    reached = end.copy()
    for one in np.flatnonzero(count).tolist():
        own = slice(low[one], high[one])
        reached[one] = max(end[one], work.end[own][work.launched[own]].max())
    stop: Ints = np.maximum.accumulate(reached)
    begin: Ints = np.maximum(start, np.r_[_before(work, count, low, high, int(start[0])), stop[:-1]])
    return Bounds(begin, stop, _cut_off(count), True)


def _before(work: Work, count: Ints, low: Ints, high: Ints, start: int) -> int:
    """Return when the device had finished what ran before the first iteration: events that no iteration launched.
    `low`, `high`: places of each iteration's events, of which `count` were launched."""
    if not count[0]:
        return start
    own = slice(low[0], high[0])
    first = work.start[own][work.launched[own]].min()
    outside = ~work.launched
    edges = np.r_[0, np.maximum.accumulate(np.where(high > low, high, 0)), len(outside)]
    for begin, end in zip(edges[:-1].tolist(), np.r_[low, len(outside)].tolist()):
        outside[begin:end] = True
    outside &= (work.end <= first) & (work.end > work.start)
    return max(start, int(work.end[outside].max())) if outside.any() else start


def _cut_off(count: Ints) -> Bools:
    """Return which iterations are cut off: last ones without events, and the one before if it has far fewer than its
    predecessor."""
    last = int(np.flatnonzero(count)[-1])
    out = np.arange(len(count)) > last
    out[last] = last > 0 and count[last] < _CUT_OFF * count[last - 1]
    return out

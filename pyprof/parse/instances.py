# SPDX-License-Identifier: Apache-2.0
"""Instances: every execution of an operator, as DLProf counts them, with or without work on a GPU.

Forward, recomputation and optimizer: the outermost call on its thread is one instance; an operator event that no call
was recorded around is one too. Backward: the nodes that one call left on the tape are one instance (`AddmmBackward0`
and `TBackward0` of a linear), though other nodes run between them; a second backward through the same tape is a second
instance. What runs inside another instance (a checkpoint's recomputation, in the backward) is an instance of its own,
and its time is not the other's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof import arrow, intervals
from pyprof.marker import EVALUATE, is_compiled
from pyprof.model import Column, Ints, Site, Trace
from pyprof.parse.join import Spans, layers_outside
from pyprof.parse.paths import BOUNDARY, OPERATOR, is_free, site
from pyprof.parse.rows import self_times

_NONE = -1


@dataclass
class Instances:
    """One row each, in order of process, start, thread. `cpu` is the time in the instance's ranges, less that of
    instances inside them, missing for those that a graph's replay gives back; `end` the end of the last. `forward` is
    the instance whose backward this is. `of_span` gives the instance of every span, -1 outside of all."""

    process: Ints
    thread: Ints
    start: Ints
    end: Ints
    cpu: Column
    seq: Column
    forward: Ints
    site: Ints
    sites: list[Site]
    of_span: Ints

    def __len__(self) -> int:
        return len(self.start)


def instances(trace: Trace, found: Spans, forward: Ints) -> Instances:
    """Group the spans of a recording. `forward`: the span that each backward range is paired with (`pair`)."""
    if not len(found):
        none = np.empty(0, np.int64)
        return Instances(none, none, none, none, Column(none), Column(none), none, none, [], none)
    root_of = _roots(found)
    is_root = np.zeros(len(found), bool)
    is_root[root_of[root_of >= 0]] = True
    roots = np.flatnonzero(is_root)
    own = self_times(found.start, found.end, found.parent, is_root)[roots]
    node = found.boundary[roots]
    origin = np.where(node >= 0, forward[roots], _NONE)
    forward_root = np.where(origin >= 0, root_of[origin], _NONE)
    # An operator inside the backward of a compiled region has that region's place, but is not its backward alone.
    origin = np.where((node >= 0) & (found.role[roots] == OPERATOR), forward[node], origin)
    group = _merge(found, roots, forward_root)
    # Of the roots of a group the first to start stands for it.
    process = np.array([thread.process for thread in trace.threads] or [0], np.int32)[found.thread[roots]]
    order = intervals.order_by(found.start[roots], found.thread[roots])
    order = order[np.argsort(process[order], kind="stable")]
    number, first = arrow.factorize(group[order])
    at = np.empty(len(roots), np.int32)
    at[order] = number  # instance of each root
    n = len(first)
    lead = np.empty(n, np.int64)
    lead[number[::-1]] = order[::-1]
    end, cpu = np.zeros(n, np.int64), np.zeros(n, np.int64)
    np.maximum.at(end, at, found.end[roots])
    np.add.at(cpu, at, own)
    of_root = np.full(len(found) + 1, _NONE, np.int32)
    of_root[roots] = at
    leads = roots[lead]
    paired = forward_root[lead]
    codes, sites = _sites(trace, found, leads, origin[lead])
    return Instances(
        process=process[lead], thread=found.thread[leads], start=found.start[leads], end=end,
        cpu=Column(cpu, ~np.isin(found.thread[leads], replayed_threads(trace))),
        seq=found.seq.take(leads), forward=of_root[paired], site=codes, sites=sites,
        of_span=of_root[root_of],
    )  # fmt: skip


def replayed_threads(trace: Trace) -> Ints:
    """Threads of operators that a graph's replay gives back (`graphs`): their times mean nothing but an order."""
    placed = trace.gpu.op[trace.gpu.op >= 0]
    threads: Ints = np.unique(trace.ops.thread[placed])
    return threads


def _roots(found: Spans) -> Ints:
    """The span that stands for the instance around each span, -1 outside of all."""
    outermost = _outermost_operator(found)
    out = np.where(found.call >= 0, found.call, outermost)
    inside = np.flatnonzero(found.boundary >= 0)
    node = found.boundary[inside]
    # The engine's range around a node and the node's own are one.
    engine = np.array([label.name.startswith(EVALUATE) for label in found.labels] or [False], bool)
    above = found.parent[node]
    around = (above >= 0) & (found.role[above] == BOUNDARY) & engine[found.label_of_path[found.path[above]]]
    around &= ~engine[found.label_of_path[found.path[node]]]
    compiled = np.array([is_compiled(label.name) for label in found.labels] or [False], bool)
    apart = compiled[found.label_of_path[found.path[node]]] & (outermost[inside] >= 0)
    out[inside] = np.where(apart, outermost[inside], np.where(around, above, node))
    return out


def _outermost_operator(found: Spans) -> Ints:
    """The outermost operator of the dispatcher around each span. A range that torch's own Python code announces like an
    operator (FSDP, DataParallel) and a compiled region count only where there is none: what runs inside are operators
    of their own."""
    labels = found.label_of_path[found.path]
    named = np.array([is_free(label) for label in found.labels] or [False])
    compiled = np.array([is_compiled(label.name) for label in found.labels] or [False])
    free = (named[labels] & ~found.seq.mask()) | compiled[labels]
    out = found.operator.copy()
    spans = np.flatnonzero((out >= 0) & free[out])
    at, best = spans, np.full(len(spans), _NONE, np.int64)
    while len(spans):
        best = np.where((found.role[at] == OPERATOR) & ~free[at], at, best)
        inside = at != out[spans]  # up to the outermost
        done = ~inside
        out[spans[done]] = np.where(best[done] >= 0, best[done], out[spans[done]])
        spans, at, best = spans[inside], found.parent[at[inside]], best[inside]
    return out


def _merge(found: Spans, roots: Ints, forward_root: Ints) -> Ints:
    """A number per root, equal for the nodes of one call's backward: each node of the call once."""
    group = np.arange(len(roots), dtype=np.int64)
    paired = np.flatnonzero(forward_root >= 0)
    if not len(paired):
        return group
    spans = roots[paired]
    paired = paired[np.argsort(found.start[spans], kind="stable")]
    spans = roots[paired]
    import pandas as pd

    keys = pd.DataFrame(
        {
            "call": forward_root[paired],
            "seq": np.where(found.seq.mask()[spans], found.seq.values[spans], _NONE),
        }
    )
    keys["turn"] = keys.groupby(["call", "seq"], sort=False).cumcount()
    merged = keys.groupby(["call", "turn"], sort=False).ngroup().to_numpy()
    group[paired] = len(roots) + merged
    return group


def _sites(trace: Trace, found: Spans, leads: Ints, origin: Ints) -> tuple[Ints, list[Site]]:
    """What is known of each instance: a Site per distinct (path, path of the forward, names from outside)."""
    outside, layers = layers_outside(trace, found.thread[leads], found.start[leads])
    path = found.path[leads].astype(np.int64)
    forward_path = np.where(origin >= 0, found.path[origin], _NONE)
    n_paths, n_sets = len(found.places) + 1, len(layers)
    code, keys = arrow.factorize((path * n_paths + forward_path + 1) * n_sets + outside)
    sites = []
    for key in keys.tolist():
        pair_key, names = divmod(key, n_sets)
        own, first = divmod(pair_key, n_paths)
        sites.append(site(found.places[own], found.places[first - 1] if first else None, layers[names]))
    return code, sites

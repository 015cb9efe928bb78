# SPDX-License-Identifier: Apache-2.0
"""Instances: every execution of an operator, as DLProf counts them, with or without work on a GPU.

Forward, recomputation and optimizer: the outermost call on its thread is one instance; so is an operator event
without a recorded call around it. Backward: the nodes that one call left on the tape are one instance
(`AddmmBackward0` and `TBackward0` of a linear), even if other nodes run between them; a second backward through the
same tape is a second instance. Whatever runs inside another instance (a checkpoint's recomputation, in the backward)
is an instance of its own, and its time is not counted in the outer one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.core import arrow, intervals
from pyprof.core.marker import EVALUATE, is_compiled
from pyprof.core.model import Column, Ints, Site, Trace
from pyprof.parse.join import Spans, layers_outside
from pyprof.parse.paths import BOUNDARY, OPERATOR, is_free, site
from pyprof.parse.rows import self_times

_NONE = -1


@dataclass
class Instances:
    """One row per instance, ordered by process, start, thread. `cpu` is the time in the instance's ranges, less that of
    instances inside them, missing for those that a graph's replay gives back; `end` is the end of the last range.
    `forward` is the instance whose backward this is. `of_span` gives the instance of every span, -1 outside of all.
    """

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


def instances(trace: Trace, spans: Spans, forward: Ints) -> Instances:
    """Group the spans of a recording. `forward` is the span that each backward range is paired with (`pair`)."""
    if not len(spans):
        none = np.empty(0, np.int64)
        return Instances(none, none, none, none, Column(none), Column(none), none, none, [], none)
    root_of = _roots(spans)
    is_root = np.zeros(len(spans), bool)
    is_root[root_of[root_of >= 0]] = True
    roots = np.flatnonzero(is_root)
    times = self_times(spans.start, spans.end, spans.parent, is_root)[roots]
    node = spans.boundary[roots]
    origin = np.where(node >= 0, forward[roots], _NONE)
    forward_root = np.where(origin >= 0, root_of[origin], _NONE)
    # A backward has the name and the place of the whole forward, not of the operator that created its first node.
    origin = np.where(forward_root >= 0, forward_root, origin)
    # An operator inside the backward of a compiled region has that region's place, but is not the whole backward.
    origin = np.where((node >= 0) & (spans.role[roots] == OPERATOR), forward[node], origin)
    group = _merge(spans, roots, forward_root)
    # The first root to start represents its group.
    process = np.array([thread.process for thread in trace.threads] or [0], np.int32)[spans.thread[roots]]
    order = intervals.order_by(spans.start[roots], spans.thread[roots])
    order = order[np.argsort(process[order], kind="stable")]
    number, first = arrow.factorize(group[order])
    instance_of_root = np.empty(len(roots), np.int32)
    instance_of_root[order] = number  # instance of each root
    n = len(first)
    lead = np.empty(n, np.int64)
    lead[number[::-1]] = order[::-1]
    end, cpu = np.zeros(n, np.int64), np.zeros(n, np.int64)
    np.maximum.at(end, instance_of_root, spans.end[roots])
    np.add.at(cpu, instance_of_root, times)
    of_root = np.full(len(spans) + 1, _NONE, np.int32)
    of_root[roots] = instance_of_root
    leads = roots[lead]
    paired = forward_root[lead]
    codes, sites = _sites(trace, spans, leads, origin[lead])
    return Instances(
        process=process[lead], thread=spans.thread[leads], start=spans.start[leads], end=end,
        cpu=Column(cpu, ~np.isin(spans.thread[leads], replayed_threads(trace))),
        seq=spans.seq.take(leads), forward=of_root[paired], site=codes, sites=sites,
        of_span=of_root[root_of],
    )  # fmt: skip


def replayed_threads(trace: Trace) -> Ints:
    """Return the threads of operators that a graph's replay gives back (`graph_replays`): of their times only the order
    has a meaning."""
    placed = trace.gpu.op[trace.gpu.op >= 0]
    threads: Ints = np.unique(trace.ops.thread[placed])
    return threads


def _roots(spans: Spans) -> Ints:
    """Return the span that represents the instance around each span, -1 outside of all."""
    outermost = _outermost_operator(spans)
    out = np.where(spans.call >= 0, spans.call, outermost)
    inside = np.flatnonzero(spans.boundary >= 0)
    node = spans.boundary[inside]
    # The engine's range around a node and the node's own range are one.
    engine = np.array([label.name.startswith(EVALUATE) for label in spans.labels] or [False], bool)
    above = spans.parent[node]
    around = (above >= 0) & (spans.role[above] == BOUNDARY) & engine[spans.label_of_path[spans.path[above]]]
    around &= ~engine[spans.label_of_path[spans.path[node]]]
    compiled = np.array([is_compiled(label.name) for label in spans.labels] or [False], bool)
    apart = compiled[spans.label_of_path[spans.path[node]]] & (outermost[inside] >= 0)
    out[inside] = np.where(apart, outermost[inside], np.where(around, above, node))
    return out


def _outermost_operator(spans: Spans) -> Ints:
    """Return the outermost operator of the dispatcher around each span. A range that torch's own Python code announces
    like an operator (FSDP, DataParallel) and a compiled region count only if there is none: the operators inside
    them are instances of their own."""
    labels = spans.label_of_path[spans.path]
    named = np.array([is_free(label) for label in spans.labels] or [False])
    compiled = np.array([is_compiled(label.name) for label in spans.labels] or [False])
    free = (named[labels] & ~spans.seq.mask()) | compiled[labels]
    out = spans.operator.copy()
    pending = np.flatnonzero((out >= 0) & free[out])
    at, best = pending, np.full(len(pending), _NONE, np.int64)
    while len(pending):
        best = np.where((spans.role[at] == OPERATOR) & ~free[at], at, best)
        inside = at != out[pending]  # up to the outermost
        finished = ~inside
        out[pending[finished]] = np.where(best[finished] >= 0, best[finished], out[pending[finished]])
        pending, at, best = pending[inside], spans.parent[at[inside]], best[inside]
    return out


def _merge(spans: Spans, roots: Ints, forward_root: Ints) -> Ints:
    """Return a number per root, equal for the nodes of one call's backward. Each node of the call occurs once."""
    group = np.arange(len(roots), dtype=np.int64)
    paired = np.flatnonzero(forward_root >= 0)
    if not len(paired):
        return group
    members = roots[paired]
    paired = paired[np.argsort(spans.start[members], kind="stable")]
    members = roots[paired]
    import pandas as pd

    keys = pd.DataFrame(
        {
            "call": forward_root[paired],
            "seq": np.where(spans.seq.mask()[members], spans.seq.values[members], _NONE),
        }
    )
    keys["turn"] = keys.groupby(["call", "seq"], sort=False).cumcount()
    merged = keys.groupby(["call", "turn"], sort=False).ngroup().to_numpy()
    group[paired] = len(roots) + merged
    return group


def _sites(trace: Trace, spans: Spans, leads: Ints, origin: Ints) -> tuple[Ints, list[Site]]:
    """Return the site of each instance: a code, and one Site per distinct (path, path of the forward, names from
    outside)."""
    outside, layers = layers_outside(trace, spans.thread[leads], spans.start[leads])
    path = spans.path[leads].astype(np.int64)
    forward_path = np.where(origin >= 0, spans.path[origin], _NONE)
    n_paths, n_sets = len(spans.places) + 1, len(layers)
    code, keys = arrow.factorize((path * n_paths + forward_path + 1) * n_sets + outside)
    sites = []
    for key in keys.tolist():
        pair_key, names = divmod(key, n_sets)
        own, first = divmod(pair_key, n_paths)
        sites.append(site(spans.places[own], spans.places[first - 1] if first else None, layers[names]))
    return code, sites

# SPDX-License-Identifier: Apache-2.0
"""Rows: one per kernel, or per operator event where nothing ran on a GPU, in output order.

A row's duration is the time on the device. For an operator event it is the event's own time: its duration less that of
the operator events inside it, so the rows of a thread add up to the time it spent in operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyprof.core import arrow, intervals
from pyprof.core.errors import FormatError
from pyprof.core.marker import EVALUATE
from pyprof.core.model import KERNELS, OPERATOR, Bools, Column, Ints, Rows, Site, Stack, Trace
from pyprof.core.symbols import demangle, short_name
from pyprof.parse.backward_links import pair
from pyprof.parse.join import Spans, layers_outside, link, nest_spans
from pyprof.parse.paths import Place, site, with_stack

_NONE = -1


class Linked(NamedTuple):
    """Rows with their links. Per row: the innermost span around it, its launch, its GPU event, for a copy or set the
    bytes and the kinds of memory, for a kernel the recorded occupancy. Per API call: the innermost span around it,
    -1 for none, and in `launch_ranges` the index into `ranges`, the paths of the user's ranges; 0 is none."""

    rows: Rows
    row_span: Ints
    row_launch: Ints
    row_gpu: Ints
    copied: Column
    copied_from: Column
    copied_to: Column
    occupancy: Column
    launch_span: Ints
    launch_ranges: Ints
    ranges: list[tuple[str, ...]]

    def without_calls(self) -> Linked:
        """Return only the links of the rows to their launches and GPU events."""
        none = np.empty(0, np.int32)
        return self._replace(row_span=none, launch_span=none, launch_ranges=none)


def rows(trace: Trace, memory: bool = False) -> Rows:
    """Join and pair a recording. `memory` includes copies and sets. Raises FormatError if nothing was recorded."""
    trace = replace(trace, lost=dict(trace.lost))  # losses are reported by the rows
    spans = nest_spans(trace)
    forward = pair(trace, spans)
    if len(trace.gpu):
        return _gpu_rows(trace, spans, forward, memory)[0]
    return _operator_rows(trace, spans, forward)[0]


def linked(trace: Trace, spans: Spans, forward: Ints, on_gpu: bool = False) -> Linked:
    """Return rows of kernels, copies and sets with their links; of a recording without any those of its operators,
    unless `on_gpu`. Raises FormatError if nothing was recorded."""
    launch_span = spans.enclosing(trace.launches.thread, trace.launches.start)
    around = _user_ranges(spans, launch_span)
    if not len(trace.gpu) and not on_gpu:
        table, span, launch = _operator_rows(trace, spans, forward)
        none = Column.missing(len(table))
        no_event = np.full(len(table), _NONE)
        return Linked(table, span, launch, no_event, none, none, none, none, launch_span, *around)
    table, span, launch, gpu = _gpu_rows(trace, spans, forward, True)
    gpu_events = trace.gpu
    copied, source, target = (
        gpu_events.bytes.take(gpu),
        gpu_events.source_kind.take(gpu),
        gpu_events.target_kind.take(gpu),
    )
    occupancy = gpu_events.occupancy.take(gpu)
    return Linked(table, span, launch, gpu, copied, source, target, occupancy, launch_span, *around)


def _user_ranges(spans: Spans, span: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
    """Return the number of the path of the user's ranges around each span, and the paths. 0, the empty path, is no
    range."""
    numbers: dict[tuple[str, ...], int] = {(): 0}
    of_path = [numbers.setdefault((*place.ranges, *place.layer), len(numbers)) for place in spans.places]
    path = np.where(span >= 0, np.r_[spans.path, 0][span], 0)  # 0 is the empty path
    return np.array(of_path or [0], np.int32)[path], list(numbers)


def _gpu_rows(trace: Trace, spans: Spans, forward: Ints, memory: bool) -> tuple[Rows, Ints, Ints, Ints]:
    gpu, launches = trace.gpu, trace.launches
    events = np.arange(len(gpu), dtype=np.int32) if memory else np.flatnonzero(np.isin(gpu.kind, KERNELS))
    if not len(events) and not memory:
        raise FormatError(
            f"{trace.path}: no kernels found, {len(gpu)} copies and sets{trace.losses()}. --memory lists those."
        )
    process_of_thread = np.array([thread.process for thread in trace.threads], np.int64)
    launch = link(gpu, launches, process_of_thread)[events]
    name, names, short_names, rank = _names(trace, gpu.name[events])
    pid = np.array([process.pid for process in trace.processes] + [-1], np.int64)
    order = intervals.order_by(
        gpu.start[events],
        lambda index: _key(gpu.device.take(events[index])),
        lambda index: _key(gpu.stream.take(events[index])),
        lambda index: pid[gpu.process[events[index]]],
        lambda index: np.r_[launches.start, -1][launch[index]],
        lambda index: _key(gpu.correlation.take(events[index])),
        lambda index: -gpu.end[events[index]],
        lambda index: rank[name[index]],
    )
    order = order.astype(np.int32)
    events, launch = events[order].astype(np.int32), launch[order]
    launched = launch >= 0

    def of_launch(column: Ints) -> Column:
        return Column(np.r_[column, 0][launch], launched)

    start, end = gpu.start[events], gpu.end[events]
    launch_start, thread = of_launch(launches.start), of_launch(launches.thread)
    early = launched & (launch_start.values > start)
    trace.repair("GPU events that start before their launch (clock skew, kept)", int(early.sum()))
    trace.repair("GPU events without a launch record (kept)", int((~launched).sum()))
    where = np.where(launched, thread.values, _NONE)
    span = _graph_spans(spans, gpu.op, events, spans.enclosing(where, launch_start.values))
    outside = layers_outside(trace, where, launch_start.values)
    stack = None
    if trace.stacks:
        stack = np.where(launched & (span < 0), np.r_[launches.stack, _NONE][launch], _NONE)
    around = _around(trace, spans, forward, span, outside, stack)
    tids = np.array([t.tid for t in trace.threads] + [0], np.int64)
    process = gpu.process[events]
    pid = pid[process]
    table = Rows(
        process=process, name=name[order], names=names, short_names=short_names, start=start, end=end,
        duration=end - start, launch_start=launch_start, launch_end=of_launch(launches.end),
        correlation=gpu.correlation.take(events),
        pid=Column(pid, pid >= 0), tid=Column(tids[thread.values], launched),
        context=gpu.context.take(events), device=gpu.device.take(events), stream=gpu.stream.take(events),
        grid=gpu.grid.take(events), block=gpu.block.take(events), registers=gpu.registers.take(events),
        shared_memory=gpu.shared_memory.take(events), graph=gpu.graph_node.take(events), kind=gpu.kind[events],
        lost=trace.lost, **around,
    )  # fmt: skip
    return table, span, launch, events


def _operator_rows(trace: Trace, spans: Spans, forward: Ints) -> tuple[Rows, Ints, Ints]:
    """Return the rows of a recording without a GPU: the operator events, except the engine's own and the user's
    ranges."""
    ops = trace.ops
    if not len(ops):
        raise FormatError(f'{trace.path}: no kernels and no operators found. Record with "pyprof run SCRIPT".')
    engine = np.array([text.startswith(EVALUATE) for text in trace.strings.texts] or [False], bool)
    is_row = (spans.event >= 0) & ((ops.scope == 0) | (ops.scope == 1))[spans.event] & ~engine[ops.name[spans.event]]
    span = np.flatnonzero(is_row)
    name, names, short_names, rank = _names(trace, ops.name[spans.event[span]])
    pids = np.array([trace.processes[t.process].pid for t in trace.threads] + [0], np.int64)
    tids = np.array([t.tid for t in trace.threads] + [0], np.int64)
    thread = spans.thread[span]
    order = intervals.order_by(
        spans.start[span], tids[thread], pids[thread], -spans.end[span], spans.depth[span], rank[name]
    )
    span, thread, n = span[order], thread[order], len(span)
    missing = Column.missing(n)
    nowhere = Column(np.broadcast_to(np.int32(0), (n, 3)), missing.present)
    start, end = spans.start[span], spans.end[span]
    own = self_times(spans.start, spans.end, spans.parent, is_row)[span]
    process = np.array([t.process for t in trace.threads] + [_NONE], np.int32)[thread]
    outside = layers_outside(trace, thread, start)
    around = _around(trace, spans, forward, span, outside, None)
    table = Rows(
        process=process, name=name[order], names=names, short_names=short_names, start=start, end=end, duration=own,
        launch_start=Column(start), launch_end=Column(end), correlation=missing, pid=Column(pids[thread]),
        tid=Column(tids[thread]), context=missing, device=missing, stream=Column(tids[thread]), grid=nowhere,
        block=nowhere, registers=missing, shared_memory=missing, graph=missing, kind=np.full(n, OPERATOR, np.int8),
        lost=trace.lost, **around,
    )  # fmt: skip
    return table, span, np.full(n, _NONE)


def _graph_spans(spans: Spans, op: Ints, events: Ints, span: Ints) -> Ints:
    """Return the span of each row. Where a graph's replay names an operator event `op` it is that event's span."""
    if op.strides == (0,) or not (op >= 0).any():
        return span
    recorded = np.flatnonzero(spans.event >= 0)
    of_event = np.full(int(spans.event.max()) + 1, _NONE, np.int64)
    of_event[spans.event[recorded]] = recorded
    return np.where(op[events] >= 0, of_event[op[events]], span)


def self_times(start: Ints, end: Ints, parent: Ints, counted: Bools) -> Ints:
    """Return the duration of each counted interval less that of the counted intervals directly inside it.

    >>> counted = np.array([True, False, True])
    >>> self_times(np.array([0, 1, 2]), np.array([9, 8, 4]), np.array([-1, 0, 1]), counted).tolist()
    [7, 0, 2]
    """
    owner = np.where(
        counted, np.arange(len(start), dtype=np.int32), np.int32(_NONE)
    )  # nearest counted interval, itself included
    above = parent.copy()
    pending = np.flatnonzero((owner == _NONE) & (above >= 0))
    while len(pending):
        owner[pending] = owner[above[pending]]
        above[pending] = parent[above[pending]]
        pending = pending[(owner[pending] == _NONE) & (above[pending] >= 0)]
    out = np.where(counted, end - start, 0)
    inner = np.flatnonzero(counted & (parent >= 0))
    container = owner[parent[inner]]
    keep = container >= 0
    np.subtract.at(out, container[keep], (end - start)[inner[keep]])
    return out


def _around(
    trace: Trace,
    spans: Spans,
    forward: Ints,
    span: Ints,
    outside: tuple[Ints, list[tuple[str, ...]]],
    stack: Ints | None,
) -> dict[str, Any]:
    """Return sites, calls and numbers: the columns that rows of both kinds take from the spans around them, which are
    released. In output order; `span` is -1 where nothing encloses a row, `stack` the call stack of such a row's
    launch or -1, None if none was recorded."""
    inside = span >= 0
    if not len(spans):
        spans, forward = _no_spans(), np.full(1, _NONE, np.int64)
    spans.release("nests", "end", "depth", "event", "role", "seq")
    at = np.where(inside, span, 0)
    boundary = np.where(inside, spans.boundary[at], _NONE)
    origin = np.where(boundary >= 0, forward[boundary], _NONE)
    paired = origin >= 0
    source = np.where(paired, origin, at)  # where the call was made
    path = np.where(inside, spans.path[at], 0)
    site_code, sites = _sites(spans, path, np.where(paired, spans.path[source], _NONE), outside, stack, trace.stacks)
    call, inner_calls = _calls(trace, spans, source, inside, np.where(paired, _NONE, boundary))
    (launcher,) = _numbered(trace, spans, [np.where(inside, spans.launcher[at], _NONE)])
    tids = np.array([t.tid for t in trace.threads] + [0], np.int64)
    direction = np.array([s.direction for s in sites], np.int8)[site_code]
    out = dict(
        sites=sites, site=site_code, seq=Column(spans.base.values[at], inside & spans.base.mask()[at]),
        sub=_sub(call, direction), call=call, inner_calls=inner_calls,
        launcher=launcher,
        forward_thread=Column(tids[spans.thread[source]], paired),
    )  # fmt: skip
    spans.release(*vars(spans))
    return out


def _key(column: Column) -> Ints:
    """Return a column as a sort key with missing values first."""
    return column.values if column.present is None else np.where(column.present, column.values, -1)


def _no_spans() -> Spans:
    """Return one span that nothing is in, for a recording without ranges."""
    none, zero, missing = np.full(1, _NONE, np.int64), np.zeros(1, np.int64), Column.missing(1)
    return Spans(
        thread=zero, start=zero, end=zero, depth=zero, event=none, seq=missing, base=missing,
        parent=none, path=zero, call=none, inner_call=none, launcher=none, operator=none, boundary=none, role=zero,
        places=[Place()], labels=[], label_of_path=none, nests={},
    )  # fmt: skip


def _sites(
    spans: Spans,
    path: Ints,
    forward_path: Ints,
    outside: tuple[Ints, list[tuple[str, ...]]],
    stack: Ints | None,
    stacks: list[Stack],
) -> tuple[Ints, list[Site]]:
    """Return a code per row and one Site per distinct (path, path of the forward, names from outside, stack)."""
    layer_set, layers = outside
    n_paths, n_sets = len(spans.places) + 1, len(layers)
    n_stacks = 1 if stack is None else len(stacks) + 1
    pairs = (path.astype(np.int64) * n_paths + forward_path + 1) * n_sets + layer_set
    code, keys = arrow.factorize(pairs if stack is None else pairs * n_stacks + stack + 1)
    sites = []
    for key in keys.tolist():
        site_key, launched_in = divmod(key, n_stacks)
        pair_key, names = divmod(site_key, n_sets)
        own, origin = divmod(pair_key, n_paths)
        place = spans.places[own]
        if launched_in:
            place = with_stack(place, stacks[launched_in - 1])
        sites.append(site(place, spans.places[origin - 1] if origin else None, layers[names]))
    return code, sites


def _calls(trace: Trace, spans: Spans, source: Ints, inside: Bools, boundary: Ints) -> tuple[Column, list[Column]]:
    """Return the numbers of the calls of each row, in the order of their starts.

    First the outermost call, otherwise the operator, otherwise the backward without a forward; then the calls inside
    it.
    """
    outermost = np.where(spans.call[source] >= 0, spans.call[source], spans.operator[source])
    chains = [np.where(inside, np.where(boundary >= 0, boundary, outermost), _NONE)]
    # From the innermost call up: every call below the outermost is inside it.
    inner = np.where(inside & (boundary < 0), spans.inner_call[source], _NONE)
    nested = []
    while (deeper := (inner >= 0) & (inner != chains[0])).any():
        nested.append(np.where(deeper, inner, _NONE))
        above = np.where(inner >= 0, spans.parent[inner], _NONE)
        inner = np.where(deeper & (above >= 0), spans.inner_call[above], _NONE)
    numbered = _numbered(trace, spans, chains + _top_down(nested))
    return numbered[0], numbered[1:]


def _numbered(trace: Trace, spans: Spans, chains: list[Ints]) -> list[Column]:
    """Number spans in the order of their starts, with the same numbers in all chains. -1 stands for none."""
    marked = np.zeros(len(spans) + 1, bool)
    for chain in chains:
        marked[chain] = True
    used = np.flatnonzero(marked[:-1])
    pids = np.array([trace.processes[t.process].pid for t in trace.threads] + [0], np.int64)
    tids = np.array([t.tid for t in trace.threads] + [0], np.int64)
    order = intervals.order_by(spans.start[used], pids[spans.thread[used]], tids[spans.thread[used]], used)
    number = np.zeros(len(spans) + 1, np.int32)
    number[used[order]] = np.arange(len(order))
    return [Column(number[chain].astype(np.int64), chain >= 0) for chain in chains]


def _top_down(nested: list[Ints]) -> list[Ints]:
    """Convert chains collected from the innermost up to levels from the outermost down."""
    if not nested:
        return []
    stack = np.stack(nested)
    depth = (stack >= 0).sum(axis=0)
    out = []
    for level in range(len(nested)):
        place = np.maximum(depth - 1 - level, 0)
        out.append(np.where(depth > level, stack[place, np.arange(stack.shape[1])], _NONE))
    return out


def _names(trace: Trace, codes: Ints) -> tuple[Ints, list[str], list[str], Ints]:
    """Return codes into the names that occur, the full and the short names, and their alphabetical rank."""
    code, used = arrow.factorize(codes)
    names = [demangle(trace.strings[int(c)]) for c in used]
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return code, names, [short_name(name) for name in names], rank


def _sub(call: Column, direction: Ints) -> Ints:
    """Number the rows of one call and direction from 0 in output order; rows without a call are all 0."""
    has_call = call.mask()
    turn = intervals.turns(np.where(has_call, call.values * 4 + direction, _NONE))
    return np.where(has_call, turn, 0).astype(np.int32)

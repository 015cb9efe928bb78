# SPDX-License-Identifier: Apache-2.0
"""Join: the ranges and operators that enclose each launch.

Per thread, ranges and operator events nest; together they are *spans*. Each span gets its parent, its path (the
chain of texts above it, numbered once per distinct chain) and the call, the operator and the backward node that it
belongs to. Everything is a column: per kernel there are only array lookups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.core import arrow, intervals
from pyprof.core.marker import EVALUATE, announces_collective
from pyprof.core.model import BPROP, PUSH_POP, START_END, Bools, Column, Gpu, Ints, Launches, Stack, Trace
from pyprof.core.sqlite_file import concat
from pyprof.parse.paths import (
    BOUNDARY,
    CALL,
    EVENT,
    OPERATOR,
    OTHER,
    PLAIN,
    SUFFIXED,
    Label,
    Place,
    enter,
    event_of,
    label,
    read,
    with_stack,
)
from pyprof.parse.recompute import recomputed
from pyprof.parse.trace_builder import take

_NONE = -1


@dataclass
class Spans:
    """Nested ranges and operator events of all threads, ordered by thread, then start, the longer first.

    `event` is the row in `Trace.ops`, -1 for a range. `call`, `operator` and `boundary` are spans: the outermost
    call and operator of the forward or backward that a span is part of, and the innermost backward range;
    `inner_call` is the innermost call and `launcher` the innermost operator whose arguments are recorded, the span
    itself included. -1 stands for "no such span" in all of them. `seq` is the sequence number that the span carries,
    `base` that of its outermost numbered ancestor, to which the offsets in `Place` are relative.
    """

    thread: Ints
    start: Ints
    end: Ints
    depth: Ints
    event: Ints
    seq: Column
    base: Column
    parent: Ints
    path: Ints
    call: Ints
    inner_call: Ints
    launcher: Ints
    operator: Ints
    boundary: Ints
    role: Ints
    places: list[Place]
    labels: list[Label]
    label_of_path: Ints
    nests: dict[int, tuple[int, intervals.Nesting]]  # by thread: first span, nesting

    def __len__(self) -> int:
        return len(self.start)

    def release(self, *names: str) -> None:
        """Release columns that are no longer needed: together they are several times as large as the rows."""
        none = np.empty(0, np.int32)
        for name in names:
            value = getattr(self, name)
            if isinstance(value, dict):
                value.clear()
            elif isinstance(value, Column):
                setattr(self, name, Column(none))
            elif isinstance(value, np.ndarray):
                setattr(self, name, none)

    def enclosing(self, thread: Ints, time: Ints) -> Ints:
        """Return the innermost span of a thread at each time, -1 if there is none."""
        out = np.full(len(time), _NONE, np.int32)
        for number, index in intervals.groups(thread):
            if number in self.nests:
                first, nest = self.nests[number]
                inner = nest.innermost(time[index])
                out[index] = np.where(inner >= 0, inner + first, _NONE)
        return out


def nest_spans(trace: Trace, empties: bool = False) -> Spans:
    """Nest the ranges and operators of a recording. Spans that overlap are cut at their parent's end and counted.
    `empties`: the trace loses the ranges that nest, as soon as the spans have them."""
    thread, start, end, key, seq, event = _collect(trace)
    if empties:
        trace.ranges = take(trace.ranges, np.flatnonzero(trace.ranges.kind == START_END))
    order, nests, start, end, parent, depth = _nest(trace, thread, start, end, key)
    thread = np.repeat(np.array(list(nests), np.int32), [len(nest) for _, nest in nests.values()])
    event = event[order] if len(trace.ops) else event
    seq = seq.take(order)
    code, distinct = arrow.factorize(key[order])
    del order, key
    labels = [_label(trace, *divmod(text_key, 3)) for text_key in distinct.tolist()]
    role = np.array([label.role for label in labels], np.int8)[code] if len(labels) else np.empty(0, np.int8)
    seq = _number_evaluations(seq, parent, code, labels)
    levels = _levels(nests)
    base, offset = _offsets(seq, parent, levels)
    recomputes = recomputed(trace, thread, start, event, parent, levels, code, labels, seq)
    stack = trace.ops.stack[event] if len(trace.ops) and len(trace.stacks) else None
    if stack is not None:
        stack = np.where(event >= 0, stack, _NONE)
    path, places, label_of_path = _paths(parent, levels, code, labels, offset, recomputes, stack, trace.stacks)
    del code, offset, stack
    spans = Spans(
        thread=thread, start=start, end=end, depth=depth, event=event, seq=seq, base=base, parent=parent,
        path=path, call=parent, inner_call=parent, launcher=parent, operator=parent, boundary=parent, role=role,
        places=places, labels=labels, label_of_path=label_of_path, nests=nests,
    )  # fmt: skip
    _owners(spans, levels)
    return spans


def _label(trace: Trace, text: int, source: int) -> Label:
    call = trace.calls.get(text) if source == EVENT else None
    return read(trace.strings[text], source) if call is None else label(trace.strings[text], call)


def _collect(trace: Trace) -> tuple[Ints, Ints, Ints, Ints, Column, Ints]:
    """Concatenate the ranges that can nest and the operator events."""
    ranges, ops = trace.ranges, trace.ops
    if not (ranges.kind == PUSH_POP).all():
        ranges = take(ranges, np.flatnonzero(ranges.kind == PUSH_POP))
    end = ranges.end.values
    if not ranges.end.mask().all():
        tables = (trace.ranges, trace.launches, trace.gpu, ops)
        last = max(int(table.start.max()) for table in tables if len(table)) + 1
        trace.repair("ranges that were never closed (taken to last to the end, kept)", int((~ranges.end.mask()).sum()))
        end = np.where(ranges.end.mask(), end, max(last, int(end.max())))
    key = ranges.text * 3
    key += np.where(ranges.operator, np.int32(SUFFIXED), np.int32(PLAIN))
    columns = ranges.thread, ranges.start, end, key, ranges.seq, np.broadcast_to(np.int32(_NONE), len(ranges))
    if not len(ops):
        return columns
    events = (
        ops.thread,
        ops.start,
        ops.end,
        ops.text.astype(np.int32) * 3 + EVENT,
        ops.seq,
        np.arange(len(ops), dtype=np.int32),
    )
    thread, start, end, key, event = (
        np.concatenate(columns_) for columns_ in zip(*(c[:4] + c[5:] for c in (columns, events)))
    )
    return thread, start, end, key, concat([ranges.seq, ops.seq]), event


def _nest(
    trace: Trace, thread: Ints, start: Ints, end: Ints, key: Ints
) -> tuple[Ints, dict[int, tuple[int, intervals.Nesting]], Ints, Ints, Ints, Ints]:
    """Return the order of the spans, the nesting per thread, and starts, ends, parents and depths in that order."""
    # Among equal intervals a range encloses an operator event, and the range whose text sorts later encloses the
    # other: dictionaries of markers, then names of operators.
    texts = trace.strings.texts
    first_event = _turns(trace, len(thread))
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    n, first = len(thread), 0
    order, starts, ends = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    parents, depths = np.empty(n, np.int32), np.empty(n, np.int32)
    nests: dict[int, tuple[int, intervals.Nesting]] = {}
    for number, members in intervals.groups(thread):

        def tie(ties: Ints, members: Ints = members) -> Ints:
            keys = key[members[ties]].astype(np.int64)
            turn = first_event[members[ties]]  # the first to begin encloses the others
            inside = np.where(turn >= 0, -1 - turn, rank[keys // 3])
            return np.where(keys % 3 == EVENT, inside, rank[keys // 3] + len(texts))

        begin, finish = start[members], end[members]
        if (begin[1:] <= begin[:-1]).any():  # else they are in order
            inner = intervals.nesting_order(begin, finish, tie)
            members, begin, finish = members[inner], begin[inner], finish[inner]
        try:
            nest = intervals.Nesting(begin, finish)
        except ValueError:
            finish, cut = intervals.clip(begin, finish, trace.slack)
            trace.repair("ranges that overlap their parent's end (cut there, kept)", cut)
            nest = intervals.Nesting(begin, finish)
        nests[number] = (first, nest)
        block = slice(first, first + len(members))
        order[block], starts[block], ends[block], depths[block] = members, begin, finish, nest.depth
        parents[block] = np.where(nest.parent >= 0, nest.parent + np.int32(first), np.int32(_NONE))
        nest.keep_lookup()
        first += len(members)
    return order, nests, starts, ends, parents, depths


def _turns(trace: Trace, n: int) -> Ints:
    """Return, per span, the recorder's count of operator events that began before it, -1 where it did not count."""
    counted = trace.ops.order
    if not counted.mask().any():
        return np.broadcast_to(np.int64(_NONE), n)
    out = np.full(n, _NONE, np.int64)
    out[n - len(trace.ops) :] = np.where(counted.mask(), counted.values, _NONE)
    return out


def _levels(nests: dict[int, tuple[int, intervals.Nesting]]) -> list[Ints]:
    """Return the spans of each depth, outermost first."""
    levels: list[list[Ints]] = []
    for first, nest in nests.values():
        levels += [[] for _ in range(len(nest.levels) - len(levels))]
        for depth, members in enumerate(nest.levels):
            levels[depth].append(members + np.int32(first))
    return [np.concatenate(parts) for parts in levels]


def _number_evaluations(seq: Column, parent: Ints, code: Ints, labels: list[Label]) -> Column:
    """Assign the number of a node to the engine's range around it: what runs beside the node belongs to it too."""
    evaluate = np.array([label.name.startswith(EVALUATE) for label in labels], bool)
    if not evaluate.any():
        return seq
    values, present = seq.values.copy(), seq.mask().copy()
    child = np.flatnonzero((parent >= 0) & present & np.array([label.role == BOUNDARY for label in labels])[code])
    child = child[evaluate[code[parent[child]]] & ~present[parent[child]]]
    values[parent[child]], present[parent[child]] = values[child], True
    return Column(values, present)


def _offsets(seq: Column, parent: Ints, levels: list[Ints]) -> tuple[Column, Column]:
    """Return, per span, the number of its outermost numbered ancestor, and its own number less that one."""
    own, has = seq.values, seq.mask()
    base, based = own.copy(), has.copy()
    for members in levels[1:]:
        above = parent[members]
        inherits = based[above]
        base[members] = np.where(inherits, base[above], base[members])
        based[members] |= inherits
    offset = own - base
    offset[~has] = 0
    return Column(base, based), Column(offset, has)


def _paths(
    parent: Ints,
    levels: list[Ints],
    code: Ints,
    labels: list[Label],
    offset: Column,
    recomputes: Bools,
    stack: Ints | None,
    stacks: list[Stack],
) -> tuple[Ints, list[Place], Ints]:
    """Number the distinct chains of (text, offset, recomputed, stack) and compute the place that each describes. 0 is
    the empty chain."""
    # Most spans have no offset: those are numbered only by their text.
    numbered = np.flatnonzero(offset.mask())
    pairs = code.astype(np.int64)
    offsets, _ = arrow.factorize(offset.values[numbered])
    pairs[numbered] += (offsets.astype(np.int64) + 1) * len(labels)
    if stack is not None:
        pairs += (stack + 1) * (np.int64(len(labels)) * (int(offsets.max(initial=-1)) + 2))
    if recomputes.any():
        pairs += np.where(recomputes, pairs.max() + 1, 0)
    step_code, steps = arrow.factorize(pairs)
    sample = np.full(len(steps), -1, np.int64)
    sample[step_code] = np.arange(len(step_code))
    path = np.zeros(len(parent), np.int32)
    places, label_of_path = [Place()], [-1]
    for depth, members in enumerate(levels):
        above = path[parent[members]] if depth else np.zeros(len(members), np.int64)
        number, keys = arrow.factorize(above.astype(np.int64) * max(len(steps), 1) + step_code[members])
        path[members] = number + len(places)
        for key in keys.tolist():
            span = sample[key % len(steps)]
            text = int(code[span])
            number_offset = int(offset.values[span]) if offset.mask()[span] else None
            place = enter(places[key // len(steps)], labels[text], number_offset, bool(recomputes[span]))
            if stack is not None and stack[span] >= 0:
                place = with_stack(place, stacks[stack[span]])
            places.append(place)
            label_of_path.append(text)
    return path, places, np.array(label_of_path, np.int64)


def _owners(spans: Spans, levels: list[Ints]) -> None:
    """Assign call, operator and backward range to every span, from the outermost in."""
    # While torch.compile is at work, nothing is a forward or a backward of the program.
    compiling = np.array([place.compiling for place in spans.places], bool)[spans.path]
    spans.role[compiling & (spans.role != CALL)] = OTHER
    # A range that announces a collective is an operator unless another encloses it, which its place records.
    announces = [label.role == OTHER and announces_collective(label.text) for label in spans.labels]
    if any(announces):
        acts_as_operator = [
            text >= 0 and announces[text] and place.names[-1:] == ((spans.labels[text].text, None),)
            for text, place in zip(spans.label_of_path.tolist(), spans.places)
        ]
        spans.role[np.array(acts_as_operator, bool)[spans.path]] = OPERATOR
    n = len(spans)
    has_arguments = [label.role != CALL and event_of(label) is not None for label in spans.labels]
    path_has_arguments = np.array([*has_arguments, False], bool)[
        spans.label_of_path
    ]  # -1, of the empty path, is the last
    owners = np.full((n, 5), _NONE, np.int32)  # side by side: one gather brings all five of a span
    spans.call, spans.inner_call, spans.operator, spans.boundary, spans.launcher = owners.T
    direction = np.array([place.direction for place in spans.places], np.int8)[spans.path]
    restart = np.array([place.recompute_starts for place in spans.places], bool)[spans.path]
    for depth, members in enumerate(levels):
        if depth:
            owners[members] = owners[spans.parent[members]]
        role = spans.role[members]
        owners[members[(role == BOUNDARY) | restart[members]]] = _NONE
        for column, kind in ((spans.call, CALL), (spans.operator, OPERATOR), (spans.boundary, BOUNDARY)):
            rows = members[role == kind]
            rows = rows[column[rows] == _NONE]
            column[rows] = rows
        calls = members[role == CALL]
        spans.inner_call[calls] = calls
        launchers = members[path_has_arguments[spans.path[members]]]
        spans.launcher[launchers] = launchers
    spans.boundary[direction != BPROP] = _NONE


def link(gpu: Gpu, launches: Launches, process_of_thread: Ints) -> Ints:
    """Return the launch of each GPU event, -1 where the recording has none: same process, same correlation, the
    earliest."""
    out = np.full(len(gpu), _NONE, np.int32)
    owner = process_of_thread[launches.thread] if len(launches) else np.empty(0, np.int64)
    numbered = np.flatnonzero(gpu.correlation.mask())
    events_of = {process: numbered[places] for process, places in intervals.groups(gpu.process[numbered])}
    for process, rows in intervals.groups(owner):
        events = events_of.get(process)
        if events is None:
            continue
        begin = launches.start[rows]
        if (begin[1:] <= begin[:-1]).any():
            rows = rows[intervals.order_by(begin, -launches.end[rows], launches.thread[rows])]
        rows = rows[::-1]  # the earliest is written last
        keys, targets = launches.correlation[rows], gpu.correlation.values[events]
        low, high = int(keys.min()), int(keys.max())
        if high - low <= 8 * len(keys) + 1024:
            table = np.full(high - low + 1, _NONE, np.int64)
            table[keys - low] = rows
            inside = (targets >= low) & (targets <= high)
            out[events[inside]] = table[targets[inside] - low]
        else:
            distinct, first = np.unique(keys[::-1], return_index=True)
            index = np.minimum(np.searchsorted(distinct, targets), len(distinct) - 1)
            out[events] = np.where(distinct[index] == targets, rows[::-1][first[index]], _NONE)
    return out


def layers_outside(trace: Trace, thread: Ints, time: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
    """Return the layer names from start/end ranges at each time. Such ranges need not nest, so each stretch of time has
    its own set of open ones."""
    ranges = trace.ranges
    text = [name if name.startswith("layer:") else "" for name in trace.strings.texts]
    named = np.flatnonzero((ranges.kind == START_END) & np.array([bool(t) for t in text], bool)[ranges.text])
    sets: dict[tuple[str, ...], int] = {(): 0}
    out = np.zeros(len(time), np.int64)
    requested = dict(intervals.groups(thread)) if len(named) else {}
    for number, places in intervals.groups(ranges.thread[named]):
        rows = requested.get(number)
        if rows is None:
            continue
        open_ranges = named[places]
        opened = [(int(ranges.start[i]), i) for i in open_ranges]
        closed = [(int(ranges.end.values[i]), i) for i in open_ranges if ranges.end.mask()[i]]
        moments = sorted({moment for moment, _ in opened + closed})
        state: set[int] = set()
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        for moments_of, events in ((begins, opened), (ends, closed)):
            for moment, i in events:
                moments_of.setdefault(moment, []).append(i)
        codes = [0]
        for moment in moments:
            state.difference_update(ends.get(moment, ()))
            state.update(begins.get(moment, ()))
            ordered = sorted(state, key=lambda i: (ranges.start[i], text[ranges.text[i]]))
            names = tuple(text[ranges.text[i]].removeprefix("layer:") for i in ordered)
            codes.append(sets.setdefault(names, len(sets)))
        out[rows] = np.array(codes)[np.searchsorted(np.array(moments), time[rows], side="right")]
    return out, list(sets)

# SPDX-License-Identifier: Apache-2.0
"""Join: which ranges and operators enclose each launch.

Per thread, ranges and operator events nest; together they are *spans*. Each span gets its parent, its path (the chain
of texts above it, numbered once per distinct chain) and the call, the operator and the backward node that it belongs
to. Everything is a column: nothing is done once per kernel except array lookups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof import arrow, intervals
from pyprof.marker import EVALUATE, announces_collective
from pyprof.model import BPROP, PUSH_POP, START_END, Bools, Column, Gpu, Ints, Launches, Stack, Trace
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
from pyprof.sqlite_file import concat

_NONE = -1


@dataclass
class Spans:
    """Nested ranges and operator events of all threads, ordered by thread, then start, the longer first.

    `event` is the row in `Trace.ops`, -1 for a range. `call`, `operator` and `boundary` are spans: the outermost call
    and operator of the forward or backward that a span is part of, and the innermost backward range; `inner_call` is
    the innermost call and `launcher` the innermost operator that tells its arguments, the span itself included. -1
    stands for "no such span" in all of them. `seq` is the sequence
    number that the span carries, `base` that of its outermost numbered ancestor, to which the offsets in `Place` are
    relative.
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
        """Let columns go that nobody asks for any more: together they are several times as large as the rows."""
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
        """The innermost span of a thread at a time, -1 where there is none."""
        out = np.full(len(time), _NONE, np.int32)
        for number, here in intervals.groups(thread):
            if number in self.nests:
                first, nest = self.nests[number]
                found = nest.innermost(time[here])
                out[here] = np.where(found >= 0, found + first, _NONE)
        return out


def spans(trace: Trace) -> Spans:
    """Nest the ranges and operators of a recording. Spans that overlap are cut at their parent's end and counted."""
    thread, start, end, key, seq, event = _collect(trace)
    order, nests, start, end, parent, depth = _nest(trace, thread, start, end, key)
    thread = np.repeat(np.array(list(nests), np.int32), [len(nest.depth) for _, nest in nests.values()])
    event = event[order] if len(trace.ops) else event
    seq = seq.take(order)
    code, distinct = arrow.factorize(key[order])
    del order, key
    labels = [_label(trace, *divmod(k, 3)) for k in distinct.tolist()]
    role = np.array([label.role for label in labels], np.int8)[code] if len(labels) else np.empty(0, np.int8)
    seq = _number_evaluations(seq, parent, code, labels)
    levels = _levels(nests)
    base, offset = _offsets(seq, parent, levels)
    again = recomputed(trace, thread, start, event, parent, levels, code, labels, seq)
    stack = trace.ops.stack[event] if len(trace.ops) and len(trace.stacks) else None
    if stack is not None:
        stack = np.where(event >= 0, stack, _NONE)
    path, places, label_of_path = _paths(parent, levels, code, labels, offset, again, stack, trace.stacks)
    del code, offset, stack
    found = Spans(
        thread=thread, start=start, end=end, depth=depth, event=event, seq=seq, base=base, parent=parent,
        path=path, call=parent, inner_call=parent, launcher=parent, operator=parent, boundary=parent, role=role,
        places=places, labels=labels, label_of_path=label_of_path, nests=nests,
    )  # fmt: skip
    _owners(found, levels)
    return found


def _label(trace: Trace, text: int, source: int) -> Label:
    known = trace.calls.get(text) if source == EVENT else None
    return read(trace.strings[text], source) if known is None else label(trace.strings[text], known)


def _collect(trace: Trace) -> tuple[Ints, Ints, Ints, Ints, Column, Ints]:
    """Ranges that can nest, and operator events, one after the other."""
    ranges, ops = trace.ranges, trace.ops
    if not (ranges.kind == PUSH_POP).all():
        ranges = take(ranges, np.flatnonzero(ranges.kind == PUSH_POP))
    end = ranges.end.values
    if not ranges.end.mask().all():
        tables = (trace.ranges, trace.launches, trace.gpu, ops)
        last = max(int(table.start.max()) for table in tables if len(table)) + 1
        trace.drop(
            "ranges that were never closed (taken to last to the end)", int((~ranges.end.mask()).sum())
        )
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
        np.concatenate(pair) for pair in zip(*(c[:4] + c[5:] for c in (columns, events)))
    )
    return thread, start, end, key, concat([ranges.seq, ops.seq]), event


def _nest(
    trace: Trace, thread: Ints, start: Ints, end: Ints, key: Ints
) -> tuple[Ints, dict[int, tuple[int, intervals.Nesting]], Ints, Ints, Ints, Ints]:
    """Order of the spans; nesting per thread; starts, ends, parents and depths in that order."""
    # Of equal intervals a range is around an operator event; of ranges the one whose text sorts later is around the
    # other: dictionaries of markers, then names of operators.
    texts = trace.strings.texts
    first_event = _turns(trace, len(thread))
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    n, first = len(thread), 0
    order, starts, ends = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    parents, depths = np.empty(n, np.int32), np.empty(n, np.int32)
    nests: dict[int, tuple[int, intervals.Nesting]] = {}
    for number, members in intervals.groups(thread):

        def tie(some: Ints, members: Ints = members) -> Ints:
            keys = key[members[some]].astype(np.int64)
            turn = first_event[members[some]]  # the first to begin is around the others
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
            trace.drop("ranges that overlap their parent's end (cut there)", cut)
            nest = intervals.Nesting(begin, finish)
        nests[number] = (first, nest)
        here = slice(first, first + len(members))
        order[here], starts[here], ends[here], depths[here] = members, begin, finish, nest.depth
        parents[here] = np.where(nest.parent >= 0, nest.parent + np.int32(first), np.int32(_NONE))
        first += len(members)
    return order, nests, starts, ends, parents, depths


def _turns(trace: Trace, n: int) -> Ints:
    """Of each span the recorder's count of operator events that began before it, -1 where it did not count."""
    counted = trace.ops.order
    if not counted.mask().any():
        return np.broadcast_to(np.int64(_NONE), n)
    out = np.full(n, _NONE, np.int64)
    out[n - len(trace.ops) :] = np.where(counted.mask(), counted.values, _NONE)
    return out


def _levels(nests: dict[int, tuple[int, intervals.Nesting]]) -> list[Ints]:
    """The spans of each depth, outermost first."""
    levels: list[list[Ints]] = []
    for first, nest in nests.values():
        levels += [[] for _ in range(len(nest.levels) - len(levels))]
        for depth, members in enumerate(nest.levels):
            levels[depth].append(members + np.int64(first))
    return [np.concatenate(parts) for parts in levels]


def _number_evaluations(seq: Column, parent: Ints, code: Ints, labels: list[Label]) -> Column:
    """The engine's range around a node takes the node's number: what runs beside the node belongs to it too."""
    evaluate = np.array([label.name.startswith(EVALUATE) for label in labels], bool)
    if not evaluate.any():
        return seq
    values, present = seq.values.copy(), seq.mask().copy()
    child = np.flatnonzero(
        (parent >= 0) & present & np.array([label.role == BOUNDARY for label in labels])[code]
    )
    child = child[evaluate[code[parent[child]]] & ~present[parent[child]]]
    values[parent[child]], present[parent[child]] = values[child], True
    return Column(values, present)


def _offsets(seq: Column, parent: Ints, levels: list[Ints]) -> tuple[Column, Column]:
    """Per span the number of its outermost numbered ancestor, and its own number less that one."""
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
    again: Bools,
    stack: Ints | None,
    stacks: list[Stack],
) -> tuple[Ints, list[Place], Ints]:
    """Number the distinct chains of (text, offset, whether it recomputes, stack) and work out the place that each
    describes. 0 is empty."""
    # Most spans have no offset: those are numbered by their text alone.
    numbered = np.flatnonzero(offset.mask())
    pairs = code.astype(np.int64)
    offsets, _ = arrow.factorize(offset.values[numbered])
    pairs[numbered] += (offsets.astype(np.int64) + 1) * len(labels)
    if stack is not None:
        pairs += (stack + 1) * (np.int64(len(labels)) * (int(offsets.max(initial=-1)) + 2))
    if again.any():
        pairs += np.where(again, pairs.max() + 1, 0)
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
            which = int(code[span])
            number_offset = int(offset.values[span]) if offset.mask()[span] else None
            place = enter(places[key // len(steps)], labels[which], number_offset, bool(again[span]))
            if stack is not None and stack[span] >= 0:
                place = with_stack(place, stacks[stack[span]])
            places.append(place)
            label_of_path.append(which)
    return path, places, np.array(label_of_path, np.int64)


def _owners(found: Spans, levels: list[Ints]) -> None:
    """Call, operator and backward range of every span, from the outermost in."""
    # While torch.compile is at work nothing is a forward or a backward of the program.
    compiling = np.array([place.compiling for place in found.places], bool)[found.path]
    found.role[compiling & (found.role != CALL)] = OTHER
    # A range that announces a collective is an operator where none is around it, which its place knows.
    announces = [label.role == OTHER and announces_collective(label.text) for label in found.labels]
    if any(announces):
        acts = [
            which >= 0 and announces[which] and place.names[-1:] == ((found.labels[which].text, None),)
            for which, place in zip(found.label_of_path.tolist(), found.places)
        ]
        found.role[np.array(acts, bool)[found.path]] = OPERATOR
    n = len(found)
    tells = [label.role != CALL and event_of(label) is not None for label in found.labels]
    tells_of_path = np.array([*tells, False], bool)[found.label_of_path]  # -1, of the empty path, is the last
    owners = np.full((n, 5), _NONE, np.int32)  # side by side: one gather brings all five of a span
    found.call, found.inner_call, found.operator, found.boundary, found.launcher = owners.T
    direction = np.array([place.direction for place in found.places], np.int8)[found.path]
    restart = np.array([place.recompute_starts for place in found.places], bool)[found.path]
    for depth, members in enumerate(levels):
        if depth:
            owners[members] = owners[found.parent[members]]
        role = found.role[members]
        owners[members[(role == BOUNDARY) | restart[members]]] = _NONE
        for column, kind in ((found.call, CALL), (found.operator, OPERATOR), (found.boundary, BOUNDARY)):
            mine = members[role == kind]
            mine = mine[column[mine] == _NONE]
            column[mine] = mine
        calls = members[role == CALL]
        found.inner_call[calls] = calls
        launchers = members[tells_of_path[found.path[members]]]
        found.launcher[launchers] = launchers
    found.boundary[direction != BPROP] = _NONE


def link(gpu: Gpu, launches: Launches, process_of_thread: Ints) -> Ints:
    """The launch of each GPU event, -1 where the recording has none: same process, same correlation, the earliest."""
    out = np.full(len(gpu), _NONE, np.int32)
    owner = process_of_thread[launches.thread] if len(launches) else np.empty(0, np.int64)
    numbered = np.flatnonzero(gpu.correlation.mask())
    asked = {process: numbered[places] for process, places in intervals.groups(gpu.process[numbered])}
    for process, mine in intervals.groups(owner):
        events = asked.get(process)
        if events is None:
            continue
        begin = launches.start[mine]
        if (begin[1:] <= begin[:-1]).any():
            mine = mine[intervals.order_by(begin, -launches.end[mine], launches.thread[mine])]
        mine = mine[::-1]  # the earliest is written last
        keys, wanted = launches.correlation[mine], gpu.correlation.values[events]
        low, high = int(keys.min()), int(keys.max())
        if high - low <= 8 * len(keys) + 1024:
            table = np.full(high - low + 1, _NONE, np.int64)
            table[keys - low] = mine
            inside = (wanted >= low) & (wanted <= high)
            out[events[inside]] = table[wanted[inside] - low]
        else:
            distinct, place = np.unique(keys[::-1], return_index=True)
            found = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
            out[events] = np.where(distinct[found] == wanted, mine[::-1][place[found]], _NONE)
    return out


def layers_outside(trace: Trace, thread: Ints, time: Ints) -> tuple[Ints, list[tuple[str, ...]]]:
    """Names that start/end ranges give: they need not nest, so each stretch of time has its set of open ones."""
    ranges = trace.ranges
    text = [name if name.startswith("layer:") else "" for name in trace.strings.texts]
    named = np.flatnonzero((ranges.kind == START_END) & np.array([bool(t) for t in text], bool)[ranges.text])
    sets: dict[tuple[str, ...], int] = {(): 0}
    out = np.zeros(len(time), np.int64)
    asked = dict(intervals.groups(thread)) if len(named) else {}
    for number, places in intervals.groups(ranges.thread[named]):
        here = asked.get(number)
        if here is None:
            continue
        mine = named[places]
        opened = [(int(ranges.start[i]), i) for i in mine]
        closed = [(int(ranges.end.values[i]), i) for i in mine if ranges.end.mask()[i]]
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
        out[here] = np.array(codes)[np.searchsorted(np.array(moments), time[here], side="right")]
    return out, list(sets)

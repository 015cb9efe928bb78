# SPDX-License-Identifier: Apache-2.0
"""Merge of Python calls with torch's records below them, after a window.

Calls come from the wrappers. An operator that ran outside every recorded call (through a name imported before the
window, or from C++) becomes a call of its own: under its user's name if the operator determines it, else `aten`. Its
site is that of the innermost module call around it. Operators of a backward are never calls: their forward's call
accounts for them. Nor are those inside an optimizer's step, which is a call, except those of its closure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyprof.capture.collectors.kineto import UserRange, mod_is_autograd
from pyprof.capture.core.operators import COLUMNS, Operator, Operators
from pyprof.capture.instrument.arguments import arguments
from pyprof.capture.instrument.optimizers import NAMES as OPTIMIZER_RANGES
from pyprof.capture.instrument.recorder import CallRecord, RangeRecord, Recorder, ThreadState
from pyprof.capture.instrument.targets import OPERATOR_NAMES
from pyprof.capture.instrument.user_ranges import LAYER
from pyprof.core.marker import WHOLE_BACKWARD, CallMarker, decode, encode, encode_place, is_compiled
from pyprof.core.model import Call

BACKWARD = ("torch.autograd", "backward")  # recorded where operators are not
_NO_OPERATORS = frozenset({"TorchDynamo Cache Lookup"})  # events of torch that compute nothing


class CallRow(NamedTuple):
    """A call as written to the file."""

    start: int
    end: int
    tid: int
    text: str


class RangeRow(NamedTuple):
    """A user's range as written to the file."""

    start: int
    end: int | None
    tid: int
    kind: int
    name: str


def resolve(
    recorder: Recorder, threads: Iterable[ThreadState], operators: Operators, ranges: list[UserRange]
) -> tuple[list[CallRow], list[RangeRow]]:
    """Return calls and user ranges of a window, each sorted by start. `operators` and `ranges` are torch's records."""
    by_thread = operators.in_order().by_thread()
    texts = _Texts(recorder)
    calls: list[CallRow] = []
    places: list[RangeRow] = []
    for state in threads:
        recorded = list(state.call_records())
        calls.extend(texts.recorded(record, state.tid) for record in recorded)
        unseen, regions = _unseen(by_thread.pop(state.tid, ()), recorded)
        modules = Innermost((record.start, record.end, record.context) for record in state.module_records())
        calls.extend(texts.operator(operator, modules, state.ranges) for operator in unseen)
        places.extend(texts.place(region, modules) for region in regions)
    nowhere = Innermost(())
    for remaining in by_thread.values():  # threads that never ran a wrapper
        calls.extend(texts.operator(operator, nowhere, ()) for operator in _unseen(remaining, [])[0])
    return sorted(calls), sorted([*places, *_range_rows(threads, ranges)], key=lambda row: row.start)


def _range_rows(threads: Iterable[ThreadState], ranges: list[UserRange]) -> Iterable[RangeRow]:
    """Yield the ranges. For record_function torch's records are preferred: they include those of C++."""
    for state in threads:
        for record in state.ranges:
            if record.source != "record_function" or not ranges:
                yield RangeRow(record.start, record.end, state.tid, record.kind, record.name)
    for user in ranges:
        if not user.name.startswith(OPTIMIZER_RANGES):  # these are calls
            yield RangeRow(user.start, user.end, user.tid, 59, user.name)


def _unseen(operators: Iterable[Operator], calls: list[CallRecord]) -> tuple[list[Operator], list[Operator]]:
    """Return the outermost forward operators of one thread that are neither inside a call nor around one, and the
    outermost compiled regions: the operators in those are calls of their own."""
    starts: list[int] = []
    ends: list[int] = []
    for call in sorted(calls, key=lambda call: call.start):
        if not ends or call.end > ends[-1]:  # a call inside another one (a hook) is already covered
            starts.append(call.start)
            ends.append(call.end)
    out, regions = [], []
    covered_to = region_to = -1
    for operator in operators:
        if operator.start < covered_to:
            continue
        index = bisect_right(starts, operator.start) - 1
        if index >= 0 and operator.start < ends[index]:
            continue
        if mod_is_autograd(operator.call):
            covered_to = operator.end
        elif is_compiled(operator.call.op):
            if operator.start >= region_to:
                region_to = operator.end
                regions.append(operator)
        elif operator.call.op not in _NO_OPERATORS and bisect_left(starts, operator.end) == index + 1:
            covered_to = operator.end
            out.append(operator)
    return out, regions


class Innermost:
    """Nested intervals (start, end, value); `at` returns the value of the innermost one around an instant, 0 if
    none."""

    def __init__(self, intervals: Iterable[tuple[int, int, int]]):
        self._times: list[int] = []
        self._values: list[int] = []
        stack: list[tuple[int, int]] = []
        for start, end, value in sorted(intervals, key=lambda interval: (interval[0], -interval[1])):
            while stack and stack[-1][0] <= start:
                self._close(stack)
            self._times.append(start)
            self._values.append(value)
            stack.append((end, value))
        while stack:
            self._close(stack)

    def _close(self, stack: list[tuple[int, int]]) -> None:
        end, _ = stack.pop()
        self._times.append(end)
        self._values.append(stack[-1][1] if stack else 0)

    def at(self, time: int) -> int:
        index = bisect_right(self._times, time) - 1
        return self._values[index] if index >= 0 else 0


class _Texts:
    """Texts of calls, built once per distinct call."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._keys = list(recorder.keys)
        self._texts: dict[object, str] = {}

    def recorded(self, record: CallRecord, tid: int) -> CallRow:
        key = (record.function, record.site, record.args, record.layer)
        text = self._texts.get(key)
        if text is None:
            stacks = self._recorder.stacks
            mod, op = self._recorder.functions[record.function]
            call = Call(mod, op, arguments(self._keys[record.args]) if record.args >= 0 else ())
            path = stacks.contexts[stacks.sites[record.site][1]].path if record.site >= 0 else ""
            text = self._texts[key] = encode(call, record.layer, stacks.trace(record.site), path or None)
        return CallRow(record.start, max(record.start, record.end), tid, text)

    def operator(self, operator: Operator, modules: Innermost, ranges: Iterable[RangeRecord]) -> CallRow:
        context = modules.at(operator.start)
        layer = _layer_at(ranges, operator.start)
        key = (id(operator.call), context, layer)  # an object per distinct call; 1 and True are equal
        text = self._texts.get(key)
        if text is None:
            stacks = self._recorder.stacks
            mod, op = OPERATOR_NAMES.get(operator.call.op) or _operator_name(operator.call.op)
            text = self._texts[key] = encode(
                Call(mod, op, operator.call.args),
                layer,
                stacks.context_trace(context),
                stacks.contexts[context].path or None,
            )
        return CallRow(operator.start, operator.end, operator.tid, text)

    def place(self, region: Operator, modules: Innermost) -> RangeRow:
        """Return the range that gives what runs inside a compiled region, and its backward, their line and module."""
        context, stacks = modules.at(region.start), self._recorder.stacks
        text = encode_place(stacks.context_trace(context), stacks.contexts[context].path or None)
        return RangeRow(region.start, region.end, region.tid, 59, text)


def _operator_name(op: str) -> tuple[str, str]:
    """Return the namespace of an operator, and its full name.

    >>> _operator_name("aten::add"), _operator_name("Torch-Compiled Region: 0/0")
    (('aten', 'aten::add'), ('torch', 'Torch-Compiled Region: 0/0'))
    """
    namespace, separator, _ = op.partition("::")
    return (namespace if separator else "torch", op)


def _layer_at(ranges: Iterable[RangeRecord], time: int) -> str:
    around = [
        record
        for record in ranges
        if record.name.startswith(LAYER) and record.start <= time and (record.end is None or time < record.end)
    ]
    return ":".join(record.name[len(LAYER) :] for record in sorted(around, key=lambda record: record.start))


def calls_as_operators(rows: Iterable[CallRow]) -> Operators:
    """Convert calls to operators, for a recording without torch's operators."""
    calls: list[Call] = []
    numbers: dict[str, int] = {}
    out = []
    for row in rows:
        number = numbers.get(row.text)
        if number is None:
            marker = decode(row.text)
            if not isinstance(marker, CallMarker):
                continue
            number = numbers[row.text] = len(calls)
            backward = (marker.call.mod, marker.call.op) == BACKWARD
            calls.append(Call("autograd", WHOLE_BACKWARD) if backward else marker.call)
        scope = int(calls[number].mod == "autograd")  # at::RecordScope: 1 of a backward function, 0 of others
        out.append((row.start, row.end, row.tid, number, scope, -1, -1, -1))
    return Operators(np.array(out, np.int64).reshape(-1, COLUMNS), calls)


__all__ = ["CallRow", "RangeRow", "calls_as_operators", "resolve"]

# SPDX-License-Identifier: Apache-2.0
"""Places of the threads of a worker: the operator, range and Python function of most of a stretch of time."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.timeline import Activity
from pyprof.intervals import Nesting, groups, nested, nesting_order
from pyprof.model import Bools, Column, Functions, Ints, Stack, Strings
from pyprof.parse.paths import is_step
from pyprof.parse.tracejson.stacks import Stacks
from pyprof.store import reads
from pyprof.store.kinds import IS_FUNCTION
from pyprof.store.moments import first_from

_NONE = -1
SHORTEST = 10_000  # ns; a Python function that runs for less counts as part of its caller

# Of the table op: executions of operators on a thread.
EXECUTED = "operator in (select id from operator where unassociated = 0) and cpu_ns is not null"


class Spans(NamedTuple):
    """Intervals of threads, in the order of their ids, and what each stands for: an operator, or a text."""

    thread: Ints
    value: Ints
    start: Ints
    length: Ints

    @staticmethod
    def of(columns: dict[str, Column]) -> Spans:
        """Return the columns of a query with these, in this order."""
        return Spans(*(column.values for column in columns.values()))

    def take(self, mask: Bools) -> Spans:
        """Return some of them."""
        return Spans(*(column[mask] for column in self))


class Places(NamedTuple):
    """Place of each stretch of time, -1 where there is none. `operator`: the innermost, in the table `operator`;
    `following`: the operator that began next after the beginning of the stretch; `text`, `function`: of the innermost
    range and Python function, in the table `string`; `stack`: for `HostWork.stack`."""

    operator: Ints
    following: Ints
    text: Ints
    function: Ints
    stack: Ints


class _Intervals(NamedTuple):
    """Intervals of a thread in the order of their nesting, and what each stands for."""

    start: Ints
    end: Ints
    value: Ints
    nesting: Nesting

    def at(self, time: Ints) -> Ints:
        """Return the value of the innermost interval at each time, -1 outside."""
        out: Ints = np.r_[self.value, _NONE][self.nesting.innermost(time)]
        return out


class HostWork:
    """The operators, ranges and Python functions of a worker's threads. Ranges of steps do not count.

    `window`: start and end in ns; only what begins between them is read.
    """

    def __init__(self, activity: Activity, window: tuple[int, int] | None = None):
        self._activity = activity
        self._store = activity.store
        self._window = window

    def _own(self, table: str) -> str:
        """Return the condition in SQL that an id is of this worker, and in the window."""
        if self._window is None:
            return self._activity.own("id")
        low, high = (first_from(self._store, table, self._activity.worker, time) for time in self._window)
        return f"id >= {low} and id < {high}"

    def executions_of_operators(self) -> Spans:
        """Return the executions of operators, by id."""
        return Spans.of(
            self._store.columns(
                f"""select thread, operator, start_ns, end_ns - start_ns from op where {self._own("op")} and {EXECUTED}
                    order by id"""
            )
        )

    def ranges(self) -> Spans:
        """Return push/pop ranges and RecordFunction events, by id."""
        columns = self._activity.ranges
        spans = Spans.of({name: columns[name] for name in ("thread", "text", "start_ns", "duration_ns")})
        if self._window is None:
            return spans
        return spans.take((spans.start >= self._window[0]) & (spans.start < self._window[1]))

    def functions(self) -> Spans:
        """Return the Python functions that are not too short, by id."""
        return Spans.of(
            self._store.columns(
                f"""select thread, text, start_ns, duration_ns from range
                    where {self._own("range")} and {IS_FUNCTION} and duration_ns >= {SHORTEST} order by id"""
            )
        )

    @cached_property
    def _operators(self) -> dict[int, _Intervals]:
        return _by_thread(self.executions_of_operators())

    @cached_property
    def _ranges(self) -> dict[int, _Intervals]:
        ranges = self.ranges()
        texts = reads.texts_of(self._store, ranges.value)
        step = [number for number, text in texts.items() if is_step(text)]
        return _by_thread(ranges.take(~np.isin(ranges.value, step)))

    @cached_property
    def _functions(self) -> Spans:
        return self.functions()

    @cached_property
    def _function_times(self) -> dict[int, _Intervals]:
        return _by_thread(self._functions)

    @cached_property
    def _stacks(self) -> Stacks:
        """Call stacks of the functions, whose names are ids of texts."""
        thread, value, start, length = self._functions
        strings, code = Strings(), {}
        for number, text in reads.texts_of(self._store, value).items():
            code[number] = strings.code(text)
        name = np.array([code[number] for number in value.tolist()], np.int64)
        return Stacks(Functions(thread, start, start + length, name), strings, 0)

    def executions(self, thread: Ints, time: Ints) -> tuple[Ints, Ints]:
        """Return the innermost operator around each moment on a thread, in the table `operator`, and the end of that
        execution in ns; -1 for both outside of operators."""
        operator, end = (np.full(len(thread), _NONE, np.int64) for _ in range(2))
        for number, moments in groups(thread):
            if one := self._operators.get(number):
                place = one.nesting.innermost(time[moments])
                operator[moments] = np.r_[one.value, _NONE][place]
                end[moments] = np.r_[one.end, _NONE][place]
        return operator, end

    def stack(self, number: int) -> Stack:
        """Return a call stack of `Places.stack`, empty for -1."""
        return self._stacks.entries[number] if number >= 0 else Stack()

    def places(self, thread: Ints, start: Ints, end: Ints) -> Places:
        """Return the place where each thread was for most of the time from `start` to `end`, both in ns. Times in one
        operator, range and function are added up."""
        operator, following, text, function, stack = (
            np.full(len(thread), _NONE, np.int64) for _ in Places._fields
        )
        for number, stretches in groups(thread):
            kinds = [one.get(number) for one in (self._operators, self._ranges, self._function_times)]
            longest = _longest([one for one in kinds if one], start[stretches], end[stretches])
            for place, intervals in zip((operator, text, function), kinds):
                if intervals:
                    place[stretches] = intervals.at(longest)
            if kinds[0]:
                after = np.searchsorted(kinds[0].start, start[stretches], side="left")
                following[stretches] = np.r_[kinds[0].value, _NONE][after]
            if kinds[2]:
                stack[stretches] = self._stacks.at(np.full(len(longest), number), longest)
        return Places(operator, following, text, function, stack)


def _by_thread(spans: Spans) -> dict[int, _Intervals]:
    thread, value, start, length = spans
    out = {}
    for number, members in groups(thread):
        order = members[nesting_order(start[members], start[members] + length[members], lambda tied: -tied)]
        begin, end = start[order], start[order] + length[order]
        out[number] = _Intervals(begin, end, value[order], nested(begin, end)[0])
    return out


def _longest(kinds: list[_Intervals], start: Ints, end: Ints) -> Ints:
    """Return a moment of the longest of the places in each stretch."""
    edges = np.concatenate([edge for one in kinds for edge in (one.start, one.end)] or [start[:0]])
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])  # few of the edges are inside a stretch
    place = np.searchsorted(start[order], edges, side="right") - 1
    edges = np.unique(edges[(place >= 0) & (edges < np.r_[reach, 0][place])])
    first = np.searchsorted(edges, start, side="right")
    many = np.maximum(np.searchsorted(edges, end, side="left") - first, 0)
    stretch = np.repeat(np.arange(len(start)), many + 1)
    place = np.arange(len(stretch)) - np.repeat(np.cumsum(many + 1) - (many + 1), many + 1)
    low = np.where(place == 0, start[stretch], np.r_[edges, 0][first[stretch] + place - 1])
    high = np.r_[low[1:], 0]
    final = np.r_[stretch[1:] != stretch[:-1], True]
    high[final] = np.maximum(end[stretch[final]], low[final])
    table = pd.DataFrame({"stretch": stretch, "low": low, "time": high - low})
    keys = ["stretch"]
    for number, one in enumerate(kinds):
        table[f"of{number}"] = one.at(low)
        keys.append(f"of{number}")
    sums = table.groupby(keys, sort=False).agg(low=("low", "first"), time=("time", "sum")).reset_index()
    sums = sums.sort_values(["stretch", "time", "low"], ascending=[True, False, True], kind="stable")
    moments: Ints = sums.drop_duplicates("stretch")["low"].to_numpy(np.int64)
    return moments

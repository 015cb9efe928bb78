# SPDX-License-Identifier: Apache-2.0
"""Places of the threads of a worker: the operator, range and Python function of most of a stretch of time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.intervals import Nesting, at_places, cut, distinct, groups, nesting_order
from pyprof.core.model import PUSH_POP, Bools, Functions, Ints, Stack, Strings
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.parse.paths import is_step
from pyprof.parse.tracejson.stacks import Stacks
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import OPERATOR_EVENT, PYTHON_FUNCTION

_NONE = -1
Part = dict[str, Any]  # arrays
SHORTEST = 10_000  # ns; a Python function that runs for less counts as part of its caller


class Spans(NamedTuple):
    """Intervals of threads, in the order of their ids, and what each stands for: an operator, or a text."""

    thread: Ints
    value: Ints
    start: Ints
    length: Ints

    def take(self, mask: Bools | Ints) -> Spans:
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


class Intervals(NamedTuple):
    """Intervals of a thread in the order of their nesting, and what each stands for. `place`: in the rows; `cut`: the
    end of each, where it does not outlive the one around it."""

    place: Ints
    start: Ints
    end: Ints
    value: Ints
    cut: Ints
    nesting: Nesting

    def at(self, time: Ints) -> Ints:
        """Return the value of the innermost interval at each time, -1 outside."""
        return at_places(self.value, self.nesting.innermost(time))


class HostWork:
    """The operators, ranges and Python functions of a worker's threads. Ranges of steps do not count."""

    def __init__(self, activity: Activity):
        self._activity, self._store = activity, activity.store

    def ranges(self) -> Spans:
        """Return push/pop ranges and RecordFunction events, by id."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[Spans, Spans]:
        """Ranges, and Python functions that are not too short."""
        parts = list(read_ranges(self._activity))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        function = columns.pop("kind") == PYTHON_FUNCTION
        return Spans(**columns).take(~function), Spans(**columns).take(function)

    @cached_property
    def _operators(self) -> dict[int, Intervals]:
        parts = [Spans(**part) for part in read_executions(self._activity)]
        return by_thread(Spans(*map(np.concatenate, zip(*parts))))

    @cached_property
    def _ranges(self) -> dict[int, Intervals]:
        ranges = self.ranges()
        texts = reads.texts_of(self._store, ranges.value)
        step = [number for number, text in texts.items() if is_step(text)]
        return by_thread(ranges.take(~np.isin(ranges.value, step)))

    @cached_property
    def _functions(self) -> Spans:
        return self._read[1]

    @cached_property
    def _function_times(self) -> dict[int, Intervals]:
        return by_thread(self._functions)

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
                operator[moments] = at_places(one.value, place)
                end[moments] = at_places(one.end, place)
        return operator, end

    def stack(self, number: int) -> Stack:
        """Return a call stack of `Places.stack`, empty for -1."""
        return self._stacks.entries[number] if number >= 0 else Stack()

    def places(self, thread: Ints, start: Ints, end: Ints) -> Places:
        """Return the place where each thread was for most of the time from `start` to `end`, both in ns. Times in one
        operator, range and function are added up."""
        most = longest(self.times(thread, start, end))
        moment = most["low"].to_numpy(np.int64)
        operator, text, function = (most[name].to_numpy(np.int64) for name in PLACE)
        return Places(operator, self.following(thread, start), text, function, self.stacks(thread, moment))

    def times(self, thread: Ints, start: Ints, end: Ints) -> pd.DataFrame:
        """Return the time of stretches in each place: `stretch`, PLACE, `low`, the first moment there, and `time`, both
        in ns. A stretch without length has a row."""
        tables = [pd.DataFrame(columns=["stretch", *PLACE, "low", "time"], dtype=np.int64)]
        for number, stretches in groups(thread):
            kinds = [one.get(number) for one in (self._operators, self._ranges, self._function_times)]
            tables.append(_times(kinds, stretches, start[stretches], end[stretches]))
        return pd.concat(tables, ignore_index=True)

    def edges(self) -> Ints:
        """Return the starts and ends of all intervals, in no order."""
        kinds = (self._operators, self._ranges, self._function_times)
        intervals = [one for kind in kinds for one in kind.values()]
        return np.concatenate([np.empty(0, np.int64), *(e for one in intervals for e in (one.start, one.end))])

    def at(self, thread: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the innermost operator, range and Python function of threads at moments, -1 for none: PLACE."""
        out = np.full((3, len(thread)), _NONE, np.int64)
        for number, moments in groups(thread):
            for row, kind in zip(out, (self._operators, self._ranges, self._function_times)):
                if one := kind.get(number):
                    row[moments] = one.at(time[moments])
        return out[0], out[1], out[2]

    def in_function(self, thread: Ints, time: Ints) -> Bools:
        """Return whether threads are, at moments, in a Python function that an operator has called, such as a hook."""
        out = np.zeros(len(thread), bool)
        for number, moments in groups(thread):
            operators, functions = self._operators.get(number), self._function_times.get(number)
            if operators and functions:
                at = [one.nesting.innermost(time[moments]) for one in (operators, functions)]
                start = [at_places(one.start, place) for one, place in zip((operators, functions), at)]
                out[moments] = (at[0] >= 0) & (at[1] >= 0) & (start[1] > start[0])
        return out

    def since(self, thread: Ints, time: Ints) -> Ints:
        """Return since when each thread has been in the place where it is at a moment: since its last operator, range
        or Python function began or ended, -1 if none did."""
        out = np.full(len(thread), _NONE, np.int64)
        for number, moments in groups(thread):
            kinds = (kind.get(number) for kind in (self._operators, self._ranges, self._function_times))
            for one in kinds:
                for edges in (one.start, np.sort(one.end)) if one else ():
                    place = np.searchsorted(edges, time[moments], side="right") - 1
                    out[moments] = np.maximum(out[moments], at_places(edges, place))
        return out

    def calls_of(self, functions: set[int]) -> Union:
        """Return the time of all threads in some Python functions, by their texts."""
        spans = self._functions
        own = np.isin(spans.value, list(functions))
        return Union(spans.start[own], (spans.start + spans.length)[own])

    def threads(self) -> list[int]:
        """Return the threads that ran operators."""
        return list(self._operators)

    def busy(self, thread: int) -> Union:
        """Return the time of a thread in operators."""
        one = self._operators.get(thread)
        return Union(one.start, one.end) if one else Union(np.empty(0, np.int64), np.empty(0, np.int64))

    def following(self, thread: Ints, time: Ints) -> Ints:
        """Return the operator that begins next on each thread, at a time or later; -1 for none."""
        out = np.full(len(thread), _NONE, np.int64)
        for number, moments in groups(thread):
            if one := self._operators.get(number):
                out[moments] = at_places(one.value, np.searchsorted(one.start, time[moments]))
        return out

    def stacks(self, thread: Ints, time: Ints) -> Ints:
        """Return the call stack of each moment on a thread, for `stack`; -1 for none."""
        out = np.full(len(thread), _NONE, np.int64)
        for number, moments in groups(thread):
            if number in self._function_times:
                out[moments] = self._stacks.at(thread[moments], time[moments])
        return out


def read_executions(activity: Activity) -> Iterator[Part]:
    """Yield the executions of operators in parts, by start: the columns of `Spans`."""
    counted = activity.store.rows("select id from operator where unassociated = 0")
    names = ("thread", "operator", "start_ns", "end_ns", "cpu_ns")
    yield dict.fromkeys(Spans._fields, np.empty(0, np.int64))
    for columns in activity.parts("op", names):
        thread, operator, start, end, cpu = (columns[name] for name in names)
        mask = np.isin(operator.values, [number for (number,) in counted]) & cpu.mask()
        length = end.values - start.values
        yield Spans(thread.values, operator.values, start.values, length).take(mask)._asdict()


def read_ranges(activity: Activity) -> Iterator[Part]:
    """Yield ranges and Python functions in parts, by start: the columns of `Spans`, and `kind`."""
    yield dict.fromkeys((*Spans._fields, "kind"), np.empty(0, np.int64))
    for columns in activity.parts("range", ("thread", "text", "start_ns", "duration_ns", "kind")):
        kind, length = columns["kind"].values, columns["duration_ns"].values
        function = (kind == PYTHON_FUNCTION) & (length >= SHORTEST)
        mask = (kind == PUSH_POP) | (kind == OPERATOR_EVENT) | function
        spans = Spans(columns["thread"].values, columns["text"].values, columns["start_ns"].values, length)
        yield {**spans.take(mask)._asdict(), "kind": kind[mask]}


def main_thread(store: Store, worker: int) -> int:
    """Return the thread whose number is that of the process, as on Linux; else the one with the most executions; -1
    without any."""
    rows = store.rows(
        """select t.id from thread t join worker w on w.id = t.worker where w.id = ? and t.tid = w.pid
           and exists (select 1 from op where thread = t.id)""",
        (worker,),
    )
    rows = rows or store.rows(
        """select thread from op where id >= ? and id < ? and thread is not null
           group by 1 order by count(*) desc, 1 limit 1""",
        (first_id(worker), first_id(worker + 1)),
    )
    return int(rows[0][0]) if rows else -1


PLACE = ("operator", "text", "function")


def longest(times: pd.DataFrame) -> pd.DataFrame:
    """Return, of each stretch, the place with the most time, of equal ones the first; by stretch."""
    order = times.sort_values(["stretch", "time", "low"], ascending=[True, False, True], kind="stable")
    return order.drop_duplicates("stretch")


def by_thread(spans: Spans) -> dict[int, Intervals]:
    """Return spans by thread, in the order of their nesting."""
    thread, value, start, length = spans
    out = {}
    for number, members in groups(thread):
        order = members[nesting_order(start[members], start[members] + length[members], lambda tied: -tied)]
        begin, end = start[order], start[order] + length[order]
        nesting, ends = cut(begin, end)
        out[number] = Intervals(order, begin, end, value[order], ends, nesting)
    return out


def _times(kinds: list[Intervals | None], number: Ints, start: Ints, end: Ints) -> pd.DataFrame:
    """Return the time of stretches of a thread in each place, as `HostWork.times`."""
    known = [one for one in kinds if one]
    edges = np.concatenate([edge for one in known for edge in (one.start, one.end)] or [start[:0]])
    stretch, low, high = cut_at(edges, start, end)
    table = pd.DataFrame({"stretch": number[stretch], "low": low, "time": high - low})
    for name, one in zip(PLACE, kinds):
        table[name] = one.at(low) if one else _NONE
    return added(table)


def cut_at(edges: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the pieces of stretches between edges: the stretch of each, its start and its end. A stretch without
    length is a piece.

    >>> [column.tolist() for column in cut_at(np.array([5, 2]), np.array([0, 4]), np.array([6, 4]))]
    [[0, 0, 0, 1], [0, 2, 5, 4], [2, 5, 6, 4]]
    """
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])  # few of the edges are inside a stretch
    place = np.searchsorted(start[order], edges, side="right") - 1
    edges = distinct(edges[(place >= 0) & (edges < np.r_[reach, 0][place])])
    first = np.searchsorted(edges, start, side="right")
    many = np.maximum(np.searchsorted(edges, end, side="left") - first, 0)
    stretch = np.repeat(np.arange(len(start)), many + 1)
    place = np.arange(len(stretch)) - np.repeat(np.cumsum(many + 1) - (many + 1), many + 1)
    low = np.where(place == 0, start[stretch], np.r_[edges, 0][first[stretch] + place - 1])
    high = np.r_[low[1:], 0]
    final = np.r_[stretch[1:] != stretch[:-1], True]
    high[final] = np.maximum(end[stretch[final]], low[final])
    return stretch, low, high


def added(times: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of times in equal places of a stretch, and the first moment there, with the first row's other
    columns."""
    first = {str(name): (name, "first") for name in times if name not in ("stretch", *PLACE, "low", "time")}
    grouped = times.groupby(["stretch", *PLACE], sort=False)
    return grouped.agg(low=("low", "min"), time=("time", "sum"), **first).reset_index()

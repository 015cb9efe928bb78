# SPDX-License-Identifier: Apache-2.0
"""The host's work in stretches of time: pieces, each in one place of one thread.

A stretch belongs to a thread. While that thread is in no operator and no API call, and another thread that launches or
runs operators is in one, the piece is the other's: the main thread waits for autograd's thread in backward. Where no
thread is in one, the piece belongs to the thread that is in one next.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.host_work import HostWork, Part, cut_at, read_executions
from pyprof.analysis.partition import Union
from pyprof.analysis.timeline import Activity
from pyprof.intervals import distinct, groups
from pyprof.model import Bools, Ints, Stack

LOADING, CALLING, IN_OPERATOR, IN_RANGE, OUTSIDE = range(5)
_NONE, _FAR = -1, np.iinfo(np.int64).max
CALL_COLUMNS = ("thread", "name", "start", "length")


class Host:
    """The threads of a worker over the whole recording, which is read in parts. Call stacks of its pieces are numbered
    here."""

    def __init__(self, activity: Activity):
        self.activity = activity
        self._stacks: list[Stack] = []
        self._numbers: dict[Stack, int] = {}

    @cached_property
    def _read(self) -> tuple[dict[int, Union], list[dict[int, int]]]:
        """The time in operators and API calls of each thread, and by part of `read_executions` the first operator of
        each thread in it."""
        unions: dict[int, list[Union]] = {}
        first = []
        for part in read_executions(self.activity):
            begun = {}
            for number, rows in groups(part["thread"]):
                start, length = part["start"][rows], part["length"][rows]
                unions.setdefault(number, []).append(Union(start, start + length))
                tied = rows[start == start.min()]  # of those that begin together, the outermost
                begun[number] = int(part["value"][tied[np.argmax(part["length"][tied])]])
            first.append(begun)
        for part in read_calls(self.activity):
            for number, rows in groups(part["thread"]):
                start = part["start"][rows]
                unions.setdefault(number, []).append(Union(start, start + part["length"][rows]))
        return {number: _joined(of_thread) for number, of_thread in unions.items()}, first

    @cached_property
    def threads(self) -> dict[int, Union]:
        """The time in operators and API calls of each thread that has them, the busiest first."""
        return dict(sorted(self._read[0].items(), key=lambda one: (-len(one[1]), one[0])))

    @cached_property
    def main(self) -> int:
        """The thread with the most launches, else the busiest; -1 without any."""
        launching = self.activity.launching_thread
        return launching if launching >= 0 else next(iter(self.threads), _NONE)

    def idle(self, thread: int, start: int, end: int) -> bool:
        """Return whether a thread was in no operator and no API call for all of some time."""
        if thread not in self.threads:
            return True
        return not self.threads[thread].within(np.array([start]), np.array([end]))[0]

    def first_operator(self, thread: int, part: int) -> int:
        """Return the operator that begins first on a thread in parts of `read_executions`, from this one on; -1 for
        none."""
        return next((one[thread] for one in self._read[1][part:] if thread in one), _NONE)

    def number(self, stack: Stack) -> int:
        """Return the number of a call stack."""
        if stack not in self._numbers:
            self._numbers[stack] = len(self._stacks)
            self._stacks.append(stack)
        return self._numbers[stack]

    def stack(self, number: int) -> Stack:
        """Return a call stack, empty for -1."""
        return self._stacks[number] if number >= 0 else Stack()


def _joined(unions: list[Union]) -> Union:
    return Union(np.concatenate([one.start for one in unions]), np.concatenate([one.end for one in unions]))


def read_calls(activity: Activity) -> Iterator[Part]:
    """Yield the API calls in parts: CALL_COLUMNS; `name` is a number of the table `string`."""
    yield dict.fromkeys(CALL_COLUMNS, np.empty(0, np.int64))
    names = ("thread", "name", "start_ns", "duration_ns")
    for columns in activity.parts("api", names):
        yield dict(zip(CALL_COLUMNS, (columns[name].values for name in names)))


class HostPieces:
    """The host's time of a worker in pieces. `work`, `calls`: of its threads, at least in the stretches; `calls` as of
    `read_calls`, by start."""

    def __init__(self, host: Host, work: HostWork, calls: Part):
        self._host, self.work = host, work
        self._calls = _by_thread(calls)

    @staticmethod
    def whole(host: Host) -> HostPieces:
        """Return the pieces of any stretches of the recording."""
        read = list(read_calls(host.activity))
        calls = {name: np.concatenate([part[name] for part in read]) for name in CALL_COLUMNS}
        return HostPieces(host, HostWork(host.activity), calls)

    @cached_property
    def _edges(self) -> Ints:
        loading = self._host.activity.dataloader
        calls = [edge for one in self._calls.values() for edge in (one.start, one.end)]
        return distinct(np.concatenate([self.work.edges(), *calls, loading.start, loading.end]))

    def of(self, thread: Ints, start: Ints, end: Ints) -> pd.DataFrame:
        """Return the pieces of stretches, which add up to them: `stretch`, `low` and `high` in ns, `thread`; `kind`: in
        the data loader, else in an API call, else in an operator, else in a range, else outside of all; `operator`,
        `text`, `function`: innermost, `call`: the API call's name, as numbers of the tables `operator` and `string`, -1
        for none."""
        around = np.array([start.min(initial=_FAR), end.max(initial=-_FAR)])
        first, last = np.searchsorted(self._edges, around)
        stretch, low, high = cut_at(self._edges[first:last], start, end)
        owner = self._owners(stretch, thread[stretch], low, high)
        operator, text, function = self.work.at(owner, low)
        call = np.full(len(low), _NONE, np.int64)
        for number, pieces in groups(owner):
            if number in self._calls:
                call[pieces] = _around(self._calls[number], low[pieces], high[pieces])
        loading = self._host.activity.dataloader.covers(low, high)
        kind = np.select(
            [loading, call >= 0, operator >= 0, text >= 0],
            [LOADING, CALLING, IN_OPERATOR, IN_RANGE],
            OUTSIDE,
        )
        return pd.DataFrame({
            "stretch": stretch, "low": low, "high": high, "thread": owner, "kind": kind, "operator": operator,
            "text": text, "function": function, "call": call,
        })  # fmt: skip

    def stacks(self, thread: Ints, time: Ints) -> Ints:
        """Return the number of the call stack of each moment on a thread, as of `Host.stack`; -1 for none."""
        numbers, which = np.unique(self.work.stacks(thread, time), return_inverse=True)
        own = [
            self._host.number(self.work.stack(number)) if number >= 0 else _NONE
            for number in numbers.tolist()
        ]
        out: Ints = np.array(own, np.int64)[which]
        return out

    def _owners(self, stretch: Ints, thread: Ints, low: Ints, high: Ints) -> Ints:
        """Return the thread of each piece: where none has anything to do, the one that has something next."""
        owner = thread.copy()
        free = np.ones(len(low), bool)
        threads = self._host.threads
        for number, own in groups(thread):
            if number in threads:
                free[own] = ~threads[number].covers(low[own], high[own])
        for number, busy in threads.items():
            places = np.flatnonzero(free)
            own_pieces = places[busy.covers(low[places], high[places])]
            owner[own_pieces] = number
            free[own_pieces] = False
        following = np.where(free, len(owner), np.arange(len(owner)))
        following = np.minimum.accumulate(following[::-1])[::-1]
        same = np.r_[stretch, _NONE][following] == stretch
        return np.where(same, np.r_[owner, _NONE][following], owner)


class _Calls(NamedTuple):
    """Start, end and name of API calls, by start, and the time in them."""

    start: Ints
    end: Ints
    name: Ints
    union: Union


def _by_thread(calls: Part) -> dict[int, _Calls]:
    out: dict[int, _Calls] = {}
    for number, places in groups(calls["thread"]):
        start = calls["start"][places]
        end = start + calls["length"][places]
        out[number] = _Calls(start, end, calls["name"][places], Union(start, end))
    return out


def _around(calls: _Calls, low: Ints, high: Ints) -> Ints:
    """Return the name of the call around each piece, of nested ones the inner; -1 for none."""
    place = np.searchsorted(calls.start, low, side="right") - 1
    inside: Bools = (place >= 0) & (calls.end[place] >= high)
    # The call that began last may be one inside another, and be over.
    outer = ~inside & calls.union.covers(low, high)
    return np.where(inside | outer, calls.name[place], _NONE)

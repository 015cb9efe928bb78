# SPDX-License-Identifier: Apache-2.0
"""The host's time in stretches: pieces, each in one place of one thread.

A stretch belongs to a thread. While that thread is in no operator and no API call, and another thread that launches or
runs operators is in one, the piece is the other's: the main thread waits for autograd's thread in backward. Where no
thread is in one, the piece belongs to the thread that is in one next.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.intervals import distinct, groups
from pyprof.core.model import Bools, Ints
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.host_work import HostWork, cut_at

LOADING, CALLING, IN_OPERATOR, IN_RANGE, OUTSIDE = range(5)
_NONE, _FAR = -1, np.iinfo(np.int64).max


class HostTime:
    """The time of a worker's threads. `work`: their operators, ranges and functions."""

    def __init__(self, activity: Activity):
        self.activity, self.work = activity, HostWork(activity)

    @cached_property
    def _calls(self) -> dict[int, _Calls]:
        columns = self.activity.call
        start = columns["start_ns"].values
        end, name = start + columns["duration_ns"].values, columns["name"].values
        return {
            number: _Calls(start[rows], end[rows], name[rows], Union(start[rows], end[rows]))
            for number, rows in groups(columns["thread"].values)
        }

    @cached_property
    def threads(self) -> dict[int, Union]:
        """The time in operators and API calls of each thread that has them, the busiest first."""
        out = {number: self.work.busy(number) for number in self.work.threads()}
        for number, calls in self._calls.items():
            out[number] = out[number].with_(calls.union) if number in out else calls.union
        return dict(sorted(out.items(), key=lambda one: (-len(one[1]), one[0])))

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

    @cached_property
    def _edges(self) -> Ints:
        loading = self.activity.dataloader
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
        loading = self.activity.dataloader.covers(low, high)
        kind = np.select(
            [loading, call >= 0, operator >= 0, text >= 0],
            [LOADING, CALLING, IN_OPERATOR, IN_RANGE],
            OUTSIDE,
        )
        return pd.DataFrame({
            "stretch": stretch, "low": low, "high": high, "thread": owner, "kind": kind, "operator": operator,
            "text": text, "function": function, "call": call,
        })  # fmt: skip

    def _owners(self, stretch: Ints, thread: Ints, low: Ints, high: Ints) -> Ints:
        """Return the thread of each piece: where none has anything to do, the one that has something next."""
        owner = thread.copy()
        free = np.ones(len(low), bool)
        threads = self.threads
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


def _around(calls: _Calls, low: Ints, high: Ints) -> Ints:
    """Return the name of the call around each piece, of nested ones the inner; -1 for none."""
    place = np.searchsorted(calls.start, low, side="right") - 1
    inside: Bools = (place >= 0) & (calls.end[place] >= high)
    # The call that began last may be one inside another, and be over.
    outer = ~inside & calls.union.covers(low, high)
    return np.where(inside | outer, calls.name[place], _NONE)

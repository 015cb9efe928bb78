# SPDX-License-Identifier: Apache-2.0
"""Nested intervals over sorted integer arrays: depth, parent, and the innermost interval around a point.

An interval is [start, end): one that ends where the next begins does not enclose it. Intervals of length 0 enclose
at most each other and keep their order. All functions take the intervals of one thread, ordered by `nesting_order`.

The method: the depth of an interval is the number of intervals that began before it minus those that ended;
intervals of one depth are disjoint, so the parent is the last one of the depth above that began before. Two
`searchsorted` and a loop over depths replace a walk with a stack.

>>> start, end = np.array([0, 1, 5, 9]), np.array([8, 4, 7, 12])
>>> nest = Nesting(start, end)
>>> nest.depth.tolist(), nest.parent.tolist()
([0, 1, 1, 0], [-1, 0, 0, -1])
>>> nest.innermost(np.array([2, 4, 8, 11])).tolist()
[1, 0, -1, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pyprof.core.model import Bools, Ints


def order_by(first: Ints, *keys: Ints | Callable[[Ints], Ints]) -> Ints:
    """Return indices that sort by the first key, then the second ... ; fast when the first key has few ties.

    A later key may be a function of indices: it is called only for those that are tied in the first.

    >>> order_by(np.array([2, 1, 2]), np.array([5, 0, 3])).tolist()
    [1, 2, 0]
    """
    return _order(first, lambda tied: [key(tied) if callable(key) else key[tied] for key in keys])


def nesting_order(start: Ints, end: Ints, tie: Callable[[Ints], Ints]) -> Ints:
    """Return the order that `Nesting` needs: by start, the longer first.

    Of equal intervals the one with the larger `tie` comes first; it is called only for those, with their indices.
    """
    return _order(start, lambda tied: [-end[tied], -tie(tied)])


def groups(keys: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct key, ascending, with its ascending positions; one pass, however many keys there are.

    >>> [(key, places.tolist()) for key, places in groups(np.array([7, 3, 7]))]
    [(3, [1]), (7, [0, 2])]
    """
    if not len(keys):
        return
    if keys.min() >= -(2**15) and keys.max() < 2**15:
        keys = keys.astype(np.int16)  # sorted by numpy in linear time
    order = np.argsort(keys, kind="stable")
    inner = keys[order]
    bounds = np.flatnonzero(np.r_[True, inner[1:] != inner[:-1], True])
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        yield int(inner[first]), order[first:last]


def turns(keys: Ints) -> Ints:
    """Return the number of earlier occurrences of each key.

    >>> turns(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    inner = keys[order]
    first = np.flatnonzero(np.r_[True, inner[1:] != inner[:-1]])
    out = np.empty(len(keys), np.int64)
    out[order] = np.arange(len(keys)) - np.repeat(first, np.diff(np.r_[first, len(keys)]))
    return out


def too_deep(thread: Ints, start: Ints, end: Ints, limit: int) -> Bools | None:
    """Return a mask of the intervals that lie inside `limit` others of their thread, or are cut by as many; None if
    there are none.

    >>> too_deep(np.array([4, 4, 4]), np.array([0, 1, 2]), np.array([9, 8, 3]), 2).tolist()
    [False, False, True]
    """
    if len(start) <= limit or _open(start, end).max() <= limit:
        return None  # not even all threads together have that many open at once
    out = np.zeros(len(start), bool)
    for _, members in groups(thread):
        if len(members) > limit:
            order = members[np.lexsort((-end[members], start[members]))]
            out[order] = _open(start[order], end[order]) > limit
    return out if out.any() else None


def _open(start: Ints, end: Ints) -> Ints:
    """Return the number of open intervals when each begins, including itself, in order of starts."""
    ends = end * 2
    ends += end <= start  # as in Nesting
    ends.sort()
    begins = np.sort(start)
    begins *= 2
    return np.arange(1, len(start) + 1) - np.searchsorted(ends, begins, side="right")


def _order(first: Ints, rest: Callable[[Ints], Sequence[Ints]]) -> Ints:
    """Return indices that sort by `first`; `rest` returns the other keys of the elements that are tied in it."""
    order = np.argsort(first, kind="stable")
    if len(order) < 2:
        return order
    inner = first[order]
    same = inner[1:] == inner[:-1]
    if same.any():
        tied = np.zeros(len(order), bool)
        tied[1:] |= same
        tied[:-1] |= same
        places = np.flatnonzero(tied)
        group = order[places]
        order[places] = group[np.lexsort((*reversed(rest(group)), inner[places]))]
    return order


def clip(start: Ints, end: Ints, slack: int = 0) -> tuple[Ints, int]:
    """Cut intervals that outlive their parent at the parent's end; return the ends and the number of cuts.

    Times may be off by `slack`. An interval that overlaps the next by no more than that, and by no more than the
    next outlives it, is cut at the start of the next instead. An interval that outlives its parent by no more than
    that is cut and not counted.

    >>> clip(np.array([0, 8]), np.array([9, 20]))[0].tolist(), clip(np.array([0, 8]), np.array([9, 20]), 1)[0].tolist()
    ([9, 9], [8, 20])
    >>> clip(np.array([0, 5]), np.array([9, 10]), 1)
    (array([9, 9]), 0)
    """
    ends = end.tolist()
    stack: list[int] = []  # indices
    count = 0
    for i, begin in enumerate(start.tolist()):
        while stack:
            open_ = ends[stack[-1]]
            excess = ends[i] - open_
            if open_ > begin and not 0 < excess >= open_ - begin <= slack:
                break
            ends[stack[-1]] = min(open_, begin)
            stack.pop()
        if stack and ends[i] > ends[stack[-1]]:
            count += ends[i] - ends[stack[-1]] > slack
            ends[i] = ends[stack[-1]]
        if ends[i] > begin:
            stack.append(i)
    return np.array(ends, np.int64), count


def nested(start: Ints, end: Ints, slack: int = 0) -> tuple[Nesting, int]:
    """Return the nesting of intervals in `nesting_order`, cut where they overlap; and the number cut by more than
    `slack`."""
    nesting, _, count = _nested(start, end, slack)
    return nesting, count


def cut(start: Ints, end: Ints, slack: int = 0) -> tuple[Nesting, Ints]:
    """Return the nesting as `nested` does, and the ends that it has.

    >>> cut(np.array([0, 2]), np.array([5, 9]))[1].tolist()
    [5, 5]
    """
    nesting, ends, _ = _nested(start, end, slack)
    return nesting, ends


def _nested(start: Ints, end: Ints, slack: int) -> tuple[Nesting, Ints, int]:
    try:
        return Nesting(start, end), end, 0
    except ValueError:
        ends, count = clip(start, end, slack)
        return Nesting(start, ends), ends, count


class Nesting:
    """Depth and parent of each interval, with a lookup of the interval around a point. Raises ValueError if some
    overlap."""

    # There may be an instance for each of 100,000 threads.
    __slots__ = ("_sorted_end", "_start", "depth", "levels", "parent")

    def __init__(self, start: Ints, end: Ints):
        # An empty interval gets length 1 on a doubled time axis, so that it contains itself but no later start.
        n = len(start)
        self._start = start * 2
        ends = end * 2
        ends += end <= start
        self._sorted_end = np.sort(ends)
        self.depth = np.arange(n, dtype=np.int32)
        self.depth -= np.searchsorted(self._sorted_end, self._start, side="right").astype(np.int32)
        if n and self.depth.min() < 0:
            raise ValueError("intervals end before they start")
        # The intervals of each depth, outermost first, as indices.
        self.levels: list[Ints] = [members.astype(np.int32) for _, members in groups(self.depth)]
        self.parent = np.full(n, -1, np.int32)
        for depth, members in enumerate(self.levels):
            if depth:
                above = self.levels[depth - 1]
                place = np.searchsorted(above, members) - 1
                if len(place) and place.min() < 0:
                    raise ValueError("intervals overlap")
                parent = above[place]
                if (ends[members] > ends[parent]).any():
                    raise ValueError("intervals overlap")
                self.parent[members] = parent

    def __len__(self) -> int:
        return len(self._start)

    def keep_lookup(self) -> None:
        """Release what `begun` and `innermost` do not need: depths and parents."""
        self.depth = self.parent = np.empty(0, np.int32)

    def begun(self, time: Ints) -> Ints:
        """Return the number of intervals that begin at each time or before it."""
        return np.searchsorted(self._start, time * 2, side="right")

    def innermost(self, time: Ints) -> Ints:
        """Return the index of the innermost interval that contains each time, -1 for none."""
        point = time * 2 + 1  # after intervals that begin now, and after empty ones
        begun = np.searchsorted(self._start, point, side="right")
        depth = begun - np.searchsorted(self._sorted_end, point, side="right") - 1
        out = np.full(len(time), -1, np.int64)
        for level, positions in groups(depth):
            if level >= 0:
                members = self.levels[level]
                out[positions] = members[np.searchsorted(members, begun[positions]) - 1]
        return out


def distinct(values: Ints) -> Ints:
    """Return the distinct values in order: for values that are sorted in parts, faster than `numpy.unique`.

    >>> distinct(np.array([3, 5, 3, 4])).tolist()
    [3, 4, 5]
    """
    ordered = np.sort(values, kind="stable")
    fresh = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def at_places(values: Ints, places: Ints, missing: int = -1) -> Ints:
    """Return the values at places, `missing` where a place is -1 or past the end.

    >>> at_places(np.array([7, 8]), np.array([1, -1, 2])).tolist()
    [8, -1, -1]
    """
    out = np.full(len(places), missing, np.int64)
    inside = np.flatnonzero((places >= 0) & (places < len(values)))
    out[inside] = values[places[inside]]
    return out


def union_by(group: Ints, start: Ints, end: Ints, n: int) -> Ints:
    """Return the length of the union of the intervals of each of `n` groups; groups below 0 do not count.

    >>> union_by(np.array([1, 1, 0, 1]), np.array([0, 2, 5, 9]), np.array([4, 6, 8, 9]), 3).tolist()
    [3, 6, 0]
    """
    return union_and_extent_by(group, start, end, n)[0]


def union_and_extent_by(group: Ints, start: Ints, end: Ints, n: int) -> tuple[Ints, Ints]:
    """Return per group the length of the union and the time from the first start to the last end; 0 for an empty group.

    >>> [part.tolist() for part in union_and_extent_by(np.array([0, 0]), np.array([0, 8]), np.array([4, 9]), 1)]
    [[5], [9]]
    """
    union, extent = np.zeros(n, np.int64), np.zeros(n, np.int64)
    order = np.lexsort((start, group))
    if len(order) and group[order[0]] < 0:
        order = order[np.searchsorted(group[order], 0) :]
    if not len(order):
        return union, extent
    group, start, end = group[order], start[order], end[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    reached = _running_max(end, first, group)
    before = np.r_[0, reached[:-1]]
    before[first] = start[first]
    np.add.at(union, group, np.maximum(end - np.maximum(start, before), 0))
    last = np.r_[first[1:] - 1, len(group) - 1]
    extent[group[first]] = reached[last] - start[first]
    return union, extent


def _running_max(values: Ints, first: Ints, group: Ints) -> Ints:
    """Return the largest value so far within each group; `first` are the groups' first positions."""
    if len(first) == 1:
        out: Ints = np.maximum.accumulate(values)
        return out
    # If each value is larger than the one before it, as in most cases, the running maximum is the value itself.
    falls = values[1:] < values[:-1]
    falls[first[1:] - 1] = False
    if not falls.any():
        return values
    out = values.copy()
    affected = np.unique(group[np.flatnonzero(falls) + 1])
    place = np.flatnonzero(np.isin(group, affected))
    import pandas as pd  # rarely needed

    out[place] = pd.Series(values[place]).groupby(group[place], sort=False).cummax().to_numpy()
    return out

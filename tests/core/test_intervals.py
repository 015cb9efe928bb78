# SPDX-License-Identifier: Apache-2.0
"""Nested intervals agree with the plainest code there is: overlapping, empty, adjacent and equal ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core.intervals import Nesting, clip, groups, nesting_order, order_by, too_deep

# Few distinct times, so that intervals touch, coincide and vanish all the time.
pairs = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=14)


def arrays(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(intervals, np.int64).reshape(-1, 2)
    order = nesting_order(table[:, 0], table[:, 1], np.negative)
    return table[order, 0], table[order, 1]


def cut(start: list[int], end: list[int]) -> list[int]:
    """Every interval ends, at the latest, where one ends that began before it and is still open."""
    out: list[int] = []
    for i, begin in enumerate(start):
        out.append(min([end[i], *(out[j] for j in range(i) if out[j] > begin)]))
    return out


def encloses(start: int, end: int, time: int) -> bool:
    return start <= time < end


@given(pairs)
def test_clip_cuts_at_the_end_of_what_is_open(intervals):
    start, end = arrays(intervals)
    clipped, count = clip(start, end)
    assert clipped.tolist() == cut(start.tolist(), end.tolist())
    assert count == int((clipped != end).sum())


@given(pairs, st.integers(0, 4))
def test_errors_of_the_clock_are_cut_and_not_counted(intervals, slack):
    start, end = arrays(intervals)
    clipped, count = clip(start, end, slack)
    Nesting(start, clipped)  # nothing overlaps
    assert (clipped <= end).all()
    assert count == int((end - clipped > slack).sum()) or slack
    exact, crossing = clip(start, end)
    if not crossing:
        assert clipped.tolist() == exact.tolist() == end.tolist()


def test_an_end_that_is_off_by_the_error_of_a_clock():
    both = np.array([0, 60])
    assert [part if isinstance(part, int) else part.tolist() for part in clip(both, np.array([100, 120]), 30)] == [
        [100, 100], 0  # inside: 40 of it are, 20 are not
    ]  # fmt: skip
    assert clip(both, np.array([100, 131]), 30)[1] == 1
    assert clip(both, np.array([80, 120]), 30)[0].tolist() == [
        60,
        120,
    ]  # after: 20 of it are inside, 40 are not


@given(pairs)
def test_innermost_is_the_last_that_began_and_has_not_ended(intervals):
    start, end = arrays(intervals)
    end, _ = clip(start, end)
    times = np.arange(-1, 22)
    expected = [max((i for i in range(len(start)) if encloses(start[i], end[i], time)), default=-1) for time in times]
    assert Nesting(start, end).innermost(times).tolist() == expected


@given(pairs)
def test_parent_and_depth(intervals):
    start, end = arrays(intervals)
    end, _ = clip(start, end)
    nest = Nesting(start, end)

    def above(i: int) -> list[int]:
        """What an interval stands in; an empty one stands in those of the same moment that come before it."""
        return [
            j for j in range(i) if encloses(start[j], end[j], start[i]) or (start[j] == end[j] == start[i] == end[i])
        ]

    assert nest.depth.tolist() == [len(above(i)) for i in range(len(start))]
    assert nest.parent.tolist() == [max(above(i), default=-1) for i in range(len(start))]
    assert sorted(np.concatenate([*nest.levels, np.empty(0, int)]).tolist()) == list(range(len(start)))


@given(pairs)
def test_overlap_is_refused_not_misread(intervals):
    start, end = arrays(intervals)
    overlap = cut(start.tolist(), end.tolist()) != end.tolist()
    if overlap:
        with pytest.raises(ValueError, match="overlap"):
            Nesting(start, end)
    else:
        Nesting(start, end)


def test_an_interval_that_ends_where_the_next_begins_does_not_enclose_it():
    nest = Nesting(np.array([0, 5]), np.array([5, 9]))
    assert nest.parent.tolist() == [-1, -1]
    assert nest.innermost(np.array([4, 5, 9])).tolist() == [0, 1, -1]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3)), max_size=20))
def test_order_by_is_a_stable_sort(rows):
    keys = np.array(rows, np.int64).reshape(-1, 3)
    assert order_by(*keys.T).tolist() == sorted(range(len(rows)), key=lambda i: rows[i])


@given(st.lists(st.integers(-2, 3), max_size=12))
def test_groups_are_all_places_of_each_key(keys):
    found = {key: places.tolist() for key, places in groups(np.array(keys, np.int64))}
    assert found == {key: [i for i, k in enumerate(keys) if k == key] for key in keys}
    assert list(found) == sorted(found)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 8))), st.integers(1, 3))
def test_what_is_left_of_deep_intervals_is_as_deep_as_allowed(events, limit):
    thread, start, length = np.array(events, np.int64).reshape(-1, 3).T
    end = start + length
    deep = too_deep(thread, start, end, limit)
    deep = np.zeros(len(thread), bool) if deep is None else deep
    for number in (0, 1):
        mine = np.flatnonzero(thread == number)
        order = mine[nesting_order(start[mine], end[mine], np.negative)]
        clipped, _ = clip(start[order], end[order])
        if len(order) and (clipped == end[order]).all():  # nested: exactly those are left out that are too deep
            assert deep[order].tolist() == (Nesting(start[order], clipped).depth >= limit).tolist()
        kept = order[~deep[order]]
        if len(kept):
            assert Nesting(start[kept], clip(start[kept], end[kept])[0]).depth.max() < limit

# SPDX-License-Identifier: Apache-2.0
"""Lengths of unions and partitions, against counting single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core import intervals
from pyprof.facts.device.partition import Union, partition

TIME = 40
some = st.lists(st.tuples(st.integers(0, TIME), st.integers(0, TIME)).map(lambda pair: tuple(sorted(pair))), max_size=8)


def union(pairs: list[tuple[int, int]]) -> Union:
    return Union(*np.array(pairs, np.int64).reshape(-1, 2).T)


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in pairs for t in range(a, b)}


@given(some, some, st.integers(0, TIME), st.integers(0, TIME))
def test_a_union_has_the_length_of_its_moments(
    one: list[tuple[int, int]], two: list[tuple[int, int]], begin: int, end: int
) -> None:
    found = union(one).with_(union(two))
    expected = moments(one) | moments(two)
    assert len(found) == len(expected)
    window = sorted((begin, end))
    inside = found.within(np.array([window[0]]), np.array([window[1]]))
    assert inside.tolist() == [len(expected & set(range(*window)))]


@given(st.lists(some, max_size=4), st.lists(st.integers(0, TIME), min_size=2, max_size=5))
def test_a_partition_gives_each_moment_to_the_first_class_that_has_it(
    classes: list[list[tuple[int, int]]], bounds: list[int]
) -> None:
    edges = np.array(sorted(bounds), np.int64)
    parts = partition([union(pairs) for pairs in classes], edges[:-1], edges[1:])
    assert len(parts) == len(classes) + 1
    for number, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist())):
        left = set(range(begin, end))
        for pairs, part in zip(classes, parts):
            taken = left & moments(pairs)
            assert part[number] == len(taken)
            left -= taken
        assert parts[-1][number] == len(left)


@given(some, st.lists(st.integers(-1, 2), min_size=8, max_size=8))
def test_the_union_by_group_is_that_of_each_group(pairs: list[tuple[int, int]], groups: list[int]) -> None:
    start, end = np.array(pairs, np.int64).reshape(-1, 2).T
    group = np.array(groups[: len(pairs)], np.int64)
    length, extent = intervals.union_and_extent_by(group, start, end, 3)
    for number in range(3):
        mine = [pair for pair, g in zip(pairs, groups) if g == number]
        assert length[number] == len(moments(mine))
        reach = max((b for _, b in mine), default=0) - min((a for a, _ in mine), default=0)
        assert extent[number] == reach

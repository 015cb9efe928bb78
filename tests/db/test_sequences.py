# SPDX-License-Identifier: Apache-2.0
"""Repeated sequences against a search by hand in Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.facts.steps.sequences import LONGEST, SHORTEST, repeats

Found = dict[tuple[int, ...], list[int]]


def found(rows: list[list[int]]) -> Found:
    code = np.array([number for row in rows for number in row], np.int64)
    run = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    out: Found = {}
    for one in repeats(code, run):
        for number, first in enumerate(one.first.tolist()):
            key = tuple(code[first : first + one.length].tolist())
            assert key not in out
            out[key] = one.places[one.pattern == number].tolist()
    return out


def occurrences(rows: list[list[int]], longest: int) -> Found:
    """All places of all patterns, overlapping ones too."""
    out: Found = defaultdict(list)
    base = 0
    for row in rows:
        for length in range(SHORTEST, longest + 1):
            for i in range(len(row) - length + 1):
                out[tuple(row[i : i + length])].append(base + i)
        base += len(row)
    return out


def apart(places: list[int], length: int) -> list[int]:
    out: list[int] = []
    for place in sorted(places):
        if not out or place >= out[-1] + length:
            out.append(place)
    return out


rows_of_numbers = st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=4)


@given(rows_of_numbers)
def test_shorter_patterns_are_the_maximal_ones(rows: list[list[int]]) -> None:
    every = occurrences(rows, LONGEST + 1)
    expected = {}
    for pattern, places in every.items():
        longer = [p for p in every if len(p) == len(pattern) + 1 and pattern in (p[1:], p[:-1])]
        if len(pattern) < LONGEST and all(len(every[p]) < len(places) for p in longer):
            kept = apart(places, len(pattern))
            if len(kept) > 1:
                expected[pattern] = kept
    mine = found(rows)
    assert {p: places for p, places in mine.items() if len(p) < LONGEST} == expected
    for pattern, places in mine.items():
        assert places == apart(every[pattern], len(pattern))
        assert len(places) > 1


@given(rows_of_numbers)
def test_every_repeated_pattern_of_six_is_covered_by_pieces(rows: list[list[int]]) -> None:
    """Each place of one is in pieces that repeat, unless its occurrences overlap."""
    every = occurrences(rows, LONGEST)
    pieces = [p for p in found(rows) if len(p) == LONGEST]
    covered = {place + i for p in pieces for place in every[p] for i in range(LONGEST)}
    for pattern, places in every.items():
        if len(pattern) == LONGEST and len(places) > 1:
            near = min(b - a for a, b in zip(sorted(places), sorted(places)[1:]))
            if near >= LONGEST:
                assert covered & {place + i for place in places for i in range(LONGEST)}


def test_a_long_sequence_is_cut_into_pieces_of_six() -> None:
    for length, pieces in ((20, (0, 6, 12)), (21, (0, 6, 12, 15)), (6, (0,)), (12, (0, 6))):
        long, n = list(range(length)), length + 1
        mine = found([[*long, 99, *long, 98, *long]])
        assert mine == {tuple(range(i, i + 6)): [i, n + i, 2 * n + i] for i in pieces}


def test_a_loop_without_end_is_one_circle() -> None:
    mine = found([[1, 2, 3, 4, 5, 6, 7] * 10])
    assert [len(p) for p in mine].count(LONGEST) <= 3
    assert max(len(places) for places in mine.values()) == 10


def test_rows_are_not_joined() -> None:
    assert found([[1, 2], [3, 1], [2, 3]]) == {}
    assert found([[1, 2], [1, 2]]) == {(1, 2): [0, 2]}


def test_equal_numbers_overlap() -> None:
    assert found([[7] * 5]) == {(7, 7): [0, 2]}
    assert found([[]]) == {}

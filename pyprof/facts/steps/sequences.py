# SPDX-License-Identifier: Apache-2.0
"""Find repeating sequences: patterns of 2 to 6 numbers in rows of numbers, in linear time.

The pattern of length L at a place is the pattern of length L - 1 there and the number behind it. Each such pair gets
a number, so that equal patterns have equal numbers and only pairs are hashed. A pattern repeats only if both
patterns of length L - 1 in it do.

>>> found = repeats(np.array([5, 6, 7, 5, 6, 7, 9]), np.zeros(7, np.int64))
>>> [(one.length, one.first.tolist(), one.places.tolist()) for one in found if len(one.first)]
[(3, [0], [0, 3])]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints

SHORTEST, LONGEST = 2, 6


class Repeats(NamedTuple):
    """Patterns of one length.

    `first`: the first place of each pattern. `places`: places of occurrences that do not overlap others of the same
    pattern, in order. `pattern`: the pattern (an index into `first`) at each of them.
    """

    length: int
    first: Ints
    places: Ints
    pattern: Ints


class _Level(NamedTuple):
    """Patterns of a length: the number of the pattern at each place (-1: it occurs once, or ends beyond its run), the
    number of occurrences of each, and the first place of each."""

    number: Ints
    times: Ints
    first: Ints


def repeats(code: Ints, run: Ints) -> Iterator[Repeats]:
    """Yield the maximal patterns that occur at least twice without overlap, by length.

    `code`: numbers in rows; `run`: the row of each, in ascending order. No pattern extends into the next row. A
    pattern is maximal if no longer one has all its occurrences. A sequence longer than 6 that repeats as a whole is
    reported as its pieces of 6, and the last 6 if at least 3 of these are in no other piece.
    """
    code = pd.factorize(code)[0].astype(np.int64)
    level = _level(code, np.arange(len(code)), len(code))
    for length in range(SHORTEST, LONGEST + 2):
        longer = _longer(level, code, run, length)
        if length > SHORTEST:
            yield _maximal(level, longer, length - 1)
        level = longer


def _level(keys: Ints, places: Ints, n: int) -> _Level:
    """Return the level of the patterns that have these keys at these places."""
    codes, distinct = pd.factorize(keys)
    number = np.full(n, -1, np.int64)
    number[places] = codes
    first = np.zeros(len(distinct), np.int64)
    first[codes[::-1]] = places[::-1]
    return _Level(number, np.bincount(codes, minlength=len(distinct)), first)


def _longer(level: _Level, code: Ints, run: Ints, length: int) -> _Level:
    """Return the level of the next length."""
    n = len(code)
    last = max(n - length + 1, 0)
    again = np.r_[level.times > 1, False][level.number]  # -1 is the last
    places = np.flatnonzero((run[:last] == run[n - last :]) & again[:last] & again[1 : last + 1])
    width = int(code.max(initial=0)) + 1
    return _level(level.number[places] * width + code[places + length - 1], places, n)


def _maximal(level: _Level, longer: _Level, length: int) -> Repeats:
    """Return the patterns of a level that no longer pattern covers."""
    n = len(level.number)
    again = level.times > 1
    after = longer.number[level.first]
    before = np.where(level.first > 0, longer.number[level.first - 1], -1)
    count = np.r_[longer.times, 0]
    followed = count[after] == level.times
    if length < LONGEST:
        keep = again & ~followed & (count[before] != level.times)
    else:
        keep = again & _pieces(level, followed & again)
    places = np.flatnonzero(np.r_[keep, False][level.number])
    places = places[np.argsort(level.number[places], kind="stable")]
    pattern = level.number[places]
    apart = _apart(places, pattern, length, n)
    places, pattern = places[apart], pattern[apart]
    often = np.bincount(pattern, minlength=len(level.times)) > 1
    places, pattern = places[often[pattern]], pattern[often[pattern]]
    numbers = np.flatnonzero(often)
    return Repeats(length, level.first[numbers], places, np.searchsorted(numbers, pattern))


def _pieces(level: _Level, followed: Bools) -> Bools:
    """Return which patterns to keep of those that always follow each other one place later: the first, the sixth after
    it and so on, and the last if half of it is new."""
    place = np.minimum(level.first + 1, len(level.number) - 1)
    behind = np.where(followed, level.number[place], -1)
    behind = np.where((behind >= 0) & (level.times[behind] == level.times), behind, -1)
    keep = np.zeros(len(behind), bool)
    seen = bytearray(len(behind))
    next_ = behind.tolist()
    heads = np.ones(len(behind), bool)
    heads[behind[behind >= 0]] = False
    for start in [*np.flatnonzero(heads).tolist(), *range(len(next_))]:  # those left are circles
        pattern, turn, last = start, 0, -1
        while pattern >= 0 and not seen[pattern]:
            seen[pattern] = 1
            if turn % LONGEST == 0:
                keep[pattern] = True
            pattern, turn, last = next_[pattern], turn + 1, pattern
        if pattern < 0 and (turn - 1) % LONGEST >= LONGEST // 2:
            keep[last] = True
    return keep


def _apart(places: Ints, pattern: Ints, length: int, n: int) -> Bools:
    """Return which occurrences of each pattern do not overlap, from the first on. They are sorted by pattern, then
    place."""
    selected = np.ones(len(places), bool)
    close = np.flatnonzero((np.diff(places) < length) & (np.diff(pattern) == 0))
    if not len(close):
        return selected
    close_places = np.union1d(close, close + 1)
    key = pattern[close_places] * (n + length) + places[close_places]
    next_ = np.searchsorted(key, key + length)
    inside = np.r_[pattern[close_places], -1][next_] == pattern[close_places]
    next_ = np.where(inside, next_, len(close_places))
    reached = np.zeros(len(close_places) + 1, bool)
    reached[:-1] = np.r_[True, np.diff(pattern[close_places]) != 0]
    jump = np.r_[next_, len(close_places)]
    while (jump[:-1] < len(close_places)).any():  # twice as far each time
        reached[jump[reached]] = True
        jump = jump[jump]
    selected[close_places] = reached[:-1]
    return selected

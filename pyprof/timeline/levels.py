# SPDX-License-Identifier: Apache-2.0
"""Levels of detail: neighbors that are shorter than a bucket of 2^level ns and begin in the same one are one record.

What is at least as long as the bucket stays alone, so an outlier is visible at every zoom. Sums of the time and of
the number of events are exact at every level; only where inside a record the idle time lies is not known. A record of
several events is shorter than two buckets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.core.model import Ints
from pyprof.timeline.records import Records, extent

FINEST = 14  # 16 us: finer levels keep most of the events of a GPU
STEP = 2
_BUCKETS = 1024  # of the coarsest level
_KEPT = 0.8  # a level with more of the records of the one before it is left out


def levels(records: Records) -> Iterator[tuple[int, Records]]:
    """Yield the levels that a track has, finest first: level 0, all events, then some of 14, 16, 18 ..."""
    yield 0, records
    low, high = extent(records)
    longest: Ints = records.end - records.start
    level, finer = FINEST, len(records)
    while (high - low) >> (level - STEP) > _BUCKETS:
        records, longest = _merged(records, longest, level)
        if len(records) <= _KEPT * finer:
            finer = len(records)
            yield level, records
        level += STEP


def _merged(records: Records, longest: Ints, level: int) -> tuple[Records, Ints]:
    """Return the records of a level made from those of a finer one, and the time of the longest event in each."""
    if len(records) < 2:
        return records, longest
    short = records.end - records.start < 1 << level
    bucket = records.start >> level
    joined = short[1:] & short[:-1]
    joined &= bucket[1:] == bucket[:-1]
    joined &= records.lane[1:] == records.lane[:-1]
    first = np.flatnonzero(np.concatenate([[True], ~joined]))
    if len(first) == len(records):
        return records, longest
    last = np.concatenate([first[1:], [len(records)]]) - 1
    most = np.maximum.reduceat(longest, first)
    candidates = np.flatnonzero(longest == np.repeat(most, last - first + 1))
    place = candidates[np.searchsorted(candidates, first)]  # the first of the longest
    merged = Records(
        lane=records.lane[first],
        start=records.start[first],
        end=records.end[last],
        busy=np.add.reduceat(records.busy, first),
        events=np.add.reduceat(records.events, first),
        id=records.id[place],
        name=records.name[place],
        operator=records.operator[place],
    )
    return merged, most

# SPDX-License-Identifier: Apache-2.0
"""Counters over time, in buckets: what the events of a device amount to.

An event's amount is spread evenly over its time, so that the sum over all buckets is the sum over all events. Where
an event of unknown amount runs, the time of the bucket is unknown to that extent: it does not count as zero. Memory is
a step function; a bucket has the most that was in use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import KERNELS, MEMCPY, Bools, Floats, Ints
from pyprof.facts.device import launch_stats
from pyprof.facts.device.concurrency import levels
from pyprof.facts.device.partition import Union
from pyprof.store.files import Store

# Events of a device as `work` takes them.
COLUMNS = "kind, start_ns, duration_ns, tc, hardware_ps, model_ps, copied_bytes, geometry"
_USED, _NAME_TELLS = 1, (0, 1, 2)  # event.tc


class Work(NamedTuple):
    """Events of a device: their times in ns, and by counter the amount of each (ns of the device, bytes), NaN if it is
    unknown; 0 where the counter is not of such events. `filled`: the multiprocessors of `multiprocessors` that get a
    block, -1 where that is unknown."""

    start: Ints
    end: Ints
    amounts: dict[str, Floats]
    filled: Ints
    multiprocessors: int


class Buckets(NamedTuple):
    """Sums of amounts in buckets of `width` ns from `low` on, and the time in which events of unknown amount ran."""

    low: int
    width: int
    sums: dict[str, Floats]
    unknown: dict[str, Floats]

    @property
    def number(self) -> int:
        return len(self.sums["copies"])

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for part in (self.sums, self.unknown) for values in part.values())


def work(store: Store, worker: int, device: int, columns: dict[str, Floats]) -> Work:
    """Return the events with the columns `COLUMNS`, NaN for NULL."""
    kind, tc = columns["kind"], columns["tc"]
    kernel, copy = np.isin(kind, KERNELS), kind == MEMCPY
    start, length = columns["start_ns"].astype(np.int64), columns["duration_ns"].astype(np.int64)
    chip = store.rows(
        "select sm_count, compute_capability from device where worker = ? and number = ?", (worker, device)
    )
    count, capability = chip[0] if chip else (None, None)
    reached, _ = launch_stats.filled(launch_stats.shapes(store), count, capability)
    geometry = np.where(np.isnan(columns["geometry"]), -1, columns["geometry"]).astype(np.int64)
    filled = reached[geometry]
    amounts = {
        "tensor": np.where(np.isin(tc, _NAME_TELLS), np.where(tc == _USED, length, 0), np.nan),
        "hfu": columns["hardware_ps"] / 1000,
        "mfu": columns["model_ps"] / 1000,
        "sm": np.where(filled >= 0, filled * length, np.nan),
    }
    amounts = {key: np.where(kernel, values, 0.0) for key, values in amounts.items()}
    amounts["copies"] = np.where(copy, columns["copied_bytes"], 0.0)
    return Work(start, start + length, amounts, np.where(kernel, filled, 0), count or 1)


def buckets(events: Work, low: int, width: int, count: int) -> Buckets:
    """Return the sums in `count` buckets. Tensor-core time of kernels that run at once counts once, and they fill at
    most all multiprocessors together."""
    edges = low + width * np.arange(count + 1, dtype=np.int64)
    sums, unknown = {}, {}
    for key, amount in events.amounts.items():
        missing = np.isnan(amount)
        if key == "tensor":
            used = _union(events, amount > 0)
            either = used.with_(_union(events, missing))
            sums[key] = np.diff(used.before(edges)).astype(float)
            unknown[key] = np.diff(either.before(edges)).astype(float) - sums[key]
        elif key == "sm":
            sums[key] = _filled(events, low, width, count)
            unknown[key] = np.diff(_union(events, missing).before(edges)).astype(float)
        else:
            known = ~missing & (amount != 0)
            sums[key] = spread(events.start[known], events.end[known], amount[known], low, width, count)
            unknown[key] = np.diff(_union(events, missing).before(edges)).astype(float)
    return Buckets(low, width, sums, unknown)


def _filled(events: Work, low: int, width: int, count: int) -> Floats:
    """Return the time in each bucket, of each moment the share of the multiprocessors that had a block."""
    known = events.filled > 0
    out: Floats = np.zeros(count)
    for time, level in levels(events.start[known], events.end[known], events.filled[known], events.multiprocessors):
        length, used = np.diff(time), level > 0
        amount = (level * length / events.multiprocessors)[used]
        out += spread(time[:-1][used], time[1:][used], amount, low, width, count)
    return out


def _union(events: Work, mask: Bools) -> Union:
    return Union(events.start[mask], events.end[mask])


def spread(start: Ints, end: Ints, amount: Floats, low: int, width: int, count: int) -> Floats:
    """Return the amounts in each bucket. That of an event without a length is in the bucket of its start.

    >>> spread(np.array([5, 30]), np.array([25, 30]), np.array([40.0, 1.0]), 0, 10, 4).tolist()
    [10.0, 20.0, 10.0, 1.0]
    """
    high = low + width * count
    inside = (start < high) & ((end > low) | (start >= low))
    start, end, amount = start[inside], end[inside], amount[inside]
    rate = amount / np.maximum(end - start, 1)
    begin, stop = np.maximum(start, low), np.minimum(end, high)
    first = (begin - low) // width
    last = np.maximum((stop - 1 - low) // width, first)
    whole = np.where(start == end, amount, rate * (stop - begin))

    def add(place: Ints, values: Floats) -> Floats:
        sums: Floats = np.bincount(place, values, count + 1)[: count + 1].astype(np.float64)
        return sums

    one = first == last
    out = add(first[one], whole[one])
    first, last, rate, begin, stop = (values[~one] for values in (first, last, rate, begin, stop))
    out += add(first, rate * (low + (first + 1) * width - begin))
    out += add(last, rate * (stop - low - last * width))
    between = np.cumsum(add(first + 1, rate * width) - add(last, rate * width))
    # Sums and differences of the same numbers leave a rest where nothing runs.
    runs = np.cumsum(add(first + 1, np.ones(len(first))) - add(last, np.ones(len(last))))
    return (out + np.where(runs > 0.5, between, 0))[:count]


def joined(fine: Buckets, start: int, end: int, most: int) -> Buckets:
    """Return the buckets that touch [start, end), several of them as one so that there are at most so many."""
    total = fine.number
    first = min(max((start - fine.low) // fine.width, 0), total)
    last = min(max(-(-(end - fine.low) // fine.width), first), total)
    each = max(-(-(last - first) // most), 1)
    last = min(first + -(-(last - first) // each) * each, total)  # the last is as wide as the others
    places = np.arange(first, last, each)

    def sums(values: Floats) -> Floats:
        return np.add.reduceat(values[:last], places) if len(places) else values[:0]

    return Buckets(
        fine.low + first * fine.width,
        fine.width * each,
        {key: sums(values) for key, values in fine.sums.items()},
        {key: sums(values) for key, values in fine.unknown.items()},
    )


def steps(time: Ints, value: Floats, low: int, width: int, count: int) -> Floats:
    """Return the largest value of a step function in each bucket, NaN before its first value.

    >>> steps(np.array([12, 14, 35]), np.array([5.0, 2.0, 7.0]), 0, 10, 5).tolist()
    [nan, 5.0, 2.0, 7.0, 7.0]
    """
    edges = low + width * np.arange(count + 1, dtype=np.int64)
    place = np.searchsorted(time, edges, side="left")
    before = np.searchsorted(time, edges[:-1], side="right") - 1
    out = np.where(before >= 0, np.r_[value, np.nan][before], np.nan)
    changed = np.flatnonzero(place[1:] > place[:-1])
    if len(changed):
        # Buckets between two of these have no values of their own: reduceat takes each up to the next.
        most = np.fmax.reduceat(value[: place[-1]], place[changed])
        out[changed] = np.fmax(out[changed], most)
    return out

# SPDX-License-Identifier: Apache-2.0
"""What allocators gave and took back: of one worker, by device, with what was in use after each event.

Times are ns, sizes bytes. Device -1 is the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.analysis.source import Source
from pyprof.intervals import groups
from pyprof.model import Bools, Column, Ints

CPU = -1


class Allocations(NamedTuple):
    """Events of one worker and device, by time. `bytes` > 0 was given, < 0 taken back. `allocated`: in use after the
    event: as recorded, else (`recorded` False) the sum of all events so far, from 0 at the beginning of the recording.
    `reserved`: held by the allocator then, missing if not recorded. `inside`: in the aggregated iterations."""

    worker: int
    device: int
    thread: Ints
    time: Ints
    address: Column
    bytes: Ints
    allocated: Ints
    reserved: Column
    recorded: bool
    inside: Bools


def allocations(source: Source) -> Iterator[Allocations]:
    """By worker and device, those without events left out."""
    for worker, low, high in _windows(source):
        found = source.store.columns(
            f"""select thread, time, device, address, bytes, allocated, reserved from memory
                where id >= {worker << 40} and id < {(worker + 1) << 40} order by id"""
        )
        device = np.where(found["device"].mask(), found["device"].values, CPU)
        for number, places in groups(device):
            mine = {name: column.take(places) for name, column in found.items()}
            time, size, told = mine["time"].values, mine["bytes"].values, mine["allocated"]
            recorded = bool(told.mask().all())
            yield Allocations(
                worker, number, mine["thread"].values, time, mine["address"], size,
                told.values if recorded else np.cumsum(size), mine["reserved"], recorded, (time >= low) & (time < high),
            )  # fmt: skip


def _windows(source: Source) -> list[tuple[int, int, int]]:
    """Workers with the bounds of their aggregated iterations; the first and the last iteration reach to the ends of the
    recording, where they are aggregated."""
    chosen = source.aggregation
    rows = source.store.rows(
        """select i.worker, min(i.start), max(i."end"), min(i.number), max(i.number),
                  (select max(number) from iteration where iteration_set = i.iteration_set and worker = i.worker)
           from iteration i where i.iteration_set = ? and i.number between ? and ? and (? is null or i.worker = ?)
           group by i.worker order by i.worker""",
        (chosen.iteration_set, chosen.first, chosen.last, source.worker, source.worker),
    )
    far = 1 << 62
    return [
        (worker, -far if first == 0 else start, far if last == final else end)
        for worker, start, end, first, last, final in rows
    ]


def pairs(found: Allocations) -> tuple[Ints, Ints]:
    """Places of what was given and of when that was taken back, -1 for what is not recorded: each event is in one pair.
    An allocation is taken back by the next event at its address, if that gives back as much."""
    address, size = found.address.values, found.bytes
    order = np.lexsort((np.arange(len(size)), address))
    order = order[found.address.mask()[order]]
    first, second = order[:-1], order[1:]
    match = (address[first] == address[second]) & (size[first] > 0) & (size[second] == -size[first])
    freed = np.full(len(size), -1, np.int64)
    freed[first[match]] = second[match]
    alone = np.ones(len(size), bool)
    alone[second[match]] = False
    given = np.flatnonzero((size > 0) | alone)
    return np.where(size[given] > 0, given, -1), np.where(size[given] > 0, freed[given], given)

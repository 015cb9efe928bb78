# SPDX-License-Identifier: Apache-2.0
"""Memory events of allocators, by worker and device, with the bytes in use after each event.

Times are in ns, sizes in bytes. Device -1 is the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import Bools, Column, Ints
from pyprof.facts.steps.source import Source
from pyprof.store.ids import first_id

CPU = -1


class Allocations(NamedTuple):
    """Memory events of one worker and device, by time.

    `bytes` is positive for an allocation and negative for a free. `allocated`: bytes in use after the event, as
    recorded; without a record (`recorded` is False) the sum of all events so far, from 0 at the beginning of the
    recording. `reserved`: bytes that the allocator held then, missing if not recorded. `inside`: events in the
    aggregated iterations.
    """

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
    """Yield the memory events of each worker and device that has any."""
    for worker, low, high in _windows(source):
        columns = source.store.columns(
            f"""select thread, time_ns, device, address, bytes, allocated_bytes, reserved_bytes
                from memory where id >= {first_id(worker)} and id < {first_id(worker + 1)} order by id"""
        )
        device = np.where(columns["device"].mask(), columns["device"].values, CPU)
        for number, places in groups(device):
            own = {name: column.take(places) for name, column in columns.items()}
            time, size, in_use = own["time_ns"].values, own["bytes"].values, own["allocated_bytes"]
            recorded = bool(in_use.mask().all())
            yield Allocations(
                worker, number, own["thread"].values, time, own["address"], size,
                in_use.values if recorded else np.cumsum(size), own["reserved_bytes"], recorded,
                (time >= low) & (time < high),
            )  # fmt: skip


def _windows(source: Source) -> list[tuple[int, int, int]]:
    """Return workers with the bounds of their aggregated iterations. The first and the last iteration, where they are
    aggregated, extend to the ends of the recording."""
    aggregation = source.aggregation
    rows = source.store.rows(
        """select i.worker, min(i.host_start_ns), max(i.host_end_ns), min(i.number), max(i.number),
                  (select max(number) from iteration where iteration_set = i.iteration_set and worker = i.worker)
           from iteration i where i.iteration_set = ? and i.number between ? and ? and (? is null or i.worker = ?)
           group by i.worker order by i.worker""",
        (aggregation.iteration_set, aggregation.first, aggregation.last, source.worker, source.worker),
    )
    far = 1 << 62
    return [
        (worker, -far if first == 0 else start, far if last == final else end)
        for worker, start, end, first, last, final in rows
    ]


def pairs(events: Allocations) -> tuple[Ints, Ints]:
    """Pair allocations with their frees: return places of the allocations and of the frees, -1 for one that is not
    recorded.

    Each event is in exactly one pair. The free of an allocation is the next event at its address, if it frees as
    many bytes.
    """
    address, size = events.address.values, events.bytes
    order = np.lexsort((np.arange(len(size)), address))
    order = order[events.address.mask()[order]]
    first, second = order[:-1], order[1:]
    match = (address[first] == address[second]) & (size[first] > 0) & (size[second] == -size[first])
    freed = np.full(len(size), -1, np.int64)
    freed[first[match]] = second[match]
    unpaired = np.ones(len(size), bool)
    unpaired[second[match]] = False
    starts = np.flatnonzero((size > 0) | unpaired)
    return np.where(size[starts] > 0, starts, -1), np.where(size[starts] > 0, freed[starts], starts)


def successors(events: Allocations) -> tuple[Ints, Bools]:
    """Return the place of the next event at the address of each, -1 for none, and which events are the first at theirs.

    Events without an address or of 0 bytes have neither. What was allocated is gone by its successor, even if that is
    not its free.
    """
    address = events.address.values
    order = np.lexsort((np.arange(len(address)), address))
    order = order[(events.address.mask() & (events.bytes != 0))[order]]
    first, second = order[:-1], order[1:]
    same = address[first] == address[second]
    following, initial = np.full(len(address), -1, np.int64), np.zeros(len(address), bool)
    following[first[same]] = second[same]
    initial[order] = True
    initial[second[same]] = False
    return following, initial

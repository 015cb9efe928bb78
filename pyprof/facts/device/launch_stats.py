# SPDX-License-Identifier: Apache-2.0
"""Per-event weights for launch delay, queueing and occupancy, which aggregation sums.

Weights are integers, so that sums over any iterations are exact. An unknown value weighs nothing; a second weight
sums the time for which the value is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pyprof.core import occupancy
from pyprof.core.model import KERNELS, Bools, Ints
from pyprof.store.files import Store

_NONE = -1


class Shapes(NamedTuple):
    """By geometry: blocks of the grid, threads of a block, registers, shared memory, the recorded occupancy in percent;
    -1 if unknown."""

    blocks: Ints
    threads: Ints
    registers: Ints
    shared_memory: Ints
    occupancy: Ints


def shapes(store: Store) -> Shapes:
    """Return the table of launch geometries, and a last row for "none"."""
    columns = store.columns(
        """select coalesce(grid_x * grid_y * grid_z, -1) as blocks,
                  coalesce(block_x * block_y * block_z, -1) as threads,
                  coalesce(registers, -1) as registers, coalesce(shared_memory_bytes, -1) as shared_memory,
                  coalesce(occupancy, -1) as occupancy
           from geometry order by id"""
    )
    return Shapes(*(np.r_[columns[name].values, _NONE].astype(np.int64) for name in Shapes._fields))


def weights(
    event: Mapping[str, Ints], launched: Bools, launch: Ints, launch_end: Ints, filled: tuple[Ints, Ints]
) -> dict[str, Ints]:
    """Return, per event, its weights in the columns of `iteration_device`. `event`: kind, start_ns, duration_ns,
    geometry (-1: none)."""
    kind, start, dur = event["kind"], event["start_ns"], event["duration_ns"]
    kernel = np.isin(kind, KERNELS)
    multiprocessors, share = (part[event["geometry"]] for part in filled)
    shaped, rated = kernel & (multiprocessors >= 0), kernel & (share >= 0)
    return {
        "launched": launched.astype(np.int64),
        "delay_ns": np.where(launched, np.maximum(start - launch_end, 0), 0),
        "queued_ns": np.where(launched, np.maximum(start + dur - launch, 0), 0),
        "shaped_ns": np.where(shaped, dur, 0),
        "occupied_of_ns": np.where(rated, dur, 0),
        "occupied_bp_ns": np.where(rated, dur * share, 0),
    }


def filled(geometries: Shapes, multiprocessors: int | None, capability: str | None) -> tuple[Ints, Ints]:
    """Return, by geometry, the multiprocessors that get a block, and the occupancy in 0.01 %; -1 where unknown.

    A recorded occupancy takes precedence, but for 0, which no kernel has: Kineto rounds that of a tiny grid, and writes
    0 for kernels with more shared memory than the static limit. Then the estimate counts.

    >>> block = Shapes(*(np.array([number]) for number in (1, 128, 32, 0, 0)))
    >>> filled(block, 80, "7.0")[1].tolist(), filled(block, 80, None)[1].tolist()  # 128 of 80 * 2048 threads; unknown
    ([8], [-1])
    """
    blocks, threads, registers, shared, recorded = geometries
    recorded = np.where(recorded > 0, recorded * 100, _NONE)
    if not multiprocessors:
        return np.full(len(blocks), _NONE), recorded
    reached = np.where(blocks >= 0, np.minimum(blocks, multiprocessors), _NONE)
    major, _, minor = (capability or "").partition(".")
    chip = None
    if major.isdigit() and minor.isdigit():
        chip = occupancy.of_capability(int(major), int(minor), multiprocessors)
    if chip is None:
        return reached, recorded
    missing = occupancy.MISSING
    share = occupancy.estimate(
        chip, threads, blocks, np.where(registers < 0, missing, registers), np.where(shared < 0, missing, shared),
        np.zeros(len(blocks), np.int64),
    )  # fmt: skip
    return reached, np.where(recorded > 0, recorded, np.where(share == missing, _NONE, share))

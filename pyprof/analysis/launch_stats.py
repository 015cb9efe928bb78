# SPDX-License-Identifier: Apache-2.0
"""How events of one device came to run and how much of it they fill: weights per event, which aggregation adds up.

Weights are integers, so that sums over any iterations are exact. What is not known weighs nothing, and a second weight
says how much time is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pyprof import occupancy
from pyprof.model import KERNEL, Bools, Ints
from pyprof.store.files import Store

_NONE = -1


class Shapes(NamedTuple):
    """By geometry: blocks of the grid, threads of a block, registers, shared memory, the recorded occupancy in percent;
    -1 unknown."""

    blocks: Ints
    threads: Ints
    registers: Ints
    shared_memory: Ints
    occupancy: Ints


def shapes(store: Store) -> Shapes:
    """The table of launch geometries; one more, the last, for "none"."""
    found = store.columns(
        """select coalesce(grid_x * grid_y * grid_z, -1) as blocks,
                  coalesce(block_x * block_y * block_z, -1) as threads,
                  coalesce(registers, -1) as registers, coalesce(shared_memory, -1) as shared_memory,
                  coalesce(occupancy, -1) as occupancy
           from geometry order by id"""
    )
    return Shapes(*(np.r_[found[name].values, _NONE].astype(np.int64) for name in Shapes._fields))


def weights(
    event: Mapping[str, Ints], launched: Bools, launch: Ints, launch_end: Ints, filled: tuple[Ints, Ints]
) -> dict[str, Ints]:
    """Per event what its columns of `iteration_device` add up. `event`: kind, start, dur, geometry (-1: none)."""
    kind, start, dur = event["kind"], event["start"], event["dur"]
    kernel = kind == KERNEL
    multiprocessors, share = (part[event["geometry"]] for part in filled)
    shaped, known = kernel & (multiprocessors >= 0), kernel & (share >= 0)
    return {
        "launched": launched.astype(np.int64),
        "delay": np.where(launched, np.maximum(start - launch_end, 0), 0),
        "queued": np.where(launched, np.maximum(start + dur - launch, 0), 0),
        "shaped": np.where(shaped, dur, 0),
        "filled": np.where(shaped, dur * multiprocessors, 0),
        "occupied_of": np.where(known, dur, 0),
        "occupied": np.where(known, dur * share, 0),
    }


def filled(found: Shapes, multiprocessors: int | None, capability: str | None) -> tuple[Ints, Ints]:
    """By geometry: multiprocessors that get a block, and the occupancy in 0.01 %; -1 where it is not known.

    A recorded occupancy comes first. A recorded 0 is the rounded one of a tiny grid, or the recorder did not know the
    chip (Kineto writes 0 for kernels with more shared memory than the static limit): the larger figure is right then.
    """
    blocks, threads, registers, shared, recorded = found
    recorded = np.where(recorded >= 0, recorded * 100, _NONE)
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
    known = np.where(share == missing, _NONE, share)
    return reached, np.where(recorded > 0, recorded, np.where((recorded == 0) & (known < 100), 0, known))

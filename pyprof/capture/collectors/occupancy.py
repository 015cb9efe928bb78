# SPDX-License-Identifier: Apache-2.0
"""Occupancy of kernels, estimated from their launch: neither the Activity API of CUPTI nor an export of nsys has it.

The share of a multiprocessor's threads that blocks of the kernel can fill: as many blocks as its registers, shared
memory, warps and block slots allow, and no more than the grid brings to each multiprocessor. That is what Kineto
calls "est. achieved occupancy", except that shared memory is taken as granted (the kernel did run).

Limits and granularities: CUDA C++ Programming Guide, "Compute Capabilities", and the occupancy calculator in
`cuda_occupancy.h` of the CUDA Toolkit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.capture.collectors.device import MISSING, Array

# Resident blocks per multiprocessor by compute capability; of one that is not here nothing is known.
_BLOCKS = {
    (6, 0): 32, (6, 1): 32, (6, 2): 32, (7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16,
    (8, 9): 24, (9, 0): 32, (10, 0): 32, (10, 1): 32, (10, 3): 32, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
_SCHEDULERS = 4  # warp schedulers of a multiprocessor, among which its registers are divided; 6.0 has two
_REGISTER_UNIT = 256  # registers are given to a warp in units of so many


class Chip(NamedTuple):
    """What a multiprocessor of a device has."""

    major: int
    minor: int
    multiprocessors: int
    threads: int
    registers: int
    shared_memory: int  # bytes
    warp: int = 32


def estimate(
    chip: Chip, block: Array, blocks: Array, registers: Array, static: Array, dynamic: Array
) -> Array:
    """Occupancy in 0.01 %, `MISSING` where it is not known. `block` is threads, `blocks` those of the grid."""
    slots = _BLOCKS.get((chip.major, chip.minor))
    known = (block > 0) & (blocks > 0) & (registers != MISSING) & (static != MISSING) & (dynamic != MISSING)
    if slots is None or not chip.multiprocessors or not chip.threads or not known.any():
        return np.full(len(block), MISSING, np.int64)
    warps = -(-np.where(known, block, 1) // chip.warp)
    resident = np.minimum(slots, chip.threads // chip.warp // warps)
    resident = np.minimum(resident, _by_registers(chip, warps, np.where(known, registers, 0)))
    resident = np.minimum(resident, _by_shared_memory(chip, np.where(known, static + dynamic, 0)))
    resident = np.maximum(resident, 1)  # it ran
    brought = np.where(known, blocks, 1) / chip.multiprocessors
    share = np.minimum(resident, brought) * np.where(known, block, 1) / chip.threads
    return np.where(known, np.rint(10_000 * share), MISSING).astype(np.int64)


def _by_registers(chip: Chip, warps: Array, registers: Array) -> Array:
    per_warp = -(-np.maximum(registers, 1) * chip.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    schedulers = 2 if (chip.major, chip.minor) == (6, 0) else _SCHEDULERS
    fit = chip.registers // schedulers // per_warp * schedulers
    return fit // warps


def _by_shared_memory(chip: Chip, used: Array) -> Array:
    system, unit = (1024, 128) if chip.major >= 8 else (0, 256)
    allocated = -(-(used + system) // unit) * unit
    return np.where(allocated > 0, chip.shared_memory // np.maximum(allocated, 1), 1 << 16)

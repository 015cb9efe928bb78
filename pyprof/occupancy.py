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

from pyprof.model import Ints

MISSING = -(2**63)  # what is not known, as in the records of the capture

# Resident blocks per multiprocessor by compute capability; of one that is not here nothing is known.
_BLOCKS = {
    (6, 0): 32, (6, 1): 32, (6, 2): 32, (7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16,
    (8, 9): 24, (9, 0): 32, (10, 0): 32, (10, 1): 32, (10, 3): 32, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
# Threads and bytes of shared memory of a multiprocessor. All of these have 65536 registers.
_THREADS = {
    (6, 0): 2048, (6, 1): 2048, (6, 2): 2048, (7, 0): 2048, (7, 2): 2048, (7, 5): 1024, (8, 0): 2048, (8, 6): 1536,
    (8, 7): 1536, (8, 9): 1536, (9, 0): 2048, (10, 0): 2048, (10, 1): 2048, (10, 3): 2048, (11, 0): 1536,
    (12, 0): 1536, (12, 1): 1536,
}  # fmt: skip
_SHARED_KB = {
    (6, 0): 64, (6, 1): 96, (6, 2): 64, (7, 0): 96, (7, 2): 96, (7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 7): 164,
    (8, 9): 100, (9, 0): 228, (10, 0): 228, (10, 1): 228, (10, 3): 228, (11, 0): 228, (12, 0): 100, (12, 1): 100,
}  # fmt: skip
_REGISTERS = 65536
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


def of_capability(major: int, minor: int, multiprocessors: int) -> Chip | None:
    """A device of which only the compute capability is known; None for one that is not in the tables.

    >>> of_capability(7, 0, 80)
    Chip(major=7, minor=0, multiprocessors=80, threads=2048, registers=65536, shared_memory=98304, warp=32)
    """
    threads, shared = _THREADS.get((major, minor)), _SHARED_KB.get((major, minor))
    if threads is None or shared is None:
        return None
    return Chip(major, minor, multiprocessors, threads, _REGISTERS, shared * 1024)


def estimate(chip: Chip, block: Ints, blocks: Ints, registers: Ints, static: Ints, dynamic: Ints) -> Ints:
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


def _by_registers(chip: Chip, warps: Ints, registers: Ints) -> Ints:
    per_warp = -(-np.maximum(registers, 1) * chip.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    schedulers = 2 if (chip.major, chip.minor) == (6, 0) else _SCHEDULERS
    fit = chip.registers // schedulers // per_warp * schedulers
    return fit // warps


def _by_shared_memory(chip: Chip, used: Ints) -> Ints:
    system, unit = (1024, 128) if chip.major >= 8 else (0, 256)
    allocated = -(-(used + system) // unit) * unit
    return np.where(allocated > 0, chip.shared_memory // np.maximum(allocated, 1), 1 << 16)

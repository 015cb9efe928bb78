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


class Limits(NamedTuple):
    """What a multiprocessor holds at once: blocks, threads, KiB of shared memory; all have 65,536 registers."""

    blocks: int
    threads: int
    shared_kib: int


# By compute capability; of one that is not here nothing is known.
LIMITS = {
    (6, 0): Limits(32, 2048, 64),
    (6, 1): Limits(32, 2048, 96),
    (6, 2): Limits(32, 2048, 64),
    (7, 0): Limits(32, 2048, 96),
    (7, 2): Limits(32, 2048, 96),
    (7, 5): Limits(16, 1024, 64),
    (8, 0): Limits(32, 2048, 164),
    (8, 6): Limits(16, 1536, 100),
    (8, 7): Limits(16, 1536, 164),
    (8, 9): Limits(24, 1536, 100),
    (9, 0): Limits(32, 2048, 228),
    (10, 0): Limits(32, 2048, 228),
    (10, 1): Limits(32, 2048, 228),
    (10, 3): Limits(32, 2048, 228),
    (11, 0): Limits(24, 1536, 228),
    (12, 0): Limits(24, 1536, 100),
    (12, 1): Limits(24, 1536, 100),
}
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
    limits = LIMITS.get((major, minor))
    if limits is None:
        return None
    return Chip(major, minor, multiprocessors, limits.threads, _REGISTERS, limits.shared_kib * 1024)


def estimate(chip: Chip, block: Ints, blocks: Ints, registers: Ints, static: Ints, dynamic: Ints) -> Ints:
    """Occupancy in 0.01 %, `MISSING` where it is not known. `block` is threads, `blocks` those of the grid."""
    known = (block > 0) & (blocks > 0) & (registers != MISSING) & (static != MISSING) & (dynamic != MISSING)
    if (
        (chip.major, chip.minor) not in LIMITS
        or not chip.multiprocessors
        or not chip.threads
        or not known.any()
    ):
        return np.full(len(block), MISSING, np.int64)
    held = resident(chip, *(np.where(known, part, 1) for part in (block, registers, static + dynamic)))
    brought = np.where(known, blocks, 1) / chip.multiprocessors
    share = np.minimum(held, brought) * np.where(known, block, 1) / chip.threads
    return np.where(known, np.rint(10_000 * share), MISSING).astype(np.int64)


def resident(chip: Chip, threads: Ints, registers: Ints, shared: Ints) -> Ints:
    """Return how many blocks of a kernel a multiprocessor of a chip in `LIMITS` holds at once, at least 1: it ran.

    `threads` of a block, `registers` of a thread, `shared`: bytes of shared memory of a block.
    """
    warps = -(-threads // chip.warp)
    slots = LIMITS[chip.major, chip.minor].blocks
    held = np.minimum(slots, chip.threads // chip.warp // warps)
    held = np.minimum(held, _by_registers(chip, warps, registers))
    return np.maximum(np.minimum(held, _by_shared_memory(chip, shared)), 1)


def _by_registers(chip: Chip, warps: Ints, registers: Ints) -> Ints:
    per_warp = -(-np.maximum(registers, 1) * chip.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    schedulers = 2 if (chip.major, chip.minor) == (6, 0) else _SCHEDULERS
    fit = chip.registers // schedulers // per_warp * schedulers
    return fit // warps


def _by_shared_memory(chip: Chip, used: Ints) -> Ints:
    system, unit = (1024, 128) if chip.major >= 8 else (0, 256)
    allocated = -(-(used + system) // unit) * unit
    return np.where(allocated > 0, chip.shared_memory // np.maximum(allocated, 1), 1 << 16)

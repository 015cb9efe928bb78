# SPDX-License-Identifier: Apache-2.0
"""Occupancy of kernels, estimated from their launch: neither the Activity API of CUPTI nor an export of nsys provides
it.

The share of a multiprocessor's threads that blocks of the kernel can fill: as many blocks as its registers, shared
memory, warps and block slots allow, and no more than the grid provides per multiprocessor. This is Kineto's "est.
achieved occupancy", except that shared memory is assumed to fit (the kernel did run).

Limits and granularities: CUDA C++ Programming Guide, "Compute Capabilities", and the occupancy calculator in
`cuda_occupancy.h` of the CUDA Toolkit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import Ints

MISSING = -(2**63)  # unknown, as in the records of the capture


class Limits(NamedTuple):
    """Limits of a multiprocessor: blocks, threads, KiB of shared memory; all have 65,536 registers."""

    blocks: int
    threads: int
    shared_kib: int


# By compute capability; others are unknown.
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
_MAX_THREADS = 1024  # of a block
_MAX_REGISTERS = 255  # of a thread
_SCHEDULERS = 4  # warp schedulers of a multiprocessor, among which its registers are divided; 6.0 has two
_REGISTER_UNIT = 256  # allocation unit of registers, per warp


class Chip(NamedTuple):
    """Resources of a multiprocessor of a device."""

    major: int
    minor: int
    multiprocessors: int
    threads: int
    registers: int
    shared_memory: int  # bytes
    warp: int = 32


def of_capability(major: int, minor: int, multiprocessors: int) -> Chip | None:
    """Return a device of which only the compute capability is known; None if it is not in the tables.

    >>> of_capability(7, 0, 80)
    Chip(major=7, minor=0, multiprocessors=80, threads=2048, registers=65536, shared_memory=98304, warp=32)
    """
    limits = LIMITS.get((major, minor))
    if limits is None:
        return None
    return Chip(major, minor, multiprocessors, limits.threads, _REGISTERS, limits.shared_kib * 1024)


def estimate(chip: Chip, block: Ints, blocks: Ints, registers: Ints, static: Ints, dynamic: Ints) -> Ints:
    """Return occupancy in 0.01 %, `MISSING` where it is unknown. `block` is threads per block, `blocks` is blocks per
    grid."""
    valid = (block > 0) & (blocks > 0) & (registers != MISSING) & (static != MISSING) & (dynamic != MISSING)
    if (chip.major, chip.minor) not in LIMITS or not chip.multiprocessors or not chip.threads or not valid.any():
        return np.full(len(block), MISSING, np.int64)
    fitting = resident(chip, *(np.where(valid, part, 1) for part in (block, registers, static + dynamic)))
    available = np.where(valid, blocks, 1) / chip.multiprocessors
    share = np.minimum(fitting, available) * np.where(valid, block, 1) / chip.threads
    return np.where(valid, np.rint(10_000 * share), MISSING).astype(np.int64)


def resident(chip: Chip, threads: Ints, registers: Ints, shared: Ints) -> Ints:
    """Return the number of blocks of a kernel that a multiprocessor of a chip in `LIMITS` holds at once, at least 1: it
    ran.

    `threads` of a block, `registers` of a thread, `shared`: bytes of shared memory of a block. Figures of damaged
    files, beyond what any GPU has, count as the most that is possible.
    """
    threads, registers = np.clip(threads, 1, _MAX_THREADS), np.clip(registers, 1, _MAX_REGISTERS)
    shared = np.clip(shared, 0, chip.shared_memory)
    warps = -(-threads // chip.warp)
    slots = LIMITS[chip.major, chip.minor].blocks
    blocks = np.minimum(slots, chip.threads // chip.warp // warps)
    blocks = np.minimum(blocks, _by_registers(chip, warps, registers))
    return np.maximum(np.minimum(blocks, _by_shared_memory(chip, shared)), 1)


def _by_registers(chip: Chip, warps: Ints, registers: Ints) -> Ints:
    per_warp = -(-registers * chip.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    schedulers = 2 if (chip.major, chip.minor) == (6, 0) else _SCHEDULERS
    fit = chip.registers // schedulers // per_warp * schedulers
    return fit // warps


def _by_shared_memory(chip: Chip, used: Ints) -> Ints:
    system, unit = (1024, 128) if chip.major >= 8 else (0, 256)
    allocated = -(-(used + system) // unit) * unit
    return np.where(allocated > 0, chip.shared_memory // np.maximum(allocated, 1), 1 << 16)

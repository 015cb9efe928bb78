# SPDX-License-Identifier: Apache-2.0
"""Ids of rows: the worker in the upper bits, below it a number that follows the start (of events the launch).

So a stretch of one worker's time is a range of ids. In SQL the worker of a row is `id >> 40`.

>>> worker_of(first_id(3) + 17), (first_id(3) + 17) & NUMBER_MASK
(3, 17)
"""

from __future__ import annotations

from typing import TypeVar

from pyprof.core.model import Ints

WORKER_SHIFT = 40
NUMBER_MASK = (1 << WORKER_SHIFT) - 1
LAST_ID = (1 << 63) - 1  # larger than any
_Id = TypeVar("_Id", int, Ints)


def worker_of(ids: _Id) -> _Id:
    """Return the worker of each id."""
    return ids >> WORKER_SHIFT


def first_id(worker: _Id) -> _Id:
    """Return the lowest id that a row of a worker can have; the ids of a worker end before the next one's."""
    return worker << WORKER_SHIFT

# SPDX-License-Identifier: Apache-2.0
"""Events of a track as columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import Ints


class Records(NamedTuple):
    """Events, or runs of neighboring events, ordered by lane, then start; those of a lane do not overlap.

    `lane`: from 0, the outermost; `start`, `end`: ns; `busy`: ns in which its events ran; `events`: how many; `id`,
    `name`, `operator`: of the longest of them: the row, the number of the text, and the number of the operator plus 1
    (0: none).
    """

    lane: Ints
    start: Ints
    end: Ints
    busy: Ints
    events: Ints
    id: Ints
    name: Ints
    operator: Ints

    def __len__(self) -> int:  # of records, not of columns
        return int(self.start.shape[0])

    def take(self, index: Ints | slice) -> Records:
        """Return some of the records."""
        return Records(*(column[index] for column in self))


def single(lane: Ints, start: Ints, end: Ints, id: Ints, name: Ints, operator: Ints) -> Records:
    """Return records of one event each."""
    return Records(lane, start, end, end - start, np.ones(len(start), np.int64), id, name, operator)


def extent(records: Records) -> tuple[int, int]:
    """Return the first start and the last end, 0 and 0 without records."""
    return (int(records.start.min()), int(records.end.max())) if len(records) else (0, 0)

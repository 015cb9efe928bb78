# SPDX-License-Identifier: Apache-2.0
"""Savings of findings: by how much the steady steps would be shorter without what a finding is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from pyprof.core.model import Ints
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.path.critical_path import Rank
from pyprof.facts.path.what_if import Edit, Replay
from pyprof.facts.ranks.rank_clocks import clocks
from pyprof.facts.steps.source import Source


class Savings:
    """Replays of the steady steps, which are some rows of `iteration`."""

    def __init__(self, source: Source, excerpts: Sequence[Excerpt], steps: pd.DataFrame):
        whole: dict[int, Excerpt] = {}
        for one in excerpts:
            if len(one.id):
                whole[one.worker] = _joined(whole[one.worker], one) if one.worker in whole else one
        self.ranks = {worker: Rank(source, worker, one) for worker, one in whole.items()}
        own = {worker: steps[steps["worker"] == worker] for worker in whole}
        self._numbers = {worker: rows["number"].to_numpy(np.int64) for worker, rows in own.items()}
        self._ends = {worker: rows["end_ns"].to_numpy(np.int64) for worker, rows in own.items()}
        known, first = clocks(source.store), next(iter(whole))
        low = min(known[worker].forward(one.window[0]) for worker, one in whole.items())
        self._replay = Replay(self.ranks, known, first, int(known[first].back(low)))

    def earlier(self, edits: Mapping[int, Edit]) -> dict[int, Ints]:
        """Return by how many ns each steady step would end earlier with edits, by worker."""
        return self._replay.earlier(edits, self._ends)

    def waits(self, worker: int) -> Union:
        """Return the time in which the host of a worker waited for the device."""
        return self._replay.waits(worker)

    def without(self, edits: Mapping[int, Edit], steps: int | None) -> int:
        """Return by how many ns so many steps, or the recording, would be shorter with edits, by worker, mean over the
        workers. A first step, before which nothing is different, is compared with the last of those that follow each
        other, if there are several."""
        earlier, own = self.earlier(edits), []
        for worker, times in earlier.items():
            follows = np.diff(self._numbers[worker]) == 1
            if steps is None or not follows.any():
                return int(sum(int(times[-1]) for times in earlier.values()) / len(earlier))
            own.append(np.diff(times)[follows].sum() / follows.sum())
        return max(int(fmean(own) * (steps or 1)), 0)


def _joined(first: Excerpt, second: Excerpt) -> Excerpt:
    """Return an excerpt from the beginning of one to the end of a later one."""
    bounds = ((first.window, second.window), (first.ids("event"), second.ids("event")))
    return Excerpt(first.store, first.worker, *((one[0], other[1]) for one, other in bounds))

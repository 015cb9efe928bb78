# SPDX-License-Identifier: Apache-2.0
"""Savings of findings: by how much the steps of the samples would be shorter without what a finding is about."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from pyprof.core.model import Ints
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.path.critical_path import Rank
from pyprof.facts.path.what_if import Edit, Replay
from pyprof.facts.ranks.rank_clocks import clocks

if TYPE_CHECKING:
    from pyprof.rules.context import Run
    from pyprof.rules.event_sample import Sample


class Savings:
    """Replays of the samples of a run."""

    def __init__(self, run: Run):
        self._run = run
        samples = [sample for sample in run.samples if len(sample.of("id"))]
        self.ranks = {
            sample.worker: Rank(run.source, sample.worker, _excerpt(run, sample)) for sample in samples
        }
        self._ends = {sample.worker: _ends(run, sample) for sample in samples}
        known, first = clocks(run.store), samples[0]
        low = min(known[one.worker].forward(one.start) for one in samples)
        self._replay = Replay(self.ranks, known, first.worker, int(known[first.worker].back(low)))

    def earlier(self, edits: Mapping[int, Edit]) -> dict[int, Ints]:
        """Return by how many ns each step of the samples would end earlier with edits, by worker."""
        return self._replay.earlier(edits, self._ends)

    def waits(self, worker: int) -> Union:
        """Return the time in which the host of a worker waited for the device."""
        return self._replay.waits(worker)

    def without(self, edits: Mapping[int, Edit]) -> int:
        """Return by how many ns the window would be shorter with edits, by worker, mean over the workers. The first
        step of a sample, before which nothing is different, is compared with the last, if there are several."""
        run = self._run
        earlier = self.earlier(edits)
        if run.cut and all(len(own) > 1 for own in earlier.values()):
            steps = [(own[-1] - own[0]) / (len(own) - 1) for own in earlier.values()]
            return max(int(fmean(steps) * run.steps), 0)
        return run.scaled(sum(int(own[-1]) for own in earlier.values()))


def _excerpt(run: Run, sample: Sample) -> Excerpt:
    ids = sample.of("id")
    return Excerpt(run.store, sample.worker, (int(ids[0]), int(ids[-1]) + 1), (sample.start, sample.end))


def _ends(run: Run, sample: Sample) -> Ints:
    """Return the ends of the steps of a sample; without a whole one, that of its last event."""
    rows = run.store.rows(
        """select number, end_ns from iteration where iteration_set = ? and worker = ? and host_start_ns >= ?
           and host_end_ns <= ? order by number""",
        (run.source.aggregation.iteration_set, sample.worker, sample.start, sample.end),
    )
    ends = [end for number, end in rows if number in set(run.numbers.tolist())]
    last = sample.of("start_ns") + sample.of("duration_ns")
    return np.array(ends or [int(last.max())], np.int64)

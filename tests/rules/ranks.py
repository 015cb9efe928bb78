# SPDX-License-Identifier: Apache-2.0
"""Three ranks with one collective a step of 1 ms, each a process of its own, as traces of torch.profiler."""

from __future__ import annotations

import json
import os
import tempfile

from pyprof import profiles
from tests.reports.ranks import trace
from tests.reports.test_communication import reduce
from tests.rules.small import Small

_STEP, _ARRIVAL, _TRANSFER = 1000, 300, 20  # us


class Late(Small):
    """In each step rank 2 arrives first, rank 0 is there 50 us later, and rank 1, or each in its turn, `time` us after
    that. Hosts wait for the collective; the one of the late rank begins so much later what it launches next. `aligned`
    False: hosts of their own and no process groups, so that nothing says which kernels are one collective."""

    def __init__(self, time: int, aligned: bool = True, turns: bool = False, steps: int = 9):
        super().__init__(steps)
        self._late = [(step % 3 if turns else 1, time) for step in range(steps)]
        self._aligned = aligned

    def write(self, path: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(3):
                with open(os.path.join(folder, f"rank{rank}.1700000000000.pt.trace.json"), "w") as file:
                    json.dump(self._trace(rank), file)
            profiles.load(folder).save(path)

    def _trace(self, rank: int) -> dict[str, object]:
        kernels = []
        for step, (last, time) in enumerate(self._late):
            # The one before the last of the three, in a circle, is in the middle.
            after = {last: 50 + time, (last + 2) % 3: 50}.get(rank, 0)
            end = 50 + time + _TRANSFER
            start = step * _STEP + _ARRIVAL
            kernels.append(reduce(start + after, end - after, step, "0" if self._aligned else None, size=3))
        if not self._aligned:
            kernels = [one._replace(seq=None) for one in kernels]
        marks = [(step * _STEP, (step + 1) * _STEP) for step in range(self.steps)]
        out: dict[str, object] = json.loads(trace(rank, kernels, marks, "" if self._aligned else f"node{rank}", 3))
        events = out["traceEvents"]
        assert isinstance(events, list)
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 1000 + rank,
             "tid": 1000 + rank, "ts": one.start, "dur": one.dur, "args": {}}
            for one in kernels
        ]  # fmt: skip
        return out

# SPDX-License-Identifier: Apache-2.0
"""Parts of the time of each step: phases of the training, waits for data, and the causes of idle time."""

from __future__ import annotations

import numpy as np

from pyprof.core.model import BACKWARD, FORWARD, NO_PHASE, OPTIMIZER, RECOMPUTE, Ints
from pyprof.facts.device.partition import Union, partition
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.gaps import ALL, CAUSES, by_cause
from pyprof.facts.host.host_work import Spans, read_executions
from pyprof.facts.steps.device_steps import Steps
from pyprof.facts.steps.source import Source

# In the order of their priority: recomputation runs within a backward.
PHASES = {"recompute": RECOMPUTE, "optimizer": OPTIMIZER, "backward": BACKWARD, "forward": FORWARD}
IDLE = {cause.replace(" ", "_").replace("-", "_"): cause for cause in CAUSES}


def phases(source: Source, activity: Activity, steps: Steps) -> dict[str, Ints]:
    """Return the ns of each step of a worker in parts that add up to its length: PHASES, "no_phase", and with a GPU
    IDLE, else "dataloader" and "other". Operators of a CPU that load a batch belong to the wait for it."""
    key = "phases", source.aggregation.id, activity.worker
    return source.store.cached(key, lambda: _phases(source, activity, steps), small=True)


def _phases(source: Source, activity: Activity, steps: Steps) -> dict[str, Ints]:
    # First, while nothing else of the recording's size is in memory.
    idle = by_cause(activity, ALL, *steps.window) if source.gpu and len(steps.start) else {}
    phase, start, end = activity.phases(source.gpu)
    if not source.gpu:  # Python in an operator, between its events, is the operator's
        rows = source.store.rows("select id, coalesce(phase, ?) from operator", (NO_PHASE,))
        phase_of = np.full(max((number for number, _ in rows), default=0) + 1, NO_PHASE, phase.dtype)
        phase_of[[number for number, _ in rows]] = [code for _, code in rows]
        parts = [Spans(**part) for part in read_executions(activity)]
        calls = Spans(*map(np.concatenate, zip(*parts)))
        phase = np.r_[phase, phase_of[calls.value]]
        start, end = np.r_[start, calls.start], np.r_[end, calls.start + calls.length]
    classes = {name: Union(start[phase == code], end[phase == code]) for name, code in PHASES.items()}
    classes["no_phase"] = Union(start, end)
    del phase, start, end
    if source.gpu:
        empty = np.empty(0, np.int64)
        for name, cause in IDLE.items():
            classes[name] = Union(*idle.pop(cause, (empty, empty)))
    else:
        classes = {"dataloader": activity.dataloader} | classes
    return split(activity, steps, classes)


def split(activity: Activity, steps: Steps, classes: dict[str, Union]) -> dict[str, Ints]:
    """Return the partition of each step in classes by priority, and the remainder; pauses of the recording are not part
    of it."""
    lengths = partition([activity.paused, *classes.values()], steps.start, steps.end)
    return dict(zip((*classes, "other"), lengths[1:]))

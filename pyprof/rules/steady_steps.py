# SPDX-License-Identifier: Apache-2.0
"""Times of devices and of the CPU in the steady steps, whose bounds are those of the report step_time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from statistics import fmean

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints
from pyprof.facts.device.partition import Union, partition
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.gaps import ALL, by_cause
from pyprof.facts.host.user_ranges import instances
from pyprof.facts.steps.device_steps import Steps, activities, device_steps
from pyprof.facts.steps.source import Source
from pyprof.facts.steps.step_phases import IDLE, phases
from pyprof.store import reads


class SteadySteps(ABC):
    """Part of the input of rules that needs the times of single events."""

    source: Source

    @property
    @abstractmethod
    def numbers(self) -> Ints:
        """Numbers of the steady iterations."""

    def among(self, steps: Steps) -> Bools:
        """Return which of a worker's steps are steady."""
        return np.isin(np.arange(len(steps.start)) + self.source.aggregation.first, self.numbers)

    @property
    def cut(self) -> bool:
        """True if the run was cut into iterations."""
        return self.source.aggregation.method != "none"

    @cached_property
    def _steps(self) -> list[tuple[Activity, Ints, Ints]]:
        """Starts and ends of the steady steps of each worker that used a device: those of the report step_time."""
        steps = [(activity, own, self.among(own)) for activity, own in activities(self.source) if activity.devices]
        return [(activity, own.start[among], own.end[among]) for activity, own, among in steps if among.any()]

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """The user's ranges, and torch's, that start in these steps: as of `user_ranges.instances`."""
        texts, out = reads.texts(self.source.store), []
        for activity, start, end in self._steps:
            table, _ = instances(activity, texts)
            step = np.searchsorted(start, table["start"], side="right") - 1
            out.append(table[(step >= 0) & (table["start"] < end[np.maximum(step, 0)])])
        return pd.concat(out) if out else pd.DataFrame(columns=["path", "host", "kernels", "copies", "busy"])

    def _first(self, activity: Activity, start: Ints) -> int:
        """Return the time from which idle time counts: without steps from the first event, for what comes before is the
        program's start."""
        return int(start[0]) if self.cut else max(int(start[0]), int(activity.start.min()))

    def _gaps(self, activity: Activity, start: Ints, end: Ints) -> dict[str, tuple[Ints, Ints]]:
        """Return idle time in the steps of a worker, by cause."""
        first = self._first(activity, start)
        own = Union(np.r_[first, start[1:]], end.copy())
        idle = by_cause(activity, ALL, first, int(end[-1]))
        if len(own.start) == 1:
            return idle
        inside = {cause: own.both(Union(*bounds)) for cause, bounds in idle.items()}
        return {cause: (union.start, union.end) for cause, union in inside.items()}

    @cached_property
    def idle(self) -> Mapping[str, int]:
        """Time in the steady steps in which all devices of a worker were idle, by cause, as in step_time by phase: a
        step could be so much shorter. Without steps, from the first event: what comes before is the program's start.
        Mean over the workers that used a device."""
        sums = Counter[str]()
        for activity, start, end in self._steps:
            if self.cut and self.source.gpu:
                steps = device_steps(self.source, activity.worker)
                parts, among = phases(self.source, activity, steps), self.among(steps)
                sums.update({cause: int(parts[name][among].sum()) for name, cause in IDLE.items()})
                continue
            for cause, (begin, stop) in self._gaps(activity, start, end).items():
                sums[cause] += int((stop - begin - activity.paused.within(begin, stop)).sum())
        return {cause: time // len(self._steps) for cause, time in sums.items() if time}

    @property
    def before(self) -> int:
        """The time before the first event on a device, if the recording has no steps; mean over the workers."""
        if self.cut or not self._steps:
            return 0
        return int(fmean(self._first(one[0], one[1]) - int(one[1][0]) for one in self._steps))

    @cached_property
    def meanwhile(self) -> tuple[int, ...]:
        """Sums over the workers of what the CPU did while all devices of a worker waited for launches: in API calls of
        any thread, else in operators and ranges, else in neither."""
        out = np.zeros(3, np.int64)
        for activity, start, end in self._steps:
            waits = self._gaps(activity, start, end).get("launch-bound", (out[:0], out[:0]))
            ranges = activity.cpu.with_(activity.dataloader)
            parts = partition([activity.paused, activity.runtime, ranges], *waits)
            out += [int(part.sum()) for part in parts[1:]]
        return tuple(out.tolist())

# SPDX-License-Identifier: Apache-2.0
"""Nodes of autograd's graph, as operator events number them, and forward passes that make nodes for nothing.

torch numbers the nodes that a thread makes, and an operator event has the number of the next one; under no_grad it has
none. So an event made as many nodes as the number after it is larger.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.model import Ints
from pyprof.facts.device.timeline import Excerpt
from pyprof.rules.context import Run
from pyprof.rules.host_places import texts_like
from pyprof.store.kinds import IS_OPERATOR_EVENT

_BACKWARD = ("%Backward%", "%autograd::%")  # their numbers are those of the forward pass


class Nodes:
    """The operator events of an excerpt that have the number of a node, by thread and start: `start` in ns, and how
    many nodes each made, `count`."""

    def __init__(self, run: Run, excerpt: Excerpt):
        low, high = excerpt.ids("range")
        backward = ", ".join(map(str, texts_like(run, _BACKWARD))) or "-1"
        columns = run.store.columns(
            f"""select thread, start_ns, seq from range
                where id >= {low} and id < {high} and {IS_OPERATOR_EVENT} and seq is not null
                and text not in ({backward}) order by id"""
        )
        thread, start, number = (columns[name].values for name in ("thread", "start_ns", "seq"))
        self._of = {
            key: (start[rows], np.maximum(np.diff(number[rows], append=number[rows[-1:]]), 0))
            for key, rows in groups(thread)
        }

    @property
    def start(self) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *(start for start, _ in self._of.values())])

    @property
    def count(self) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *(count for _, count in self._of.values())])

    def between(self, thread: Ints, start: Ints, end: Ints) -> Ints:
        """Return how many nodes the events made that began from `start` to `end` on a thread."""
        out = np.zeros(len(thread), np.int64)
        for key, rows in groups(thread):
            if key in self._of:
                begin, count = self._of[key]
                total = np.r_[0, np.cumsum(count)]
                first, last = (np.searchsorted(begin, time[rows]) for time in (start, end))
                out[rows] = total[last] - total[first]
        return out


def common_lines(stacks: Iterable[object]) -> list[str]:
    r"""Return the lines that all call stacks begin with, outermost first.

    >>> common_lines(["train.py:9\nnet.py:3", "train.py:9\nnet.py:4"])
    ['train.py:9']
    >>> common_lines(["train.py:9", None]), common_lines([])
    ([], [])
    """
    common: list[str] | None = None
    for stack in stacks:
        frames = stack.split("\n") if isinstance(stack, str) else []
        same = [a == b for a, b in zip(frames, frames if common is None else common)]
        common = frames[: same.index(False)] if False in same else frames[: len(same)]
    return common or []

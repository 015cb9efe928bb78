# SPDX-License-Identifier: Apache-2.0
"""When the first iteration begins on the device."""

from __future__ import annotations

import numpy as np
import pytest

from pyprof.facts.steps.device_bounds import Work, bounds


@pytest.mark.parametrize(
    ("event", "begin"),
    [
        ((100, 300), 300),  # ran until the first kernel of the iteration began
        ((100, 250), 250),
        ((100, 301), 0),  # ran beside it
        ((200, 200), 0),  # without length
        (None, 0),
    ],
)
def test_the_first_iteration_begins_when_earlier_work_has_ended(event: tuple[int, int] | None, begin: int) -> None:
    """An iteration from 0 to 400 on the host, whose kernel runs from 300 to 500; an event before it has no launch."""
    before = [] if event is None else [event]
    start, end = np.array([*before, (300, 500)]).T
    launched = np.array([False] * len(before) + [True])
    one = bounds(np.array([0]), np.array([400]), np.array([0]), np.array([len(start)]), Work(start, end, launched))
    assert (one.start.tolist(), one.end.tolist()) == ([begin], [500])

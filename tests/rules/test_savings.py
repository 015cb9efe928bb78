# SPDX-License-Identifier: Apache-2.0
"""The replay behind savings, on real recordings: without an edit nothing moves, and more that goes never costs time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyprof import profiles
from pyprof.facts.device.partition import Union
from pyprof.facts.path.what_if import Edit, together
from pyprof.rules.context import Run
from pyprof.rules.savings import Savings

GPU = Path(__file__).parents[1] / "traces" / "gpu"
OWN = ["two_streams", "transformer_bf16"]
OTHERS = ["resnet50_v100_6steps.pt.trace.json.gz", "dlrm_v100_8ranks.tar.gz"]


def random_edit(savings: Savings, worker: int, random: np.random.Generator) -> Edit:
    """Stretches of the host, waits and events that would be removed, by chance."""
    rank = savings.ranks[worker]
    called = np.sort(rank.releases.called[rank.releases.called >= 0])
    if len(called) < 2:
        return Edit(in_time=bool(random.integers(2)))
    low = np.sort(random.choice(called, 5))
    host, launching, waits = (
        Union(low, low + random.integers(1, max((called[-1] - called[0]) // 10, 2), 5)) for _ in range(3)
    )
    removed = random.choice(rank.activity.id, 5)
    some = random.integers(0, 2, 5)
    return Edit(*(
        value if chosen else default
        for value, default, chosen in zip((host, launching, waits, removed, True), Edit(), some)
    ))  # fmt: skip


def check(prof: profiles.Profile, name: str) -> None:
    run = Run(prof.source())
    savings = Savings(run.source, run.excerpts, run.steady_iterations)
    for moved in savings.earlier({}).values():
        assert not moved.any()
    random = np.random.default_rng(len(name))
    for _ in range(8):
        one, other = ({worker: random_edit(savings, worker, random) for worker in savings.ranks} for _ in range(2))
        both = {worker: together([one[worker], other[worker]]) for worker in one}
        less, more = savings.earlier(one), savings.earlier(both)
        for worker in less:
            assert (less[worker] >= 0).all()
            assert (more[worker] >= less[worker]).all()


@pytest.mark.parametrize("name", OWN)
def test_what_goes_never_makes_a_step_longer(name: str) -> None:
    check(profiles.load(GPU / f"{name}.pt.trace.json.gz"), name)


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_what_goes_never_makes_a_step_longer_in_recordings_of_others(name: str, recorded) -> None:
    check(recorded(f"kineto/{name}"), name)

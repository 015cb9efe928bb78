# SPDX-License-Identifier: Apache-2.0
"""Critical paths of steps in groups say what they say of the whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.facts.path import path_walk
from pyprof.store import packed
from tests import kineto
from tests.reports.simulated import files, plan, write
from tests.reports.test_oracle import load, seeds
from tests.reports.test_stretches import with_copies

STEP = 100_000  # ns


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def small(patch: pytest.MonkeyPatch, size: int) -> None:
    """Make parts of so many rows, and groups of one step if it has as many segments."""
    patch.setattr(packed, "MOST_ROWS", size)
    patch.setattr(path_walk, "_SEGMENTS", size)


def check(prof: profiles.Profile, size: int) -> None:
    """Compare small parts and groups with the whole."""
    reports = [("critical_path", {"ranks": ranks}) for ranks in ("all", "own")]
    reports += [("critical_path", {"by": "step"}), ("exposed", {})]
    whole = [prof.report(name, **options) for name, options in reports]
    with pytest.MonkeyPatch.context() as patch:
        small(patch, size)
        for (name, options), expected in zip(reports, whole):
            assert prof.report(name, **options).equals(expected), (name, options, size)


def test_groups_of_paths_over_ranks(tmp_path: Path):
    check(profiles.load(write(tmp_path, files(plan(4, "python"), 4, 4))), 20)


@seeds(6)
def test_groups_of_any_recording(seed: int):
    check(load(with_copies(seed)), random.Random(seed).randint(1, 20))


def steps(count: int) -> list[kineto.Event]:
    """Steps in a range around all of them; each launches a kernel in an operator, and waits for it, then is in a call
    until the next step has begun."""
    events = [kineto.annotation("epoch", 0, count * STEP)]
    for number in range(count):
        begin = number * STEP
        events += [
            kineto.annotation(f"ProfilerStep#{number}", begin, begin + STEP),
            kineto.function("train.py(7): forward", begin + 1_000, begin + 60_000),
            kineto.op("aten::mm", begin + 5_000, begin + 40_000),
            kineto.launch(begin + 10_000, begin + 12_000, number + 1),
            kineto.kernel("gemm", begin + 20_000, begin + 70_000, number + 1),
            kineto.launch(begin + 50_000, begin + 72_000, 1_000 + number, name="cudaStreamSynchronize"),
            kineto.launch(begin + 73_000, begin + STEP + 9_000, 2_000 + number, name="cudaMalloc"),
            kineto.launch(begin + 75_000, begin + 76_000, 3_000 + number, name="cudaFree"),
        ]
    return events


def test_the_next_operator_may_begin_many_groups_later(tmp_path: Path):
    """A second thread launches in the first step outside of operators; it runs one in the last step."""
    other, last = kineto.TID + 1, 20
    events = [
        *steps(last),
        kineto.annotation(f"ProfilerStep#{last}", last * STEP, (last + 1) * STEP),
        kineto.launch(74_000, 76_000, 5_000, tid=other), kineto.kernel("late", 80_000, 99_000, 5_000),
        kineto.op("aten::relu", last * STEP + 10_000, last * STEP + 20_000, tid=other),
    ]  # fmt: skip
    prof = profiles.load(kineto.write(tmp_path / "trace.json", events))
    check(prof, 4)
    table = prof.report("critical_path")
    assert "relu" in table.query("where == 'before'")["operator"].tolist()

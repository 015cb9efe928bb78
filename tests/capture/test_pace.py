# SPDX-License-Identifier: Apache-2.0
"""torch's records are read before they fill the memory, between steps where there are some, and no time of the program
is lost or invented by that."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.capture import pace
from pyprof.capture.pace import MOST, Pace
from pyprof.facts.device.partition import pauses
from pyprof.facts.steps import iteration_cuts
from tests.forks import ROOT, Forks

from .conftest import Recorded

PRELUDE = """
from pyprof.capture import pace
pace.MOST, pace._mallinfo = 1500, None
"""
PROGRAM = """
import torch, pyprof
x = torch.ones(4)
with pyprof.profile("net.sqlite") as p:
    for count in {counts}:
        for _ in range(count): torch.add(x, 1)
        p.step()
"""


def record(counts: list[int], forks: Forks, folder: Path) -> Recorded:
    code, done = forks.run(folder, PROGRAM.format(counts=counts), prelude=PRELUDE)
    assert code == 0, done.stderr
    return Recorded(folder / "net.sqlite")


def step_time(folder: Path, **options: str) -> pd.DataFrame:
    return pyprof.load(folder / "net.sqlite").report("step_time", **options)


def test_readings_are_between_steps(forks: Forks, tmp_path: Path) -> None:
    recorded = record([100] * 12, forks, tmp_path)
    pauses = recorded.query("select start, end from PYPROF_PAUSE where what = 'reading'")
    steps = recorded.query("select start, end from PYPROF_STEP order by start")
    assert len(pauses) >= 4
    assert len(steps) == 12
    assert all(end <= begin or start >= stop for start, end in steps for begin, stop in pauses)
    assert sum(name == "torch.add" for name in recorded.names) == 1200
    assert sum(op.name == "aten::add" for op in recorded.ops) == 1200
    table = step_time(tmp_path)
    assert not table["partial"].fillna(False).any()
    lengths = [end - start for start, end in steps]
    assert table["total_ns"].tolist() == lengths
    for options in ({"categories": "8"}, {"categories": "7"}, {"categories": "phase"}):
        found = step_time(tmp_path, **options)
        parts = [name for name in found if name.endswith("_ns") and name != "total_ns"]
        assert found[parts].fillna(0).sum(axis=1).tolist() == lengths


def test_a_step_with_a_reading_is_a_part_and_its_time_is_its_own(forks: Forks, tmp_path: Path) -> None:
    recorded = record([50, 2000, 50], forks, tmp_path)
    pauses = recorded.query("select start, end from PYPROF_PAUSE where what = 'reading'")
    steps = recorded.query("select start, end from PYPROF_STEP order by start")
    inside = [
        sum(min(stop, end) - max(begin, start) for begin, stop in pauses if begin < end and stop > start)
        for start, end in steps
    ]
    assert inside[0] == inside[2] == 0 < inside[1]
    table = step_time(tmp_path)
    assert table["partial"].fillna(False).tolist() == [False, True, False]
    expected = [end - start - paused for (start, end), paused in zip(steps, inside)]
    assert table["total_ns"].tolist() == expected
    profile = pyprof.load(tmp_path / "net.sqlite")
    assert profile.steps["duration_ns"].tolist() == expected
    figures = profile.report("summary").set_index("name")["value"]
    assert figures["Wall Clock Time"] == sum(expected)


def test_steps_after_the_bound_are_parts(forks: Forks, tmp_path: Path) -> None:
    """Of 100 calls each, with five operators: 1500 events are two and a half steps."""
    program = PROGRAM.format(counts=[100] * 5).replace('"net.sqlite"', '"net.sqlite", max_events=1500')
    code, done = forks.run(tmp_path, program, prelude=PRELUDE)
    assert code == 0, done.stderr
    assert step_time(tmp_path)["partial"].fillna(False).tolist() == [False, False, True, True, True]


def test_the_whole_recording_is_without_readings(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, PROGRAM.format(counts=[1000]).replace("p.step()", "pass"), prelude=PRELUDE)
    assert code == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    paused = sum(stop - start for start, stop in recorded.query("select start, end from PYPROF_PAUSE"))
    profile = pyprof.load(tmp_path / "net.sqlite")
    steps = iteration_cuts.whole(profile.database)  # each call of the loop is a step
    assert (len(steps.start), steps.partial.tolist()) == (1, [0])
    within = pauses(profile.database, 0).within(steps.start, steps.end)
    assert within.tolist() == [paused]


@pytest.mark.parametrize(
    ("memory", "container", "most"),
    [
        (1 << 34, "max", 40_000), (1 << 30, "max", 40_000), (1 << 36, "max", 120_560), (1 << 36, "1073741824", 40_000),
        (1 << 36, "34359738368", 60_280), (1 << 42, "max", 400_000), (1 << 36, "", 120_560),
    ],
)  # fmt: skip
def test_how_many_operators_torch_may_hold(
    memory: int, container: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of the memory, 5,700 bytes each."""
    pages = {"SC_PHYS_PAGES": memory >> 12, "SC_PAGE_SIZE": 1 << 12}

    def limit(path: str, encoding: str) -> io.StringIO:
        if not container or "memory.max" not in path:
            raise FileNotFoundError(path)
        return io.StringIO(container + "\n")

    monkeypatch.setattr(pace.os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(pace, "open", limit, raising=False)
    assert pace._most() == most


def test_how_many_calls_may_be_recorded_until_the_next_reading() -> None:
    of = Pace()
    of.begin()
    assert of.limit() == MOST // 15
    of.read(1000, 5000)
    assert of.limit() == MOST // 5
    assert not of.due(1000)
    assert not of.due(1000 + MOST // 5 // 2 - 1)  # the next step has as many, which is just not too many
    of.read(10_000, 0)  # of a reading that found nothing nothing is learnt
    assert of.limit() == MOST // 5
    assert not of.due(10_000)
    assert of.due(10_000 + MOST // 5 // 2 + 1)
    of.read(15_000, 5000)
    assert not of.due(15_000)
    of.pending = True
    assert of.due(15_000)


MB = 1_000_000
TICK = 3_000_000  # ns of CPU time between two looks
# What was allocated and the CPU time at each look; how often the watcher asks. 3 MB are 6000 operators, and so are
# 3 ms: above 25,000, at the fifth look, it asks.
SEEN: dict[str, tuple[list[tuple[int, int]], int]] = {
    "operators": ([(n * 3 * MB, n * TICK) for n in range(1, 14)], 9),
    "one large tensor": ([(400 * MB, n * TICK) for n in range(1, 12)], 7),
    "a tensor that was freed": ([(400 * MB, TICK)] + [(0, n * TICK) for n in range(2, 12)], 7),
    "a program that waits": ([(n * 3 * MB, 0) for n in range(1, 12)], 0),
    "little": ([(n * MB // 100, n * TICK) for n in range(1, 12)], 0),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_the_watcher_takes_for_operators(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, expected = SEEN[name]
    asked: list[bool] = []
    now = iter([(0, 0), *looks])
    here = [next(now)]

    def wait(seconds: float) -> bool:
        here[0] = next(now, (-1, 0))
        return here[0][0] < 0

    monkeypatch.setattr(pace, "_allocated", lambda: here[0][0])
    monkeypatch.setattr(pace, "process_time_ns", lambda: here[0][1])
    watcher = pace.Watcher(lambda: asked.append(True))
    monkeypatch.setattr(watcher._ended, "wait", wait)
    watcher.restart(0)
    watcher._look()
    assert len(asked) == expected


def test_what_was_no_operator_is_not_taken_for_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = iter(range(0, 10**12, 10**10))
    monkeypatch.setattr(pace, "process_time_ns", lambda: next(ran))
    watcher = pace.Watcher(lambda: None)
    watcher.restart(0)
    watcher._grown = 100 * MB
    assert watcher._estimate() == 200_000  # 500 bytes each
    watcher.restart(1000)  # they were 0.5 MB of it
    watcher._grown = 100 * MB
    assert watcher._estimate() == 1000
    watcher.restart(200_000)  # they were all of it: half of what was not is remembered
    watcher._grown = 100 * MB
    assert watcher._estimate() == (100 - 99.5 / 2) * MB / 500


def test_what_a_reading_takes_is_no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes ten times the memory of the records, while the watcher goes on to look."""
    looks = iter([False] * 3 + [True])
    monkeypatch.setattr(pace, "process_time_ns", iter(range(0, 10**12, 10**10)).__next__)
    watcher = pace.Watcher(lambda: None)
    watcher.restart(0)
    watcher.hold()
    monkeypatch.setattr(pace, "_allocated", lambda: 1000 * MB)
    monkeypatch.setattr(watcher._ended, "wait", lambda seconds: next(looks))
    watcher._look()
    watcher.restart(1000)
    watcher._grown = 10 * MB
    assert watcher._estimate() == 20_000


IMPORTED = """
import torch, pyprof
from torch import add
x = torch.ones(4)
with pyprof.profile("net.sqlite"):
    for _ in range(50_000): add(x, 1)
"""


@pytest.mark.long
def test_what_no_wrapper_sees_is_read_between_two_bytecodes(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(
        tmp_path, IMPORTED, prelude="from pyprof.capture import pace\npace._EARLY, pace.MOST = 5000, 10_000"
    )
    assert code == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    assert sum(op.name == "aten::add" for op in recorded.ops) == 50_000
    assert {what for (what,) in recorded.query("select what from PYPROF_PAUSE")} == {"reading"}
    assert not recorded.table("PYPROF_LOST")


UNSEEN = {
    "calls": "for _ in range(200_000): torch.add(x, 1)",
    "imported": "for _ in range(60_000): add(x, 1)",
    "scripted": "for _ in range(60): scripted(x, 1000)",
}
MEMORY = """
import sys, torch, pyprof
from torch import add
x = torch.ones(4)
@torch.jit.script
def scripted(x, n: int):
    for _ in range(n): x = torch.add(x, 1)
    return x
scripted(x, 9), scripted(x, 9)
with pyprof.profile("net.sqlite", max_events=100_000):
    {work}
    torch.add(x, 2)
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]  # getrusage has the parent's
print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.long
@pytest.mark.parametrize("work", UNSEEN)
def test_a_recording_takes_no_more_memory_than_it_may(work: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MEMORY.format(work=UNSEEN[work]))
    done = subprocess.run(
        [sys.executable, "net.py"], cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 650, done.stderr  # MB; of them torch alone takes 240
    assert Recorded(tmp_path / "net.sqlite").ops

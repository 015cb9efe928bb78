# SPDX-License-Identifier: Apache-2.0
"""The report of the user's ranges: by hand, and again from the raw rows of random recordings, slowly."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pyprof import profiles
from tests import kineto
from tests.build import Kernel, Launch, Range, Recording, recording
from tests.oracle import length
from tests.reports.test_oracle import load, rows

ON_GPU = (
    "kernels",
    "copies",
    "busy_ns",
    "projected",
    "gpu_total_ns",
    "gpu_median_ns",
    "gpu_min_ns",
    "gpu_max_ns",
)
# Each line takes 100 ns on the CPU; a kernel starts 10,000 ns after its launch and takes 1,000 ns.
TEXT = """
# ProfilerStep#1
    # train
        # a/b
            aten::mm
                > sgemm
            > rope
        > between
    # idle
        aten::mm
    > lonely
"""


def figures(profile: profiles.Profile, *keys: str) -> dict[str | None, tuple[Any, ...]]:
    return {row["path"]: tuple(row[key] for key in keys) for row in rows(profile.report("ranges"))}


@pytest.fixture
def profile(tmp_path: Path) -> profiles.Profile:
    return profiles.load(kineto.write(tmp_path / "trace.json", kineto.Nested(TEXT).events))


def test_a_range_has_what_is_launched_in_those_inside_it_too(profile: profiles.Profile) -> None:
    # Launches of sgemm, rope and between: lines 5, 7 and 9, so that the kernels are 300 and 200 ns apart.
    found = figures(profile, "instances", *ON_GPU)
    starts = [row["ts"] * 1000 for row in kineto.Nested(TEXT).events if row.get("cat") == "kernel"]
    second, third = (round(start - starts[0]) for start in starts[1:3])
    assert (second, third) == (300, 600)
    assert found["train"] == (
        1,
        3,
        0,
        third + 1000,
        1,
        third + 1000,
        third + 1000,
        third + 1000,
        third + 1000,
    )
    assert found["train/a|b"] == (
        1,
        2,
        0,
        second + 1000,
        1,
        second + 1000,
        second + 1000,
        second + 1000,
        second + 1000,
    )
    assert found["idle"] == (1, 0, 0, 0, 0, None, None, None, None)
    assert found[None] == (None, 1, 0, 1000, None, None, None, None, None)
    assert set(found) == {"train", "train/a|b", "idle", None}


def test_times_on_the_host(profile: profiles.Profile) -> None:
    found = figures(profile, "host_total_ns", "host_median_ns", "host_min_ns", "host_max_ns", "style")
    assert found["idle"] == (300, 300, 300, 300, "push/pop")
    assert found[None][:2] == (None, None)


def test_a_range_of_two_streams_is_busy_once_and_spans_the_gap() -> None:
    what = recording("mine\n    > 100 stream=7 a\n    > 30 stream=8 b\nwait 500\nmine\n    > 20 c")
    what.steps = [(0, 0, 10_000)]
    prof = load(what)
    found = figures(prof, "instances", "kernels", "busy_ns", "gpu_total_ns", "gpu_median_ns", "gpu_max_ns")
    assert found == {"mine": (2, 3, 100 + 20, 100 + 20, 60.0, 100)}


def test_start_end_ranges_are_alone_and_have_what_their_thread_launches() -> None:
    what = Recording(
        ranges=[
            Range("x", 0, 100, kind=60),
            Range("y", 50, 150, kind=60),
            Range("p", 40, 120),
            Range("q", 0, 9, thread=2),
        ],
        launches=[Launch(60, 62, 1), Launch(110, 112, 2), Launch(5, 6, 3, thread=2), Launch(200, 201, 4)],
        kernels=[
            Kernel("a", 300, 310, 1),
            Kernel("b", 305, 350, 2),
            Kernel("c", 10, 20, 3),
            Kernel("d", 400, 403, 4),
        ],
    )
    prof = load(what)
    found = {
        (r["path"], r["style"]): (r["kernels"], r["busy_ns"], r["gpu_total_ns"]) for r in rows(prof.report("ranges"))
    }
    assert found == {
        ("x", "start/end"): (1, 10, 10), ("y", "start/end"): (2, 50, 50), ("p", "push/pop"): (2, 50, 50),
        ("q", "push/pop"): (1, 10, 10), (None, None): (1, 3, None),
    }  # fmt: skip
    threads = {row["path"]: row["thread"] for row in rows(prof.report("ranges", by="thread"))}
    assert threads == {"x": 1, "y": 1, "p": 1, "q": 2, None: None}


def test_a_recording_without_ranges_has_no_rows(prof, on_cpu, tmp_path) -> None:
    assert rows(on_cpu.report("ranges")) == []
    path = kineto.write(tmp_path / "a.json", [kineto.launch(0, 5, 1), kineto.kernel("k", 10, 20, 1)])
    assert rows(profiles.load(path).report("ranges")) == []


def test_without_a_gpu_only_the_cpu_is_known(tmp_path) -> None:
    path = kineto.write(tmp_path / "a.json", [kineto.annotation("mine", 0, 700), kineto.op("aten::mm", 100, 300)])
    (row,) = rows(profiles.load(path).report("ranges"))
    assert (row["path"], row["host_total_ns"]) == ("mine", 700)
    assert {row[key] for key in ON_GPU} == {None}


def _random(seed: int) -> Recording:
    """Ranges that nest on two threads, and start/end ranges anywhere."""
    dice = random.Random(seed)
    out = Recording()
    for thread in (1, 2):
        names: list[tuple[str, int]] = []
        clock, number = 0, 0
        for _ in range(60):
            clock += dice.randint(1, 9)
            what = dice.random()
            if what < 0.3 and len(names) < 4:
                names.append((dice.choice("abc"), clock))
            elif what < 0.55 and names:
                name, start = names.pop()
                out.ranges.append(Range(name, start, clock, thread))
            else:
                number += 1
                key = thread * 1000 + number
                out.launches.append(Launch(clock, clock + 1, key, thread))
                begin = clock + dice.randint(1, 40)
                size = dice.choice([None, None, 16])
                out.kernels.append(
                    Kernel("k", begin, begin + dice.randint(1, 30), key, stream=thread, size=size,
                           copy_kind=None if size is None else 1)
                )  # fmt: skip
        for name, start in reversed(names):
            clock += 1
            out.ranges.append(Range(name, start, clock, thread))
        for _ in range(4):
            start = dice.randint(0, 250)
            out.ranges.append(Range(dice.choice("xy"), start, start + dice.randint(1, 120), thread, kind=60))
    out.steps = [(0, 0, 10_000)]
    return out


@pytest.mark.parametrize("seed", range(8))
def test_random_recordings_again_from_their_rows(seed: int) -> None:
    what = _random(seed)
    expected: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for one in what.ranges:
        assert one.end is not None
        nests = one.kind != 60
        around = [
            o for o in what.ranges
            if nests and o is not one and o.kind != 60 and o.thread == one.thread and o.start <= one.start
            and (o.end or 0) >= one.end
        ]  # fmt: skip
        path = "/".join([o.text for o in sorted(around, key=lambda o: (o.start, -(o.end or 0)))] + [one.text])
        calls = {c.correlation for c in what.launches if c.thread == one.thread and one.start <= c.start < one.end}
        mine = [k for k in what.kernels if k.correlation in calls]
        expected[path, "push/pop" if nests else "start/end"].append((one.end - one.start, mine))
    found = {(r["path"], r["style"]): r for r in rows(load(what).report("ranges"))}
    assert found.keys() - {(None, None)} == expected.keys()
    for key, instances in expected.items():
        row = found[key]
        hosts = [host for host, _ in instances]
        assert (row["instances"], row["host_total_ns"]) == (len(instances), sum(hosts))
        assert (row["host_median_ns"], row["host_min_ns"], row["host_max_ns"]) == (
            median(hosts),
            min(hosts),
            max(hosts),
        )
        events = [k for _, mine in instances for k in mine]
        assert row["kernels"] == sum(k.size is None for k in events)
        assert row["copies"] == sum(k.size is not None for k in events)
        assert row["busy_ns"] == sum(length((k.start, k.end) for k in mine) for _, mine in instances)
        spans = [max(k.end for k in mine) - min(k.start for k in mine) for _, mine in instances if mine]
        assert row["projected"] == len(spans)
        assert row["gpu_total_ns"] == (sum(spans) if spans else None)
        assert row["gpu_median_ns"] == (median(spans) if spans else None)
        assert (row["gpu_min_ns"], row["gpu_max_ns"]) == ((min(spans), max(spans)) if spans else (None, None))

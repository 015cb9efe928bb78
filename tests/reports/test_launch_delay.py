# SPDX-License-Identifier: Apache-2.0
"""Delays and queues: by hand, and again from the raw rows of random recordings, slowly."""

from __future__ import annotations

import random
from collections import defaultdict
from statistics import fmean, median
from typing import Any

import pytest

from pyprof.reports.launch_delay import FULL
from tests.build import Kernel, Launch, Recording
from tests.oracle import clipped, length
from tests.reports.test_oracle import load, rows


def four() -> Recording:
    """Launches at 0, 10, 20 and 100, of 5 ns each. The third is of a graph of two kernels. One kernel has no launch."""
    return Recording(
        launches=[Launch(0, 5, 1), Launch(10, 15, 2), Launch(20, 25, 3, name="cudaGraphLaunch"), Launch(100, 105, 4)],
        kernels=[
            Kernel("a", 8, 50, 1), Kernel("b", 50, 60, 2), Kernel("b", 60, 64, 3, graph=1),
            Kernel("a", 64, 90, 3, graph=2), Kernel("a", 102, 110, 4), Kernel("a", 120, 125, None),
        ],
        steps=[(0, 0, 200)],
    )  # fmt: skip


def test_delays_of_kernels():
    found = {row["kernel"]: row for row in rows(load(four()).report("launch_delay"))}
    # a: 8 - 5, and 0 for one that starts before its launch returns; the kernel within the replay is not launched
    keys = ("launches", "unknown", "delay_total_ns", "delay_median_ns", "delay_p95_ns", "delay_max_ns")
    assert tuple(found["a"][key] for key in keys) == (2, 1, 3, 1.5, 3, 3)
    assert tuple(found["b"][key] for key in keys) == (2, 0, 35 + 35, 35, 35, 35)


def test_the_queue_of_a_device():
    (row,) = rows(load(four()).report("launch_delay", by="device"))
    # When they are launched 0, 0, 1 (b at 20) and 0 others wait; work waits in [0, 8), [10, 60) and [100, 102).
    assert (row["launches"], row["unknown"]) == (4, 1)
    assert (row["queue_mean"], row["queue_p95"], row["queue_max"]) == (0.25, 1, 1)
    assert row["empty_ns"] == 200 - 8 - 50 - 2
    assert row["empty"] == pytest.approx(100 * 140 / 200)
    assert row["full_ns"] == 0


def test_a_launch_into_a_full_queue_is_blocked():
    """A kernel of 1 ms, and launches of 1 ns behind it; the last two find 1,024 and 1,025 others."""
    n = FULL + 2
    launches = (
        [Launch(0, 1, 0)] + [Launch(10 * i, 10 * i + 1, i) for i in range(1, n)] + [Launch(10 * n, 10 * n + 500, n)]
    )
    kernels = [Kernel("long", 5, 1_000_000, 0)]
    kernels += [Kernel("k", 1_000_000 + i, 1_000_001 + i, i) for i in range(1, n + 1)]
    (row,) = rows(load(Recording(launches=launches, kernels=kernels)).report("launch_delay", by="stream"))
    assert row["queue_max"] == n - 1
    assert row["full_ns"] == 1 + 500


def test_without_a_launch_delays_are_unknown():
    what = Recording(kernels=[Kernel("a", 5, 9), Kernel("a", 9, 12)])
    (row,) = rows(load(what).report("launch_delay"))
    assert (row["launches"], row["unknown"], row["delay_total_ns"], row["delay_median_ns"]) == (
        0,
        2,
        None,
        None,
    )
    (row,) = rows(load(what).report("launch_delay", by="device"))
    assert (row["launches"], row["unknown"], row["queue_mean"], row["queue_max"]) == (0, 2, None, None)


def test_without_a_gpu_it_is_empty(on_cpu):
    for by in ("kernel", "operator", "stream", "device"):
        assert rows(on_cpu.report("launch_delay", by=by)) == []


def test_the_mean_is_that_of_the_metric(prof):
    """No graph there: every event is launched by its own call."""
    found = rows(prof.report("launch_delay", by="device"))
    delay = sum(row["delay_total_ns"] for row in found) / sum(row["launches"] for row in found)
    summary = prof.report("summary").set_index("name")["value"]
    assert summary["Average Launch Delay"] == pytest.approx(delay)


def _random(seed: int) -> Recording:
    dice = random.Random(seed)
    out = Recording(steps=[(0, 0, 2000)])
    clock, free = 0, {7: 0, 8: 0}
    for number in range(80):
        clock += dice.randint(1, 15)
        out.launches.append(Launch(clock, clock + dice.randint(0, 8), number))
        for _ in range(dice.choice([1, 1, 1, 3])):
            stream = dice.choice([7, 8])
            start = max(free[stream], clock + dice.randint(0, 10))
            free[stream] = start + dice.randint(1, 12)
            size = dice.choice([None, None, None, 16])
            out.kernels.append(
                Kernel(dice.choice("abc"), start, free[stream], number, stream=stream, size=size,
                       copy_kind=None if size is None else 1)
            )  # fmt: skip
        clock = out.launches[-1].end
    return out


@pytest.mark.parametrize("seed", range(6))
def test_random_recordings_again_from_their_rows(seed):
    what = _random(seed)
    prof = load(what)
    call = {one.correlation: one for one in what.launches}
    delays: dict[str, list[int]] = defaultdict(list)
    for number, one in call.items():
        mine = [k for k in what.kernels if k.correlation == number and k.size is None]
        if mine:
            first = min(k.start for k in mine)
            names = {k.name for k in mine if k.start == first}
            if len(names) > 1:
                return  # two streams at once: either may be the first
            delays[names.pop()].append(max(first - one.end, 0))
    found = {row["kernel"]: row for row in rows(prof.report("launch_delay")) if row["launches"]}
    assert found.keys() == delays.keys()
    for name, values in delays.items():
        row = found[name]
        assert (row["launches"], row["delay_total_ns"], row["delay_max_ns"]) == (
            len(values),
            sum(values),
            max(values),
        )
        assert row["delay_median_ns"] == median(values)
    for row in rows(prof.report("launch_delay", by="stream")):
        work: list[tuple[Any, int]] = []
        for number, one in call.items():
            starts = [k.start for k in what.kernels if k.correlation == number and k.stream == row["stream"]]
            if starts:
                work.append((one, max(min(starts), one.start)))
        lengths = [sum(o is not c and o.start <= c.start < begin for o, begin in work) for c, _ in work]
        assert row["launches"] == len(work)
        assert row["queue_mean"] == pytest.approx(fmean(lengths))
        assert row["queue_max"] == max(lengths)
        waits = length(clipped([(c.start, begin) for c, begin in work], 0, 2000))
        assert row["empty_ns"] == 2000 - waits

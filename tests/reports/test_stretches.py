# SPDX-License-Identifier: Apache-2.0
"""Reports about stretches of time: step_time, overlap, gpu, idle."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from pyprof import profiles
from tests.build import Kernel, Launch, Range, Recording, recording
from tests.oracle import Oracle
from tests.reports import stretches
from tests.reports.test_oracle import KEY, load, pids, random_recording, rows, seeds

PARTS = [f"{name}_ns" for name in (*stretches.PARTS, "other")]


def with_copies(seed: int) -> Recording:
    """A random recording; some calls that launch copies return only after them."""
    what, rng = random_recording(seed), random.Random(seed)
    copies = {k.correlation for k in what.kernels if k.size is not None and k.copy_kind is not None}
    for launch in what.launches:
        if launch.correlation in copies:
            launch.name = "cudaMemcpyAsync_v3020"
            if rng.random() < 0.6:
                end = max(k.end for k in what.kernels if k.correlation == launch.correlation)
                inside = [c.start for c in what.launches if c.thread == launch.thread and c.start > launch.start]
                launch.end = max(launch.end, min([end + 3, *inside]))
    return what


@cache
def recorded(seed: int) -> tuple[profiles.Profile, Oracle, str | None]:
    """A random recording, and the key that cuts it, if any."""
    what = with_copies(seed)
    prof = load(what)
    found = Oracle(what, {0: 80}, pids(prof))
    key = KEY if not what.steps and any(run.operator.name == KEY for run in found.executions) else None
    if key:
        prof.aggregate(key=key)
    elif prof.aggregation.method not in ("marks", "none"):
        key = "other"  # a cut that the oracle does not know
    return prof, found, key


def cut(seed: int) -> tuple[profiles.Profile, Oracle, str | None]:
    """The same, with all iterations: tests share it."""
    prof, found, key = recorded(seed)
    prof.aggregate(key=None if key == "other" else key)
    return prof, found, key


def check(table: list[dict[str, Any]], expected: list[dict[str, Any]], t0: int) -> None:
    assert len(table) == len(expected)
    for one, other in zip(table, expected):
        for name in one.keys() & other.keys():
            wanted = other[name] - t0 if name == "start" else other[name]
            assert one[name] == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), (
                name,
                one,
                other,
            )


def together(table: list[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """Rows by some of their keys."""
    out = defaultdict(list)
    for row in table:
        out[tuple(row[key] for key in keys)].append(row)
    return out


def chosen(prof: profiles.Profile, table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in table if prof.aggregation.first <= row["iteration"] <= prof.aggregation.last]


def compare(prof: profiles.Profile, found: Oracle, key: str | None) -> None:
    """All four reports."""
    t0 = int(prof.database.meta["t0"])
    names = [name for (name,) in prof.database.rows("select name from worker order by id")]
    times = {"8": rows(prof.report("step_time")), "7": rows(prof.report("step_time", categories="7"))}
    both, devices, idle = (rows(prof.report(name)) for name in ("overlap", "gpu", "idle"))
    for worker in sorted({i.worker for i in found.iterations(key)}):
        mine = [[r for r in table if r["worker"] == names[worker]] for table in (times["8"], times["7"], both, devices)]
        expected = chosen(prof, stretches.step_time(found, key, worker))
        if not expected:
            assert not any(mine)
            continue
        check(mine[0], expected, t0)
        check(mine[1], chosen(prof, stretches.step_time(found, key, worker, seven=True)), t0)
        check(mine[2], chosen(prof, stretches.overlap(found, key, worker)), t0)
        low, high = expected[0]["start"], expected[-1]["end"]
        used = sorted({e.raw.device for e in found.events if e.worker == worker})
        check(mine[3], [stretches.gpu(found, worker, device, low, high) for device in used], t0)
        for device in used:
            sums: dict[Any, list[int]] = defaultdict(list)
            for *place, size in stretches.idle(found, worker, device, low, high):
                sums[tuple(place)].append(size)
            here = [r for r in idle if (r["worker"], r["device"]) == (names[worker], device)]
            assert {
                place: (
                    sum(r["count"] for r in one),
                    sum(r["total_ns"] for r in one),
                    max(r["longest_ns"] for r in one),
                )
                for place, one in together(here, "cause", "call", "where", "operator").items()
            } == {place: (len(sizes), sum(sizes), max(sizes)) for place, sizes in sums.items()}
            assert [r["total_ns"] for r in here] == sorted((r["total_ns"] for r in here), reverse=True)


@seeds(6, 30)
def test_every_cell_equals_what_plain_python_makes_of_the_recording(seed):
    prof, found, key = cut(seed)
    if key == "other":
        return
    compare(prof, found, key)
    rng = random.Random(seed)
    count = max(i.number for i in found.iterations(key))
    first = rng.randint(0, count)
    prof.aggregate(first, rng.randint(first, count), key)
    compare(prof, found, key)


@seeds(6, 30)
def test_parts_of_steps_and_of_windows_add_up(seed):
    prof, _, _ = cut(seed)
    steps = prof.report("step_time")
    assert (steps[PARTS].sum(axis=1) == steps["total_ns"]).all()
    seven = prof.report("step_time", categories="7")
    assert "communication_ns" not in seven
    assert (seven["kernel_ns"] >= steps["kernel_ns"]).all()
    assert (seven["total_ns"] == steps["total_ns"]).all()
    both, idle = prof.report("overlap"), prof.report("idle")
    parts = both[["computation_ns", "exposed_ns", "memory_ns", "other_ns"]]
    assert (parts.sum(axis=1) == both["total_ns"]).all()
    assert (both["overlap_ns"] + both["exposed_ns"] == both["communication_ns"]).all()
    for worker, mine in steps.groupby("worker"):
        assert (mine["start"].iloc[1:].to_numpy() == (mine["start"] + mine["total_ns"]).iloc[:-1].to_numpy()).all()
        window = mine["total_ns"].sum()
        for device, one in both[both["worker"] == worker].groupby("device"):
            gaps = idle[(idle["worker"] == worker) & (idle["device"] == device)]
            assert gaps["total_ns"].sum() == one["other_ns"].sum()
            assert gaps["share"].sum() == pytest.approx(100 * one["other_ns"].sum() / window)


@seeds(6, 12)
def test_lengths_of_a_run_are_those_of_its_pieces(seed):
    prof, _, key = cut(seed)
    last = int(prof.steps["step"].max())
    if last == 0 or key == "other":
        return

    def figures() -> dict[Any, int]:
        out: dict[Any, int] = defaultdict(int)
        for row in rows(prof.report("step_time")):
            for name in PARTS:
                out[row["worker"], name] += row[name]
        for row in rows(prof.report("gpu")):
            for name in ("busy_ns", "window_ns"):
                out[row["worker"], row["device"], name] += row[name]
        for row in rows(prof.report("idle")):
            out[row["worker"], row["device"], row["cause"], row["call"], row["stack"]] += row["total_ns"]
        return out

    whole = figures()
    added: dict[Any, int] = defaultdict(int)
    middle = random.Random(seed).randint(0, last - 1)
    for first, stop in ((0, middle), (middle + 1, last)):
        prof.aggregate(first, stop, key)
        for name, value in figures().items():
            added[name] += value
    assert {k: v for k, v in added.items() if v} == {k: v for k, v in whole.items() if v}


def test_a_step_lasts_until_what_it_launched_has_ended():
    """Marks at 100..200 and 210..300, numbered 5 and 6. A kernel launched before ends at 130, inside step 5; step 5's
    kernel runs 150..260; step 6's copy 280..290. So step 5 is 130..260, step 6 260..300 (its end on the host). The
    collective, 140..160, is exposed for 10 and hidden for 10."""
    what = Recording(
        launches=[
            Launch(80, 90, 1), Launch(110, 120, 2), Launch(120, 124, 4), Launch(220, 230, 3, name="cudaMemcpyAsync_v1")
        ],
        kernels=[
            Kernel("before", 95, 130, 1), Kernel("first", 150, 260, 2), Kernel("c", 280, 290, 3, size=64, copy_kind=1),
            Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140, 160, 4, stream=9),
        ],
        ranges=[Range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 262, 272)],
        steps=[(5, 100, 200), (6, 210, 300)],
    )  # fmt: skip
    prof = load(what)
    found = rows(prof.report("step_time"))
    t0 = int(prof.database.meta["t0"])
    assert [(r["step"], r["start"] + t0, r["total_ns"], r["partial"]) for r in found] == [
        (5, 130, 130, False), (6, 260, 40, True),  # one event after two
    ]  # fmt: skip
    first, second = ({k: r[k] for k in PARTS if r[k]} for r in found)
    assert first == {"kernel_ns": 110, "communication_ns": 10, "other_ns": 10}
    assert second == {"memcpy_ns": 10, "dataloader_ns": 10, "other_ns": 20}
    one = rows(prof.report("overlap"))[0]
    assert (one["computation_ns"], one["communication_ns"], one["overlap_ns"], one["exposed_ns"]) == (
        110,
        20,
        10,
        10,
    )
    (device,) = rows(prof.report("gpu"))
    # 140..260 of the window 130..300. On 80 multiprocessors each kernel fills one, both of them for 10 ns.
    assert (device["busy_ns"], device["window_ns"]) == (120, 170)
    assert device["sm_efficiency"] == pytest.approx(100 * (110 + 20) / 80 / 170)
    # Gaps: 130..140 before a collective whose launch ended at 124; 260..280 before the copy, launched at 230; 290..300.
    causes = {r["cause"]: r["total_ns"] for r in rows(prof.report("idle"))}
    assert causes == {"queued": 30, "not recorded": 10}


SYNC = "cudaStreamSynchronize_v3020"


@pytest.mark.parametrize(
    ("calls", "wait", "cause"),
    [
        ([Launch(50, 60, 2)], None, "queued"),
        ([Launch(90, 100, 2)], None, "queued"),
        (
            [Launch(40, 105, 9, name=SYNC), Launch(60, 80, 10, name=SYNC), Launch(150, 160, 2)],
            None,
            "synchronization",  # one call inside the other
        ),
        ([Launch(91, 101, 2)], None, "launch-bound"),
        ([Launch(150, 160, 2)], None, "launch-bound"),
        ([Launch(40, 105, 9, name=SYNC), Launch(150, 160, 2)], None, "synchronization"),
        (
            [Launch(40, 99, 9, name=SYNC), Launch(150, 160, 2)],
            None,
            "launch-bound",
        ),  # was over before the gap
        ([Launch(40, 105, 9, 2, name=SYNC), Launch(150, 160, 2)], None, "launch-bound"),  # another thread's
        ([Launch(40, 105, 9, name=SYNC), Launch(150, 160, 2)], (120, 150), "data loader"),  # 30 of 60
        ([Launch(40, 105, 9, name=SYNC), Launch(150, 160, 2)], (121, 150), "synchronization"),  # 29 of 60
        ([], None, "not recorded"),
        ([Launch(40, 105, 9, name=SYNC)], None, "synchronization"),
    ],
)
def test_why_a_device_had_nothing_to_do(calls, wait, cause):
    """A gap 100..170 between two kernels. That before the first, 10..30, is launch-bound: the first event of the
    recording is the call that launched it."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    what = Recording(
        launches=[Launch(10, 20, 1), *calls], kernels=[Kernel("a", 30, 100, 1), Kernel("b", 170, 200, 2)],
        ranges=[Range(name, *wait)] if wait else [],
    )  # fmt: skip
    sums = (2, 70 + 20) if cause == "launch-bound" else (1, 70)
    found = [r for r in rows(load(what).report("idle")) if r["longest_ns"] == 70]
    assert [(r["cause"], r["count"], r["total_ns"]) for r in found] == [(cause, *sums)]
    assert found[0]["call"] == ("cudaStreamSynchronize" if cause == "synchronization" else None)


@pytest.mark.parametrize(("returned", "cause"), [(20, "launch-bound"), (19, "not recorded")])
def test_a_gap_at_the_start_in_which_the_launch_came_early_is_of_earlier_work(returned, cause):
    """The gap 10..30: the device was busy with what had been launched before the recording, if the launch had returned
    in its first half. The same later is a wait for the launch."""
    what = Recording(
        launches=[Launch(10, returned, 1), Launch(100, 100 + returned - 10, 2)],
        kernels=[Kernel("a", 30, 100, 1), Kernel("b", 120, 130, 2)],
    )
    sums = {row["cause"]: row["total_ns"] for row in rows(load(what).report("idle"))}
    assert sums == ({cause: 40} if cause == "launch-bound" else {cause: 20, "launch-bound": 20})


@pytest.mark.parametrize(("returned", "cause"), [(105, "host copy"), (99, "launch-bound")])
def test_a_copys_call_waits_only_if_it_returned_after_the_copy(returned, cause):
    what = Recording(
        launches=[Launch(10, returned, 1, name="cudaMemcpy_v3020"), Launch(150, 160, 2)],
        kernels=[Kernel("c", 30, 100, 1, size=8, copy_kind=2), Kernel("b", 170, 200, 2)],
    )
    assert {r["cause"] for r in rows(load(what).report("idle")) if r["longest_ns"] == 70} == {cause}


def test_the_place_of_a_wait_is_that_of_the_operator_around_its_call():
    from tests.reports.conftest import LOSS, MM

    text = f"{MM}\n    > 60 mystery\n{LOSS}\n    api 90 {SYNC}\nwait 50\n{MM}\n    > 5 mystery"
    found = rows(load(recording(text)).report("idle"))
    (one,) = [r for r in found if r["cause"] == "synchronization"]
    assert (one["operator"], one["module"], one["stack"]) == ("cross_entropy", None, "run.py:10")


def test_steps_of_a_recording_without_a_gpu_have_the_hosts_bounds(on_cpu):
    (one,) = rows(on_cpu.report("step_time"))
    assert one["total_ns"] == one["cpu_ns"] + one["other_ns"]
    assert [one[name] for name in PARTS[:5]] == [None] * 5
    assert one["partial"] is None
    assert not any(len(on_cpu.report(name)) for name in ("overlap", "gpu", "idle"))


@pytest.mark.parametrize(
    ("counts", "partial"),
    [
        ((10, 8, 7, 0), [False, False, False, True]),  # 7 are more than 0.8 times 8
        ((10, 8), [False, False]),
        ((10, 7), [False, True]),
        ((10, 0, 7), [False, False, False]),  # in the middle it was the program
        ((7, 0, 0), [False, True, True]),
    ],
)
def test_last_steps_with_few_events_are_shown_and_said_to_be_cut_off(counts, partial):
    launches, kernels, at, number = [], [], 0, 0
    starts = []
    for count in counts:
        starts.append(at)
        for _ in range(count):
            number += 1
            launches.append(Launch(at + 2, at + 4, number))
            kernels.append(Kernel("k", at + 5, at + 9, number))
            at += 10
        at += 10
    steps = [(i, a, b) for i, (a, b) in enumerate(pairwise([*starts, at]))]
    prof = load(Recording(launches=launches, kernels=kernels, steps=steps))
    assert prof.report("step_time")["partial"].tolist() == partial

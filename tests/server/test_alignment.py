# SPDX-License-Identifier: Apache-2.0
"""Ranks aligned: offsets are those that were planted, to the ns, and sums and hits are of what is seen together."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from tests.server import planted_ranks as planted
from tests.server.conftest import Asking, serving
from tests.server.planted_ranks import ARRIVAL, CLOCK, DELAY, END, FIRST, STEPS, median, members

DATA = Path(os.environ.get("PYPROF_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    profiles.load(planted.write(folder / "run")).save(folder / "run_dldb.sqlite")
    return folder / "run_dldb.sqlite"


@pytest.fixture(scope="module")
def ranks(saved: Path) -> Iterator[Asking]:
    with serving(saved) as asking:
        yield asking


def offsets(client: Asking, to: str, **near: int) -> list[tuple[int | None, int, int | None]]:
    answer = client.json("/api/timeline/alignment", to=to, **near)
    return [(one["time"], one["shift"], one["late"]) for one in answer["ranks"]]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_ranks_move_to_the_median_start_of_a_step(ranks: Asking, step: int) -> None:
    times = {rank: STEPS[step] + CLOCK[rank] + DELAY[rank] for rank in members(step)}
    middle = median(list(times.values()))
    assert offsets(ranks, f"step:{FIRST + step}") == [
        (times[rank], middle - times[rank], times[rank] - middle) if rank in times else (None, 0, None)
        for rank in range(planted.RANKS)
    ]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_ranks_move_to_the_median_end_of_a_collective(ranks: Asking, step: int) -> None:
    own = members(step)
    middle, arrived = median([CLOCK[rank] for rank in own]), median([ARRIVAL[rank] for rank in own])
    assert offsets(ranks, f"collective:{step + 1}") == [
        (STEPS[step] + END + CLOCK[rank], middle - CLOCK[rank], ARRIVAL[rank] - arrived)
        if rank in own
        else (None, 0, None)
        for rank in range(planted.RANKS)
    ]


def test_what_is_aligned_is_said(ranks: Asking) -> None:
    first, last = (ranks.json("/api/timeline/alignment", to=f"collective:{number}") for number in (1, 2))
    assert (first["label"], first["before"], first["after"]) == ("all_reduce 1 of 2", None, 2)
    assert (last["label"], last["before"], last["after"]) == ("all_reduce 2 of 2", 1, None)
    assert not first["one_clock"]  # each has a host of its own
    assert ranks.json("/api/timeline/alignment", to=f"step:{FIRST}")["label"] == f"step {FIRST}"


def test_the_nearest_is_chosen(ranks: Asking, saved: Path) -> None:
    """By times of the median rank, or by an event of the collective."""
    begun = [median([STEPS[step] + CLOCK[rank] + DELAY[rank] for rank in members(step)]) for step in (0, 1)]
    ended = [median([STEPS[step] + END + CLOCK[rank] for rank in members(step)]) for step in (0, 1)]
    with closing(sqlite3.connect(saved)) as database:
        events = [row[0] for row in database.execute("select event from collective where seq = 1")]

    def number(to: str, **near: int) -> int:
        return int(ranks.json("/api/timeline/alignment", to=to, **near)["number"])

    assert [number("step", at=time) for time in (begun[0] - 1, begun[1] - 1, begun[1])] == [
        FIRST,
        FIRST,
        FIRST + 1,
    ]
    assert [number("collective", at=time) for time in (ended[0], ended[0] + 1, ended[1] + 1)] == [1, 2, 2]
    assert {number("collective", at=ended[0], event=event) for event in events} == {2}
    assert number("collective", at=ended[0], event=1 << 50) == 1  # of none
    assert (number("step"), number("collective")) == (FIRST, 1)


def test_a_number_that_no_rank_has_is_the_nearest_to_a_time(ranks: Asking) -> None:
    """Of another recording that counts differently; a number that there is stays."""
    time = median([STEPS[1] + CLOCK[rank] + DELAY[rank] for rank in members(1)])

    def number(to: str, **near: int) -> int:
        return int(ranks.json("/api/timeline/alignment", to=to, **near)["number"])

    assert number("step:99", at=time) == FIRST + 1
    assert number(f"step:{FIRST}", at=time) == FIRST


@pytest.mark.parametrize(
    ("to", "status", "sentence"),
    [
        ("step:6", 404, "There is no step 6 on any rank: they have 7 to 8."),
        ("collective:3", 404, "There is no collective 3"),
        ("collective:-1", 404, "There is no collective -1"),
        ("step:x", 422, "to:"),
        ("clock", 422, "to:"),
        ("step:1234567890123456", 422, "to:"),
    ],
)
def test_what_no_rank_has(ranks: Asking, to: str, status: int, sentence: str) -> None:
    assert sentence in ranks.json("/api/timeline/alignment", status=status, to=to)["detail"]


def test_a_recording_of_one_rank_has_no_collectives(client: Asking) -> None:
    assert "No collective" in client.json("/api/timeline/alignment", status=404, to="collective")["detail"]
    assert [one["shift"] for one in client.json("/api/timeline/alignment", to="step:0")["ranks"]] == [0]


def test_iterations_stand_for_steps_that_nobody_marked(saved: Path, tmp_path: Path) -> None:
    """By their numbers; but the first of a cut by ends of an operator begins with the recording."""
    target = tmp_path / "run_dldb.sqlite"
    target.write_bytes(saved.read_bytes())
    for method, first in (("ranges", 0), ("optimizer", 1)):
        with closing(sqlite3.connect(target)) as database:
            database.execute("delete from step")
            database.execute("update iteration_set set method = ? where id = 1", (method,))
            database.commit()
            times = dict(
                database.execute(
                    "select worker, host_start_ns from iteration where iteration_set = 1 and number = 1"
                )
            )
        with serving(target) as asking:
            answer = asking.json("/api/timeline/alignment", to="step")
            assert (answer["label"], answer["number"]) == (f"iteration {first}", first)
            answer = asking.json("/api/timeline/alignment", to="step:1")
            assert {one["worker"]: one["time"] for one in answer["ranks"] if one["time"] is not None} == times


def test_sums_are_of_each_rank_at_the_time_that_is_seen(ranks: Asking) -> None:
    """On the axis, all ranks are in the collective after the last has come; by the clock, others are in others."""
    align = "collective:1"
    last = max(ARRIVAL) + STEPS[0] + median(list(CLOCK))
    stretch = {"start": last, "end": STEPS[0] + END + median(list(CLOCK))}
    length = stretch["end"] - stretch["start"]
    aligned = ranks.json("/api/timeline/selection", **stretch, align=align)
    assert [(one["worker"], one["busy"], one["idle"]) for one in aligned["devices"]] == [
        (rank, length, 0) for rank in range(planted.RANKS)
    ]
    by_kernel = next(one for one in aligned["tables"] if one["key"] == "kernel")
    assert (by_kernel["total"], by_kernel["events"]) == (planted.RANKS * length, planted.RANKS)
    assert ranks.json("/api/timeline/flame", **stretch, align=align)["total"] == planted.RANKS * length
    by_clock = ranks.json("/api/timeline/selection", **stretch)
    assert {one["worker"]: one["busy"] for one in by_clock["devices"]} == {
        rank: planted.busy(rank, *stretch.values()) for rank in range(planted.RANKS)
    }


def test_durations_are_of_what_is_seen(ranks: Asking) -> None:
    last = max(ARRIVAL) + STEPS[0] + median(list(CLOCK))
    hit = ranks.json("/api/timeline/hits", find="allreduce", limit=1)["hits"][0]
    asked = {"track": hit["track"], "name": hit["name"], "start": last, "end": last + 1}
    lengths = sorted(END - arrival for arrival in ARRIVAL)
    aligned = ranks.json("/api/timeline/durations", **asked, align="collective:1")
    assert (aligned["count"], aligned["shortest"], aligned["longest"]) == (
        planted.RANKS,
        lengths[0],
        lengths[-1],
    )
    by_clock = [rank for rank in range(planted.RANKS) if planted.busy(rank, last, last + 1)]
    assert ranks.json("/api/timeline/durations", **asked)["count"] == len(by_clock) < planted.RANKS


def test_hits_are_in_the_order_of_the_axis_with_their_own_times(ranks: Asking) -> None:
    align, middle = "collective:1", median(list(CLOCK))
    worker_of = {one["id"]: one["worker"] for one in ranks.json("/api/timeline")["tracks"]}

    def hits(**more: Any) -> list[tuple[int, int, int]]:
        answer = ranks.json("/api/timeline/hits", find="stream:7 allreduce", **more)["hits"]
        return [(worker_of[one["track"]], one["start"], one["end"]) for one in answer]

    events = [(rank, step) for step in range(len(STEPS)) for rank in members(step)]
    own = {
        one: (one[0], STEPS[one[1]] + CLOCK[one[0]] + ARRIVAL[one[0]], STEPS[one[1]] + CLOCK[one[0]] + END)
        for one in events
    }
    seen = sorted(events, key=lambda one: STEPS[one[1]] + ARRIVAL[one[0]])
    assert hits(align=align) == [own[one] for one in seen]
    assert hits() == sorted(own.values(), key=lambda row: row[1])
    # From a time of the axis on.
    second = STEPS[1] + middle
    assert hits(align=align, at=second) == [own[one] for one in seen if one[1] == 1]
    # Ticks are where the events are seen.
    start, end = middle + STEPS[0], middle + STEPS[0] + END
    ticks = ranks.json("/api/timeline/search", find="stream:7 allreduce", start=start, end=end, align=align)
    assert {(worker_of[track], bucket) for track, bucket, _ in ticks["ticks"]} == {
        (rank, ARRIVAL[rank] // ticks["width"]) for rank in members(0)
    }
    assert ticks["total"] == len(events)
    assert ticks["events"] is None
    # The events themselves, in the order of the axis with their own times, if they are few enough.
    inside = [own[one] for one in seen if one[1] == 0]
    for most, few in ((len(inside), True), (len(inside) - 1, False)):
        answer = ranks.json(
            "/api/timeline/search", find="stream:7 allreduce", start=start, end=end, align=align, most=most
        )["events"]
        rows = answer and [(worker_of[one["track"]], one["start"], one["end"]) for one in answer]
        assert rows == (inside if few else None)


@pytest.mark.parametrize("path", ["selection", "flame"])
def test_an_alignment_that_there_is_not_is_a_sentence(ranks: Asking, path: str) -> None:
    detail = ranks.json(f"/api/timeline/{path}", status=404, start=0, end=1, align="step:99")["detail"]
    assert "no step 99" in detail
    assert (
        ranks.json(f"/api/timeline/{path}", status=422, start=0, end=1, align="step")["parameter"] == "align"
    )


def test_times_that_no_recording_has(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "run_dldb.sqlite"
    target.write_bytes(saved.read_bytes())
    with closing(sqlite3.connect(target)) as database:
        database.execute("update step set start_ns = ? where worker = 0", ((1 << 63) - 1,))
        database.execute("update step set start_ns = ? where worker = 1", (-(1 << 63),))
        database.commit()
    with serving(target) as asking:
        assert asking.json("/api/timeline/alignment", status=409, to=f"step:{FIRST}")["type"] == "damaged"


def test_dlrm_on_eight_ranks(tmp_path: Path) -> None:
    """A recording of others: starts of the step and ends of the collectives are those of its files."""
    archive = DATA / "kineto" / "dlrm_v100_8ranks.tar.gz"
    if not archive.is_file():
        pytest.skip(f"{archive} is not there")
    import json
    import tarfile

    starts, ends = [], []
    with tarfile.open(archive) as files:
        names = sorted(name for name in files.getnames() if name.endswith(".json"))
        for name in names:
            member = files.extractfile(name)
            assert member is not None
            events = json.load(member)["traceEvents"]
            starts.append(
                next(one["ts"] for one in events if str(one.get("name")).startswith("ProfilerStep#"))
            )
            kernels = sorted(
                (one["ts"] + one["dur"], one["dur"])
                for one in events
                if one.get("cat") == "kernel" and one["name"].startswith("ncclKernel")
            )
            ends.append(kernels)
        files.extractall(tmp_path, filter="data")
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    profiles.load(folder).save(tmp_path / "dlrm_dldb.sqlite")
    with serving(tmp_path / "dlrm_dldb.sqlite") as asking:
        middle = median(starts)
        assert [shift for _, shift, _ in offsets(asking, "step")] == [1000 * (middle - one) for one in starts]
        for number in range(len(ends[0])):
            middle = median([one[number][0] for one in ends])
            longer = sorted((one[number][1] for one in ends), reverse=True)[(len(ends) - 1) // 2]
            assert [row[1:] for row in offsets(asking, f"collective:{number + 1}")] == [
                (1000 * (middle - one[number][0]), 1000 * (longer - one[number][1])) for one in ends
            ]

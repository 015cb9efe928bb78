# SPDX-License-Identifier: Apache-2.0
"""The report alive: by hand on a few events, and against plain Python on random ones."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest

from pyprof import profiles
from pyprof.reports import alive, find
from tests.reports.test_memory import US, event, load, op
from tests.reports.test_oracle import rows


def table(prof: profiles.Profile, by: str = "operator", at: int | None = None) -> list[dict[str, Any]]:
    """The rows at a moment in us, None for the peak."""
    spec = find("alive", by=by)
    parts = alive.moment(prof.source(), by, None if at is None else at * US)
    return rows(spec._replace(make=lambda source, by: parts).table(prof.source()))


def some(found: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in found]


# Of the GPU 4000 bytes are in use before the recording, 60 of which are released at 35. At the peak, at 50, these are
# 3940, with 700 and 90 of mm, the latter without a recorded release, and 200 of relu.
SMALL = (
    op("aten::mm", 0, 30), op("aten::relu", 40, 20), op("aten::add", 65, 20),
    event(10, 700, 1, 4700, 8000), event(15, 50, 2, 4750, 8000), event(20, -50, 2, 4700, 8000),
    event(25, 90, 3, 4790, 8000), event(35, -60, 4, 4730, 8000), event(50, 200, 5, 4930, 9000),
    event(55, -200, 5, 4730, 9000), event(70, 100, 3, 4740, 9000), event(80, -700, 1, 4040, 9000),
    event(90, 40, 7, None, None, device=None),
)  # fmt: skip


def test_what_is_in_use_at_the_peak(tmp_path):
    found = [row for row in table(load(tmp_path, *SMALL)) if row["device"] == 0]
    keys = ("operator", "allocations", "bytes", "unreleased", "age_ns")
    assert some(found, *keys) == [
        ("mm", 2, 790, 0, 40 * US), ("relu", 1, 200, 0, 0), (alive.NO_RECORD, None, 3940, None, None)
    ]  # fmt: skip
    assert [row["share"] for row in found] == [pytest.approx(100 * size / 4930) for size in (790, 200, 3940)]
    figures = ("at_ns", "allocated", "reserved", "unused", "recorded")
    assert set(some(found, *figures)) == {(50 * US, 4930, 9000, 9000 - 4930, True)}


def test_a_total_that_is_not_recorded_is_not_completed(tmp_path):
    (cpu,) = (row for row in table(load(tmp_path, *SMALL)) if row["device"] is None)
    keys = ("operator", "bytes", "unreleased", "share", "allocated", "unused", "recorded")
    assert [cpu[key] for key in keys] == ["unassociated", 40, 40, 100, 40, None, False]


def test_without_addresses_the_bytes_are_known_but_not_their_operators(tmp_path):
    found = table(load(tmp_path, op("aten::mm", 0, 30), event(10, 700, None), event(20, -100, None)), at=25)
    assert some(found, "operator", "bytes", "share", "allocated") == [(alive.NO_ADDRESS, 600, 100, 600)]


@pytest.mark.parametrize(
    ("at", "expected", "allocated"),
    [
        (5, [(alive.BEFORE, 60), (alive.NO_RECORD, 3940)], 4000),
        (15, [("mm", 750), (alive.BEFORE, 60), (alive.NO_RECORD, 3940)], 4750),
        (19, [("mm", 750), (alive.BEFORE, 60), (alive.NO_RECORD, 3940)], 4750),
        (20, [("mm", 700), (alive.BEFORE, 60), (alive.NO_RECORD, 3940)], 4700),
        (35, [("mm", 790), (alive.NO_RECORD, 3940)], 4730),
        (70, [("mm", 700), ("add", 100), (alive.NO_RECORD, 3940)], 4740),
        (10**6, [("add", 100), (alive.NO_RECORD, 3940)], 4040),
    ],
)
def test_what_is_in_use_at_a_moment(tmp_path, at, expected, allocated):
    found = [row for row in table(load(tmp_path, *SMALL), at=at) if row["device"] == 0]
    assert some(found, "operator", "bytes") == expected
    assert {row["allocated"] for row in found} == {allocated}


def test_of_one_allocation_its_release_is_told(tmp_path):
    """One that is a temporary of its operator, one that is released in another, one whose release is missing, one of
    before, one that stays, and one that is released where no operator is."""
    prof = load(
        tmp_path, op("aten::mm", 0, 30), op("aten::add", 60, 20), event(5, 1, 1), event(6, 2, 2), event(7, 3, 3),
        event(8, 4, 4), event(9, 5, 5), event(25, -1, 1), event(65, -2, 2), event(66, 7, 3), event(67, -6, 6),
        event(90, -5, 5),
    )  # fmt: skip
    found = table(prof, "allocation", at=20)
    keys = ("operator", "bytes", "until", "allocated_ns", "released_ns", "age_ns")
    assert some(found, *keys) == [
        (alive.BEFORE, 6, "forward", None, 67 * US, None),
        ("mm", 5, alive.BETWEEN, 9 * US, 90 * US, 11 * US),
        ("mm", 4, alive.NEVER, 8 * US, None, 12 * US),
        ("mm", 3, alive.UNKNOWN, 7 * US, None, 13 * US),
        ("mm", 2, "forward", 6 * US, 65 * US, 14 * US),
        ("mm", 1, alive.SAME, 5 * US, 25 * US, 15 * US),
    ]  # fmt: skip
    assert {row["phase"] for row in found if row["operator"] == "mm"} == {"forward"}
    (mm, before) = sorted(table(prof, at=20), key=lambda row: row["operator"], reverse=True)
    assert (mm["bytes"], mm["unreleased"], mm["share"]) == (15, 4, pytest.approx(100 * 15 / 21))
    assert (before["bytes"], before["unreleased"]) == (6, 0)


def test_nothing_is_in_use_without_allocations(tmp_path):
    assert table(load(tmp_path, op("aten::mm", 0, 30))) == []


@pytest.mark.parametrize("seed", range(3))
def test_random_events_equal_what_plain_python_makes_of_them(tmp_path, seed):
    """Bytes in use are those allocated before and not released; with the rest they are the allocator's own count."""
    rng = random.Random(seed)
    ops = [op(f"aten::op{n % 5}", 100 * n, 80) for n in range(20)]
    live: dict[int, int] = {}
    before = {1000 + n: 8 * (n + 1) for n in range(4)}  # the release of two of them is recorded
    leaving, other = list(before)[:2], 10_000
    events, facts, count = [], [], sum(before.values()) + other
    for time in sorted(rng.sample(range(2100), 120)):
        if leaving and rng.random() < 0.03:
            address = leaving.pop()
            size = -before[address]
        elif live and rng.random() < 0.45:
            address = rng.choice(list(live))
            size = -live.pop(address)
        else:
            address = rng.choice([n for n in range(200) if n not in live])
            size = live[address] = rng.randrange(1, 100)
        count += size
        facts.append((time, address, size, count))
        events.append(event(time, size, address, count, count + rng.randrange(50)))
    prof = load(tmp_path, *ops, *events)
    # Times begin with the recording's first event, which is that of the first operator.
    for at in (0, facts[0][0], 700, 1400, facts[-1][0], 5000):
        used: dict[str, int] = {}
        made: dict[int, tuple[str, int]] = {}
        for time, address, size, _ in facts:
            if time <= at and size > 0:
                made[address] = (
                    f"op{time // 100 % 5}" if time % 100 < 80 and time < 2000 else "unassociated",
                    size,
                )
            elif time <= at:
                made.pop(address, None)
        for name, size in made.values():
            used[name] = used.get(name, 0) + size
        late = sum(-size for time, address, size, _ in facts if address >= 1000 and time > at)
        total = [n for time, _, _, n in facts if time <= at] or [facts[0][3] - facts[0][2]]
        for by in ("operator", "allocation", "phase", "module", "line", "shape"):
            found = table(prof, by, at)
            assert sum(row["bytes"] for row in found) == total[-1], (at, by)
            assert {row["allocated"] for row in found} == {total[-1]}
            assert sum(row["share"] for row in found) == pytest.approx(100)
        found = table(prof, at=at)
        parts = {row["operator"]: row["bytes"] for row in found}
        rest = parts.pop(alive.NO_RECORD)
        assert parts.pop(alive.BEFORE, 0) == late
        assert parts == used
        assert rest == total[-1] - late - sum(used.values())
        assert sum(row["allocations"] or 0 for row in found if row["operator"] in used) == len(made)
    peak = max(facts, key=lambda one: one[3])
    assert {(row["at_ns"], row["allocated"]) for row in table(prof)} == {(peak[0] * US, peak[3])}


@pytest.mark.long
def test_a_recording_of_others(recorded):
    """Of 6.6 GB 2.5 are of its allocations, 4.1 of before it, of which nothing is said; the allocator holds 12.8 GB."""
    prof = recorded("kineto/v100_216k_events.json.gz")
    found = [row for row in table(prof, "allocation") if row["device"] == 1]
    curve = prof.report("memory", show="curve")
    curve = curve[curve["device"] == 1]
    peak = curve.loc[curve["allocated"].idxmax()]
    events = prof.report("memory", show="allocations")
    own = events[(events["device"] == 1) & (events["allocated_ns"] <= peak["time_ns"])]
    own = own[~(own["released_ns"] <= peak["time_ns"])]
    assert sum(row["bytes"] for row in found) == peak["allocated"] == 6_629_508_096
    assert len(found) == len(own) + 1
    assert sum(row["bytes"] for row in found[:-1]) == own["bytes"].sum() == 2_532_893_696
    assert found[-1]["operator"] == alive.NO_RECORD
    assert {row["reserved"] for row in found} == {12_782_141_440}
    assert isinstance(prof.report("alive"), pd.DataFrame)

# SPDX-License-Identifier: Apache-2.0
"""The report memory: by hand on a few events, and against plain Python on random ones."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.reports import find, memory
from tests.reports.test_oracle import rows

US = 1000  # ns
PID = 100


def op(name: str, start: int, dur: int, thread: int = 1) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": PID,
        "tid": thread,
        "ts": start,
        "dur": dur,
        "args": {},
    }


def event(
    time: int, size: int, address: int | None = None, total: int | None = None, held: int | None = None,
    device: int | None = 0, thread: int = 1,
) -> dict[str, Any]:  # fmt: skip
    told = {
        "Addr": address, "Bytes": size, "Device Type": 0 if device is None else 1,
        "Device Id": -1 if device is None else device, "Total Allocated": total, "Total Reserved": held,
    }  # fmt: skip
    return {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID, "tid": thread, "ts": time, "s": "t",
        "args": {key: value for key, value in told.items() if value is not None},
    }  # fmt: skip


def mark(number: int, start: int, end: int) -> dict[str, Any]:
    return op(f"ProfilerStep#{number}", start, end - start) | {"cat": "user_annotation"}


def load(folder: Path, *events: dict[str, Any]) -> profiles.Profile:
    path = folder / "x.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return profiles.load(path)


def table(prof: profiles.Profile, show: str = "operators") -> list[dict[str, Any]]:
    return rows(prof.report("memory", show=show))


SMALL = (
    op("aten::conv2d", 0, 100), op("aten::empty", 10, 20), op("aten::relu", 200, 50),
    event(15, 1000, 64, 5000, 8000), event(50, 300, 96, 5300, 8000), event(60, -300, 96, 5000, 8000),
    event(210, 500, 128, 5500, 9000), event(230, 40, 7, 40, 0, device=None), event(300, -1000, 64, 4500, 9000),
)  # fmt: skip


def test_operators_own_what_happens_in_them(tmp_path):
    found = {(row["device"], row["operator"]): row for row in table(load(tmp_path, *SMALL))}
    keys = ("calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocation_bytes",
            "self_allocation_bytes", "peak")  # fmt: skip
    assert {key: tuple(row[name] for name in keys) for key, row in found.items()} == {
        (0, "aten::conv2d"): (1, 1000, 0, 2, 1, 1300, 300, 5300),
        (0, "aten::empty"): (1, 1000, 1000, 1, 1, 1000, 1000, 5000),
        (0, "aten::relu"): (1, 500, 500, 1, 1, 500, 500, 5500),
        (0, "unassociated"): (None, -1000, -1000, 0, 0, 0, 0, 4500),
        (None, "aten::relu"): (1, 40, 40, 1, 1, 40, 40, 40),
    }
    assert all(row["recorded"] for row in found.values())


def test_the_curve_has_every_event(tmp_path):
    found = [(r["device"], r["time_ns"], r["allocated"], r["reserved"]) for r in table(load(tmp_path, *SMALL), "curve")]
    assert found == [
        (None, 230 * US, 40, 0),
        (0, 15 * US, 5000, 8000), (0, 50 * US, 5300, 8000), (0, 60 * US, 5000, 8000), (0, 210 * US, 5500, 9000),
        (0, 300 * US, 4500, 9000),
    ]  # fmt: skip


def test_a_total_that_is_not_recorded_is_the_sum_from_zero_and_says_so(tmp_path):
    prof = load(tmp_path, op("aten::mm", 0, 100), event(10, 700, 1), event(20, 50, 2), event(30, -700, 1))
    found = table(prof, "curve")
    assert [(row["allocated"], row["reserved"], row["recorded"]) for row in found] == [
        (700, None, False), (750, None, False), (50, None, False)
    ]  # fmt: skip
    assert [(row["peak"], row["recorded"]) for row in table(prof)] == [(750, False)]


def test_an_allocation_lasts_until_its_address_is_given_back(tmp_path):
    """An address that is used again; one that was allocated before the recording; one never freed; one whose release is
    not recorded before it is given again."""
    prof = load(
        tmp_path, op("aten::mm", 0, 100), event(10, 700, 1), event(20, -700, 1), event(30, 80, 1), event(35, -60, 2),
        event(40, 90, 3), event(50, 90, 3), event(60, -90, 3), event(70, -80, 1),
    )  # fmt: skip
    found = [(r["bytes"], r["allocated_ns"], r["released_ns"], r["duration_ns"]) for r in table(prof, "allocations")]
    assert found == [
        (700, 10 * US, 20 * US, 10 * US), (80, 30 * US, 70 * US, 40 * US), (60, None, 35 * US, None),
        (90, 40 * US, None, None), (90, 50 * US, 60 * US, 10 * US),
    ]  # fmt: skip


def test_without_addresses_nothing_is_paired(tmp_path):
    prof = load(tmp_path, op("aten::mm", 0, 100), event(10, 700), event(20, -700))
    found = [(row["allocated_ns"], row["released_ns"]) for row in table(prof, "allocations")]
    assert found == [(10 * US, None), (None, 20 * US)]


@pytest.mark.parametrize(("size", "address"), [(-600, 1), (-700, 2)])
def test_another_size_or_address_is_not_the_same_allocation(tmp_path, size, address):
    prof = load(tmp_path, op("aten::mm", 0, 100), event(10, 700, 1), event(20, size, address))
    assert [row["duration_ns"] for row in table(prof, "allocations")] == [None, None]


def test_only_the_chosen_iterations_count(tmp_path):
    """The first iteration has what is before it, the last what is behind."""
    steps = (mark(3, 100, 200), mark(4, 200, 300))
    events = [event(time, 10, time, time) for time in (50, 110, 250, 350)]
    prof = load(tmp_path, op("aten::mm", 100, 10), op("aten::mm", 205, 90), *steps, *events)
    times = {}
    for chosen in ((0, 1), (0, 0), (1, 1)):
        prof.aggregate(*chosen)
        times[chosen] = [row["time_ns"] for row in table(prof, "curve")]
    zero = times[0, 1][0]  # 50 us
    assert [(t - zero) // US + 50 for t in times[0, 1]] == [50, 110, 250, 350]
    assert times[0, 0] == times[0, 1][:2]
    assert times[1, 1] == times[0, 1][2:]


def test_rows_come_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PART", 2)
    prof = load(tmp_path, *SMALL)
    parts = list(find("memory", show="curve").chunks(prof.source()))
    assert [len(part) for part in parts] == [1, 2, 2, 1]


@pytest.mark.parametrize("seed", range(3))
def test_random_events_equal_what_plain_python_makes_of_them(tmp_path, seed):
    """Operators on two threads, nested three deep; sums that plain Python makes by asking every operator."""
    rng = random.Random(seed)
    ops: list[dict[str, Any]] = []
    for thread in (1, 2):
        for at in range(0, 4000, 1000):
            ops.append(op(rng.choice("ab"), at, 900, thread))
            for inner in (at + 50, at + 450):
                ops.append(op(rng.choice("cd"), inner, 350, thread))
                if rng.random() < 0.6:
                    ops += [op("e", inner + 20, 100, thread), op("f", inner + 150, 100, thread)]
    events = [
        event(rng.randrange(4000), rng.choice([8, 64, -8, -64]), rng.randrange(5), rng.randrange(10**6), None,
              rng.choice([None, 0, 1]), rng.choice([1, 2, 3]))
        for _ in range(60)
    ]  # fmt: skip
    prof = load(tmp_path, *ops, *events)
    sums: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    touched = defaultdict(set)
    for one in events:
        device = one["args"]["Device Id"] if one["args"]["Device Type"] else None
        size = one["args"]["Bytes"]
        around = [
            o for o in ops if o["tid"] == one["tid"] and o["ts"] <= one["ts"] < o["ts"] + o["dur"]
        ]  # fmt: skip
        inner = min(around, key=lambda o: o["dur"], default=None)
        for o in around or [{"name": "unassociated"}]:
            row = sums[device, o["name"]]
            touched[device, o["name"]].add(id(o))
            for name, value in (
                ("size_increase", size),
                ("allocations", size > 0),
                ("allocation_bytes", max(size, 0)),
            ):
                row[name] += value
                row[f"self_{name}"] += value if o is inner or inner is None else 0
            row["peak"] = max(row["peak"], one["args"]["Total Allocated"])
    found = {(row["device"], row["operator"]): row for row in table(prof)}
    assert set(found) == set(sums)
    for key, row in found.items():
        assert {name: row[name] for name in sums[key]} == dict(sums[key]), key
        assert row["calls"] == (None if key[1] == "unassociated" else len(touched[key]))
    assert sum(row["self_size_increase"] for row in found.values()) == sum(e["args"]["Bytes"] for e in events)
    assert len(table(prof, "curve")) == len(events)
    pairs = table(prof, "allocations")
    assert sum((r["allocated_ns"] is not None) + (r["released_ns"] is not None) for r in pairs) == len(events)


@pytest.mark.long
def test_a_recording_of_others(recorded):
    """28 010 events, each of them an allocation or the release of one, as its addresses say."""
    prof = recorded("kineto/v100_216k_events.json.gz")
    found = table(prof, "allocations")
    assert len(found) * 2 == 28_010
    assert all(row["duration_ns"] is not None for row in found)
    assert sum(row["self_allocation_bytes"] for row in table(prof)) == sum(row["bytes"] for row in found)


def test_a_stretch_of_time_has_what_happened_in_it(tmp_path):
    """Of SMALL: from 20 to 230 us 300 bytes are given and taken back, and 500 are given; the 1000 of before are taken
    back after it. What is at the end is out of it."""
    prof = load(tmp_path, *SMALL)
    source = prof.source()

    def some(show: str, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
        parts = list(memory.stretch(source, show, 20 * US, 230 * US))
        assert len(parts) == 1
        made = find("memory", show=show)._replace(make=lambda source, show: iter(parts))
        return [tuple(row[key] for key in keys) for row in rows(made.table(source))]

    keys = ("operator", "calls", "size_increase", "allocation_bytes", "peak")
    assert some("operators", keys) == [
        ("aten::relu", 1, 500, 500, 5500), ("aten::conv2d", 1, 0, 300, 5300)
    ]  # fmt: skip
    assert some("allocations", ("bytes", "allocated_ns", "released_ns")) == [
        (300, 50 * US, 60 * US), (500, 210 * US, None)
    ]  # fmt: skip
    assert some("curve", ("time_ns",)) == [(50 * US,), (60 * US,), (210 * US,)]

# SPDX-License-Identifier: Apache-2.0
"""Report stragglers: why a rank came late, against a division of every microsecond of the raw files in plain Python."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.core.registry import load_folder
from pyprof.rules import RULES
from pyprof.rules.context import Run
from pyprof.rules.evaluation import judge
from tests.reports.ranks import K, trace
from tests.reports.test_communication import late_run, reduce, table

US = 1000  # ns
PARTS = ("kernels", "communication", "dataloader", "launch", "host", "other")
ON_HOST = PARTS[2:]
Events = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


class Rank:
    """One file: what each microsecond was spent on."""

    def __init__(self, events: Events):
        spans = [e for e in events if e.get("ph") == "X" and "dur" in e]
        kernels = [e for e in spans if e["cat"].lower() == "kernel"]
        self.nccl = sorted((e for e in kernels if e["name"].startswith("nccl")), key=lambda e: e["ts"])
        calls = [e for e in spans if e["cat"] == "cuda_runtime"]
        launches = {e["args"]["correlation"]: e["ts"] for e in calls if "correlation" in e.get("args", {})}
        self.launch = [launches[e["args"]["correlation"]] for e in self.nccl]
        marks = [e for e in spans if e["name"].startswith("ProfilerStep#")]
        self.begin = min((e["ts"] for e in marks), default=None)
        waits = [e for e in calls if "Synchronize" in e["name"] or "Memcpy" in e["name"]]
        named = [e for e in spans if e["cat"] in ("cpu_op", "user_annotation") and e not in marks]
        self.waits = cells(waits)
        self.classes = {
            "kernels": cells(e for e in spans if e["cat"] in ("gpu_memcpy", "gpu_memset") or e in kernels)
            - cells(self.nccl),
            "communication": cells(self.nccl),
            "dataloader": cells(e for e in named if e["name"].startswith("enumerate(Data")),
            "launch": cells(calls),
            "host": cells(e for e in named if not e["name"].startswith("enumerate(Data")),
        }

    def divided(self, low: int, high: int, shadow: bool = False) -> dict[str, int]:
        """Microseconds of each part in [low, high); of the host alone, without its waits, in the shadow."""
        left, out = set(range(low, high)) - (self.waits if shadow else set()), {}
        for name, mine in self.classes.items():
            if name in ON_HOST or not shadow:
                out[name] = len(left & mine)
                left -= mine
        return {**out, "other": len(left)}


def cells(events: Any) -> set[int]:
    return {t for e in events for t in range(e["ts"], e["ts"] + e["dur"])}


def expected(files: list[Events]) -> dict[tuple[int, int], dict[str, int]]:
    """By place of the collective and rank that came last: its columns in us. Ranks have the same collectives, one
    group, one recorded step or none."""
    ranks = [Rank(events) for events in files]
    out = {}
    for place in range(len(ranks[0].nccl)):
        durs = [rank.nccl[place]["dur"] for rank in ranks]
        order = sorted(range(len(ranks)), key=lambda i: (-durs[i], i))
        median = order[(len(ranks) - 1) // 2]
        for i in range(len(ranks)):
            if durs[i] != min(durs) or durs[i] == max(durs):
                continue
            both, shadow = [], []
            for rank in (ranks[i], ranks[median]):
                before = rank.nccl[place - 1]
                at = before["ts"] + before["dur"] if place else rank.begin
                both.append(rank.divided(at, rank.nccl[place]["ts"]) if at is not None else dict.fromkeys(PARTS, 0))
                shadow.append(rank.divided(rank.launch[place - 1], at, True) if place else dict.fromkeys(ON_HOST, 0))
            if None in (rank.begin for rank in ranks) and not place:
                both = [dict.fromkeys(PARTS, 0)] * 2
            row = {name: both[0][name] - both[1][name] for name in PARTS}
            carried = 0
            for name in ON_HOST:
                ahead = shadow[1][name] - shadow[0][name]
                if ahead > 0 and row[name] > 0:
                    part = min(ahead, row[name])
                elif ahead < 0 and row[name] < 0:
                    part = max(ahead, row[name])
                else:
                    part = 0
                row[name] -= part
                carried += part
            late = max(durs) - durs[i]
            rest = durs[median] - durs[i] - carried - sum(row.values())
            row["other"] += rest if place else 0
            out[place, i] = {
                "late": late, "median": max(durs) - durs[median], "before": 0 if place else rest, "carried": carried,
                "own": sum(row.values()), **row,
            }  # fmt: skip
    return out


def found(prof: profiles.Profile) -> dict[tuple[int, int], dict[str, int]]:
    keys = ("late", "median", "before", "carried", "own", *PARTS)
    return {
        (row["place"], int(row["worker"][4:])): {key: row[f"{key}_ns"] // US for key in keys}
        for row in table(prof, "stragglers")
        if row["times_last"]
    }


def loaded(files: list[Events], folder: Path) -> profiles.Profile:
    folder.mkdir(exist_ok=True)
    for rank, events in enumerate(files):
        text = {
            "traceEvents": events,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(files)},
        }
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_text(json.dumps(text))
    return profiles.load(folder)


DLRM = "kineto/dlrm_v100_8ranks.tar.gz"


@pytest.fixture(scope="module")
def dlrm(data, tmp_path_factory) -> list[Events]:
    folder = tmp_path_factory.mktemp("dlrm")
    with tarfile.open(data / DLRM) as archive:
        archive.extractall(folder, filter="data")
    paths = [next(folder.rglob(f"worker{rank}_*.json")) for rank in range(8)]
    return [json.loads(path.read_text())["traceEvents"] for path in paths]


@pytest.fixture(scope="module")
def divided(dlrm) -> dict[tuple[int, int], dict[str, int]]:
    return expected(dlrm)


def test_dlrm_is_divided_as_its_raw_files_say(dlrm, divided, recorded):
    """Rank 7 is late by 9.24 ms in five collectives. Its step begins 4.523 ms after the one of rank 5, which is in the
    middle at the first, where it is 4.669 ms after it: 0.146 ms of it happened in the step."""
    prof = recorded(DLRM)
    mine = found(prof)
    assert mine == divided
    first = mine[0, 7]
    assert (first["late"], first["median"], first["before"], first["own"]) == (7625, 2956, 4523, 146)
    by_rank = {row["worker"]: row for row in table(prof, "stragglers", by="rank")}
    assert by_rank["rank7"]["late_ns"] == (7625 + 1100 + 169 + 126 + 221) * US
    assert by_rank["rank7"]["own_ns"] == sum(row["own"] for (_, rank), row in mine.items() if rank == 7) * US
    assert by_rank["rank7"]["own_ns"] < 200 * US
    assert by_rank["rank7"]["first"] == 1
    assert next(iter(by_rank)) != "rank7"
    begins = [Rank(events).begin for events in dlrm]
    assert [by_rank[f"rank{i}"]["begin"] // US for i in range(8)] == [one - min(begins) for one in begins]


def begun_late(files: list[Events], late: int, time: int) -> list[Events]:
    """The run whose rank `late` began `time` us later: the others were there that much earlier and waited for it in
    the first collective."""
    out = []
    for rank, events in enumerate(files):
        if rank == late:
            out.append(events)
            continue
        at = Rank(events).nccl[0]
        moved = []
        for one in events:
            one = dict(one)
            if "ts" in one and "dur" in one and one["ts"] <= at["ts"]:
                around = one["ts"] + one["dur"] > at["ts"] + 1  # the collective, and the ranges around its launch
                one["ts"], one["dur"] = one["ts"] - time, one["dur"] + (time if around else 0)
            moved.append(one)
        out.append(moved)
    return out


@pytest.mark.long
@pytest.mark.parametrize("late", [7, 1])
def test_a_recording_that_began_10_ms_later_moves_no_blame(dlrm, divided, tmp_path, late):
    shifted = begun_late(dlrm, late, 10_000)
    before, after = divided, expected(shifted)
    prof = loaded(shifted, tmp_path)
    mine = found(prof)
    assert mine == after
    assert mine[0, late]["late"] > 8_000
    assert abs(mine[0, late]["own"]) < 900
    if late == 7:  # it was last before: nothing else differs
        first = {
            **before[0, 7],
            "late": before[0, 7]["late"] + 10_000,
            "before": before[0, 7]["before"] + 10_000,
        }
        assert mine == {**before, (0, 7): first}
        check_root_cause(prof, 10_000)


def test_the_root_cause_is_that_of_the_raw_files(dlrm, divided, recorded):
    """What a rank is late after its step has begun, by its own and alone, is less than 1 % of the step of rank 4, which
    ends last: nobody is blamed."""
    raw = [Rank(events) for events in dlrm]
    cost = [0] * 8
    for (place, rank), row in divided.items():
        first, second = sorted(one.nccl[place]["dur"] for one in raw)[:2]
        cost[rank] += max(min(row["own"], second - first), 0) if place else 0
    assert max(cost) < 17_979 / 100
    check_root_cause(recorded(DLRM), 0)


def check_root_cause(prof: profiles.Profile, later: int) -> None:
    """Rank 7's step begins 4.523 ms after that of rank 5, the median rank, and `later` us."""
    rows = table(prof, "root_cause")
    assert [row["saving_ns"] for row in rows] == [None] * len(rows)
    (row,) = [row for row in rows if row["worker"]]
    assert (row["worker"], row["part"], row["collectives"]) == ("rank7", "before the recording", 1)
    assert row["caused_ns"] == (4523 + later) * US
    assert "nobody is to blame" in rows[1]["note"]
    assert len(rows) == 3


def test_paths_of_dlrm_go_on_with_the_rank_that_arrived_last(dlrm, recorded):
    """The step of rank 4 ends last. Its path comes to a copy that waits for a collective, of which rank 7's kernel is
    the shortest; it goes on there until rank 7's recording begins."""
    prof = recorded(DLRM)
    rows = table(prof, "critical_path", by="step")
    assert {row["ends_on"] for row in rows} == {"rank4"}
    total = sum(row["total_ns"] for row in rows)
    assert [total] == [one["total_ns"] for one in table(prof, "step_time") if one["worker"] == "rank4"]
    assert {row["worker"] for row in rows if row["part"] == "communication"} == {"rank7"}
    (unknown,) = [row for row in rows if row["part"] == "not recorded"]
    begins = [Rank(events).begin for events in dlrm]
    assert abs(unknown["total_ns"] - (begins[7] - begins[4]) * US) < 5 * US
    assert unknown["worker"] == "rank7"


@pytest.mark.long
def test_first_events_that_were_not_recorded_move_no_blame(dlrm, divided, tmp_path):
    """What ended in the first 3 ms of rank 7 is missing: what it did there is unknown, how late it was
    by its own is not."""
    begin = Rank(dlrm[7]).begin
    cut = [one for one in dlrm[7] if "dur" not in one or one["ts"] + one["dur"] >= begin + 3000]
    assert len(cut) < len(dlrm[7]) - 300
    mine, before = found(loaded([*dlrm[:7], cut], tmp_path)), divided
    assert mine[0, 7]["own"] == before[0, 7]["own"] == 146
    assert mine[0, 7]["host"] < before[0, 7]["host"]
    assert {key: row for key, row in mine.items() if key[0]} == {key: row for key, row in before.items() if key[0]}


def test_without_a_common_mark_all_before_the_first_collective_is_unknown(tmp_path):
    """Rank 1 begins its recording in the next step; sequence numbers tell what belongs together."""
    ranks = [[reduce(300, 100, 1), reduce(1300, 100, 2)], [reduce(1390, 10, 2)]]
    files = []
    for rank, kernels in enumerate(ranks):
        steps = [(0, 1000), (1000, 2000)] if rank == 0 else [(1100, 2000)]
        files.append(json.loads(trace(rank, kernels, steps, first=5))["traceEvents"])
    (row,) = [row for row in table(loaded(files, tmp_path), "stragglers") if row["times_last"]]
    assert (row["worker"], row["late_ns"], row["before_ns"], row["own_ns"]) == ("rank1", 90 * US, 90 * US, 0)
    assert (row["first"], row["begin"]) == (1, 1100 * US)


def random_files(seed: int) -> list[Events]:
    rng = random.Random(seed)
    count, places = rng.randint(2, 5), rng.randint(1, 5)
    marked = [rng.randint(0, 250) for _ in range(count)]
    files: list[Events] = []
    ends = [1000 * (place + 1) for place in range(places)]
    for rank in range(count):
        kernels = []
        for place, end in enumerate(ends):
            dur = rng.randint(10, 700)
            wobble = rng.randint(0, 3)
            kernels.append(reduce(end - dur + wobble, dur, place))
            for _ in range(rng.randint(0, 3)):
                kernels.append(K("volta_sgemm_128x64_nn", end - rng.randint(100, 999), rng.randint(1, 300)))
        steps = [(marked[rank], ends[-1] + 100)] if seed % 3 else []
        events = json.loads(trace(rank, kernels, steps, world=count))["traceEvents"]
        kinds = (("cpu_op", "aten::mm"), ("cpu_op", "aten::relu"), ("cuda_runtime", "cudaDeviceSynchronize"),
                 ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"))  # fmt: skip
        for cat, name in kinds * 4:
            start = rng.randint(0, ends[-1])
            events.append({
                "ph": "X", "cat": cat, "name": name, "pid": 1000 + rank, "tid": 1000 + rank + rng.randint(0, 1),
                "ts": start, "dur": rng.randint(1, 200), "args": {},
            })  # fmt: skip
        files.append(events)
    return files


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_parts_add_up_to_the_lateness(tmp_path, seed):
    prof = loaded(random_files(seed), tmp_path)
    for by in ("collective", "rank"):
        for row in table(prof, "stragglers", by=by):
            parts = [row[f"{name}_ns"] for name in ("median", "before", "carried", "own")]
            assert sum(parts) == row["late_ns"]
            assert sum(row[f"{name}_ns"] for name in PARTS) == row["own_ns"]
    if seed % 3:  # with steps, which give collectives their places
        assert found(prof) == expected(random_files(seed))


def op(name: str, start: int, dur: int, rank: int, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1000 + rank, "tid": 1000 + rank, "ts": start, "dur": dur,
            "args": {}}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "part", "operator"),
    [
        (op("aten::nonzero", 1050, 300, 2), "host", "nonzero"),
        (op("enumerate(DataLoader)#_Iter.__next__", 1050, 300, 2, "user_annotation"), "dataloader", None),
        (op("cudaDeviceSynchronize", 1050, 300, 2, "cuda_runtime"), "launch", None),
        (None, "kernels", None),
        ("Python", "other", None),
    ],
)  # fmt: skip
def test_what_a_rank_does_longer_is_named(tmp_path, event, part, operator):
    """Three ranks end a collective at 1000 us. Two come to the next at 1100 us, the third at 1400, after 300 us more of
    one thing."""
    files = []
    for rank in range(3):
        at = 1400 if rank == 2 else 1100
        kernels = [reduce(900, 100, 1), reduce(at, 1500 - at, 2)]
        if part == "kernels" and rank == 2:
            kernels.append(K("volta_sgemm_128x64_nn", 1050, 300))
        events = json.loads(trace(rank, kernels, []))["traceEvents"]
        events = [one for one in events if one["cat"] != "cuda_runtime"]  # launches are of no matter here
        files.append(events + ([event] if isinstance(event, dict) and rank == 2 else []))
    (row,) = [row for row in table(loaded(files, tmp_path), "stragglers") if row["times_last"]]
    assert (row["worker"], row["late_ns"], row["own_ns"], row["carried_ns"]) == (
        "rank2",
        300 * US,
        300 * US,
        0,
    )
    assert {name: row[f"{name}_ns"] for name in PARTS} == {**dict.fromkeys(PARTS, 0), part: 300 * US}
    assert row["operator"] == operator


def test_work_that_others_did_while_they_waited_is_carried(tmp_path):
    """Rank 2 comes 500 us late to the first. All launch the second after 200 us of work: the others do it while they
    wait for rank 2, which does it after the first has ended, and is 200 us late for no fault of its own."""
    files = []
    for rank in range(3):
        at = 700 if rank == 2 else 200
        kernels = [
            reduce(at, 710 - at, 1),
            reduce(915 if rank == 2 else 715, 1000 - (915 if rank == 2 else 715), 2),
        ]
        events = json.loads(trace(rank, kernels, [(0, 1000)], first=5 + rank))["traceEvents"]  # no common step
        for one in events:  # launched when they are ready to run
            if one["cat"] == "cuda_runtime" and one["args"]["correlation"] == 2:
                one["ts"] = at + 205
        files.append([*events, op("aten::unique", at + 5, 200, rank)])
    first, second = [row for row in table(loaded(files, tmp_path), "stragglers") if row["times_last"]]
    assert (first["late_ns"], first["before_ns"], first["first"]) == (500 * US, 500 * US, 1)
    assert (second["late_ns"], second["carried_ns"], second["own_ns"]) == (200 * US, 200 * US, 0)


def test_rows_are_in_the_order_of_what_ranks_are_late_by_their_own():
    for by in ("collective", "rank"):
        own = [row["own_ns"] for row in table(late_run(), "stragglers", by=by)]
        assert own == sorted(own, reverse=True)
        assert own[0] > 0


@pytest.mark.parametrize(("place", "begin", "named"), [(1, 0, True), (0, 0, False), (0, 400, False)])
def test_the_rule_counts_nothing_from_before_the_recording(tmp_path, place, begin, named):
    """Rank 1 is 400 us late in one of three steps of 1 ms and 1 us in the others: 13 % of the time for it alone. In the
    first step, wherever that begins, nobody knows what came before."""
    files = []
    for rank in range(2):
        late = [rank * (400 if step == place else 1) for step in range(3)]
        kernels = [reduce(1000 * i + 300 + at, 100 + 400 - at, i) for i, at in enumerate(late)]
        steps = [(begin * rank, 1000), (1000, 2000), (2000, 3000)]
        waits = [op("cudaDeviceSynchronize", one.start, one.dur, rank, "cuda_runtime") for one in kernels]
        files.append(json.loads(trace(rank, kernels, steps))["traceEvents"] + waits)
    load_folder("pyprof.rules")
    assert (judge(RULES["R30"], Run(loaded(files, tmp_path).source())).finding is not None) == named

# SPDX-License-Identifier: Apache-2.0
"""Report collectives: what ranks did together, one row per kind and size."""

from __future__ import annotations

import json
import random
import tarfile
from collections import defaultdict
from typing import Any

import pytest

from pyprof import profiles
from tests.reports.ranks import NCCL, K, run
from tests.reports.simulated import TRANSFER, Plan, files, plan, write
from tests.reports.test_communication import reduce, table

US = 1000  # ns


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def test_one_row_for_all_ranks_of_a_size(tmp_path):
    """Two all-reduces of 4000 bytes on three ranks: skews 60 and 40 us, transfers 20 and 30 us. 8000 bytes in 50 us are
    0.16 GB/s, on the bus of three ranks 2 (3 - 1) / 3 of it. A third, of 8000 bytes, has a row of its own."""
    durs = [[80, 70, 9], [20, 50, 9], [50, 30, 10]]
    prof = run(tmp_path, [
        [reduce(1000 * (i + 1) - dur, dur, i, size=3, count=2000 if i == 2 else 1000) for i, dur in enumerate(one)]
        for one in durs
    ])  # fmt: skip
    first, second = table(prof, "collectives")
    assert [first[key] for key in ("name", "size", "dtype", "up_to", "groups")] == [
        "all_reduce",
        3,
        "float32",
        4096,
        1,
    ]
    assert [first[key] for key in ("ranks", "calls", "kernels", "bytes")] == [3, 2, 6, 8000]
    assert (first["skew_min"], first["skew_avg"], first["skew_max"]) == (40 * US, 50 * US, 60 * US)
    assert (first["transfer_ns"], first["transfer_avg"]) == (50 * US, 25 * US)
    assert first["latency_ns"] == (80 + 70 + 20 + 50 + 50 + 30) * US
    assert first["wait_ns"] == (60 + 0 + 30 + 40 + 20 + 0) * US
    assert first["wait_share"] == pytest.approx(100 * 150 / 300)
    assert first["algbw"] == pytest.approx(0.16)
    assert first["busbw"] == pytest.approx(0.16 * 4 / 3)
    assert (first["transfer_min"], first["transfer_max"]) == (20 * US, 30 * US)
    assert (first["skew_error"], first["note"]) == (0, None)  # three ends, each the same on all ranks
    assert (second["up_to"], second["calls"], second["skew_max"]) == (8192, 1, 1 * US)


def test_groups_of_as_many_ranks_share_a_row(tmp_path):
    prof = run(tmp_path, [
        [reduce(100, 80, 1, "tp0", size=2)], [reduce(150, 30, 1, "tp0", size=2)],
        [reduce(100, 60, 1, "tp1", size=2)], [reduce(120, 40, 1, "tp1", size=2)],
    ])  # fmt: skip
    (row,) = table(prof, "collectives")
    assert (row["groups"], row["ranks"], row["calls"], row["kernels"]) == (2, 4, 2, 4)
    assert (row["skew_min"], row["skew_max"], row["wait_ns"]) == (20 * US, 50 * US, 70 * US)
    (mine,) = table(prof, "collectives", worker=2)  # its group, with the ranks it waits for
    assert (mine["groups"], mine["ranks"], mine["calls"], mine["skew_max"]) == (1, 2, 1, 20 * US)
    rows = table(prof, "collectives", by="group")
    assert [(one["process_group"], one["ranks"], one["calls"], one["skew_max"]) for one in rows] == [
        ("tp0", 2, 1, 50 * US), ("tp1", 2, 1, 20 * US)
    ]  # fmt: skip
    for key in ("calls", "kernels", "bytes", "latency_ns", "wait_ns", "transfer_ns"):
        assert sum(one[key] for one in rows) == row[key]


def test_what_is_not_aligned_is_apart(tmp_path):
    (row,) = table(run(tmp_path / "one", [[reduce(100, 80, 7, size=4)]], world=4), "collectives")
    assert row["aligned_by"] == "no: one rank recorded"
    assert (row["calls"], row["kernels"], row["latency_ns"], row["bytes"]) == (1, 1, 80 * US, 4000)
    unknown = ("wait_ns", "wait_share", "skew_min", "skew_avg", "skew_max", "transfer_ns", "algbw", "busbw")
    assert {row[key] for key in unknown} == {None}
    both = run(tmp_path / "two", [[reduce(300, 50, 2), reduce(500, 10, 3)], [reduce(310, 40, 2)]])
    assert [(r["calls"], r["ranks"], r["skew_max"]) for r in table(both, "collectives")] == [
        (1, 2, 10 * US), (1, 1, None)
    ]  # fmt: skip


def test_the_start_of_a_broadcast_is_not_known_from_its_length(tmp_path):
    one = K("broadcast", 100, 80, "0", 1, (5, 5), 2)
    (row,) = table(run(tmp_path, [[one], [one._replace(start=150, dur=30)]]), "collectives")
    assert (row["skew_max"], row["transfer_ns"], row["wait_ns"]) == (None, 30 * US, 50 * US)


def test_many_ranks_have_as_few_rows(tmp_path):
    """16 ranks, five sizes: five rows, where communication has 80."""
    rng = random.Random(1)
    ranks: list[list[K]] = [[] for _ in range(16)]
    for place in range(10):
        for one in ranks:
            dur = rng.randint(10, 500)
            one.append(reduce(1000 * (place + 1) - dur, dur, place, count=1000 * 4 ** (place % 5), size=16))
    prof = run(tmp_path, ranks)
    found = table(prof, "collectives")
    assert len(found) == 5
    assert {row["ranks"] for row in found} == {16}
    by_rank = table(prof, "communication")
    for key in ("latency_ns", "wait_ns"):
        assert sum(row[key] for row in found) == sum(row[key] for row in by_rank)
    assert sum(row["kernels"] for row in found) == sum(row["calls"] for row in by_rank)
    assert 16 * sum(row["transfer_ns"] for row in found) == sum(row["transfer_ns"] for row in by_rank)


def test_what_is_not_known_is_said_with_its_reason(tmp_path):
    """Two ranks of a world of eight: what their groups are is not recorded; nor are types and sizes of the second."""
    known, bare = reduce(100, 80, 1), K("all_reduce", 300, 50, "0", 2)
    prof = run(tmp_path, [[known, bare], [known._replace(start=150, dur=30), bare]], world=8)
    sized, unsized = table(prof, "collectives")
    certain = "no error of the skews: fewer than three collectives to compare its ranks' clocks by"
    assert (sized["algbw"], sized["busbw"], sized["size"]) == (pytest.approx(4 / 30), None, None)
    assert sized["note"] == f"{certain}; no bus bandwidth: the number of ranks of the group is not known"
    assert (unsized["dtype"], unsized["up_to"], unsized["bytes"], unsized["algbw"]) == (None,) * 4
    assert unsized["note"] == f"{certain}; the data type is not recorded; no bandwidths: the size is not recorded"
    assert (sized["skew_error"], unsized["skew_error"]) == (None, None)


Calls = dict[int, list[tuple[float, float, int]]]


def calls_of(what: Plan, traces: list[dict[str, Any]]) -> Calls:
    """Start and end by the true clock, and length as recorded, of each collective of simulated ranks on each rank."""
    out: Calls = defaultdict(list)
    for rank, trace in enumerate(traces):
        for one in trace["traceEvents"]:
            if "Seq" in one["args"]:
                start, length = 1000 * one["ts"], 1000 * one["dur"]
                begin, end = ((time - what.offset[rank]) / (1 + what.drift[rank]) for time in (start, start + length))
                out[one["args"]["Seq"]].append((begin, end, round(length)))
    return out


def skew_of(call: list[tuple[float, float, int]]) -> float:
    return max(start for start, _, _ in call) - min(start for start, _, _ in call)


def test_skews_and_transfers_are_those_that_were_planted(tmp_path):
    """A rank comes late to the first of two collectives a step; clocks are up to 50 ms apart and drift."""
    what = plan(5, "loader")
    traces = files(what, 10, 5)
    calls = calls_of(what, traces)
    skews = [skew_of(call) for call in calls.values()]
    (row,) = table(profiles.load(write(tmp_path, traces)), "collectives")
    assert (row["calls"], row["ranks"], row["bytes"]) == (20, what.ranks, 20 * 4 << 20)
    assert 0 < row["skew_error"] < 30 * US
    for key, true in (("skew_min", min(skews)), ("skew_avg", sum(skews) / 20), ("skew_max", max(skews))):
        assert row[key] == pytest.approx(true, abs=row["skew_error"])
    assert row["skew_max"] == pytest.approx(what.extra, rel=0.1)
    shortest = [min(length for _, _, length in call) for call in calls.values()]
    assert (row["transfer_min"], row["transfer_max"], row["transfer_ns"]) == (
        min(shortest), max(shortest), sum(shortest)
    )  # fmt: skip
    assert row["transfer_avg"] == pytest.approx(TRANSFER, rel=0.02)
    ranks = what.ranks
    assert row["busbw"] == pytest.approx(2 * (ranks - 1) / ranks * 20 * (4 << 20) / sum(shortest))


def test_the_skew_of_a_broadcast_is_that_of_its_starts_on_the_common_clock(tmp_path):
    """Every second collective is a broadcast, whose root is done when it has sent: after 5 us. Its short kernel does
    not say that it came last; the clocks are known from the other collectives."""
    what = plan(5, "loader")
    traces = files(what, 10, 5)
    for rank, trace in enumerate(traces):
        for one in trace["traceEvents"]:
            if one["args"].get("Seq", 1) % 2 == 0:
                one["name"], one["args"]["Collective name"] = NCCL["broadcast"], "broadcast"
                one["dur"] = 5 if rank == 0 else one["dur"]
    skews = [skew_of(call) for number, call in calls_of(what, traces).items() if number % 2 == 0]
    rows = {row["name"]: row for row in table(profiles.load(write(tmp_path, traces)), "collectives")}
    row = rows["broadcast"]
    assert 0 < row["skew_error"] < 30 * US
    for key, true in (("skew_min", min(skews)), ("skew_avg", sum(skews) / 10), ("skew_max", max(skews))):
        assert row[key] == pytest.approx(true, abs=row["skew_error"])
    assert row["skew_max"] < 100 * US  # the lengths differ by 400 us


BYTES = {"float": 4, "int": 4, "long int": 8}
DTYPES = {"float": "float32", "int": "int32", "long int": "int64"}


def test_dlrm_as_its_raw_files_say(data, recorded, tmp_path):
    """Kernels and calls of c10d by their order on each rank: the names of the kernels tell the kind, their lengths the
    times, the shapes in the calls what a rank sends. All files are of one host, so that starts can be compared."""
    with tarfile.open(data / "kineto/dlrm_v100_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    calls: dict[int, list[tuple[str, str, int, int, int]]] = defaultdict(list)
    for path in sorted(tmp_path.rglob("*.json")):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if "dur" in e]
        kernels = sorted((e["ts"], e["dur"], e["name"]) for e in events if e["name"].startswith("ncclKernel_"))
        asked = sorted((e["ts"], e) for e in events if e["name"] in ("c10d::alltoall_base_", "nccl:all_reduce"))
        for place, ((ts, dur, name), (_, call)) in enumerate(zip(kernels, asked, strict=True)):
            kind = "all_reduce" if "AllReduce" in name else "all_to_all"
            dtype = call["args"]["Input type"][0]
            sent = [shape[0] for shape in call["args"]["Input Dims"] if shape][-1]  # output, input
            calls[place].append((kind, DTYPES[dtype], sent * BYTES[dtype], ts * US, dur * US))
    assert {len(call) for call in calls.values()} == {8}
    expected = defaultdict(list)
    for call in calls.values():
        kind, dtype, *_ = call[0]
        size = max(one[2] for one in call)
        lengths = [one[4] for one in call]
        starts = [one[3] for one in call]
        expected[kind, dtype, 1 << (size - 1).bit_length()].append(
            (size, min(lengths), max(lengths) - min(lengths), sum(lengths), max(starts) - min(starts))
        )
    found = table(recorded("kineto/dlrm_v100_8ranks.tar.gz"), "collectives")
    assert len(found) == len(expected)
    for row in found:
        rows = expected[row["name"], row["dtype"], row["up_to"]]
        sizes, transfers, skews, latencies, started = (list(column) for column in zip(*rows))
        assert (row["ranks"], row["size"], row["calls"], row["bytes"]) == (8, 8, len(rows), sum(sizes))
        assert (row["transfer_min"], row["transfer_max"]) == (min(transfers), max(transfers))
        assert (row["transfer_ns"], row["latency_ns"]) == (sum(transfers), sum(latencies))
        assert (row["skew_min"], row["skew_max"]) == (min(skews), max(skews))
        assert row["skew_avg"] == pytest.approx(sum(skews) / len(skews))
        for one, other in zip(skews, started, strict=True):  # by the clock of the host
            assert abs(one - other) <= row["skew_error"]
        factor = 2 * 7 / 8 if row["name"] == "all_reduce" else 7 / 8
        assert row["algbw"] == pytest.approx(sum(sizes) / sum(transfers))
        assert row["busbw"] == pytest.approx(factor * sum(sizes) / sum(transfers))
    assert max(row["skew_max"] for row in found) == 7625 * US

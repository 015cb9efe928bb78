# SPDX-License-Identifier: Apache-2.0
"""Report collectives: what ranks did together, one row per kind and size."""

from __future__ import annotations

import json
import random
import tarfile
from collections import defaultdict

import pytest

from pyprof import session
from tests.reports.ranks import K, run
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
    """32 ranks, five sizes: five rows, where communication has 32 and stragglers 320 of an iteration."""
    rng = random.Random(1)
    ranks: list[list[K]] = [[] for _ in range(32)]
    for place in range(10):
        for one in ranks:
            dur = rng.randint(10, 500)
            one.append(reduce(1000 * (place + 1) - dur, dur, place, count=1000 * 4 ** (place % 5), size=32))
    prof = run(tmp_path, ranks)
    found = table(prof, "collectives")
    assert len(found) == 5
    assert {row["ranks"] for row in found} == {32}
    by_rank = table(prof, "communication")
    for key in ("latency_ns", "wait_ns"):
        assert sum(row[key] for row in found) == sum(row[key] for row in by_rank)
    assert sum(row["kernels"] for row in found) == sum(row["calls"] for row in by_rank)
    assert 32 * sum(row["transfer_ns"] for row in found) == sum(row["transfer_ns"] for row in by_rank)


def test_dlrm_as_its_raw_files_say(data, tmp_path):
    """Kernels by their order on each rank: the names tell the kind, lengths the rest; sizes of the all-reduces from the
    description of their calls."""
    with tarfile.open(data / "kineto/dlrm_v100_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    durs = defaultdict(list)
    for path in sorted(tmp_path.rglob("*.json")):
        events = json.loads(path.read_text())["traceEvents"]
        mine = sorted(
            (e["ts"], e["name"], e["dur"]) for e in events if e.get("name", "").startswith("ncclKernel_")
        )
        for place, (_, name, dur) in enumerate(mine):
            durs[place, "all_reduce" if "AllReduce" in name else "all_to_all"].append(dur * US)
    found = table(session.load(tmp_path), "collectives")
    assert {row["ranks"] for row in found} == {8}
    for kind in ("all_reduce", "all_to_all"):
        some = [ranks for (_, name), ranks in durs.items() if name == kind]
        rows = [row for row in found if row["name"] == kind]
        assert sum(row["calls"] for row in rows) == len(some)
        assert sum(row["transfer_ns"] for row in rows) == sum(map(min, some))
        assert sum(row["latency_ns"] for row in rows) == sum(map(sum, some))
        assert max(row["skew_max"] for row in rows) == max(max(ranks) - min(ranks) for ranks in some)
        assert min(row["skew_min"] for row in rows) == min(max(ranks) - min(ranks) for ranks in some)
    assert max(row["skew_max"] for row in found) == 7625 * US

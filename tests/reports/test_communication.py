# SPDX-License-Identifier: Apache-2.0
"""Reports communication and stragglers: which kernels of several ranks are one collective, and who waited for whom."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.facts.ranks import collective_groups
from tests.build import scratch
from tests.reports.ranks import K, run
from tests.reports.test_oracle import rows

US = 1000  # ns


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def table(prof: profiles.Profile, name: str, **more: Any) -> list[dict[str, Any]]:
    return rows(prof.report(name, **more))


def hows(prof: profiles.Profile) -> set[str]:
    return {row["aligned_by"] for row in table(prof, "communication")}


def reduce(start: int, dur: int, seq: int | None = None, group: str | None = "0", count: int = 1000, **more: Any) -> K:
    return K("all_reduce", start, dur, group, seq, (count, count), **more)


def test_transfer_is_the_kernel_of_the_rank_that_came_last(tmp_path):
    """Rank 1 comes 60 us after rank 0; the shortest kernel is 20 us. 4000 bytes in 20 us are 0.2 GB/s; on the bus of
    two ranks the same: 2 (2 - 1) / 2 = 1."""
    prof = run(tmp_path, [[reduce(100, 80, 7, size=2)], [reduce(160, 20, 7, size=2)]])
    first, second = table(prof, "communication")
    assert [first[key] for key in ("worker", "device", "name", "process_group", "size", "dtype", "calls")] == [
        "rank0", 0, "all_reduce", "0", 2, "float32", 1
    ]  # fmt: skip
    assert (first["bytes"], first["latency_ns"], first["transfer_ns"], first["wait_ns"]) == (
        4000,
        80 * US,
        20 * US,
        60 * US,
    )
    assert (second["latency_ns"], second["transfer_ns"], second["wait_ns"]) == (20 * US, 20 * US, 0)
    assert first["algbw"] == second["algbw"] == pytest.approx(0.2)
    assert first["busbw"] == pytest.approx(0.2)
    assert first["bandwidth_of"] == "transfer"
    assert hows(prof) == {collective_groups.BY_SEQUENCE}


def test_one_rank_alone_knows_no_transfer(tmp_path):
    (row,) = table(run(tmp_path, [[reduce(100, 80, 7, size=4)]], world=4), "communication")
    assert row["transfer_ns"] is None
    assert row["wait_ns"] is None
    assert row["aligned"] == 0
    assert row["algbw"] == pytest.approx(4000 / 80_000)
    assert row["bandwidth_of"] == "latency"
    assert row["busbw"] == pytest.approx(1.5 * 4000 / 80_000)  # 2 (4 - 1) / 4
    assert row["aligned_by"] == "no: one rank recorded"


def test_bytes_are_those_of_nccl_tests(tmp_path):
    cases = [
        ("all_reduce", (1000, 1000), 4000), ("all_gather", (1000, 4000), 16_000),
        ("reduce_scatter", (4000, 1000), 16_000), ("all_to_all", (1000, 800), 4000),
        ("broadcast", (1000, 1000), 4000), ("all_reduce", None, None),
    ]  # fmt: skip
    kernels = [K(name, 100 * i, 80, str(i), 1, elements, 4) for i, (name, elements, _) in enumerate(cases, start=1)]
    found = {row["process_group"]: row for row in table(run(tmp_path, [kernels]), "communication")}
    for group, (name, _, expected) in enumerate(cases, start=1):
        row = found[str(group)]
        assert (row["name"], row["bytes"], row["algbw"] is None) == (name, expected, expected is None)


def test_unequal_counts_are_aligned_by_group_and_sequence(tmp_path):
    """Rank 1 recorded one collective more at the beginning, rank 0 one more at the end: by order everything would be
    off by one."""
    prof = run(tmp_path, [
        [reduce(300, 50, 2), reduce(500, 10, 3), reduce(700, 70, 4)],
        [reduce(100, 30, 1), reduce(330, 20, 2), reduce(460, 50, 3)],
    ])  # fmt: skip
    by = {row["worker"]: row for row in table(prof, "communication")}
    assert [by[w]["aligned"] for w in ("rank0", "rank1")] == [2, 2]
    assert by["rank0"]["transfer_ns"] == by["rank1"]["transfer_ns"] == (20 + 10) * US
    assert by["rank0"]["wait_ns"] == 30 * US
    assert by["rank1"]["wait_ns"] == 40 * US
    assert by["rank0"]["latency_ns"] == 130 * US
    assert by["rank0"]["aligned_ns"] == 60 * US
    assert hows(prof) == {"process group and sequence number, some no: not recorded on every rank"}


def test_unequal_counts_without_sequence_numbers_are_not_aligned(tmp_path):
    prof = run(tmp_path, [[reduce(300, 50), reduce(500, 10)], [reduce(310, 40)]])
    assert hows(prof) == {"no: ranks have unequal counts and no sequence numbers"}
    assert [row["transfer_ns"] for row in table(prof, "communication")] == [None, None]
    assert table(prof, "stragglers") == []


def test_a_number_that_one_rank_has_twice_is_not_guessed(tmp_path):
    prof = run(tmp_path, [[reduce(300, 50, 2), reduce(500, 10, 2)], [reduce(310, 40, 2)]])
    assert [row["aligned"] for row in table(prof, "communication")] == [0, 0]


def test_replays_with_one_number_follow_each_other(tmp_path):
    prof = run(tmp_path, [[reduce(300, 50, 2), reduce(500, 10, 2)], [reduce(310, 40, 2), reduce(480, 30, 2)]])
    assert [row["transfer_ns"] for row in table(prof, "communication")] == [50 * US, 50 * US]


def test_equal_counts_are_aligned_by_order_if_they_end_together(tmp_path):
    both = [[reduce(300, 50, group=None), reduce(500, 10, group=None)],
            [reduce(310, 40, group=None), reduce(460, 50, group=None)]]  # fmt: skip
    prof = run(tmp_path / "together", both)
    assert hows(prof) == {"order"}
    assert [row["transfer_ns"] for row in table(prof, "communication")] == [50 * US, 50 * US]
    # Rank 1 recorded one earlier and one less at the end: the same count, one off.
    apart = [both[0], [reduce(100, 30, group=None), reduce(310, 40, group=None)]]
    assert hows(run(tmp_path / "apart", apart)) == {"no: kernels at one place do not end together"}


def test_order_proves_nothing_if_kinds_or_sizes_differ(tmp_path):
    one = [reduce(300, 50), K("all_gather", 500, 10, "0", None, (10, 20))]
    other = [K("all_gather", 300, 50, "0", None, (10, 20)), reduce(500, 10)]
    assert hows(run(tmp_path / "kinds", [one, other])) == {"no: ranks have different collectives at one place"}
    sizes = [[reduce(300, 50), reduce(500, 10)], [reduce(300, 50), reduce(500, 10, count=999)]]
    assert hows(run(tmp_path / "sizes", sizes)) == {"no: ranks have different collectives at one place"}
    uneven = [
        [K("all_to_all", 300, 50, None, None, (10, 10))],
        [K("all_to_all", 310, 40, None, None, (20, 10))],
    ]
    assert hows(run(tmp_path / "uneven", uneven)) == {"order"}


def test_across_hosts_clocks_prove_nothing(tmp_path):
    """Clocks that are 5 s apart: with a process group the order counts, without there is no proof."""
    for group, how in (
        ("0", "order in the process group"),
        (None, "no: clocks of several hosts and no process groups"),
    ):
        both = [[reduce(300, 50, group=group)], [reduce(5_000_310, 40, group=group)]]
        assert hows(run(tmp_path / str(group), both, hosts=("a", "b"))) == {how}
    again = run(tmp_path / "one", [[reduce(300, 50)], [reduce(5_000_310, 40)]], hosts=("a", "a"))
    assert hows(again) == {"no: kernels at one place do not end together"}


def test_ranks_that_recorded_other_steps_are_not_aligned_by_order(tmp_path):
    both = [[reduce(300, 50)], [reduce(310, 40)]]
    assert hows(run(tmp_path / "same", both, [(0, 1000)])) == {"order in the process group"}
    other = run(tmp_path / "other", both, [(0, 1000)], first=(5, 6))
    assert hows(other) == {"no: ranks recorded different steps"}


def test_groups_are_apart(tmp_path):
    """Two groups of two ranks each: nobody waits for a rank of another group."""
    prof = run(tmp_path, [
        [reduce(100, 80, 1, "tp0")], [reduce(150, 30, 1, "tp0")], [reduce(100, 60, 1, "tp1")], [reduce(120, 40, 1,
            "tp1")]
    ])  # fmt: skip
    waits = {row["worker"]: row["wait_ns"] for row in table(prof, "communication")}
    assert waits == {"rank0": 50 * US, "rank1": 0, "rank2": 20 * US, "rank3": 0}


def test_transfers_between_two_ranks_are_not_aligned(tmp_path):
    prof = run(tmp_path, [[K("send", 100, 80, "0", 1, (5, 5), 2)], [K("send", 150, 30, "0", 1, (5, 5), 2)]])
    assert hows(prof) == {"no: between two ranks"}


def test_only_the_chosen_iterations_count(tmp_path):
    kernels = [[reduce(300, 50, 1), reduce(1500, 10, 2)], [reduce(310, 40, 1), reduce(1460, 50, 2)]]
    prof = run(tmp_path, kernels, [(0, 1000), (1000, 2000)])
    prof.aggregate(1, 1)
    by = {row["worker"]: row for row in table(prof, "communication")}
    assert by["rank0"]["calls"] == 1
    assert by["rank1"]["wait_ns"] == 40 * US
    late = table(prof, "stragglers", by="rank")
    assert [(row["worker"], row["times_last"]) for row in late] == [("rank0", 1), ("rank1", 0)]
    assert {row["worker"] for row in rows(prof.report("communication", worker=1))} == {"rank1"}


# --- stragglers


@cache
def late_run() -> profiles.Profile:
    """Two steps of two collectives on three ranks. Rank 2 is last at the first of each, after 500 and 600 us of
    computation where the others need 100; at the second rank 0 and 1 are equally late, once."""
    ranks = []
    for rank in range(3):
        kernels = []
        for step, at in enumerate((0, 2000)):
            busy = 500 + 100 * step if rank == 2 else 100
            kernels.append(K("volta_sgemm_128x64_nn", at + 10, busy))
            begin = at + 20 + busy
            kernels.append(reduce(begin, at + 700 - begin, 2 * step))
            kernels.append(reduce(at + 800, 100, 2 * step + 1) if step == 0 and rank == 2 else
                           reduce(at + 850, 50, 2 * step + 1))  # fmt: skip
        ranks.append(kernels)
    return run(Path(scratch()), ranks, [(0, 2000), (2000, 4000)])


def test_who_is_late_where_how_often_and_by_how_much():
    prof = late_run()
    found = {(row["worker"], row["place"]): row for row in table(prof, "stragglers")}
    assert len(found) == 3  # the others were never last
    assert next(iter(found)) == ("rank2", 0)
    worst = found["rank2", 0]
    assert (worst["collectives"], worst["times_last"], worst["share"]) == (2, 2, 100)
    # The others are there at 120 us, rank 2 at 520 and 620: 400 and 500 later.
    assert (worst["late_ns"], worst["late_avg"], worst["late_max"]) == (900 * US, 450 * US, 500 * US)
    assert worst["alone_ns"] == 900 * US
    assert (worst["computation_avg"], worst["others_computation_avg"]) == (550 * US, 100 * US)
    # Equally late: both are last, neither alone. In step 1 all three are equal: nobody is late.
    for worker in ("rank0", "rank1"):
        row = found[worker, 1]
        assert (row["times_last"], row["late_ns"], row["alone_ns"]) == (1, 50 * US, 0)
        assert row["computation_avg"] == 0
    by_rank = table(prof, "stragglers", by="rank")
    assert [(r["worker"], r["collectives"], r["times_last"], r["late_ns"]) for r in by_rank] == [
        ("rank2", 4, 2, 900 * US), ("rank0", 4, 1, 50 * US), ("rank1", 4, 1, 50 * US)
    ]  # fmt: skip


def test_a_rank_whose_recording_was_read_before_a_collective_is_not_blamed(tmp_path):
    """Rank 2 is 400 us late at the first collective of a step, which a pause explains, and 500 in the next step."""
    path = tmp_path / "run.sqlite"
    late_run().save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        worker = "select id from worker where name = 'rank2'"
        connection.execute(f"insert into pause values (({worker}), {130 * US}, {500 * US}, 1)")
    by_rank = table(profiles.load(path), "stragglers", by="rank")
    assert [(r["worker"], r["collectives"], r["times_last"], r["late_ns"]) for r in by_rank] == [
        ("rank2", 3, 1, 500 * US), ("rank0", 3, 1, 50 * US), ("rank1", 3, 1, 50 * US)
    ]  # fmt: skip


def test_computation_before_begins_where_the_last_collective_ended(tmp_path):
    """Rank 1 computes 100 us, then its two collectives follow each other without a gap: nothing before the second."""
    gemm = K("volta_sgemm_128x64_nn", 10, 100)
    prof = run(tmp_path, [
        [gemm, reduce(150, 150, 1), reduce(300, 100, 2)], [gemm, reduce(150, 149, 1), reduce(299, 90, 2)]
    ])  # fmt: skip
    second = {(row["worker"]): row for row in table(prof, "stragglers", by="rank")}["rank1"]
    assert (second["times_last"], second["late_ns"]) == (2, 11 * US)
    assert second["computation_avg"] == 50 * US  # of 100 us and nothing


def test_a_broadcast_tells_nothing_of_lateness(tmp_path):
    one = K("broadcast", 100, 80, "0", 1, (5, 5), 2)
    prof = run(tmp_path, [[one], [one._replace(start=150, dur=30)]])
    assert table(prof, "stragglers") == []
    assert [row["wait_ns"] for row in table(prof, "communication")] == [50 * US, 0]


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_equal_what_plain_python_makes_of_them(tmp_path, seed):
    """Groups of some ranks, sequence numbers, records that are missing on some."""
    rng = random.Random(seed)
    count = rng.randint(2, 4)
    groups = {name: rng.sample(range(count), rng.randint(2, count)) for name in ("a", "b")}
    ranks: list[list[K]] = [[] for _ in range(count)]
    for number in range(12):
        group = rng.choice(sorted(groups))
        end = 1000 * (number + 1)
        for rank in groups[group]:
            if rng.random() < 0.85:
                dur = rng.randint(10, 900)
                ranks[rank].append(reduce(end - dur, dur, number, group, rng.choice([10, 20])))
    ranks = [one or [K("volta_sgemm_128x64_nn", 1, 1)] for one in ranks]
    prof = run(tmp_path, ranks)
    everyone, kernels = defaultdict(set), defaultdict(dict)
    for rank, mine in enumerate(ranks):
        for one in mine:
            if one.group:
                everyone[one.group].add(rank)
                kernels[one.group, one.seq][rank] = one.dur
    wait, late = defaultdict(int), defaultdict(int)
    for (group, _), durs in kernels.items():
        if set(durs) == everyone[group] and len(durs) > 1:
            for rank, dur in durs.items():
                wait[rank, group] += dur - min(durs.values())
                if dur == min(durs.values()) < max(durs.values()):
                    late[rank] += max(durs.values()) - dur
    found = {(int(r["worker"][4:]), r["process_group"]): r for r in table(prof, "communication")}
    assert {key: row["wait_ns"] or 0 for key, row in found.items()} == {key: wait[key] * US for key in found}
    for row in found.values():
        assert row["calls"] == sum(k.group == row["process_group"] for k in ranks[int(row["worker"][4:])])
    by_rank = table(prof, "stragglers", by="rank")
    assert {int(r["worker"][4:]): r["late_ns"] for r in by_rank if r["late_ns"]} == {
        rank: time * US for rank, time in late.items() if time
    }


def test_eight_ranks_of_dlrm(recorded):
    """The first exchange: rank 7 arrives last and its kernel is 10 us long, that of rank 1, the first, 7635 us; the
    next to last are 514 and 518 us long."""
    prof = recorded("kineto/dlrm_v100_8ranks.tar.gz")
    assert hows(prof) == {"order"}
    worst = max(table(prof, "stragglers"), key=lambda row: row["late_ns"])
    assert (worst["worker"], worst["name"], worst["place"]) == ("rank7", "all_to_all", 0)
    assert (worst["late_ns"], worst["alone_ns"]) == (7625 * US, 504 * US)
    assert all(row["size"] == 8 for row in table(prof, "communication"))


def test_steps_have_their_own_sums_and_means(tmp_path):
    """Two steps of two collectives. Rank 1 comes 60 us late to the first of each and 10 us early to the second; the
    shortest kernels are 20 and 40 us in step 5, 25 and 45 us in step 6."""
    kernels: list[list[K]] = [[], []]
    for step, more in ((0, 0), (1, 5)):
        at = 1000 * step
        kernels[0] += [
            reduce(at + 100, 80 + more, 2 * step, size=2),
            reduce(at + 310, 40 + more, 2 * step + 1, size=2),
        ]
        kernels[1] += [
            reduce(at + 160, 20 + more, 2 * step, size=2),
            reduce(at + 300, 50 + more, 2 * step + 1, size=2),
        ]
    prof = run(tmp_path, kernels, steps=[(0, 1000), (1000, 2000)])
    found = table(prof, "communication", by="step")
    keys = ("worker", "step", "calls", "bytes", "latency_ns", "transfer_ns", "wait_ns")
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("rank0", 5, 2, 8000, 120 * US, 60 * US, 60 * US),
        ("rank0", 6, 2, 8000, 130 * US, 70 * US, 60 * US),
        ("rank1", 5, 2, 8000, 70 * US, 60 * US, 10 * US),
        ("rank1", 6, 2, 8000, 80 * US, 70 * US, 10 * US),
    ]
    means = ("bytes_avg", "latency_avg", "transfer_avg")
    assert tuple(found[1][key] for key in means) == (4000, 65 * US, 35 * US)
    whole = table(prof, "communication")
    for row in whole:  # the kinds and the steps of a worker add up alike
        for key in ("calls", "bytes", "latency_ns", "transfer_ns", "wait_ns"):
            assert row[key] == sum(one[key] for one in found if one["worker"] == row["worker"])
        assert row["latency_avg"] * row["calls"] == pytest.approx(row["latency_ns"])

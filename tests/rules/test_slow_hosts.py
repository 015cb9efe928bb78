# SPDX-License-Identifier: Apache-2.0
"""Ranks whose hosts run ahead: one that needs longer for a step than the others holds up all, and is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.profiles import Profile
from tests import kineto

STEPS, US = 8, 1_000
GEMM = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def record(folder: Path, hosts: list[int], more: int = 0, what: str = "Python GC") -> Profile:
    """Steps of six kernels of 8 us and an all-reduce of 20 us, each launched by an operator. For them the host of each
    rank needs so long, and the slowest so much `more` for `what`, a range or operator. Nobody waits for a device."""
    launched: list[list[int]] = []
    files: list[list[dict[str, Any]]] = []
    for length in hosts:
        before = more if length == max(hosts) else 0
        events: list[dict[str, Any]] = []
        ends = []
        for step in range(STEPS):
            begin = step * (length + before)
            events.append(kineto.annotation(f"ProfilerStep#{step}", begin, begin + length + before))
            if before:
                event = kineto.op if what.startswith("aten::") else kineto.annotation
                events.append(event(what, begin, begin + before))
            part = length // 7
            for number in range(7):
                start, end = begin + before + number * part, begin + before + (number + 1) * part
                events.append(kineto.op("aten::mm" if number < 6 else "c10d::allreduce_", start, end))
                events.append(kineto.launch(end - 5 * US, end - 1 * US, 10 * (step + 1) + number))
                ends.append(end - 1 * US)
        launched.append(ends)
        files.append(events)
    free = [0] * len(hosts)
    for step in range(STEPS):
        arrivals = []
        for rank, ends in enumerate(launched):
            for number in range(6):
                begin = max(ends[7 * step + number], free[rank])
                free[rank] = begin + 9 * US
                number_of = 10 * (step + 1) + number
                files[rank].append(kineto.kernel(GEMM, begin, begin + 8 * US, number_of, device=rank))
            arrivals.append(max(ends[7 * step + 6], free[rank]))
        end = max(arrivals) + 20 * US
        for rank, arrival in enumerate(arrivals):
            one = kineto.kernel(NCCL, arrival, end, 10 * (step + 1) + 6, stream=20, device=rank)
            one["args"] |= {
                "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
                "Group size": len(hosts), "Process Group Name": "0", "Seq": step,
                "Process Group Ranks": str(list(range(len(hosts)))),
            }  # fmt: skip
            files[rank].append(one)
            free[rank] = end + 1 * US
    for rank, events in enumerate(files):
        world = {"backend": "nccl", "rank": rank, "world_size": len(hosts), "pg_count": 1}
        devices = [{"id": i, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108} for i in range(len(hosts))]
        kineto.write(folder / f"rank{rank}.pt.trace.json", events, distributedInfo=world, deviceProperties=devices)
    return pyprof.load(folder)


@pytest.mark.parametrize("slow", [0, 2])
def test_the_rank_with_the_slow_host_is_named(slow: int, tmp_path: Path) -> None:
    """Steps of 900 us, of which the others' hosts need 300: without that the steps take as long as these."""
    hosts = [900 * US if rank == slow else 300 * US for rank in range(3)]
    found = record(tmp_path, hosts).findings.set_index("rule").loc["R30"]
    assert f"the CPU of rank{slow} needs longest, 900 us where the median rank's needs 300 us" in found["problem"]
    assert found["saving_ns"] == pytest.approx(STEPS * 600 * US, rel=0.05)


def test_hosts_that_need_about_as_long_are_not_named(tmp_path: Path) -> None:
    assert "R30" not in set(record(tmp_path, [310 * US, 300 * US, 300 * US]).findings["rule"])


def test_what_makes_the_host_slow_is_named_in_its_place(tmp_path: Path) -> None:
    """Garbage collection on one rank has a finding of its own, with the same saving."""
    rules = record(tmp_path, [300 * US, 301 * US, 300 * US], more=600 * US).findings
    assert "R30" not in set(rules["rule"])
    first = rules.iloc[0]
    assert first["rule"] == "R33"
    assert first["saving_ns"] == pytest.approx(STEPS * 600 * US, rel=0.05)


def test_an_operator_that_makes_the_host_slow_needs_no_garbage(tmp_path: Path) -> None:
    """R33 is about the operator alone. The host is slow for it, which a replay of the ranks knows."""
    found = record(tmp_path, [300 * US, 301 * US, 300 * US], 600 * US, "aten::tolist").findings.set_index("rule")
    assert "tolist" in found.loc["R33", "problem"]
    assert "rank1" in found.loc["R30", "problem"]


def test_a_rule_that_found_nothing_explains_no_waits(tmp_path: Path) -> None:
    """Only rank 1 waits for its loader, for 10 us: too little for R08. The others wait for its slow host."""
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    found = record(tmp_path, [300 * US, 900 * US, 300 * US], 10 * US, loader).findings.set_index("rule")
    assert "R08" not in found.index
    assert found.loc["R28", "problem"].endswith("What holds that rank up is in R30.")


def test_the_operator_of_one_rank_that_all_wait_for_under_gloo_is_named(tmp_path: Path) -> None:
    """Steps of 300 us: both ranks compute for 100, then rank 1 alone for 120, or 25, which is below the limit."""
    for more in (25, 120):
        folder = tmp_path / str(more)
        folder.mkdir()
        for rank in range(2):
            events = []
            for begin in range(0, STEPS * 300 * US, 300 * US):
                events += [
                    kineto.annotation(f"ProfilerStep#{begin // (300 * US)}", begin, begin + 300 * US),
                    kineto.op("aten::mm", begin, begin + 100 * US),
                    kineto.annotation("gloo:all_reduce", begin + (100 + rank * more) * US, begin + 300 * US),
                ]
                if rank:
                    events.append(kineto.op("aten::cholesky", begin + 110 * US, begin + (110 + more) * US))
            world = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_count": 1}
            kineto.write(folder / f"rank{rank}.pt.trace.json", events, distributedInfo=world)
        findings = pyprof.load(folder).findings.set_index("rule")
        assert ("R30" in findings.index) == (more == 120)
    assert findings.loc["R30", "saving_ns"] == STEPS * 120 * US
    assert findings.loc["R30", "problem"] == (
        "All ranks wait for rank1: it spends 120 us a step, 40.0 % of the time more than the median rank (0 ns a "
        "step), in cholesky."
    )


def test_short_stretches_of_the_other_ranks_do_not_hide_a_slow_one(tmp_path: Path) -> None:
    """Steps of 3 ms: before the product of 1 ms rank 0 is 210 us outside of operators, rank 1 1,000 us."""
    for rank, before in enumerate((210 * US, 1_000 * US)):
        events = []
        for begin in range(0, STEPS * 3_000 * US, 3_000 * US):
            events += [
                kineto.annotation(f"ProfilerStep#{begin // (3_000 * US)}", begin, begin + 3_000 * US),
                kineto.op("aten::mm", begin + before, begin + before + 1_000 * US),
                kineto.annotation("gloo:all_reduce", begin + before + 1_000 * US, begin + 3_000 * US),
            ]
        world = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_count": 1}
        kineto.write(tmp_path / f"rank{rank}.pt.trace.json", events, distributedInfo=world)
    first = pyprof.load(tmp_path).findings.iloc[0]
    assert first["rule"] == "R49"
    assert first["problem"].startswith(
        "The program spends 790 us a step, 26.3 % of the time, outside of operators, before mm, on rank1."
    )
    assert first["saving_ns"] == STEPS * 790 * US

# SPDX-License-Identifier: Apache-2.0
"""Each nanosecond of the steps has one cause: by hand on two kernels, and closed on every recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyprof
from benchmarks import diagnosis
from pyprof import profiles
from pyprof.facts.steps.device_steps import activities, used_steps
from pyprof.facts.steps.source import used
from tests import kineto
from tests.reports.test_change import pair
from tests.reports.test_oracle import random_profile, seeds

V100 = [{"id": 0, "name": "Tesla V100-SXM2-16GB", "numSms": 80}]
RECORDINGS = (
    "kineto/h100_bert_small.json.gz", pytest.param("kineto/mi210_gpu_only.json.gz", marks=pytest.mark.long),
    pytest.param("kineto/mi300_resnet_act_checkpoint.json.gz", marks=pytest.mark.long),
)  # fmt: skip


def op(name: str, start: int, end: int, *shapes: list[int]) -> dict[str, Any]:
    return kineto.op(name, start, end, **{
        "Input Dims": list(shapes), "Input type": ["float"] * len(shapes), "Concrete Inputs": [""] * len(shapes),
    })  # fmt: skip


def causes(prof: profiles.Profile, by: str = "cause") -> dict[str, int]:
    table = prof.report("account", by=by)
    return {str(name): int(time) for name, time in table.groupby("cause", sort=False)["total_ns"].sum().items()}


def test_the_time_of_kernels_is_divided_from_the_peak_downwards(tmp_path: Path) -> None:
    """A V100: 125 TFLOP/s in float16 on tensor cores, 15.7 TFLOP/s in float32, 900 GB/s. Steps of 300 us, of which the
    last has no idle time after it.

    mm of 1024 cubed: 2^31 FLOPs take 17,180 ns at 125 TFLOP/s, 136,783 at 15.7; 12 MiB take 13,981; it takes 200,000.
    Its 140 blocks fill 140 of the 160 places that 80 multiprocessors have in two waves: an eighth is empty.
    add of 2^20: 2^20 FLOPs take 8 ns and 67; 12 MiB take 13,981; it takes 20,000; memory is its limit.
    """
    side = [1024, 1024]
    events = []
    for step in range(3):
        at = 1_000_000 + 300_000 * step
        product = kineto.kernel("volta_sgemm_128x64_nn", at + 10_000, at + 210_000, 2 * step + 1)
        product["args"]["grid"] = [14, 10, 1]
        events += [
            kineto.annotation(f"ProfilerStep#{step}", at, at + 300_000),
            op("aten::mm", at + 1_000, at + 9_000, side, side),
            kineto.launch(at + 2_000, at + 4_000, 2 * step + 1),
            product,
            op("aten::add", at + 10_000, at + 19_000, side, side),
            kineto.launch(at + 12_000, at + 14_000, 2 * step + 2),
            kineto.kernel("vectorized_elementwise_kernel", at + 280_000, at + 300_000, 2 * step + 2),
        ]  # fmt: skip
    prof = pyprof.load(kineto.write(tmp_path / "a.json", events, deviceProperties=V100))
    found = {cause: time / 3 for cause, time in causes(prof).items()}
    exact = {
        "useful": 17_179.869 + 8.389,
        "precision": 136_782.4 - 17_179.869 + 66.8 - 8.389,
        "memory-bound": 13_981.0 - 66.8,
        "unfilled waves": 200_000 / 8,
        "below the roofline": 200_000 - 136_782.4 - 25_000 + 20_000 - 13_981.0,
    }
    for cause, time in exact.items():
        assert found[cause] == pytest.approx(time, abs=2), cause
    # Each launch but the first came while the kernel before it ran.
    assert found["idle: queued"] == 70_000
    assert sum(causes(prof).values()) == 3 * 300_000
    table = prof.report("account")
    share = table.set_index("cause")["share"]
    assert share["useful"] == pytest.approx(100 * exact["useful"] / 300_000, abs=1e-3)
    lines = prof.report("account", by="place")
    mine = lines[(lines["cause"] == "precision") & (lines["operator"] == "mm")]
    assert int(mine["total_ns"].sum()) == pytest.approx(3 * (136_782.4 - 17_179.869), abs=6)


def test_a_rank_that_is_waited_for_is_told_from_the_transfer() -> None:
    """Four ranks and one slow one: the transfers take 100 us on each, the rest of the others' collectives waits."""
    (fault,) = [fault for fault in diagnosis.FAULTS if fault.what == "Python on one rank"]
    slow, _, _ = pair(fault, 3_000_000)
    table = slow.report("account").set_index(["worker", "cause"])["step_ns"]
    for rank in ("rank0", "rank1", "rank3"):
        assert table[rank, "exposed communication"] == pytest.approx(100_000, abs=1)
        assert 2e6 < table[rank, "waiting for a rank"] < 3e6
    assert ("rank2", "waiting for a rank") not in table.index
    assert table["rank2", "exposed communication"] == pytest.approx(100_000, abs=1)


def closes(prof: profiles.Profile) -> None:
    source = prof.source()
    for activity, every in activities(source):
        steps = used_steps(source, every)
        for by in ("cause", "line", "place"):
            table = prof.report("account", by=by)
            for device in activity.devices:
                rows = table[(table["worker"] == activity.name) & (table["device"] == device)]
                assert int(rows["total_ns"].sum()) == int(steps.length(activity).sum())
                assert (rows["total_ns"] > 0).all()
    assert causes(prof) == causes(prof, "line") == causes(prof, "place")


@seeds(6, 12, 30)
def test_the_causes_add_up_to_the_steps(seed: int) -> None:
    closes(random_profile(seed)[1])


@pytest.mark.parametrize("name", RECORDINGS)
def test_they_do_on_real_recordings(name: str, recorded: Callable[[str], profiles.Profile]) -> None:
    prof = recorded(name)
    assert len(used(prof.source()))
    closes(prof)


def test_without_a_gpu_it_is_the_main_thread(tmp_path: Path) -> None:
    """Steps of 100 us: a wait for the loader of 20 us, 5 us of it in an operator; an operator of 30 us; a function of
    25 us without one, in the middle of which 10 us of garbage collection; gloo for 8 us of the rest."""
    events = []
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    for step in range(3):
        at = 1_000_000 + 100_000 * step
        events += [
            kineto.annotation(f"ProfilerStep#{step}", at, at + 100_000),
            kineto.annotation(loader, at, at + 20_000),
            op("aten::stack", at + 5_000, at + 10_000, [2, 2]),
            op("aten::mm", at + 20_000, at + 50_000, [2, 2], [2, 2]),
            kineto.function("train.py(7): count", at + 50_000, at + 75_000),
            kineto.annotation("Python GC (train.py:8)", at + 60_000, at + 70_000),
            kineto.annotation("gloo:all_reduce", at + 80_000, at + 88_000, tid=99),
        ]  # fmt: skip
    prof = pyprof.load(kineto.write(tmp_path / "a.json", events))
    assert {cause: time / 3 for cause, time in causes(prof).items()} == {
        "data loader": 20_000, "forward": 30_000, "garbage collection": 10_000, "communication": 8_000,
        "outside of operators": 100_000 - 20_000 - 30_000 - 10_000 - 8_000,
    }  # fmt: skip
    table = prof.report("account", by="place")
    rows = {(row.cause, row.host if pd.isna(row.operator) else row.operator): row.step_ns for row in table.itertuples()}
    assert rows["data loader", f"{loader}/stack"] == 5_000
    assert rows["forward", "mm"] == 30_000
    assert rows["outside of operators", "train.py(7): count"] == 15_000
    assert rows["garbage collection", "Python GC (train.py:8)"] == 10_000
    assert int(table["total_ns"].sum()) == 300_000


def test_it_closes_on_ranks_without_a_gpu(root: Path) -> None:
    prof = pyprof.load(root / "examples" / "data" / "before")
    source = prof.source()
    table = prof.report("account", by="line").groupby("worker")["total_ns"].sum()
    assert len(table) > 1
    for activity, every in activities(source):
        assert table[activity.name] == used_steps(source, every).length(activity).sum()

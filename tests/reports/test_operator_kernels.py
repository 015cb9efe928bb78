# SPDX-License-Identifier: Apache-2.0
"""The kernels of an operator add up to its device times, whichever operator inside it launched them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.server import demo
from tests import kineto

RECORDINGS = ("kineto/resnet50_v100_6steps.pt.trace.json.gz", "kineto/mi300_vllm_prefilldecode_piecewise")


def compare(prof: profiles.Profile) -> None:
    table = prof.report("operator_kernels")
    sums = table.groupby("name")[["device_self_ns", "device_total_ns"]].sum().sort_index().astype("int64")
    operators = prof.report("operator").set_index("name")
    expected = operators.loc[operators["device_total_ns"] > 0, list(sums)].drop("unassociated", errors="ignore")
    assert len(expected) > 3
    assert sums.to_dict("index") == expected.astype("int64").to_dict("index")


def test_kernels_add_up_to_their_operators():
    compare(profiles.load(demo.RECORDING))


@pytest.mark.parametrize("file", RECORDINGS)
def test_kernels_of_recordings_add_up_to_their_operators(recorded, file: str):
    compare(recorded(file))


def test_kernels_by_hand(tmp_path: Path):
    """b in a launches one kernel, a itself another, and c outside of both a third."""
    events = [
        kineto.annotation("ProfilerStep#1", 0, 100_000),
        kineto.op("aten::a", 10_000, 40_000), kineto.op("aten::b", 12_000, 20_000),
        kineto.op("aten::c", 50_000, 60_000),
        *(kineto.launch(at, at + 1_000, number) for number, at in enumerate((13_000, 25_000, 51_000), 1)),
        kineto.kernel("one", 30_000, 35_000, 1), kineto.kernel("two", 40_000, 47_000, 2),
        kineto.kernel("one", 60_000, 62_000, 3),
    ]  # fmt: skip
    table = profiles.load(kineto.write(tmp_path / "trace.json", events)).report("operator_kernels")
    columns = ["name", "kernel", "calls", "device_self_ns", "device_total_ns"]
    assert table[columns].astype(object).values.tolist() == [
        ["aten::a", "two", 1, 7_000, 7_000],
        ["aten::a", "one", 1, 0, 5_000],
        ["aten::b", "one", 1, 5_000, 5_000],
        ["aten::c", "one", 1, 2_000, 2_000],
    ]

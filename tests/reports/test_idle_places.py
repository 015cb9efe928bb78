# SPDX-License-Identifier: Apache-2.0
"""Where the host was while a device had nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyprof
from tests import kineto

# Share of the idle time whose operator, and whose source line is known. DLRM's ranks and the A100 have no call stacks.
RECORDINGS = {
    "kineto/resnet50_v100_6steps.pt.trace.json.gz": (0.9, 0.9),
    "kineto/dlrm_v100_8ranks.tar.gz": (0.9, 0),
    "kineto/nccl_a100_rank0of2.json.gz": (0.9, 0),
    "kineto/mi300_resnet_act_checkpoint.json.gz": (0.9, 0.4),
}


@pytest.mark.parametrize("name", [
    name if number < 2 else pytest.param(name, marks=pytest.mark.long) for number, name in enumerate(RECORDINGS)
])  # fmt: skip
def test_nearly_all_idle_time_has_a_place(name: str, recorded):
    table = recorded(name).report("idle")
    table = table[table["cause"] != "not recorded"]  # nothing says what the host did then
    whole = table["total_ns"].sum()
    for key, least in zip(("operator", "line"), RECORDINGS[name]):
        assert table["total_ns"][table[key].notna()].sum() >= least * whole, key
    assert table["advice"].notna().all()


def test_every_grouping_adds_up(recorded):
    prof = recorded("kineto/resnet50_v100_6steps.pt.trace.json.gz")
    tables = [prof.report("idle", by=name) for name in ("place", "line", "cause")]
    sums = [table.groupby("cause")[["count", "total_ns"]].sum() for table in tables]
    longest = [table.groupby("cause")["longest_ns"].max() for table in tables]
    for other in (1, 2):
        assert sums[other].equals(sums[0])
        assert longest[other].equals(longest[0])
    assert len(tables[2]) == len(sums[2])


def product(start: int, correlation: int) -> list[kineto.Event]:
    return [
        kineto.op("aten::mm", start, start + 20_000),
        kineto.launch(start + 5_000, start + 10_000, correlation),
    ]


def test_python_functions_tell_the_line_of_a_wait(tmp_path: Path):
    """While the loop waits for data, what runs is no operator: the functions around it are known."""
    wait = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    us = 1000
    events = [
        kineto.function("train.py(7): main", 0, 2000 * us),
        *product(100 * us, 1),
        kineto.annotation(wait, 200 * us, 900 * us),
        kineto.function("data.py(30): __getitem__", 210 * us, 890 * us),
        kineto.function("data.py(44): resize", 300 * us, 880 * us),
        *product(1000 * us, 2),
        kineto.kernel("gemm", 115 * us, 150 * us, 1),
        kineto.kernel("gemm", 1020 * us, 1050 * us, 2),
    ]
    prof = pyprof.load(kineto.write(tmp_path / "trace.json", events))
    table = prof.report("idle")
    (one,) = table[table["cause"] == "data loader"].to_dict("records")
    assert (one["host"], one["where"], one["operator"]) == (wait, "before", "mm")
    assert (one["line"], one["stack"]) == ("data.py:44", "train.py:7\ndata.py:30\ndata.py:44")
    assert one["total_ns"] == (1020 - 150) * 1000
    assert "num_workers" in one["advice"]
    # The finding names it too: 20 us of the wait are in __next__, 100 in __getitem__, 580 in resize.
    findings = prof.report("expert_systems").set_index("rule")["problem"]
    assert findings["R09 workers_zero"].split(" (")[0].endswith(", above all in data.py:44.")


def test_a_marker_of_ours_is_told_by_its_call(tmp_path: Path):
    """The range around a call is a text with all its arguments: what a reader needs of it is the call."""
    us = 1000
    marker = "{'pyprof': 1, 'mod': 'torch.optim', 'op': 'AdamW.step', 'args': []}"
    events = [
        *product(100 * us, 1),
        kineto.annotation(marker, 180 * us, 1200 * us),
        *product(1000 * us, 2),
        kineto.kernel("gemm", 115 * us, 150 * us, 1),
        kineto.kernel("gemm", 1020 * us, 1050 * us, 2),
    ]
    table = pyprof.load(kineto.write(tmp_path / "trace.json", events)).report("idle")
    assert "torch.optim.AdamW.step" in set(table["host"])
    assert not table["host"].dropna().str.startswith("{").any()

# SPDX-License-Identifier: Apache-2.0
"""Kernels that the user's ranges are around, but no operator: libraries that launch without the dispatcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyprof
from tests import build, kineto

# Each line takes 100 ns on the CPU, each kernel 1,000 ns on the GPU.
TEXT = """
# ProfilerStep#1
    # 1F1B
        # combine(F)
            > deep_ep::combine
            > deep_ep::combine
        # attn(F)
            aten::mm
                > sgemm
            > rope
        > between
    > lonely
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kineto.write(tmp_path / "trace.json", kineto.Nested(TEXT).events)


def figures(path: Path, name: str, key: str, value: str) -> dict[str, Any]:
    frame = pyprof.load(str(path)).report(name)
    return dict(zip(frame[key], frame[value]))


def test_a_group_has_the_time_of_what_is_launched_in_its_range(path: Path) -> None:
    assert figures(path, "group_node", "name", "gpu") == {
        "/": 6000, "1F1B/": 5000, "1F1B/attn(F)/": 2000, "1F1B/combine(F)/": 2000, "unassociated/": 1000,
    }  # fmt: skip


def test_the_report_operator_has_a_row_for_each_innermost_range(path: Path) -> None:
    assert figures(path, "operator", "name", "device_self_ns") == {
        "1F1B": 1000, "aten::mm": 1000, "attn(F)": 1000, "combine(F)": 2000, "unassociated": 1000,
    }  # fmt: skip


def test_the_ledgers_tell_ranges_from_operators(path: Path, tmp_path: Path) -> None:
    profile = pyprof.load(str(path))
    profile.save(tmp_path / "profile.sqlite")
    for ledger in (profile.coverage, pyprof.load(tmp_path / "profile.sqlite").report("coverage")):
        counts = ledger[ledger["line"] == "operator"].set_index("part")["count"]
        assert counts.to_dict() == {"known": 1, "range only": 4, "unknown": 1}


def test_the_table_has_the_path_as_layer_and_kernels_the_range_as_operator(path: Path) -> None:
    profile = pyprof.load(str(path))
    table = profile.table[["layer", "op"]].astype(object)
    assert table.where(table.notna(), None).values.tolist() == [
        ["1F1B:combine(F)", None], ["1F1B:combine(F)", None], [None, "aten::mm"],
        ["1F1B:attn(F)", None], ["1F1B", None], [None, None],
    ]  # fmt: skip
    assert profile.kernels["op"].tolist() == [
        "combine(F)", "combine(F)", "mm", "attn(F)", "1F1B", "unassociated_cudaLaunchKernel",
    ]  # fmt: skip


COLLECTIVES = """
nccl:all_reduce
    > 90 ncclDevKernel_AllReduce_Sum_bf16_RING_LL
nccl:all_reduce
    > 80 ncclDevKernel_AllReduce_Sum_bf16_RING_LL
train
    ncclReduceScatter
        > 50 ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL
    aten::mm, seq = 3
        > 30 sgemm
        nccl:broadcast
            > 7 ncclDevKernel_Broadcast
"""


def test_a_range_that_announces_a_collective_is_its_operator(tmp_path: Path) -> None:
    """Outside of operators; inside one the kernel is that operator's."""
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(COLLECTIVES))
    kernels = pyprof.load(path).kernels
    assert kernels["op"].tolist() == ["nccl:all_reduce"] * 2 + ["ncclreducescatter", "mm", "mm"]
    assert kernels["op_name"].tolist()[2:] == ["train/ncclreducescatter", "train/mm", "train/mm"]
    assert figures(path, "operator", "name", "device_self_ns") == {
        "nccl:all_reduce": 170, "ncclreducescatter": 50, "aten::mm": 37,
    }  # fmt: skip
    assert figures(path, "communication", "name", "latency_ns") == {
        "all_reduce": 170, "reduce_scatter": 50, "broadcast": 7,
    }  # fmt: skip
    coverage = pyprof.load(path).coverage
    assert coverage[coverage["line"] == "operator"]["part"].tolist() == ["known"]


def test_a_collective_in_an_operator_of_a_trace_keeps_the_operator(tmp_path: Path) -> None:
    text = """
    c10d::allreduce_
        # nccl:all_reduce
            > ncclDevKernel_AllReduce_Sum_bf16_RING_LL
    """
    path = kineto.write(tmp_path / "trace.json", kineto.Nested(text).events)
    assert pyprof.load(path).kernels["op"].tolist() == ["allreduce"]

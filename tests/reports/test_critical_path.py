# SPDX-License-Identifier: Apache-2.0
"""Communication of any library: hidden, exposed, and what the step waited for; a critical path by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.facts.device.communication import library
from pyprof.server import demo
from tests import kineto

DEEP_EP = "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)"
NVSHMEM = "nvshmemi_barrier_all_kernel"
CUSTOM = "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(P)"
GEMM = "ampere_sgemm_128x64_nn"


@pytest.fixture
def prof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> profiles.Profile:
    """Two products with a dispatch of DeepEP between them on their stream, and an all-reduce after them. Meanwhile a
    barrier of NVSHMEM runs beside the dispatch, on another stream, and a copy to another GPU beside the second product.
    All is launched in the first 98 us of the step."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)
    work = [
        (GEMM, 100_000, 300_000, 7), (DEEP_EP, 301_000, 500_000, 7), (NVSHMEM, 310_000, 400_000, 9),
        (GEMM, 501_000, 700_000, 7), ("Memcpy PtoP (Device -> Device)", 550_000, 600_000, 10),
        (CUSTOM, 701_000, 800_000, 7),
    ]  # fmt: skip
    events: list[dict[str, Any]] = [kineto.annotation("ProfilerStep#3", 50_000, 750_000)]
    for number, (name, start, end, stream) in enumerate(work, start=1):
        begin = 80_000 + 3_000 * number
        events.append(kineto.op("aten::mm", begin - 1_000, begin + 2_000))
        if "Memcpy" in name:
            events.append(kineto.launch(begin, begin + 1_000, number, name="cudaMemcpyPeerAsync"))
            events.append(kineto.event(
                "gpu_memcpy", name, start, end, 0, stream, correlation=number, stream=stream, device=0, bytes=4096
            ))  # fmt: skip
        else:
            events.append(kineto.launch(begin, begin + 1_000, number))
            events.append(kineto.kernel(name, start, end, number, stream))
    return profiles.load(kineto.write(tmp_path / "trace.json", events))


def test_what_blocks_is_told_from_what_is_only_exposed(prof):
    table = prof.report("exposed").set_index("library")
    columns = ["calls", "communication_ns", "hidden_ns", "exposed_ns", "blocking_ns", "waiting_ns"]
    assert {name: tuple(row) for name, row in table[columns].iterrows()} == {
        "DeepEP": (1, 199_000, 0, 199_000, 199_000, 0),
        "custom all-reduce": (1, 99_000, 0, 99_000, 99_000, 0),
        "NVSHMEM": (1, 90_000, 0, 90_000, 0, 0),
        "copies between devices": (1, 50_000, 50_000, 0, 0, 0),
    }
    assert table["blocking_share"]["DeepEP"] == pytest.approx(100 * 199 / 750)


def test_the_path_by_hand(prof):
    """The step lasts from 50 us to the end of the all-reduce at 800 us. Until the call at 83 us that launches the first
    product the path is on the host."""
    parts = prof.report("critical_path", by="part").set_index("part")["total_ns"].to_dict()
    assert parts == {
        "kernel": 200_000 + 199_000, "communication": 199_000 + 99_000, "queued": 3 * 1_000 + 100_000 - 84_000,
        "launch": 1_000, "host": 83_000 - 50_000,
    }  # fmt: skip
    assert sum(parts.values()) == 750_000


def test_a_share_in_the_row_of_a_step_is_of_that_step():
    prof = profiles.load(demo.RECORDING)
    lengths = prof.report("step_time").set_index("step")["total_ns"].to_dict()
    table = prof.report("critical_path", by="step")
    assert len(lengths) > 1
    assert table["step_ns"].tolist() == [lengths[step] for step in table["step"]]
    assert table["share"].tolist() == pytest.approx((100 * table["total_ns"] / table["step_ns"]).tolist())
    assert table.groupby("step")["share"].sum().tolist() == pytest.approx([100] * len(lengths))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (DEEP_EP, "DeepEP"), (NVSHMEM, "NVSHMEM"), (CUSTOM, "custom all-reduce"),
        ("void dpsk::ep::internode::combine<bf16,8>(int)", "DeepEP"),
        ("void alltoall_on_stream_kernel<__nv_bfloat16>(P)", "NVSHMEM"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "NCCL"),
        ("void nccl_ep::ht::pack_topk_idx_kernel<long>(P)", "NCCL EP"),
        ("void mscclpp::allreduce7<float>(float*)", "MSCCL"), ("kuserbuffers_pushrecv(int, int)", "user buffers"),
        ("mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(P)", "expert parallelism"),
        ("multimem_all_reduce_kernel<c10::BFloat16, 16>", "symmetric memory"),
        ("memcpy PtoP", "copies between devices"), ("CopyPeerToPeer", "copies between devices"),
        ("[CUDA memcpy Peer-to-Peer]", "copies between devices"), ("hipMemcpyPeerAsync", "copies between devices"),
        ("all-reduce-start.2", "other"),
    ],
)  # fmt: skip
def test_libraries_by_name(name, expected):
    assert library(name) == expected


def test_a_copy_that_the_host_waits_for_is_released_by_the_kernel_before(tmp_path, monkeypatch):
    """The call of the copy lasts from 20 us to its end; the copy begins when the kernel before it has ended."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)
    events = [
        kineto.annotation("ProfilerStep#3", 0, 110_000),
        kineto.launch(5_000, 6_000, 1),
        kineto.kernel(GEMM, 10_000, 100_000, 1),
        kineto.op("aten::item", 18_000, 105_000),
        kineto.launch(20_000, 104_000, 2, name="cudaMemcpyAsync"),
        kineto.event(
            "gpu_memcpy",
            "Memcpy DtoH (Device -> Pageable)",
            101_000,
            103_000,
            0,
            7,
            correlation=2,
            stream=7,
            device=0,
        ),
    ]
    prof = profiles.load(kineto.write(tmp_path / "trace.json", events))
    parts = prof.report("critical_path", by="part").set_index("part")["total_ns"].to_dict()
    assert parts == {
        "host": 5_000 + 6_000, "launch": 1_000, "queued": 4_000 + 1_000, "kernel": 90_000, "copy or set": 2_000,
        "synchronization": 1_000,
    }  # fmt: skip


def test_the_path_is_on_the_thread_that_works(tmp_path, monkeypatch):
    """Without a GPU: the main thread has nothing to do while autograd's runs; what is between the operators belongs to
    the thread that is in one next."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)
    events = [
        kineto.annotation("ProfilerStep#3", 0, 80_000),
        kineto.op("aten::add", 0, 20_000),
        kineto.op("aten::mul", 25_000, 60_000, tid=kineto.TID + 1),
        kineto.op("aten::div", 65_000, 80_000),
    ]
    table = profiles.load(kineto.write(tmp_path / "trace.json", events)).report("critical_path")
    rows = {(row.operator, row.where): row.total_ns for row in table.itertuples()}
    assert rows == {
        ("add", "in"): 20_000, ("mul", "before"): 5_000, ("mul", "in"): 35_000, ("div", "before"): 5_000,
        ("div", "in"): 15_000,
    }  # fmt: skip

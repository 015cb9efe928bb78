# SPDX-License-Identifier: Apache-2.0
"""An all-reduce that is fused with a norm: communication by time, a norm by FLOPs and bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyprof import profiles
from tests.reports.test_oracle import rows

KERNEL = (
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport"
    "<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<__nv_bfloat16>)"
)
TOKENS, HIDDEN, DUR = 38, 6144, 100_000
ELEMENTS = TOKENS * HIDDEN
BYTES = 2 * (4 * ELEMENTS + HIDDEN)  # bfloat16: input, residual, sum and norm; the weight


def recording(folder: Path, name: str, dims: list[list[int]], concrete: list[str]) -> profiles.Profile:
    """The operator with its kernel of 100 us, and a product of 50 us."""
    types = ["c10::BFloat16" if one else "Scalar" for one in dims]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10, "dur": 20,
         "args": {"External id": 1, "Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 1, "tid": 1, "ts": 15, "dur": 5,
         "args": {"correlation": 7, "External id": 1}},
        {"ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 7, "ts": 40, "dur": DUR // 1000,
         "args": {"correlation": 7, "device": 0, "stream": 7}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 31, "dur": 10,
         "args": {"External id": 2, "Input Dims": [[38, 64], [64, 8]], "Input type": ["c10::BFloat16"] * 2}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 35, "dur": 5,
         "args": {"correlation": 8, "External id": 2}},
        {"ph": "X", "cat": "kernel", "name": "nvjet_tst_64x8_64x16", "pid": 0, "tid": 7, "ts": 140, "dur": 50,
         "args": {"correlation": 8, "External id": 2, "device": 0, "stream": 7}},
    ]  # fmt: skip
    path = folder / "rank0.1.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return profiles.load(path)


CALLS = {
    "sglang::flashinfer_allreduce_residual_rmsnorm": (
        [[TOKENS, HIDDEN], [TOKENS, HIDDEN], [HIDDEN], [], [], [], [], [], []],
        ["", "", "", "1e-05", "2048", "", "False", "False", "True"],
        # 4 an element of the norm, 1 of the residual, 1 of the ranks, as an upper bound
        6 * ELEMENTS,
    ),
    "vllm::flashinfer_trtllm_fused_allreduce_norm": (
        [[TOKENS, HIDDEN], [TOKENS, HIDDEN], [HIDDEN], [], [], [], [], [], [], []],
        ["", "", "", "1e-05", "0", "8", "True", "True", "True", "2048"],
        5 * ELEMENTS + ELEMENTS * 7 // 8,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_has_both_figures(name, tmp_path):
    dims, concrete, flops = CALLS[name]
    prof = recording(tmp_path, name, dims, concrete)
    fused = prof.kernels[prof.kernels["name"].str.contains("allreduce_fusion")].iloc[0]
    assert (fused["flops"], fused["bytes"]) == (flops, BYTES)
    step = rows(prof.report("overlap"))[0]
    assert (step["communication_ns"], step["computation_ns"]) == (DUR, 50_000)
    assert {row["category"]: row["time_ns"] for row in rows(prof.report("categories"))} == {
        "communication": DUR, "gemm": 50_000
    }  # fmt: skip
    call = rows(prof.report("communication"))[0]
    assert call["name"] == "all_reduce"

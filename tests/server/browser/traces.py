# SPDX-License-Identifier: Apache-2.0
"""A folder of two runs, as torch.profiler writes them with every option: steps, a data loader, modules, call stacks,
shapes, memory, and a GPU of which the recording says all. Times in us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GIB = 1 << 30
DEVICE = {
    "id": 0, "name": "Tesla V100", "totalGlobalMem": 16 * GIB, "computeMajor": 7, "computeMinor": 0, "numSms": 80,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304,
}  # fmt: skip
STEPS = ((0, 1000), (1000, 2200))
TC_KERNEL, GEMM, RELU = (
    "volta_h884gemm_64x64_ldg8_nn",
    "volta_sgemm_128x64_nn",
    "void relu_kernel<float>(float*)",
)
BIG, SMALL = [[64, 32], [32, 16]], [[8, 32], [32, 16]]


def _event(cat: str, name: str, start: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 1, "ts": start, "dur": dur, "args": args}


def _launched(number: int, api: str, start: int, gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """An API call of 10 us and what it put on the GPU."""
    on_gpu = {"pid": 0, "tid": 7, "args": gpu["args"] | {"correlation": number, "device": 0, "stream": 7}}
    return [_event("cuda_runtime", api, start, 10, correlation=number), gpu | on_gpu]


def _kernel(name: str, start: int, dur: int, grid: int) -> dict[str, Any]:
    more = {"registers per thread": 32, "shared memory": 1024, "blocks per SM": grid / 80, "warps per SM": grid / 20,
            "est. achieved occupancy %": 50}  # fmt: skip
    return _event("kernel", name, start, dur, grid=[grid, 1, 1], block=[128, 1, 1], **more)


def _memory(time: int, size: int, address: int, total: int, device: int = 0) -> dict[str, Any]:
    told = {"Addr": address, "Bytes": size, "Device Type": 1 if device >= 0 else 0, "Device Id": device,
            "Total Allocated": total, "Total Reserved": 8 * 1024}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 1, "ts": time, "s": "t",
            "args": told}  # fmt: skip


def _function(name: str, start: int, dur: int) -> dict[str, Any]:
    return _event("python_function", name, start, dur, **{"Python id": start})


def _op(name: str, start: int, dur: int, *shapes: list[int]) -> dict[str, Any]:
    return _event("cpu_op", name, start, dur, **{"Input Dims": list(shapes), "Input type": ["float"] * len(shapes)})


def _step(number: int, at: int, end: int, relu: int) -> list[dict[str, Any]]:
    first = 10 * number
    copy = _event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 540, 20, bytes=4096)
    return [
        _event("user_annotation", f"ProfilerStep#{number}", at, end - at),
        _event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 100),
        _function("train.py(3): main", at + 101, 450),
        _function("nn.Module: Net_0", at + 102, 310), _function("net.py(2): forward", at + 110, 195),
        _function("nn.Module: Linear_0", at + 120, 180),
        _op("aten::linear", at + 130, 160, *BIG), _op("aten::addmm", at + 140, 140, *BIG),
        *_launched(first + 1, "cudaLaunchKernel", at + 150, _kernel(TC_KERNEL, at + 200, 100, 40)),
        _op("aten::relu", at + 310, 90, [64, 16]),
        *_launched(first + 2, "cudaLaunchKernel", at + 320, _kernel(RELU, at + 330, relu, 160)),
        _op("aten::addmm", at + 420, 100, *SMALL),
        *_launched(first + 3, "cudaLaunchKernel", at + 430, _kernel(GEMM, at + 440, 60, 80)),
        *_launched(first + 4, "cudaMemcpyAsync", at + 530, copy),
        _memory(at + 145, 2048, 64, 3072), _memory(at + 315, 1024, 96, 4096), _memory(at + 410, -1024, 96, 3072),
        _memory(at + 450, -2048, 64, 1024), _memory(at + 425, 512, 7, 512, -1), _memory(at + 470, -512, 7, 0, -1),
    ]  # fmt: skip


def trace(relu: int, longer: int) -> str:
    """A recording of two steps, the last one longer than in STEPS; the kernel of relu takes so long."""
    steps = (STEPS[0], (STEPS[1][0], STEPS[1][1] + longer))
    events = [event for number, (start, end) in enumerate(steps, 1) for event in _step(number, start, end, relu)]
    return json.dumps({
        "schemaVersion": 1, "deviceProperties": [DEVICE], "record_shapes": 1, "with_stack": 1, "profile_memory": 1,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events,
    })  # fmt: skip


def write(folder: Path) -> Path:
    """The runs alpha, of one span, and beta, of two, in which relu takes twice as long; the second ends later."""
    for run, stamps, relu in (("alpha", (1,), 20), ("beta", (1, 2), 40)):
        (folder / run).mkdir(parents=True)
        for stamp in stamps:
            name = f"host_100.170000000000{stamp}.pt.trace.json"
            (folder / run / name).write_text(trace(relu, 1000 * (stamp - 1)), encoding="utf-8")
    return folder

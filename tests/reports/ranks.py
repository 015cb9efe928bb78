# SPDX-License-Identifier: Apache-2.0
"""Runs of several ranks, as traces of torch.profiler: kernels with their times, each launched long before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from pyprof import profiles

NCCL = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
_SPELLED = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
            "all_to_all": "all_to_allv"}  # fmt: skip


class K(NamedTuple):
    """A kernel: a collective by its name, or another; times in us. elements: (in, out) of float32; device: the
    rank's."""

    name: str
    start: int
    dur: int
    group: str | None = None
    seq: int | None = None
    elements: tuple[int, int] | None = None
    size: int | None = None
    device: int | None = None

    @property
    def args(self) -> dict[str, Any]:
        if self.name not in NCCL or (self.group is None and self.elements is None):
            return {}
        sent, received = self.elements or (None, None)
        told = {
            "Collective name": _SPELLED.get(self.name, self.name), "In msg nelems": sent, "Out msg nelems": received,
            "dtype": "Float" if self.elements else None, "Group size": self.size, "Process Group Name": self.group,
            "Seq": self.seq,
        }  # fmt: skip
        return {key: value for key, value in told.items() if value is not None}


def trace(
    rank: int, kernels: list[K], steps: list[tuple[int, int]], host: str = "", world: int = 0, first: int = 5
) -> str:
    """A trace; steps are [start, end) in us, numbered from `first`."""
    pid = 1000 + rank
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first + i}", "pid": pid, "tid": pid, "ts": a,
            "dur": b - a}
        for i, (a, b) in enumerate(steps)
    ]  # fmt: skip
    events.append(
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": pid,
            "tid": pid,
            "ts": 0,
            "dur": 5,
            "args": {},
        }
    )
    for i, one in enumerate(kernels, start=1):
        launch = max(one.start - 5, 0)
        events.append({
            "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": launch,
            "dur": 1,
            "args": {"correlation": i},
        })  # fmt: skip
        device = rank if one.device is None else one.device
        events.append({
            "ph": "X", "cat": "kernel", "name": NCCL.get(one.name, one.name), "pid": device, "tid": 7, "ts": one.start,
            "dur": one.dur,
            "args": {"correlation": i, "device": device, "stream": 7, "grid": [1, 1, 1], "block": [32, 1, 1],
            **one.args},
        })  # fmt: skip
    facts: dict[str, Any] = {
        "schemaVersion": 1, "traceEvents": events, "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
    }  # fmt: skip
    if host:
        facts["host_name"] = host
    return json.dumps(facts)


def run(
    folder: Path, ranks: list[list[K]], steps: list[tuple[int, int]] | None = None, hosts: tuple[str, ...] = (),
    world: int | None = None, first: tuple[int, ...] = (),
) -> profiles.Profile:  # fmt: skip
    """The run of these ranks, loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, kernels in enumerate(ranks):
        text = trace(
            rank,
            kernels,
            steps or [],
            hosts[rank] if hosts else "",
            world or len(ranks),
            first[rank] if first else 5,
        )
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_text(text)
    return profiles.load(folder if len(ranks) > 1 else folder / "rank0.1700000000000.pt.trace.json")

# SPDX-License-Identifier: Apache-2.0
"""Simulated training on several ranks, with planted faults, as traces of torch.profiler.

Every rank loads a batch, copies it, runs forward, backward with two all-reduces on a stream of their own, and the
optimizer, then waits for the device. Hosts and devices follow the rules of CUDA: an event begins when it was launched,
the one before it on its stream has ended, and what its stream waits for. An all-reduce ends on all ranks when the last
one has arrived and the data has been sent. Each rank writes down its own clock. Times are ns.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from tests.reports.ranks import NCCL

MS, US = 1_000_000, 1_000
GEMM, COPY, ADAM = "ampere_sgemm_128x64_nn", "Memcpy HtoD (Pinned -> Device)", "multi_tensor_apply_kernel"
# What a fault makes longer: part of the report root_cause, and line.
FAULTS = {
    "loader": ("data loader", "train.py:10"), "operator": ("host operators", "train.py:20"),
    "kernel": ("kernels", "train.py:21"), "call": ("api calls", "train.py:22"),
    "python": ("outside operators", "train.py:25"), "link": None, "none": None,
}  # fmt: skip
COMPUTE, NETWORK = 7, 20
LATENCY = 3 * US  # of a launch
TRANSFER = 400 * US
SLOW_LINK = 2 * MS  # longer


class Plan(NamedTuple):
    """What is planted: offsets and drifts of the clocks by rank, the fault, the guilty rank, and how much longer."""

    ranks: int
    offset: list[int]
    drift: list[float]
    fault: str
    guilty: int
    extra: int
    late_start: list[int]

    def own(self, rank: int, time: float) -> float:
        """What the rank's clock shows."""
        return time + self.offset[rank] + self.drift[rank] * time


def plan(seed: int, fault: str | None = None) -> Plan:
    rng = random.Random(seed)
    ranks = rng.randint(3, 6)
    return Plan(
        ranks,
        [rng.randint(-50 * MS, 50 * MS) for _ in range(ranks)],
        [rng.uniform(-20e-6, 20e-6) for _ in range(ranks)],
        fault or rng.choice([*FAULTS]),
        rng.randrange(ranks),
        rng.randint(1500 * US, 5 * MS),
        [0] * ranks,
    )


class _Rank:
    """The host and the device of a rank, by the true clock."""

    def __init__(self, number: int, what: Plan, rng: random.Random):
        self.number, self.plan, self.rng = number, what, rng
        self.now = float(10 * MS + what.late_start[number])
        self.free = dict.fromkeys((COMPUTE, NETWORK), 0.0)
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def add(self, cat: str, name: str, start: float, end: float, pid: int, tid: int, **args: Any) -> None:
        begin, stop = (round(self.plan.own(self.number, time)) for time in (start, end))
        self.events.append({
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin / 1000,
            "dur": (stop - begin) / 1000, "args": args,
        })  # fmt: skip

    def spend(self, usual: float) -> None:
        self.now += usual * self.rng.uniform(0.95, 1.05)

    def host(self, cat: str, name: str, start: float, **args: Any) -> None:
        self.add(cat, name, start, self.now, 1000, 1000, **args)

    def call(self, name: str, length: float) -> None:
        start = self.now
        self.spend(length)
        self.host("cuda_runtime", name, start)

    def wait(self, fault: str) -> None:
        """The longer time of a planted fault."""
        if self.plan.fault == fault and self.plan.guilty == self.number:
            self.now += self.plan.extra

    def launch(self, name: str, length: float, stream: int = COMPUTE, after: float = 0.0) -> tuple[float, int]:
        """Launch an event; return its start, if it needs nobody else, and its correlation."""
        begun = self.now
        self.spend(8 * US)
        self.correlation += 1
        copy = name == COPY
        self.host(
            "cuda_runtime",
            "cudaMemcpyAsync" if copy else "cudaLaunchKernel",
            begun,
            correlation=self.correlation,
        )
        start = max(self.now + LATENCY, self.free[stream] + US, after and after + US)
        if stream == COMPUTE:
            self.free[stream] = start + length * self.rng.uniform(0.98, 1.02)
            self.device("gpu_memcpy" if copy else "kernel", name, start, self.free[stream], stream)
        return start, self.correlation

    def device(self, cat: str, name: str, start: float, end: float, stream: int, number: int = 0, **args: Any) -> None:
        self.add(
            cat, name, start, end, 0, stream, correlation=number or self.correlation, device=0, stream=stream,
            grid=[1, 1, 1], block=[32, 1, 1], **args,
        )  # fmt: skip

    def function(self, line: int, name: str, start: float) -> None:
        self.host("python_function", f"train.py({line}): {name}", start)

    def operator(self, name: str, line: int, fault: str = "", length: float = 100 * US) -> None:
        """An operator that launches a product, in a function of its own."""
        begun = self.now
        self.spend(length)
        if fault == "operator":
            self.wait(fault)
        slow = self.plan.extra if (line, self.plan.fault, self.plan.guilty) == (21, "kernel", self.number) else 0
        if fault == "call":
            before = self.now
            self.spend(50 * US)
            self.wait(fault)
            self.host("cuda_runtime", "cudaMalloc", before)
        self.launch(GEMM, 300 * US + slow)
        self.spend(5 * US)
        self.host("cpu_op", name, begun)
        self.function(line, "part", begun)


def files(what: Plan, steps: int = 10, seed: int = 0) -> list[dict[str, Any]]:
    """The traces of the ranks."""
    rng = random.Random(seed)
    ranks = [_Rank(number, what, random.Random(rng.random())) for number in range(what.ranks)]
    number = 0
    for step in range(steps):
        begun = [rank.now for rank in ranks]
        for rank in ranks:
            _forward(rank)
        for _ in range(2):
            number += 1
            _backward(ranks, number, rng)
        for rank, start in zip(ranks, begun):
            _end(rank, start, step)
    return [
        {
            "schemaVersion": 1, "traceEvents": rank.events, "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "distributedInfo": {"backend": "nccl", "rank": rank.number, "world_size": what.ranks},
            "host_name": f"node{rank.number}",
        }
        for rank in ranks
    ]  # fmt: skip


def _forward(rank: _Rank) -> None:
    begun = rank.now
    rank.spend(300 * US)
    rank.wait("loader")
    rank.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begun)
    rank.launch(COPY, 50 * US)
    rank.function(10, "load", begun)
    rank.operator("aten::nonzero", 20, "operator")
    rank.operator("aten::linear", 21)
    rank.operator("aten::conv2d", 22, "call")
    begun = rank.now
    rank.spend(60 * US)
    rank.wait("python")
    rank.function(25, "log", begun)


def _backward(ranks: list[_Rank], number: int, rng: random.Random) -> None:
    """A product and an all-reduce of its result."""
    arrived = []
    for rank in ranks:
        rank.operator("aten::mm", 30)
        begun = rank.now
        rank.call("cudaStreamWaitEvent", 2 * US)
        arrived.append(rank.launch(NCCL["all_reduce"], 0, NETWORK, rank.free[COMPUTE]))
        rank.host("cpu_op", "c10d::allreduce_", begun)
        rank.function(31, "reduce", begun)
    what = ranks[0].plan
    done = max(start for start, _ in arrived) + TRANSFER + (SLOW_LINK if what.fault == "link" else 0)
    for rank, (start, correlation) in zip(ranks, arrived):
        end = done + rng.gauss(0, 1.5 * US)
        rank.free[NETWORK] = end
        rank.device("kernel", NCCL["all_reduce"], start, end, NETWORK, correlation, **{
            "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
            "Group size": len(ranks), "Process Group Name": "0", "Seq": number,
        })  # fmt: skip


def _end(rank: _Rank, begun: float, step: int) -> None:
    """The optimizer, and the wait for the loss."""
    start = rank.now
    rank.call("cudaStreamWaitEvent", 2 * US)
    rank.launch(ADAM, 200 * US, COMPUTE, rank.free[NETWORK])
    rank.host("cpu_op", "aten::_fused_adamw_", start)
    rank.function(40, "update", start)
    start = rank.now
    rank.now = max(rank.now, max(rank.free.values())) + 5 * US
    rank.host("cuda_runtime", "cudaStreamSynchronize", start)
    rank.function(50, "loss", start)
    rank.host("user_annotation", f"ProfilerStep#{step}", begun)


def write(folder: Path, traces: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, trace in enumerate(traces):
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_text(json.dumps(trace))
    return folder

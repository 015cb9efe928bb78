#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults of known cost in simulated programs, and what is said of them: docs/accuracy.md.

    python benchmarks/diagnosis.py > docs/accuracy.md

A program is a list of things that the host does in a step. The device takes them by the rules of CUDA: a kernel begins
when its launch has returned and the one before it on the stream has ended; a call that waits returns when the device
is done; a collective ends on all ranks together. What a fault costs is the difference between the mean step with it and
without it, both simulated.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyprof  # noqa: E402
from pyprof.rules.context import Run  # noqa: E402
from tests import kineto  # noqa: E402

US, STEPS, GAP = 1_000, 10, 300  # ns between kernels of a stream, at least
GEMM, ADD = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "vectorized_elementwise_kernel<4, at::add>",
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
Action = Callable[["Rank"], None]


class Rank:
    """A process with a GPU while it is simulated: `now` of its host, `free`: when its stream is done; ns."""

    def __init__(self, number: int, world: int, slow: float):
        self.number, self.world, self.slow = number, world, slow
        self.now = self.free = self.calls = self.collectives = 0
        self.events: list[dict[str, Any]] = []
        self.arrived: tuple[int, int] | None = None  # start and transfer of a collective that waits for the others

    def spend(self, ns: int) -> None:
        self.now += round(ns * self.slow)

    def op(self, name: str, body: Callable[[], None], host: int = 4 * US) -> None:
        """An operator, which does something after half of its own time."""
        start = self.now
        self.spend(host // 2)
        body()
        self.spend(host - host // 2)
        self.events.append(kineto.op(name, start, self.now))

    def frame(self, text: str, body: Callable[[], None]) -> None:
        """A Python function."""
        start = self.now
        self.spend(US)
        body()
        self.spend(US)
        self.events.append(kineto.function(text, start, self.now))

    def launch(self, name: str, length: int, wait: bool = False, copy: bool = False) -> None:
        """A kernel or copy; `wait`: its call returns when it has ended."""
        self.calls += 1
        start = self.now
        self.spend(2 * US)
        begin = max(self.now, self.free + GAP)
        self.free = begin + length
        if wait:
            self.now = max(self.now, self.free)
        call = "cudaMemcpyAsync" if copy else "cudaLaunchKernel"
        self.events.append(kineto.launch(start, self.now, self.calls, name=call))
        event = kineto.kernel(name, begin, self.free, self.calls, device=self.number)
        event["args"] |= {"grid": [512, 1, 1], "block": [256, 1, 1]}
        if copy:
            event |= {"cat": "gpu_memcpy"}
            event["args"] = {k: v for k, v in event["args"].items() if k not in ("grid", "block")} | {"bytes": 4096}
        self.events.append(event)

    def sync(self, call: str = "cudaStreamSynchronize") -> None:
        self.calls += 1
        start = self.now
        self.now = max(self.now + US, self.free + US)
        self.events.append(kineto.launch(start, self.now, self.calls, name=call))


def kernel(name: str, length: int, host: int) -> Action:
    return lambda rank: rank.op(name, lambda: rank.launch(GEMM if name == "aten::mm" else ADD, length), host)


def all_reduce(transfer: int) -> Action:
    """A collective on the stream of the kernels."""

    def act(rank: Rank) -> None:
        start = rank.now
        rank.calls += 1
        rank.spend(5 * US)
        rank.events.append(kineto.op("c10d::allreduce_", start, rank.now))
        rank.events.append(kineto.launch(start + US, rank.now - US, rank.calls))
        rank.arrived = max(rank.now, rank.free + GAP), transfer

    return act


def meet(ranks: list[Rank]) -> None:
    """End a collective on all ranks."""
    end = max(rank.arrived[0] + rank.arrived[1] for rank in ranks if rank.arrived)
    for rank in ranks:
        assert rank.arrived
        event = kineto.kernel(NCCL, rank.arrived[0], end, rank.calls, device=rank.number)
        event["args"] |= {
            "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "BFloat16",
            "Group size": rank.world, "Process Group Name": "0", "Seq": rank.collectives,
            "Process Group Ranks": json.dumps(list(range(rank.world))),
        }  # fmt: skip
        rank.events.append(event)
        rank.free, rank.arrived = end, None
        rank.collectives += 1


def python(text: str, length: int) -> Action:
    return lambda rank: rank.frame("train.py(20): train", lambda: rank.frame(text, lambda: rank.spend(length)))


def items(count: int) -> Action:
    def act(rank: Rank) -> None:
        for _ in range(count):
            item(rank)

    return act


def item(rank: Rank) -> None:
    def body() -> None:
        rank.launch("Memcpy DtoH (Device -> Pageable)", 1500, copy=True)
        rank.sync()

    rank.frame("train.py(31): log", lambda: rank.op("aten::item", body))


def loader(kind: str, length: int) -> Action:
    def act(rank: Rank) -> None:
        start = rank.now
        rank.frame("data.py(12): __getitem__", lambda: rank.spend(length))
        name = f"enumerate(DataLoader)#_{kind}ProcessDataLoaderIter.__next__"
        rank.events.append(kineto.annotation(name, start, rank.now))

    return act


def save(length: int) -> Action:
    def body(rank: Rank) -> None:
        for _ in range(4):
            rank.op("aten::copy_", lambda: rank.launch("Memcpy DtoH (Device -> Pageable)", 50 * US, True, True))
        rank.spend(length)

    def act(rank: Rank) -> None:
        saving = "torch/serialization.py(940): save"
        rank.frame("train.py(60): checkpoint", lambda: rank.frame(saving, lambda: body(rank)))

    return act


def optimizer(tensors: int) -> Action:
    """Four kernels for each tensor."""

    def act(rank: Rank) -> None:
        start = rank.now
        for _ in range(tensors):
            for name in ("mul_", "addcmul_", "sqrt", "addcdiv_"):
                rank.op(f"aten::{name}", lambda: rank.launch(ADD, 2 * US), 5 * US)
        rank.events.append(kineto.annotation("Optimizer.step#Adam.step", start, rank.now))

    return act


def mallocs(rank: Rank) -> None:
    def body() -> None:
        for call in ("cudaMalloc", "cudaFree"):
            rank.calls += 1
            start = rank.now
            rank.spend(150 * US)
            rank.events.append(kineto.launch(start, rank.now, rank.calls, name=call))

    for _ in range(4):
        rank.op("aten::empty", body)


def hook(length: int) -> Action:
    return lambda rank: rank.op(
        "autograd::engine::evaluate_function: AddBackward0",
        lambda: (rank.frame("hooks.py(9): hook", lambda: rank.spend(length)), rank.launch(ADD, 2 * US)),
    )


class Base(NamedTuple):
    """A program without a fault: kernels of a step, their length, and the host's time for each."""

    name: str
    kernels: int
    length: int
    host: int


BASES = (Base("GPU-bound", 60, 40 * US, 8 * US), Base("balanced", 80, 14 * US, 12 * US))


class Fault(NamedTuple):
    """A fault: what it is, what is added to a step (`at`: after which part of it) for a length in ns, and what a
    program without it has `instead`; the rule that is about it, and a word that its finding must have. `rank`: the one
    of four that has it; `slow`: by what factor its host is slower."""

    what: str
    add: Callable[[int], Action] | None
    rule: str
    word: str
    at: float = 0.0
    rank: int | None = None
    slow: float = 1.0
    instead: Callable[[int], Action] | None = None


FAULTS = (
    Fault("Python in the loop", lambda n: python("text.py(33): encode", n), "R49", "text.py:33"),
    Fault("Python between layers", lambda n: python("text.py(33): encode", n), "R49", "text.py:33", 0.4),
    Fault("a hook in the backward pass", hook, "R49", "hooks.py:9", 0.7),
    Fault("gc.collect()", lambda n: python("<built-in function collect>", n), "R33", "train.py:20"),
    Fault("a loader without workers", lambda n: loader("Single", n), "R09", "data.py:12"),
    Fault("a loader with slow workers", lambda n: loader("Multi", n), "R08", "DataLoader"),
    Fault("torch.save", save, "R49", "serialization.py", 1.0),
    Fault("loss.item()", lambda n: item, "R07", "train.py:31", 0.5),
    Fault("an optimizer's loop", lambda n: optimizer(n // (60 * US)), "R21", "Optimizer", 1.0,
          instead=lambda n: kernel("aten::_fused_adam_", n // (60 * US) * 2 * US, 8 * US)),
    Fault("cudaMalloc in each step", lambda n: mallocs, "R32", "allocated", 0.3),
    Fault("Python on one rank", lambda n: python("text.py(33): encode", n), "R49", "rank2", 0.0, 2),
    Fault("gc.collect() on one rank", lambda n: python("<built-in function collect>", n), "R33", "rank1", 0.0, 1),
    Fault("a loader on one rank", lambda n: loader("Single", n), "R09", "rank3", 0.0, 3),
    Fault("a slow host", None, "R30", "rank2", 0.0, 2, 8.0),
    Fault("nothing", None, "", ""),
    Fault("nothing, on four ranks", None, "", "", 0.0, 0),
)  # fmt: skip


def simulate(base: Base, fault: Fault, length: int, seed: int, healthy: bool) -> tuple[list[Rank], float]:
    """Return the ranks after all steps, and the mean step in ns."""
    random_ = random.Random(seed)
    work: list[Action] = [
        kernel(
            "aten::mm" if number % 3 == 0 else "aten::add",
            round(base.length * random_.uniform(0.5, 1.5)),
            base.host,
        )
        for number in range(base.kernels)
    ]
    ranks = 1 if fault.rank is None else 4
    world = [Rank(number, ranks, 1.0) for number in range(ranks)]
    add = fault.instead if healthy else fault.add
    if fault.rank is not None and not healthy:
        world[fault.rank].slow = fault.slow
    ends = []
    for step in range(STEPS):
        starts = [rank.now for rank in world]
        for rank in world:
            own = list(work)
            if add is not None and fault.rank in (None, rank.number):
                own.insert(round(fault.at * len(own)), add(length))
            for action in own:
                action(rank)
            if ranks > 1:
                all_reduce(100 * US)(rank)
        if ranks > 1:
            meet(world)
        for rank, start in zip(world, starts):
            rank.events.append(kineto.annotation(f"ProfilerStep#{step}", start, rank.now))
        ends.append(max(max(rank.free, rank.now) for rank in world))
    return world, (ends[-1] - ends[0]) / (STEPS - 1)


class Verdict(NamedTuple):
    """What is said of a fault. `first`: rule of the first finding; `saving` and `true`: ns of a step; `most`: the
    largest saving of a measured finding."""

    fault: str
    base: str
    right: bool
    first: str
    true: float
    saving: float | None


def cases(seeds: int) -> Iterator[tuple[Base, Fault, int, int]]:
    for base in BASES:
        for fault in FAULTS:
            for seed in range(seeds):
                yield (
                    base,
                    fault,
                    seed,
                    random.Random(f"{base.name} {fault.what} {seed}").randint(3000, 7000) * US,
                )


def record(folder: Path, world: list[Rank]) -> pyprof.Profile:
    """Write the traces of a program's ranks, and return their profile."""
    ranks = len(world)
    for rank in world:
        facts = {"backend": "nccl", "rank": rank.number, "world_size": ranks, "pg_count": 1} if ranks > 1 else {}
        devices = [{"id": i, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108} for i in range(ranks)]
        more = {"distributedInfo": facts} if facts else {}
        kineto.write(folder / f"rank{rank.number}.pt.trace.json", rank.events, deviceProperties=devices, **more)
    return pyprof.load(folder if ranks > 1 else folder / "rank0.pt.trace.json")


def judge(folder: Path, base: Base, fault: Fault, seed: int, length: int) -> Verdict:
    """Record a program with a fault and ask what it is."""
    _, before = simulate(base, fault, length, seed, healthy=True)
    world, after = simulate(base, fault, length, seed, healthy=False)
    profile = record(folder, world)
    steps = max(Run(profile.source()).steps, 1)
    measured = [one for one in profile.outcomes if one.finding is not None and one.finding.saving is not None]
    first = measured[0] if measured else None
    saving = None if first is None else first.finding.saving / steps
    if not fault.rule or after - before < 0.01 * after:  # what costs nothing is no finding
        right = first is None or saving < 0.03 * after
    else:
        right = first is not None and first.rule.id == fault.rule and fault.word in first.finding.problem
    return Verdict(fault.what, base.name, right, first.rule.id if first else "-", after - before, saving)


def table(verdicts: list[Verdict]) -> str:
    """Return the table of verdicts, by fault and program."""
    rows = []
    for key in dict.fromkeys((one.fault, one.base) for one in verdicts):
        own = [one for one in verdicts if (one.fault, one.base) == key]
        firsts = ", ".join(dict.fromkeys(one.first for one in own))
        known = [100 * (one.saving - one.true) / one.true for one in own if one.right and one.true and one.saving]
        off = f"{min(known):+.0f} to {max(known):+.0f} %" if known else "-"
        right = sum(one.right for one in own)
        cost = f"{fmean(one.true for one in own) / 1e6:.2f}"
        rows.append(f"| {' | '.join([*key, cost, firsts, f'{right} of {len(own)}', off])} |")
    return "\n".join(rows)


PAGE = """# Accuracy

How often the first finding is right, and how far its saving is off. Generated by `python benchmarks/diagnosis.py`:
faults of known cost are planted in {programs} kinds of programs, {seeds} of each with lengths by chance. A program is
simulated by the rules of CUDA, once with the fault and once without; the difference of the mean steps is what it costs,
and what the saving should be. The recordings are traces as torch.profiler writes them.

- **{right} of {faults} faults**: the first finding is the rule about it and names its place. A fault that costs less
  than 1 % of the step, such as one behind which the GPU still has work queued, is right if no finding is about it.
- **{near} of {told} savings** of these are within 10 % of the cost.
- **{healthy} of {sound} programs without a fault** get no finding that claims 3 % of the step or more.

| fault | program | costs, ms a step | first finding | right | saving is off by |
|---|---|---|---|---|---|
{table}

The rules were made with faults like these at hand, so that other faults may be named less often. A simulation has no
noise, and no cost of recording: both make the figures of a real recording less exact. What the
rules say of real recordings was judged by hand: [recordings](recordings.md). Not planted here: compilation, memory,
kernels below their roofline, links between nodes, programs without a GPU.
"""


def main(seeds: int = 3) -> None:
    verdicts = []
    for base, fault, seed, length in cases(seeds):
        with tempfile.TemporaryDirectory() as folder:
            verdicts.append(judge(Path(folder), base, fault, seed, length))
    faults = [one for one in verdicts if not one.fault.startswith("nothing")]
    sound = [one for one in verdicts if one.fault.startswith("nothing")]
    told = [one for one in faults if one.right and one.saving is not None and one.first != "-"]
    print(
        PAGE.format(
            programs=len(BASES), seeds=seeds, right=sum(one.right for one in faults), faults=len(faults),
            near=sum(abs(one.saving - one.true) <= 0.1 * one.true for one in told), told=len(told),
            healthy=sum(one.right for one in sound), sound=len(sound), table=table(verdicts),
        ).rstrip()
    )  # fmt: skip


if __name__ == "__main__":
    main()

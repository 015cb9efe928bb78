# SPDX-License-Identifier: Apache-2.0
"""Random programs, written as Kineto would have written them in 2021 and in 2024: what is read is what happened.

The truth is a tree per thread, whose nodes are operators, ranges of the user, Python functions and launches. It is
compared with what the reader makes of the file; nothing of the reader is used to make it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from pyprof.core.model import MEMCPY, MEMSET, Tensor, Trace
from pyprof.parse import loader
from pyprof.parse.backward_links import pair
from pyprof.parse.join import link, nest_spans
from pyprof.parse.rows import self_times
from tests import kineto
from tests.build import examples

# Categories of one kind, as versions and vendors spell them.
OPERATORS = ("cpu_op", "Operator", "CPU_OP")
LAUNCHES = (
    "cuda_runtime", "Runtime", "runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver",
    "mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver",
)  # fmt: skip
DEVICES = {
    "kernel": ("kernel", "Kernel", "concurrent_kernel", "mtia_ccp_events", "hpu_op"),
    "copy": ("gpu_memcpy", "Memcpy"), "set": ("gpu_memset", "Memset"),
}  # fmt: skip
FLOWS = ("fwdbwd", "forward_backward")
NOTHING = (
    "overhead",
    "gpu_user_annotation",
    "Trace",
    "cuda_sync",
    "cuda_event",
    "ac2g",
    "collective_comm",
    "xpu_sync",
)
NAMES = ("aten::mm", "aten::relu", "aten::t", "mylib::op", "aten::add_")


@dataclass
class Node:
    """Something that runs on a thread. `number` counts operators from 1 in the order of their beginnings."""

    kind: str  # op, range, function or launch
    name: str
    start: int = 0
    end: int = 0
    number: int = 0
    seq: int | None = None
    forward: Node | None = None
    correlation: int = 0
    inside: list[Node] = field(default_factory=list)


@dataclass
class Thread:
    pid: int
    tid: int
    torch: int  # torch's own number of it
    inside: list[Node]


class World:
    """A program and its file."""

    def __init__(self, rng: random.Random):
        self.rng, self.modern = rng, rng.random() < 0.5
        self.unit = 1 if self.modern else 1000
        self.base = 1_700_000_000_000_000_000 if self.modern else 0
        self.clock = 0 if self.modern else 1_623_143_089_861_351_000
        self.sequence = self.count = self.correlation = 0
        self.device_events: list[tuple[str, str, int, int, int, int, int]] = []
        tids = rng.sample(range(1, 50_000), 4)
        self.threads = [Thread(rng.choice((7, 8)), tid, i + 1, []) for i, tid in enumerate(tids[: rng.randint(1, 4)])]
        for thread in self.threads:
            thread.inside = self._nodes(0, False)
        self._backward()

    def _tick(self, at_least: int = 1) -> int:
        self.clock += self.unit * self.rng.randint(at_least, 3)
        return self.clock

    def _nodes(self, depth: int, tight: bool) -> list[Node]:
        """Some nodes one after the other. `tight`: the first may begin with what is around it."""
        out = []
        for place in range(self.rng.randint(0 if depth else 1, 3)):
            kinds = ("op", "op", "op", "range", "function", "launch") if depth < 5 else ("launch",)
            kind = self.rng.choice(kinds)
            node = Node(kind, self._name(kind))
            first = tight and place == 0 and kind == "op"
            node.start = self._tick(0 if first else 1)
            if kind == "op":
                self.count += 1
                node.number = self.count
                if self.rng.random() < 0.5:
                    self.sequence += 1
                    node.seq = self.sequence
            if kind == "launch":
                self._launch(node)
            else:
                node.inside = self._nodes(depth + 1, kind == "op")
            last = bool(node.inside) and kind == "op" and node.inside[-1].kind == "op"
            node.end = self._tick(0 if last else 1)
            out.append(node)
        return out

    def _name(self, kind: str) -> str:
        choice = {
            "op": NAMES, "range": ("my range", 'say "hi"', "ProfilerStep#4", "x\\y"), "launch": ("cudaLaunchKernel",),
            "function": ("train.py(3): main", "net.py(40): forward", "nn.Module: Net_0", "<built-in method f>"),
        }[kind]  # fmt: skip
        return self.rng.choice(choice)

    def _launch(self, node: Node) -> None:
        self.correlation += 1
        node.correlation = self.correlation
        count = self.rng.choice((0, 1, 1, 2))
        node.name = ("cudaEventRecord", "cudaLaunchKernel", "cudaGraphLaunch")[count]
        for _ in range(count):
            kind = self.rng.choice(("kernel", "kernel", "copy", "set"))
            start = self.clock + self.unit * self.rng.randint(0, 9)
            end = start + self.unit * self.rng.randint(0, 9)
            name = {
                "kernel": f"k{len(self.device_events)}",
                "copy": "Memcpy DtoD (Device -> Device)",
                "set": "Memset",
            }
            device, stream = self.rng.choice(((0, 7), (0, 9), (1, 7)))
            self.device_events.append((kind, name[kind], start, end, device, stream, node.correlation))

    def _backward(self) -> None:
        """Nodes of some of the forwards, on the last thread, that their own or another thread began."""
        last = self.threads[-1]
        mine = [node for thread in self.threads if thread.pid == last.pid for node in walk(thread.inside)]
        for node in mine:
            if node.seq is not None and self.rng.random() < 0.5:
                title = node.name.rpartition("::")[2].strip("_").title()
                made = Node("op", f"{title}Backward0", self._tick(), seq=node.seq, forward=node)
                made.inside = [Node("op", "aten::grad", self._tick())]
                made.number, made.inside[0].number = self.count + 1, self.count + 2
                self.count += 2
                made.inside[0].end, made.end = self._tick(), self._tick()
                last.inside.append(made)

    # --- the file

    def time(self, ns: int) -> Any:
        return kineto.us(ns) if self.modern else ns // 1000

    def event(self, cat: str, name: str, start: int, end: int, pid: Any, tid: Any, args: dict[str, Any]) -> Any:
        return {
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": self.time(start),
            "dur": self.time(end - start), "args": args,
        }  # fmt: skip

    def events(self) -> list[Any]:
        rng, out = self.rng, []
        spelled = {"op": rng.choice(OPERATORS), "launch": rng.choice(LAUNCHES), "flow": rng.choice(FLOWS)}
        owner = {id(node): thread for thread in self.threads for node in walk(thread.inside)}
        arrows = rng.random() < 0.5
        for thread in self.threads:
            for node in walk(thread.inside):
                args: dict[str, Any] = {}
                cat = {"range": "user_annotation", "function": "python_function"}.get(node.kind) or spelled[node.kind]
                if node.kind == "op":
                    args = {"External id": node.number, "Ev Idx": node.number}
                    args |= {"Input Dims": [[node.number, 2], []], "Input type": ["float", "Scalar"]}
                    args |= {"Concrete Inputs": ["", str(node.number)]}
                    forward = node.forward
                    if node.seq is not None:
                        args |= {"Sequence number": node.seq,
                                 "Fwd thread id": owner[id(forward)].torch if forward else 0}  # fmt: skip
                    if forward is not None and arrows:
                        for end, at, on in (("s", forward, owner[id(forward)]), ("f", node, thread)):
                            out.append({"ph": end, "id": node.seq, "cat": spelled["flow"], "name": "fwdbwd",
                                        "pid": on.pid, "tid": on.tid, "ts": self.time(at.start)})  # fmt: skip
                elif node.kind == "launch":
                    args = {"correlation": node.correlation, "cbid": 211}
                out.append(self.event(cat, node.name, node.start, node.end, thread.pid, thread.tid, args))
        for kind, name, start, end, device, stream, correlation in self.device_events:
            args = {"correlation": correlation, "grid": [correlation, 1, 2], "block": [32, 1, 1], "bytes": 64}
            if self.modern:
                args |= {"device": device, "stream": stream}
            tid = stream if self.modern else f"stream {stream}"
            out.append(self.event(rng.choice(DEVICES[kind]), name, start, end, device, tid, args))
        for cat in NOTHING:
            out.append(self.event(cat, "aten::mm", self.clock, self.clock + self.unit, 7, 1, {}))
        rng.shuffle(out)
        return out


def walk(nodes: list[Node]) -> Any:
    for node in nodes:
        yield node
        yield from walk(node.inside)


def chains(nodes: list[Node], above: tuple[Node, ...] = ()) -> Any:
    """Each node with those around it, outermost first."""
    for node in nodes:
        yield node, above
        yield from chains(node.inside, (*above, node))


def expected_ops(world: World) -> list[Any]:
    """Of each operator: place, times, number, self time, what is around it, frames, and the forward's number."""
    out = []
    for thread in world.threads:
        for node, above in chains(thread.inside):
            if node.kind != "op":
                continue
            inner = nearest(node)
            around = [n.name for n in above if n.kind in ("op", "range")]
            functions = [n.name for n in above if n.kind == "function"]
            frames = tuple(n.replace("(", ":").split(")")[0] for n in functions if ".py(" in n)
            out.append((
                thread.pid, thread.tid, node.name, node.start, node.end, node.seq,
                node.end - node.start - sum(n.end - n.start for n in inner), around, frames,
                node.forward.number if node.forward else None, node.number,
            ))  # fmt: skip
    return sorted(out, key=lambda row: row[-1])


def nearest(node: Node) -> list[Node]:
    """The operators directly inside, whatever else is between."""
    return [found for n in node.inside for found in ([n] if n.kind == "op" else nearest(n))]


def found_ops(trace: Trace) -> list[Any]:
    found = nest_spans(trace)
    forward = pair(trace, found)
    own = self_times(found.start, found.end, found.parent, found.event >= 0)
    numbers = {}
    ops = trace.ops
    for event in range(len(ops)):
        tensor, number = (arg.value for arg in trace.calls[int(ops.text[event])].args)
        assert tensor == Tensor((number, 2), "float32")
        numbers[event] = number
    names = [found.labels[label].text if label >= 0 else "" for label in found.label_of_path]
    out = []
    for span, event in enumerate(found.event.tolist()):
        if event < 0:
            continue
        thread = trace.threads[ops.thread[event]]
        around, above = [], int(found.parent[span])
        while above >= 0:
            inside = int(found.event[above])
            around.insert(0, trace.strings[ops.name[inside]] if inside >= 0 else names[found.path[above]])
            above = int(found.parent[above])
        stack = int(ops.stack[event])
        origin = int(forward[span])
        assert (origin >= 0) == bool(ops.forward_thread.mask()[event])
        if origin >= 0:
            assert ops.forward_thread.values[event] == ops.thread[found.event[origin]]
        out.append((
            trace.processes[thread.process].pid, thread.tid, trace.strings[ops.name[event]],
            int(ops.start[event]) + trace.t0, int(ops.end[event]) + trace.t0,
            int(ops.seq.values[event]) if ops.seq.mask()[event] else None, int(own[span]), around,
            trace.stacks[stack].frames if stack >= 0 else (), numbers[found.event[origin]] if origin >= 0 else None,
            numbers[event],
        ))  # fmt: skip
    return sorted(out, key=lambda row: row[-1])


def expected_devices(world: World) -> list[Any]:
    """Of each GPU event: what it is, and the names around its launch."""
    around, names = {}, {"kernel": None, "copy": "memcpy DtoD", "set": "memset"}
    for thread in world.threads:
        for node, above in chains(thread.inside):
            if node.kind == "launch":
                chain = [n.name for n in above if n.kind in ("op", "range")]
                around[node.correlation] = thread.pid, thread.tid, chain, node.start
    return sorted(
        (
            names[kind] or name,
            start,
            end,
            device,
            stream,
            correlation,
            [correlation, 1, 2],
            *around[correlation],
        )
        for kind, name, start, end, device, stream, correlation in world.device_events
    )


def found_devices(trace: Trace) -> list[Any]:
    gpu, launches, found = trace.gpu, trace.launches, nest_spans(trace)
    owner = [thread.process for thread in trace.threads]
    launch = link(gpu, launches, np.array(owner))
    out = []
    for row, call in enumerate(launch.tolist()):
        thread = trace.threads[launches.thread[call]]
        chain, span = [], int(found.enclosing(launches.thread[[call]], launches.start[[call]])[0])
        while span >= 0:
            event = int(found.event[span])
            label = found.labels[found.label_of_path[found.path[span]]]
            chain.insert(0, trace.strings[trace.ops.name[event]] if event >= 0 else label.text)
            span = int(found.parent[span])
        name = trace.strings[gpu.name[row]]
        assert (gpu.kind[row] == MEMCPY) == (name == "memcpy DtoD")
        assert (gpu.kind[row] == MEMSET) == (name == "memset")
        out.append((
            name, int(gpu.start[row]) + trace.t0, int(gpu.end[row]) + trace.t0, int(gpu.device.values[row]),
            int(gpu.stream.values[row]), int(gpu.correlation.values[row]), gpu.grid.values[row].tolist(),
            trace.processes[thread.process].pid, thread.tid, chain, int(launches.start[call]) + trace.t0,
        ))  # fmt: skip
    return sorted(out)


@examples(25)
@given(seed=st.integers(0, 1 << 32))
def test_what_is_read_is_what_happened(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(random.Random(seed))
    facts = {"baseTimeNanoseconds": world.base} if world.modern else {}
    path: Path = kineto.write(tmp_path_factory.mktemp("model") / "trace.json", world.events(), **facts)
    if not any(node.kind == "op" for thread in world.threads for node in walk(thread.inside)):
        return
    trace = loader.load(path)
    trace.t0 -= world.base
    assert trace.lost == {}
    assert found_ops(trace) == expected_ops(world)
    assert found_devices(trace) == expected_devices(world)
    nodes = [(node, thread) for thread in world.threads for node in walk(thread.inside)]
    steps = sorted((node.start, node.end) for node, _ in nodes if node.name == "ProfilerStep#4")
    assert sorted(zip((trace.steps.start + trace.t0).tolist(), (trace.steps.end + trace.t0).tolist())) == steps
    assert len(trace.functions) == sum(node.kind == "function" for node, _ in nodes)
    assert len(trace.launches) == sum(node.kind == "launch" for node, _ in nodes)


@pytest.mark.parametrize("arrows", ["fwdbwd", "forward_backward", None])
def test_threads_with_equal_numbers_are_told_apart_by_arrows(arrows: str | None, tmp_path: Path) -> None:
    """Two threads run the same forward, a third both backwards: their `Fwd thread id` stands nowhere else."""
    events = [
        kineto.op("aten::mul", 1000, 2000, seq=0, tid=11), kineto.op("aten::mul", 1500, 2500, seq=0, tid=12),
        kineto.op("MulBackward0", 3000, 4000, seq=0, forward=1, tid=13),
        kineto.op("MulBackward0", 5000, 6000, seq=0, forward=2, tid=13),
    ]  # fmt: skip
    for number, (forward, backward) in enumerate(((events[1], events[2]), (events[0], events[3]))):
        for end, at in (("s", forward), ("f", backward)):
            arrow = {
                "ph": end,
                "id": number,
                "cat": arrows,
                "name": "fwdbwd",
                "pid": at["pid"],
                "tid": at["tid"],
            }
            events += [{**arrow, "ts": at["ts"]}] if arrows else []
    trace = loader.load(kineto.write(tmp_path / "trace.json", events))
    backward = trace.ops.forward_thread.take(trace.ops.scope.nonzero()[0])
    tids = [trace.threads[thread].tid for thread in backward.values.tolist()]
    assert backward.mask().tolist() == [arrows is not None] * 2
    assert tids == [12, 11] or not arrows

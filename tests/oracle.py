# SPDX-License-Identifier: Apache-2.0
"""Every figure of an aggregation again, from the raw rows of a recording, slowly and in plain Python.

Nothing of the package's joins, intervals, aggregation or reports is used: an operator is the outermost marker of a call
on its thread, a GPU event belongs to the operator around the API call of its correlation number, and every length is
counted between the sorted edges of intervals. Only markers are decoded, and the arguments of a call spelled, by the
package. Backward passes are not understood.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import Call, Tensor
from pyprof.core.symbols import demangle, short_name
from pyprof.costs.params import dtype, params
from tests.build import PUSH_POP, START_END, Kernel, Launch, Range, Recording

PARTS = ("tc", "kernel", "memory", "dataloader", "io", "cpu", "other")
ELIGIBLE = {"linear", "mm", "matmul", "bmm", "conv2d"}
ON_TENSOR_CORES = re.compile(r"h?884|s16816|xmma")
NAMELESS = re.compile(r"mystery")
COLLECTIVE = re.compile(r"nccl")
PEERS = 10  # copyKind of a copy between devices
Span = tuple[int, int]


def length(spans: Iterable[Span]) -> int:
    """Of the union of intervals."""
    total, reached = 0, None
    for start, end in sorted(spans):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def filled(kernels: Iterable[tuple[int, int, int]], sms: int, low: int, high: int) -> int:
    """Multiprocessors that have a block, at most all, times how long, between `low` and `high`."""
    changes = defaultdict(int)
    for start, end, blocks in kernels:
        if start < high and end > low:
            changes[max(start, low)] += blocks
            changes[min(end, high)] -= blocks
    total = running = 0
    for a, b in pairwise(sorted(changes)):
        running += changes[a]
        total += min(running, sms) * (b - a)
    return total


def clipped(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    return [(max(a, low), min(b, high)) for a, b in spans if min(b, high) > max(a, low)]


BEFORE = -1  # the time of what was launched before the recording began


@dataclass
class Event:
    """A kernel, copy or set with what launched it."""

    raw: Kernel
    launch: Launch | None
    worker: int = 0
    execution: Any = None
    number: int = 0
    supposed: int | None = None  # when it was launched, without a record of that

    @property
    def span(self) -> Span:
        return self.raw.start, self.raw.end

    @property
    def dur(self) -> int:
        return self.raw.end - self.raw.start

    @property
    def begin(self) -> int:
        if self.launch:
            return self.launch.start
        return self.raw.start if self.supposed is None else self.supposed

    @property
    def kind(self) -> str:
        return "kernel" if self.raw.size is None else "memset" if self.raw.copy_kind is None else "memcpy"

    @property
    def between(self) -> bool:
        """Communication: of a collective, or a copy between devices."""
        if self.kind == "kernel":
            return bool(COLLECTIVE.search(self.raw.name))
        return self.raw.copy_kind == PEERS

    @property
    def tc(self) -> bool | None:
        if self.kind != "kernel":
            return False
        if self.raw.name == "mystery" and self.execution.operator.unassociated:
            return None
        return bool(ON_TENSOR_CORES.search(self.raw.name))


@dataclass
class Operator:
    """A place in the program; `key` tells it from others."""

    key: Any
    type: str
    name: str
    call: Call | None = None
    stack: str | None = None
    module: str | None = None
    unassociated: bool = False
    op_id: str = ""

    @property
    def eligible(self) -> bool:
        return self.type in ELIGIBLE


@dataclass
class Execution:
    operator: Operator
    start: int
    end: int
    thread: tuple[int, int]
    worker: int = 0
    api_calls: list[Launch] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """What the table `op` says of it, and its overhead."""
        cpu = self.end - self.start
        api = length((c.start, c.end) for c in self.api_calls)
        gpu = idle = 0
        for device in {e.raw.device for e in self.events}:
            spans = [e.span for e in self.events if e.raw.device == device]
            busy = length(spans)
            gpu += busy
            idle += max(b for _, b in spans) - min(a for a, _ in spans) - busy
        kernels = [e for e in self.events if e.kind == "kernel"]
        used = [e for e in kernels if e.tc]
        return {
            "cpu": cpu, "api": api, "gpu": gpu, "idle": idle, "overhead": max(cpu - api, 0), "kernels": len(kernels),
            "tc_kernels": len(used), "kernel": sum(e.dur for e in kernels), "tc": sum(e.dur for e in used),
        }  # fmt: skip


@dataclass
class Iteration:
    worker: int
    number: int
    start: int
    end: int
    host: Span
    last: bool  # takes what is left

    def has(self, time: int) -> bool:
        return self.host[0] <= time and (self.last or time < self.host[1])


def suppose_launches(events: list[Event]) -> None:
    """Streams work in order: an event was launched after the one before it, or before the recording began. Of events
    that start together, those without a launch come first: nothing says that they were launched later."""
    known = {e.raw.process for e in events if e.launch}
    last: dict[tuple[int, int, int], int] = {}
    for event in sorted(events, key=lambda e: (e.raw.start, e.launch.start if e.launch else BEFORE)):
        stream = event.raw.process, event.raw.device, event.raw.stream
        if event.launch:
            last[stream] = event.launch.start
        elif event.raw.process in known:
            event.supposed = last.get(stream, BEFORE)


class Oracle:
    """All executions and events of a recording. `chips`: multiprocessors by device number; `workers`: their processes,
    which are numbered as the files' readers find them."""

    def __init__(self, what: Recording, chips: dict[int, int], workers: Sequence[int]):
        self.what, self.chips, self.workers = what, chips, list(workers)
        self.operators: dict[Any, Operator] = {}
        calls = self._calls()
        self.executions = calls
        by_correlation = {(c.process, c.correlation): c for c in what.launches}
        self.events = [Event(k, by_correlation.get((k.process, k.correlation))) for k in what.kernels]
        self.events.sort(key=lambda e: (e.raw.start, e.raw.device, e.raw.stream))  # without launches in this order
        suppose_launches(self.events)
        of_call: dict[int, Execution] = {}
        for call in what.launches:
            here = [e for e in calls if e.thread == (call.process, call.thread) and e.start <= call.start < e.end]
            if here:
                of_call[id(call)] = here[0]
            else:
                name = (call.name or ("cuLaunchKernel" if call.driver else "cudaLaunchKernel_v7000")).partition("_v")[0]
                of_call[id(call)] = self._pseudo(name, call.start, call.end, (call.process, call.thread))
            of_call[id(call)].api_calls.append(call)
        for event in self.events:
            if event.launch:
                event.execution = of_call[id(event.launch)]
            else:
                event.execution = self._pseudo("gpu_event", event.begin, event.begin, (event.raw.process, -1))
            event.execution.events.append(event)
        self._number()

    def _pseudo(self, what: str, start: int, end: int, thread: tuple[int, int]) -> Execution:
        name = f"unassociated_{what}"
        operator = self.operators.setdefault(name, Operator(name, name, name, unassociated=True, op_id=name.upper()))
        self.executions.append(Execution(operator, start, end, thread))
        return self.executions[-1]

    def _calls(self) -> list[Execution]:
        """The outermost markers of calls, in order."""
        found = []
        ranges = [r for r in self.what.ranges if r.end is not None and r.kind in (PUSH_POP, START_END)]
        for one in ranges:
            marker = decode(one.text)
            if isinstance(marker, CallMarker) and one.kind == PUSH_POP:
                found.append((one, marker))
        out = []
        for one, marker in found:
            around = [o for o, _ in found if o is not one and _inside(one, o)]
            if not around:
                out.append(
                    Execution(self._operator(one, marker, ranges), one.start, one.end, (one.process, one.thread))
                )
        return out

    def _operator(self, one: Range, marker: CallMarker, ranges: list[Range]) -> Operator:
        traces = [r for r in ranges if r.text.startswith("{'traceMarker'") and _inside(one, r)]
        trace = max(traces, key=lambda r: r.start).text if traces else ""
        key = (one.text, trace)
        if key in self.operators:
            return self.operators[key]
        type_ = marker.call.op.strip("_").lower()
        if trace:  # the markers of DLProf's time
            said = ast.literal_eval(trace)
            name = re.sub(r"\((\d+)\)", r"[\1]", said["funcStack"].strip("/").replace("<", "").replace(">", ""))
            stack = "\n".join(line for line in said["traceMarker"] if "site-packages/torch" not in line)
        else:
            where = "/".join(marker.module.split(".")) + "/" if marker.module else ""
            stack, name = "\n".join(marker.trace), where + type_
        module = marker.module
        self.operators[key] = Operator(key, type_, name, marker.call, stack or None, module)
        return self.operators[key]

    def _number(self) -> None:
        """Workers, operator ids, ids of events."""
        known = {e.thread[0] for e in self.executions if not e.operator.unassociated}
        assert set(self.workers) == known | {k.process for k in self.what.kernels}  # API calls alone make no worker
        self.executions = [e for e in self.executions if e.thread[0] in self.workers]
        for execution in self.executions:
            execution.worker = self.workers.index(execution.thread[0])
        self.executions.sort(key=lambda e: (e.worker, e.start, e.thread, -e.end))
        counts: dict[str, int] = defaultdict(int)
        for execution in self.executions:
            operator = execution.operator
            if not operator.op_id:
                counts[operator.type] += 1
                operator.op_id = f"{operator.type.upper()}_{counts[operator.type]}"
        for event in self.events:
            event.worker = event.execution.worker
        self.events.sort(key=lambda e: (e.worker, e.begin, e.raw.start, e.raw.device, e.raw.stream))

    # --- iterations

    def span(self, worker: int) -> Span:
        runs = [e for e in self.executions if e.worker == worker]
        events = [e for e in self.events if e.worker == worker]
        return (
            min([e.start for e in runs if e.start > BEFORE] + [e.raw.start for e in events]),
            max([e.end for e in runs] + [e.raw.end for e in events]),
        )

    def iterations(self, key: str | None) -> list[Iteration]:
        """By marks if there are any, else at the ends of a key operator, else one."""
        out = []
        for worker, pid in enumerate(self.workers):
            first, last = self.span(worker)
            if key is None and self.what.steps and 100 in self.workers:
                if pid != 100:
                    continue
                starts = sorted((a, b) for _, a, b in self.what.steps)
                bounds = [a for a, _ in starts] + [starts[-1][1]]
            elif key is not None:
                ends = sorted({
                    e.end for e in self.executions
                    if e.worker == worker and e.operator.name == key
                })  # fmt: skip
                bounds = [first, *ends]
                if not ends or last > ends[-1]:
                    bounds.append(last)
            else:
                bounds = [first, last]
            own = [Iteration(worker, n, a, b, (a, b), b >= last) for n, (a, b) in enumerate(pairwise(bounds))]
            whole = len(own) == 1 and key is None and not (self.what.steps and 100 in self.workers)
            if whole:
                own[0].host = BEFORE, own[0].host[1]
            self._wait_for_devices(own, [e for e in self.events if e.worker == worker], whole)
            out += own
        return out

    @staticmethod
    def _wait_for_devices(iterations: list[Iteration], events: list[Event], whole: bool) -> None:
        """An iteration lasts until what it launched has ended, and the next one begins there. The first waits for what
        ran before, unless it is the whole recording."""
        of = [[e for e in events if e.launch and one.has(e.begin)] for one in iterations]
        if not any(of):
            return
        reached = iterations[0].start
        if of[0] and not whole:
            first = min(e.raw.start for e in of[0])
            others = [e for e in events if not e.launch or not any(one.has(e.begin) for one in iterations)]
            reached = max([reached, *(e.raw.end for e in others if e.raw.start < e.raw.end <= first)])
        for one, launched in zip(iterations, of):
            one.start = max(one.start, reached)
            one.end = reached = max([one.end, reached, *(e.raw.end for e in launched)])


def _inside(one: Range, other: Range) -> bool:
    same = (one.process, one.thread) == (other.process, other.thread)
    return same and other.start <= one.start and one.end <= other.end and other is not one  # type: ignore[operator]


class Window:
    """The figures of some iterations, of all workers or of one."""

    def __init__(self, oracle: Oracle, key: str | None, first: int, last: int | None, worker: int | None = None):
        self.oracle = oracle
        every = oracle.iterations(key)
        last = max(i.number for i in every) if last is None else last
        self.all = [i for i in every if worker is None or i.worker == worker]
        self.iterations = [i for i in self.all if first <= i.number <= last]
        self.executions = [e for e in oracle.executions if self.number(e.worker, e.start) is not None]
        self.events = [e for e in oracle.events if self.number(e.worker, e.begin) is not None]

    def number(self, worker: int, time: int) -> int | None:
        for one in self.iterations:
            if one.worker == worker and one.has(time):
                return one.number
        return None

    # --- sums

    def spread(self, chosen: Sequence[Execution]) -> dict[str, Any]:
        """Columns of reports: total, average, min and max of four figures, and the sums of the others."""
        found = [e.figures() for e in chosen]
        out: dict[str, Any] = {"calls": len(found)}
        for name in ("cpu", "gpu", "overhead", "idle"):
            values = [f[name] for f in found]
            if not values:
                out |= dict.fromkeys((name, f"{name}_avg", f"{name}_min", f"{name}_max"))
                continue
            out |= {name: sum(values), f"{name}_avg": sum(values) / len(values), f"{name}_min": min(values),
                    f"{name}_max": max(values)}  # fmt: skip
        return out | {n: sum(f[n] for f in found) for n in ("kernels", "tc_kernels", "kernel", "tc")}

    def by_operator(self) -> dict[str, list[Execution]]:
        out: dict[str, list[Execution]] = defaultdict(list)
        for execution in self.executions:
            out[execution.operator.op_id].append(execution)
        return out

    def parts(self, one: Iteration) -> dict[str, int]:
        """The breakdown of an iteration: each stretch between two edges belongs to the first class that covers it."""
        o, mine = self.oracle, one.worker
        pid = o.workers[mine]
        events = [e for e in o.events if e.worker == mine]
        classes = {
            "tc": [e.span for e in events if e.kind == "kernel" and e.tc],
            "kernel": [e.span for e in events if e.kind == "kernel" and not e.tc],
            "memory": [e.span for e in events if e.kind != "kernel"],
            "dataloader": [
                (r.start, r.end) for r in o.what.ranges
                if r.text.startswith("enumerate(DataLoader)#") and r.process == pid
            ],
            "io": [(f.start, f.end) for f in o.what.files if f.process == pid],
            "cpu": [(c.start, c.end) for c in o.what.launches if c.process == pid]
            + [(e.start, e.end) for e in o.executions if e.worker == mine],
        }  # fmt: skip
        inside = {name: clipped(spans, one.start, one.end) for name, spans in classes.items()}  # type: ignore[arg-type]
        edges = sorted({one.start, one.end, *(t for spans in inside.values() for span in spans for t in span)})
        out = dict.fromkeys(PARTS, 0)
        for a, b in pairwise(edges):
            owner = next((n for n, spans in inside.items() if any(x <= a and b <= y for x, y in spans)), "other")
            out[owner] += b - a
        return out

    def device(self, worker: int, number: int) -> dict[str, int]:
        """The sums of a device over the iterations."""
        every = [e for e in self.oracle.events if e.worker == worker and e.raw.device == number]
        mine = [e for e in self.events if e.worker == worker and e.raw.device == number]
        kernels = [e for e in mine if e.kind == "kernel"]
        sms = self.oracle.chips.get(number)
        late, reached = [], None
        for e in sorted(every, key=lambda e: (e.raw.start, not e.launch)):  # of two, that which tells
            if reached is not None and e.launch and e.launch.end > reached:
                late.append((reached, e.raw.start))
            reached = e.raw.end if reached is None else max(reached, e.raw.end)
        pid = self.oracle.workers[worker]
        sync = [
            (c.start, c.end) for c in self.oracle.what.launches if c.process == pid and "Synchronize" in (c.name or "")
        ]
        out = {
            "kernels": len(kernels), "tc_kernels": sum(bool(e.tc) for e in kernels),
            "kernel_ns": sum(e.dur for e in kernels), "tc_ns": sum(e.dur for e in kernels if e.tc),
            "memory_ns": sum(e.dur for e in mine if e.kind != "kernel"), "late_ns": 0,
            "launched": sum(e.launch is not None for e in mine),
            "delay_ns": sum(max(e.raw.start - e.launch.end, 0) for e in mine if e.launch),
            "queued_ns": sum(max(e.raw.end - e.launch.start, 0) for e in mine if e.launch),
            "shaped_ns": sum(e.dur for e in kernels) if sms else 0,
            "filled_sm_ns": 0,
            "busy_ns": 0, "kernel_busy_ns": 0, "communication_ns": 0, "exposed_communication_ns": 0,
            "exposed_memory_ns": 0, "waited_ns": 0,
        }  # fmt: skip
        compute = [e.span for e in every if e.kind == "kernel" and not e.between]
        comm = [e.span for e in every if e.between]
        kernels_of = [e.span for e in every if e.kind == "kernel"]
        memory = [e.span for e in every if e.kind != "kernel" and not e.between]
        blocks = [(*e.span, min(prod(e.raw.grid), sms)) for e in every if e.kind == "kernel"] if sms else []
        for one in (i for i in self.iterations if i.worker == worker):
            k, c, m, s, n = (clipped(x, one.start, one.end) for x in (compute, comm, memory, sync, kernels_of))
            out["busy_ns"] += length(k + c + m)
            out["late_ns"] += length(clipped(late, one.start, one.end))
            out["kernel_busy_ns"] += length(n)
            out["filled_sm_ns"] += filled(blocks, sms or 0, one.start, one.end)
            out["communication_ns"] += length(c)
            out["exposed_communication_ns"] += length(k + c) - length(k)
            out["exposed_memory_ns"] += length(k + c + m) - length(k + c)
            out["waited_ns"] += length(s) + length(k + c + m) - length(s + k + c + m)
        return out

    # --- figures

    def metrics(self) -> dict[str, Any]:
        """Figures of the window by name."""
        lengths = [i.end - i.start for i in self.iterations]
        walls = {
            w: sum(i.end - i.start for i in self.iterations if i.worker == w)
            for w in {i.worker for i in self.iterations}
        }
        total = sum(walls.values())
        parts = [self.parts(i) for i in self.iterations]
        used = sorted({(e.worker, e.raw.device) for e in self.oracle.events if e.worker in walls})
        found = [(self.device(w, d), walls[w], self.oracle.chips.get(d)) for w, d in used]
        shaped = [(f["filled_sm_ns"], s * w) for f, w, s in found if s]
        eligible = [e.figures() for e in self.executions if e.operator.eligible]
        launching = {e.worker for e in self.oracle.events}
        idle = {(w, d) for w in launching & set(walls) for d in self.oracle.chips} - set(used)

        of_devices = sum(wall for _, wall, _ in found)

        def ratio(part: float, whole: float) -> float | None:
            """None of an iteration without length: it ended before the work of the one before it."""
            return part / whole if whole else None

        def of_all(name: str) -> float | None:
            return ratio(100 * sum(f[name] for f, _, _ in found), of_devices)

        busy = of_all("busy_ns")
        visible = of_devices + sum(walls[w] for w, _ in idle) if found else 0

        comm = sum(f["communication_ns"] for f, _, _ in found)
        apart = sum(f["exposed_communication_ns"] for f, _, _ in found)
        kernel = sum(f["kernel"] for f in eligible)
        launched = sum(f["launched"] for f, _, _ in found)
        out = {
            "wall_time": max(walls.values()),
            "iterations": max(sum(i.worker == w for i in self.iterations) for w in walls),
            "average_iteration": total / len(lengths), "median_iteration": median(lengths),
            "iteration_std": pstdev(lengths), "iteration_variation": ratio(100 * pstdev(lengths), fmean(lengths)),
            "gpu_utilization": busy, "gpu_idle": None if busy is None else 100 - busy,
            "kernel_utilization": of_all("kernel_busy_ns"),
            "gpu_utilization_visible": ratio(100 * sum(f["busy_ns"] for f, _, _ in found), visible),
            "tc_utilization": 100 * sum(f["tc"] for f in eligible) / kernel if kernel else None,
            "launch_late_share": of_all("late_ns"), "exposed_communication_share": of_all("exposed_communication_ns"),
            "exposed_memory_share": of_all("exposed_memory_ns"), "sync_wait_share": of_all("waited_ns"),
            "communication_overlap": 100 - 100 * apart / comm if comm else None,
            "launch_delay": sum(f["delay_ns"] for f, _, _ in found) / launched if launched else None,
            "queue_depth": ratio(sum(f["queued_ns"] for f, _, _ in found), of_devices) if launched else None,
            "sm_efficiency": ratio(100 * sum(n for n, _ in shaped), sum(n for _, n in shaped)),
        }  # fmt: skip
        for part in PARTS:
            out[f"{part}_share"] = ratio(100 * sum(p[part] for p in parts), total)
        if not any(f.process in self.oracle.workers for f in self.oracle.what.files):
            out["io_share"] = None
        return out


# --- rows of reports


def _shapes(call: Call | None) -> str | None:
    def tensors(value: Any) -> list[Tensor]:
        if isinstance(value, Tensor):
            return [value]
        return [t for v in value for t in tensors(v)] if type(value) is tuple else []

    found = [t for arg in call.args for t in tensors(arg.value)] if call else []
    return "; ".join(str(t.shape) for t in found) or None


def about(operator: Operator) -> dict[str, Any]:
    """What reports say of an operator itself."""
    return {
        "op_id": operator.op_id, "name": operator.name, "direction": None if operator.unassociated else "fprop",
        "type": operator.type, "eligible": operator.eligible, "stack": operator.stack, "module": operator.module,
        "dtype": dtype(operator.call) if operator.call else None, "shapes": _shapes(operator.call),
        "params": params(operator.call) if operator.call else None,
    }  # fmt: skip


def _using(events: Iterable[Event]) -> bool | None:
    found = {e.tc for e in events if e.kind == "kernel"}
    return True if True in found else None if None in found else False


def detail(window: Window) -> dict[Any, dict[str, Any]]:
    out = {}
    for op_id, runs in window.by_operator().items():
        events = [e for e in window.events if e.execution.operator.op_id == op_id]
        used = True if window.spread(runs)["tc_kernels"] else None if _using(events) is None else False
        told = {"using_tc": used, "tc_unknown": _unknown(window, {op_id})}
        out[op_id] = {**about(runs[0].operator), **window.spread(runs), **told}
    return out


def _unknown(window: Window, op_ids: set[str]) -> int:
    """Time of kernels of some operators of which it is not known whether they used tensor cores."""
    mine = [e for e in window.events if e.kind == "kernel" and e.execution.operator.op_id in op_ids]
    return sum(e.dur for e in mine if e.tc is None)


def op_type(window: Window) -> dict[Any, dict[str, Any]]:
    out = {}
    for type_ in {e.operator.type for e in window.executions}:
        runs = [e for e in window.executions if e.operator.type == type_]
        ops = {e.operator.op_id for e in runs}
        out[type_] = {
            "type": type_,
            "ops": len(ops),
            **window.spread(runs),
            "tc_unknown": _unknown(window, ops),
        }
    return out


def group_node(window: Window) -> dict[Any, dict[str, Any]]:
    groups: dict[str, list[Execution]] = defaultdict(list, {"/": []})
    for run in window.executions:
        parts = ["unassociated"] if run.operator.unassociated else run.operator.name.split("/")[:-1]
        for depth in range(len(parts) + 1):
            groups["/".join(parts[:depth]) + "/"].append(run)
    out = {}
    for path, runs in groups.items():
        ops = {r.operator.op_id: r.operator for r in runs}
        used = {r.operator.op_id for r in runs if r.figures()["tc_kernels"]}
        out[path] = {
            "name": path, "level": 0 if path == "/" else path.count("/"), "ops": len(ops),
            "eligible": sum(o.eligible for o in ops.values()), "using_tc": len(used), **window.spread(runs),
            "tc_unknown": _unknown(window, set(ops)),
        }  # fmt: skip
    return out


def kernel(window: Window) -> dict[Any, dict[str, Any]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in window.events:
        groups[event.execution.operator.op_id, short(event), event.kind].append(event)
    out = {}
    for key, events in groups.items():
        times = [e.dur for e in events]
        calls = [e.launch.end - e.launch.start for e in events if e.launch]
        operator = about(events[0].execution.operator)
        out[key] = {
            **{k: operator[k] for k in ("op_id", "name", "direction")}, "kernel": key[1], "kind": key[2],
            "uses_tc": _using(events), "calls": len(events), "gpu": sum(times), "gpu_avg": sum(times) / len(times),
            "gpu_min": min(times), "gpu_max": max(times), "api": sum(calls) if calls else None,
            "api_avg": sum(calls) / len(calls) if calls else None, "api_min": min(calls, default=None),
            "api_max": max(calls, default=None),
        }  # fmt: skip
    return out


_COMMON = ("op_id", "name", "direction", "type", "using_tc", "gpu", "tc", "kernels", "tc_kernels", "kernel")


def tensor(window: Window) -> dict[Any, dict[str, Any]]:
    out = {}
    for op_id, row in detail(window).items():
        if not row["eligible"]:
            continue
        mine = [e for e in window.events if e.execution.operator.op_id == op_id and e.kind == "kernel"]
        out[op_id] = {
            **{k: row[k] for k in _COMMON},
            "other": row["kernel"] - row["tc"], "other_kernels": row["kernels"] - row["tc_kernels"],
            "utilization": 100 * row["tc"] / row["kernel"] if row["kernel"] else None,
            "tc_names": ", ".join(sorted({short(e) for e in mine if e.tc})) or None,
            "other_names": ", ".join(sorted({short(e) for e in mine if not e.tc})) or None,
        }  # fmt: skip
    return out


def iteration(window: Window, names: Sequence[str], t0: int) -> list[dict[str, Any]]:
    """In the order of the report. `names` of the workers."""
    out = []
    for event in window.events:
        raw, operator, on = event.raw, event.execution.operator, event.kind == "kernel"
        said = about(operator)
        grid, block = (raw.grid, raw.block) if on else ((None,) * 3, (None,) * 3)
        out.append({
            "iteration": window.number(event.worker, event.begin), "kernel": short(event), "long_name": long(event),
            **{k: said[k] for k in ("op_id", "name", "direction", "type", "dtype", "shapes", "params")},
            "device": raw.device, "start": raw.start - t0, "dur": event.dur,
            "launch": event.launch.start - t0 if event.launch else None,
            "launch_dur": event.launch.end - event.launch.start if event.launch else None, "uses_tc": event.tc,
            **dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (*grid, *block))),
            "outputs": None, "kind": event.kind, "worker": names[event.worker], "stream": raw.stream,
        })  # fmt: skip
    return out


_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", PEERS: "PtoP"}


def long(event: Event) -> str:
    if event.kind == "kernel":
        return demangle(event.raw.name)
    return "memset" if event.kind == "memset" else f"memcpy {_COPIES[event.raw.copy_kind or 0]}"


def short(event: Event) -> str:
    return short_name(event.raw.name) if event.kind == "kernel" else long(event)


def summary(window: Window) -> dict[tuple[str, str], int]:
    """The two tables of sums, by row and column."""
    runs = window.executions
    using = {op for op, mine in window.by_operator().items() if any(r.figures()["tc_kernels"] for r in mine)}
    rows = {
        "All ops": runs, "Ops using TC": [r for r in runs if r.operator.op_id in using],
        "Ops eligible for TC but not using": [r for r in runs if r.operator.op_id not in using and r.operator.eligible],
        "All other ops": [r for r in runs if r.operator.op_id not in using and not r.operator.eligible],
    }  # fmt: skip
    out: dict[tuple[str, str], int] = {}
    for name, chosen in rows.items():
        found = [r.figures() for r in chosen]
        out |= {(name, "GPU Time"): sum(f["gpu"] for f in found), (name, "CPU Time"): sum(f["cpu"] for f in found),
                (name, "Ops"): len({r.operator.op_id for r in chosen}), (name, "Calls"): len(found)}  # fmt: skip
    events = {
        "All kernels": window.events, "Kernels using TC": [e for e in window.events if e.tc],
        "Memory": [e for e in window.events if e.kind != "kernel"],
        "All other kernels": [e for e in window.events if e.kind == "kernel" and not e.tc],
        "TC use unknown": [e for e in window.events if e.kind == "kernel" and e.tc is None],
    }  # fmt: skip
    for name, mine in events.items():
        calls = [e.launch.end - e.launch.start for e in mine if e.launch]
        out |= {(name, "GPU Time, Summed"): sum(e.dur for e in mine), (name, "Calls"): len(mine)}
        out[name, "API Time"] = sum(calls) if calls or not mine else None  # type: ignore[assignment]
    return out


# --- a file of Nsight Systems as it is


def of_nsys(path: Path) -> tuple[Recording, dict[int, int]]:
    """The rows of an export that the figures need, and the multiprocessors of its devices."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        return _rows_of_nsys(connection)


def _rows_of_nsys(connection: sqlite3.Connection) -> tuple[Recording, dict[int, int]]:
    out = Recording()
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    names = dict(connection.execute("select id, value from StringIds"))

    def where(number: int) -> dict[str, int]:
        return {"thread": number & 0xFFFFFF, "process": number >> 24 & 0xFFFFFF}

    for start, end, kind, text, code, thread in connection.execute(
        "select start, end, eventType, text, textId, globalTid from NVTX_EVENTS where eventType in (59, 60)"
    ):
        out.ranges.append(Range(text or names.get(code, ""), start, end, **where(thread), kind=kind))
    for start, end, thread, correlation, code in connection.execute(
        "select start, end, globalTid, correlationId, nameId from CUPTI_ACTIVITY_KIND_RUNTIME"
    ):
        out.launches.append(Launch(start, end, correlation, **where(thread), name=names[code]))
    common = "start, end, correlationId, globalPid >> 24 & 0xFFFFFF, deviceId, streamId"
    for *at, code, gx, gy, gz, bx, by, bz in connection.execute(
        f"select {common}, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ from CUPTI_ACTIVITY_KIND_KERNEL"
    ):
        out.kernels.append(Kernel(names[code], *at, grid=(gx, gy, gz), block=(bx, by, bz)))
    for *at, size, kind in connection.execute(f"select {common}, bytes, copyKind from CUPTI_ACTIVITY_KIND_MEMCPY"):
        out.kernels.append(Kernel("", *at, size=size, copy_kind=kind))
    for *at, size in connection.execute(f"select {common}, bytes from CUPTI_ACTIVITY_KIND_MEMSET"):
        out.kernels.append(Kernel("", *at, size=size))
    return out, dict(connection.execute("select cuDevice, smCount from TARGET_INFO_GPU"))

# SPDX-License-Identifier: Apache-2.0
"""Rows of the reports about stretches of time (steps, devices, gaps) again, from the raw rows of a recording, slowly
and in plain Python. Every length is counted between the sorted edges of intervals."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from pyprof.parse.paths import is_step
from tests.build import PUSH_POP, Launch
from tests.oracle import Event, Oracle, Span, clipped, length

PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu")
WAIT = "enumerate(DataLoader)#"
SMS = 80  # of device 0, a V100; nothing is known of others


def kind(event: Event) -> str:
    return "communication" if event.between else event.kind


def steps(found: Oracle, key: str | None, worker: int) -> list[dict[str, Any]]:
    """All steps of a worker with the device's bounds."""
    cut = [i for i in found.iterations(key) if i.worker == worker]
    events = [e for e in found.events if e.worker == worker]
    launched = [[e for e in events if e.launch and one.has(e.launch.start)] for one in cut]
    inside = {id(e) for mine in launched for e in mine}
    previous = cut[0].start
    if launched[0]:
        first = min(e.raw.start for e in launched[0])
        previous = max([previous] + [e.raw.end for e in events if id(e) not in inside and e.raw.end < first])
    marks = sorted(found.what.steps, key=lambda step: step[1])
    out = []
    for place, (one, mine) in enumerate(zip(cut, launched)):
        start, end = one.start, one.end
        if inside:
            start = max(previous, start)
            end = previous = max([start, end] + [e.raw.end for e in mine])
        rest = [m for m in launched[place:] if m]
        fewer = bool(mine) and place > 0 and len(mine) < 0.8 * len(launched[place - 1]) and len(rest) == 1
        partial: bool | None = not rest or fewer or (key is not None and place > 0 and one is cut[-1])
        number = marks[place][0] if marks and key is None else one.number
        out.append({
            "iteration": one.number, "step": number, "start": start, "end": end, "partial": partial if inside else None
        })  # fmt: skip
    return out


def partition(classes: dict[str, list[Span]], low: int, high: int) -> dict[str, int]:
    """Each stretch between two edges belongs to the first class that covers it."""
    inside = {name: clipped(spans, low, high) for name, spans in classes.items()}
    edges = sorted({low, high, *(t for spans in inside.values() for span in spans for t in span)})
    out = dict.fromkeys([*classes, "other"], 0)
    for a, b in pairwise(edges):
        owner = next((n for n, spans in inside.items() if any(x <= a and b <= y for x, y in spans)), "other")
        out[owner] += b - a
    return out


def classes(found: Oracle, worker: int) -> dict[str, list[Span]]:
    """What a worker did, by part of a step."""
    pid = found.workers[worker]
    out: dict[str, list[Span]] = {name: [] for name in PARTS}
    for event in found.events:
        if event.worker == worker:
            out[kind(event)].append(event.span)
    out["runtime"] = [(c.start, c.end) for c in found.what.launches if c.process == pid]
    for one in found.what.ranges:
        if one.process == pid and one.end is not None and one.kind == PUSH_POP:
            if one.text.startswith(WAIT):
                out["dataloader"].append((one.start, one.end))
            elif not is_step(one.text):
                out["cpu"].append((one.start, one.end))
    return out


def step_time(found: Oracle, key: str | None, worker: int, seven: bool = False) -> list[dict[str, Any]]:
    out, mine = [], classes(found, worker)
    if seven:
        for event in found.events:
            if event.worker == worker and event.between:
                mine[event.kind].append(event.span)
        del mine["communication"]
    for one in steps(found, key, worker):
        parts = partition(mine, one["start"], one["end"])
        said = {f"{name}_ns": value for name, value in parts.items()}
        out.append({**one, "total_ns": one["end"] - one["start"], **said})
    return out


def overlap(found: Oracle, key: str | None, worker: int) -> list[dict[str, Any]]:
    out = []
    mine = [e for e in found.events if e.worker == worker]
    for one in steps(found, key, worker):
        for device in sorted({e.raw.device for e in mine}):
            spans: dict[str, list[Span]] = defaultdict(list)
            for event in mine:
                if event.raw.device == device:
                    spans[kind(event)] += clipped([event.span], one["start"], one["end"])
            k, c, m = spans["kernel"], spans["communication"], spans["memcpy"] + spans["memset"]
            exposed = length(k + c) - length(k)
            hidden = length(c) - exposed
            total = one["end"] - one["start"]
            out.append({
                **one, "device": device, "total_ns": total, "computation_ns": length(k), "communication_ns": length(c),
                "overlap_ns": hidden, "exposed_ns": exposed,
                "overlap": 100 * hidden / length(c) if c and length(c) else None,
                "memory_ns": length(k + c + m) - length(k + c), "other_ns": total - length(k + c + m),
            })  # fmt: skip
    return out


def occupancy(grid: int) -> float:
    """In percent, of a kernel of one warp a block and 16 registers on a V100: 32 of them fit."""
    return round(10_000 * min(32, grid / SMS) * 32 / 2048) / 100


def gpu(found: Oracle, worker: int, device: int, low: int, high: int) -> dict[str, Any]:
    events = [e for e in found.events if e.worker == worker and e.raw.device == device and e.kind == "kernel"]
    inside = [(e, a, b) for e in events for a, b in clipped([e.span], low, high)]
    edges = sorted({t for _, a, b in inside for t in (a, b)})
    filled = 0.0
    for a, b in pairwise(edges):
        filled += (b - a) * min(sum(e.raw.grid[0] / SMS for e, x, y in inside if x <= a and b <= y), 1)
    time = sum(b - a for _, a, b in inside)
    known = [(e, b - a) for e, a, b in inside if e.tc is not None]
    busy, window = length((a, b) for _, a, b in inside), high - low
    occupied = sum((b - a) * occupancy(e.raw.grid[0]) for e, a, b in inside)
    return {
        "device": device, "busy_ns": busy, "window_ns": window, "utilization": 100 * busy / window if window else None,
        "sm_efficiency": 100 * filled / window if device == 0 and window else None,
        "achieved_occupancy": occupied / time if device == 0 and time else None,
        "tc_share": 100 * sum(d for e, d in known if e.tc) / sum(d for _, d in known) if known else None,
    }  # fmt: skip


def idle(found: Oracle, worker: int, device: int, low: int, high: int) -> list[tuple[Any, ...]]:
    """Cause, call, where the host was, path of the operator, and length of each gap in the window."""
    pid, what = found.workers[worker], found.what
    mine = sorted((e for e in found.events if e.worker == worker and e.raw.device == device), key=lambda e: e.raw.start)
    first, last = found.span(worker)
    gaps, reached = [], min(first, low)
    for event in mine:
        if event.raw.start > reached:
            gaps.append((reached, event.raw.start, event))
        reached = max(reached, event.raw.end)
    if max(last, high) > reached:
        gaps.append((reached, max(last, high), None))
    calls = [c for c in what.launches if c.process == pid]
    copied = [e for e in found.events if e.launch and e.kind == "memcpy" and e.raw.end <= e.launch.end]
    blocking = {id(e.launch) for e in copied if "Memcpy" in (e.launch.name or "")}  # type: ignore[union-attr]

    def waiting(call: Launch) -> bool:
        return "Synchronize" in (call.name or "") or id(call) in blocking

    loading = [
        (r.start, r.end) for r in what.ranges
        if r.process == pid and r.text.startswith(WAIT) and r.end is not None
    ]  # fmt: skip
    out = []
    for whole_start, whole_end, event in gaps:
        start, end = (
            min(max(whole_start, first), last),
            min(max(whole_end, first), last),
        )  # when anything was recorded
        launch = event.launch if event else None
        until = min(launch.end, end) if launch else end
        running = [
            c for c in calls
            if waiting(c) and c.start <= start < c.end and (launch is None or c.thread == launch.thread)
        ]  # fmt: skip
        wait = length(clipped(loading, start, until)) if until > start else 0
        call = None
        if launch and launch.end <= start:
            cause = "queued"
        elif launch and start <= first and end - until > until - start:
            cause = "not recorded"  # the device worked on what was launched before the recording
        elif wait and 2 * wait >= until - start:
            cause = "data loader"
        elif running:
            call = min(running, key=lambda c: (c.thread, c.start))
            cause = "host copy" if id(call) in blocking else "synchronization"
        else:
            cause = "launch-bound" if launch else "not recorded"
        size = min(whole_end, high) - max(whole_start, low)
        if size > 0:
            name = (call.name or "").partition("_v")[0] if call else None
            launching = [(e.launch.process, e.launch.thread) for e in found.events if e.launch and e.worker == worker]
            usual = max(sorted(set(launching)), key=launching.count) if launching else None
            at = call or launch
            thread = (at.process, at.thread) if at else usual
            where, operator = place(found, thread, start, start if call else max(until, start), call)
            if cause == "queued":
                assert event
                owner = event.execution.operator
                where, operator = ("kernel of", owner)
            path = operator.name if operator and not operator.unassociated else None
            out.append((cause, name, where if path else None, path, size))
    return out


def place(found: Oracle, thread: tuple[int, int] | None, start: int, end: int, call: Launch | None) -> tuple[str, Any]:
    """Whether the thread was in an operator for most of a stretch of time, and that operator or the next one."""
    mine = [e for e in found.executions if e.thread == thread and not e.operator.unassociated]
    for one in mine:
        if call and any(c is call for c in one.api_calls):
            return "in", one.operator
    ranges = [
        r for r in found.what.ranges
        if (r.process, r.thread) == thread and r.end is not None and r.kind in (PUSH_POP, 3) and not is_step(r.text)
    ]  # fmt: skip

    def innermost(those: list[Any], time: int) -> Any:
        inside = [one for one in those if one.start <= time < max(one.end, one.start + 1)]
        return max(inside, key=lambda one: (one.start, -one.end, those.index(one)), default=None)

    edges = {edge for one in [*mine, *ranges] for edge in (one.start, one.end)}
    times: dict[Any, int] = defaultdict(int)
    firsts = {}
    cuts = [start, *sorted(edge for edge in edges if start < edge < end), end]
    for low, high in pairwise(cuts):
        execution, around = innermost(mine, low), innermost(ranges, low)
        key = (execution and id(execution.operator), around and around.text)
        firsts.setdefault(key, execution)
        times[key] += high - low
    execution = firsts[max(times, key=lambda key: times[key])]
    if execution:
        return "in", execution.operator
    after = min((e for e in mine if e.start >= start), key=lambda e: (e.start, -e.end), default=None)
    return "before", after and after.operator

# SPDX-License-Identifier: Apache-2.0
"""Reports about operators and what they launch: operator, kernel_summary, module, memory_copies, coverage."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.core.marker import CallMarker, decode
from pyprof.facts.steps.coverage import ledger
from pyprof.measures import efficiency
from tests.build import (
    Kernel,
    Launch,
    Op,
    Range,
    Recording,
    call,
    recording,
    scratch,
    write_nsys,
)
from tests.oracle import BEFORE, ON_TENSOR_CORES, Event, Oracle, clipped, length, suppose_launches
from tests.reports.stretches import SMS, occupancy
from tests.reports.test_oracle import KERNELS, load, pids, random_profile, random_recording, rows, seeds

NAMES = ("aten::linear", "aten::addmm", "aten::div", "aten::copy_", "AddmmBackward0")
EVENTS = tuple(
    call(name, *shapes, trace=trace)
    for name in NAMES
    for shapes, trace in ((((4, 8), (8, 2)), ("a.py:1",)), (((4, 8), (8, 2)), ("b.py:2", "a.py:1")), (((3,),), ()))
)  # fmt: skip


def random_events(seed: int, ranges: bool = False) -> Recording:
    """Nested operator events on three threads of two processes, with launches, API calls and user's ranges between.
    `ranges`: as push/pop ranges instead."""
    rng = random.Random(seed)
    lines: list[str] = []
    for _ in range(rng.randint(1, 6)):
        lines.append(f"thread {rng.choice([1, 1, 2])} process {rng.choice([100, 100, 200])}")
        for _ in range(rng.randint(1, 3)):
            lines += _item(rng, 0, ranges)
    out = recording("\n".join([*lines, *_event(rng, 0, ranges), f"    > 5 {KERNELS[0]}"]))
    if rng.random() < 0.5:
        end = max(k.end for k in out.kernels)
        marks = sorted(rng.sample(range(5, end), 3))
        out.steps = [(i, a, b) for i, (a, b) in enumerate(pairwise(marks))]
    return out


def _event(rng: random.Random, depth: int, ranges: bool) -> list[str]:
    indent = "    " * depth
    if ranges:
        sizes = rng.choice(["", ", sizes = [[4, 8], [8, 2]]"])
        return [f"{indent}{rng.choice(NAMES)}, seq = {rng.randint(1, 9)}{sizes}"]
    return [f"{indent}op {rng.choice(EVENTS)}"]


def _item(rng: random.Random, depth: int, ranges: bool) -> list[str]:
    indent, what = "    " * depth, rng.random()
    if what < 0.55 and depth < 4:
        inside = [line for _ in range(rng.randint(0, 2)) for line in _item(rng, depth + 1, ranges)]
        return [*_event(rng, depth, ranges), *inside]
    if what < 0.8:
        link = "correlation=none " if rng.random() < 0.1 else ""
        name = rng.choice((*KERNELS, "size=64 copy_kind=1 c", "size=16 s"))
        options = f"device={rng.choice([0, 0, 1])} grid={rng.choice([1, 200])},1,1 {link}"
        return [f"{indent}> {rng.randint(1, 60)} {options}{name}"]
    if what < 0.9:
        return [f"{indent}api {rng.randint(1, 30)} cudaStreamSynchronize_v3020"]
    return [f"{indent}user's range", f"{indent}    wait {rng.randint(1, 20)}"]


class Node:
    """An operator event; `name` as the dispatcher has it."""

    def __init__(self, one: Op | Range):
        marker = decode(one.text)
        described = isinstance(marker, CallMarker)
        self.name = marker.call.op if described else one.text.partition(", seq")[0]
        self.shapes = "; ".join(str(a.value.shape) for a in marker.call.args) if described else None
        if "sizes" in one.text and not described:
            self.shapes = "(4, 8); (8, 2)"
        self.stack = ("\n".join(marker.trace) or None) if described else None
        self.start, self.end, self.thread = one.start, one.end or one.start, (one.process, one.thread)
        self.children: list[Node] = []
        self.api: list[Any] = []
        self.events: list[Kernel] = []

    def inside(self) -> list[Kernel]:
        return self.events + [e for child in self.children for e in child.inside()]


def forest(what: Recording) -> tuple[list[Node], list[Kernel]]:
    """All events, and kernels that none launched."""
    found = [Node(one) for one in (*what.ops, *(r for r in what.ranges if r.text.startswith(NAMES)))]
    found.sort(key=lambda n: (n.start, -n.end))

    def around(thread: tuple[int, int], start: int, among: list[Node]) -> Node | None:
        here = [n for n in among if n.thread == thread and n.start <= start < n.end]
        return max(here, key=lambda n: n.start, default=None)

    roots = []
    for place, one in enumerate(found):
        parent = around(one.thread, one.start, found[:place])
        one.stack = one.stack or (parent.stack if parent else None)
        (parent.children if parent else roots).append(one)
    outside = []
    calls = {(c.process, c.correlation): c for c in what.launches}
    for one in what.launches:
        node = around((one.process, one.thread), one.start, found)
        if node:
            node.api.append(one)
    for kernel in what.kernels:
        launch = calls.get((kernel.process, kernel.correlation or 0))
        node = around((launch.process, launch.thread), launch.start, found) if launch else None
        (node.events if node else outside).append(kernel)
    return roots, outside


def merged(node: Node) -> None:
    while len(node.children) == 1 and node.children[0].name == node.name:
        only = node.children[0]
        node.children, node.api, node.events = only.children, node.api + only.api, node.events + only.events
    for child in node.children:
        merged(child)


def tensor(kernels: list[Kernel]) -> float | None:
    known = [k for k in kernels if k.size is None]
    total = sum(k.end - k.start for k in known)
    used = sum(k.end - k.start for k in known if ON_TENSOR_CORES.search(k.name))
    return 100 * used / total if total else None


def expected(what: Recording, low: int, high: int, by: str) -> list[dict[str, Any]]:
    """The report's rows of events that start, and launches of kernels outside, within [low, high]."""
    roots, outside = forest(what)
    groups: dict[Any, list[Node]] = defaultdict(list)

    def walk(node: Node) -> None:
        if low <= node.start < high:
            key = {"name": (node.name,), "shapes": (node.name, node.shapes),
                   "stack": (node.name, node.shapes, node.stack)}[by]  # fmt: skip
            groups[key].append(node)
        for child in node.children:
            walk(child)

    for root in roots:
        merged(root)
        walk(root)
    time = lambda kernels: sum(k.end - k.start for k in kernels)  # noqa: E731
    out = []
    for key, nodes in groups.items():
        own, every = [k for n in nodes for k in n.events], [k for n in nodes for k in n.inside()]
        host = sum(
            n.end - n.start - sum(c.end - c.start for c in n.children) - sum(min(a.end, n.end) - a.start for a in n.api)
            for n in nodes
        )
        out.append({
            **dict(zip(("name", "shapes", "stack"), key)), "calls": len(nodes), "device_self_ns": time(own),
            "device_total_ns": time(every), "host_self_ns": host, "host_total_ns": sum(n.end - n.start for n in nodes),
            "tc_eligible": key[0] in ("aten::linear", "aten::addmm", "AddmmBackward0"), "tc_self": tensor(own),
            "tc_total": tensor(every),
        })  # fmt: skip
    calls = {(c.process, c.correlation): c for c in what.launches}
    events = [Event(k, calls.get((k.process, k.correlation or 0))) for k in what.kernels]
    suppose_launches(events)
    begin = {id(event.raw): event.begin for event in events}
    rest = [k for k in outside if low <= begin[id(k)] < high]
    if rest:
        out.append({
            **dict.fromkeys(("name", "shapes", "stack")[: ("name", "shapes", "stack").index(by) + 1]),
            "name": "unassociated", "calls": None, "device_self_ns": time(rest), "device_total_ns": time(rest),
            "host_self_ns": None, "host_total_ns": None, "tc_eligible": None, "tc_self": tensor(rest),
            "tc_total": tensor(rest),
        })  # fmt: skip
    return out


def ordered(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(table, key=lambda row: [str(row.get(key)) for key in ("name", "shapes", "stack")])


def compare(what: Recording, prof: profiles.Profile) -> None:
    t0 = int(prof.database.meta["t0"])
    bounds = prof.database.rows(
        """select min(i.host_start_ns), max(i.host_end_ns), max(w.end_ns)
           from iteration i join worker w on w.id = i.worker
           where i.iteration_set = 1 group by i.worker"""
    )
    if len(bounds) > 1:
        low, high = 0, 1 << 60
    else:
        low, high = bounds[0][0] + t0, 1 << 60 if bounds[0][1] >= bounds[0][2] else bounds[0][1] + t0
    if prof.aggregation.method == "none":
        low = BEFORE
    if prof.aggregation.method == "marks":  # of process 100
        keep = copy.deepcopy(what)
        for part in (keep.ops, keep.ranges, keep.launches, keep.kernels):
            part[:] = [one for one in part if one.process == 100]  # type: ignore[index, attr-defined]
        what = keep
    for by in ("name", "shapes", "stack"):
        found = ordered(rows(prof.report("operator", by=by)))
        wanted = ordered(expected(what, low, high, by))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            one = {key: value for key, value in one.items() if key not in efficiency.KEYS}
            assert one == {key: pytest.approx(v) if isinstance(v, float) else v for key, v in other.items()}


@seeds(5, 3)
def test_every_cell_of_operator_events_equals_what_plain_python_makes_of_them(seed):
    what = random_events(seed)
    prof = load(what)
    if prof.aggregation.method in ("marks", "none"):
        compare(what, prof)


@seeds(10, 17)
def test_ranges_that_are_named_like_operators_are_operator_events(seed):
    what = random_events(seed, ranges=True)
    prof = profiles.load(write_nsys(Path(scratch()) / "a.sqlite", what))
    if prof.aggregation.method == "none":
        compare(what, prof)


def test_an_operator_has_its_own_time_and_that_of_what_is_inside():
    """linear 10..90 holds addmm 20..80, which launches 40 ns at 30..34 and waits 60..75 in a call (and in one that this
    makes, 62..75); linear launches a copy of 7 ns itself, at 84..88. A second addmm inside of an addmm is one with it.
    The last event has no length, and nothing follows it."""
    what = Recording(
        ops=[Op(call(f"aten::{name}"), a, b) for name, a, b in
             (("linear", 10, 90), ("addmm", 20, 80), ("addmm", 25, 78), ("relu", 99, 99))],
        launches=[],
        kernels=[Kernel("volta_h884gemm_64x64_ldg8_nn", 40, 80, 1), Kernel("c", 90, 97, 3, size=8, copy_kind=1)],
    )  # fmt: skip
    what.launches += [
        Launch(30, 34, 1),
        Launch(60, 75, 2, name="cudaStreamSynchronize_v1"),
        Launch(62, 75, 4),
        Launch(84, 88, 3),
    ]
    found = {r.pop("name"): r for r in rows(load(what).report("operator"))}
    keys = (
        "calls",
        "device_self_ns",
        "device_total_ns",
        "host_self_ns",
        "host_total_ns",
        "tc_self",
        "tc_total",
    )
    assert {name: tuple(row[key] for key in keys) for name, row in found.items()} == {
        "aten::addmm": (1, 40, 40, 60 - 4 - 15, 60, 100.0, 100.0),
        "aten::linear": (1, 7, 47, 80 - 60 - 4, 80, None, 100.0),
        "aten::relu": (1, 0, 0, 0, 0, None, None),
    }


def test_events_that_overlap_by_rounding_are_still_nested():
    """relu begins in linear and ends 1 ns after it."""
    what = Recording(
        ops=[Op(call("aten::linear"), 10, 50), Op(call("aten::relu"), 40, 51)], kernels=[Kernel("k", 60, 70)]
    )
    found = {r["name"]: r for r in rows(load(what).report("operator"))}
    assert (found["aten::linear"]["host_self_ns"], found["aten::relu"]["host_self_ns"]) == (29, 11)


def test_without_operator_events_the_marked_calls_stand_for_them(prof, on_cpu):
    names = prof.report("operator")["name"].tolist()
    assert names == ["torch.mm", "unassociated", "torch.relu", "torch.nn.functional.cross_entropy"]
    found = on_cpu.report("operator")
    assert set(found["name"]) == {"mm", "relu", "aten::mm", "aten::relu"}  # events, not marks
    assert found[["device_self_ns", "device_total_ns", "tc_self"]].isna().all().all()


@seeds(10, 30)
def test_kernels_of_a_name_and_of_a_launch_add_up(seed):
    what, prof = random_profile(seed)
    if prof.aggregation.method != "none":
        return
    found = {r["name"]: r for r in rows(prof.report("kernel_summary"))}
    kernels: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in what.kernels:
        if kernel.size is None:
            kernels[kernel.name].append(kernel)
    assert set(found) == set(kernels)
    for name, mine in kernels.items():
        times = [k.end - k.start for k in mine]
        known = [(k.end - k.start, k.grid[0]) for k in mine if k.device == 0]
        whole = sum(time for time, _ in known)
        row = found[name]
        assert (row["calls"], row["total_ns"], row["max_ns"], row["min_ns"]) == (
            len(mine), sum(times), max(times), min(times)
        )  # fmt: skip
        assert row["mean_ns"] == sum(times) / len(times)
        assert row["tc"] == bool(ON_TENSOR_CORES.search(name))
        blocks = sum(time * grid / SMS for time, grid in known) / whole if known else None
        share = sum(time * occupancy(grid) for time, grid in known) / whole if known else None
        assert row["blocks_per_sm"] == (None if blocks is None else pytest.approx(blocks))
        assert row["occupancy"] == (None if share is None else pytest.approx(share))
    fine = rows(prof.report("kernel_summary", by="properties"))
    for name in kernels:
        mine_rows = [r for r in fine if r["name"] == name]
        assert sum(r["total_ns"] for r in mine_rows) == found[name]["total_ns"]
        assert sum(r["calls"] for r in mine_rows) == found[name]["calls"]
        assert {r["grid"] for r in mine_rows} == {f"{k.grid[0]}, 1, 1" for k in kernels[name]}
    assert {(r["block"], r["registers"], r["shared_memory"]) for r in fine} == {("32, 1, 1", 16, 0)}


def test_a_kernel_is_named_with_the_operator_and_the_launch(prof):
    found = rows(prof.report("kernel_summary", by="properties"))
    places = {(r["name"].partition("(")[0], r["operator"], r["grid"], r["block"], r["calls"]) for r in found}
    assert ("volta_h884gemm_64x64_ldg8_nn", "mm", "40, 1, 1", "128, 1, 1", 2) in places
    assert ("mystery", "cross_entropy", "1, 1, 1", "32, 1, 1", 2) in places
    assert ("mystery", None, "1, 1, 1", "32, 1, 1", 2) in places
    eligible = {r["operator"]: r["tc_eligible"] for r in found}
    assert (eligible["mm"], eligible["cross_entropy"], eligible[None]) == (True, False, None)


def test_kernels_can_be_grouped_by_what_launched_them() -> None:
    """Two calls of mm and one of relu, of 40, 20 and 5 ns on stream 7, and a kernel of 9 ns on stream 8 that nothing
    launched. The last three are in the second of two steps."""
    mm = call("torch.mm", (4, 8), (8, 2), trace=("train.py:9", "model.py:3"), module="net")
    relu = call("torch.relu", (4, 2), trace=("train.py:9", "model.py:4"), module="net.act")
    what = recording(f"""
        {mm}
            > 40 gemm
        {mm}
            > 20 gemm
        {relu}
            > 5 relu_kernel
        > 9 stream=8 other
    """)
    second = what.launches[1].start - 1
    what.steps = [(5, 0, second), (6, second, max(kernel.end for kernel in what.kernels))]
    prof = load(what)
    expected = {
        "step": {(0,): (1, 40), (1,): (3, 34)},
        "module": {("net",): (2, 60), ("net.act",): (1, 5), (None,): (1, 9)},
        "line": {("model.py:3",): (2, 60), ("model.py:4",): (1, 5), (None,): (1, 9)},
        "shapes": {
            ("mm", "(4, 8); (8, 2)"): (2, 60), ("relu", "(4, 2)"): (1, 5), (None, None): (1, 9),
        },
        "stream": {("host_100", 0, 7): (3, 65), ("host_100", 0, 8): (1, 9)},
    }  # fmt: skip
    for value, groups in expected.items():
        table = prof.report("kernel_summary", by=value)
        keys = list(table)[: list(table).index("tc")]
        assert {tuple(row[key] for key in keys): (row["calls"], row["total_ns"]) for row in rows(table)} == groups
        assert list(table["total_ns"]) == sorted(table["total_ns"], reverse=True)


def test_kernels_of_an_operator_are_those_of_its_launches(prof):
    sums: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows(prof.report("kernel_summary", by="properties")):
        one = sums[row["name"], row["operator"], row["tc_eligible"]]
        one[0], one[1] = one[0] + row["calls"], one[1] + row["total_ns"]
    found = rows(prof.report("kernel_summary", by="operator"))
    assert {
        (row["name"], row["operator"], row["tc_eligible"]): [row["calls"], row["total_ns"]] for row in found
    } == sums
    assert len(found) == len(sums)
    assert "grid" not in found[0]


@seeds(10, 30)
def test_copies_equal_what_plain_python_makes_of_them(seed):
    what, prof = random_profile(seed)
    if prof.aggregation.method != "none":
        return
    found = Oracle(what, {0: SMS}, pids(prof))
    names = [name for (name,) in prof.database.rows("select name from worker order by id")]
    groups: dict[Any, list[Any]] = defaultdict(list)
    for event in found.events:
        if event.kind != "kernel":
            operator = event.execution.operator
            path = None if operator.unassociated else (operator.name, operator.stack)
            kind = {1: "HtoD", 2: "DtoH", 10: "PtoP", None: "memset"}[event.raw.copy_kind]
            groups[names[event.worker], event.raw.device, kind, path].append(event)
    table = rows(prof.report("memory_copies"))
    key = lambda row: str(sorted(map(str, row.items())))  # noqa: E731
    expected = []
    for (worker, device, kind, path), mine in groups.items():
        kernels = [e.span for e in found.events if e.kind == "kernel" and e.raw.device == device
                   and names[e.worker] == worker]  # fmt: skip
        total, size = sum(e.dur for e in mine), sum(e.raw.size for e in mine)
        expected.append({
            "worker": worker, "device": device, "kind": kind, "source": None, "target": None,
            "operator": path[0] if path else None, "stack": path[1] if path else None,
            "calls": len(mine), "bytes": size, "total_ns": total, "gb_per_s": size / total,
            "exposed_ns": sum(e.dur - length(clipped(kernels, *e.span)) for e in mine),
        })  # fmt: skip
    assert sorted(table, key=key) == sorted(expected, key=key)


@seeds(10, 30)
def test_a_module_is_its_own_time_and_that_of_the_modules_inside(seed):
    _, prof = random_profile(seed)
    table = {r["module"]: r for r in rows(prof.report("module"))}
    detail = rows(prof.report("detail"))
    for kind, name in (("host", "cpu"), ("device", "gpu")):
        assert sum(r[f"{kind}_self_ns"] for r in table.values()) == sum(r[name] for r in detail)
        for path, row in table.items():
            mine = [r for r in detail if (r["module"] or "") == path]
            below = [r for r in detail if path and (r["module"] or "").startswith(f"{path}.")]
            assert row[f"{kind}_self_ns"] == sum(r[name] for r in mine)
            assert row[f"{kind}_total_ns"] == sum(r[name] for r in mine + below)
            assert row["occurrences"] == sum(r["calls"] for r in mine)
            assert row["operators"] == len(mine + below)
            assert row["depth"] == path.count(".")
    assert set(table) >= {r["module"] or "" for r in detail}


def test_modules_come_as_they_run():
    """Not by name: layer 10 runs after layer 9."""
    layers = ("net.9", "net.10.b", "net.10.a", "head", "net.9.act")
    text = "\n".join(f"{call('torch.relu', (4,), module=layer)}\n    > 10 relu" for layer in layers)
    table = load(recording(text)).report("module")
    assert list(table["module"]) == ["net", "net.9", "net.9.act", "net.10", "net.10.b", "net.10.a", "head"]


@seeds(10)
def test_the_ledger_says_what_is_not_known_of_each_worker(seed):
    what = random_recording(seed)
    what.kernels.append(Kernel(KERNELS[0], 500, 517, None))
    prof = load(what)
    kernels = prof.kernels[(prof.kernels["kind"] == "kernel") & prof.kernels["step"].notna()]
    mine = [r for r in rows(prof.report("coverage")) if r["line"] != "dropped"]
    for worker in {r["worker"] for r in mine}:
        here = kernels[kernels["worker"] == worker]
        for line, column in (
            ("FLOPs", "flops"), ("bytes", "bytes"), ("launch record", "launch_ns"), ("module", "module"),
            ("source line", "source"),
        ):  # fmt: skip
            parts = {r["part"]: r for r in mine if (r["worker"], r["line"]) == (worker, line)}
            unknown = here[here[column].isna()]
            found = parts.get("unknown", {"time": 0, "count": 0})
            assert (found["time"], found["count"]) == (unknown["duration_ns"].sum(), len(unknown))
            assert sum(r["time"] for r in parts.values()) == here["duration_ns"].sum()
            assert sum(r["share"] for r in parts.values()) == pytest.approx(100)
    whole = prof.coverage
    if prof.aggregation.method == "none":
        for row in rows(whole[whole["line"] != "dropped"]):
            found = [r for r in mine if (r["line"], r["part"]) == (row["line"], row["part"])]
            assert (row["time_ns"], row["count"]) == (
                sum(r["time"] for r in found),
                sum(r["count"] for r in found),
            )


@seeds(5)
def test_pieces_of_a_run_add_up(seed):
    what = random_events(seed)
    end = max(k.end for k in what.kernels)
    what.steps = [(0, 1, end // 3), (1, end // 3, end // 2), (2, end // 2, end)]
    if not any(k.process == 100 for k in what.kernels):
        return
    prof = load(what)

    def figures(chosen: profiles.Profile) -> dict[Any, int]:
        out: dict[Any, int] = defaultdict(int)
        for name, keys, sums in (
            (
                "operator",
                ("name",),
                ("calls", "device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns"),
            ),
            ("kernel_summary", ("name",), ("calls", "total_ns")),
            ("memory_copies", ("worker", "kind", "operator"), ("calls", "total_ns", "bytes", "exposed_ns")),
            ("coverage", ("worker", "line", "part"), ("time", "count")),
        ):
            for row in rows(chosen.report(name)):
                if row.get("line") != "dropped":
                    for column in sums:
                        out[(name, column, *(row[key] for key in keys))] += row[column] or 0
        return {key: value for key, value in out.items() if value}

    whole = figures(prof)
    added: dict[Any, int] = defaultdict(int)
    for first, last in ((0, 0), (1, 2)):
        prof.aggregate(first, last)
        for key, value in figures(prof).items():
            added[key] += value
    assert added == whole


def test_an_operator_without_a_stack_has_that_of_the_call_around_it():
    """In a call that was recorded with its stack torch's operators, which have none, were called from there."""
    call_ = call("torch.nn.functional.linear", (4, 8), (2, 8), trace=("train.py:9", "net.py:4"))
    what = recording(
        f"{call_}\n    op aten::linear\n        op aten::addmm\n            wait 5\nop aten::add\n    wait 7\n"
    )
    found = {row["name"]: row["stack"] for row in rows(load(what).report("operator", by="stack"))}
    assert found == {
        "aten::linear": "train.py:9\nnet.py:4",
        "aten::addmm": "train.py:9\nnet.py:4",
        "aten::add": None,
    }


def test_what_runs_backward_has_the_stack_of_its_forward():
    call_ = call("torch.nn.functional.linear", (4, 8), (2, 8), trace=("train.py:9", "net.py:4"))
    what = recording(f"""
{call_}
    op seq=3 aten::addmm
        > 20 volta_sgemm
thread 2
op seq=3 forward=1 AddmmBackward0
    op aten::mm
        > 30 volta_sgemm
op seq=4 forward=1 MulBackward0
    wait 5
""")
    found = {row["name"]: row["stack"] for row in rows(load(what).report("operator", by="stack"))}
    assert found == {
        "aten::addmm": "train.py:9\nnet.py:4",
        "AddmmBackward0": "train.py:9\nnet.py:4",
        "aten::mm": "train.py:9\nnet.py:4",
        "MulBackward0": None,  # nothing is known of what it belongs to
    }


def test_a_profile_has_more_parts_than_a_condition_may_have():
    """SQLite nests "a or b or c": 1,000 ranks were too deep for it."""
    what = random_recording(7)
    profile = load(what)
    store = profile.database
    event = [row[0] for row in store.rows("select id from event order by id")]
    each = [(one, one + 1) for one in event[::2]]
    apart = ledger(store, [*each, *((i + (1 << 50), i + (1 << 50)) for i in range(5000))])
    together = [ledger(store, [span]) for span in each]
    kernels = apart[apart["line"] == "FLOPs"]
    assert kernels["count"].sum() == sum(t[t["line"] == "FLOPs"]["count"].sum() for t in together) > 1

# SPDX-License-Identifier: Apache-2.0
"""Replays of graphs get the operators of their capture: what is certain, and never another's."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.export import Window
from pyprof.export.flames import cpu_time
from pyprof.parse import loader
from pyprof.parse.graph_replays import UNMATCHED, certain
from pyprof.parse.rows import rows
from tests.build import LONG

Event = dict[str, Any]
LAYER = ("gemm", "norm", "gemm", "act")
OPERATORS = {"gemm": "aten::mm", "norm": "aten::rms_norm", "act": "aten::silu", "embed": "aten::embedding"}


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    gpu = cat == "kernel"
    return {"ph": "X", "cat": cat, "name": name, "pid": 0 if gpu else 1, "tid": 7 if gpu else 1, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def capture(graphs: Sequence[Sequence[str]], rows: int = 8, first_node: int | None = None) -> list[Event]:
    """A trace of the capture of some graphs: each kernel launched in an operator, in the module of its graph."""
    out, clock, node = [], 0.0, itertools.count(first_node or 0)
    for number, names in enumerate(graphs):
        out.append(event("cuda_runtime", "cudaStreamBeginCapture", clock, 1, correlation=1))
        begin, clock = clock, clock + 2
        for name in names:
            shapes = {"Input Dims": [[rows, 4]], "Input type": ["float"]}
            out.append(event("cpu_op", OPERATORS[name], clock, 8, **shapes))
            told = {"graph node id": next(node)} if first_node is not None else {"kernel": name}
            out.append(event("cuda_runtime", "cudaLaunchKernel", clock + 1, 2, correlation=1, **told))
            clock += 10
        out.append(event("python_function", f"nn.Module: Layer_{number}", begin, clock - begin))
        out.append(event("cuda_runtime", "cudaStreamEndCapture", clock, 1, correlation=1))
        clock += 5
    return out


def replay(graphs: Sequence[Sequence[str]], first_node: int | None = None) -> list[Event]:
    """A trace of one launch per graph, and its kernels."""
    out, clock, node = [], 0.0, itertools.count(first_node or 0)
    for number, names in enumerate(graphs, 1):
        out.append(event("cuda_runtime", "cudaGraphLaunch", clock, 5, correlation=number))
        for name in names:
            told = {"graph node id": next(node)} if first_node is not None else {}
            out.append(event("kernel", name, clock + 10, 3, correlation=number, device=0, stream=7, **told))
            clock += 4
        clock += 20
    return out


def joined(folder: Path, replayed: list[Event], *captures: list[Event]) -> list[tuple[str, str, str | None]]:
    """Name, operator and module of each kernel, in order."""
    for number, events in enumerate(captures):
        path = folder / "capture_traces" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"traceEvents": events}))
    (folder / "replay.json").write_text(json.dumps({"traceEvents": replayed}))
    made = rows(loader.load(folder / "replay.json"))
    sites = [made.sites[code] for code in made.site.tolist()]
    return [
        (made.names[name], site.ops[0] if site.ops else "", site.module)
        for name, site in zip(made.name.tolist(), sites)
    ]


def whole(graphs: Sequence[Sequence[str]]) -> list[tuple[str, str, str | None]]:
    return [(n, OPERATORS[n], f"Layer_{i}") for i, names in enumerate(graphs) for n in names]


MODEL = (("embed", "norm"), LAYER, LAYER, LAYER, ("norm", "gemm"))


def test_a_replay_of_everything_is_matched_in_order(tmp_path: Path) -> None:
    assert joined(tmp_path, replay(MODEL), capture(MODEL)) == whole(MODEL)


def test_two_replays_of_everything(tmp_path: Path) -> None:
    assert joined(tmp_path, replay(MODEL * 2), capture(MODEL)) == whole(MODEL) * 2


def test_without_a_capture_nothing_is_known(tmp_path: Path) -> None:
    found = joined(tmp_path, replay(MODEL))
    assert {(op, module) for _, op, module in found} == {("", None)}


def test_a_layer_that_could_be_any_of_three_has_no_module(tmp_path: Path) -> None:
    """One of three equal layers was not replayed, and which one cannot be known: the operators can."""
    less = (MODEL[0], LAYER, LAYER, MODEL[-1])
    found = joined(tmp_path, replay(less), capture(MODEL))
    assert found == [
        *((n, OPERATORS[n], "Layer_0") for n in MODEL[0]),
        *((n, OPERATORS[n], None) for n in LAYER * 2),
        *((n, OPERATORS[n], "Layer_4") for n in MODEL[-1]),
    ]


def test_captures_that_differ_in_shapes_alone_give_nothing(tmp_path: Path) -> None:
    found = joined(tmp_path, replay([LAYER]), capture([LAYER], 8), capture([LAYER], 16))
    assert {op for _, op, _ in found} == {""}


def test_the_batch_size_of_the_execution_decides(tmp_path: Path) -> None:
    told = [{"file": "0.json", "batch_size": 8}, {"file": "1.json", "batch_size": 16}]
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "execution_details.json").write_text(json.dumps(told))
    around = event("user_annotation", "execute_16_context_1(sq16)_generation_0()", -1, 100)
    joined(tmp_path, [around, *replay([LAYER])], capture([LAYER], 8), capture([LAYER], 16))
    made = rows(loader.load(tmp_path / "replay.json"))
    shapes = {site.calls[-1].args[0].value.shape for site in made.sites}  # type: ignore[union-attr]
    assert shapes == {(16, 4)}


def test_nodes_come_before_names(tmp_path: Path) -> None:
    """The second graph's nodes are replayed: names alone would take the first."""
    found = joined(tmp_path, replay([LAYER], first_node=104), capture([LAYER, LAYER], first_node=100))
    assert found == [(n, OPERATORS[n], "Layer_1") for n in LAYER]


def test_a_replay_of_something_else_is_left_alone(tmp_path: Path) -> None:
    found = joined(tmp_path, replay([("sort", "scan", "gemm", "topk")]), capture(MODEL))
    assert {op for _, op, _ in found} == {""}


@pytest.mark.counts
@pytest.mark.parametrize("seed", range(40 if LONG else 10))
def test_certain_is_what_every_longest_common_sequence_has(seed: int) -> None:
    """Against all longest common sequences of short texts, one by one."""
    draw = random.Random(seed)
    first, second = ("".join(draw.choices("abc", k=draw.randint(0, 6))) for _ in range(2))
    every = [
        dict(zip(left, right))
        for size in range(min(len(first), len(second)) + 1)
        for left in itertools.combinations(range(len(first)), size)
        for right in itertools.combinations(range(len(second)), size)
        if all(first[i] == second[j] for i, j in zip(left, right))
    ]
    longest = max(map(len, every))
    places = [{one.get(i, -1) for one in every if len(one) == longest} for i in range(len(first))]
    expected = [found.pop() if len(found) == 1 else -1 for found in places]
    assert certain(first, second) == expected


# --- a server's own traces


@pytest.fixture
def server(data: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "vllm"
    shutil.copytree(data / "kineto" / "mi300_vllm_prefilldecode_piecewise", folder)
    return folder


def operators(path: Path) -> dict[tuple[int, str], tuple[str, str | None, Any]]:
    """Operator, module and inputs of each kernel, by its absolute start and name."""
    trace = loader.load(path)
    made, out = rows(trace), {}
    for start, name, code in zip(made.start.tolist(), made.name.tolist(), made.site.tolist()):
        site = made.sites[code]
        inputs = site.calls[-1] if site.calls else None
        out[start + trace.t0, made.names[name]] = site.ops[0] if site.ops else "", site.module, inputs
    return out


def test_every_kernel_of_a_server_gets_its_operator(server: Path) -> None:
    """All 25 graphs have the names of the captured ones, in order: 361 kernels, of 413, that no operator launched."""
    profile = pyprof.load(server / "graph_execution.json.gz")
    with_capture = profile.coverage.set_index(["line", "part"])["count"]
    assert profile.trace.meta["graph_replay.confidence"] == "100.0 %"
    assert profile.trace.meta["graph_replay.matched"] == profile.trace.meta["graph_replay.kernels"] == "361"
    shutil.rmtree(server / "capture_traces")
    without = pyprof.load(server / "graph_execution.json.gz").coverage.set_index(["line", "part"])["count"]
    assert without["operator", "known"] == 52
    assert without["operator", "unknown"] == 361  # a range around a step is nobody's in particular
    assert with_capture["operator", "known"] == with_capture["operator shapes", "known"] == 413


@pytest.mark.long
@pytest.mark.counts
@pytest.mark.parametrize("seed", range(4 if LONG else 2))
def test_mutated_replays_never_get_a_wrong_operator(server: Path, seed: int) -> None:
    path = server / "graph_execution.json.gz"
    truth = operators(path)
    draw = random.Random(seed)
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document["traceEvents"]
    graphs = {e["args"]["correlation"] for e in events if e.get("name") == "hipGraphLaunch"}
    kernels = [e for e in events if e.get("cat") == "kernel" and e["args"]["correlation"] in graphs]
    for chosen in draw.sample(kernels, draw.randint(1, 12)):
        if draw.random() < 0.5:
            events.remove(chosen)
        else:
            events.append(dict(chosen, ts=round(chosen["ts"] + chosen["dur"] + 0.001, 3), dur=0.0))
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    trace = loader.load(path)
    assert float(trace.meta["graph_replay.confidence"].rstrip(" %")) < 100
    assert trace.lost.get(UNMATCHED, 0) == int(trace.meta["graph_replay.kernels"]) - int(
        trace.meta["graph_replay.matched"]
    )
    found = operators(path)
    names = {key: value for key, value in found.items() if key in truth}
    assert len(names) > 350
    assigned = 0
    for key, (op, module, told) in names.items():
        if op:
            assigned += 1
            assert (op, told) == (truth[key][0], truth[key][2])
            assert module in (None, truth[key][1])
    assert assigned > 300


def test_operators_of_a_replay_have_no_time_on_the_cpu(tmp_path: Path) -> None:
    """The graph's five kernels of 3 us, and an aten::mm of 40 us that was launched by itself."""
    graph = ("gemm", "norm", "gemm", "act", "gemm")
    alone = [
        event("cpu_op", "aten::mm", 1000, 40),
        event("cuda_runtime", "cudaLaunchKernel", 1005, 10, correlation=99),
        event("kernel", "gemm", 1020, 7, correlation=99, device=0, stream=7),
    ]
    assert len(joined(tmp_path, [*replay([graph]), *alone], capture([graph]))) == 6
    profile = pyprof.load(tmp_path / "replay.json")
    types = profile.report("op_type").set_index("type")
    times = ["calls", "cpu", "cpu_avg", "cpu_min", "cpu_max", "overhead", "gpu"]
    assert types.loc["mm", times].tolist() == [4, 40_000, 40_000, 40_000, 40_000, 30_000, 16_000]
    for name in ("rms_norm", "silu"):
        assert types.loc[name, "calls"] == 1
        assert types.loc[name, "gpu"] == 3_000
        assert types.loc[name, times[1:6]].isna().all()
    ops = profile.ops[profile.ops["type"].isin(["mm", "rms_norm", "silu"])]
    assert ops[["cpu_ns", "overhead_ns"]].dropna().values.tolist() == [[40_000, 30_000]]
    assert (ops["end_ns"] - ops["start_ns"]).dropna().tolist() == [40_000]
    events = profile.report("operator").set_index("name")
    assert events.loc["aten::mm", ["calls", "host_self_ns", "host_total_ns"]].tolist() == [4, 30_000, 40_000]
    assert events.loc["aten::silu", ["host_self_ns", "host_total_ns"]].isna().all()
    groups = profile.report("group_node").set_index("name")
    assert groups.loc["/", ["calls", "cpu", "cpu_avg"]].tolist() == [
        7,
        45_000,
        22_500,
    ]  # with the graph's launch
    assert groups.loc["Layer_0/", ["cpu", "cpu_avg", "cpu_min"]].isna().all()
    modules = profile.report("module").set_index("module")["host_total_ns"]
    assert modules.isna().tolist() == [False, True]
    same = profile.diff(profile, by="operator")
    assert same.set_index("name")["delta_host_ns"].isna()["silu"]
    store = profile.database
    assert not [stack for stack in cpu_time(store, Window()) if "silu" in stack]

# SPDX-License-Identifier: Apache-2.0
"""A real run under torch.profiler, with every combination of its flags, against our own capture of the same run.

Two runs, for only one profiler records at a time: the program is the same each time. What the two see differently is in
docs/kineto.md, and here as exceptions.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.profiler import profile, tensorboard_trace_handler

import pyprof
from pyprof.core.marker import STOPPED, decode
from pyprof.core.model import BPROP, DIRECTIONS, PHASES, Call, Tensor, Value
from pyprof.parse import formats, loader
from pyprof.parse.backward_links import pair
from pyprof.parse.join import nest_spans
from pyprof.parse.rows import linked
from tests.build import LONG
from tests.parse import kineto_program
from tests.parse.kineto_program import Program

pytestmark = pytest.mark.counts
FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
# All 32 in the long form; else none, each alone, and all.
COMBINATIONS = [
    frozenset(flag for flag, on in zip(FLAGS, chosen) if on)
    for chosen in itertools.product((False, True), repeat=5)
    if LONG or sum(chosen) in (0, 1, 5)
]
EVERYWHERE = frozenset(("everywhere", "with_stack", "with_modules", "record_shapes"))  # all threads
ACCUMULATE = "torch::autograd::AccumulateGrad"


Recorded = tuple[list["Row"], dict[frozenset[str], Path], Program]
Both = tuple[list["Row"], list["Row"], frozenset[str], Path, Program]


class Row(NamedTuple):
    """An operator of a recording. `number` counts from the first of its thread's, `forward` is the row of its forward,
    `main` whether it ran on the thread that ran most."""

    name: str
    direction: str
    phase: str
    number: int | None
    forward: int | None
    call: Call
    frames: tuple[str, ...]
    module: str | None
    start: int
    own: int
    main: bool


@cache
def read(path: Path) -> list[Row]:
    trace = loader.load(path)
    found = nest_spans(trace)
    forward, boundary, event = pair(trace, found), found.boundary.copy(), found.event.copy()
    made = linked(trace, found, forward)
    of_span = {span: row for row, span in enumerate(made.row_span.tolist())}
    of, ops = made.rows, trace.ops
    tids = of.tid.values.tolist()
    main = max(tids, key=tids.count)
    first: dict[int, int] = {}  # a thread's numbers go on from run to run
    out = []
    for row, span in enumerate(made.row_span.tolist()):
        site, tid = of.sites[of.site[row]], int(of.tid.values[row])
        origin = int(of.forward_thread.values[row]) if of.forward_thread.mask()[row] else tid
        number = None
        if of.seq.mask()[row]:
            number = int(of.seq.values[row]) - first.setdefault(origin, int(of.seq.values[row]))
        # Two events of one number: the row counts from the outermost, whatever its thread.
        node = int(boundary[span]) if site.direction == BPROP else -1
        marker = decode(trace.strings[int(ops.text[event[span]])])
        out.append(Row(
            of.names[of.name[row]], DIRECTIONS[site.direction], PHASES[site.phase], number,
            of_span.get(int(forward[node])) if node >= 0 and forward[node] >= 0 else None, marker.call, site.trace,
            site.module, int(of.start[row]), int(of.duration[row]), tid == main,
        ))  # fmt: skip
    assert of.lost == {}
    return out


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Rows of our own capture, the files of torch.profiler, and the program."""
    folder, program = tmp_path_factory.mktemp("traces"), Program()
    program()  # what happens once has happened
    files = {}
    for place, flags in enumerate(COMBINATIONS):
        with profile(**dict.fromkeys(flags, True)) as recording:
            program()
        files[flags] = folder / f"trace{place}.json"
        recording.export_chrome_trace(str(files[flags]))
    handler = tensorboard_trace_handler(str(folder / "board"), "worker", use_gzip=True)
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(
        experimental_config=config,
        on_trace_ready=handler,
        with_stack=True,
        with_modules=True,
        record_shapes=True,
    ):
        program()
    (files[EVERYWHERE],) = (folder / "board").iterdir()
    with pyprof.profile(str(folder / "net.sqlite")):
        program()
    pyprof.shutdown()
    return read(folder / "net.sqlite"), files, program


@pytest.fixture(params=[*COMBINATIONS, EVERYWHERE], ids=lambda flags: "+".join(sorted(flags)) or "none")
def both(request: pytest.FixtureRequest, recorded: Recorded) -> Both:
    """Rows of ours and of torch.profiler's, which records the thread that it starts in, unless asked for all."""
    ours, files, program = recorded
    flags = request.param
    theirs = read(files[flags])
    return (
        ours if flags == EVERYWHERE else [row for row in ours if row.main],
        theirs,
        flags,
        files[flags],
        program,
    )


def test_same_operators_directions_phases_numbers_and_pairs(both: Both) -> None:
    ours, theirs, *_ = both
    assert [row[:5] for row in theirs] == [row[:5] for row in ours]
    assert {row.phase for row in theirs} == {"forward", "backward", "recompute", "optimizer"}
    assert sum(row.forward is not None for row in theirs) > 100


def without_stop(row: Row) -> Row:
    """The row without what is known of an early stop, which depends on what was recorded."""
    return row._replace(call=row.call._replace(args=tuple(arg for arg in row.call.args if arg.name != STOPPED)))


def test_early_stops_as_far_as_they_can_be_known(both: Both) -> None:
    """Our capture marks them and Python functions prove them; without both the last operator may have been stopped."""
    ours, theirs, flags, *_ = both
    for our, their in zip(ours, theirs):
        (mine, told) = ({arg.value for arg in row.call.args if arg.name == STOPPED} for row in (our, their))
        assert mine in (set(), {True})
        assert told == mine or ("with_stack" not in flags and (told, mine) == ({None}, {True}))


def without_list_types(value: Value) -> Value:
    if isinstance(value, tuple) and not isinstance(value, Tensor):
        return tuple(item._replace(dtype=None) if isinstance(item, Tensor) else item for item in value)
    return value


def test_same_calls_where_shapes_were_recorded(both: Both) -> None:
    ours, theirs, flags, *_ = both
    shapes = bool(flags & {"record_shapes", "with_flops"})  # FLOPs need shapes
    compared = 0
    for row in ours, theirs:
        assert any(arg.name == STOPPED for one in row for arg in one.call.args)
    for our, their in zip(map(without_stop, ours), map(without_stop, theirs)):
        if not shapes:
            assert (their.call.mod, their.call.op, their.call.args) == (our.call.mod, our.call.op, ())
            continue
        assert (their.call.mod, their.call.op) == (our.call.mod, our.call.op)
        mine, told = ([arg.value for arg in row.call.args] for row in (our, their))
        if our.name == ACCUMULATE:  # we say whose gradient it is
            assert [told[0]._replace(stride=None)] == [mine[-1]._replace(stride=None)]
        elif our.name == "CheckpointFunction":  # torch tells a Function's scalars to a profiler of one thread only
            assert told == (mine if flags == EVERYWHERE else [True, *mine])
        else:
            assert told == [without_list_types(value) for value in mine], our.name
            compared += 1
    assert compared > 500 or not shapes


def exact(microseconds: Decimal) -> int:
    found = microseconds * 1000
    assert found == int(found)
    return int(found)


def oracle(path: Path) -> list[tuple[str, int, int]]:
    """Name, start and self time of each operator of a trace, from its text, one event after the other."""
    raw = formats.kineto.texts.read(path, {})  # type: ignore[attr-defined]
    events = json.loads(raw, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    chosen = [e for e in events if e["ph"] == "X" and e.get("cat") == "cpu_op"]
    out: list[list[Any]] = []
    for tid in {e["tid"] for e in chosen}:
        mine = [e for e in chosen if e["tid"] == tid]
        mine.sort(key=lambda e: (e["ts"], -e["dur"], e["args"]["Ev Idx"]))
        stack: list[tuple[int, list[Any] | None]] = []  # end, and the row if it is one
        for e in mine:
            start, length = exact(e["ts"]), exact(e["dur"])
            while stack and stack[-1][0] <= start:
                stack.pop()
            row = None
            if not e["name"].startswith("autograd::engine::evaluate_function"):
                row = [e["name"], start, length]
                outer = next((above for _, above in reversed(stack) if above is not None), None)
                if outer is not None:
                    outer[2] -= length
                out.append(row)
            stack.append((start + length, row))
    out.sort(key=lambda row: row[1])
    return [tuple(row) for row in out]  # type: ignore[misc]


def test_self_times_are_those_of_the_text(both: Both) -> None:
    ours, theirs, _, path, _ = both
    expected = oracle(path)
    shift = theirs[0].start - expected[0][1]
    assert [(row.name, row.start - shift, row.own) for row in theirs] == expected
    # Two runs, and one of them with a tracer of Python: the order of magnitude.
    assert 1 / 50 < sum(row.own for row in ours) / sum(row.own for row in theirs) < 50


@cache
def functions() -> list[tuple[int, int, str]]:
    """First and last lines of the functions of the program, and their names. A decorator is a part, as for Python."""
    tree = ast.parse(Path(kineto_program.__file__).read_text())
    return [
        (min([n.lineno, *(d.lineno for d in n.decorator_list)]), n.end_lineno or 0, ast.unparse(n))
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef)
    ]


def begin(line: int) -> int:
    """The first line of the function that a line is in: torch's own profiler notes this one."""
    return max(first for first, last, _ in functions() if first <= line <= last)


def inside_function(line: int) -> bool:
    """Whether this is the forward or backward of the Function."""
    return any(first == line and "ctx" in text for first, _, text in functions())


def test_frames_are_the_functions_around_our_lines(both: Both) -> None:
    ours, theirs, flags, *_ = both
    if "with_stack" not in flags:
        assert not any(row.frames for row in theirs)
        return
    silent = set()
    for our, their in zip(ours, theirs):
        mine, told = ([frame.rpartition(":") for frame in row.frames] for row in (our, their))
        if not our.main and not told:  # torch traces Python in the threads that are there when it begins
            continue
        if not mine or our.name == ACCUMULATE:
            silent.add(our.name)
            continue
        around = [begin(int(line)) for file, _, line in mine if file == kineto_program.__file__]
        functions = [int(line) for file, _, line in told if kineto_program.__file__.endswith("/" + file)]
        # An operator that a user's Function runs has the line of `apply` with us: what is called is the Function.
        assert functions[: len(around)] == around, (our, their)
        assert len(functions) == len(around) or "Square" in their.name or inside_function(functions[-1])
    # What C++ calls by itself has no frame of ours.
    expected = {ACCUMULATE, "aten::item", "aten::_local_scalar_dense", "aten::detach", "detach"}
    assert silent <= expected | {"CheckpointFunction", "CheckpointFunctionBackward"}


def classes(net: torch.nn.Module, path: str) -> list[str]:
    """Classes from the root to a module."""
    parts = path.split(".") if path != "Net" else []
    return ["Net", *(type(net.get_submodule(".".join(parts[: i + 1]))).__name__ for i in range(len(parts)))]


def test_modules_have_the_structure_of_our_paths(both: Both) -> None:
    ours, theirs, flags, _, program = both
    if not flags >= {"with_stack", "with_modules"}:
        assert "with_stack" in flags or not any(row.module for row in theirs)
        return
    names: dict[str, str] = {}
    for our, their in zip(ours, theirs):
        if our.name in (
            ACCUMULATE,
            "aten::detach",
            "detach",
            "CheckpointFunction",
            "CheckpointFunctionBackward",
        ):
            continue  # we know whose parameter it is; a checkpoint is no operator of ours
        if our.module is None:
            assert their.module is None, (our, their)
            continue
        assert their.module is not None, (our, their)
        told = re.sub(r"_\d+", "", their.module).split(".")
        expected = classes(program.net, our.module)
        assert told == (expected if our.phase == "forward" else expected[-len(told) :]), (our, their)
        assert names.setdefault(their.module.rpartition(".")[2], our.module) == our.module
    assert len(set(names.values())) > 8

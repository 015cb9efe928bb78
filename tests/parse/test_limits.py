# SPDX-License-Identifier: Apache-2.0
"""What is deep or wide is read in linear time: beyond the limits it is left out and counted, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyprof
from pyprof.core.errors import FormatError
from pyprof.core.model import Trace
from pyprof.parse import formats, limits, loader
from pyprof.parse.rows import rows
from pyprof.store import files
from tests import build, kineto

MORE = 500  # than the limit


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit that a text of a few lines reaches."""
    monkeypatch.setattr(limits, "DEEPEST", 3)
    return 3


def nested(cat: str, count: int, name: str = "aten::relu") -> list[kineto.Event]:
    return [kineto.event(cat, name, i, 4 * count - i, kineto.PID, kineto.TID) for i in range(count)]


def lost(trace: Trace) -> dict[str, int]:
    return {reason: count for reason, count in trace.lost.items() if "nested" in reason}


def test_operators_beyond_the_limit_are_counted_and_their_kernels_kept(tmp_path: Path) -> None:
    count = limits.DEEPEST + MORE
    middle = 2 * count
    inside = [kineto.launch(middle, middle + 5, 9), kineto.kernel("k", middle, 8000, 9)]
    events = [*nested("cpu_op", count), *inside]
    trace = loader.load(kineto.write(tmp_path / "t.json", events))
    assert (len(trace.ops), lost(trace)) == (limits.DEEPEST, {"operators nested more than 2,000 deep": MORE})
    found = rows(trace)
    assert (len(found), found.sites[found.site[0]].ops) == (1, ("aten::relu",))


def test_functions_beyond_the_limit(tmp_path: Path) -> None:
    count = limits.DEEPEST + MORE
    functions = nested("python_function", count, "train.py(12): main")
    inside = kineto.op("aten::mm", 2 * count, 2 * count + 5)
    trace = loader.load(kineto.write(tmp_path / "t.json", [*functions, inside]))
    assert lost(trace) == {"calls of Python functions nested more than 2,000 deep": MORE}
    assert [len(stack.frames) for stack in trace.stacks] == [limits.DEEPEST]


def test_names_of_what_was_left_out_make_no_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_GAP", 100)
    count = limits.DEEPEST * 3
    events = [kineto.annotation(f"layer: {i}", i, 4 * count - i) for i in range(count)]
    trace = kineto.write(tmp_path / "t.json", [*events, kineto.op("aten::mm", 5 * count, 6 * count)])
    profile = pyprof.load(trace)
    assert len(profile.ops) == 1


DEEP = """
    layer:one
        layer:two
            layer:three
                layer:four
                    > 1 inside
                > 1 beside
    layer:five
        > 1 after
"""


def test_the_time_that_is_left_out_belongs_to_the_deepest_that_is_kept(tmp_path: Path, low: int) -> None:
    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(DEEP)))
    assert lost(trace) == {"ranges nested more than 3 deep": 1}
    found = rows(trace)
    layers = {found.names[name]: found.sites[site].layer for name, site in zip(found.name, found.site)}
    three = ("one", "two", "three")
    assert layers == {"inside": three, "beside": three, "after": ("five",)}


def test_ranges_that_were_never_closed_are_counted_as_open(tmp_path: Path, low: int) -> None:
    whole = build.write_nsys(tmp_path / "whole.sqlite", build.recording(DEEP))
    trace = loader.load(build.rewrite(whole, tmp_path / "open.sqlite", {"NVTX_EVENTS": {"end": "null"}}))
    assert lost(trace) == {"ranges nested more than 3 deep": 2}  # five is inside one, two and three


def test_open_ranges_of_other_kinds_do_not_nest(tmp_path: Path) -> None:
    whole = build.write_nsys(tmp_path / "whole.sqlite", build.recording("start layer:one\n> 1 inside\n"))
    started = build.rewrite(whole, tmp_path / "open.sqlite", {"NVTX_EVENTS": {"end": "null", "eventType": "60"}})
    assert lost(loader.load(started)) == {}


def test_operators_of_a_graph_keep_their_rows(tmp_path: Path, low: int) -> None:
    """`Gpu.op` is a row of the table that got shorter."""
    events = [*nested("cpu_op", 4), kineto.op("aten::mm", 100, 200)]
    trace = formats.FORMATS["kineto"].load(kineto.write(tmp_path / "t.json", events))
    trace.gpu.op = np.array([4, 3, -1, 0])
    assert limits.apply(trace).gpu.op.tolist() == [3, -1, -1, 0]


@pytest.mark.parametrize(("what", "kept"), [("processes", 0), ("devices", 1)])
def test_more_processes_or_devices_than_are_summed(what: str, kept: int, tmp_path: Path) -> None:
    def write(count: int) -> Path:
        events = [kineto.op("aten::mm", i, i + 5, pid=i if what == "processes" else 1) for i in range(count)] + [
            kineto.kernel("k", i, i + 5, i, device=i) for i in range(count * kept)
        ]
        return kineto.write(tmp_path / f"{count}.json", events)

    loader.load(write(limits.MANY))
    with pytest.raises(FormatError, match=f"has events of 4,097 {what}; expected at most 4,096."):
        loader.load(write(limits.MANY + 1))


def test_many_threads_may_have_run_a_forward(tmp_path: Path) -> None:
    """The number alone names 100 threads, and no recording of one process has as many at work."""
    forward = "".join(f"    thread {i}\n    aten::mm, seq = 5\n        > 1 k{i}\n" for i in range(1, 101))
    text = f"{forward}    thread 101\n    MmBackward0, seq = 5\n        > 1 backward\n"
    found = rows(loader.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(text))))
    assert found.lost == {"backward ranges whose forward could be in several threads (not paired, kept)": 1}

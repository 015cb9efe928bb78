# SPDX-License-Identifier: Apache-2.0
"""Recordings that others made: every kernel is there, and says where it comes from."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pyprof.core.marker import decode, split
from pyprof.core.model import Tensor
from pyprof.costs.columns import View
from pyprof.costs.coverage import ledger
from pyprof.parse import loader
from pyprof.profiles import load
from tests import build

Row = dict[str, Any]


@pytest.fixture(scope="module")
def transformer(data: Path) -> list[Row]:
    return build.read(data / "nvprof/transformer_lm/net.sql")


@pytest.fixture(scope="module")
def reference(data: Path) -> list[Row]:
    """What the tools of 2020 made of the same file."""
    text = (data / "nvprof/transformer_lm/net.dict").read_text(encoding="utf-8")
    return [ast.literal_eval(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def h100(data: Path) -> Path:
    return data / "nsys/h100_2gpu_1s.sqlite"


def test_transformer_has_160_kernels_of_7296770_ns(transformer):
    assert (len(transformer), sum(row["kDuration"] for row in transformer)) == (160, 7_296_770)


@pytest.mark.parametrize(
    "key", ["kShortName", "kDuration", "grid", "block", "tid", "device", "stream", "layer", "reprMarkers"]
)
def test_transformer_kernels_are_those_of_the_reference_line_by_line(key, transformer, reference):
    assert [row[key] for row in transformer] == [row[key] for row in reference]


def test_transformer_full_names_differ_in_template_arguments_at_most(transformer, reference):
    """The reference was demangled by a library that took some arguments for others."""
    ours, theirs = (
        [row["kLongName"].replace("<unnamed>", "(anonymous namespace)") for row in rows]
        for rows in (transformer, reference)
    )
    heads = [re.split(r"[<(](?!anonymous)", name, maxsplit=1)[0] for name in ours]
    assert heads == [re.split(r"[<(](?!anonymous)", name, maxsplit=1)[0] for name in theirs]
    assert not any(name.startswith("_Z") for name in ours)


def test_transformer_directions_differ_in_the_accumulations_of_gradients_alone(transformer, reference):
    """Rule P6. The reference counts 118 fprop and 42 bprop."""
    assert [row["dir"] for row in reference].count("fprop") == 118
    assert [row["dir"] for row in reference].count("bprop") == 42
    differ = [(a["dir"], b["dir"], a["op"][0]) for a, b in zip(transformer, reference) if a["dir"] != b["dir"]]
    assert differ == [("bprop", "fprop", "accumulate_grad")] * 16
    assert sum(row["op"][0] == "accumulate_grad" for row in transformer) == 16


def test_transformer_backward_names_its_forward(transformer):
    """Every backward row with a numbered node has operator, marker and stack of the forward that made the node."""
    forward = defaultdict(list)
    for row in transformer:
        if row["dir"] == "fprop":
            for number in row["seqId"] + row["altSeqId"]:
                forward[number].append(row)
    backward = [row for row in transformer if row["dir"] == "bprop" and row["seqId"]]
    assert len(backward) == 42
    for row in backward:
        candidates = forward[row["seqId"][0]]
        assert row["op"][0] != "na"
        assert row["trace"]
        assert row["marker"]
        assert row["fwdThread"] not in (None, row["tid"])
        if candidates:  # a view has a node but no kernel
            assert any(all(row[key] == other[key] for key in ("op", "marker", "trace", "call")) for other in candidates)


def test_transformer_forward_calls_are_those_of_the_reference(transformer, reference):
    """The reference lost no forward call: op, mod and markers agree. Stacks leave torch's own files out."""
    for ours, theirs in zip(transformer, reference):
        if theirs["dir"] == "fprop" and ours["dir"] == "fprop":
            assert (ours["op"], ours["mod"]) == (theirs["op"], theirs["mod"])
            assert [split(text)[0] for text in ours["marker"]] == theirs["marker"]  # ours number inner calls
            assert ours["trace"] == [frame for frame in theirs["trace"] if "/torch/" not in frame]


def test_cifar_every_kernel_has_operator_shapes_line_and_layer(data):
    rows = build.read(data / "nsys/cifar_rtx2070_pyprof_markers.sqlite")
    assert len(rows) == 59
    for row in rows:
        assert row["op"]
        assert row["trace"]
        assert row["layer"]
        shapes = [
            arg.value.shape for text in row["marker"] for arg in decode(text).call.args if isinstance(arg.value, Tensor)
        ]
        assert shapes
    convolutions = {(row["op"][0], row["module"]) for row in rows if "conv2d" in row["op"]}
    assert convolutions == {("conv2d", "dummy_network.Conv2d"), ("conv2d", "dummy_network.Conv2d(2)")}


@pytest.fixture(scope="module")
def h100_rows(h100) -> list[Row]:
    return build.read(h100)


def test_h100_has_3442_kernels_of_2_processes_on_2_devices(h100_rows):
    rows = h100_rows
    assert len(rows) == 3442
    assert {(row["pid"], row["device"]) for row in rows} == {(111, 0), (112, 1)}


def innermost(path: Path) -> dict[tuple[int, int, int], str | None]:
    """By process, correlation and start: the innermost range around each kernel's launch; only launched kernels.

    One comparison per range and launch of a thread, nothing clever.
    """
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    ranges = defaultdict(list)
    for thread, start, end, text in connection.execute("select globalTid, start, end, text from NVTX_EVENTS"):
        ranges[thread].append((start, end, text))
    out: dict[tuple[int, int, int], str | None] = {}
    launches: dict[tuple[int, int], tuple[int, int]] = {}
    for thread, start, correlation in connection.execute(
        "select globalTid, start, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME order by start desc"
    ):
        launches[thread >> 24 & 0xFFFFFF, correlation] = thread, start
    for pid, correlation, kernel in connection.execute(
        "select (globalPid >> 24) & 0xffffff, correlationId, start from CUPTI_ACTIVITY_KIND_KERNEL"
    ):
        launch = launches.get((pid, correlation))
        if launch is not None:
            thread, time = launch
            around = [(start, -end, text) for start, end, text in ranges[thread] if start <= time < end]
            out[pid, correlation, kernel] = max(around)[2] if around else None
    connection.close()
    return out


def test_h100_every_kernel_has_the_innermost_range_around_its_launch(h100, h100_rows):
    expected, rows = innermost(h100), h100_rows
    linked = [row for row in rows if row["launchStart"] is not None]
    offset = min(key[2] for key in expected) - min(row["start"] for row in linked)
    assert len(linked) == len(expected) == 3442 - 1810
    for row in linked:
        text = expected[row["pid"], row["correlation"], row["start"] + offset]
        name = None if text is None else re.sub(r", (seq|op_id) = \d+", "", text)
        assert row["op"][-1:] == ([] if name is None else [name])


def test_h100_the_ledger_says_how_many_kernels_have_no_launch_record(h100):
    connection = sqlite3.connect(f"file:{h100}?mode=ro", uri=True)
    (count, time) = connection.execute(
        """select count(*), sum(end - start)
           from CUPTI_ACTIVITY_KIND_KERNEL as k
           where not exists (
               select 1
               from CUPTI_ACTIVITY_KIND_RUNTIME as r
               where r.correlationId = k.correlationId and r.globalTid >> 24 = k.globalPid >> 24)"""
    ).fetchone()
    connection.close()
    profile = load(h100)
    view = View(profile.rows)
    assert (count, profile.rows.lost["GPU events without a launch record (kept)"]) == (1810, 1810)
    (entry,) = [entry for entry in ledger(view) if entry.what == "launch record"]
    assert entry.parts == {"known": int(profile.rows.duration.sum()) - time, "unknown": time}


def test_h100_launches_whose_kernels_ran_after_its_end_are_counted(h100):
    connection = sqlite3.connect(f"file:{h100}?mode=ro", uri=True)
    (count,) = connection.execute(
        """select count(*)
           from CUPTI_ACTIVITY_KIND_RUNTIME as r
           join StringIds as s on s.id = r.nameId
           where s.value like 'cudaLaunchKernel%' and not exists (
               select 1
               from CUPTI_ACTIVITY_KIND_KERNEL as k
               where r.correlationId = k.correlationId and r.globalTid >> 24 = k.globalPid >> 24)"""
    ).fetchone()
    connection.close()
    lost = loader.load(h100).lost
    assert sum(number for reason, number in lost.items() if "cudaLaunchKernel" in reason) == count > 1000

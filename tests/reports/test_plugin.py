# SPDX-License-Identifier: Apache-2.0
"""What the authors of the TensorBoard plugin of torch.profiler checked in for a recording: their figures and ours."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from tests.build import Kernel, Launch, Op, Range, Recording, call, write_capture
from tests.reports.test_oracle import rows

NAME = "kineto/resnet50_v100_6steps.pt.trace.json.gz"
PARTS = ("kernel_ns", "memcpy_ns", "memset_ns", "runtime_ns", "dataloader_ns", "cpu_ns", "other_ns")
US = 1000


def recorded(path: Path) -> tuple[Recording, dict[Any, int]]:
    """The events of the trace, which has microseconds, and the occupancy of kernels by their launch."""
    out, occupancy = Recording(), {}
    events = [
        e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if e["ph"] == "X" and e["cat"] != "Trace"
    ]  # fmt: skip
    base = min(e["ts"] for e in events) - 1
    for event in events:
        start, name, args = (event["ts"] - base) * US, event["name"], event["args"]
        end, kind = start + event["dur"] * US, event["cat"]
        if kind == "Operator" and name.startswith("ProfilerStep#"):
            out.steps.append((int(name.partition("#")[2]), start, end))
        elif kind == "Operator" and name.startswith(("Optimizer.", "enumerate(")):
            out.ranges.append(Range(name, start, end, int(event["tid"])))
        elif kind == "Operator":
            out.ops.append(Op(call(name), start, end, int(event["tid"])))
        elif kind == "Runtime":
            out.launches.append(Launch(start, end, args["correlation"], int(event["tid"]), name=name))
        elif kind == "Kernel":
            shape: dict[str, Any] = {
                "grid": tuple(args["grid"]), "block": tuple(args["block"]), "registers": args["registers per thread"],
                "dynamic": args["shared memory"],
            }  # fmt: skip
            occupancy[(*shape["grid"], *shape["block"], shape["registers"], shape["dynamic"])] = args[
                "est. achieved occupancy %"
            ]
            out.kernels.append(Kernel(name, start, end, args["correlation"], **shape))
        else:
            copied = 1 if kind == "Memcpy" else None
            out.kernels.append(Kernel("c", start, end, args["correlation"], size=args["bytes"], copy_kind=copied))
    return out, occupancy


@pytest.fixture(scope="module")
def loaded(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[profiles.Profile, Recording, Any]:
    what, occupancy = recorded(data / NAME)
    folder = tmp_path_factory.mktemp("plugin")
    path = folder / "a_dldb.sqlite"
    profiles.load(write_capture(folder / "a.sqlite", what)).save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            """update geometry set occupancy = ? where grid_x = ? and grid_y = ? and grid_z = ? and block_x = ?
               and block_y = ? and block_z = ? and registers = ? and shared_memory_bytes = ?""",
            [(value, *shape) for shape, value in occupancy.items()],
        )
    golden = json.loads((data / "expected_traces.json").read_text())["plugin_golden"][NAME]
    return profiles.load(path), what, golden


def test_steps_are_the_plugins_to_the_microsecond(loaded):
    prof, _, golden = loaded
    found = rows(prof.report("step_time", categories="7"))
    assert [[r["step"], *(r[part] for part in PARTS)] for r in found] == [
        [int(number), *(US * part for part in parts)] for number, *parts in golden["steps"]
    ]
    assert sum(r["total_ns"] for r in found) / 6 / US == pytest.approx(golden["average"]["total"], abs=1)


def test_the_device_was_used_as_the_plugin_says(loaded):
    prof, _, golden = loaded
    (found,) = rows(prof.report("gpu"))
    for key, name in (
        ("utilization", "GPU Utilization"), ("sm_efficiency", "Est. SM Efficiency"),
        ("achieved_occupancy", "Est. Achieved Occupancy"),
    ):  # fmt: skip
        assert f"{found[key]:.2f} %" == golden["gpu_summary"][name]
    assert found["tc_share"] == 0


def test_operators_are_the_plugins(loaded):
    """But for what the profiler itself ran before the first step, which is in no step."""
    prof, what, golden = loaded
    first = min(start for _, start, _ in what.steps)
    earlier = Counter(op.name for op in what.ops if op.start < first)
    assert set(earlier) == {"aten::zeros", "aten::empty", "aten::zero_"}
    found = {r["name"]: r for r in rows(prof.report("operator"))}
    assert set(found) == {row[0] for row in golden["operators"]}
    for name, calls, *times, eligible, tc_self, tc_total in golden["operators"]:
        row = found[name]
        assert row["calls"] == calls - earlier[name]
        assert row["tc_eligible"] == (eligible == "Yes")
        assert (row["tc_self"] or 0, row["tc_total"] or 0) == (tc_self, tc_total)
        if not earlier[name]:
            keys = ("device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns")
            assert [row[key] for key in keys] == [US * time for time in times], name


def test_what_tensor_cores_could_do_is_what_the_plugin_says(data, request):
    """Forward and backward: autograd's nodes have no formula of their own, their names tell."""
    golden = json.loads((data / "expected_traces.json").read_text())["plugin_golden"][NAME]
    (found,) = [
        row["value"]
        for row in rows(request.getfixturevalue("recorded")(NAME).report("summary"))
        if (row["name"], row["figure"]) == ("Ops eligible for TC but not using", "GPU Time")
    ]
    assert found == US * sum(row[2] for row in golden["operators"] if row[-3] == "Yes")


def test_kernels_are_the_plugins(loaded):
    """It shows the first letters of a name, and rounds."""
    prof, _, golden = loaded
    found = rows(prof.report("kernel_summary"))
    assert len(found) == golden["n_kernel_rows"]
    for name, _, calls, total, mean, longest, shortest, blocks, occupancy in golden["kernels"]:
        (row,) = [
            r for r in found if r["name"].startswith(name) and r["calls"] == calls and r["total_ns"] == US * total
        ]
        assert (row["max_ns"], row["min_ns"]) == (US * longest, US * shortest)
        assert row["mean_ns"] / US == pytest.approx(mean, abs=0.51)
        assert row["blocks_per_sm"] == pytest.approx(blocks, abs=0.0051)
        assert row["occupancy"] == pytest.approx(occupancy, abs=0.0051), name

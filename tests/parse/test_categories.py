# SPDX-License-Identifier: Apache-2.0
"""Traces whose events have no category: their process says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pyprof.core.model import KERNEL, MEMCPY, Trace
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import kineto

Event = dict[str, Any]


def load(tmp_path: Path, events: list[Event]) -> Trace:
    return loader.load(kineto.write_text(tmp_path / "trace_view.json", json.dumps(events)))


def operators(trace: Trace) -> dict[str, str]:
    table = rows(trace, memory=True)
    return {
        table.names[name]: "".join(table.sites[site].ops[-1:])
        for name, site in zip(table.name.tolist(), table.site.tolist())
    }


# --- torch_npu


def process(pid: Any, name: str) -> Event:
    return {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}}


def npu(pids: tuple[Any, Any, Any], names_first: bool) -> list[Event]:
    """Two products of 150 us, a copy of 20 us, and a wait of the device for an event."""
    python, cann, device = pids
    names = [
        process(python, "Python"),
        process(cann, "CANN"),
        process(device, "Ascend Hardware"),
        process(9, "Overlap Analysis"),
    ]
    out: list[Event] = []
    work = [
        ("MatMulV2", "AI_CORE", 150),
        ("MatMulV3", "AI_CORE", 150),
        ("MEMCPY_ASYNC", "MEMCPY_ASYNC", 20),
        ("EVENT_WAIT", "EVENT_WAIT", 90),
    ]
    for i, (name, task, length) in enumerate(work):
        at = 1_715_000_000_000_100 + 400 * i
        times = {"ts": f"{at}.000", "dur": 60}
        out += [
            {"ph": "X", "cat": "cpu_op", "name": f"aten::op{i}", "pid": python, "tid": 11, **times, "args": {}},
            {"ph": "X", "name": f"AscendCL@{name}", "pid": cann, "tid": 11, "ts": f"{at + 10}.125", "dur": 20,
             "args": {"connection_id": 900 + i}},
            {"ph": "X", "name": name, "pid": device, "tid": 2, "ts": f"{at + 100}.500", "dur": length,
             "args": {"Task Type": task, "Stream Id": 5, "connection_id": 900 + i}},
            {"ph": "X", "name": "Computing", "pid": 9, "tid": 0, "ts": f"{at + 100}.500", "dur": length, "args": {}},
        ]  # fmt: skip
    return [*names, *out] if names_first else [*out, *names]


@pytest.mark.parametrize("names_first", [True, False])
@pytest.mark.parametrize("pids", [(1, 2, 3), ("1", "2", "3"), (5_180_001, 5_180_002, 5_180_003)])
def test_torch_npu(tmp_path: Path, pids: tuple[Any, Any, Any], names_first: bool):
    trace = load(tmp_path, npu(pids, names_first))
    assert (trace.gpu.end - trace.gpu.start).tolist() == [150_000, 150_000, 20_000]
    assert trace.gpu.kind.tolist() == [KERNEL, KERNEL, MEMCPY]
    assert (trace.gpu.device.values.tolist(), trace.gpu.stream.values.tolist()) == ([0] * 3, [5] * 3)
    assert operators(trace) == {"MatMulV2": "aten::op0", "MatMulV3": "aten::op1", "MEMCPY_ASYNC": "aten::op2"}
    assert trace.launches.start.tolist() == [10_125 + 400_000 * i for i in range(4)]
    assert trace.lost == {"events of an unknown category, 'None'": 4}  # of the analysis, which repeats the others


# --- EventList.export_chrome_trace


def legacy(device: str = "CUDA", ends: bool = True) -> list[Event]:
    """Three operators of 120 us; the first has two kernels of 80 us, on device 1."""
    out: list[Event] = []
    cpu = {"pid": "CPU functions", "args": {}}
    for i, (name, kernels) in enumerate((("aten::mm", 2), ("relu_", 1), ("my range #1", 0))):
        start = 100 + 300 * i
        out.append({"name": name, "ph": "X", "ts": start, "tid": 1, "dur": 120, **cpu})
        for k in range(kernels):
            flow = {"id": 10 * i + k, "cat": f"cpu_to_{device.lower()}", "args": {}}
            at = {"ts": start + 50 + 90 * k, "tid": 1, "pid": f"{device} functions"}
            out.append({"name": name, "ph": "s", "ts": start, "tid": 1, "pid": "CPU functions", **flow})
            if ends:
                out += [
                    {"name": f"k{i}{k}", "ph": "f", **at, **flow},
                    {"name": f"k{i}{k}", "ph": "X", "dur": 80, **at, "args": {}},
                ]
    return out


@pytest.mark.parametrize("device", ["CUDA", "HIP", "XPU"])
def test_the_export_of_an_event_list(tmp_path: Path, device: str):
    trace = load(tmp_path, legacy(device))
    assert (trace.gpu.end - trace.gpu.start).tolist() == [80_000] * 3
    assert set(trace.gpu.device.values.tolist()) == {1}
    assert operators(trace) == {"k00": "aten::mm", "k01": "aten::mm", "k10": "relu_"}
    assert [trace.strings[code] for code in trace.ranges.text.tolist()] == ["my range #1"]
    assert trace.lost == {}


def test_arrows_without_kernels_are_counted(tmp_path: Path):
    trace = load(tmp_path, legacy(ends=False))
    assert len(trace.ops) == 2
    assert trace.lost == {"kernels of which the file has only the arrows from their operators, and no times": 3}


def test_the_export_that_torch_writes_today(tmp_path: Path):
    with (
        torch.autograd.profiler.profile(use_kineto=False) as prof,
        torch.autograd.profiler.record_function("## forward"),
    ):
        torch.ones(8, 8) @ torch.ones(8, 8)
    prof.function_events.export_chrome_trace(str(tmp_path / "t.json"))
    trace = loader.load(tmp_path / "t.json")
    names = {trace.strings[code] for code in trace.ops.name.tolist()}
    assert {"aten::matmul", "aten::mm", "aten::ones"} <= names
    assert [trace.strings[code] for code in trace.ranges.text.tolist()] == ["## forward"]
    assert trace.lost == {}

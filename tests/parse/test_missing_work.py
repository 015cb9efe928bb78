# SPDX-License-Identifier: Apache-2.0
"""Launches whose kernel, copy or set is not in the file are counted by the call; those that start nothing are not."""

from __future__ import annotations

import pytest

from pyprof.parse import loader
from pyprof.parse.missing_work import count
from tests import kineto
from tests.build import recording, write_nsys
from tests.kineto import event, kernel, launch, op


def loop(calls: list[str], with_work: set[int]) -> list[kineto.Event]:
    """One operator per call, 1 us apart; the calls in `with_work` have a kernel, a copy or a set."""
    out = []
    for number, name in enumerate(calls):
        start = 1_000 * (number + 1)
        out += [op("aten::mm", start, start + 500), launch(start + 100, start + 200, number + 1, name=name)]
        if number in with_work:
            kind = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name[4:10], "kernel")
            out.append(kernel("k", start + 300, start + 400, number + 1) | {"cat": kind})
    return out


LAUNCH, COPY, SET = "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"


@pytest.mark.parametrize(
    ("calls", "with_work", "missing"),
    [
        ([LAUNCH] * 5, {3, 4}, {LAUNCH: 3}),
        ([LAUNCH] * 5, set(), {LAUNCH: 5}),
        ([LAUNCH] * 5, {0, 1, 2, 3, 4}, {}),
        (["cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaLaunchKernelExC_v11060", LAUNCH], {3},
         {"cuLaunchKernelEx": 1, "hipExtModuleLaunchKernel": 1, "cudaLaunchKernelExC": 1}),
        ([LAUNCH, COPY, SET, LAUNCH], {0, 3}, {}),  # empty ones
        ([LAUNCH, COPY, SET, LAUNCH, LAUNCH], {4}, {LAUNCH: 2, COPY: 1, SET: 1}),
        ([LAUNCH, COPY, LAUNCH], {2}, {LAUNCH: 1}),  # beside work that is there: it may be empty
        ([COPY, SET], set(), {COPY: 1, SET: 1}),  # nothing at all is there
        (["cudaGraphLaunch", LAUNCH], {1}, {"cudaGraphLaunch": 1}),
        (["cudaLaunchHostFunc", "cudaDeviceSynchronize", "cudaEventRecord", LAUNCH], {3}, {}),
        ([LAUNCH, "cudaStreamBeginCapture_v10000", LAUNCH, COPY, "cudaStreamEndCapture_v10000", LAUNCH], {0, 5}, {}),
        ([LAUNCH, "cudaStreamEndCapture", LAUNCH, LAUNCH], {3}, {LAUNCH: 1}),  # it began before the recording
    ],
)  # fmt: skip
def test_launches_without_their_work(tmp_path, calls, with_work, missing):
    trace = loader.load(kineto.write(tmp_path / "t.json", loop(calls, with_work)))
    expected = {f"launches by {name} whose work is not in the file": number for name, number in missing.items()}
    assert trace.lost == expected
    assert count(trace.lost) == sum(missing.values())


def test_a_call_of_the_driver_inside_one_of_the_runtime_is_the_same_launch(tmp_path):
    inner = [
        launch(1_100, 1_400, 1),
        launch(1_150, 1_300, 2, name="cuLaunchKernel"),
        op("aten::mm", 1_000, 1_500),
    ]
    for correlation in (1, 2):
        path = kineto.write(tmp_path / f"{correlation}.json", [*inner, kernel("k", 2_000, 3_000, correlation)])
        assert loader.load(path).lost == {}
    assert count(loader.load(kineto.write(tmp_path / "none.json", inner)).lost) == 1


def test_captured_on_another_thread_of_the_process(tmp_path):
    events = [
        op("aten::mm", 900, 9_000), launch(1_000, 1_100, 1, name="cudaStreamBeginCapture"),
        launch(2_000, 2_100, 2, tid=202), launch(3_000, 3_100, 3, name="cudaStreamEndCapture"),
        launch(4_000, 4_100, 4, tid=202), kernel("k", 4_500, 5_000, 4),
    ]  # fmt: skip
    assert loader.load(kineto.write(tmp_path / "t.json", events)).lost == {}


def test_where_no_event_has_a_correlation_nothing_is_known(tmp_path):
    events = loop([LAUNCH] * 3, {0, 1, 2})
    for one in events:
        one["args"].pop("correlation", None)
    assert count(loader.load(kineto.write(tmp_path / "t.json", events)).lost) == 0


def test_an_export_of_nsys(tmp_path):
    made = recording("> 40 a\n> 40 b\n> 40 c\n")
    del made.kernels[1]
    trace = loader.load(write_nsys(tmp_path / "t.sqlite", made))
    assert count(trace.lost) == 1


def test_launches_of_a_device_that_is_missing_are_counted_apart_from_others(tmp_path):
    stray = event("kernel", "stray", 50, 60, 0, 7, correlation=77, stream=7, device=0)
    trace = loader.load(kineto.write(tmp_path / "t.json", [*loop([LAUNCH] * 4, {0, 1}), stray]))
    assert count(trace.lost) == 2

# SPDX-License-Identifier: Apache-2.0
"""Times of device events that cannot be are cut or left out, and counted; true overlap stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.core.model import Trace
from pyprof.parse import loader
from pyprof.parse.impossible_times import count
from tests import kineto
from tests.build import recording, write_nsys
from tests.kineto import kernel, launch, op

S, MS, US = 10**9, 10**6, 10**3
T0 = 1_600_000_000 * S


def program(
    spans: Sequence[tuple[int, int]], stream: int = 7, zero: int = 0, sync: int | None = None
) -> list[kineto.Event]:
    """Operators of 50 us, each with a launch and a kernel; its start and its length are given."""
    out = []
    for number, (start, length) in enumerate(spans):
        at = zero + number * 100 * US
        out += [
            op("aten::mm", at, at + 50 * US), launch(at + 10 * US, at + 14 * US, number + 1),
            kernel("gemm", start, start + length, number + 1, stream),
        ]  # fmt: skip
    end = zero + len(spans) * 100 * US
    return [
        *out,
        launch(end, end + (sync or US), 99, name="cudaDeviceSynchronize" if sync else "cudaEventRecord"),
    ]


def regular(count_: int = 10, zero: int = 0) -> list[tuple[int, int]]:
    """Kernels of 60 us, 100 us apart."""
    return [(zero + 20 * US + i * 100 * US, 60 * US) for i in range(count_)]


def load(tmp_path: Path, events: list[kineto.Event]) -> Trace:
    return loader.load(kineto.write(tmp_path / "t.json", events))


def lengths(trace: Trace) -> list[int]:
    return (trace.gpu.end - trace.gpu.start).tolist()


@pytest.mark.parametrize("length", [1_600 * MS, 3 * MS, 250 * US])
@pytest.mark.parametrize("kind", ["kernel", "gpu_memcpy"])
def test_an_end_after_later_events_of_the_stream(tmp_path: Path, length: int, kind: str):
    spans = regular()
    spans[4] = spans[4][0], length
    events = program(spans)
    next(e for e in events if e["args"].get("correlation") == 5 and e["cat"] == "kernel")["cat"] = kind
    trace = load(tmp_path, events)
    assert lengths(trace) == [60 * US] * 4 + [100 * US] + [60 * US] * 5
    assert count(trace.lost) == 1 == sum(trace.lost.values())


def test_two_of_six_copies_last_for_seconds(tmp_path: Path):
    spans = regular(6)
    spans[0], spans[2] = (spans[0][0], 3_150 * MS), (spans[2][0], 3_150 * MS)
    trace = load(tmp_path, program(spans))
    assert lengths(trace) == [100 * US, 60 * US, 100 * US, 60 * US, 60 * US, 60 * US]
    assert count(trace.lost) == 2


@pytest.mark.parametrize(
    "spans",
    [
        regular(),
        [(i * 100 * US, 103 * US) for i in range(20)],  # programmatic dependent launch
        [(i * 100 * US, (150 if i % 2 else 60) * US) for i in range(20)],
        [(i * 100 * US, 450 * US) for i in range(20)],  # several queues with one number
        [(i * 100 * US, (450 if i % 4 == 0 else 130) * US) for i in range(20)],
        [(100 * US, 109 * US), (200 * US, 0), (200 * US, 0), (200 * US, 0)],  # of no length, by rounding
    ],
)
def test_true_overlap_stays(tmp_path: Path, spans: list[tuple[int, int]]):
    trace = load(tmp_path, program(spans))
    assert lengths(trace) == [length for _, length in spans]
    assert trace.lost == {}


def test_streams_and_graphs_run_side_by_side(tmp_path: Path):
    long = kernel("long", 0, 2 * MS, 50, stream=8)
    graph = [kernel(f"k{i}", 10 * US * i, 900 * US, 51, stream=9) for i in range(9)]
    for number, one in enumerate(graph):
        one["args"]["graph node id"] = number + 1
    replay = launch(1_000, 2_000, 51, name="cudaGraphLaunch")
    trace = load(tmp_path, [*program(regular()), launch(0, 500, 50), long, replay, *graph])
    assert trace.lost == {}


@pytest.mark.parametrize("early", [(0, 0), (T0 - 3600 * S, 60 * US), (T0 - 5 * S, 60 * US), (T0 + 7200 * S, 60 * US)])
def test_a_start_far_from_the_launch(tmp_path: Path, early: tuple[int, int]):
    """2 of 6 kernels; the others take 360 us minus 120, within 1 ms."""
    spans = regular(6, T0)
    spans[2] = spans[4] = early
    events = program(spans, zero=T0)
    trace = load(tmp_path, events)
    assert lengths(trace) == [60 * US] * 4
    assert trace.t0 == T0
    assert count(trace.lost) == 2 == sum(trace.lost.values())
    assert int(trace.launches.end.max()) == 601 * US


def test_a_clock_with_an_offset_is_no_impossible_time(tmp_path: Path):
    trace = load(tmp_path, program(regular(6, T0), zero=T0 + 7 * S))
    assert len(trace.gpu) == 6
    assert count(trace.lost) == 0


def test_collectives_of_the_events_that_stay(tmp_path: Path):
    spans = regular(3, T0)
    spans[0] = 0, 0
    events = program(spans, zero=T0)
    fields = {"Collective name": "allreduce", "dtype": "Float", "Out msg nelems": 0}
    for event in events:
        if event["cat"] == "kernel":
            event["args"] |= fields | {"Out msg nelems": event["args"]["correlation"]}
    trace = load(tmp_path, events)
    assert [(row, what.received) for row, what in zip(trace.collectives.gpu.tolist(), trace.collectives.what)] == [
        (0, 8), (1, 12),
    ]  # fmt: skip


def test_an_end_after_the_synchronization_that_waited_for_it(tmp_path: Path):
    """The last kernel of four starts at 320 us; the call that waits returns at 500 us."""
    spans = regular(4)
    spans[3] = spans[3][0], 900 * MS
    trace = load(tmp_path, program(spans, sync=100 * US))
    assert lengths(trace) == [60 * US, 60 * US, 60 * US, 180 * US]
    assert count(trace.lost) == 1
    spans[3] = spans[3][0], 180 * US
    assert load(tmp_path, program(spans, sync=100 * US)).lost == {}


def test_an_end_far_behind_the_recording(tmp_path: Path):
    spans = regular(4)
    spans[3] = spans[3][0], 1_600 * S
    trace = load(tmp_path, program(spans))
    assert lengths(trace)[3] == 401 * US - spans[3][0]
    assert count(trace.lost) == 1


def test_a_kernel_that_is_longer_than_its_launch_by_far_is_possible(tmp_path: Path):
    trace = loader.load(write_nsys(tmp_path / "t.sqlite", recording(f"> {900 * MS} slow\n")))
    assert lengths(trace) == [900 * MS]
    assert trace.lost == {}


def test_findings_say_it_and_no_saving_exceeds_the_recording(tmp_path: Path):
    spans = regular(200)
    spans[4] = spans[4][0], 1_600 * MS
    prof = profiles.load(kineto.write(tmp_path / "t.json", program(spans)))
    found = {one.rule.id: one.finding for one in prof.outcomes if one.finding}
    assert found["R38"].problem.startswith("GPU events with impossible times, as recorders write them now and then: 1.")
    assert all((one.saving or 0) <= 20_001 * US for one in found.values())

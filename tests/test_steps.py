# SPDX-License-Identifier: Apache-2.0
"""One set of steps: what belongs to which, which means are taken of, and where that is said. Times are in us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pyprof
from pyprof.overview import lines
from pyprof.overview.figures import figures
from pyprof.profiles import Profile
from tests import kineto
from tests.kineto import Event

Load = Callable[[list[Event]], Profile]
AUTOGRAD = 102


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return lambda events: pyprof.load(kineto.write(tmp_path / "trace.json", events))


def launched(
    start: int, correlation: int, begin: int, length: int = 20, *, stream: int = 7, tid: int = kineto.TID,
    name: str = "aten::add",
) -> list[Event]:  # fmt: skip
    """An operator of 15 us, its launch, and a kernel."""
    return [
        kineto.op(name, start * 1000, (start + 15) * 1000, tid=tid),
        kineto.launch((start + 4) * 1000, (start + 8) * 1000, correlation, tid),
        kineto.kernel("add", begin * 1000, (begin + length) * 1000, correlation, stream),
    ]


def tail(count: int, stream: int = 7, begin: int = 1010, every: int = 30) -> list[Event]:
    """Kernels of an earlier step, whose launches are not in the file."""
    return [
        kineto.kernel(
            "add", (begin + i * every) * 1000, (begin + i * every + 20) * 1000, 900 + 100 * stream + i, stream
        )
        for i in range(count)
    ]


def two_steps(stream: int = 7) -> list[Event]:
    """Two steps of 1,000 us, each with four kernels of 20 us, which run behind a tail."""
    out = []
    for step in range(2):
        base = 1000 + step * 1000
        out.append(kineto.annotation(f"ProfilerStep#{step}", base * 1000, (base + 1000) * 1000))
        for i in range(4):
            out += launched(base + 10 + 20 * i, step * 10 + i + 1, base + 400 + 30 * i, stream=stream)
    return out


@pytest.mark.parametrize(
    ("before", "stream"),
    [(tail(6), 7), (tail(6, 7) + tail(3, 20), 20), (tail(1, 7, 1370), 7)],
    ids=["one stream", "two streams", "just before"],
)
def test_work_of_the_step_before_is_in_no_step(load: Load, before: list[Event], stream: int) -> None:
    prof = load(two_steps(stream) + before)
    assert prof.steps["kernels"].tolist() == [4, 4]
    assert prof.report("step_time")["kernel_ns"].tolist() == [80_000, 80_000]
    assert len(prof.kernels) == 8 + len(before)  # nothing is lost
    assert prof.kernels["step"].isna().sum() == len(before)


def test_a_kernel_without_a_launch_is_in_the_step_of_its_stream(load: Load) -> None:
    """The host is in step 1 when the kernel runs between those of step 0."""
    events = [
        kineto.annotation(f"ProfilerStep#{i}", (1000 + i * 100) * 1000, (1100 + i * 100) * 1000) for i in range(2)
    ]
    for step in range(2):
        for i in range(2):
            events += launched(1010 + step * 100 + 20 * i, step * 10 + i + 1, 1200 + step * 200 + 100 * i)
    prof = load([*events, kineto.kernel("add", 1_250_000, 1_270_000, 999)])
    assert prof.steps["kernels"].tolist() == [3, 2]


def backward_pass(base: int, number: int) -> list[Event]:
    """A forward pass of two operators, a range around the backward that another thread runs, and an update."""
    out = [kineto.annotation("load", (base + 1) * 1000, (base + 90) * 1000)]
    for i in range(2):
        seq, start = 2 * number + i, base + 100 + 20 * i
        out.append(kineto.op("aten::linear", start * 1000, (start + 15) * 1000, seq))
        out.append(kineto.launch((start + 4) * 1000, (start + 8) * 1000, 10 * number + i + 1))
        out.append(kineto.kernel("gemm", (start + 20) * 1000, (start + 30) * 1000, 10 * number + i + 1))
    out.append(kineto.annotation("backward", (base + 200) * 1000, (base + 300) * 1000))
    for i in range(2):
        seq, start = 2 * number + 1 - i, base + 210 + 20 * i
        out.append(kineto.op("AddmmBackward0", start * 1000, (start + 15) * 1000, seq, 1, AUTOGRAD))
        out.append(kineto.launch((start + 4) * 1000, (start + 8) * 1000, 10 * number + i + 5, AUTOGRAD))
        out.append(kineto.kernel("gemm", (start + 20) * 1000, (start + 30) * 1000, 10 * number + i + 5))
    return [*out, kineto.annotation("Optimizer.step#SGD.step", (base + 320) * 1000, (base + 340) * 1000)]


def test_the_first_step_begins_with_the_loop_and_ranges_have_their_backward(load: Load) -> None:
    setup = [kineto.op("aten::uniform_", 1_000, 400_000)]
    prof = load(setup + [event for i in range(3) for event in backward_pass(500 + 400 * i, i)])
    assert prof.aggregation.method == "optimizer"
    assert prof.steps["host_start_ns"].tolist() == [
        500_000,
        839_000,
        1_239_000,
    ]  # from the first event, at 1 us
    ranges = prof.report("ranges").set_index("path")
    assert ranges.loc["load", "instances"] == ranges.loc["backward", "instances"] == 3
    assert ranges.loc["backward", "kernels"] == 6


def of_lengths(*lengths: int, slow: str = "save") -> list[Event]:
    """Steps of one operator of 10 us each; one of more than 1,000 us has a call of `slow` for the rest."""
    out, start = [], 0
    for i, length in enumerate(lengths):
        out.append(kineto.annotation(f"ProfilerStep#{i}", start * 1000, (start + length) * 1000))
        out.append(kineto.op("aten::add", (start + 1) * 1000, (start + 11) * 1000))
        if length > 1000 and i:
            out.append(kineto.op(f"mine::{slow}", (start + 20) * 1000, (start + length - 10) * 1000))
        start += length
    return out


def overview(prof: Profile) -> list[str]:
    return lines.lines(figures(prof.source()), 100)


def test_the_overview_says_which_steps_it_is_of(load: Load) -> None:
    text = overview(load(of_lengths(900, 100, 100, 2500, 100, 100, 100)))
    assert text[0] == "Step 100 us, mean of 5 steps"
    assert text[1] == "7 steps: 1 and 2, 4 to 6 used; 0 warm-up, 3 long"


def test_a_table_of_the_overview_is_of_one_step(load: Load) -> None:
    """10 of 100 us are in the operator; 20 steps are as one."""
    for steps in (5, 20):
        row = next(line for line in overview(load(of_lengths(*[100] * steps))) if line.startswith("add"))
        assert row.split()[:5] == ["add", "10.0", "%", "10.0", "us"]


def test_a_long_step_is_a_finding_with_its_cause(load: Load) -> None:
    """2,500 us in place of 100: 2,470 of them in a call that no other step has. A mean of 7 steps has 343 us more."""
    found = load(of_lengths(*[100] * 5, 2500, 100)).findings
    assert found["rule"].iloc[0] == "R48"
    assert (
        found["problem"]
        .iloc[0]
        .startswith("One step takes far longer than the others: step 5 takes 2.50 ms, 25.0 times the median of 100 us.")
    )
    assert "save" in found["problem"].iloc[0]
    assert found["saving_ns"].iloc[0] == 6 * 100_000  # no more than the six steps take


def test_no_saving_exceeds_a_step(load: Load) -> None:
    prof = load(of_lengths(*[100] * 5, 90_000, 100))
    used = prof.steps["duration_ns"].median()
    assert (prof.findings["saving_ns"].dropna() <= 6 * used).all()

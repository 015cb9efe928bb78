# SPDX-License-Identifier: Apache-2.0
"""What made a step longer or shorter: parts that add up to it, and the operators and kernels of one part."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof import profiles
from tests import cli, kineto
from tests.build import examples
from tests.kineto import Event
from tests.reports.test_oracle import load, random_recording, rows

Rows = dict[tuple[str, str], dict[str, Any]]


def steps(count: int, slow: int = 0, wait: int = 0) -> list[Event]:
    """Steps of 10 µs. Each launches a product of 2,000 + `slow` ns at once and, after `wait`, a sum of 1,000 ns on
    another stream: 500 ns of it at the same time as the product if `slow` and `wait` are 0. Nothing else runs."""
    events: list[Event] = []
    length = 10_000 + slow + wait
    for step in range(count):
        at = 1_000_000 + step * length
        number = 2 * step + 1
        events += [
            kineto.annotation(f"ProfilerStep#{step}", at, at + length),
            kineto.op("aten::mm", at + 100, at + 300), kineto.launch(at + 150, at + 250, number),
            kineto.kernel("sgemm", at + 1_000, at + 3_000 + slow, number),
            kineto.op("aten::add", at + 400, at + 600), kineto.launch(at + 450, at + 550, number + 1),
            kineto.kernel("add", at + 2_500 + wait, at + 3_500 + wait, number + 1, stream=8),
        ]  # fmt: skip
    return events


def compared(folder: Path, base: list[Event], other: list[Event]) -> Rows:
    runs = [
        profiles.load(kineto.write(folder / f"{name}.json", events))
        for name, events in (("base", base), ("other", other))
    ]
    return {(row["section"], row["name"]): row for row in rows(runs[0].diff(runs[1]))}


def times(found: Rows, section: str) -> dict[str, tuple[float | None, float | None]]:
    return {name: (row["base_time_ns"], row["other_time_ns"]) for (of, name), row in found.items() if of == section}


def test_a_slower_kernel_is_the_whole_change(tmp_path: Path) -> None:
    """4 µs more for the product: the sum, which began 500 ns before its end, is then within it and takes no time."""
    found = compared(tmp_path, steps(3), steps(3, slow=4_000))
    assert times(found, "step") == {"step": (10_000, 14_000)}
    # Of the base 1,000 to 3,500, of the other 1,000 to 7,000.
    assert found["part", "kernel"]["base_time_ns"] == 2_500
    assert found["part", "kernel"]["other_time_ns"] == 6_000
    assert times(found, "operator") == {"mm": (2_000, 6_000), "add": (500, 0)}
    assert times(found, "kernel") == {"sgemm": (2_000, 6_000), "add": (500, 0)}
    assert found["operator", "mm"]["share"] == 100
    assert found["operator", "add"]["share"] == -12.5
    assert found["kernel", "sgemm"]["base_count"] == found["kernel", "sgemm"]["other_count"] == 1
    assert found["step", "step"]["error_ns"] == 0
    assert found["step", "step"]["noise"] is False
    assert times(found, "host") == {"mm": (200, 200), "add": (200, 200)}
    assert times(found, "launch") == {"launch": (200, 200)}


def test_the_number_of_steps_does_not_matter(tmp_path: Path) -> None:
    """But for the end of the recording: nothing follows the last kernel, so that this gap has another cause."""
    found = compared(tmp_path, steps(3), steps(9))
    assert {row["delta_time_ns"] for (_, name), row in found.items() if not name.startswith("idle")} == {0}
    assert (found["step", "step"]["base_count"], found["step", "step"]["other_count"]) == (3, 9)


@pytest.mark.parametrize("longer", ["wait", "slow"])
def test_a_change_as_large_as_the_spread_is_noise(tmp_path: Path, longer: str) -> None:
    """Steps of 10 and 16 µs in both, in turn; one more of the long ones in the other run. The wait between the kernels
    is longer, or the product.

    Base: mean 13, variance of the mean 12/4 = 3. Other: 16, 16, 10, 16: mean 14.5, variance of the mean 9/4.
    """
    both = [steps(1), steps(1, **{longer: 6_000})]

    def run(*which: int) -> list[Event]:
        events, at = [], 0
        for number, one in enumerate(which):
            for event in both[one]:
                moved = {**event, "ts": event["ts"] + at / 1000, "args": dict(event.get("args", {}))}
                if "correlation" in moved["args"]:
                    moved["args"]["correlation"] += 2 * number
                if moved["name"].startswith("ProfilerStep"):
                    moved["name"] = f"ProfilerStep#{number}"
                events.append(moved)
            at += (10_000, 16_000)[one]
        return events

    found = compared(tmp_path, run(0, 1, 0, 1), run(1, 1, 0, 1))
    step = found["step", "step"]
    assert (step["base_time_ns"], step["other_time_ns"], step["noise"]) == (13_000, 14_500, True)
    assert step["error_ns"] == pytest.approx(1_000 * 5.25**0.5)
    if longer == "slow":
        for row in (found["operator", "mm"], found["kernel", "sgemm"]):
            assert (row["base_time_ns"], row["other_time_ns"], row["noise"]) == (5_000, 6_500, True)
            assert row["error_ns"] == step["error_ns"]


def test_copies_are_counted_within_steps_with_their_bytes(tmp_path: Path) -> None:
    """Two copies of 1,000 B in one of two steps, or of four, and one before the first."""

    def run(count: int) -> list[Event]:
        copies = []
        for number, at in ((90, 900_000), (91, 1_014_000), (92, 1_015_000)):
            copies += [
                kineto.launch(at, at + 100, number, name="cudaMemcpyAsync"),
                kineto.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 200, at + 700, 0, 7,
                             device=0, stream=7, correlation=number, bytes=1_000),
            ]  # fmt: skip
        return [*steps(count), *copies]

    row = compared(tmp_path, run(2), run(4))["part", "memory copies"]
    assert (row["base_count"], row["other_count"]) == (1, 0.5)
    assert (row["base_bytes"], row["other_bytes"]) == (1_000, 500)
    assert (row["base_time_ns"], row["other_time_ns"]) == (500, 250)


def test_what_only_one_run_has_is_empty_in_the_other(tmp_path: Path) -> None:
    other = [event for event in steps(3) if event["name"] not in ("add", "aten::add")]
    row = compared(tmp_path, steps(3), other)["operator", "add"]
    assert (row["base_time_ns"], row["other_time_ns"], row["delta_time_ns"]) == (500, None, -500)


@pytest.mark.long
@examples(8)
@given(first=st.integers(0, 1 << 32), second=st.integers(0, 1 << 32))
def test_parts_add_up_to_the_step_and_kernels_to_their_part(first: int, second: int) -> None:
    runs = [load(random_recording(seed)) for seed in (first, second)]
    table = rows(runs[0].diff(runs[1]))
    for side in ("base", "other", "delta"):
        of: dict[str, float] = defaultdict(float)
        for row in table:
            of[row["section"]] += row[f"{side}_time_ns"] or 0
        kernel = sum(
            row[f"{side}_time_ns"] or 0 for row in table if (row["section"], row["name"]) == ("part", "kernel")
        )
        assert of["part"] == pytest.approx(of["step"], abs=1e-6)
        assert of["operator"] == pytest.approx(kernel, abs=1e-6)
        assert of["kernel"] == pytest.approx(kernel, abs=1e-6)
    assert {row["delta_time_ns"] or 0 for row in rows(runs[0].diff(runs[0]))} == {0}


def test_without_a_gpu_operators_and_waits_are_the_parts(tmp_path: Path) -> None:
    cpu = [[e for e in steps(3, slow=slow) if e["cat"] in ("cpu_op", "user_annotation")] for slow in (0, 4_000)]
    found = compared(tmp_path, *cpu)
    assert times(found, "step") == {"step": (10_000, 14_000)}
    assert times(found, "part") == {"operators": (400, 400), "other": (9_600, 13_600)}
    assert times(found, "host") == {"mm": (200, 200), "add": (200, 200)}


def test_worker_processes_of_the_data_loader_are_the_reason(recorded) -> None:
    """ResNet-50 with no worker process and with four: 6 steps of 1,065.6 ms together, of which 355.6 are waits for
    data; 7.1 ms of waits with workers."""
    runs = [recorded(f"kineto/resnet50_v100_{name}.pt.trace.json.gz") for name in ("6steps", "num_workers_4")]
    table = rows(runs[0].diff(runs[1]))
    assert (table[0]["name"], table[1]["name"]) == ("step", "idle: data loader")
    assert table[0]["base_time_ns"] * 6 / 1e6 == pytest.approx(1065.6, abs=0.05)
    assert table[1]["base_time_ns"] * 6 / 1e6 == pytest.approx(355.6, rel=0.01)
    assert table[1]["noise"] is False


@pytest.mark.long
def test_two_ranks_of_one_run(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import tarfile

    with tarfile.open(data / "kineto" / "dlrm_v100_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = str(next(tmp_path.glob("*/")))
    words = ["diff", folder, folder, "--base-worker=rank1", "--other-worker=rank7", "--format=csv"]
    assert cli.main(words) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].startswith("step,step,")
    assert lines[2].startswith("exposed communication,part,")  # rank 7 came last: the others waited for it
    assert cli.main([*words[:3], "--base-worker=rank99"]) == 2
    assert "rank99" in capfd.readouterr().err

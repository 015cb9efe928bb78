# SPDX-License-Identifier: Apache-2.0
"""What `pyprof diff` says first: by how much a step changed, which part of it, where, and what was predicted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks import diagnosis
from benchmarks.diagnosis import BASES, FAULTS, US, Fault
from pyprof.core.units import duration
from pyprof.profiles import Profile
from pyprof.reports.change import describe_change
from tests import cli, kineto
from tests.build import scratch
from tests.kineto import Event


def sentences(base: Profile, other: Profile) -> list[str]:
    return describe_change(base.source(), other.source(), base.diff(other))


@cache
def pair(fault: Fault, length: int) -> tuple[Profile, Profile, float]:
    """A program with a fault and without, and what that costs in ns a step."""
    runs = [diagnosis.simulate(BASES[1], fault, length, 5, healthy) for healthy in (False, True)]
    slow, fast = (diagnosis.record(Path(scratch()), world) for world, _ in runs)
    return slow, fast, runs[0][1] - runs[1][1]


@pytest.mark.parametrize(
    ("what", "part", "place"),
    [
        ("Python in the loop", "waiting (launch-bound)", "encode (text.py:33)"),
        ("a loader without workers", "waiting (data loader)", "data.py:12"),
        pytest.param("loss.item()", "waiting (synchronization)", "train.py:31", marks=pytest.mark.long),
        pytest.param("cudaMalloc in each step", "waiting (launch-bound)", "", marks=pytest.mark.long),
    ],
)
def test_a_change_is_told_with_its_part_place_and_prediction(what: str, part: str, place: str) -> None:
    (fault,) = [fault for fault in FAULTS if fault.what == what]
    slow, fast, cost = pair(fault, 3_000 * US)
    better, worse = sentences(slow, fast), sentences(fast, slow)
    change = float(worse[0].split()[3]) * (1e6 if " ms (" in worse[0] else 1e3)
    assert change == pytest.approx(cost, rel=0.02)
    assert f"{part} +" in worse[0].lower()
    assert f"{part} -" in better[0].lower()
    assert place in worse[0]
    assert place in better[0]
    if cost > 1e6:
        assert better[1].startswith(f"Predicted in the base ({fault.rule}, ")
        assert worse[1].startswith(f"Found in the other ({fault.rule}, ")


def test_the_rank_is_named() -> None:
    (fault,) = [fault for fault in FAULTS if fault.what == "Python on one rank"]
    slow, fast, _ = pair(fault, 3_000 * US)
    text = sentences(fast, slow)[0]
    assert "encode (text.py:33) on rank2" in text


def test_work_is_told_by_operator_and_line_and_against_what_it_grew(tmp_path: Path) -> None:
    """Steps of 5.3 and 8.3 us: the product takes 2 and 6 us, and the wait for the launch after it 1 us less."""

    def steps(product: int, wait: int) -> list[Event]:
        events: list[Event] = []
        for step in range(4):
            at = 1_000_000 + step * (2_300 + product + wait)
            events += [
                kineto.annotation(f"ProfilerStep#{step}", at, at + 2_300 + product + wait),
                kineto.function("net.py(7): forward", at + 50, at + 900),
                kineto.op("aten::mm", at + 100, at + 800), kineto.launch(at + 150, at + 250, 2 * step + 1),
                kineto.kernel("sgemm", at + 1_000, at + 1_000 + product, 2 * step + 1),
                kineto.op("aten::add", at + 1_000 + product, at + 1_500 + product + wait),
                kineto.launch(at + 1_100 + product, at + 1_200 + product + wait, 2 * step + 2),
                kineto.kernel("add", at + 1_200 + product + wait, at + 2_200 + product + wait, 2 * step + 2),
            ]  # fmt: skip
        return events

    base, other = (
        load(tmp_path / f"{name}.json", events)
        for name, events in (("base", steps(2_000, 1_000)), ("other", steps(6_000, 0)))
    )
    (text, *_) = sentences(base, other)
    assert text == (
        "A step is 3.00 us (56.6 %) longer: 8.30 us instead of 5.30 us. Kernels +4.00 us, mostly mm at net.py:7; "
        "partly offset by waiting (launch-bound) -1.00 us."
    )


def load(path: Path, events: list[Event]) -> Profile:
    return diagnosis.pyprof.load(kineto.write(path, events))


def test_equal_runs_and_noise_are_no_change() -> None:
    fault = FAULTS[-2]
    one, two, _ = pair(fault, 0)
    (text,) = sentences(one, two)
    length = float(one.diff(two).set_index("section").loc["step", "base_time_ns"])
    assert text == f"A step takes as long as in the base, {duration(length)}."


def test_the_command_says_it_before_the_table_and_beside_data(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (fault,) = [fault for fault in FAULTS if fault.what == "Python in the loop"]
    files = []
    for name, profile in zip("ab", pair(fault, 3_000 * US)):
        files.insert(0, str(tmp_path / f"{name}_dldb.sqlite"))
        profile.save(files[0])

    def run(*options: str) -> tuple[str, str]:
        assert cli.main(["diff", *files, *options]) in (None, 0)
        out, err = capfdbinary.readouterr()
        return out.decode(), err.decode()

    out, _ = run()
    assert out.startswith("A step is ")
    assert "\n\nName " in out
    out, err = run("--format", "csv")
    assert out.startswith("Name,")
    assert "pyprof diff: A step is " in err
    assert "A step " not in "".join(run("--by", "operator"))


def test_without_steps_nothing_is_said(tmp_path: Path) -> None:
    events = [
        kineto.op("aten::mm", 100, 300),
        kineto.launch(150, 250, 1),
        kineto.kernel("sgemm", 1_000, 3_000, 1),
    ]
    profile = load(tmp_path / "a.json", events)
    assert sentences(profile, profile) == []


def test_one_step_in_a_run_has_parts_all_the_same(tmp_path: Path) -> None:
    """Its noise is unknown, which is not noise: steps of 10 and 14 us, whose product takes 2 and 6."""

    def one(product: int) -> list[Event]:
        return [
            kineto.annotation("ProfilerStep#0", 0, 8_000 + product), kineto.op("aten::mm", 100, 900),
            kineto.launch(200, 300, 1), kineto.kernel("sgemm", 1_000, 1_000 + product, 1),
        ]  # fmt: skip

    base, other = (load(tmp_path / f"{name}.json", one(name)) for name in (2_000, 6_000))
    (text, *_) = sentences(base, other)
    assert text == "A step is 4.00 us (40.0 %) longer: 14.0 us instead of 10.0 us. Kernels +4.00 us, mostly mm."


def test_a_difference_within_the_noise_has_no_cause(tmp_path: Path) -> None:
    """Kernels of 2 and 6 us in turn, and one more of the long ones in the other run."""

    def run(*products: int) -> list[Event]:
        events, at = [], 0
        for step, product in enumerate(products):
            events += [
                kineto.annotation(f"ProfilerStep#{step}", at, at + 4_000 + product),
                kineto.op("aten::mm", at + 100, at + 900), kineto.launch(at + 200, at + 300, step + 1),
                kineto.kernel("sgemm", at + 1_000, at + 1_000 + product, step + 1),
            ]  # fmt: skip
            at += 4_000 + product
        return events

    base = load(tmp_path / "base.json", run(2_000, 6_000, 2_000, 6_000))
    other = load(tmp_path / "other.json", run(6_000, 6_000, 2_000, 6_000))
    assert sentences(base, other) == [
        "A step takes 9.00 us, and 8.00 us in the base: the difference is within the noise."
    ]


def test_a_worker_without_any_of_the_used_steps_is_compared(tmp_path: Path) -> None:
    """One process has 5 steps, of which the first is a warm-up; the kernels are of another one, in its only step."""
    events = []
    for step in range(5):
        at, length = step * 10_000 + (90_000 if step else 0), 10_000 if step else 100_000
        events += [
            kineto.annotation(f"ProfilerStep#{step}", at, at + length),
            kineto.op("aten::mm", at + 100, at + 900),
        ]
    events += [
        kineto.annotation("ProfilerStep#0", 0, 90_000, tid=7, pid=7), kineto.op("aten::mm", 100, 900, tid=7, pid=7),
        kineto.event("cuda_runtime", "cudaLaunchKernel", 200, 300, 7, 7, correlation=1),
        kineto.kernel("sgemm", 1_000, 2_000, 1),
    ]  # fmt: skip
    profile = load(tmp_path / "a.json", events)
    assert len(profile.diff(profile))
    assert sentences(profile, profile)

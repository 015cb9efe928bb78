# SPDX-License-Identifier: Apache-2.0
"""Launches and waits of a program on a GPU whose work on the device is not in the file: everything answers, and nothing
says that the program ran on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof import profiles
from tests import answers, kineto
from tests.build import recording, write_nsys
from tests.kineto import annotation, launch, op


def steps(wait: str, marked: bool) -> list[kineto.Event]:
    """Three operators of 1 us, each with a launch and a wait of 5 us after it."""
    out = []
    for number in range(3):
        start = 10_000 * number + 1_000
        out += [
            op("aten::mm", start, start + 1_000), launch(start + 100, start + 200, 10 * number),
            launch(start + 2_000, start + 7_000, 10 * number + 1, name=wait),
        ]  # fmt: skip
        out += [annotation(f"ProfilerStep#{number}", start - 500, start + 9_000)] if marked else []
    return out


@pytest.mark.parametrize(
    ("wait", "marked"),
    [("cudaDeviceSynchronize", False), ("cudaStreamSynchronize", True), ("hipDeviceSynchronize", True)],
)
def test_everything_answers(tmp_path: Path, wait: str, marked: bool):
    prof = profiles.load(kineto.write(tmp_path / "t.json", steps(wait, marked)))
    if marked:
        prof.report("critical_path")
    else:
        answers.all_of(prof, tmp_path)
    text = str(prof.overview)
    assert "The work of 3 of 3 launches is not in the recording" in text
    needs = {outcome.rule.id: outcome.needs for outcome in prof.outcomes}
    assert needs["R05"] == "needs the work of the GPU: this recording has launches, and no kernels"
    assert {"R44", "R45", "R46", "R47"}.isdisjoint(outcome.rule.id for outcome in prof.outcomes if outcome.finding)


def test_a_few_missing_kernels_are_no_headline(tmp_path: Path):
    """1 of 101 launches is 1 %, not at least that."""
    made = recording("aten::mm\n    > 40 gemm\n" * 101)
    del made.kernels[50]
    prof = profiles.load(write_nsys(tmp_path / "t.sqlite", made))
    assert "is not in the recording" not in str(prof.overview)
    assert prof.database.rows("select count from lost") == [(1,)]
    del made.kernels[50]
    assert "The work of 2 of 101 launches" in str(profiles.load(write_nsys(tmp_path / "u.sqlite", made)).overview)

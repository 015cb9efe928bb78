# SPDX-License-Identifier: Apache-2.0
"""Faults of known cost in simulated programs: the first finding is about them, and its saving is what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import diagnosis
from benchmarks.diagnosis import BASES, FAULTS, US, Base, Fault

SEED = 1_000  # none of the page's


# Every fault in one of the programs, and with PYPROF_LONG=1 in the other.
@pytest.mark.parametrize(("base", "fault"), [
    pytest.param(base, fault, id=f"{fault.what}-{base.name}", marks=[pytest.mark.long] if turn else [])
    for number, fault in enumerate(FAULTS) for turn, base in enumerate((BASES[number % 2], BASES[1 - number % 2]))
])  # fmt: skip
def test_the_first_finding_is_the_fault_and_its_saving_the_cost(base: Base, fault: Fault, tmp_path: Path) -> None:
    found = diagnosis.judge(tmp_path, base, fault, SEED, 4_500 * US)
    step = base.kernels * base.length
    if found.true < 0.02 * step:  # too little to be found for sure, and to be claimed
        assert (found.saving or 0) < 0.03 * step
        return
    assert found.right, found
    assert found.saving == pytest.approx(found.true, rel=0.1)


def test_without_a_fault_nothing_is_said(tmp_path: Path) -> None:
    for number, fault in enumerate(FAULTS[-2:]):
        (tmp_path / str(number)).mkdir()
        found = diagnosis.judge(tmp_path / str(number), BASES[0], fault, SEED, 0)
        assert found.true == 0
        assert found.right, found


@pytest.mark.long
def test_the_page_on_accuracy_is_true(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    diagnosis.main()
    page, file = capsys.readouterr().out, diagnosis.ROOT / "docs" / "accuracy.md"
    simulated, heading, recorded = file.read_text(encoding="utf-8").partition("\n## Programs before")
    if request.config.getoption("--regold"):
        file.write_text(page + heading + recorded, encoding="utf-8")
    else:
        assert simulated == page
    assert "| measured |" in recorded

# SPDX-License-Identifier: Apache-2.0
"""What the environment says `init` records: steps, options, nonsense; also of ranks that the script starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.capture import environment_variables
from pyprof.capture.controller import control
from tests.forks import Forks

from .conftest import Recorded
from .test_processes import RANKS
from .test_steps import numbers, optimized, powers

x = torch.ones(2, 2)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PYPROF_OUTPUT", "PYPROF_STEPS", "PYPROF_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "given", "name"),
    [
        ({}, {}, "net.sqlite"),
        ({"PYPROF_OUTPUT": "mine.sqlite"}, {}, "mine.sqlite"),
        ({"PYPROF_OUTPUT": "mine.sqlite"}, {"output": "script.sqlite"}, "script.sqlite"),
    ],
)
def test_steps(
    variables: dict[str, str],
    given: dict[str, Any],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for each, value in {**variables, "PYPROF_STEPS": "2:4"}.items():
        monkeypatch.setenv(each, value)
    pyprof.init(**given)
    optimized(6)
    assert os.listdir() == [name]
    assert numbers(tmp_path / name) == powers(tmp_path / name) == [2, 3]
    pyprof.init()  # once is enough
    optimized(6)
    pyprof.shutdown()
    assert os.listdir() == [name]


def test_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYPROF_OUTPUT", "net.sqlite")
    monkeypatch.setenv("PYPROF_OPTIONS", "  memory collector=none\tmax_events=5 ")
    pyprof.init()
    for i in range(9):
        torch.pow(x, i)
    assert control.options == {"memory": True, "collector": "none"}
    assert control.max_events == 5
    pyprof.shutdown()
    recorded = Recorded(tmp_path / "net.sqlite")
    assert len(recorded.calls) + len(recorded.ops) == 5
    assert recorded.query("select count(*) from PYPROF_MEMORY") != [(0,)]
    assert control.options == {}


def test_what_the_script_says_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYPROF_OPTIONS", "memory io max_events=5")
    pyprof.init(memory=False, max_events=7)
    assert control.options == {"memory": False, "io": True}
    assert control.max_events == 7


def test_a_part_by_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYPROF_OPTIONS", "delay=1000")
    pyprof.init()
    torch.tanh(x)
    pyprof.shutdown()
    assert os.listdir() == []
    assert "within the --delay of 1000 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "sentence", "files"),
    [
        ({"PYPROF_STEPS": "5-9"}, "PYPROF_STEPS=5-9: expected FIRST:END", []),
        ({"PYPROF_STEPS": "9:5", "PYPROF_OUTPUT": "net.sqlite"}, "PYPROF_STEPS=9:5: expected FIRST:END", []),
        ({"PYPROF_OPTIONS": "memry"}, "PYPROF_OPTIONS: memry left out; expected words such as memory", []),
        (
            {"PYPROF_OPTIONS": "memory=yes --collector=gpu ; io", "PYPROF_OUTPUT": "net.sqlite"},
            "PYPROF_OPTIONS: memory=yes, --collector=gpu, ; left out", ["net.sqlite"],
        ),
        (
            {"PYPROF_OPTIONS": "max_events=0 delay=nan delay=-1 duration=x collector sample=gpu api_backtrace=ten =1 =",
             "PYPROF_OUTPUT": "net.sqlite"},
            "max_events=0, delay=nan, delay=-1, duration=x, collector, sample=gpu, api_backtrace=ten, =1, = left out",
            ["net.sqlite"],
        ),
        (
            {"PYPROF_OPTIONS": "delay=5", "PYPROF_STEPS": "0:1"},
            "PYPROF_OPTIONS: delay beside PYPROF_STEPS left out", ["net.sqlite"],
        ),
        ({"PYPROF_OUTPUT": "nowhere/net.sqlite"}, "nowhere/net.sqlite cannot be written", []),
    ],
)  # fmt: skip
def test_nonsense_is_one_sentence_and_the_program_goes_on(
    variables: dict[str, str], sentence: str, files: list[str], forks: Forks, tmp_path: Path
) -> None:
    source = "import torch, pyprof\npyprof.init()\ntorch.ones(2)\npyprof.step()\nprint('end')\npyprof.init()\n"
    code, program = forks.run(tmp_path, source, **variables)
    assert (code, program.stdout) == (0, "end\n")
    lines = [line for line in program.stderr.splitlines() if line.startswith("pyprof: ") and "nothing was" not in line]
    assert len(lines) == 1
    assert sentence in lines[0]
    assert sorted(set(os.listdir(tmp_path)) - {"net.py"}) == files


def test_every_option_of_a_recording_can_be_said() -> None:
    from pyprof.capture.core.options import Given

    known = {*environment_variables._WITH_VALUE, *environment_variables._FLAGS} - {
        "max_events",
        "delay",
        "duration",
    }
    assert known == set(Given.__annotations__)
    assert not environment_variables.words(
        "memory io sync api_backtrace=0 sample=none collector=cupti max_events=1 duration=.5"
    )[1]


def test_ranks_that_the_script_starts_have_the_steps_too(forks: Forks, tmp_path: Path) -> None:
    source = RANKS.format(method="fork", how="environment", before="torch.exp(torch.ones(2))", fails=False)
    source = source.replace(
        "        torch.tanh(torch.ones(2))\n    torch.dist",
        "        for i in range(5): torch.pow(torch.ones(2), i); pyprof.step()\n    torch.dist",
    )
    code, program = forks.run(tmp_path, source, PYPROF_STEPS="1:3", PYPROF_OPTIONS="max_events=50")
    assert code == 0, program.stderr
    assert sorted(set(os.listdir(tmp_path)) - {"net.py"}) == ["net.rank0.sqlite", "net.rank1.sqlite"]
    for number in range(2):
        assert powers(tmp_path / f"net.rank{number}.sqlite") == [1, 2]
        assert numbers(tmp_path / f"net.rank{number}.sqlite") == [1, 2]

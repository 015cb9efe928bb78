# SPDX-License-Identifier: Apache-2.0
"""Recording changes no bit of what programs with well-known libraries compute: losses, gradients, parameters, tokens,
images, and the state of every random generator."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.forks import Forks

from .programs import HEAD, PROGRAMS, TAIL

MODES: dict[str, tuple[str, ...]] = {
    "run": ("run", "-o", "net.sqlite"),
    "profile": (),
    "registered": (),
    "flight": (),
}
FILES = {"run": "net.sqlite", "profile": "net.sqlite", "flight": "flight.sqlite"}


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Forks]]:
    """A program, and a process that has imported what it imports."""
    text = PROGRAMS[request.param]
    imports = "\n".join(re.findall(r"^(?:import|from) .*", text, re.MULTILINE))
    logs = tmp_path / "logs"
    logs.mkdir()
    forks = Forks(logs, more=f"import torch._dynamo\n{imports}")
    yield HEAD + text + TAIL, forks
    forks.close()


def test_no_bit_changes(program: tuple[str, Forks], tmp_path: Path) -> None:
    source, forks = program
    code, plain = forks.run(tmp_path, source)
    assert code == 0, plain.stderr
    expected = plain.stdout.splitlines()[-1]
    assert re.fullmatch("[0-9a-f]{64}", expected)
    for mode, command in MODES.items():
        folder = tmp_path / mode
        folder.mkdir()
        code, done = forks.run(folder, source, *command, MODE=mode)
        assert code == 0, (mode, done.stderr)
        assert done.stdout.splitlines()[-1] == expected, mode
        assert "Please report" not in done.stderr, (mode, done.stderr)
        if mode != "registered":
            with closing(sqlite3.connect(folder / FILES[mode])) as file:
                ((operators,),) = file.execute("select count(*) from PYPROF_OP")
                lost = [reason for (reason,) in file.execute("select reason from PYPROF_LOST")]
            assert operators > 4
            assert not [reason for reason in lost if "failed" in reason or "not understood" in reason]

# SPDX-License-Identifier: Apache-2.0
"""Whatever looks at a SQLite file closes it by hand, and does not leave that to the garbage collector."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.commands.main import main

from .build import call, recording, write_capture, write_nsys, write_nvprof

MINE = call("torch.nn.functional.linear", (2, 3), (4, 3))
TRACED = f"{MINE}\n    aten::addmm, seq = 3\n        > 40 volta_sgemm\n"
OPERATORS = f"{MINE}\n    op seq=3 aten::addmm\n"


def database(path: Path) -> Path:
    pyprof.load(write_capture(path.with_name("source"), recording(OPERATORS))).save(path)
    return path


def of_nobody(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("create table something (x)")
    connection.close()
    return path


def damaged(path: Path) -> Path:
    whole = write_capture(path, recording(OPERATORS)).read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * 4000 + whole[4100:])
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "nsys": lambda path: write_nsys(path, recording(TRACED)),
    "nvprof": lambda path: write_nvprof(path, recording(TRACED)),
    "capture": lambda path: write_capture(path, recording(OPERATORS)),
    "database": database,
    "foreign": of_nobody,
    "damaged": damaged,
}
COMMANDS = (
    "info FILE", "parse FILE", "prof FILE", "report op_type FILE", "diff FILE FILE", "save -o OUT FILE",
    "export --format=chrome -o OUT FILE", "export --format=speedscope -o OUT FILE",
)  # fmt: skip


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[sqlite3.Connection]]:
    """Every connection from now on. They are held here, so nothing but `close` ends one."""
    found: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def held(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        found.append(connect(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(sqlite3, "connect", held)
    yield found
    for connection in found:
        connection.close()


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", FILES)
def test_a_command_closes_what_it_opened(
    kind: str, command: str, tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    path = FILES[kind](tmp_path / "net.sqlite")
    assert not any(map(is_open, opened))
    opened.clear()
    out = tmp_path / "out"
    code = main([{"FILE": str(path), "OUT": str(out)}.get(word, word) for word in command.split()])
    gc.collect()
    assert opened
    assert not any(map(is_open, opened)), (code, len(opened))


def test_a_profile_closes_its_file_when_it_goes(tmp_path: Path, opened: list[sqlite3.Connection]) -> None:
    profile = pyprof.load(database(tmp_path / "net.sqlite"))
    assert len(profile.kernels) == 1
    assert sum(map(is_open, opened)) == 1
    del profile
    gc.collect()
    assert not any(map(is_open, opened))

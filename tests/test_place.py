# SPDX-License-Identifier: Apache-2.0
"""A file has its name when it is whole and on the disk, and what it replaces hands on its permissions."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.commands.main import main
from pyprof.core import atomic_file
from pyprof.core.errors import CaptureError
from tests import build
from tests.build import recording


def named(path: Path) -> None:
    with atomic_file.named(str(path)) as name:
        Path(name).write_text("new")


def database(path: Path) -> None:
    with atomic_file.database(str(path)) as connection:
        connection.execute("create table t (a)")


WRITERS = {"named": named, "database": database}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("mode", [0o640, 0o600, 0o664])
def test_permissions_of_what_is_replaced(writer: str, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    path.write_text("old")
    path.chmod(mode)
    WRITERS[writer](path)
    assert path.read_bytes()[:3] != b"old"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_gets_its_name_before_it_is_on_the_disk(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.sqlite"
    path.write_text("old")
    seen = []

    def fsync(file: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(file).st_mode), path.read_bytes()[:3] == b"old"))

    monkeypatch.setattr(os, "fsync", fsync)
    WRITERS[writer](path)
    assert seen == [(False, True), (True, False)]  # the file while the old one is there, then the folder


@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_fails_leaves_what_was_there(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sqlite"
    path.write_text("old")

    def fsync(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises((OSError, CaptureError), match="Input/output error"):
        WRITERS[writer](path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["net.sqlite"]


def test_every_command_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = build.write_nsys(tmp_path / "net.sqlite", recording("aten::mm\n  > 5 kernel"))
    out = tmp_path / "out"
    for words in (
        ["save", "-f"], ["export", "-f"], ["parse", "-f"], ["report", "-f", "kernel"],
    ):  # fmt: skip
        out.write_text("old")
        out.chmod(0o640)
        assert main([*words, "-o", str(out), str(source)]) == 0
        assert out.read_bytes()[:3] != b"old"
        assert stat.S_IMODE(out.stat().st_mode) == 0o640
    with closing(sqlite3.connect(source)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("words", [["save"], ["export"], ["parse"], ["report", "kernel"]], ids=" ".join)
def test_no_command_replaces_a_file_unless_it_is_told_to(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = build.write_nsys(tmp_path / "net.sqlite", recording("aten::mm\n  > 5 kernel"))
    out = tmp_path / "out"
    out.write_text("old")
    assert main([*words, "-o", str(out), str(source)]) == 2
    assert f"{out} exists: use --force to replace it" in capsys.readouterr().err
    assert main([*words, "-f", "--output", str(source), str(source)]) == 2
    assert f"{source} is an input and would be replaced" in capsys.readouterr().err
    assert out.read_text() == "old"

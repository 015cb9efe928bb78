# SPDX-License-Identifier: Apache-2.0
"""A recording with a write-ahead log beside it is read with its log, and nothing appears beside it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.commands.main import main
from pyprof.core.errors import FormatError
from pyprof.core.sqlite_file import Database
from pyprof.parse import loader
from tests import build

Write = Callable[[Path, build.Recording], Path]
TEXT = f"{build.classic('linear', (2, 3), (4, 3))}\n    > 40 volta_sgemm\n"


def with_log(write: Write, folder: Path, rows: int = 2) -> Path:
    """A recording whose writer was killed before its log went into the file: rows of a table are in the log alone."""
    path = write(folder / "writing.sqlite", build.recording(TEXT))
    target = folder / "in" / "net.sqlite"
    target.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma wal_autocheckpoint = 0")
        for number in range(rows):
            connection.execute("insert into StringIds values (?, ?)", (9_000 + number, f"of the log {number}"))
        connection.commit()
        shutil.copy(path, target)
        shutil.copy(f"{path}-wal", f"{target}-wal")
    return target


def strings(path: Path) -> set[str]:
    with Database(path) as database:
        return {text for (text,) in database.rows("StringIds", ("value",)) if text.startswith("of the log")}


# Commands that read it, and those that write a database and an export of it.
COMMANDS: list[list[str]] = [["info"], ["parse"], ["save", "-o", "out.sqlite"], ["export", "-o", "out.json"]]


@pytest.mark.parametrize(("write", "commands"), [(build.write_nsys, COMMANDS), (build.write_capture, COMMANDS[1:2])])
def test_its_log_is_read_and_nothing_appears_beside_it(
    write: Write, commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = with_log(write, tmp_path)
    before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    assert strings(path) == {"of the log 0", "of the log 1"}
    for words in commands:
        assert main([*words, str(path)]) == 0
    assert main(["info", str(path.parent)]) == 0
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == before


def test_a_log_is_that_of_the_file_and_not_of_a_link_to_it(tmp_path: Path) -> None:
    path = with_log(build.write_nsys, tmp_path)
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    assert strings(link) == {"of the log 0", "of the log 1"}
    assert not list(tmp_path.glob("link.sqlite-*"))


@pytest.mark.parametrize("make", [lambda log: log.write_bytes(b""), os.mkfifo])
def test_an_empty_log_has_nothing(make: Callable[[Path], object], tmp_path: Path) -> None:
    path = with_log(build.write_nsys, tmp_path)
    log = Path(f"{path}-wal")
    log.unlink()
    make(log)
    assert strings(path) == set()
    assert sorted(os.listdir(path.parent)) == ["net.sqlite", "net.sqlite-wal"]


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_log_that_is_no_file_is_one_sentence(kind: str, tmp_path: Path) -> None:
    path = with_log(build.write_nsys, tmp_path)
    log = Path(f"{path}-wal")
    target = log.rename(tmp_path / "target")
    {"link": lambda: log.symlink_to(target), "folder": log.mkdir}[kind]()
    if kind == "folder":
        (log / "file").touch()
    content = target.read_bytes()
    with pytest.raises(FormatError, match=r"net\.sqlite: SQLite cannot read it"):
        loader.load(path)
    assert target.read_bytes() == content
    assert sorted(os.listdir(path.parent)) == ["net.sqlite", "net.sqlite-wal"]

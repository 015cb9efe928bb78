# SPDX-License-Identifier: Apache-2.0
"""Databases that were made to do harm: refused in one sentence, by every command, with nothing written or deleted."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.errors import FormatError, PyProfError, UsageError
from pyprof.dlprof.command import main as dlprof
from pyprof.facts.steps.aggregation import aggregate
from pyprof.store.files import Store, written
from tests.build import recording, write_capture
from tests.hostile import journal
from tests.parse.test_invariance import OPERATORS


@pytest.fixture
def forged(profile: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A profile database that somebody sent with a journal, and a file of the user's that it names."""
    (tmp_path / "home").mkdir()
    victim = tmp_path / "home" / "key"
    victim.write_text("secret")
    sent = tmp_path / "run" / "net_dldb.sqlite"
    sent.parent.mkdir()
    shutil.copyfile(profile, sent)
    sent.with_name(sent.name + "-journal").write_bytes(journal(sent.read_bytes(), bytes(victim)))
    return sent, victim


def test_the_journal_would_delete(forged: tuple[Path, Path]) -> None:
    """What a tool that knows nothing of this does: else nothing is tested here."""
    sent, victim = forged
    with closing(sqlite3.connect(sent)) as connection:
        connection.execute("select 1 from sqlite_master").fetchall()
    assert not victim.exists()


COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "report": lambda sent, out: main(["report", "summary", str(sent)]),
    "overview": lambda sent, out: main(["report", str(sent)]),
    "prof": lambda sent, out: main(["prof", str(sent)]),
    "parse": lambda sent, out: main(["parse", str(sent)]),
    "save": lambda sent, out: main(["save", "-o", str(out / "copy_dldb.sqlite"), str(sent)]),
    "save over it": lambda sent, out: main(["save", "-f", "-o", str(sent), str(sent)]),
    "export": lambda sent, out: main(["export", "-o", str(out / "net.json"), str(sent)]),
    "diff": lambda sent, out: main(["diff", str(sent), str(sent)]),
    "info": lambda sent, out: main(["info", str(sent)]),
    "dlprof": lambda sent, out: dlprof([f"--nsys_database={sent}", f"--output_path={out}"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_journal_that_names_another_file(
    command: str, forged: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sent, victim = forged
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    before = {path.name: path.read_bytes() for path in sent.parent.iterdir()}
    COMMANDS[command](sent, out)
    assert "Traceback" not in capsys.readouterr().err
    assert victim.exists()
    assert {path.name: path.read_bytes() for path in sent.parent.iterdir()} == before
    assert not list(out.rglob("*.*"))


def test_a_recording_in_the_place_of_such_a_database(forged: tuple[Path, Path], tmp_path: Path, profile: Path) -> None:
    """The journal of a file that is replaced is used up first: `save` over what somebody sent."""
    sent, victim = forged
    with Store(profile) as store, pytest.raises(FormatError, match="journal"), written(str(sent)) as name:
        store.copy(name)
    assert victim.exists()
    assert sorted(os.listdir(sent.parent)) == [sent.name, sent.name + "-journal"]


def changed(profile: Path, folder: Path, *statements: str) -> Path:
    """A copy of a profile database, with something done to it."""
    path = folder / "odd_dldb.sqlite"
    shutil.copyfile(profile, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma writable_schema = on")
        for statement in statements:
            connection.execute(statement)
    return path


ENDLESS = "with recursive c (x) as (values (1) union all select x + 1 from c) select"
CODE = {
    "a view": ("create view evil as select 1",),
    "a trigger": ("create trigger evil after insert on meta begin delete from event; end",),
    "a virtual table": ("create virtual table evil using fts5 (a)",),
    "a table that is an endless view": (
        "alter table stack rename to was", f"create view stack as {ENDLESS} x, x from c",
    ),
    "a type in capitals": (
        "create view evil as select 1", "update sqlite_master set type = 'VIEW' where name = 'evil'",
    ),
    "a virtual table with a comment": (
        "create virtual table evil using fts5 (a)",
        "update sqlite_master set sql = 'CREATE/**/VIRTUAL TABLE evil using fts5 (a)' where name = 'evil'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", CODE)
def test_code(code: str, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(profile, tmp_path, *CODE[code])
    for words in (
        ["report", "summary"],
        ["report"],
        ["export", "-o", str(tmp_path / "out.json")],
        ["diff", str(profile)],
    ):
        assert main([*words, str(path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{path} holds code (" in line


def test_a_column_that_computes(profile: Path, tmp_path: Path) -> None:
    """SQLite works it out each time that it is read."""
    path = changed(
        profile, tmp_path, "alter table stack rename to was",
        "create table stack (id integer primary key, frame integer,"
        " parent integer generated always as (length(zeroblob(100000000))))",
    )  # fmt: skip
    with pytest.raises(FormatError, match="table stack lacks "):
        Store(path)


@pytest.mark.parametrize(
    ("at", "value", "fault"),
    [
        (18, b"\2\2", "write-ahead log"),
        (56, b"\0\0\0\2", "not in UTF-8"),
        (28, b"\0\1\0\0", " bytes, found "),
        (16, b"\0\3", "it has no SQLite header"),
    ],
)
def test_the_head(at: int, value: bytes, fault: str, profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd_dldb.sqlite"
    whole = bytearray(profile.read_bytes())
    whole[at : at + len(value)] = value
    path.write_bytes(whole)
    with pytest.raises(FormatError, match=fault):
        Store(path)
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == [path.name]


def test_a_log_beside_the_file(profile: Path, tmp_path: Path) -> None:
    """SQLite reads one that is there, whatever the head says, and writes an index beside it."""
    path = tmp_path / "odd_dldb.sqlite"
    shutil.copyfile(profile, path)
    (tmp_path / "odd_dldb.sqlite-wal").write_bytes(b"")
    with pytest.raises(FormatError, match="write-ahead log"):
        Store(path)
    assert sorted(os.listdir(tmp_path)) == [path.name, path.name + "-wal"]


@pytest.mark.parametrize("texts", ["table 'meta'", "index names"])
def test_names_that_are_no_text(texts: str, profile: Path, tmp_path: Path) -> None:
    where = "name = 'meta'" if texts == "table 'meta'" else "type = 'index'"
    path = changed(
        profile,
        tmp_path,
        f"update sqlite_master set sql = cast(cast(sql as blob) || x'ff' as text) where {where}",
    )
    with pytest.raises(FormatError) as caught:
        Store(path)
    assert "\n" not in str(caught.value)


def test_an_older_schema_and_a_newer_one(profile: Path, tmp_path: Path) -> None:
    for part, number, advice in (("major", 1, "Build it again from the recording"), ("minor", 99, "Upgrade")):
        path = changed(profile, tmp_path, f"update meta set value = '{number}' where name = 'schema_{part}'")
        with pytest.raises(FormatError, match=advice):
            Store(path)


def test_a_query_that_does_not_end(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "timeout", 0.05)
    with Store(profile) as store:
        with pytest.raises(PyProfError, match=r"took more than 0\.05 s"):
            store.rows(f"{ENDLESS} max(x) from c")
        with pytest.raises(PyProfError, match=r"took more than 0\.05 s"):
            list(store.each(f"{ENDLESS} x from c where x < 0"))
        with pytest.raises(PyProfError, match=r"took more than 0\.05 s"):
            store.columns(f"{ENDLESS} x from c")
        assert store.rows("select 1") == [(1,)]


def test_what_a_connection_that_adds_may_do(profile: Path, tmp_path: Path) -> None:
    path = changed(profile, tmp_path)
    with Store(path) as store:
        with store.writing() as connection:
            for statement in (
                "drop table event",
                "attach ':memory:' as other",
                "create table x (a)",
                "pragma x = 1",
            ):
                with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|too many attached"):
                    connection.execute(statement)
        assert aggregate(store, 1, 2).first == 1


def test_another_process_that_writes(profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal is that of a transaction, not of a process that was killed."""
    monkeypatch.setattr("pyprof.store.access._BUSY_TIMEOUT", 0.05)
    path = changed(profile, tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        other.execute("insert into meta values ('a', 'b')")
        with pytest.raises(PyProfError, match="is being changed by another process"):
            Store(path)
        other.execute("commit")
    with Store(path) as store:
        assert store.meta["a"] == "b"


def test_a_profile_is_read_as_before(profile: Path) -> None:
    with Store(profile) as store:
        assert store.meta["schema_major"] == "2"
    assert len(pyprof.load(profile).kernels) == 3


def test_how_long_a_command_lets_a_query_run(
    profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", "kernel", "--timeout", "1e-9", str(profile)]) == 0  # few instructions need no look
    monkeypatch.setattr("pyprof.store.access._INSTRUCTIONS", 1)
    assert main(["report", "kernel", "--timeout", "1e-9", str(profile)]) == 1
    assert "and was stopped. Raise the limit with --timeout" in capsys.readouterr().err
    for wrong in ("0", "nan", "soon"):
        with pytest.raises(SystemExit):
            main(["report", "kernel", "--timeout", wrong, str(profile)])
        assert f"invalid timeout {wrong!r}: expected a positive number of seconds" in capsys.readouterr().err
    assert len(pyprof.load(profile).kernels) == 3  # the next one has its own


@pytest.mark.parametrize("table", ["aggregation", "iteration", "iteration_set"])
def test_nothing_was_aggregated(table: str, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(profile, tmp_path, f"delete from {table}")
    for words in (["report", "summary"], ["report"], ["report", "iteration"], ["diff", str(profile)]):
        code = main([*words, str(path)])
        captured = capsys.readouterr()
        assert code == 1 or (table == "iteration" and code == 0), (
            words,
            captured,
        )  # figures of no iteration are na
        assert "Traceback" not in captured.err
        assert len(captured.err.splitlines()) <= 1


def test_sentences_of_a_recording_name_it(tmp_path: Path) -> None:
    """Not the scratch database that was made of it."""
    path = write_capture(tmp_path / "net.sqlite", recording(OPERATORS))
    database = pyprof.load(path).database
    assert Path(database.path) != path
    assert str(database.damaged("a page")).startswith(f"{path} is damaged (a page).")


def test_a_source_whose_profile_is_gone_is_not_called_damaged(tmp_path: Path) -> None:
    source = pyprof.load(write_capture(tmp_path / "net.sqlite", recording("> 5 gemm\n"))).source()
    gc.collect()
    with pytest.raises(UsageError, match="is closed: keep its profile"):
        source.store.rows("select 1")

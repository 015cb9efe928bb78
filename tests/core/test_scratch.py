# SPDX-License-Identifier: Apache-2.0
"""Temporary folders are gone when their process is, at the latest with the next process that needs one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from adbc_driver_manager import AdbcStatusCode
from adbc_driver_sqlite.dbapi import Error

from pyprof.commands.main import main
from pyprof.core import scratch
from pyprof.store import files
from tests import kineto
from tests.waiting import until

# A command that stands still while its archive is unpacked.
READING = """
import sys, time
from pyprof.commands.main import main
from pyprof.parse import folder
def listing(path, files=None):
    print(path, flush=True)
    time.sleep(1000)
folder.listing = listing
main(["report", sys.argv[1]])
"""


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Signals as a terminal has them: below nohup the tests, and what they start, would ignore one."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files."""
    out = tmp_path / "tmp"
    out.mkdir()
    monkeypatch.setenv("TMPDIR", str(out))
    monkeypatch.setattr("tempfile.tempdir", None)
    scratch._prune.cache_clear()
    return out


@contextmanager
def reading(folder: Path) -> Iterator[subprocess.Popen[str]]:
    trace = kineto.write(folder / "trace.json", kineto.training())
    with zipfile.ZipFile(folder / "traces.zip", "w") as archive:
        archive.write(trace, "trace.json")
    words = [sys.executable, "-c", READING, str(folder / "traces.zip")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert Path(child.stdout.readline().strip(), "trace.json").exists()
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_command_leaves_nothing(number: signal.Signals, tmp_path: Path, top: Path) -> None:
    with reading(tmp_path) as child:
        child.send_signal(number)
        assert child.wait() == -number
    assert not list(top.iterdir())


def test_the_next_process_removes_what_a_killed_one_left(tmp_path: Path, top: Path) -> None:
    with reading(tmp_path):
        folders = [*top.iterdir()]  # of the archive, and of the database that is made of it
        old = time.time() - 2 * scratch._FRESH
        for folder in folders:
            os.utime(folder, (old, old))
        scratch.Folder().cleanup()
        assert {*top.iterdir()} == {*folders}  # in use
    scratch._prune.cache_clear()
    until(lambda: not any(map(_held, folders)))  # the system takes a moment to give their locks back
    scratch.Folder().cleanup()
    assert not list(top.iterdir())


def _held(folder: Path) -> bool:
    lock = scratch._locked(str(folder))
    if lock is None:
        return True
    os.close(lock)
    return False


def test_what_is_not_ours_or_was_just_made_stays(tmp_path: Path, top: Path) -> None:
    old = time.time() - 2 * scratch._FRESH
    target = tmp_path / "of the user"
    target.mkdir()
    (top / "pyprof-scratch-file").write_text("")
    (top / "pyprof-scratch-link").symlink_to(target)
    (top / "pyprof-notes").mkdir()
    for path in [*top.iterdir(), target]:
        os.utime(path, (old, old), follow_symlinks=False)
    (top / "pyprof-scratch-fresh").mkdir()
    before = sorted(top.iterdir())
    scratch.Folder().cleanup()
    assert sorted(top.iterdir()) == before
    assert target.exists()


def test_signals_of_others_stay_theirs() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with scratch.removed_by_signals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGHUP) is scratch._end
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_forked_child_leaves_the_folders_of_its_parent(top: Path) -> None:
    with scratch.removed_by_signals(), scratch.Folder() as name:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1000)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert Path(name).exists()


def test_where_there_is_no_room_the_sentence_names_the_folder(
    tmp_path: Path, top: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "create", full)
    trace = kineto.write(tmp_path / "trace.json", kineto.training())
    assert main(["report", str(trace)]) == 1
    reason = "the database could not be written (No space left on device)"
    assert f"{top}: {reason}. Set TMPDIR to a folder with more room." in capsys.readouterr().err
    assert main(["save", "-o", str(tmp_path / "out_dldb.sqlite"), str(trace)]) == 1
    assert f"{tmp_path / 'out_dldb.sqlite'}: {reason}. Name another file." in capsys.readouterr().err


def test_a_driver_that_cannot_be_loaded_is_no_full_disk(
    tmp_path: Path, top: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise Error("[Driver Manager] Could not load `driver.so`", status_code=AdbcStatusCode.NOT_FOUND)

    monkeypatch.setattr(files, "create", absent)
    trace = kineto.write(tmp_path / "trace.json", kineto.training())
    assert main(["report", str(trace)]) == 1
    error = capsys.readouterr().err
    assert "a library of SQLite could not be loaded" in error
    assert "memory may be short" in error
    assert "TMPDIR" not in error

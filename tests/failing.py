# SPDX-License-Identifier: Apache-2.0
"""Runs commands on a disk that fails at the n-th write, for n = 1, 2, ..., until it does not fail any more.

LD_PRELOAD=faults.so python failing.py COMMAND FOLDER ERROR STEP prints how often what was left; an AssertionError is a
fault. Every child is a fork of this process, which has imported everything. STEP: of n only every so many.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sqlite3
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyprof.commands.main import main
from pyprof.core import atomic_file
from pyprof.core.frame import run_command
from tests.build import recording, write_capture
from tests.parse.test_invariance import OPERATORS, TRAINING


def aggregate(path: Path) -> None:
    import pyprof

    prof = pyprof.load(path)
    try:
        prof.aggregate(key="linear")
    finally:
        prof.database.close()


def record(path: Path) -> None:
    """Write a database as a recording is written."""
    with atomic_file.database(str(path)) as connection:
        connection.execute("create table numbers (number integer, text text)")
        with connection:
            connection.executemany("insert into numbers values (?, ?)", ((i, "x" * 90) for i in range(200)))


def commands(folder: Path) -> dict[str, tuple[str, Callable[[], int]]]:
    """By name the file that is written, and what writes it."""
    net, out = str(folder / "net.sqlite"), folder / "out"

    def of(name: str, *words: str) -> tuple[str, Callable[[], int]]:
        return name, lambda: main([*words, "-o", str(out / name), net])

    return {
        "save": of("net_dldb.sqlite", "save", "-f"),
        "export": of("net.json", "export", "-f"),
        "parse": of("net.dict", "parse", "-f"),
        "report": of("kernel.csv", "report", "-f", "--format", "csv", "kernel"),
        "recording": (
            "recording.sqlite",
            lambda: run_command("run", lambda: record(out / "recording.sqlite")),
        ),
        "aggregate": (
            "net_dldb.sqlite",
            lambda: run_command("aggregate", lambda: aggregate(out / "net_dldb.sqlite")),
        ),
    }


def rows(path: Path) -> int:
    """Of all tables of a database, which has to be sound, as its readers see it."""
    if path.name.endswith("_dldb.sqlite"):
        from pyprof.store.files import Store

        with Store(path) as store, closing(sqlite3.connect(store.uri, uri=True)) as connection:
            return _rows(connection)
    with closing(sqlite3.connect(path)) as connection:
        return _rows(connection)


def _rows(connection: sqlite3.Connection) -> int:
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    return sum(connection.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names)


def content(path: Path) -> object:
    """What tells a file that is whole from one that is not."""
    if not path.exists():
        return None
    return rows(path) if path.suffix == ".sqlite" else path.read_bytes()


def child(work: Callable[[], int], said: Path, folder: Path, n: int, error: int) -> tuple[int, bool, str]:
    """The exit code of a command on such a disk, whether the disk failed, and what was said on stderr."""
    pid = os.fork()
    if not pid:
        for number in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
        faults = ctypes.CDLL(None)
        faults.fault_set(os.fsencode(folder), n, error)
        code: object = 99
        try:
            code = work()
        except SystemExit as exit_:
            code = exit_.code
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((int(code or 0) & 127) | (128 if faults.fault_fired() else 0))  # type: ignore[call-overload]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status >= 0, (status, said.read_text())
    return status & 127, bool(status & 128), said.read_text()


def rounds(name: str, folder: Path, error: int, step: int) -> Counter[str]:
    what = recording(OPERATORS)
    gpu = recording(TRAINING)
    what.ranges, what.launches, what.kernels = [*what.ranges, *gpu.ranges], gpu.launches, gpu.kernels
    write_capture(folder / "net.sqlite", what)
    (folder / "out").mkdir()
    file, work = commands(folder)[name]
    target, said = folder / "out" / file, folder / "said"
    if name == "aggregate":
        assert main(["save", "-o", str(target), str(folder / "net.sqlite")]) == 0
    shutil.copytree(folder / "out", folder / "before")
    code, fired, text = child(work, said, folder / "out", 1 << 30, error)
    assert (code, fired) == (0, False), text
    new = content(target)
    shutil.copytree(folder / "out", folder / "after")
    seen: Counter[str] = Counter()
    for n in range(1, 10_000, step):
        there = n % 2  # an older file of that name
        shutil.rmtree(folder / "out")
        shutil.copytree(folder / ("after" if there and name != "aggregate" else "before"), folder / "out")
        old = content(target)
        code, fired, text = child(work, said, folder / "out", n, error)
        where = f"{name}, error {error}, write {n}: code {code}: {text}"
        if not fired:
            assert code == 0, where
            seen["writes"] = n - 1
            return seen
        found = content(target)
        lines = text.splitlines()
        assert "Traceback" not in text, where
        if code:
            assert len(lines) == 1, where
            assert code in (1, 2), where  # 2: refused before the work
            assert found in (old, new), where
        else:
            assert found == new, where
        assert {one for one in os.listdir(folder / "out") if not one.endswith("-journal")} <= {file}, where
        seen["failed" if code else "written"] += 1
    raise AssertionError("it never ended")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(rounds(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))

# SPDX-License-Identifier: Apache-2.0
"""Databases that hold what no profile does: figures, or a sentence that names the file; nothing else."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.errors import FormatError
from pyprof.store import files
from pyprof.store.files import Store, schema
from pyprof.store.validate import damage
from tests.build import LONG
from tests.waiting import HANG

VALUES = ("'text'", "x'00ff'", "4611686018427387904", "-1", "0.5", "null")
PLACES = [(table, name, value) for table, columns in schema().items() for name in columns for value in VALUES]
REPORTS = ("summary", "detail", "kernel", "iteration", "group_node", "op_type", "operator", "step_time")


def test_a_profile_is_sound(profile):
    with Store(profile) as store:
        assert damage(schema(), store.rows) is None


@pytest.mark.counts
def test_values_that_no_profile_has(profile, tmp_path):
    dice = random.Random(8 if LONG else 7)
    path = tmp_path / "odd.sqlite"
    for table, name, value in dice.sample(PLACES, 60 if LONG else 20):
        shutil.copyfile(profile, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            try:
                connection.execute(f'update "{table}" set "{name}" = {value}')
            except sqlite3.IntegrityError:  # two rows of one key
                continue
        try:
            prof = pyprof.load(path)
        except pyprof.PyProfError:
            continue
        shown = {report: partial(prof.report, report) for report in (*dice.sample(REPORTS, 2), "expert_systems")}
        shown |= {format_: partial(prof.export, format_, tmp_path / "out") for format_ in ("chrome", "speedscope")}
        shown |= {name: partial(getattr, prof, name) for name in ("kernels", "ops", "steps", "devices", "coverage")}
        for what in dice.sample(sorted(shown), 3):
            try:
                shown[what]()
            except pyprof.PyProfError as error:
                said = str(error)
            except Exception as error:
                raise AssertionError((table, name, value, what)) from error
            else:
                continue
            assert "odd.sqlite" in said, (table, name, value, what)
            assert "\n" not in said, said
        prof.database.close()


ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000000) select count(*) c from n"
INTERRUPTED = f"""
import os, signal, sys, threading, time
import pyarrow as pa
from pyprof.store import files
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with ctrl-C ignored
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    if sys.argv[1] == "read":
        files.Store(sys.argv[2]).columns({ENDLESS!r})
    else:
        with files.written(sys.argv[2] + "2") as name:
            while True:
                files.create(name, [("string", pa.table({{"text": ["text"] * 2_000_000}}))], {{}})
                os.unlink(name)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["read", "write"])
def test_an_interrupt_is_no_damage(what, profile):
    """ADBC takes ctrl-C, and makes an error of it."""
    words = [sys.executable, "-c", INTERRUPTED, what, str(profile)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.stdout == "interrupted\n", done.stderr
    assert not Path(f"{profile}2").exists()


@pytest.mark.parametrize("change", [
    "update iteration set start_ns = null", "update iteration set host_end_ns = 9223372036854775807",
    "update iteration set end_ns = start_ns - 1", "update iteration set host_end_ns = host_start_ns - 1",
    "update iteration set paused_ns = -1", "update iteration set paused_ns = end_ns - start_ns + 1",
    "update iteration set cut_off = 7", "update iteration set partial = 2", "delete from iteration",
    "insert into pause values (0, -9223372036854775807, 9223372036854775807, 1)",
])  # fmt: skip
def test_iterations_that_none_has_are_found_before_they_count(change: str, profile: Path, tmp_path: Path) -> None:
    """They would change figures without an error."""
    path = tmp_path / "odd.sqlite"
    shutil.copyfile(profile, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(pyprof.PyProfError, match=r"odd\.sqlite is damaged \((an aggregation|iteration|pause) has "):
        pyprof.load(path)


@pytest.mark.long
def test_texts_that_are_bytes_are_no_page(profile, tmp_path, capsys):
    table, column = "kernel_name", "short_name"
    path = tmp_path / "odd.sqlite"
    shutil.copyfile(profile, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"update {table} set {column} = cast({column} as blob)")
    assert main(["page", str(path), "-o", str(tmp_path / "odd.html")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} is damaged ({table} has a value of the wrong type in {column})" in line
    assert not (tmp_path / "odd.html").exists()


@pytest.mark.parametrize("value", ["'x'", "x'00'", "-0.5"])
@pytest.mark.parametrize("table", sorted(files._NUMBERED))
def test_numbers_of_a_column_without_a_type_are_damage(table, value, profile, tmp_path):
    """A table that was made anew without types and keys holds anything as a number."""
    path = tmp_path / "odd.sqlite"
    shutil.copyfile(profile, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        names = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        connection.execute(f"create table other as select {', '.join(names)} from {table}")
        connection.execute(f"drop table {table}")
        connection.execute(f"create table {table} ({', '.join(names)})")
        connection.execute(f"insert into {table} select * from other")
        connection.execute("drop table other")
        connection.execute(f"insert into {table} (id) values ({value})")
    with pytest.raises(FormatError, match="is damaged"), Store(path):
        pass

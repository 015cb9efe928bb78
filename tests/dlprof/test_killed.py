# SPDX-License-Identifier: Apache-2.0
"""A process that is killed while it writes a database, or adds to one, leaves one that opens right, or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.profiles import Profile
from pyprof.store import access, files
from tests.build import recording, write_nsys
from tests.conftest import ROOT
from tests.dlprof import killing
from tests.waiting import HANG

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("replace", 0),
        *(pytest.param(kind, 1, marks=pytest.mark.long) for kind in ("write", "aggregate", "replace")),
    ],
)
def test_killed_at_random_moments(part: int, kind: str, tmp_path: Path):
    """The process under test is a fork of one that has imported everything: only the work is killed. With
    PYPROF_LONG=1 75 times, more than 25 of them in the middle of a transaction."""
    rounds = 25 if part else 4
    script = Path(__file__).with_name("killing.py")
    words = [sys.executable, script, kind, tmp_path, str(rounds), str(part)]
    run = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=HANG
    )
    assert run.returncode == 0, run.stderr
    seen = dict(pair.split("=") for pair in run.stdout.split())
    if kind != "write":
        # Else nothing was tested: half of them at least in a transaction, some when the file was half changed.
        assert int(seen["journal"]) >= rounds // 2, seen
        assert int(seen["torn"]), seen


@pytest.fixture
def half_done(tmp_path: Path) -> Iterator[Path]:
    """A database in which a killed process has left pages that do not belong together, and a journal."""
    whole, target = tmp_path / "whole.sqlite", tmp_path / "net_dldb.sqlite"
    Profile.open(write_nsys(tmp_path / "net.sqlite", recording(killing.training()))).save(whole)
    for tick in range(5, 60, 5):
        shutil.copy(whole, target)
        with files.Store(target) as database:
            killing.killed(lambda database=database: aggregate(database, 3, 20, "relu"), None, tick)
        if target.with_name(target.name + "-journal").exists() and target.read_bytes() != whole.read_bytes():
            yield target
            return
    pytest.fail("no tick left a journal")


def test_what_is_half_done_is_seen_by_no_reader(half_done: Path):
    """They read a copy: a journal of a file that somebody sent is not to be trusted with a name of the user's."""
    before, journal = half_done.read_bytes(), access.journal(half_done).read_bytes()
    with files.Store(half_done) as database:
        copied = database._file
        assert database.columns("select count(*) as n from op")["n"].values.tolist() == [killing.STEPS * killing.OPS]
    assert not copied.parent.exists()
    assert killing.whole(half_done) == [(0, killing.STEPS - 1, None)]
    assert (half_done.read_bytes(), access.journal(half_done).read_bytes()) == (before, journal)


def test_what_is_half_done_is_taken_back_by_the_next_writer(half_done: Path):
    with files.Store(half_done) as database:
        aggregate(database, 1, 2, "relu")
        assert len(aggregations(database)) == 2  # it reads the file itself from now on
    assert not access.journal(half_done).exists()
    assert killing.whole(half_done) == [(0, killing.STEPS - 1, None), (1, 2, "relu")]


def test_an_exception_in_the_middle_leaves_the_file_as_it_was(tmp_path: Path):
    target = tmp_path / "net_dldb.sqlite"
    Profile.open(write_nsys(tmp_path / "net.sqlite", recording(killing.training()))).save(target)
    before = target.read_bytes()
    for share in (0.0, 0.5, 0.9):

        def told(done: float, share: float = share) -> None:
            if done > share:
                raise KeyboardInterrupt

        with files.Store(target) as database, pytest.raises(KeyboardInterrupt):
            aggregate(database, 1, 2, "relu", told)
        assert target.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["net.sqlite", "net_dldb.sqlite"]


@pytest.mark.parametrize("stage", ["writing api", "writing op", "aggregating"])
def test_an_exception_while_it_is_written_leaves_nothing(stage: str, tmp_path: Path):
    def told(what: str, share: float) -> None:
        if what == stage:
            raise KeyboardInterrupt

    profile = Profile.open(write_nsys(tmp_path / "net.sqlite", recording(killing.training())), progress=told)
    with pytest.raises(KeyboardInterrupt):
        profile.save(tmp_path / "net_dldb.sqlite")
    assert os.listdir(tmp_path) == ["net.sqlite"]

# SPDX-License-Identifier: Apache-2.0
"""`pyprof report` and `pyprof save` are the engine of dlprof under our names."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from tests import cli

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    def run(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            code = cli.main(words)
        except SystemExit as error:
            code = int(str(error.code))
        return (code, *capfd.readouterr())

    return run


def calls(csv: str) -> dict[str, int]:
    frame = pd.read_csv(io.StringIO(csv))
    return dict(zip(frame["Op Type"], frame["# Calls"]))


def test_a_report_on_stdout_and_nothing_is_left(run: Cli, folder: Path):
    code, out, errors = run("report", "op_type", "nsys.sqlite", "--format", "csv")
    assert (code, errors) == (0, "")
    assert calls(out) == {"linear": 4, "relu": 4, "gelu": 4}
    assert os.listdir(folder) == ["nsys.sqlite"]
    code, out, _ = run("report", "op_type", "nsys.sqlite")
    assert out.splitlines()[0].startswith("Op Type")


@pytest.mark.parametrize("format_", ["table", "csv", "json", "md", "parquet"])
def test_each_format_into_a_file(format_: str, run: Cli, folder: Path):
    code, out, errors = run("report", "op_type", "nsys.sqlite", "--format", format_, "-o", "x")
    assert (code, out, errors) == (0, "", "")
    content = (folder / "x").read_bytes()
    if format_ == "parquet":
        assert pd.read_parquet(folder / "x")["# Calls"].tolist() == [4, 4, 4]
    else:
        assert all(name in content.decode() for name in ("linear", "relu", "gelu"))
    assert sorted(os.listdir(folder)) == ["nsys.sqlite", "x"]


def test_iterations_of_a_recording_and_of_a_database_that_stays_as_it_is(run: Cli, folder: Path):
    assert run("save", "nsys.sqlite", "-o", "net_dldb.sqlite")[0] == 0
    before = (folder / "net_dldb.sqlite").read_bytes()
    for file in ("nsys.sqlite", "net_dldb.sqlite"):
        words = ("report", "op_type", file, "--format=csv")
        assert calls(run(*words, "--iter_start=1", "--iter_stop=2")[1]) == {"linear": 2, "relu": 2, "gelu": 2}
        # Iterations end with relu: the first has its gelu left for the next, the last is the rest.
        assert calls(run(*words, "--key_op=relu", "--iter_start=1")[1]) == {"linear": 3, "relu": 3, "gelu": 4}
    assert (folder / "net_dldb.sqlite").read_bytes() == before


def test_save_keeps_what_report_makes_and_forgets(run: Cli, folder: Path):
    assert run("save", "nsys.sqlite", "-o", "a.sqlite")[0] == 0
    code, _, errors = run("save", "a.sqlite", "-o", "a.sqlite", "--iter_stop=1")
    assert code == 2
    assert "--force" in errors
    assert run("save", "a.sqlite", "-o", "a.sqlite", "--iter_stop=1", "-f")[0] == 0
    prof = pyprof.load("a.sqlite")
    assert [(one.first, one.last) for one in prof.aggregations] == [(0, 3), (0, 1)]
    prof.database.close()


def test_a_worker(run: Cli, folder: Path):
    prof = pyprof.load("nsys.sqlite")
    name = prof.steps["worker"][0]
    prof.database.close()
    for worker in ("0", name):
        assert calls(run("report", "op_type", "nsys.sqlite", "--worker", worker, "--format=csv")[1])["relu"] == 4


WRONG = {
    "report sumary nsys.sqlite": (2, ["sumary", "op_type"]),
    "report op_type missing.sqlite": (1, ["missing.sqlite", "no such file"]),
    "report op_type nsys.sqlite --format=xml": (2, ["xml", "csv, json"]),
    "report op_type nsys.sqlite --iter_start=x": (2, ["--iter-start=x"]),
    "report op_type nsys.sqlite --iter_start=2 --iter_stop=1": (2, ["after"]),
    "report op_type nsys.sqlite --iter_stop=4": (2, ["iteration 4", "0 to 3"]),
    "report op_type nsys.sqlite --key_op=relo": (2, ["'relo'", "'relu'"]),
    "report op_type nsys.sqlite --worker=9": (2, ["9", "no such worker"]),
    "report op_type nsys.sqlite -o nowhere/x": (2, ["nowhere/x", "folder"]),
    "save nsys.sqlite -o nowhere/x": (2, ["nowhere/x", "folder"]),
    "save nsys.sqlite -o nsys.sqlite -f": (2, ["nsys.sqlite", "replaced"]),
    "save missing.sqlite -o nsys.sqlite -f": (1, ["missing.sqlite", "no such file"]),
    "save nsys.sqlite -o a.sqlite --iter_stop=9": (2, ["iteration 9"]),
}


@pytest.mark.parametrize("typed", WRONG)
def test_what_is_wrong_is_a_sentence(typed: str, run: Cli, folder: Path):
    expected, words = WRONG[typed]
    before = (folder / "nsys.sqlite").read_bytes()
    code, out, errors = run(*typed.split())
    assert (code, out) == (expected, "")
    assert errors.count("\n") == 1
    assert all(word in errors for word in words), errors
    assert os.listdir(folder) == ["nsys.sqlite"]
    assert (folder / "nsys.sqlite").read_bytes() == before

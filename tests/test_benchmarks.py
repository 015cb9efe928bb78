# SPDX-License-Identifier: Apache-2.0
"""The benchmarks can be run. What they measure is for docs/measurements.md: no figure is claimed here."""

from __future__ import annotations

import filecmp
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest


def run(root: Path, script: str, *arguments: str) -> str:
    """What a script of benchmarks/ prints."""
    command = [sys.executable, str(root / "benchmarks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_benchmark_can_be_imported(root: Path) -> None:
    """Running all of them, `make bench`, takes the better part of an hour."""
    names = sorted(path.stem for path in (root / "benchmarks").glob("*.py"))
    load = "import importlib, sys; sys.path.insert(0, 'benchmarks'); list(map(importlib.import_module, sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", load, *names], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_each_stage_of_parse_is_measured(root: Path, tmp_path: Path) -> None:
    printed = run(root, "parse.py", "--sizes", "1000", "--variants", "0", "--rounds", "1", "--folder", str(tmp_path))
    for stage in (
        "SQLite's own walk",
        "loader.load",
        "spans, link, enclosing, pair",
        "parse + prof into columns",
    ):
        assert stage in printed
    assert not list(tmp_path.iterdir())


def test_the_same_options_generate_the_same_file(root: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    for path in (first, second):
        run(root, "gen_nsys.py", str(path), "--kernels", "1000", "--markers", "new")
    assert filecmp.cmp(first, second, shallow=False)


@pytest.mark.parametrize(
    "option",
    ["--distinct", *(pytest.param(o, marks=pytest.mark.long) for o in ("--distinct-shapes", "--string-ids"))],
)
def test_variants_differ_in_their_texts_only(root: Path, tmp_path: Path, option: str) -> None:
    plain, variant = tmp_path / "plain.sqlite", tmp_path / "variant.sqlite"
    run(root, "gen_nsys.py", str(plain), "--kernels", "2000")
    run(root, "gen_nsys.py", str(variant), "--kernels", "2000", option)
    ranges = "select start, end, globalTid, coalesce(text, value) from NVTX_EVENTS left join StringIds on id = textId"
    with closing(sqlite3.connect(plain)) as one, closing(sqlite3.connect(variant)) as other:
        before, after = one.execute(ranges).fetchall(), other.execute(ranges).fetchall()
    assert [times for *times, _ in before] == [times for *times, _ in after]
    own = [text for *_, text in after if not text.startswith("layer:")]
    if option == "--distinct":
        assert len(set(own)) == len(own)
    elif option == "--distinct-shapes":
        calls = [text for text in own if "'shape'" in text]
        assert len(set(calls)) == len(calls)
    else:
        assert own == [text for *_, text in before if not text.startswith("layer:")]


@pytest.mark.long
def test_false_alarms_and_detections_of_the_gate_are_counted(root: Path) -> None:
    printed = run(root, "gate.py", "--tries", "2", "--iterations", "0")
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {13}
    assert any("generation" in row[0] for row in rows)

# SPDX-License-Identifier: Apache-2.0
"""Recordings by the names of files: what is one run, what is left out, and that nothing is opened."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.core.errors import FormatError
from pyprof.parse import name_search
from pyprof.parse.folder import Source
from pyprof.parse.name_search import holds_recording, search, separate
from tests.build import write_capture
from tests.server.conftest import steps
from tests.server.test_library import write_unrelated


def write(top: Path, *names: str) -> None:
    """Write empty files."""
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()


def test_runs_by_the_names_of_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        "net.sqlite", "net.1.sqlite", "ddp.rank0.sqlite", "ddp.rank1.sqlite", "ddp.rank1.1.sqlite", "lone.rank0.sqlite",
        "trace.json", "My-Trace.json.gz", "net.nsys-rep", "other.nsys-rep", "old.nvvp",
        "package.json", "data.csv", "net.notebook.ipynb", "trace.notes.json", ".hidden.sqlite", "sqlite",
        "log/host_1.10.pt.trace.json", "log/host_1.20.pt.trace.json.gz", "log/host_2.10.pt.trace.json", "log/a.sqlite",
        "log/deep/host_1.10.pt.trace.json", "node_modules/x/trace.json", ".venv/net.sqlite", "none/data.csv",
    )  # fmt: skip
    runs, complete = search(tmp_path)
    assert complete
    assert runs == {
        "My-Trace.json.gz": Source(tmp_path / "My-Trace.json.gz"),
        "ddp.rank*.sqlite": Source(tmp_path, ("ddp.rank0.sqlite", "ddp.rank1.1.sqlite", "ddp.rank1.sqlite")),
        "lone.rank0.sqlite": Source(tmp_path / "lone.rank0.sqlite"),
        "net.1.sqlite": Source(tmp_path / "net.1.sqlite"),
        "net.sqlite": Source(tmp_path / "net.sqlite"),
        "old.nvvp": Source(tmp_path / "old.nvvp"),
        "other.nsys-rep": Source(tmp_path / "other.nsys-rep"),
        "trace.json": Source(tmp_path / "trace.json"),
        "log": Source(
            tmp_path / "log",
            ("host_1.10.pt.trace.json", "host_1.20.pt.trace.json.gz", "host_2.10.pt.trace.json"),
        ),
        "log/a.sqlite": Source(tmp_path / "log/a.sqlite"),
        "log/deep": Source(tmp_path / "log/deep", ("host_1.10.pt.trace.json",)),
    }
    assert list(runs).index("log") > list(runs).index("trace.json")  # the folder itself comes first


def test_a_search_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(f"a{number}.txt" for number in range(10)), "b/net.sqlite", "net.sqlite")
    assert search(tmp_path).complete
    with monkeypatch.context() as limited:
        limited.setattr(name_search, "_MOST", 12)
        assert (list(search(tmp_path).runs), search(tmp_path).complete) == (["net.sqlite"], False)
    (tmp_path / "around").symlink_to(tmp_path)
    assert list(search(tmp_path).runs) == ["net.sqlite", "b/net.sqlite"]
    assert holds_recording(tmp_path)
    assert not holds_recording(tmp_path / "nothing")
    with pytest.raises(FormatError, match="cannot be read"):
        search(tmp_path / "nothing")


def test_ten_thousand_files_are_listed_and_none_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10_000):
        os.close(os.open(tmp_path / f"net{number}.sqlite", os.O_CREAT))
    opened: list[Any] = []
    real = builtins.open

    def counting(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(file)
        return real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", counting)
    monkeypatch.setattr("io.open", counting)
    assert len(search(tmp_path).runs) == 10_000
    assert not [file for file in opened if str(tmp_path) in str(file)]


def test_files_that_are_not_one_run_are_several(tmp_path: Path) -> None:
    write_unrelated(tmp_path)
    for name in ("a.rank0", "a.rank1", "b.rank0"):
        (tmp_path / f"{name}.json").rename(tmp_path / f"{name}.1.pt.trace.json")
    ((name, source),) = search(tmp_path).runs.items()
    assert name == "."
    assert separate(tmp_path, name, source) == {
        "a.rank0.1.pt.trace.json and 1 more": Source(tmp_path, ("a.rank0.1.pt.trace.json", "a.rank1.1.pt.trace.json")),
        "b.rank0.1.pt.trace.json": Source(tmp_path / "b.rank0.1.pt.trace.json"),
    }


def test_profile_databases_of_ranks_are_runs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for rank in (0, 1):
        path = write_capture(tmp_path / f"sub/net.rank{rank}.sqlite", steps(1))
        profiles.load(path).save(tmp_path / f"sub/net.rank{rank}_dldb.sqlite")
    runs = search(tmp_path).runs
    assert list(runs) == ["sub/net.rank*.sqlite", "sub/net.rank*_dldb.sqlite"]
    databases = separate(tmp_path, *runs.popitem())
    assert databases == {
        f"sub/net.rank{rank}_dldb.sqlite": Source(tmp_path / f"sub/net.rank{rank}_dldb.sqlite") for rank in (0, 1)
    }
    name, source = runs.popitem()
    assert separate(tmp_path, name, source) == {name: source}

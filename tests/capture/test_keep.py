# SPDX-License-Identifier: Apache-2.0
"""A file that has the name of a new recording is kept under a number, and an empty recording replaces nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pyprof
from pyprof.capture.output import rotation
from pyprof.core.errors import CaptureError

x = torch.ones(3)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(
    ("there", "name", "wanted"),
    [
        ([], "net.sqlite", None),
        (["net.sqlite"], "net.sqlite", "net.1.sqlite"),
        (["net.sqlite", "net.1.sqlite", "net.3.sqlite"], "net.sqlite", "net.2.sqlite"),
        (["net.rank0.sqlite"], "net.rank0.sqlite", "net.rank0.1.sqlite"),
        (["plain"], "plain", "plain.1"),
    ],
)
def test_an_older_file_gets_the_first_free_number(
    links: bool,
    there: list[str],
    name: str,
    wanted: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "link", refuse)
    for one in there:
        (tmp_path / one).write_text(one)
    found = rotation.add_numbered_name(str(tmp_path / name))
    assert found == (None if wanted is None else str(tmp_path / wanted))
    for one in there:
        assert (tmp_path / (wanted or "") if one == name else tmp_path / one).read_text() == one


def test_a_file_with_nothing_in_it_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "net.sqlite").touch()
    assert rotation.add_numbered_name(str(tmp_path / "net.sqlite")) is None


@pytest.mark.parametrize("links", [True, False])
def test_if_writing_fails_the_older_file_has_its_name(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.sqlite"
    path.write_text("older")
    if not links:
        monkeypatch.delattr(os, "link")
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError), raising=False)

    def write(before: Callable[[str], None]) -> None:
        before(str(path))
        raise CaptureError("no space")

    with pytest.raises(CaptureError):
        rotation.put(str(path), "net.sqlite", write)
    assert os.listdir(tmp_path) == ["net.sqlite"]
    assert path.read_text() == "older"


def test_a_line_names_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.sqlite"
    for _ in range(3):
        with pyprof.profile(str(path)):
            torch.exp(x)
    said = capsys.readouterr().err
    assert f"{path}: the older file of this name is kept as {tmp_path / 'net.1.sqlite'}" in said
    assert f"{path}: the older file of this name is kept as {tmp_path / 'net.2.sqlite'}" in said
    assert sorted(os.listdir(tmp_path)) == ["net.1.sqlite", "net.2.sqlite", "net.sqlite"]


def test_an_empty_recording_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        torch.exp(x)
    before = path.read_bytes()
    capsys.readouterr()
    with pyprof.profile(str(path)):
        pass
    assert os.listdir(tmp_path) == ["net.sqlite"]
    assert path.read_bytes() == before
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pyprof: nothing was recorded (0 operators, 0 calls), {path} stays as it was.")


def test_the_first_empty_recording_is_written_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        pass
    assert capsys.readouterr().err == f"{path}: 0 operators, 0 calls. {rotation.HINT}\n"
    assert path.exists()

# SPDX-License-Identifier: Apache-2.0
"""The token of a file is the same after a restart, and only its user can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pyprof.core.errors import UsageError
from pyprof.server import cache
from pyprof.server.tokens import VARIABLE, token_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache" / "pyprof" / "view"


def test_a_restart_on_the_same_file_has_the_same_token(folder: Path) -> None:
    first = token_of(["net.sqlite"])
    assert token_of([str(Path("net.sqlite").resolve())]) == first
    assert len({first, token_of(["other.sqlite"]), token_of(["net.sqlite", "other.sqlite"])}) == 3
    kept = list(folder.iterdir())
    assert len(kept) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


@pytest.mark.parametrize("harm", ["mode", "content", "empty", "link"])
def test_a_token_that_others_may_know_is_replaced(folder: Path, tmp_path: Path, harm: str) -> None:
    first = token_of(["net.sqlite"])
    (path,) = folder.iterdir()
    if harm == "mode":
        path.chmod(0o644)
    elif harm == "link":
        other = tmp_path / "elsewhere"
        other.write_text(first)
        path.unlink()
        path.symlink_to(other)
    else:
        path.write_text("" if harm == "empty" else "no token\u00e4 at all", encoding="utf-8")
    assert token_of(["net.sqlite"]) != first
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_a_token_can_be_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a" * 16)
    assert token_of(["net.sqlite"]) == "a" * 16
    assert not folder.exists()
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(UsageError, match="16 to 200"):
        token_of(["net.sqlite"])


def test_without_a_cache_folder_there_is_a_token_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert token_of(["net.sqlite"]) != token_of(["net.sqlite"])


def test_what_is_not_used_for_long_is_removed(folder: Path) -> None:
    token_of(["old.sqlite"])
    (path,) = folder.iterdir()
    os.utime(path, (0, 0))
    token_of(["new.sqlite"])
    cache.prune()
    assert not path.exists()
    assert len(list(folder.iterdir())) == 1

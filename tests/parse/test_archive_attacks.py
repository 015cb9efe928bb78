# SPDX-License-Identifier: Apache-2.0
"""Archives that were made to do harm: one sentence, and nothing but recordings is unpacked."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from pyprof.core.errors import FormatError
from pyprof.parse import archive, loader
from tests import kineto


@pytest.fixture
def trace(tmp_path: Path) -> bytes:
    return kineto.write(tmp_path / "plain.json", kineto.training()).read_bytes()


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64]) + data[middle + 64 :]


def test_lzma_that_is_damaged(trace: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as out:
        out.writestr("net.pt.trace.json", trace)
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(FormatError, match=r"run\.zip"):
        loader.load(path)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as out:
        member = tarfile.TarInfo("net.pt.trace.json")
        member.size = len(trace)
        out.addfile(member, io.BytesIO(trace))
    for name in ("run.tar", "run.tgz"):  # by its content, whatever its name says
        path = tmp_path / name
        path.write_bytes(damaged(lzma.compress(plain.getvalue())))
        with pytest.raises(FormatError, match=name):
            loader.load(path)


def test_a_name_that_says_utf_8_and_is_not(trace: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("ü.pt.trace.json", trace)
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xff\xfe"))
    with pytest.raises(FormatError, match=r"run\.zip"):
        loader.load(path)


def test_only_recordings_are_unpacked(trace: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("net.pt.trace.json", trace)
        for name in ("net.sqlite-journal", "train.py", "checkpoint.bin", ".bashrc"):
            out.writestr(name, b"x" * 1000)
        for number in range(20_000):
            out.writestr(f"empty/{number}.txt", b"")
    with archive.unpacked(path, lambda name: name.endswith(".json")) as folder:
        assert [file.name for file in folder.rglob("*")] == ["net.pt.trace.json"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    assert len(loader.load(path).ops) > 0
    assert not list((tmp_path / "scratch").iterdir())


def test_more_recordings_than_anybody_has(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as out:
        for number in range(10_001):
            out.writestr(f"{number}.json", b"")
    with pytest.raises(FormatError, match="holds 10001 recordings, more than 10000"):
        loader.load(path)


def test_a_file_that_grows_without_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand to one, as blanks are; with smaller figures than those of the product."""
    monkeypatch.setattr("pyprof.core.inputs._SMALL", 1 << 20)
    text = b'{"traceEvents": [' + b" " * (8 << 20) + b"]}"
    path = tmp_path / "net.pt.trace.json.gz"
    path.write_bytes(gzip.compress(text))
    with pytest.raises(FormatError, match="decompress it first"):
        loader.load(path)
    path.write_bytes(path.read_bytes()[:-9])  # damaged, too
    with pytest.raises(FormatError, match="decompress it first"):
        loader.load(path)
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("net.pt.trace.json", text)
    with pytest.raises(FormatError, match="unpack it first"):
        loader.load(path)
    path = tmp_path / "plain.pt.trace.json"  # what the sentence advises
    path.write_bytes(text)
    with pytest.raises(FormatError, match="no operators and no kernels among 0 events"):
        loader.load(path)


def test_a_sentence_does_not_quote_the_head(trace: bytes, tmp_path: Path) -> None:
    """zipfile's error for a name that is not the one of the directory quotes both."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("a" * 5000 + ".pt.trace.json", trace)
    path.write_bytes(path.read_bytes().replace(b"aaa", b"\n\xff\0", 500))
    with pytest.raises(FormatError) as caught:
        loader.load(path)
    assert len(str(caught.value)) < 400 + len(str(path))
    assert "\n" not in str(caught.value)

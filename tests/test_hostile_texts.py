# SPDX-License-Identifier: Apache-2.0
"""A recording whose every name would steer a terminal or a spreadsheet, through every command, format and stream."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from pyprof.commands.main import main
from pyprof.dlprof.command import main as dlprof
from tests import build, cli
from tests.build import Kernel, Launch, Op, Range, Recording, call

EVIL = "\x1b[2J\x1b]0;title\x07\u202egnp\x9b31m\u2028\x7f"
FORMULA = "=cmd|x!A0"


def recording() -> Recording:
    """Two kernels of an operator with such names, below a range and a module with such names."""
    what = Recording()
    for i, name in enumerate((EVIL, FORMULA)):
        start = 1000 * i
        what.steps.append((i, start, start + 900))
        what.ranges.append(Range(f"layer:{name}", start + 5, start + 500))
        what.ops.append(Op(call(f"aten::{name}", (4, 4), (4, 4)), start + 10, start + 100))
        what.launches.append(Launch(start + 20, start + 30, i + 1))
        what.kernels.append(Kernel(name, start + 40, start + 90, i + 1))
    return what


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / EVIL.replace("/", "")
    folder.mkdir()
    path = build.write_capture(folder / "net.sqlite", recording())
    assert main(["save", "-o", str(folder / "net_dldb.sqlite"), str(path)]) == 0
    return path


def seen(text: str) -> None:
    """Nothing in a text does more than appear."""
    bad = {c for c in text if (unicodedata.category(c)[0] == "C" or c in "\u2028\u2029") and c != "\n"}
    assert not bad, (bad, text)


REPORTS = ("summary", "kernel", "op_type", "detail", "group_node", "operator", "expert_systems", "iteration")
PRINTED = [
    *(["report", "--format", "table", name, "{}"] for name in REPORTS),
    *(["report", "--format", format_, "operator", "{}"] for format_ in ("csv", "json", "md")),
    ["report", "--format", "csv", "kernel", "{}"],
    ["report", "{}"],
    ["prof", "{}"],
    ["prof", "-w", "120", "{}"],
    ["prof", "--csv", "-c", "idx,kernel,op,layer,params,sil,bound", "{}"],
    ["info", "{}"],
    ["info", "--json", "{}"],
    ["parse", "{}"],
    ["parse", "--format", "jsonl", "{}"],
    ["diff", "--by", "kernel", "{}", "{}"],
]  # fmt: skip


@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_what_a_command_prints(words: list[str], recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recorded) if word == "{}" else word for word in words]) == 0
    captured = capsys.readouterr()
    assert captured.out
    seen(captured.out)
    seen(captured.err)
    if "csv" in words or "--csv" in words:
        for row in csv.reader(io.StringIO(captured.out, newline="")):
            assert not [cell for cell in row if cell.startswith(("=", "+", "@"))]


def test_a_database(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("kernel", "operator", None):
        assert main(["report", *([name] if name else []), str(recorded.with_name("net_dldb.sqlite"))]) == 0
    for text in capsys.readouterr():
        seen(text)


def test_dlprof(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--verbosity=detailed", "--reports=all", "--formats=csv,json", "--force=true"]
    assert dlprof([*words, f"--output_path={tmp_path}", f"--nsys_database={recorded}"]) == 0
    for text in capsys.readouterr():
        seen(text)
    written = [path for path in tmp_path.rglob("*") if path.suffix in (".csv", ".json")]
    assert len(written) > 6
    for path in written:
        seen(path.read_text())


def test_what_cannot_be_read(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence quotes the file's name, or what it holds."""
    for name in (EVIL, os.fsdecode(b"lat\xe9in.sqlite")):
        path = tmp_path / name
        path.write_bytes(b"{'kShortName': \x1b[2J")
        for words in (
            ["prof"],
            ["parse"],
            ["report"],
            ["info"],
            ["export", "-o", str(tmp_path / "o.json")],
            ["view"],
        ):
            assert main([*words, str(path)]) == 1
            captured = capsys.readouterr()
            seen(captured.err)
            lines = [line for line in captured.err.splitlines() if "for the first time ..." not in line]
            assert len(lines) == 1  # the other says that it takes long, on a busy machine


def test_raw_texts_for_those_who_ask(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte, as another program wants them."""
    for words in (
        ["report", "--format=csv", "--raw", "kernel"],
        ["prof", "--csv", "--raw", "-c", "idx,kernel"],
    ):
        assert main([*words, str(recorded)]) == 0
        cells = {cell for row in csv.reader(io.StringIO(capsys.readouterr().out, newline="")) for cell in row}
        assert {EVIL, FORMULA} <= cells
    assert main(["report", "--raw", "kernel", str(recorded)]) == 2


def test_data_for_programs_is_as_it_was(recorded: Path, tmp_path: Path) -> None:
    trace = tmp_path / "net.json.gz"
    assert main(["export", "-o", str(trace), str(recorded)]) == 0
    names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {EVIL, FORMULA} <= names
    dictionary = tmp_path / "net.dict"
    assert cli.parse(["-o", str(dictionary), str(recorded)]) == 0
    assert [row["kLongName"] for row in build.read(recorded)] == [EVIL, FORMULA]
    assert cli.prof(["--csv", str(dictionary)]) == 0


@pytest.mark.parametrize(
    "command", ["report", "parse", *(pytest.param(name, marks=pytest.mark.long) for name in ("prof", "info"))]
)
def test_stdout_that_is_full(command: str, recorded: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pyprof", command, recorded],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("stdout: No space left on device.")
    assert "Traceback" not in done.stderr
    seen(done.stderr)


def test_what_has_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    for command in ("report", "prof", "parse", "info"):
        for path, kind in ((str(pipe), "a pipe"), ("/dev/zero", "a device")):
            assert main([command, path]) == 1
            assert f"{path} is {kind}, not a file" in capsys.readouterr().err


IMPORTING = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "pandas": raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from pyprof.commands.main import main
sys.exit(main(["report", sys.argv[1]]))
"""


def test_ctrl_c_while_a_command_is_imported(recorded: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING, recorded], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "pyprof report: interrupted, nothing was written.\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "out of memory"),
        (ImportError("numpy/a.so: failed to map segment from shared object"), "out of memory"),
        (RuntimeError("can't start new thread"), "no thread can be started"),
    ],
)
def test_memory_that_is_not_enough(
    error: Exception,
    sentence: str,
    recorded: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr("pyprof.parse.loader.load", load)
    for command in ("report", "prof", "parse", "info"):
        assert main([command, str(recorded)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line


def test_a_name_that_is_no_utf_8(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a name like any other."""
    path, database = (tmp_path / os.fsdecode(name) for name in (b"lat\xe9in.sqlite", b"lat\xe9in_dldb.sqlite"))
    shutil.copyfile(recorded, path)
    for words in (
        ["save", "-o", str(database)], ["report"], ["prof"], ["parse"], ["info"],
        ["export", "-o", str(tmp_path / "out.json")],
    ):  # fmt: skip
        assert main([*words, str(path)]) == 0, words
    for words in (["report"], ["export", "-f", "-o", str(tmp_path / "out.json")]):
        assert main([*words, str(database)]) == 0, words
    for text in capsys.readouterr():
        seen(text)

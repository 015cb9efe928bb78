# SPDX-License-Identifier: Apache-2.0
"""Outputs in README and docs are those of the commands above them, word for word.

Checked are the console blocks whose recordings can be had: those of the repository, and those of others. `...` in a
block stands for any lines; a command without output below it has only to work. `--regold` writes what is printed now.
"""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.reference import pages
from tests.cli import main
from tests.conftest import ROOT

OWN = {"transformer.sqlite": "transformer_bf16.sqlite.gz"}  # in tests/traces/gpu
OTHERS = {  # in the folder of recordings of others
    "owlv2.json.gz": "kineto/h100_owlv2_large.json.gz",
    "dlrm_v100_8ranks.tar.gz": "kineto/dlrm_v100_8ranks.tar.gz",
    "resnet50_v100_6steps.pt.trace.json.gz": "kineto/resnet50_v100_6steps.pt.trace.json.gz",
    "resnet50_v100_num_workers_4.pt.trace.json.gz": "kineto/resnet50_v100_num_workers_4.pt.trace.json.gz",
    "vllm_prefilldecode": "kineto/mi300_vllm_prefilldecode_piecewise",
    "cifar.sqlite": "nsys/cifar_rtx2070_pyprof_markers.sqlite",
}
PRINTING = ("report", "query", "diff", "info")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
ANY = "..."


class Step(NamedTuple):
    """A command of a block, as typed, and the lines that it prints."""

    command: str
    printed: list[str]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command.replace("\\\n", " "))

    @property
    def runs(self) -> bool:
        return self.words[0] == "pyprof" and self.words[1] in PRINTING


class Block(NamedTuple):
    """A console block: its page, the number of its first line, and its steps."""

    page: Path
    line: int
    text: str
    steps: list[Step]

    @property
    def recordings(self) -> set[str]:
        return {word for step in self.steps if step.runs for word in step.words if word in OWN or word in OTHERS}


def steps(text: str) -> list[Step]:
    out: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            out.append(Step(line[2:], []))
        elif open_ended(out[-1].command):
            out[-1] = Step(f"{out[-1].command}\n{line}", [])
        else:
            out[-1].printed.append(line)
    return out


def open_ended(command: str) -> bool:
    """Whether a command goes on in the next line."""
    try:
        shlex.split(command)
    except ValueError:
        return True
    return command.endswith("\\")


def blocks() -> list[Block]:
    out = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            block = Block(page, text[: match.start()].count("\n") + 1, match[1], steps(match[1]))
            if block.recordings:
                out.append(block)
    return out


BLOCKS = blocks()


@pytest.fixture
def recordings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recordings of a block, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    for name in request.getfixturevalue("block").recordings:
        if name in OWN:
            packed = ROOT / "tests" / "traces" / "gpu" / OWN[name]
            (tmp_path / name).write_bytes(gzip.decompress(packed.read_bytes()))
        else:
            (tmp_path / name).symlink_to(request.getfixturevalue("data") / OTHERS[name])


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{block.page.name}:{block.line}" for block in BLOCKS])
@pytest.mark.long
def test_the_output_on_a_page_is_the_output(
    block: Block, recordings: None, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = 0, []
    for step in block.steps:
        if step.command == "echo $?":
            lines = [str(code)]
        elif not step.runs:
            assert not step.printed, "nothing here can print that"
            continue
        else:
            code = main(step.words[1:])
            printed = capsys.readouterr()
            lines = [line.rstrip() for line in (printed.out + printed.err).splitlines()]
        said.append((step, lines))
    if request.config.getoption("--regold") and block.page.stem not in pages():
        write(block, [(step, as_cut(lines, step.printed)) for step, lines in said])
    else:
        for step, lines in said:
            if step.printed:
                assert as_cut(lines, step.printed) == step.printed
    assert code in (0, 3), said


def as_cut(lines: list[str], shown: list[str]) -> list[str]:
    """Return lines with as many left out as on the page: those between the first and the last that it has.

    >>> as_cut(["a", "b", "c", "d"], ["a", "...", "x", "y"]), as_cut(["a", "b"], ["a"]), as_cut(["a", "b"], [])
    (['a', '...', 'c', 'd'], ['a', 'b'], [])
    """
    if ANY not in shown:
        return lines if shown else []
    first = shown.index(ANY)
    last = len(shown) - 1 - first
    assert len(lines) > first + last, "there is nothing left to leave out"
    return [*lines[:first], ANY, *lines[len(lines) - last :]]


def write(block: Block, said: list[tuple[Step, list[str]]]) -> None:
    """Write a block anew."""
    text = block.page.read_text(encoding="utf-8")
    new = block.text
    for step, lines in said:
        head = f"$ {step.command}\n"
        old = head + "".join(f"{line}\n" for line in step.printed)
        assert new.count(old) == 1
        new = new.replace(old, head + "".join(f"{line}\n" for line in lines))
    block.page.write_text(text.replace(f"```console\n{block.text}```", f"```console\n{new}```"), encoding="utf-8")


def test_every_recording_that_can_be_had_is_on_a_page() -> None:
    assert set().union(*(block.recordings for block in BLOCKS)) == {*OWN, *OTHERS}

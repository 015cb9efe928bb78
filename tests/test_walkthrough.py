# SPDX-License-Identifier: Apache-2.0
"""README and tutorial as a newcomer types them: every block, in order, in a copy of the clone.

A line of a shell block is a command; of a console block those after `$ `. A Python block is a program, a diff block an
edit of train.py. Commands that need a network, or that another test has, are named in `EXEMPT`.
`--regold` writes into console blocks what a terminal of 80 columns shows now.
"""

from __future__ import annotations

import ast
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof.parse import loader
from tests.test_project import tracked
from tests.test_transcripts import Block, as_cut, write
from tests.test_transcripts import steps as typed

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/guide.md", "docs/migration.md", "examples/README.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
EXEMPT = {
    "pip install": "network",
    "torchrun": "seconds; tests/test_examples.py has it",
    "python examples/data/make.py": "seconds; a test below has it",
}


def exempt(command: str) -> bool:
    return any(command == start or command.startswith(f"{start} ") for start in EXEMPT)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks of a page."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands(language: str, text: str) -> list[str]:
    """The commands of a block that are run."""
    if language == "console":
        found = [step.command for step in typed(text)]
    elif language == "sh":
        found = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    else:
        found = []
    return [line for line in found if not exempt(line)]


def edited(source: str, block: str) -> str:
    """Return a program after the edit of a diff block.

    >>> edited("a\\nb\\n", " a\\n-b\\n+c\\n")
    'a\\nc\\n'
    """
    lines = block.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in (" ", sign)) for sign in "-+")
    assert source.count(old) == 1, old
    return source.replace(old, new)


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """What git has, in a folder with a short path as a user's, with an install of it on PATH: `bin` beside it."""
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / "pyprof"
        install(folder)
        yield folder


def install(folder: Path) -> None:
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        if target.parts[len(folder.parts)] in ("README.md", "docs", "examples", "pyprof", "scripts"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    programs = folder.parent / "bin"
    programs.mkdir()
    modules = {
        "pyprof": "pyprof",
        "dlprof": "pyprof.dlprof",
        "prof.py": "pyprof.prof",
        "parse.py": "pyprof.parse",
    }
    for name, words in {
        "python": "",
        "python3": "",
        **{name: f" -P -m {module}" for name, module in modules.items()},
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)


def environment(clone: Path) -> dict[str, str]:
    path = os.pathsep.join([str(clone.parent / "bin"), os.environ["PATH"]])
    return os.environ | {
        "PATH": path,
        "PYTHONPATH": str(clone),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def run(words: list[str], clone: Path) -> subprocess.CompletedProcess[str]:
    words = [shutil.which(words[0], path=str(clone.parent / "bin")) or words[0], *words[1:]]
    return subprocess.run(
        words, cwd=clone, env=environment(clone), capture_output=True, text=True, timeout=600, check=False
    )


def on_a_terminal(words: list[str], clone: Path) -> list[str]:
    """The lines that a command shows on a terminal of 80 columns, its messages after its output."""
    ours, theirs = pty.openpty()
    shown = b""
    with tempfile.TemporaryFile() as messages:
        settings = environment(clone) | {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
        program = subprocess.Popen(words, cwd=clone, env=settings, stdout=theirs, stderr=messages)
        os.close(theirs)
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # nobody has the other end anymore
            pass
        os.close(ours)
        assert program.wait() == 0, words
        messages.seek(0)
        shown += messages.read()
    return [line.rstrip() for line in shown.decode().replace(str(clone), "/home/user/pyprof").splitlines()]


def run_block(language: str, text: str, clone: Path) -> None:
    if language == "diff":
        program = clone / "train.py"
        program.write_text(edited(program.read_text(encoding="utf-8"), text), encoding="utf-8")
    steps = [["bash", "-eo", "pipefail", "-c", line] for line in commands(language, text)]
    for words in [["python", "-c", text]] if language == "python" else steps:
        done = run(words, clone)
        assert done.returncode == 0, f"{words[-1]}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{words[-1]}\n{done.stderr}"


def rewrite(page: str, text: str, clone: Path) -> None:
    """Run the commands of a console block, and write what they print."""
    block = Block(ROOT / page, 0, text, typed(text))
    said = []
    for step in block.steps:
        lines = step.printed
        if not exempt(step.command):
            lines = as_cut(on_a_terminal(["bash", "-eo", "pipefail", "-c", step.command], clone), step.printed)
        said.append((step, lines))
    write(block, said)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.long
def test_every_block_of_a_page_runs_in_order(page: str, clone: Path, request: pytest.FixtureRequest) -> None:
    for language, text in blocks(page):
        if language == "console" and request.config.getoption("--regold"):
            rewrite(page, text, clone)
        else:
            run_block(language, text, clone)


def test_the_tutorial_leads_from_the_slow_example_to_the_fast_one() -> None:
    """But for the sentence on top of each."""
    source, fast = ((ROOT / "examples" / name).read_text(encoding="utf-8") for name in ("slow.py", "fast.py"))
    for language, text in blocks("docs/guide.md"):
        source = edited(source, text) if language == "diff" else source
    assert ast.dump(ast.Module(ast.parse(source).body[1:], [])) == ast.dump(ast.Module(ast.parse(fast).body[1:], []))


def test_exemptions_are_used() -> None:
    lines = [line.strip() for page in PAGES for _, text in blocks(page) for line in text.splitlines()]
    assert all(any(f"{line} ".startswith(f"{start} ") for line in lines) for start in EXEMPT)


@pytest.mark.long
def test_the_traces_of_the_examples_are_made_anew(tmp_path: Path, clone: Path) -> None:
    """The script still makes what the folder has: the same files, with the same steps and operators."""
    done = run(["python", "examples/data/make.py", str(tmp_path)], clone)
    assert done.returncode == 0, done.stderr
    shipped = ROOT / "examples" / "data"
    names = sorted(path.relative_to(shipped) for path in shipped.rglob("*.gz"))
    assert names == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.gz"))
    for name in names:
        made, there = loader.load(tmp_path / name), loader.load(shipped / name)
        assert len(made.steps) == len(there.steps) == 3
        assert {"aten::convolution_backward", "aten::addmm"} <= set(made.strings) & set(there.strings)

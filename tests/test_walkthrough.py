# SPDX-License-Identifier: Apache-2.0
"""README and guide as a newcomer types them: every block, in order, in a copy of the clone.

A line of a shell block is a command; of a console block those after `$ `. A Python block is a program.
Commands that need a network, a server or a program that not everybody has are named in `EXEMPT`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.parse import loader
from tests.test_project import tracked

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/guide.md", "examples/README.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
EXEMPT = {
    "pip install": "network",
    "python3 -m venv": "network",
    "make": "network",
    "pyprof view": "server",
    "dlprofviewer": "server",
    "nsys": "Nsight Systems and a GPU",
    "nvprof": "nvprof and a GPU",
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
    if language not in ("sh", "console"):
        return []
    lines = [line.strip() for line in text.splitlines()]
    if language == "console":
        found = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    else:
        found = [line for line in lines if line and not line.startswith("#")]
    return [line for line in found if not exempt(line)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has, elsewhere, with an install of it on PATH: `bin` beside it."""
    folder = tmp_path_factory.mktemp("somewhere") / "pyprof"
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
    return folder


def run(words: list[str], clone: Path) -> subprocess.CompletedProcess[str]:
    words = [shutil.which(words[0], path=str(clone.parent / "bin")) or words[0], *words[1:]]
    path = os.pathsep.join([str(clone.parent / "bin"), os.environ["PATH"]])
    env = os.environ | {
        "PATH": path,
        "PYTHONPATH": str(clone),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(words, cwd=clone, env=env, capture_output=True, text=True, timeout=600, check=False)


SLOW = ("README.md", "docs/guide.md")  # a minute, and a third of one


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if page in SLOW else ()) for page in PAGES],
)
def test_every_block_of_a_page_runs_in_order(page: str, clone: Path) -> None:
    for language, text in blocks(page):
        steps = [["bash", "-eo", "pipefail", "-c", line] for line in commands(language, text)]
        for words in [["python", "-c", text]] if language == "python" else steps:
            done = run(words, clone)
            assert done.returncode == 0, f"{words[-1]}\n{done.stderr}"
            assert "Traceback" not in done.stderr, f"{words[-1]}\n{done.stderr}"


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

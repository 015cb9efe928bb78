# SPDX-License-Identifier: Apache-2.0
"""What is public is typed: editors complete it, and a type checker finds a name or an argument that is wrong."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyprof
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parent.parent


def typed() -> dict[str, str]:
    """Public name -> module, as the block for type checkers in the package has them."""
    tree = ast.parse((ROOT / "pyprof" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        (alias,) = node.names
        assert alias.name == alias.asname, "`import X as X` is what exports a name to a checker"
        found[alias.name] = f"pyprof.{alias.name}" if node.module == "pyprof" else node.module
    return found


def test_names_for_checkers_and_names_at_run_time_are_the_same():
    assert typed() == pyprof._HOME
    assert pyprof.__all__ == ["__version__", *pyprof._HOME]
    for name, home in pyprof._HOME.items():
        assert importlib.util.find_spec(home), f"{name}: no module {home}"
        assert getattr(pyprof, name) is not None


def snippets() -> str:
    """The Python of README.md, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S))


@pytest.mark.long
def test_a_type_checker_knows_every_public_name(tmp_path):
    """One run of mypy for all, in the repository and as `make lint` runs it, whose cache it has."""
    names, wrong, readme = (tmp_path / f"{name}.py" for name in ("names", "wrong", "readme"))
    names.write_text("import pyprof\n" + "".join(f"reveal_type(pyprof.{name})\n" for name in pyprof._HOME))
    wrong.write_text("import pyprof\npyprof.initt()\npyprof.load('x', nonsense=True)\npyprof.load(3).report()\n")
    readme.write_text(snippets())
    words = [sys.executable, "-m", "mypy", names, wrong, readme]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    # Of files of the same text that it has seen in another folder, mypy names that folder.
    lines = re.findall(r"\b(?:names|wrong|readme)\.py:.*", done.stdout)
    revealed = [line for line in lines if "Revealed type" in line]
    assert len(revealed) == len(pyprof._HOME), done.stdout + done.stderr
    assert not [line for line in revealed if line.endswith('"Any"')]
    errors = [line for line in lines if "error:" in line]
    assert [line.split(":")[:2] for line in errors] == [
        ["wrong.py", "2"], ["wrong.py", "3"], ["wrong.py", "4"], ["wrong.py", "4"]
    ], errors  # fmt: skip

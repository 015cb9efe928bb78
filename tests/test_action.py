# SPDX-License-Identifier: Apache-2.0
"""The action for GitHub: its description, and its lines of shell with a stub in the place of `pyprof`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

STUB = """#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
json.dump(sys.argv[1:], open(os.path.join(here, "words"), "w"))
code = int(os.environ["STUB_CODE"])
if code in (0, 3):
    words = sys.argv
    open(words[words.index("--summary") + 1], "w").write("### PyProf: summary\\n")
    json.dump({"verdict": "fail" if code else "pass"}, open(words[words.index("--verdict") + 1], "w"))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def action(root: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    return value


def step(action: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in action["runs"]["steps"] if one["name"] == name)


def compare(action: dict[str, Any], folder: Path, code: int, **inputs: str) -> tuple[int, list[str]]:
    """Run the lines that compare; return the exit code and the words that `pyprof` got."""
    (folder / "bin").mkdir(exist_ok=True)
    stub = folder / "bin/pyprof"
    stub.write_text(STUB)
    stub.chmod(0o755)
    values = {name: one.get("default", "") for name, one in action["inputs"].items()} | inputs
    lines = step(action, "Compare")
    environment = {
        name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in lines["env"].items()
    }
    environment |= {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "STUB_CODE": str(code), "TMPDIR": str(folder),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_OUTPUT": str(folder / "output"),
    }  # fmt: skip
    done = subprocess.run(["bash", "-e", "-c", lines["run"]], env=environment, capture_output=True, text=True)
    words = folder / "bin/words"
    return done.returncode, json.loads(words.read_text()) if words.exists() else []


def test_inputs_and_outputs_are_described(action):
    assert action["runs"]["using"] == "composite"
    required = {name for name, one in action["inputs"].items() if one.get("required")}
    assert required == {"base", "new", "fail-on"}
    assert all(one["description"] for one in (*action["inputs"].values(), *action["outputs"].values()))
    assert all(one["shell"] == "bash" for one in action["runs"]["steps"])


def test_no_input_is_part_of_the_shell_lines(action):
    """It would be run."""
    assert not [one["name"] for one in action["runs"]["steps"] if "${{" in one["run"]]


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (3, "fail")])
def test_the_summary_is_appended_and_the_exit_code_is_that_of_the_gate(action, tmp_path, code, verdict):
    (tmp_path / "summary").write_text("before\n")
    returned, words = compare(
        action,
        tmp_path,
        code,
        base="a b.sqlite",
        new="-new $(touch x)",
        **{"fail-on": "step_time>2%\n\n op:*>5% \n"},
    )
    assert returned == code
    assert words[-3:] == ["--", "a b.sqlite", "-new $(touch x)"]
    assert [words[place + 1] for place, word in enumerate(words) if word == "--fail-on"] == [
        "step_time>2%",
        " op:*>5% ",
    ]
    assert (tmp_path / "summary").read_text() == "before\n### PyProf: summary\n"
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "output", "summary"]


def test_files_and_more_options_are_passed_on(action, tmp_path):
    inputs = {"base": "a", "new": "b", "fail-on": "busy>1%", "options": "--strict\n--base-run=c d\n"}
    _, words = compare(action, tmp_path, 0, **inputs, junit="j.xml", verdict=str(tmp_path / "v.json"))
    assert words[words.index("--junit") + 1] == "j.xml"
    assert {"--strict", "--base-run=c d"} <= set(words)
    assert json.loads((tmp_path / "v.json").read_text()) == {"verdict": "pass"}


@pytest.mark.parametrize("code", [1, 2])
def test_an_error_is_an_error(action, tmp_path, code):
    returned, _ = compare(action, tmp_path, code, base="a", new="b", **{"fail-on": "busy>1%"})
    assert returned == code
    assert not (tmp_path / "output").exists()


def test_the_words_are_those_of_the_command(action, tmp_path):
    """The parser takes what the stub got."""
    from pyprof.commands import diff
    from pyprof.core.arguments import Parser

    inputs = {"base": "a", "new": "b", "fail-on": "busy>1%", "options": "--strict"}
    _, words = compare(action, tmp_path, 0, **inputs, junit="j.xml")
    parser = Parser(prog="pyprof diff")
    diff.add_arguments(parser)
    parsed = parser.parse_args(words[1:])
    assert (parsed.base, parsed.other, parsed.fail_on, parsed.strict) == ("a", "b", ["busy>1%"], True)

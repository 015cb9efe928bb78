# SPDX-License-Identifier: Apache-2.0
"""A package brings a command, a cost, a format, a report and a rule by entry points: each is where ours are.

tests/extension has it as it lies in site-packages once it is installed. One of its entry points is broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.core.marker import encode
from pyprof.core.model import Arg, Call, Tensor
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parent.parent
TRIPLE = encode(Call("example", "example::triple", (Arg("x", Tensor((4, 8), "float32")),)))
TEXT = f"EXAMPLE\n{TRIPLE}\n    > 40 my_kernel\n{TRIPLE}\n    > 50 my_kernel\n    > 5 other_kernel\n"


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "net.txt").write_text(TEXT)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "extension")])
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
            text=True, timeout=HANG, check=False,
        )  # fmt: skip

    return run


def test_help_names_what_other_packages_bring(run):
    assert "count" in run("-m", "pyprof", "--help").stdout
    reports = run("-m", "pyprof", "report", "--help").stdout
    assert "longest          of pyprof-example" in reports


def test_a_format_a_report_and_a_broken_entry_point(run):
    done = run("-m", "pyprof", "report", "longest", "net.txt", "--format", "csv")
    assert done.stdout.splitlines() == ["Kernel,Longest (ns)", "my_kernel,50", "other_kernel,5"]
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "is skipped" in line] == [
        "broken of pyprof-example is skipped: ModuleNotFoundError: No module named 'pyprof_example.nowhere'"
    ]


def test_a_cost_in_the_table(run):
    done = run("-m", "pyprof", "prof", "--csv", "-c", "op,flops,bytes", "net.txt")
    assert done.stdout.splitlines()[1] == '"example::triple","96","128"'


def test_a_command(run):
    assert run("-m", "pyprof", "count", "net.txt").stdout == "3\n"
    assert "Did you mean count?" in run("-m", "pyprof", "cuont", "net.txt").stderr


@pytest.mark.long
def test_a_rule_in_the_report_and_on_the_reference_page(run):
    assert "X01" in run("-m", "pyprof", "report", "expert_systems", "net.txt", "--format", "csv").stdout
    assert "## X01" in run("-m", "pyprof.reference", "rules").stdout
    assert "## longest" in run("-m", "pyprof.reference", "reports").stdout


def test_a_report_and_a_link_on_the_page(run):
    code = (
        "from pyprof.views.report_pages import reports; one = {r.name: r for r in reports()}['longest'];"
        "print(one.title, one.view.category, one.view.sort)"
    )
    assert run("-c", code).stdout == "Longest Kernels Kernels -longest_ns\n"

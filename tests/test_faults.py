# SPDX-License-Identifier: Apache-2.0
"""A disk that fails while a command writes: what is there afterwards is the old file, the new one or none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.waiting import HANG

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="no Linux with gcc")

COMMANDS = ("recording", "save", "aggregate", "export", "parse", "report")
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "half": 0}
SAMPLE = {("recording", "ENOSPC"): 3}  # every so many writes, where there are few; the others are long


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", out, ROOT / "tests" / "faults.c"], check=True)
    return out


@pytest.mark.parametrize(
    ("command", "error"),
    [
        pytest.param(command, error, marks=[] if (command, error) in SAMPLE else pytest.mark.long)
        for command in COMMANDS
        for error in ERRORS
    ],
)
def test_a_disk_that_fails(command: str, error: str, library: Path, tmp_path: Path) -> None:
    """At every fifth write, fsync, ftruncate, rename and link; `failing.py` tries all of them with a step of 1."""
    step = SAMPLE.get((command, error), 5)
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, ROOT / "tests" / "failing.py", command, tmp_path, str(ERRORS[error]), str(step)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    if error != "half":
        assert seen.get("failed"), "nothing failed: nothing was tested"

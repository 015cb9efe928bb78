# SPDX-License-Identifier: Apache-2.0
"""What the shell is offered where the cursor stands, by argcomplete's protocol: answers on descriptor 8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.commands import COMMANDS
from pyprof.commands.report import listed
from tests.waiting import HANG

CODE = "import sys; from pyprof.commands.main import main; sys.argv[0] = 'pyprof'; main()"


def offered(line: str, folder: Path) -> list[str]:
    """Return what may stand at the end of a line."""
    environment = os.environ | {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
    }  # fmt: skip
    answer = folder / "answer"
    subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" 8>"$2" 9>/dev/null', sys.executable, CODE, str(answer)],
        env=environment, cwd=folder, timeout=HANG, check=False, capture_output=True,
    )  # fmt: skip
    return answer.read_text().split("\n")


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("pyprof ", set(COMMANDS)),
        ("pyprof re", {"report", "replay"}),
        ("pyprof report s", {name for name in listed() if name.startswith("s")}),
        ("pyprof report op_type net.sqlite --iter-st", {"--iter-start", "--iter-stop"}),
        ("pyprof report op_type --format ", {"csv", "json", "md", "parquet", "table"}),
        ("pyprof prof -c kernel,op,fl", {"kernel,op,flops"}),
        ("pyprof save net", {"net.sqlite"}),
    ],
)
def test_what_may_follow(line: str, some: set[str], tmp_path: Path) -> None:
    (tmp_path / "net.sqlite").touch()
    offers = {offer.strip() for offer in offered(line, tmp_path)}
    assert some <= offers
    assert all(offer.startswith(line.rpartition(" ")[2]) for offer in offers if offer)

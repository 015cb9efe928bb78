# SPDX-License-Identifier: Apache-2.0
"""Changed files of every format through every command: figures or one sentence, in time, with nothing else written.

16 files of each format with PYPROF_LONG=1, as many as you like with `python -m tests.fuzz`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build import PARTS
from tests.fuzz.seeds import SEEDS
from tests.fuzz.verdicts import FAULTS, Fuzzer, judge, of_answer

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the fuzzer needs Linux")
pytest.importorskip("fastapi", reason="the extra viewer is not installed")
pytest.importorskip("httpx")

CORPUS = [
    line.split(maxsplit=3)
    for line in Path(__file__).with_name("corpus.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
COUNT = 16


@pytest.fixture
def fuzzer(tmp_path: Path) -> Iterator[Fuzzer]:
    with Fuzzer(tmp_path) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_changed_files(part: int, fuzzer: Fuzzer) -> None:
    """And every file that ever failed, with the command that it made fail."""
    work: list[tuple[str, int, int | list[str]]] = [
        (format_, seed, 1) for seed in range(part, COUNT, PARTS) for format_ in SEEDS
    ]
    work += [(format_, int(seed), [command]) for format_, seed, command, _ in CORPUS[part::PARTS]]
    faults, seen = [], set()
    for format_, seed, commands in work:
        for one in fuzzer.run(format_, seed, commands)[0]:
            seen.add((one.command, one.verdict))
            if one.verdict in FAULTS:
                faults.append(f"{format_} {seed} {one.command} {one.verdict}: {one.why}")
    assert not faults, "\n".join(faults)
    # Else nothing was tested: commands have read files, and refused others.
    assert {"ok", "sentence"} <= {verdict for _, verdict in seen}


def test_what_is_a_fault() -> None:
    """The verdicts themselves."""
    fine = {"words": ["info", "/f/net.sqlite"], "code": 1, "stderr": "pyprof info: /f/net.sqlite is empty.\n",
            "outside": [], "changed": [], "left": [], "damaged": False}  # fmt: skip
    assert judge("nsys", fine) == "sentence"
    assert judge("nsys", fine | {"code": 0, "stderr": "", "differs": ""}) == "ok"
    for change, verdict in (
        ({"stderr": "Traceback (most recent call last):\n"}, "traceback"),
        ({"stderr": "x.py:1: RuntimeWarning: overflow\n", "code": 0}, "warning"),
        ({"stderr": "pyprof info: one.\npyprof info: two.\n"}, "odd sentence"),
        ({"stderr": "is empty.\n"}, "odd sentence"),
        ({"stderr": "pyprof info: /tmp/a/run/tmp/pyprof-x/p.sqlite is empty.\n"}, "odd sentence"),
        ({"stderr": "pyprof info: x: this could not be computed (KeyError: 0).\n"}, "odd sentence"),
        ({"code": 3}, "odd sentence"),
        ({"outside": ["os.remove /home/user/key"]}, "escaped"),
        ({"changed": ["net.sqlite"]}, "escaped"),
        ({"left": [".pyprof-1.part"]}, "left"),
        ({"code": 0, "stderr": "", "differs": "1 became 2"}, "differs"),
        ({"code": 0, "stderr": "", "damaged": True}, "damaged"),
    ):
        assert judge("nsys", fine | change)[0] == verdict, change
    for status, verdict in ((-11, "signal"), (-24, "slow"), (99, "broken")):
        (one,) = of_answer("nsys", {"results": [], "ended": "in time", "status": status})
        assert one.verdict == verdict

# SPDX-License-Identifier: Apache-2.0
"""What a run of a command with a changed file was: `ok`, one `sentence`, or a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT

FAULTS = (
    "traceback",
    "warning",
    "odd sentence",
    "signal",
    "slow",
    "hang",
    "escaped",
    "left",
    "differs",
    "damaged",
    "broken",
)
VERDICTS = ("ok", "sentence", *FAULTS)
_PROGRESS = "for the first time ..."


class Verdict(NamedTuple):
    """Of one run; `why` is for the person who reads of a fault."""

    command: str
    verdict: str
    why: str = ""


def judge(format_: str, result: dict[str, Any]) -> str | tuple[str, str]:
    """The verdict of a command that ended, with what shows a fault."""
    error, code = result["stderr"], result["code"]
    lines = [line for line in error.splitlines() if not line.endswith(_PROGRESS)]
    if "Traceback (most recent call last)" in error or "Exception ignored" in error:
        return "traceback", error[-3000:]
    if "Warning:" in error:
        return "warning", error[-1000:]
    if result["outside"] or result["changed"]:
        return "escaped", f"{result['outside']} {result['changed']}"
    if result["left"]:
        return "left", f"{result['left']}"
    if result.get("differs"):
        return "differs", f"code {code}: {result['differs']}"
    if result["damaged"] and format_ != "database":  # a copy of a damaged database is no better than that
        return "damaged", f"code {code}: {error[-500:]}"
    if code == 0:
        if "could not be computed" in error:  # of a request to the viewer
            return ("sentence") if format_ == "database" else ("odd sentence", error[-1000:])
        return "ok"
    if code not in (1, 2) or len(lines) != 1:
        return "odd sentence", f"code {code}: {error[-1000:]}"
    if bad := _odd(format_, lines[0], result["words"][-1]):
        return "odd sentence", f"{bad}: {lines[0]}"
    return "sentence"


def _odd(format_: str, line: str, file: str) -> str:
    if not line.startswith("pyprof "):
        return "it does not say who speaks"
    if "could not be computed" in line and format_ != "database":
        return "a fault of PyProf's, as the recording was read"
    if os.path.join(os.sep, "run", "tmp") in line.replace(file, ""):
        return "it names a scratch file"
    return "it is too long" if len(line) > 700 + 2 * len(file) else ""


def of_answer(format_: str, answer: dict[str, Any]) -> list[Verdict]:
    """The verdicts of all commands that were run with a file."""
    results = [one for one in answer["results"] if "command" in one]
    out = []
    for one in results:
        found = judge(format_, one)
        verdict, why = (found, "") if isinstance(found, str) else found
        out.append(Verdict(one["command"], verdict, why))
    if answer["ended"] == "hang":
        out.append(Verdict("?", "hang", "60 s"))
    elif answer["status"] == 99:
        out.append(Verdict("?", "broken", "".join(one.get("broken", "") for one in answer["results"])))
    elif answer["status"]:
        kind = "slow" if answer["status"] == -24 else "signal"  # SIGXCPU
        out.append(Verdict("?", kind, f"signal {-answer['status']}"))
    return out


class Fuzzer:
    """The warm process, started again when it dies. Close it, or use `with`."""

    def __init__(self, folder: Path):
        self._folder, self._count = folder, 0
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, format_: str, seed: int, commands: int | list[str], **more: Any
    ) -> tuple[list[Verdict], dict[str, Any]]:
        """Run commands with the file that a format and a number make."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"format": format_, "seed": seed, "commands": commands, **more}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            return [Verdict("?", "broken", "the fuzzer's process died")], {"results": []}
        answer = json.loads(line)
        return of_answer(format_, answer), answer

    def _start(self) -> subprocess.Popen[str]:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment, cwd=ROOT,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def __enter__(self) -> Fuzzer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

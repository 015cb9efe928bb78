# SPDX-License-Identifier: Apache-2.0
"""A recording of four steps, and the command run in this process or as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyprof.dlprof import command
from tests.build import call, recording, write_nsys
from tests.conftest import ROOT
from tests.waiting import HANG

STEP = """
step {n}
    {linear}
        > 40 volta_sgemm
    {relu}
        > 10 relu_kernel
    {gelu}
        > 5 gelu_kernel
"""


def steps(count: int = 4) -> str:
    linear, relu, gelu = (
        call("linear", (2, 3), (4, 3)),
        call("torch.relu", (2, 4)),
        call("torch.gelu", (2, 4)),
    )
    return "".join(STEP.format(n=n, linear=linear, relu=relu, gelu=gelu) for n in range(count))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one, with nsys.sqlite: four steps of three operators."""
    monkeypatch.chdir(tmp_path)
    write_nsys(tmp_path / "nsys.sqlite", recording(steps()))
    return tmp_path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dlprof(capfd: pytest.CaptureFixture[str]) -> Run:
    """The command in this process: exit code, stdout, stderr. Without event files unless they are asked for."""

    def run(*words: str) -> tuple[int, str, str]:
        more = [] if any("tb" in word or word == "-b" for word in words) else ["-b"]
        capfd.readouterr()
        code = command.main([*more, *words])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def aggregate(dlprof: Run, folder: Path) -> Run:
    """The command on the recording."""
    return lambda *words: dlprof("--nsys_database=nsys.sqlite", *words)


def start(*words: str, cwd: Path, **more: object) -> subprocess.Popen[str]:
    """The command as a user starts it, in a session of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    return subprocess.Popen(
        [sys.executable, "-m", "pyprof.dlprof", *words], cwd=cwd, env=env | dict(more.pop("env", {})),  # type: ignore[call-overload]
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=_listen,
    )  # fmt: skip


def _listen() -> None:
    """A shell starts what runs in its background deaf to ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def finish(process: subprocess.Popen[str], sent: str = "") -> tuple[int, str, str]:
    out, errors = process.communicate(sent, timeout=HANG)
    return process.returncode, out, errors

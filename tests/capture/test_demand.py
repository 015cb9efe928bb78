# SPDX-License-Identifier: Apache-2.0
"""`pyprof trigger`: a window in a program that runs, and what is said where there can be none."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pyprof
from pyprof.capture import steps
from pyprof.capture.controller import control
from pyprof.core import mailbox
from tests.cli import start
from tests.forks import ROOT, Forks, Program
from tests.waiting import until

from .conftest import Recorded
from .test_steps import numbers, powers

x = torch.ones(2, 2)


class Command:
    """`pyprof trigger` of this process, in a thread."""

    def __init__(self, *options: str):
        self.code: int | None = None
        words = [str(os.getpid()), *options]
        self._thread = threading.Thread(target=lambda: setattr(self, "code", start("trigger", words)))
        self._thread.start()
        until(lambda: not self._thread.is_alive() or self.asked())

    def asked(self) -> bool:
        box = mailbox.of(os.getpid())
        if box is None:
            return False
        try:
            return box.state == mailbox.REQUESTED
        finally:
            box.close()

    def end(self) -> int | None:
        self._thread.join()
        return self.code


@pytest.fixture
def trigger(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start the command; at the end of the test it is over."""
    began = []

    def start(*options: str) -> Command:
        began.append(Command("-o", str(tmp_path / "net.sqlite"), *options))
        return began[-1]

    yield start
    pyprof.shutdown()
    for each in began:
        each.end()


def marked(turns: int) -> None:
    for i in range(turns):
        torch.pow(x, i)
        pyprof.step()


def optimized(turns: int, marks: bool = False) -> None:
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for i in range(turns):
        torch.pow(x, i)
        w.sum().backward()
        optimizer.step()
        if marks:
            pyprof.step()


def loaded(turns: int) -> None:
    for i, _ in enumerate(DataLoader(TensorDataset(torch.arange(float(turns))))):
        torch.pow(x, i)


@pytest.mark.parametrize("program", [marked, optimized, loaded, lambda turns: optimized(turns, marks=True)])
def test_the_next_steps_are_recorded(
    program: Callable[[int], None], trigger: Callable[..., Command], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(steps, "_optimizers", lambda: False)
    pyprof.init()
    command = trigger("--steps", "3")
    program(7)
    assert command.end() == 0
    path = tmp_path / "net.sqlite"
    assert numbers(path) == powers(path) == [1, 2, 3]
    captured = capsys.readouterr()
    assert captured.out == f"{path}\n"
    assert captured.err.startswith(f"{path}: ")
    assert captured.err.count("\n") == 1
    assert control.session is None


def test_the_number_of_the_step_is_that_of_the_run(trigger: Callable[..., Command], tmp_path: Path) -> None:
    pyprof.init()
    marked(5)
    command = trigger("--steps", "2")
    marked(5)
    assert command.end() == 0
    assert numbers(tmp_path / "net.sqlite") == [6, 7]
    again = trigger("--steps", "1")
    marked(5)
    assert again.end() == 0
    assert numbers(tmp_path / "net.sqlite") == [11]
    assert numbers(tmp_path / "net.1.sqlite") == [6, 7]


def test_marks_of_a_profile_that_is_over_are_the_scripts(trigger: Callable[..., Command], tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "own.sqlite"), active=2) as p:
        for i in range(6):
            torch.pow(x, i)
            p.step()
            if i == 2:
                command = trigger("--steps", "2")
    assert command.end() == 0
    assert powers(tmp_path / "net.sqlite") == [4, 5]
    assert numbers(tmp_path / "net.sqlite") == [4, 5]


def test_a_window_of_the_script_ends_the_triggered_one(trigger: Callable[..., Command], tmp_path: Path) -> None:
    pyprof.init()
    command = trigger("--steps", "9")
    marked(3)
    with pyprof.profile(str(tmp_path / "own.sqlite")):
        torch.tanh(x)
    assert command.end() == 0
    assert numbers(tmp_path / "net.sqlite") == [1, 2]
    assert Recorded(tmp_path / "own.sqlite").names == ["torch.tanh"]


def test_shutdown_ends_the_triggered_window(trigger: Callable[..., Command], tmp_path: Path) -> None:
    pyprof.init()
    command = trigger("--steps", "9")
    marked(3)
    pyprof.shutdown()
    assert command.end() == 0
    assert numbers(tmp_path / "net.sqlite") == [1, 2]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence on stderr."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("pyprof trigger: ")
    return captured.err


def test_what_cannot_be_recorded_is_told_to_who_asks(
    trigger: Callable[..., Command], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyprof.init()
    command = trigger("-o", str(tmp_path / "nowhere" / "net.sqlite"))
    marked(2)
    assert command.end() == 1
    assert "cannot be written (the folder does not exist)" in said(capsys)
    with pyprof.profile(str(tmp_path / "own.sqlite")):
        command = trigger()
        marked(2)
        assert command.end() == 1
    assert "already recording" in capsys.readouterr().err
    assert numbers(tmp_path / "own.sqlite") == [0, 1]
    assert not (tmp_path / "net.sqlite").exists()


def test_a_request_that_makes_no_sense_is_refused(trigger: Callable[..., Command]) -> None:
    pyprof.init()
    box = mailbox.of(os.getpid())
    assert box is not None
    for text in (b"{}", b"no json", b'{"steps": "many", "output": "x"}', b"[1]"):
        box.page[8 : 8 + len(text)] = text
        box.page[4:8] = len(text).to_bytes(4, "little")
        box.page[0] = mailbox.REQUESTED
        marked(2)
        assert box.state == mailbox.REFUSED
    box.close()
    assert control.session is None


def test_a_process_that_ends_is_told_of(trigger: Callable[..., Command], capsys: pytest.CaptureFixture[str]) -> None:
    pyprof.init()
    command = trigger()
    pyprof.shutdown()
    assert command.end() == 1
    assert "ended before its next step" in said(capsys)


def test_processes_that_cannot_be_asked_are_a_sentence_each(capsys: pytest.CaptureFixture[str]) -> None:
    pyprof.shutdown()
    assert start("trigger", [str(os.getpid())]) == 1
    assert f"process {os.getpid()} cannot be triggered: it has not called pyprof.init()" in said(capsys)
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    until(lambda: Path(f"/proc/{gone.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert start("trigger", [str(gone.pid)]) == 1
    assert f"process {gone.pid} has ended." in said(capsys)
    gone.wait()
    assert start("trigger", [str(gone.pid)]) == 1
    assert f"there is no process {gone.pid}." in said(capsys)


def test_a_process_of_another_user_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(folder: str) -> list[str]:
        raise PermissionError(folder)

    monkeypatch.setattr(os, "listdir", forbidden)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    owner = os.stat("/proc/self").st_uid
    assert start("trigger", [str(os.getpid())]) == 1
    assert f"belongs to {mailbox._user(owner)}: trigger it as its owner" in said(capsys)


def test_two_do_not_ask_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    pyprof.init()
    box = mailbox.of(os.getpid())
    assert box is not None
    fcntl.flock(box.file, fcntl.LOCK_EX)
    assert start("trigger", [str(os.getpid())]) == 1
    assert "is in use by another pyprof trigger" in said(capsys)
    box.close()


@pytest.mark.parametrize("words", [["none"], ["1", "--steps", "0"], ["-1"], []])
def test_what_is_no_process_is_a_wrong_command(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        start("trigger", words)
    assert error.value.code == 2


def test_where_there_are_no_such_files_nothing_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    pyprof.init()
    assert control.trigger is None
    marked(2)


def test_a_forked_helper_cannot_be_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pyprof.init()
    pid = os.fork()
    if not pid:
        os._exit(start("trigger", [str(os.getpid())]) if mailbox.of(os.getpid()) is None else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert f"process {pid} cannot be triggered" in capfd.readouterr().err
    mine: Any = mailbox.of(os.getpid())
    mine.close()


TRAINING = """\
import os, sys, time, torch, pyprof
pyprof.init()
w = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=.1)
while not os.path.exists("stop"):
    w.sum().backward(); optimizer.step(); time.sleep(.001)
"""


def armed(program: Program) -> Any:
    """The mailbox of a program, when it has one."""
    boxes: list[Any] = []
    until(lambda: boxes or boxes.extend(filter(None, [mailbox.of(program.pid)])))
    return boxes[0]


def test_a_running_training_is_recorded_by_the_command(compiler_forks: Forks, tmp_path: Path) -> None:
    program = compiler_forks.start(tmp_path, TRAINING)
    armed(program).close()
    run = subprocess.run(
        [sys.executable, "-m", "pyprof", "trigger", str(program.pid), "--steps", "2", "-o", "asked.sqlite"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    (tmp_path / "stop").touch()
    assert program.wait() == 0, program.stderr
    assert (run.returncode, run.stdout) == (0, f"{tmp_path / 'asked.sqlite'}\n"), run.stderr
    assert len(numbers(tmp_path / "asked.sqlite")) == 2
    assert program.stderr.count("\n") == 1


def test_a_program_that_ends_in_the_window_has_its_file(compiler_forks: Forks, tmp_path: Path) -> None:
    program = compiler_forks.start(tmp_path, TRAINING + "torch.tanh(w)\n")
    box = armed(program)
    box.put(mailbox.REQUESTED, steps=1_000_000, output=str(tmp_path / "net.sqlite"))
    until(lambda: box.state == mailbox.RECORDING)
    (tmp_path / "stop").touch()
    assert program.wait() == 0, program.stderr
    assert box.state == mailbox.DONE
    box.close()
    assert Recorded(tmp_path / "net.sqlite").names[-1] == "torch.tanh"

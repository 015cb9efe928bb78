# SPDX-License-Identifier: Apache-2.0
"""Windows of the command line and repeated ones: which part of a run stands in which file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nvtx
import pytest
import torch

import pyprof
from pyprof.capture import pace, session
from pyprof.capture.process import main_thread
from pyprof.capture.run_window import Plan, Steps, Times, plan
from pyprof.commands.main import main
from tests.forks import Forks
from tests.waiting import until

from .conftest import Recorded
from .test_nvtx import Tool

x = torch.ones(2, 2)


Run = Callable[..., "tuple[int, str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`pyprof run OPTIONS net.py` in this process, which is faster; returns the exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def start(source: str, *options: str) -> tuple[int, str]:
        (tmp_path / "net.py").write_text(f"import pyprof, time, torch\nx = torch.ones(2, 2)\n{source}")
        code = main(["run", "--quiet", *options, "net.py"])
        return code, capfd.readouterr().err

    return start


def numbers(path: Path) -> list[int]:
    return [number for (number,) in Recorded(path).query("select number from PYPROF_STEP order by start")]


def powers(path: Path) -> list[float]:
    """Which turns of a loop were recorded: the exponent of each torch.pow."""
    calls = [call for call in Recorded(path).calls if call.name == "torch.pow"]
    return [call.marker.call.args[1].value for call in calls]  # type: ignore[misc]


MARKED = "for i in range(6):\n    torch.pow(x, i)\n    pyprof.step()\n"
TRAINED = """\
w = torch.ones(2, requires_grad=True)
one, two = torch.optim.SGD([w], lr=.1), torch.optim.SGD([w], lr=.1)
for i in range(6):
    torch.pow(x, i)
    w.sum().backward()
    one.step()
    two.step()
"""


@pytest.mark.parametrize(
    "loop", [MARKED, TRAINED, MARKED.replace("    pyp", "    w.sum().backward(); one.step(); pyp")]
)
@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ("2:4", [2, 3]),
        (":2", [0, 1]),
        ("4:", [4, 5]),
        ("0:1", [0]),
        ("3:99", [3, 4, 5]),
        (":", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_steps_are_counted_by_marks_or_by_the_first_optimizer(
    steps: str, wanted: list[int], loop: str, tmp_path: Path, run: Run
) -> None:
    if "one.step(); pyp" in loop:  # both: the script's own marks count
        loop = TRAINED.split("for", 1)[0] + loop
    code, error = run(loop, "--steps", steps)
    assert code == 0, error
    assert powers(tmp_path / "net.sqlite") == wanted
    assert numbers(tmp_path / "net.sqlite") == wanted
    assert os.listdir(tmp_path).count("net.sqlite") == 1
    assert error.count("\n") == 1


def test_several_marks_per_optimizer_step_and_the_other_way_round(tmp_path: Path, run: Run) -> None:
    marks = "for i in range(6):\n    torch.pow(x, i)\n    pyprof.step()\n    if i % 2: w.sum().backward(); one.step()\n"
    run(TRAINED.split("for", 1)[0] + marks, "--steps", "2:4")
    assert powers(tmp_path / "net.sqlite") == [2, 3]
    several = MARKED.replace("    pyp", "    w.sum().backward(); one.step(); one.step(); pyp")
    run(TRAINED.split("for", 1)[0] + several, "--steps", "2:4")
    assert powers(tmp_path / "net.sqlite") == [2, 3]
    assert numbers(tmp_path / "net.sqlite") == [2, 3]


def test_a_window_that_is_never_reached_is_one_line_and_no_file(tmp_path: Path, run: Run) -> None:
    code, error = run(MARKED, "--steps", "50:60")
    assert code == 0
    assert error == "pyprof: nothing was recorded: the script ended before step 50: 6 steps were counted.\n"
    code, error = run(MARKED, "--delay", "1000")
    assert error == "pyprof: nothing was recorded: the script ended within the --delay of 1000 seconds.\n"
    assert os.listdir(tmp_path) == ["net.py"]


def test_the_script_ends_as_it_would_when_its_window_was_not_reached(tmp_path: Path, run: Run) -> None:
    code, error = run("raise SystemExit(3)", "--steps", "1:2")
    assert code == 3
    assert "0 steps were counted" in error


@pytest.mark.parametrize(
    "own",
    [
        "with pyprof.profile('own.sqlite', wait=1, active=1) as p:\n    for i in range(6):\n        torch.pow(x, i)\n"
        "        p.step()\n",
        "pyprof.start('own.sqlite')\n" + MARKED + "print(pyprof.stop())\n",
    ],
)
def test_the_command_line_overrules_the_script(own: str, tmp_path: Path, run: Run) -> None:
    code, error = run(own, "--steps", "3:5")
    assert code == 0, error
    assert powers(tmp_path / "net.sqlite") == [3, 4]
    assert error.count("are ignored") == 1
    assert not (tmp_path / "own.sqlite").exists()


def test_cuda_profiler_does_not_narrow_the_command_lines_window(tmp_path: Path, run: Run) -> None:
    around = MARKED.replace("    pyp", "    torch.cuda.profiler.start(); torch.cuda.profiler.stop(); pyp")
    run(around, "--steps", "3:5")
    assert powers(tmp_path / "net.sqlite") == [3, 4]


# Runs until the window is open, or closed again, however long that takes: the exponent says what the script saw.
FOLLOWS = """
from pyprof.capture.instrument.recorder import recorder
def follow(wanted, exponent):
    end = time.monotonic() + 600
    while recorder.active is not wanted and time.monotonic() < end:
        torch.pow(x, exponent)
        time.sleep(0.001)
"""
BEFORE, DURING, AFTER = 1, 2, 3
OPENS = f"{FOLLOWS}follow(True, {BEFORE})\ntorch.pow(x, {DURING})\n"
CLOSES = f"{OPENS}follow(False, {DURING})\ntorch.pow(x, {AFTER})\n"


@pytest.mark.parametrize(
    ("options", "delay", "duration", "source"),
    [
        (["--delay", "0.2"], 0.2, 0, OPENS),
        (["--duration", "0.2"], 0, 0.2, CLOSES),
        (["--delay", "0.2", "--duration", "0.2"], 0.2, 0.2, CLOSES),
        (["--delay", "0", "--duration", "1000"], 0, 0, OPENS),
    ],
)
def test_delay_and_duration_are_seconds_of_the_script(
    options: list[str], delay: float, duration: float, source: str, tmp_path: Path, run: Run
) -> None:
    began = time.time()
    code, error = run(source, *options)
    assert code == 0, error
    assert error.count("\n") == 1
    recorded = Recorded(tmp_path / "net.sqlite")
    ((epoch,),) = recorded.query("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")
    first = epoch + min(call.start for call in recorded.calls)
    assert first >= (began + delay) * 1e9
    assert int(recorded.table("PYPROF_META")["overhead.window_ns"]) >= duration * 1e9
    found = powers(tmp_path / "net.sqlite")
    assert found.count(BEFORE) <= 1  # the window may open between the script's look and its call
    assert DURING in found or duration
    assert AFTER not in found
    assert "mul" not in vars(torch.Tensor)


def test_a_window_is_not_closed_while_torchs_records_are_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing inside of that left torch's profiler running, and half the operators."""
    read, soon, reads, asked = session.Session._read, main_thread.soon, [], []

    def asks(function: Callable[[], object]) -> None:
        asked.append(function)
        soon(function)

    def long_reading(self: session.Session) -> None:
        reads.append(self._open)
        if len(reads) == 1:
            until(lambda: bool(asked))  # time is up, and Python does what a thread asked for
        read(self)

    monkeypatch.setattr(session.Session, "_read", long_reading)
    monkeypatch.setattr(main_thread, "soon", asks)
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 1500)
    source = f"{FOLLOWS}follow(False, {DURING})\n".replace("torch.pow(x, exponent)", "torch.tanh(x)")
    code, error = run(f"for _ in range(150): torch.tanh(x)\n{source}", "--duration", "0.1")
    assert code == 0, error
    assert reads
    recorded = Recorded(tmp_path / "net.sqlite")
    assert abs(len(recorded.ops) - len(recorded.calls)) < 10
    assert not torch._C._autograd._profiler_enabled()


def test_a_main_thread_that_only_waits_does_not_hold_up_the_window(tmp_path: Path, run: Run) -> None:
    source = (
        f"import threading\n{FOLLOWS}"
        f"def work():\n    follow(True, {BEFORE})\n    torch.pow(x, {DURING})\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    code, error = run(source, "--delay", "0.1")
    assert code == 0, error
    found = powers(tmp_path / "net.sqlite")
    assert found.count(BEFORE) <= 1
    assert found.count(DURING) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps", "1:2", "--delay", "1"], "use one or the other"),
        (["--steps", "1:2", "--duration", "1"], "use one or the other"),
        (["--steps", "5:5"], "--steps 5:5 is empty"),
        (["--steps", "5:2"], "--steps 5:2 is empty"),
        (["--steps", "5"], "--steps 5: expected FIRST:END"),
        (["--steps=-3:-1"], "--steps -3:-1: expected FIRST:END"),
        (["--steps", "1:9:2"], "expected FIRST:END"),
        (["--delay=-1"], "--delay -1: expected seconds, 0 or more"),
        (["--delay", "nan"], "--delay nan: expected seconds"),
        (["--delay", "inf"], "--delay inf: expected seconds"),
        (["--duration", "0"], "--duration 0: expected seconds, more than 0"),
        (["--delay", "0", "--duration", "0"], "--duration 0: expected seconds, more than 0"),
        (["--duration=-2"], "--duration -2: expected seconds"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(options: list[str], sentence: str, tmp_path: Path, run: Run) -> None:
    code, error = run("open('ran', 'w')", *options)
    assert code == 2
    assert error.startswith("pyprof run: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert os.listdir(tmp_path) == ["net.py"]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool that listens to NVTX and records this process."""
    listening = Tool()
    monkeypatch.setattr(nvtx, "get_domain", listening.get_domain)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    return listening


@pytest.mark.parametrize("begin", ["", "pyprof.init()\n"])
@pytest.mark.parametrize("loop", [MARKED, TRAINED])
def test_under_a_tool_steps_choose_the_ranges(loop: str, begin: str, tool: Tool, tmp_path: Path, run: Run) -> None:
    code, error = run(begin + loop, "--steps", "2:4")
    assert code == 0, error
    assert [call.call.args[1].value for call in tool.calls if call.call.op == "pow"] == [2, 3]
    tool.check_balance()
    assert os.listdir(tmp_path) == ["net.py"]
    assert error.count("\n") == 1
    assert "NSYS_PROFILING_SESSION_ID" in error


def test_under_a_tool_delay_and_duration_choose_the_ranges(tool: Tool, tmp_path: Path, run: Run) -> None:
    code, error = run(f"pyprof.init()\n{CLOSES}", "--delay", "0.2", "--duration", "0.5")
    assert code == 0, error
    found = [call.call.args[1].value for call in tool.calls if call.call.op == "pow"]
    assert found.count(BEFORE) <= 1
    assert DURING in found
    assert AFTER not in found
    tool.check_balance()


def test_under_a_tool_a_window_that_is_never_reached_is_one_line(tool: Tool, run: Run) -> None:
    code, error = run("pyprof.init()\n" + MARKED, "--steps", "50:60")
    assert code == 0
    assert tool.log == []
    assert error.splitlines()[-1] == (
        "pyprof: nothing was recorded: the script ended before step 50: 6 steps were counted."
    )


def test_plan_of_no_options_is_none() -> None:
    assert plan(None, None, None) is None
    found: list[Plan | None] = [plan("1:", None, None), plan(None, 0.0, None), plan(None, None, 1.0)]
    assert [type(item) for item in found] == [Steps, Times, Times]


def loop(profile: pyprof.profile, steps: int) -> None:
    for number in range(steps):
        torch.pow(x, number)
        profile.step()


def files(folder: Path) -> dict[str, list[float]]:
    return {name: powers(folder / name) for name in sorted(os.listdir(folder))}


def test_each_repeated_window_has_its_file(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), wait=1, warmup=1, active=2, repeat=3) as p:
        loop(p, 20)
    assert files(tmp_path) == {"net.1.sqlite": [6, 7], "net.2.sqlite": [10, 11], "net.sqlite": [2, 3]}
    assert numbers(tmp_path / "net.1.sqlite") == [6, 7]
    assert numbers(tmp_path / "net.2.sqlite") == [10, 11]


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (4, {"net.sqlite": [2, 3]}),
        (6, {"net.sqlite": [2, 3]}),  # the second window has not begun
        (7, {"net.sqlite": [2, 3], "net.1.sqlite": [6]}),
    ],
)
def test_a_loop_that_ends_early_leaves_no_empty_file(
    steps: int, wanted: dict[str, list[float]], tmp_path: Path
) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), wait=1, warmup=1, active=2, repeat=3) as p:
        loop(p, steps)
    assert files(tmp_path) == wanted
    assert "mul" not in vars(torch.Tensor)


def test_windows_without_a_pause_follow_each_other(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), active=2, repeat=2) as p:
        loop(p, 5)
    assert files(tmp_path) == {"net.sqlite": [0, 1], "net.1.sqlite": [2, 3]}


def test_a_later_window_takes_no_name_that_this_run_has_used(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.1.sqlite")):
        torch.pow(x, 77)
    with pyprof.profile(str(tmp_path / "net.sqlite"), active=1, repeat=2) as p:
        loop(p, 2)
    assert files(tmp_path) == {"net.sqlite": [0], "net.1.sqlite": [77], "net.2.sqlite": [1]}


def test_windows_without_a_name_take_none_that_this_run_has_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.sqlite").write_text("of an earlier run")
    for number, name in enumerate(("net.sqlite", "net.1.sqlite", "net.2.sqlite")):
        pyprof.start()
        torch.pow(x, number)
        assert pyprof.stop() == name
    with pyprof.profile() as p:
        loop(p, 1)
    # It became net.1.sqlite, and made way for the second window.
    assert (tmp_path / "net.1.1.sqlite").read_text() == "of an earlier run"
    (tmp_path / "net.1.1.sqlite").unlink()
    assert files(tmp_path) == {
        "net.sqlite": [0], "net.1.sqlite": [1], "net.2.sqlite": [2], "net.3.sqlite": [0],
    }  # fmt: skip
    pyprof.start("net.1.sqlite")  # a name that is given is taken
    torch.pow(x, 5)
    assert pyprof.stop() == "net.1.sqlite"
    assert powers(tmp_path / "net.1.sqlite") == [5]
    assert powers(tmp_path / "net.1.1.sqlite") == [1]
    pyprof.start("net.1.sqlite")  # without operators it replaces nothing
    assert pyprof.stop() == ""
    assert powers(tmp_path / "net.1.sqlite") == [5]


def test_folder_that_vanishes_between_windows_does_not_stop_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with pyprof.profile(str(folder / "net.sqlite"), active=1, repeat=3) as p:
        folder.rmdir()
        loop(p, 4)
    assert "the folder does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"repeat": 2}, {"repeat": 0}, {"wait": -1}, {"active": -1}])
def test_schedules_that_do_not_fit_are_one_sentence(options: dict[str, int]) -> None:
    with pytest.raises(pyprof.PyProfError, match=r"profile\(\)"):
        pyprof.profile(**options)  # type: ignore[arg-type]


def test_runs_into_one_folder_do_not_collide(forks: Forks, tmp_path: Path) -> None:
    source = "import torch\nfor i in range(200): torch.tanh(torch.ones(2))\n"
    names = ["a.sqlite", "same.sqlite", "same.sqlite"]
    runs = [forks.start(tmp_path, source, "run", "-o", name) for name in names]
    assert [program.wait() for program in runs] == [0] * 3
    assert sorted(os.listdir(tmp_path)) == ["a.sqlite", "net.py", "same.1.sqlite", "same.sqlite"]
    for name in ("a.sqlite", "same.1.sqlite", "same.sqlite"):
        recorded = Recorded(tmp_path / name)
        assert recorded.query("pragma integrity_check") == [("ok",)]
        assert recorded.names.count("torch.tanh") == 200

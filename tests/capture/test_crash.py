# SPDX-License-Identifier: Apache-2.0
"""Runs that end before their time, disks that are full, folders that take nothing: what is left, and what is said."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.capture import controller, pace, recording, session
from pyprof.capture.collectors import kineto
from pyprof.commands.main import main
from pyprof.core import atomic_file
from tests.forks import KILL, Forks, Program
from tests.waiting import until

from .conftest import OURS, Recorded

x = torch.ones(2, 2)


@pytest.fixture
def forks(forks: Forks) -> Forks:
    """Programs that free all of torch at their end, and tear down what is recorded then."""
    return forks.whole()


def left(folder: Path) -> list[str]:
    """What stands in the folder, but for the script."""
    return sorted(set(os.listdir(folder)) - {"net.py"})


def check_nothing_or_whole(folder: Path) -> None:
    """The scratch file has a name, and nothing in it, until SQLite has opened it."""
    for name in left(folder):
        if name.startswith(".pyprof-") and not (folder / name).stat().st_size:
            (folder / name).unlink()
            continue
        assert re.fullmatch(r"net(\.\d+)?\.sqlite", name)
        recorded = Recorded(folder / name)
        assert recorded.query("pragma integrity_check") == [("ok",)]
        assert recorded.table("PYPROF_META")["format_version"] == "2"


# kill -9

LOOP = """\
import torch, pyprof
with pyprof.profile("net.sqlite"):
    for i in range({count}):
        torch.tanh(torch.ones(2))
        if i == {count} // 2: open("half", "w").close()
open("done", "w").close()
"""


def wait_for(program: Program, *names: Path) -> None:
    """Until the files exist; the program must not end before that."""

    def exist() -> bool:
        ended = program.state == "Z"
        there = all(name.exists() for name in names)
        assert there or not ended, program.stderr
        return there

    until(exist)


@pytest.mark.long
def test_killed_within_its_window_a_program_leaves_nothing(forks: Forks, tmp_path: Path) -> None:
    source = LOOP.format(count=1000).replace("close()", "close(); import time; time.sleep(60)", 1)
    program = forks.start(tmp_path, source)
    wait_for(program, tmp_path / "half")
    program.signal(KILL)
    assert program.wait() == -KILL
    assert left(tmp_path) == ["half"]


def kill_while_it_writes(forks: Forks, folder: Path, delay: float, prelude: str = "") -> bool:
    """Whether it was killed about `delay` seconds after it had begun to write; False if it had ended by then."""
    program = forks.start(folder, LOOP.format(count=3000), prelude=WATCHED + prelude)
    wait_for(program, folder / "began")
    time.sleep(delay)
    program.signal(KILL)
    killed = program.wait() == -KILL
    for name in ("began", "half", "done"):
        (folder / name).unlink(missing_ok=True)
    return killed


# Says when the scratch file is made: nothing of it can be seen from outside.
WATCHED = """
import os
_open = os.open
def watched(name, flags, *rest, **options):
    file = _open(name, flags, *rest, **options)
    if ".pyprof-" in str(name) and os.path.exists("half"):
        open("began", "w").close()
        if "stops_there" in globals():
            os.kill(os.getpid(), 19)
    return file
os.open = watched
"""


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.long
def test_killed_while_it_writes_a_program_leaves_nothing_or_a_whole_file(
    older: bool, forks: Forks, tmp_path: Path
) -> None:
    if older:
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.exp(x)
    assert kill_while_it_writes(forks, tmp_path, 0, "stops_there = True")
    for delay in (0.002, 0.02):
        kill_while_it_writes(forks, tmp_path, delay)
    check_nothing_or_whole(tmp_path)
    assert all(re.fullmatch(r"net(\.\d+)?\.sqlite", name) for name in left(tmp_path))
    if older:
        assert (tmp_path / "net.sqlite").exists()


@pytest.mark.long
@pytest.mark.parametrize("named", [False, True])
def test_killed_at_any_moment_of_writing(named: bool, forks: Forks, tmp_path: Path) -> None:
    """Also where the file system knows no files without a name: then a temporary may stay until the next recording."""
    killed = 0
    for number in range(12):
        prelude = "del os.O_TMPFILE" if named else ""
        killed += kill_while_it_writes(forks, tmp_path, number * 0.003, prelude)
        if named:
            for name in left(tmp_path):
                assert re.fullmatch(r"net(\.\d+)?\.sqlite|\.pyprof-.*\.part", name)
        else:
            check_nothing_or_whole(tmp_path)
    assert killed > 2
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.exp(x)
    assert all(re.fullmatch(r"net(\.\d+)?\.sqlite", name) for name in left(tmp_path))
    check_nothing_or_whole(tmp_path)


def test_stopped_while_it_copies_nothing_has_a_name(forks: Forks, tmp_path: Path) -> None:
    """SIGSTOP at the moment when the scratch file is copied, and SIGKILL then."""
    prelude = (
        "import os, shutil, signal\ndef stop(*args): os.kill(os.getpid(), signal.SIGSTOP)\nshutil.copyfileobj = stop\n"
    )
    program = forks.start(tmp_path, LOOP.format(count=10), prelude=prelude)
    while (state := program.state) != "T":
        assert state != "Z", program.stderr
    assert left(tmp_path) == ["half"]
    program.signal(KILL)
    assert program.wait() == -KILL
    assert left(tmp_path) == ["half"]


def test_the_next_recording_removes_what_killed_ones_left_and_no_more(tmp_path: Path) -> None:
    (tmp_path / ".pyprof-0123456789abcdef.part").write_bytes(b"left behind")
    (tmp_path / ".pyprof-notes").write_text("of the user")
    name, held = atomic_file._scratch(str(tmp_path))  # of a living process
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.exp(x)
    assert left(tmp_path) == sorted([".pyprof-notes", os.path.basename(name), "net.sqlite"])
    os.close(held)


@pytest.mark.parametrize("missing", ["O_TMPFILE", "link"])
@pytest.mark.parametrize("older", [False, True])
def test_file_systems_that_know_no_files_without_a_name(
    missing: str, older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(95, "Operation not supported")

    if missing == "O_TMPFILE":
        monkeypatch.delattr(os, "O_TMPFILE")
    else:
        monkeypatch.setattr(os, "link", refuse)
    for _ in range(1 + older):
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.exp(x)
    assert left(tmp_path) == ["net.1.sqlite", "net.sqlite"][1 - older :]
    check_nothing_or_whole(tmp_path)


def test_a_name_that_is_a_link_stays_one_and_odd_names_work(tmp_path: Path) -> None:
    folder = tmp_path / "räum?a=b#c%20"
    folder.mkdir()
    (tmp_path / "net.sqlite").symlink_to(folder / "real.sqlite")
    for _ in range(2):
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.exp(x)
    assert (tmp_path / "net.sqlite").is_symlink()
    assert sorted(os.listdir(folder)) == ["real.1.sqlite", "real.sqlite"]
    assert Recorded(tmp_path / "net.sqlite").table("PYPROF_META")["format_version"] == "2"


def test_the_folder_is_the_one_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    with pyprof.profile("net.sqlite"):
        os.chdir("work")
        os.rmdir(tmp_path / "work")
        torch.exp(x)
    os.chdir(tmp_path)
    assert os.listdir(tmp_path) == ["net.sqlite"]


# A full disk, a limit, a folder that takes nothing

TRAIN = "import torch, pyprof, sys\n{begin}\ntorch.tanh(torch.ones(2))\nprint('trained')\nsys.exit(7)\n"
FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
"""


WAYS = {
    "run": ("", ["run"], {}),
    "init": ("pyprof.init(output='net.sqlite')", [], {}),
    "environment": ("pyprof.init()", [], {"PYPROF_OUTPUT": "net.sqlite"}),
    "start": ("pyprof.start('net.sqlite')", [], {}),
}


def train(forks: Forks, folder: Path, way: str, prelude: str = "", output: str = "net.sqlite") -> str:
    """Run a script whose recording cannot be written; it must not notice. Returns stderr."""
    begin, command, environment = WAYS[way]
    if command:
        command = [*command, "-o", output]
    environment = dict.fromkeys(environment, output)
    source = TRAIN.format(begin=begin.replace("net.sqlite", output))
    code, program = forks.run(folder, source, *command, prelude=prelude, **environment)
    assert (code, program.stdout) == (7, "trained\n"), program.stderr
    return program.stderr


@pytest.mark.parametrize(("way", "size"), [("run", 40000), ("init", 4096), ("environment", 40000)])
def test_a_full_disk_is_one_sentence_and_the_training_goes_on(
    way: str, size: int, forks: Forks, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk."""
    error = train(forks, tmp_path, way, FULL.format(size=size))
    assert error.startswith("pyprof: net.sqlite: the recording could not be written ("), error
    assert error.count("\n") == 1
    assert left(tmp_path) == []


def test_a_disk_that_is_full_when_the_file_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file.shutil, "copyfileobj", full)
    path = tmp_path / "net.sqlite"
    path.write_bytes(b"an older one")
    for _ in range(2):
        with pyprof.profile(str(path)):
            torch.exp(x)
        assert "could not be written (No space left on device)" in capsys.readouterr().err
        assert left(tmp_path) == ["net.sqlite"]
        assert path.read_bytes() == b"an older one"
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # and through a temporary name


@contextmanager
def unprivileged() -> Iterator[None]:
    """For a moment the superuser, who may write anywhere, may not (CAP_DAC_OVERRIDE is 1, CAP_DAC_READ_SEARCH 2)."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0


PLACES = {
    "no folder": ("nowhere/net.sqlite", "the folder does not exist"),
    "a folder": ("closed", "it is a folder"),
    "a device": ("/dev/null", "it is not a file"),
    "a full device": ("/dev/full", "it is not a file"),
    "no permission": ("closed/net.sqlite", "Permission denied"),
    "a system's folder": ("/proc/net.sqlite", ""),
    "too long": ("n" * 300, "File name too long"),
    "protected": ("older.sqlite", "Permission denied"),
    "a file as folder": ("older.sqlite/net.sqlite", "the folder does not exist"),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("way", ["profile", "start", "init", "run"])
def test_a_place_that_takes_no_file_is_one_sentence_before_the_training(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    output, reason = PLACES[name]
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "older.sqlite").write_text("older")
    (tmp_path / "older.sqlite").chmod(0o444)
    (tmp_path / "net.py").write_text("import torch\ntorch.tanh(torch.ones(2))\nraise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with unprivileged():
        if way == "profile":
            with pyprof.profile(output):
                torch.tanh(x)
        elif way == "start":
            pyprof.start(output)
            torch.tanh(x)
            assert pyprof.stop() == ""
        elif way == "init":
            pyprof.init(output=output)
            torch.tanh(x)
            pyprof.shutdown()
        else:
            assert main(["run", "--quiet", "-o", output, "net.py"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    says, ends = ("pyprof run", "file") if way == "run" else ("pyprof", "Nothing is recorded")
    assert error.startswith(f"{says}: {output} cannot be written ({reason}"), error
    assert error.endswith(f"{ends}.\n")
    assert left(tmp_path) == ["closed", "older.sqlite"]
    assert os.listdir(tmp_path / "closed") == []
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "nowhere/net.sqlite"], "nowhere/net.sqlite cannot be written (the folder does not exist)"),
        (["-o", "nowhere/net.sqlite", "--steps", "1:2"], "the folder does not exist"),
        (["-o", "nowhere/net.sqlite", "--delay", "1", "--strict", "--memory"], "the folder does not exist"),
        (["-o", "out/"], "out/ cannot be written (it is the name of a folder)"),
        (["-o", ""], "an output without a name cannot be written"),
        (["-o", "net.py"], "the name of the script"),
        (["-o", "./again.py"], "the name of the script"),
    ],
)
def test_run_refuses_before_the_program_starts(words: list[str], sentence: str, forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "again.py").symlink_to("net.py")
    code, program = forks.run(tmp_path, "print('started')\n", "run", *words)
    assert (code, program.stdout) == (2, "")
    assert program.stderr.count("\n") == 1
    assert sentence in program.stderr
    assert left(tmp_path) == ["again.py"]


def test_run_refuses_a_disk_without_a_free_block(forks: Forks, tmp_path: Path) -> None:
    code, program = forks.run(tmp_path, "print('started')\n", "run", prelude=FULL.format(size=2000))
    assert (code, program.stdout) == (2, ""), program.stderr
    assert "net.sqlite cannot be written (No space left on device)" in program.stderr


def test_ranks_refuse_their_own_file(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "net.rank1.sqlite").mkdir()
    for rank, expected in (("1", 2), ("0", 0)):
        code, program = forks.run(tmp_path, "print('started')\n", "run", RANK=rank, WORLD_SIZE="2")
        assert code == expected, program.stderr


@pytest.mark.parametrize("way", ["environment", "start"])
def test_a_program_without_a_place_for_its_file_ends_as_it_would(way: str, forks: Forks, tmp_path: Path) -> None:
    error = train(forks, tmp_path, way, output="nowhere/net.sqlite")
    assert error.count("\n") == 1
    assert left(tmp_path) == []


def test_a_folder_that_is_closed_during_the_training(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with unprivileged(), pyprof.profile(str(folder / "net.sqlite")):
        torch.tanh(x)
        folder.chmod(0o555)
    assert capsys.readouterr().err == (
        f"pyprof: {folder}/net.sqlite: the recording could not be written (Permission denied).\n"
    )
    assert os.listdir(folder) == []


def test_every_window_without_a_file_is_quiet_after_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "nowhere" / "net.sqlite")
    with pyprof.profile(output, active=1, repeat=3) as p:
        for _ in range(5):
            torch.tanh(x)
            p.step()
    pyprof.start(output)
    torch.tanh(x)
    assert pyprof.stop() == ""
    assert capsys.readouterr().err.count("\n") == 1
    assert "mul" not in vars(torch.Tensor)


def test_stop_names_no_file_that_was_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    pyprof.start(str(folder / "net.sqlite"))
    folder.rmdir()
    assert pyprof.stop() == ""


# Memory is short, or our own code fails


def _fails(*args: object, **options: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (kineto, "arguments"),
        (recording, "resolve"),
        (session, "write"),
        (recording.facts, "gather"),
        (recording.overhead, "calibrate"),
    ],
)
@pytest.mark.parametrize("how", ["whole", "discarded", "cuda", "full"])
def test_short_memory_is_one_sentence(
    module: Any, name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(module, name, _fails)
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 150 if how == "full" else 40_000)
    path = str(tmp_path / "net.sqlite")
    if how == "cuda":
        pyprof.init(output=path)
        for _ in range(2):
            torch.cuda.profiler.start()
            torch.tanh(x)
            torch.cuda.profiler.stop()
        pyprof.shutdown()
    else:
        with pyprof.profile(path, warmup=how == "discarded", active=1) as p:
            for _ in range(2):
                for _ in range(20):
                    torch.tanh(x)
                p.step()
    error = capsys.readouterr().err
    assert error == ("pyprof: out of memory, the recording is lost. Record fewer steps, or set a lower max_events.\n")
    assert os.listdir(tmp_path) == []
    assert "mul" not in vars(torch.Tensor)
    assert not torch._C._autograd._profiler_enabled()
    monkeypatch.undo()
    with pyprof.profile(path):  # the next one is whole
        torch.tanh(x)
    assert Recorded(Path(path)).names == ["torch.tanh"]
    assert len(Recorded(Path(path)).ops) == 1


# Programs that end otherwise. Under `pyprof run` and with PYPROF_OUTPUT: all that was recorded is in the file.

ENDINGS = {
    "exit": ("sys.exit(3)", 3, ""),
    "exception": ("raise ValueError('mine')", 1, "ValueError: mine"),
    "ctrl-c": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", 130, "KeyboardInterrupt"),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15, ""),
    "daemon thread": (
        "def work():\n    torch.tanh(x); time.sleep(60)\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(.1)",
        0,
        "",
    ),
}
ENDS = "import os, signal, sys, threading, time, torch\n{begin}\nx = torch.ones(2)\ntorch.exp(x)\n{ending}\n"


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("way", ["run", "environment"])
def test_however_a_program_ends_it_ends_so_and_the_file_is_whole(
    name: str, way: str, forks: Forks, tmp_path: Path
) -> None:
    ending, expected, error = ENDINGS[name]
    if (name, way) == ("ctrl-c", "environment"):
        expected = -signal.SIGINT  # as python itself ends
    begin = "" if way == "run" else "import pyprof; pyprof.init()"
    command, environment = (["run"], {}) if way == "run" else ([], {"PYPROF_OUTPUT": "net.sqlite"})
    code, program = forks.run(tmp_path, ENDS.format(begin=begin, ending=ending), *command, **environment)
    assert code == expected, program.stderr
    assert error in program.stderr
    assert OURS not in program.stderr
    assert left(tmp_path) == ["net.sqlite"]
    names = Recorded(tmp_path / "net.sqlite").names
    assert names[:2] == ["torch.ones", "torch.exp"]
    assert set(names[2:]) == ({"torch.tanh"} if name == "daemon thread" else set())


SEGFAULT = "import faulthandler; faulthandler.enable(); faulthandler._sigsegv()"


@pytest.mark.parametrize(("ending", "expected"), [("os._exit(5)", 5), (SEGFAULT, -11)])
@pytest.mark.long
def test_a_program_that_dies_on_the_spot_leaves_nothing(
    ending: str, expected: int, forks: Forks, tmp_path: Path
) -> None:
    code, program = forks.run(tmp_path, ENDS.format(begin="", ending=ending), "run")
    assert code == expected
    assert left(tmp_path) == []
    assert ("Segmentation fault" in program.stderr) == (expected < 0)


@pytest.mark.long
def test_sigterm_does_not_wait_for_a_main_thread_that_never_comes(forks: Forks, tmp_path: Path) -> None:
    """A rank that waits for another one is inside of C; a semaphore's `wait` stands for it."""
    ending = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nsemaphore = ctypes.create_string_buffer(64)\n"
        "open('half', 'w').close()\nwhile libc.sem_wait(semaphore): pass"
    )
    # The handler of a signal ends sem_wait; one that is restarted, as a lock of C++ is, does not.
    ending = ending.replace("sem_wait(semaphore)", "pthread_mutex_lock(semaphore)")
    ending = ending.replace("while", "libc.pthread_mutex_lock(semaphore)\nwhile")
    program = forks.start(tmp_path, ENDS.format(begin="", ending=ending), "run")
    wait_for(program, tmp_path / "half")
    program.signal(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM
    (tmp_path / "half").unlink()
    assert left(tmp_path) == ["net.sqlite"]
    assert Recorded(tmp_path / "net.sqlite").names[:2] == ["torch.ones", "torch.exp"]


def test_a_second_sigterm_does_not_wait_for_the_file(forks: Forks, tmp_path: Path) -> None:
    prelude = (
        "import os, shutil, time\n"
        "def slow(*args):\n    open('half', 'w').close()\n    time.sleep(60)\n"
        "shutil.copyfileobj = slow\n"
    )
    ending = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    program = forks.start(tmp_path, ENDS.format(begin="", ending=ending), "run", prelude=prelude)
    wait_for(program, tmp_path / "half")
    program.signal(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM
    assert left(tmp_path) == ["half"]


def test_a_program_that_handles_sigterm_itself_does(forks: Forks, tmp_path: Path) -> None:
    begin = "signal.signal(signal.SIGTERM, lambda *_: print('mine'))"
    ending = "os.kill(os.getpid(), signal.SIGTERM)\ntorch.tanh(x)"
    code, program = forks.run(tmp_path, ENDS.format(begin=begin, ending=ending), "run")
    assert (code, program.stdout) == (0, "mine\n")
    assert Recorded(tmp_path / "net.sqlite").names[-1] == "torch.tanh"


def test_children_of_a_recorded_program_die_of_sigterm_as_ever(forks: Forks, tmp_path: Path) -> None:
    ending = (
        "child = os.fork()\nif not child:\n    time.sleep(60)\nos.kill(child, signal.SIGTERM)\n"
        "print(os.waitpid(child, 0)[1], signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    )
    # From Python 3.12 on a fork warns where there are threads, and torch's profiler has one.
    begin = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)"
    code, program = forks.run(tmp_path, ENDS.format(begin=begin, ending=ending), "run")
    assert (code, program.stdout) == (0, "15 False\n")
    assert len(program.stderr.splitlines()) == 1, program.stderr


def test_the_signal_is_as_it_was_after_the_recording(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), threading.active_count()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        pyprof.init(output=str(tmp_path / "net.sqlite"))
        assert callable(signal.getsignal(signal.SIGTERM))
        controller.finish()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1
        while threading.active_count() > before[1]:  # the thread ends by itself
            time.sleep(0.001)
    finally:
        signal.signal(signal.SIGTERM, before[0])

# SPDX-License-Identifier: Apache-2.0
"""The overview at the end of `pyprof run`: it comes last, on stderr, and changes nothing about the program."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.terminal import columns
from pyprof.overview import ending
from pyprof.overview.figures import figures
from pyprof.overview.lines import lines
from tests.build import recording, write_capture
from tests.reports.conftest import CPU
from tests.waiting import until

WORK = "import torch\nx = torch.ones(4)\nfor _ in range(3):\n    x = torch.tanh(x)\n"
NEXT = "Next: pyprof view net.sqlite"
PATIENT = "import pyprof.overview.ending as e\ne.PATIENCE = 600\n"


def test_it_is_the_last_thing_on_stderr_and_that_of_pyprof_report(forks, tmp_path, monkeypatch, capsys):
    """After what the program prints as it ends, too."""
    source = WORK + (
        "import atexit, sys\natexit.register(lambda: print('bye', file=sys.stderr))\n"
        "atexit.register(lambda: print('bye'))\nprint('out')\n"
    )
    code, done = forks.run(tmp_path, source, "run", overview=True, prelude=PATIENT, COLUMNS="80")
    assert (code, done.stdout) == (0, "out\nbye\n")
    first, second, *shown = done.stderr.splitlines()
    assert (first, second) == ("net.sqlite: 6 operators, 4 calls", "bye")
    assert shown[0].startswith("Step ")
    assert shown[-1] == NEXT
    monkeypatch.chdir(tmp_path)
    profile = pyprof.load("net.sqlite")
    assert shown == lines(figures(profile.source()), 80, path="net.sqlite")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", "net.sqlite"]) == 0
    assert capsys.readouterr().out.splitlines() == shown


@pytest.mark.parametrize(
    ("options", "more", "environment"),
    [
        (["--quiet"], "", {}),
        ([], "raise SystemExit(3)\n", {}),
        ([], "raise ValueError('mine')\n", {}),
        ([], "", {"RANK": "1", "WORLD_SIZE": "2"}),
        ([], "import sys\nsys.stderr = None\n", {}),
    ],
    ids=["quiet", "exit code", "exception", "second rank", "no stderr"],
)
def test_there_is_none(options, more, environment, forks, tmp_path):
    wanted, plain = forks.run(tmp_path, WORK + more)
    code, done = forks.run(tmp_path, WORK + more, "run", *options, overview=True, **environment)
    assert code == wanted
    assert "Whole recording" not in done.stdout + done.stderr
    assert "overview" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[:-1][-1:] == plain.stderr.splitlines()[-1:]  # then the line about the file


@pytest.mark.long
def test_the_first_rank_says_that_there_are_others(forks, tmp_path):
    _, done = forks.run(tmp_path, WORK, "run", overview=True, RANK="0", WORLD_SIZE="2", COLUMNS="100")
    assert done.stderr.splitlines()[-1] == "Next: pyprof view net.rank0.sqlite"


def test_ranks_that_the_program_starts(tmp_path):
    one = ending.Ending()
    one._folder = str(tmp_path)
    empty, first = tmp_path / "net.sqlite", tmp_path / "net.rank0.sqlite"
    write_capture(empty, recording(""))
    write_capture(first, recording(CPU))
    one.choose_file(0, {str(empty)}, "net.sqlite", None)
    assert one._file == str(first)
    os.utime(first, (1, 1))  # of an earlier run
    one.choose_file(0, {str(empty)}, "net.sqlite", None)
    assert one._file is None


@pytest.mark.parametrize(
    ("prelude", "said"),
    [
        ("e.sys.executable = '/nowhere/python'", r"pyprof: no overview .*No such file.*"),
        (
            "e._START = 'raise ImportError(\"no pandas\")'",
            r"pyprof: no overview of the recording: ImportError: no pandas",
        ),
        ("e._START = 'raise SystemExit(9)'", r"pyprof: no overview of the recording: exit code 9"),
        ('e._START = \'print("\\\\x1b[2J"); import sys; sys.exit("\\\\x1b[2J")\'', r"pyprof: .*: \\x1b\[2J"),
        ("e.columns = None", None),
    ],
    ids=["no python", "no pandas", "exit code", "hostile", "a fault of ours"],
)
def test_a_failure_is_one_line_and_the_exit_code_is_the_programs(prelude, said, forks, tmp_path):
    source = WORK + "print('out')\n"
    code, done = forks.run(tmp_path, source, "run", overview=True, prelude=PATIENT + prelude)
    assert (code, done.stdout) == (0, "out\n")
    told = done.stderr.splitlines()[1:]
    assert len(told) == (said is not None), told
    assert said is None or re.fullmatch(said, told[0])


@pytest.mark.parametrize(
    "tool", ["pandas", *(pytest.param(tool, marks=pytest.mark.long) for tool in ("pyarrow", "rich"))]
)
def test_libraries_that_cannot_be_imported(tool, forks, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{tool}.py").write_text("raise ImportError('it is too old')\n")
    prelude = f"{PATIENT}import sys\nsys.path.insert(0, {str(tmp_path / 'broken')!r})"
    code, done = forks.run(tmp_path, WORK, "run", overview=True, prelude=prelude)
    assert code == 0
    assert done.stderr.splitlines()[1:] == ["pyprof: no overview of the recording: ImportError: it is too old"]


@pytest.mark.long
def test_what_the_program_did_to_its_process_does_not_matter(forks, tmp_path):
    source = WORK + (
        "import os, sys\nos.environ.clear()\nos.environ['PYTHONHOME'] = '/nowhere'\nos.mkdir('elsewhere')\n"
        "os.chdir('elsewhere')\nsys.path.clear()\nopen('pandas.py', 'w').write('1/0')\nsys.argv = ['x']\n"
    )
    code, done = forks.run(tmp_path, source, "run", overview=True)
    assert code == 0
    assert done.stderr.splitlines()[-1] == NEXT


@pytest.mark.long
def test_a_forked_child_of_the_program_prints_none(forks, tmp_path):
    source = (
        "import pyprof\npyprof.start('net.sqlite')\n"
        + WORK
        + ("pyprof.stop()\nimport os, sys\npid = os.fork()\nif not pid:\n    sys.exit(0)\nos.waitpid(pid, 0)\n")
    )
    # The last of a child's exit is left out: there the destructors of torch's profiler may wait for ever.
    prelude = "import atexit, os\npid = os.getpid()\natexit.register(lambda: os.getpid() == pid or os._exit(0))"
    _, done = forks.run(tmp_path, source, "run", overview=True, prelude=prelude)
    assert done.stderr.count(NEXT) == 1


def test_ctrl_c_while_it_is_made_ends_it_quietly(forks, tmp_path):
    ready = tmp_path / "ready"
    start = f"import time; open({str(ready)!r}, 'w').close(); time.sleep(60)"
    prelude = f"import pyprof.overview.ending as e\ne._START = {start!r}"
    program = forks.start(tmp_path, WORK, "run", overview=True, prelude=prelude)
    while not ready.exists():
        time.sleep(0.01)
    program.signal(signal.SIGINT)
    assert program.wait() == 0
    assert program.stderr == "net.sqlite: 6 operators, 4 calls\n"


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    subprocess.run(["stty", "cols", "133", "rows", "20"], stdin=follower, check=True)
    with os.fdopen(follower, "w") as terminal:
        assert columns(terminal) == 133
        monkeypatch.setenv("COLUMNS", "70")
        assert columns(terminal) == 70
    os.close(leader)
    monkeypatch.delenv("COLUMNS")
    with Path(os.devnull).open("w") as file:
        assert columns(file) == 80


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["op_type"], 2, "pyprof report: report 'op_type' needs a file: pyprof report op_type net.sqlite."),
        (["nosuch.sqlite"], 1, "pyprof report: nosuch.sqlite: no such file"),
        (
            ["cpu.sqlite", "--format", "csv"],
            2,
            "pyprof report: the overview takes no report options; name a report",
        ),
        (
            ["cpu.sqlite", "--categories=7"],
            2,
            "pyprof report: the overview takes no report options; name a report",
        ),
    ],
)
def test_what_is_wrong_with_the_words(words, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_capture(Path("cpu.sqlite"), recording(CPU))
    assert main(["report", *words]) == code
    assert capsys.readouterr().err.startswith(said)


def test_options_may_stand_between_report_and_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_capture(Path("cpu.sqlite"), recording(CPU))
    assert main(["report", "op_type", "--format", "csv", "cpu.sqlite"]) == 0
    between = capsys.readouterr().out
    assert between.startswith("Op Type,")
    assert main(["report", "--format", "csv", "op_type", "cpu.sqlite"]) == 0
    assert capsys.readouterr().out == between
    assert main(["report", "--worker", "0", "cpu.sqlite"]) == 0
    assert capsys.readouterr().out.startswith("Whole recording 220 ns")


def test_the_parent_needs_no_library_for_it():
    heavy = ("pandas", "numpy", "rich", "torch")
    code = f"import pyprof.overview.ending, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_however_long_it_takes_a_line_says_so_and_it_comes(forks, tmp_path):
    prelude = "import pyprof.overview.ending as e\ne.PATIENCE = 0.01"
    _, done = forks.run(tmp_path, WORK, "run", overview=True, prelude=prelude)
    waits, *shown = done.stderr.splitlines()[1:]
    assert re.fullmatch(
        r"pyprof: adding up the recording, 0\.\d MB; ctrl-C leaves it to `pyprof report net\.sqlite`\.", waits
    )
    assert shown[0].startswith("Step ")
    assert shown[-1] == NEXT


def test_ctrl_c_ends_it_and_the_exit_code_is_the_programs(forks, tmp_path):
    prelude = (
        "import pyprof.overview.ending as e\ne.PATIENCE = 0.01\n"
        "e._START = 'import time, signal; signal.signal(2, signal.SIG_IGN); time.sleep(600)'"
    )
    program = forks.start(tmp_path, WORK, "run", overview=True, prelude=prelude)
    until(lambda: program.err.exists() and "adding up" in program.stderr)
    program.signal(signal.SIGINT)
    assert program.wait() == 0
    assert len(program.stderr.splitlines()) == 2

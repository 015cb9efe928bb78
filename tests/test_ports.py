# SPDX-License-Identifier: Apache-2.0
"""A user of another uid gets nothing from a command that runs: only the viewer opens a port, and asks for its token.

Every command is in a table here, and is watched with all processes of Python that it starts.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pyprof.commands import COMMANDS
from tests import kineto
from tests.conftest import ROOT
from tests.server import planted_ranks
from tests.waiting import HANG

NOBODY = 65534
_WITNESS = """
import sys
def note(event, arguments):
    if event == "socket.bind":
        with open({file!r}, "a") as file:
            file.write(f"{{arguments[1]!r}}\\n")
sys.addaudithook(note)
"""
_PROGRAM = """
import os, subprocess, sys, torch, pyprof
pyprof.init()
command = [sys.executable, "-m", "pyprof", "trigger", str(os.getpid()), "--steps", "1", "-o", sys.argv[-1]]
process = subprocess.Popen(command) if len(sys.argv) > 1 else None
for _ in range(2) if process is None else iter(process.poll, 0):
    torch.ones(2).sum()
    pyprof.step()
"""
# What each needs to do its work. RANKS: a folder with a recording of each rank, FILE: a recording, PROGRAM: a script,
# which triggers itself if a file follows, OUT: a file that is not there. The first ones share a process.
TOGETHER = {
    "parse": "parse FILE",
    "prof": "prof FILE",
    "report": "report RANKS",
    "query": "query FILE 'select 1'",
    "diff": "diff FILE FILE",
    "export": "export --format=chrome -o OUT.json FILE",
    "replay": "replay FILE",
    "page": "page -o OUT.html FILE",
    "info": "info FILE",
    "save": "save RANKS -o OUT",
    "mcp": "mcp FILE",
}
ALONE = {
    "run": "run -o OUT PROGRAM",
    "top": "top FILE",
    "trigger": "PROGRAM OUT",
}
LONG = {"estimate": "estimate PROGRAM", "save": "save RANKS --scheduler local:2 -o OUT"}
_RUN = """
import shlex, sys; from pyprof.commands.main import main
sys.exit(sum(main(shlex.split(words)) for words in sys.argv[1:]))
"""
EXEMPT = {"view": "opens one, below", "enable": "writes a file", "disable": "removes it"}
# What another user tries of a process and its port, and gets: answers, then what the system lets them read.
_STRANGER = """
import encodings.idna, http.client, os, sys
pid, port, nobody = sys.argv[1:]
os.setgroups([]), os.setgid(int(nobody)), os.setuid(int(nobody))  # once Python has its modules, which may be root's
for path in ("/", "/index.html", "/assets/app.js", "/api/profile", "/api/reports/detail", "/api/query", "/docs",
             "/openapi.json", "/?token=x", "//etc/passwd", "/../../etc/passwd"):
    for method in ("GET", "POST", "HEAD", "OPTIONS"):
        connection = http.client.HTTPConnection("127.0.0.1", int(port))
        connection.request(method, path, headers={"X-PyProf": "1"})
        answer = connection.getresponse()
        print(answer.status, answer.read().decode())
for name, read in {"environ": open, "mem": open, "maps": open, "fd": os.listdir}.items():
    try:
        print("READ", read(f"/proc/{pid}/{name}"))
    except PermissionError:
        pass
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("ports")
    ranks, program = planted_ranks.write(folder / "ranks"), folder / "program.py"
    file = kineto.write(folder / "net.json", kineto.training())
    program.write_text(_PROGRAM)
    return {"RANKS": str(ranks), "FILE": str(file), "PROGRAM": str(program), "OUT": str(folder / "out")}


class Watched:
    """Processes whose addresses are noted, those of their children too."""

    def __init__(self, folder: Path):
        self._log = folder / "log"
        (folder / "sitecustomize.py").write_text(_WITNESS.format(file=str(self._log)))
        path = os.pathsep.join([str(folder), str(ROOT)])
        self._environment = os.environ | {"PYTHONPATH": path, "TERM": "xterm", "OMP_NUM_THREADS": "1"}

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, *words], text=True, env=self._environment, **options)  # type: ignore[call-overload, no-any-return]

    def addresses(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_every_command_is_here() -> None:
    assert TOGETHER.keys() | ALONE.keys() | LONG.keys() | EXEMPT.keys() == COMMANDS.keys()


def typed(words: str, files: dict[str, str]) -> str:
    return re.sub("|".join(files), lambda name: files[name[0]], words)


def test_commands_listen_nowhere(watched: Watched, files: dict[str, str], tmp_path: Path) -> None:
    words = [typed(command, files) for command in TOGETHER.values()]
    assert watched.start("-c", _RUN, *words, cwd=tmp_path, stdin=subprocess.DEVNULL).wait(HANG) == 0
    assert watched.addresses() == []


@pytest.mark.parametrize("command", [*ALONE, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_command_with_a_process_of_its_own_listens_nowhere(
    command: str, watched: Watched, files: dict[str, str]
) -> None:
    words = typed((ALONE | LONG)[command], {**files, "OUT": f"{files['OUT']}.{command}"}).split()
    ours, theirs = pty.openpty()
    console = theirs if command == "top" else subprocess.DEVNULL
    program = () if command == "trigger" else ("-m", "pyprof")
    process = watched.start(*program, *words, stdin=console, stdout=console)
    os.close(theirs)
    if command == "top":
        os.write(ours, b"q")
        with suppress(OSError):  # the end of a terminal
            while os.read(ours, 1 << 16):
                pass
    os.close(ours)
    assert process.wait(HANG) == 0
    assert watched.addresses() == []


@pytest.fixture
def viewer(watched: Watched, files: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A viewer and its address."""
    process = watched.start("-m", "pyprof", "view", "-p", "0", files["FILE"], stdout=subprocess.PIPE)
    assert process.stdout
    yield process, process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_nothing_from_the_viewer(
    viewer: tuple[subprocess.Popen[str], str], watched: Watched, files: dict[str, str]
) -> None:
    process, url = viewer
    _, port, token = re.split(r"localhost:|/\?token=", url.strip())
    assert {address.split("'")[1] for address in watched.addresses()} <= {"127.0.0.1", "::1"}
    found = subprocess.run(
        [sys.executable, "-c", _STRANGER, str(process.pid), port, str(NOBODY)],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    assert set(re.findall(r"^\d\d\d", found, re.M)) <= {"401", "403"}
    assert "READ" not in found
    assert Path(files["FILE"]).name not in found
    assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
